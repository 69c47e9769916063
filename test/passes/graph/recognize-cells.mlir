// RUN: attn-opt %s -attn-recognize-cells -split-input-file | FileCheck %s

#x = affine_map<(b, n, k) -> (b, k)>
#w = affine_map<(b, n, k) -> (k, n)>
#y = affine_map<(b, n, k) -> (b, n)>
#id = affine_map<(b, n) -> (b, n)>
#n = affine_map<(b, n) -> (n)>
// tanh(x W + h R + b) where a loop carries h: the matrices turn, and the bias stands beside the input's product.
// CHECK-LABEL: func.func @carried
// CHECK: scf.for {{.*}} iter_args(%[[H:.*]] = %{{.*}}) -> (tensor<?x32xf32>)
// CHECK: %[[INITIAL:.*]] = tensor.expand_shape %[[H]]
// CHECK: %{{.*}}, %[[LAST:.*]] = attn.rnn forward [#attn.activation<tanh>] ins(%{{.*}} : tensor<1x?x8xf32>, tensor<1x32x8xf32>, tensor<1x32x32xf32>)
// CHECK-SAME: bias({{.*}}) initial_h(%[[INITIAL]] : tensor<1x?x32xf32>)
// CHECK: %[[NEXT:.*]] = tensor.collapse_shape %[[LAST]]
// CHECK: scf.yield %[[NEXT]]
// CHECK: attn.global @[[T:.*]] : tensor<32x32xf32> = #attn.transpose<@r, [1, 0]>
// CHECK: attn.global @[[R:.*]] : tensor<1x32x32xf32> = #attn.reshape<@[[T]]>
attn.global @w : tensor<8x32xf32> = #attn.initializer<"w">
attn.global @r : tensor<32x32xf32> = #attn.initializer<"r">
func.func @carried(%x: tensor<?x8xf32>, %h: tensor<?x32xf32>, %steps: index) -> tensor<?x32xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %bias = arith.constant dense<0.5> : tensor<32xf32>
  %w = attn.weight @w : tensor<8x32xf32>
  %r = attn.weight @r : tensor<32x32xf32>
  %rows = tensor.dim %x, %c0 : tensor<?x8xf32>
  %e = tensor.empty(%rows) : tensor<?x32xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x32xf32>) -> tensor<?x32xf32>
  %last = scf.for %i = %c0 to %steps step %c1 iter_args(%s = %h) -> tensor<?x32xf32> {
    %0 = linalg.contract indexing_maps = [#x, #w, #y] ins(%x, %w : tensor<?x8xf32>, tensor<8x32xf32>)
        outs(%f : tensor<?x32xf32>) -> tensor<?x32xf32>
    %1 = linalg.contract indexing_maps = [#x, #w, #y] ins(%s, %r : tensor<?x32xf32>, tensor<32x32xf32>)
        outs(%f : tensor<?x32xf32>) -> tensor<?x32xf32>
    %2 = linalg.generic {indexing_maps = [#id, #id, #n, #id], iterator_types = ["parallel", "parallel"]}
        ins(%0, %1, %bias : tensor<?x32xf32>, tensor<?x32xf32>, tensor<32xf32>) outs(%e : tensor<?x32xf32>) {
    ^bb0(%a: f32, %b: f32, %c: f32, %o: f32):
      %3 = arith.addf %b, %a : f32
      %4 = arith.addf %c, %3 : f32
      %5 = math.tanh %4 : f32
      linalg.yield %5 : f32
    } -> tensor<?x32xf32>
    scf.yield %2 : tensor<?x32xf32>
  }
  return %last : tensor<?x32xf32>
}

// -----

#x = affine_map<(b, n, k) -> (b, k)>
#w = affine_map<(b, n, k) -> (k, n)>
#y = affine_map<(b, n, k) -> (b, n)>
#id = affine_map<(b, n) -> (b, n)>
// Near misses: the loop carries something else, and a matrix that is no constant.
// CHECK-LABEL: func.func @not_carried
// CHECK-NOT: attn.rnn
attn.global @w : tensor<8x32xf32> = #attn.initializer<"w">
attn.global @r : tensor<32x32xf32> = #attn.initializer<"r">
func.func @not_carried(%x: tensor<4x8xf32>, %h: tensor<4x32xf32>, %m: tensor<32x32xf32>, %steps: index)
    -> (tensor<4x32xf32>, tensor<4x32xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %w = attn.weight @w : tensor<8x32xf32>
  %r = attn.weight @r : tensor<32x32xf32>
  %e = tensor.empty() : tensor<4x32xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<4x32xf32>) -> tensor<4x32xf32>
  %last:2 = scf.for %i = %c0 to %steps step %c1 iter_args(%s = %h, %t = %h) -> (tensor<4x32xf32>, tensor<4x32xf32>) {
    %0 = linalg.contract indexing_maps = [#x, #w, #y] ins(%x, %w : tensor<4x8xf32>, tensor<8x32xf32>)
        outs(%f : tensor<4x32xf32>) -> tensor<4x32xf32>
    %1 = linalg.contract indexing_maps = [#x, #w, #y] ins(%s, %r : tensor<4x32xf32>, tensor<32x32xf32>)
        outs(%f : tensor<4x32xf32>) -> tensor<4x32xf32>
    %2 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%0, %1 : tensor<4x32xf32>, tensor<4x32xf32>) outs(%e : tensor<4x32xf32>) {
    ^bb0(%a: f32, %b: f32, %o: f32):
      %3 = arith.addf %a, %b : f32
      %4 = math.tanh %3 : f32
      linalg.yield %4 : f32
    } -> tensor<4x32xf32>
    %5 = linalg.contract indexing_maps = [#x, #w, #y] ins(%t, %m : tensor<4x32xf32>, tensor<32x32xf32>)
        outs(%f : tensor<4x32xf32>) -> tensor<4x32xf32>
    %6 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%0, %5 : tensor<4x32xf32>, tensor<4x32xf32>) outs(%e : tensor<4x32xf32>) {
    ^bb0(%a: f32, %b: f32, %o: f32):
      %7 = arith.addf %a, %b : f32
      %8 = math.tanh %7 : f32
      linalg.yield %8 : f32
    } -> tensor<4x32xf32>
    %9 = linalg.add ins(%s, %2 : tensor<4x32xf32>, tensor<4x32xf32>) outs(%e : tensor<4x32xf32>) -> tensor<4x32xf32>
    scf.yield %9, %6 : tensor<4x32xf32>, tensor<4x32xf32>
  }
  return %last#0, %last#1 : tensor<4x32xf32>, tensor<4x32xf32>
}

// -----

#x = affine_map<(b, n, k) -> (b, k)>
#w = affine_map<(b, n, k) -> (k, n)>
#y = affine_map<(b, n, k) -> (b, n)>
#id = affine_map<(b, n) -> (b, n)>
#n = affine_map<(b, n) -> (n)>
// Biases that the file stores, one of them as a row, and a number: their sum.
// CHECK-LABEL: func.func @stored_biases
// CHECK: %[[B:.*]] = attn.weight @b : tensor<32xf32>
// CHECK: %[[C:.*]] = attn.weight @c : tensor<1x32xf32>
// CHECK: tensor.extract_slice %[[B]][0] [32]
// CHECK: %[[ROW:.*]] = tensor.collapse_shape %[[C]]
// CHECK: tensor.extract_slice %[[ROW]][0] [32]
// CHECK-COUNT-2: arith.addf
// CHECK: %[[BIAS:.*]] = tensor.insert_slice %{{.*}} into %{{.*}}[0, 0] [1, 32]
// CHECK: attn.rnn {{.*}} bias(%[[BIAS]] : tensor<1x64xf32>)
attn.global @w : tensor<8x32xf32> = #attn.initializer<"w">
attn.global @r : tensor<32x32xf32> = #attn.initializer<"r">
attn.global @b : tensor<32xf32> = #attn.initializer<"b">
attn.global @c : tensor<1x32xf32> = #attn.initializer<"c">
func.func @stored_biases(%x: tensor<?x8xf32>, %h: tensor<?x32xf32>, %steps: index) -> tensor<?x32xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %w = attn.weight @w : tensor<8x32xf32>
  %r = attn.weight @r : tensor<32x32xf32>
  %b = attn.weight @b : tensor<32xf32>
  %c2 = attn.weight @c : tensor<1x32xf32>
  %c = tensor.collapse_shape %c2 [[0, 1]] : tensor<1x32xf32> into tensor<32xf32>
  %rows = tensor.dim %x, %c0 : tensor<?x8xf32>
  %e = tensor.empty(%rows) : tensor<?x32xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x32xf32>) -> tensor<?x32xf32>
  %last = scf.for %i = %c0 to %steps step %c1 iter_args(%s = %h) -> tensor<?x32xf32> {
    %0 = linalg.contract indexing_maps = [#x, #w, #y] ins(%x, %w : tensor<?x8xf32>, tensor<8x32xf32>)
        outs(%f : tensor<?x32xf32>) -> tensor<?x32xf32>
    %1 = linalg.contract indexing_maps = [#x, #w, #y] ins(%s, %r : tensor<?x32xf32>, tensor<32x32xf32>)
        outs(%f : tensor<?x32xf32>) -> tensor<?x32xf32>
    %2 = linalg.generic {indexing_maps = [#id, #id, #n, #n, #id], iterator_types = ["parallel", "parallel"]}
        ins(%0, %1, %b, %c : tensor<?x32xf32>, tensor<?x32xf32>, tensor<32xf32>, tensor<32xf32>) outs(%e : tensor<?x32xf32>) {
    ^bb0(%a: f32, %t: f32, %u: f32, %v: f32, %o: f32):
      %half = arith.constant 0.5 : f32
      %3 = arith.addf %a, %u : f32
      %4 = arith.addf %t, %v : f32
      %5 = arith.addf %3, %4 : f32
      %6 = arith.addf %5, %half : f32
      %7 = math.tanh %6 : f32
      linalg.yield %7 : f32
    } -> tensor<?x32xf32>
    scf.yield %2 : tensor<?x32xf32>
  }
  return %last : tensor<?x32xf32>
}
