// RUN: attn-opt %s -attn-merge-projections=any-rows -split-input-file | FileCheck %s
// RUN: attn-opt %s -attn-merge-projections -split-input-file | FileCheck %s --check-prefix=CPU

// In bf16, of any number of rows and width: the op behind the product rounds, adds the biases and rounds.
// CPU-LABEL: func.func @biased
// CPU-COUNT-3: linalg.contract
#x = affine_map<(b, s, n, k) -> (b, s, k)>
#w = affine_map<(b, s, n, k) -> (k, n)>
#r = affine_map<(b, s, n, k) -> (b, s, n)>
#all = affine_map<(b, s, n) -> (b, s, n)>
#last = affine_map<(b, s, n) -> (n)>
#q = affine_map<(b, h, i, j, d, e) -> (b, i, h, d)>
#k = affine_map<(b, h, i, j, d, e) -> (b, j, h, d)>
#v = affine_map<(b, h, i, j, d, e) -> (b, j, h, e)>
#o = affine_map<(b, h, i, j, d, e) -> (b, i, h, e)>
attn.global @wq : tensor<8x20xbf16> = #attn.initializer<"wq">
attn.global @wk : tensor<8x20xbf16> = #attn.initializer<"wk">
attn.global @wv : tensor<8x20xbf16> = #attn.initializer<"wv">
// CHECK-DAG: attn.global @"wq+wk+wv" : tensor<8x60xbf16> = #attn.concat<[@wq, @wk, @wv], dim 1>
// CHECK-LABEL: func.func @biased
// CHECK-SAME: (%[[X:.+]]: tensor<?x3x8xbf16>)
// CHECK: %[[W:.+]] = attn.weight @"wq+wk+wv" : tensor<8x60xbf16>
// CHECK: %[[P:.+]] = linalg.contract {{.*}} ins(%[[X]], %[[W]] : tensor<?x3x8xbf16>, tensor<8x60xbf16>) {{.*}} -> tensor<?x3x60xf32>
// CHECK: %[[BIAS:.+]] = arith.constant dense<[{{(1.0+e.00, ){20}(2.0+e.00, ){20}(3.0+e.00, ){19}3.0+e.00}}]> : tensor<60xbf16>
// CHECK: %[[A:.+]] = linalg.generic {{.*}} ins(%[[BIAS]], %[[P]] : tensor<60xbf16>, tensor<?x3x60xf32>)
// CHECK: arith.truncf
// CHECK: arith.addf
// CHECK: arith.truncf
// CHECK-NOT: linalg.contract
// CHECK: %[[Q:.+]] = tensor.extract_slice %[[A]][0, 0, 0] [%{{.+}}, 3, 20] [1, 1, 1]
// CHECK: %[[K:.+]] = tensor.extract_slice %[[A]][0, 0, 20] [%{{.+}}, 3, 20] [1, 1, 1]
// CHECK: %[[V:.+]] = tensor.extract_slice %[[A]][0, 0, 40] [%{{.+}}, 3, 20] [1, 1, 1]
func.func @biased(%x: tensor<?x3x8xbf16>) -> tensor<?x3x4x5xbf16> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %n = tensor.dim %x, %c0 : tensor<?x3x8xbf16>
  %bq = arith.constant dense<1.0> : tensor<20xbf16>
  %bk = arith.constant dense<2.0> : tensor<20xbf16>
  %bv = arith.constant dense<3.0> : tensor<20xbf16>
  %wq = attn.weight @wq : tensor<8x20xbf16>
  %wk = attn.weight @wk : tensor<8x20xbf16>
  %wv = attn.weight @wv : tensor<8x20xbf16>
  %e = tensor.empty(%n) : tensor<?x3x20xf32>
  %h = tensor.empty(%n) : tensor<?x3x20xbf16>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x3x20xf32>) -> tensor<?x3x20xf32>
  %q0 = linalg.contract indexing_maps = [#x, #w, #r] ins(%x, %wq : tensor<?x3x8xbf16>, tensor<8x20xbf16>) outs(%z : tensor<?x3x20xf32>) -> tensor<?x3x20xf32>
  %q1 = linalg.generic {indexing_maps = [#last, #all, #all], iterator_types = ["parallel", "parallel", "parallel"]} ins(%bq, %q0 : tensor<20xbf16>, tensor<?x3x20xf32>) outs(%h : tensor<?x3x20xbf16>) {
  ^bb0(%a: bf16, %b: f32, %c: bf16):
    %t = arith.truncf %b : f32 to bf16
    %u = arith.extf %a : bf16 to f32
    %v = arith.extf %t : bf16 to f32
    %s = arith.addf %u, %v : f32
    %g = arith.truncf %s : f32 to bf16
    linalg.yield %g : bf16
  } -> tensor<?x3x20xbf16>
  %k0 = linalg.contract indexing_maps = [#x, #w, #r] ins(%x, %wk : tensor<?x3x8xbf16>, tensor<8x20xbf16>) outs(%z : tensor<?x3x20xf32>) -> tensor<?x3x20xf32>
  %k1 = linalg.generic {indexing_maps = [#last, #all, #all], iterator_types = ["parallel", "parallel", "parallel"]} ins(%bk, %k0 : tensor<20xbf16>, tensor<?x3x20xf32>) outs(%h : tensor<?x3x20xbf16>) {
  ^bb0(%a: bf16, %b: f32, %c: bf16):
    %t = arith.truncf %b : f32 to bf16
    %u = arith.extf %a : bf16 to f32
    %v = arith.extf %t : bf16 to f32
    %s = arith.addf %u, %v : f32
    %g = arith.truncf %s : f32 to bf16
    linalg.yield %g : bf16
  } -> tensor<?x3x20xbf16>
  %v0 = linalg.contract indexing_maps = [#x, #w, #r] ins(%x, %wv : tensor<?x3x8xbf16>, tensor<8x20xbf16>) outs(%z : tensor<?x3x20xf32>) -> tensor<?x3x20xf32>
  %v1 = linalg.generic {indexing_maps = [#last, #all, #all], iterator_types = ["parallel", "parallel", "parallel"]} ins(%bv, %v0 : tensor<20xbf16>, tensor<?x3x20xf32>) outs(%h : tensor<?x3x20xbf16>) {
  ^bb0(%a: bf16, %b: f32, %c: bf16):
    %t = arith.truncf %b : f32 to bf16
    %u = arith.extf %a : bf16 to f32
    %v = arith.extf %t : bf16 to f32
    %s = arith.addf %u, %v : f32
    %g = arith.truncf %s : f32 to bf16
    linalg.yield %g : bf16
  } -> tensor<?x3x20xbf16>
  %qh = tensor.expand_shape %q1 [[0], [1], [2, 3]] output_shape [%n, 3, 4, 5] : tensor<?x3x20xbf16> into tensor<?x3x4x5xbf16>
  %kh = tensor.expand_shape %k1 [[0], [1], [2, 3]] output_shape [%n, 3, 4, 5] : tensor<?x3x20xbf16> into tensor<?x3x4x5xbf16>
  %vh = tensor.expand_shape %v1 [[0], [1], [2, 3]] output_shape [%n, 3, 4, 5] : tensor<?x3x20xbf16> into tensor<?x3x4x5xbf16>
  %o = attn.attention masked_rows zero maps [#q, #k, #v, #o]
      ins(%qh, %kh, %vh : tensor<?x3x4x5xbf16>, tensor<?x3x4x5xbf16>, tensor<?x3x4x5xbf16>) -> tensor<?x3x4x5xbf16>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
  return %o : tensor<?x3x4x5xbf16>
}

// -----

#x = affine_map<(b, s, n, k) -> (b, s, k)>
#w = affine_map<(b, s, n, k) -> (k, n)>
#r = affine_map<(b, s, n, k) -> (b, s, n)>
#all = affine_map<(b, s, n) -> (b, s, n)>
#last = affine_map<(b, s, n) -> (n)>
#q = affine_map<(b, h, i, j, d, e) -> (b, i, h, d)>
#k = affine_map<(b, h, i, j, d, e) -> (b, j, h, d)>
#v = affine_map<(b, h, i, j, d, e) -> (b, j, h, e)>
#o = affine_map<(b, h, i, j, d, e) -> (b, i, h, e)>
attn.global @wq : tensor<8x20xbf16> = #attn.initializer<"wq">
attn.global @wk : tensor<8x20xbf16> = #attn.initializer<"wk">
attn.global @wv : tensor<8x20xbf16> = #attn.initializer<"wv">
attn.global @bq : tensor<20xbf16> = #attn.initializer<"bq">
attn.global @bk : tensor<20xbf16> = #attn.initializer<"bk">
attn.global @bv : tensor<20xbf16> = #attn.initializer<"bv">
// Large biases are weights.
// CHECK-LABEL: func.func @weights
// CHECK: linalg.contract
// CHECK: %[[BIAS:.+]] = attn.weight @"bq+bk+bv" : tensor<60xbf16>
// CHECK: linalg.generic {{.*}} ins(%[[BIAS]],
// CHECK-NOT: linalg.contract
// CHECK: attn.global @"bq+bk+bv" : tensor<60xbf16> = #attn.concat<[@bq, @bk, @bv], dim 0>
func.func @weights(%x: tensor<?x3x8xbf16>) -> tensor<?x3x4x5xbf16> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %n = tensor.dim %x, %c0 : tensor<?x3x8xbf16>
  %bq = attn.weight @bq : tensor<20xbf16>
  %bk = attn.weight @bk : tensor<20xbf16>
  %bv = attn.weight @bv : tensor<20xbf16>
  %wq = attn.weight @wq : tensor<8x20xbf16>
  %wk = attn.weight @wk : tensor<8x20xbf16>
  %wv = attn.weight @wv : tensor<8x20xbf16>
  %e = tensor.empty(%n) : tensor<?x3x20xf32>
  %h = tensor.empty(%n) : tensor<?x3x20xbf16>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x3x20xf32>) -> tensor<?x3x20xf32>
  %q0 = linalg.contract indexing_maps = [#x, #w, #r] ins(%x, %wq : tensor<?x3x8xbf16>, tensor<8x20xbf16>) outs(%z : tensor<?x3x20xf32>) -> tensor<?x3x20xf32>
  %q1 = linalg.generic {indexing_maps = [#last, #all, #all], iterator_types = ["parallel", "parallel", "parallel"]} ins(%bq, %q0 : tensor<20xbf16>, tensor<?x3x20xf32>) outs(%h : tensor<?x3x20xbf16>) {
  ^bb0(%a: bf16, %b: f32, %c: bf16):
    %t = arith.truncf %b : f32 to bf16
    %u = arith.extf %a : bf16 to f32
    %v = arith.extf %t : bf16 to f32
    %s = arith.addf %u, %v : f32
    %g = arith.truncf %s : f32 to bf16
    linalg.yield %g : bf16
  } -> tensor<?x3x20xbf16>
  %k0 = linalg.contract indexing_maps = [#x, #w, #r] ins(%x, %wk : tensor<?x3x8xbf16>, tensor<8x20xbf16>) outs(%z : tensor<?x3x20xf32>) -> tensor<?x3x20xf32>
  %k1 = linalg.generic {indexing_maps = [#last, #all, #all], iterator_types = ["parallel", "parallel", "parallel"]} ins(%bk, %k0 : tensor<20xbf16>, tensor<?x3x20xf32>) outs(%h : tensor<?x3x20xbf16>) {
  ^bb0(%a: bf16, %b: f32, %c: bf16):
    %t = arith.truncf %b : f32 to bf16
    %u = arith.extf %a : bf16 to f32
    %v = arith.extf %t : bf16 to f32
    %s = arith.addf %u, %v : f32
    %g = arith.truncf %s : f32 to bf16
    linalg.yield %g : bf16
  } -> tensor<?x3x20xbf16>
  %v0 = linalg.contract indexing_maps = [#x, #w, #r] ins(%x, %wv : tensor<?x3x8xbf16>, tensor<8x20xbf16>) outs(%z : tensor<?x3x20xf32>) -> tensor<?x3x20xf32>
  %v1 = linalg.generic {indexing_maps = [#last, #all, #all], iterator_types = ["parallel", "parallel", "parallel"]} ins(%bv, %v0 : tensor<20xbf16>, tensor<?x3x20xf32>) outs(%h : tensor<?x3x20xbf16>) {
  ^bb0(%a: bf16, %b: f32, %c: bf16):
    %t = arith.truncf %b : f32 to bf16
    %u = arith.extf %a : bf16 to f32
    %v = arith.extf %t : bf16 to f32
    %s = arith.addf %u, %v : f32
    %g = arith.truncf %s : f32 to bf16
    linalg.yield %g : bf16
  } -> tensor<?x3x20xbf16>
  %qh = tensor.expand_shape %q1 [[0], [1], [2, 3]] output_shape [%n, 3, 4, 5] : tensor<?x3x20xbf16> into tensor<?x3x4x5xbf16>
  %kh = tensor.expand_shape %k1 [[0], [1], [2, 3]] output_shape [%n, 3, 4, 5] : tensor<?x3x20xbf16> into tensor<?x3x4x5xbf16>
  %vh = tensor.expand_shape %v1 [[0], [1], [2, 3]] output_shape [%n, 3, 4, 5] : tensor<?x3x20xbf16> into tensor<?x3x4x5xbf16>
  %o = attn.attention masked_rows zero maps [#q, #k, #v, #o]
      ins(%qh, %kh, %vh : tensor<?x3x4x5xbf16>, tensor<?x3x4x5xbf16>, tensor<?x3x4x5xbf16>) -> tensor<?x3x4x5xbf16>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
  return %o : tensor<?x3x4x5xbf16>
}

// -----

#x = affine_map<(b, s, n, k) -> (b, s, k)>
#w = affine_map<(b, s, n, k) -> (k, n)>
#r = affine_map<(b, s, n, k) -> (b, s, n)>
#all = affine_map<(b, s, n) -> (b, s, n)>
#last = affine_map<(b, s, n) -> (n)>
#q = affine_map<(b, h, i, j, d, e) -> (b, i, h, d)>
#k = affine_map<(b, h, i, j, d, e) -> (b, j, h, d)>
#v = affine_map<(b, h, i, j, d, e) -> (b, j, h, e)>
#o = affine_map<(b, h, i, j, d, e) -> (b, i, h, e)>
attn.global @wq : tensor<8x20xbf16> = #attn.initializer<"wq">
attn.global @wk : tensor<8x20xbf16> = #attn.initializer<"wk">
attn.global @wv : tensor<8x20xbf16> = #attn.initializer<"wv">
// Near miss: the key has no bias, so that another op rounds it. The others are one.
// CHECK-LABEL: func.func @one_without
// CHECK: attn.weight @"wq+wv" : tensor<8x40xbf16>
// CHECK-COUNT-2: linalg.contract
// CHECK-NOT: linalg.contract
func.func @one_without(%x: tensor<?x3x8xbf16>) -> tensor<?x3x4x5xbf16> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %n = tensor.dim %x, %c0 : tensor<?x3x8xbf16>
  %bq = arith.constant dense<1.0> : tensor<20xbf16>
  %bk = arith.constant dense<2.0> : tensor<20xbf16>
  %bv = arith.constant dense<3.0> : tensor<20xbf16>
  %wq = attn.weight @wq : tensor<8x20xbf16>
  %wk = attn.weight @wk : tensor<8x20xbf16>
  %wv = attn.weight @wv : tensor<8x20xbf16>
  %e = tensor.empty(%n) : tensor<?x3x20xf32>
  %h = tensor.empty(%n) : tensor<?x3x20xbf16>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x3x20xf32>) -> tensor<?x3x20xf32>
  %q0 = linalg.contract indexing_maps = [#x, #w, #r] ins(%x, %wq : tensor<?x3x8xbf16>, tensor<8x20xbf16>) outs(%z : tensor<?x3x20xf32>) -> tensor<?x3x20xf32>
  %q1 = linalg.generic {indexing_maps = [#last, #all, #all], iterator_types = ["parallel", "parallel", "parallel"]} ins(%bq, %q0 : tensor<20xbf16>, tensor<?x3x20xf32>) outs(%h : tensor<?x3x20xbf16>) {
  ^bb0(%a: bf16, %b: f32, %c: bf16):
    %t = arith.truncf %b : f32 to bf16
    %u = arith.extf %a : bf16 to f32
    %v = arith.extf %t : bf16 to f32
    %s = arith.addf %u, %v : f32
    %g = arith.truncf %s : f32 to bf16
    linalg.yield %g : bf16
  } -> tensor<?x3x20xbf16>
  %k0 = linalg.contract indexing_maps = [#x, #w, #r] ins(%x, %wk : tensor<?x3x8xbf16>, tensor<8x20xbf16>) outs(%z : tensor<?x3x20xf32>) -> tensor<?x3x20xf32>
  %k1 = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel", "parallel"]} ins(%k0 : tensor<?x3x20xf32>) outs(%h : tensor<?x3x20xbf16>) {
  ^bb0(%b: f32, %c: bf16):
    %t = arith.truncf %b : f32 to bf16
    linalg.yield %t : bf16
  } -> tensor<?x3x20xbf16>
  %v0 = linalg.contract indexing_maps = [#x, #w, #r] ins(%x, %wv : tensor<?x3x8xbf16>, tensor<8x20xbf16>) outs(%z : tensor<?x3x20xf32>) -> tensor<?x3x20xf32>
  %v1 = linalg.generic {indexing_maps = [#last, #all, #all], iterator_types = ["parallel", "parallel", "parallel"]} ins(%bv, %v0 : tensor<20xbf16>, tensor<?x3x20xf32>) outs(%h : tensor<?x3x20xbf16>) {
  ^bb0(%a: bf16, %b: f32, %c: bf16):
    %t = arith.truncf %b : f32 to bf16
    %u = arith.extf %a : bf16 to f32
    %v = arith.extf %t : bf16 to f32
    %s = arith.addf %u, %v : f32
    %g = arith.truncf %s : f32 to bf16
    linalg.yield %g : bf16
  } -> tensor<?x3x20xbf16>
  %qh = tensor.expand_shape %q1 [[0], [1], [2, 3]] output_shape [%n, 3, 4, 5] : tensor<?x3x20xbf16> into tensor<?x3x4x5xbf16>
  %kh = tensor.expand_shape %k1 [[0], [1], [2, 3]] output_shape [%n, 3, 4, 5] : tensor<?x3x20xbf16> into tensor<?x3x4x5xbf16>
  %vh = tensor.expand_shape %v1 [[0], [1], [2, 3]] output_shape [%n, 3, 4, 5] : tensor<?x3x20xbf16> into tensor<?x3x4x5xbf16>
  %o = attn.attention masked_rows zero maps [#q, #k, #v, #o]
      ins(%qh, %kh, %vh : tensor<?x3x4x5xbf16>, tensor<?x3x4x5xbf16>, tensor<?x3x4x5xbf16>) -> tensor<?x3x4x5xbf16>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
  return %o : tensor<?x3x4x5xbf16>
}
