// RUN: attn-opt %s -attn-merge-projections -split-input-file | FileCheck %s

#x = affine_map<(b, s, n, k) -> (b, s, k)>
#w = affine_map<(b, s, n, k) -> (k, n)>
#r = affine_map<(b, s, n, k) -> (b, s, n)>
#all = affine_map<(b, s, n) -> (b, s, n)>
#last = affine_map<(b, s, n) -> (n)>
#q = affine_map<(b, h, i, j, d, e) -> (b, i, h, d)>
#k = affine_map<(b, h, i, j, d, e) -> (b, j, h floordiv 2, d)>
#v = affine_map<(b, h, i, j, d, e) -> (b, j, h floordiv 2, e)>
#o = affine_map<(b, h, i, j, d, e) -> (b, i, h, e)>
attn.global @wq : tensor<8x8xf32> = #attn.initializer<"wq">
attn.global @wk : tensor<8x4xf32> = #attn.initializer<"wk">
attn.global @wv : tensor<8x4xf32> = #attn.initializer<"wv">
// Grouped heads; the key has no bias.
// CHECK: attn.global @"wq+wk+wv" : tensor<8x16xf32> = #attn.concat<[@wq, @wk, @wv], dim 1>
// CHECK-LABEL: func.func @grouped
// CHECK-SAME: (%[[X:.+]]: tensor<2x3x8xf32>)
// CHECK: %[[W:.+]] = attn.weight @"wq+wk+wv" : tensor<8x16xf32>
// CHECK: %[[P:.+]] = linalg.contract {{.*}} ins(%[[X]], %[[W]] : tensor<2x3x8xf32>, tensor<8x16xf32>)
// CHECK-NOT: linalg.contract
// CHECK: %[[BIAS:.+]] = arith.constant dense<[1.000000e+00, {{.*}}, -0.000000e+00, -0.000000e+00, -0.000000e+00, -0.000000e+00, 2.000000e+00, {{.*}}]> : tensor<16xf32>
// CHECK: %[[A:.+]] = linalg.generic {{.*}} ins(%[[P]], %[[BIAS]]
// CHECK-DAG: %[[Q:.+]] = tensor.extract_slice %[[A]][0, 0, 0] [2, 3, 8] [1, 1, 1]
// CHECK-DAG: %[[K:.+]] = tensor.extract_slice %[[A]][0, 0, 8] [2, 3, 4] [1, 1, 1]
// CHECK-DAG: %[[V:.+]] = tensor.extract_slice %[[A]][0, 0, 12] [2, 3, 4] [1, 1, 1]
// CHECK-DAG: %[[QH:.+]] = tensor.expand_shape %[[Q]]
// CHECK-DAG: %[[KH:.+]] = tensor.expand_shape %[[K]]
// CHECK-DAG: %[[VH:.+]] = tensor.expand_shape %[[V]]
// CHECK: attn.attention {{.*}} ins(%[[QH]], %[[KH]], %[[VH]]
func.func @grouped(%x: tensor<2x3x8xf32>) -> tensor<2x3x4x2xf32> {
  %zero = arith.constant 0.0 : f32
  %bq = arith.constant dense<[1.0, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5]> : tensor<8xf32>
  %bv = arith.constant dense<[2.0, 2.5, 2.5, 2.5]> : tensor<4xf32>
  %wq = attn.weight @wq : tensor<8x8xf32>
  %wk = attn.weight @wk : tensor<8x4xf32>
  %wv = attn.weight @wv : tensor<8x4xf32>
  %e8 = tensor.empty() : tensor<2x3x8xf32>
  %z8 = linalg.fill ins(%zero : f32) outs(%e8 : tensor<2x3x8xf32>) -> tensor<2x3x8xf32>
  %e4 = tensor.empty() : tensor<2x3x4xf32>
  %z4 = linalg.fill ins(%zero : f32) outs(%e4 : tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
  %q0 = linalg.contract indexing_maps = [#x, #w, #r] ins(%x, %wq : tensor<2x3x8xf32>, tensor<8x8xf32>) outs(%z8 : tensor<2x3x8xf32>) -> tensor<2x3x8xf32>
  %q1 = linalg.generic {indexing_maps = [#all, #last, #all], iterator_types = ["parallel", "parallel", "parallel"]} ins(%q0, %bq : tensor<2x3x8xf32>, tensor<8xf32>) outs(%e8 : tensor<2x3x8xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %s = arith.addf %a, %b : f32
    linalg.yield %s : f32
  } -> tensor<2x3x8xf32>
  %k0 = linalg.contract indexing_maps = [#x, #w, #r] ins(%x, %wk : tensor<2x3x8xf32>, tensor<8x4xf32>) outs(%z4 : tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
  %v0 = linalg.contract indexing_maps = [#x, #w, #r] ins(%x, %wv : tensor<2x3x8xf32>, tensor<8x4xf32>) outs(%z4 : tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
  %v1 = linalg.generic {indexing_maps = [#last, #all, #all], iterator_types = ["parallel", "parallel", "parallel"]} ins(%bv, %v0 : tensor<4xf32>, tensor<2x3x4xf32>) outs(%e4 : tensor<2x3x4xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %s = arith.addf %a, %b : f32
    linalg.yield %s : f32
  } -> tensor<2x3x4xf32>
  %qh = tensor.expand_shape %q1 [[0], [1], [2, 3]] output_shape [2, 3, 4, 2] : tensor<2x3x8xf32> into tensor<2x3x4x2xf32>
  %kh = tensor.expand_shape %k0 [[0], [1], [2, 3]] output_shape [2, 3, 2, 2] : tensor<2x3x4xf32> into tensor<2x3x2x2xf32>
  %vh = tensor.expand_shape %v1 [[0], [1], [2, 3]] output_shape [2, 3, 2, 2] : tensor<2x3x4xf32> into tensor<2x3x2x2xf32>
  %o = attn.attention masked_rows zero maps [#q, #k, #v, #o]
      ins(%qh, %kh, %vh : tensor<2x3x4x2xf32>, tensor<2x3x2x2xf32>, tensor<2x3x2x2xf32>) -> tensor<2x3x4x2xf32>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
  return %o : tensor<2x3x4x2xf32>
}

// -----

#x = affine_map<(b, s, n, k) -> (b, s, k)>
#w = affine_map<(b, s, n, k) -> (k, n)>
#r = affine_map<(b, s, n, k) -> (b, s, n)>
#all = affine_map<(b, s, n) -> (b, s, n)>
#last = affine_map<(b, s, n) -> (n)>
#q = affine_map<(b, h, i, j, d, e) -> (b, i, h, d)>
#k = affine_map<(b, h, i, j, d, e) -> (b, j, h floordiv 2, d)>
#v = affine_map<(b, h, i, j, d, e) -> (b, j, h floordiv 2, e)>
#o = affine_map<(b, h, i, j, d, e) -> (b, i, h, e)>
attn.global @wq : tensor<8x8xf32> = #attn.initializer<"wq">
attn.global @wk : tensor<8x4xf32> = #attn.initializer<"wk">
attn.global @wv : tensor<8x4xf32> = #attn.initializer<"wv">
// How many rows there are is not known.
// CHECK-LABEL: func.func @unknown_rows
// CHECK-COUNT-3: linalg.contract
func.func @unknown_rows(%x: tensor<?x3x8xf32>) -> tensor<?x3x4x2xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %n = tensor.dim %x, %c0 : tensor<?x3x8xf32>
  %bq = arith.constant dense<[1.0, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5]> : tensor<8xf32>
  %bv = arith.constant dense<[2.0, 2.5, 2.5, 2.5]> : tensor<4xf32>
  %wq = attn.weight @wq : tensor<8x8xf32>
  %wk = attn.weight @wk : tensor<8x4xf32>
  %wv = attn.weight @wv : tensor<8x4xf32>
  %e8 = tensor.empty(%n) : tensor<?x3x8xf32>
  %z8 = linalg.fill ins(%zero : f32) outs(%e8 : tensor<?x3x8xf32>) -> tensor<?x3x8xf32>
  %e4 = tensor.empty(%n) : tensor<?x3x4xf32>
  %z4 = linalg.fill ins(%zero : f32) outs(%e4 : tensor<?x3x4xf32>) -> tensor<?x3x4xf32>
  %q0 = linalg.contract indexing_maps = [#x, #w, #r] ins(%x, %wq : tensor<?x3x8xf32>, tensor<8x8xf32>) outs(%z8 : tensor<?x3x8xf32>) -> tensor<?x3x8xf32>
  %q1 = linalg.generic {indexing_maps = [#all, #last, #all], iterator_types = ["parallel", "parallel", "parallel"]} ins(%q0, %bq : tensor<?x3x8xf32>, tensor<8xf32>) outs(%e8 : tensor<?x3x8xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %s = arith.addf %a, %b : f32
    linalg.yield %s : f32
  } -> tensor<?x3x8xf32>
  %k0 = linalg.contract indexing_maps = [#x, #w, #r] ins(%x, %wk : tensor<?x3x8xf32>, tensor<8x4xf32>) outs(%z4 : tensor<?x3x4xf32>) -> tensor<?x3x4xf32>
  %v0 = linalg.contract indexing_maps = [#x, #w, #r] ins(%x, %wv : tensor<?x3x8xf32>, tensor<8x4xf32>) outs(%z4 : tensor<?x3x4xf32>) -> tensor<?x3x4xf32>
  %v1 = linalg.generic {indexing_maps = [#last, #all, #all], iterator_types = ["parallel", "parallel", "parallel"]} ins(%bv, %v0 : tensor<4xf32>, tensor<?x3x4xf32>) outs(%e4 : tensor<?x3x4xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %s = arith.addf %a, %b : f32
    linalg.yield %s : f32
  } -> tensor<?x3x4xf32>
  %qh = tensor.expand_shape %q1 [[0], [1], [2, 3]] output_shape [%n, 3, 4, 2] : tensor<?x3x8xf32> into tensor<?x3x4x2xf32>
  %kh = tensor.expand_shape %k0 [[0], [1], [2, 3]] output_shape [%n, 3, 2, 2] : tensor<?x3x4xf32> into tensor<?x3x2x2xf32>
  %vh = tensor.expand_shape %v1 [[0], [1], [2, 3]] output_shape [%n, 3, 2, 2] : tensor<?x3x4xf32> into tensor<?x3x2x2xf32>
  %o = attn.attention masked_rows zero maps [#q, #k, #v, #o]
      ins(%qh, %kh, %vh : tensor<?x3x4x2xf32>, tensor<?x3x2x2xf32>, tensor<?x3x2x2xf32>) -> tensor<?x3x4x2xf32>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
  return %o : tensor<?x3x4x2xf32>
}

// -----

#x = affine_map<(b, s, n, k) -> (b, s, k)>
#w = affine_map<(b, s, n, k) -> (k, n)>
#r = affine_map<(b, s, n, k) -> (b, s, n)>
#all = affine_map<(b, s, n) -> (b, s, n)>
#last = affine_map<(b, s, n) -> (n)>
#q = affine_map<(b, h, i, j, d, e) -> (b, i, h, d)>
#k = affine_map<(b, h, i, j, d, e) -> (b, j, h floordiv 2, d)>
#v = affine_map<(b, h, i, j, d, e) -> (b, j, h floordiv 2, e)>
#o = affine_map<(b, h, i, j, d, e) -> (b, i, h, e)>
attn.global @wq : tensor<8x8xf32> = #attn.initializer<"wq">
attn.global @wk : tensor<8x4xf32> = #attn.initializer<"wk">
attn.global @wv : tensor<8x4xf32> = #attn.initializer<"wv">
// 66 rows are too many.
// CHECK-LABEL: func.func @many_rows
// CHECK-COUNT-3: linalg.contract
func.func @many_rows(%x: tensor<22x3x8xf32>) -> tensor<22x3x4x2xf32> {
  %zero = arith.constant 0.0 : f32
  %bq = arith.constant dense<[1.0, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5]> : tensor<8xf32>
  %bv = arith.constant dense<[2.0, 2.5, 2.5, 2.5]> : tensor<4xf32>
  %wq = attn.weight @wq : tensor<8x8xf32>
  %wk = attn.weight @wk : tensor<8x4xf32>
  %wv = attn.weight @wv : tensor<8x4xf32>
  %e8 = tensor.empty() : tensor<22x3x8xf32>
  %z8 = linalg.fill ins(%zero : f32) outs(%e8 : tensor<22x3x8xf32>) -> tensor<22x3x8xf32>
  %e4 = tensor.empty() : tensor<22x3x4xf32>
  %z4 = linalg.fill ins(%zero : f32) outs(%e4 : tensor<22x3x4xf32>) -> tensor<22x3x4xf32>
  %q0 = linalg.contract indexing_maps = [#x, #w, #r] ins(%x, %wq : tensor<22x3x8xf32>, tensor<8x8xf32>) outs(%z8 : tensor<22x3x8xf32>) -> tensor<22x3x8xf32>
  %q1 = linalg.generic {indexing_maps = [#all, #last, #all], iterator_types = ["parallel", "parallel", "parallel"]} ins(%q0, %bq : tensor<22x3x8xf32>, tensor<8xf32>) outs(%e8 : tensor<22x3x8xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %s = arith.addf %a, %b : f32
    linalg.yield %s : f32
  } -> tensor<22x3x8xf32>
  %k0 = linalg.contract indexing_maps = [#x, #w, #r] ins(%x, %wk : tensor<22x3x8xf32>, tensor<8x4xf32>) outs(%z4 : tensor<22x3x4xf32>) -> tensor<22x3x4xf32>
  %v0 = linalg.contract indexing_maps = [#x, #w, #r] ins(%x, %wv : tensor<22x3x8xf32>, tensor<8x4xf32>) outs(%z4 : tensor<22x3x4xf32>) -> tensor<22x3x4xf32>
  %v1 = linalg.generic {indexing_maps = [#last, #all, #all], iterator_types = ["parallel", "parallel", "parallel"]} ins(%bv, %v0 : tensor<4xf32>, tensor<22x3x4xf32>) outs(%e4 : tensor<22x3x4xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %s = arith.addf %a, %b : f32
    linalg.yield %s : f32
  } -> tensor<22x3x4xf32>
  %qh = tensor.expand_shape %q1 [[0], [1], [2, 3]] output_shape [22, 3, 4, 2] : tensor<22x3x8xf32> into tensor<22x3x4x2xf32>
  %kh = tensor.expand_shape %k0 [[0], [1], [2, 3]] output_shape [22, 3, 2, 2] : tensor<22x3x4xf32> into tensor<22x3x2x2xf32>
  %vh = tensor.expand_shape %v1 [[0], [1], [2, 3]] output_shape [22, 3, 2, 2] : tensor<22x3x4xf32> into tensor<22x3x2x2xf32>
  %o = attn.attention masked_rows zero maps [#q, #k, #v, #o]
      ins(%qh, %kh, %vh : tensor<22x3x4x2xf32>, tensor<22x3x2x2xf32>, tensor<22x3x2x2xf32>) -> tensor<22x3x4x2xf32>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
  return %o : tensor<22x3x4x2xf32>
}

// -----

#x = affine_map<(s, n, k) -> (s, k)>
#w = affine_map<(s, n, k) -> (n, k)>
#r = affine_map<(s, n, k) -> (s, n)>
#q = affine_map<(b, h, i, j, d, e) -> (i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (j, d)>
#v = affine_map<(b, h, i, j, d, e) -> (j, e)>
#o = affine_map<(b, h, i, j, d, e) -> (i, e)>
attn.global @wq : tensor<4x8xf32> = #attn.initializer<"wq">
attn.global @wk : tensor<4x8xf32> = #attn.initializer<"wk">
// Cross attention: the query's input is another one. Weights of N x K.
// CHECK: attn.global @"wk+wq" : tensor<8x8xf32> = #attn.concat<[@wk, @wq], dim 0>
// CHECK-LABEL: func.func @cross
// CHECK-SAME: (%[[X:.+]]: tensor<3x8xf32>, %[[M:.+]]: tensor<5x8xf32>)
// CHECK-DAG: linalg.contract {{.*}} ins(%[[X]], %{{.+}} : tensor<3x8xf32>, tensor<4x8xf32>)
// CHECK-DAG: linalg.contract {{.*}} ins(%[[M]], %{{.+}} : tensor<5x8xf32>, tensor<8x8xf32>)
func.func @cross(%x: tensor<3x8xf32>, %m: tensor<5x8xf32>) -> tensor<3x4xf32> {
  %zero = arith.constant 0.0 : f32
  %wq = attn.weight @wq : tensor<4x8xf32>
  %wk = attn.weight @wk : tensor<4x8xf32>
  %e3 = tensor.empty() : tensor<3x4xf32>
  %z3 = linalg.fill ins(%zero : f32) outs(%e3 : tensor<3x4xf32>) -> tensor<3x4xf32>
  %e5 = tensor.empty() : tensor<5x4xf32>
  %z5 = linalg.fill ins(%zero : f32) outs(%e5 : tensor<5x4xf32>) -> tensor<5x4xf32>
  %q = linalg.contract indexing_maps = [#x, #w, #r] ins(%x, %wq : tensor<3x8xf32>, tensor<4x8xf32>) outs(%z3 : tensor<3x4xf32>) -> tensor<3x4xf32>
  %k = linalg.contract indexing_maps = [#x, #w, #r] ins(%m, %wk : tensor<5x8xf32>, tensor<4x8xf32>) outs(%z5 : tensor<5x4xf32>) -> tensor<5x4xf32>
  %v = linalg.contract indexing_maps = [#x, #w, #r] ins(%m, %wq : tensor<5x8xf32>, tensor<4x8xf32>) outs(%z5 : tensor<5x4xf32>) -> tensor<5x4xf32>
  %o = attn.attention masked_rows zero maps [#q, #k, #v, #o]
      ins(%q, %k, %v : tensor<3x4xf32>, tensor<5x4xf32>, tensor<5x4xf32>) -> tensor<3x4xf32>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
  return %o : tensor<3x4xf32>
}

// -----

#x = affine_map<(s, n, k) -> (s, k)>
#w = affine_map<(s, n, k) -> (k, n)>
#r = affine_map<(s, n, k) -> (s, n)>
#id = affine_map<(s, n) -> (s, n)>
attn.global @gate : tensor<8x4xf32> = #attn.initializer<"gate">
attn.global @up : tensor<8x4xf32> = #attn.initializer<"up">
// No attention reads them: an elementwise op is an epilogue of one of them.
// CHECK-LABEL: func.func @gated
// CHECK-COUNT-2: linalg.contract {{.*}} tensor<8x4xf32>
func.func @gated(%x: tensor<3x8xf32>) -> tensor<3x4xf32> {
  %zero = arith.constant 0.0 : f32
  %wg = attn.weight @gate : tensor<8x4xf32>
  %wu = attn.weight @up : tensor<8x4xf32>
  %e = tensor.empty() : tensor<3x4xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<3x4xf32>) -> tensor<3x4xf32>
  %g = linalg.contract indexing_maps = [#x, #w, #r] ins(%x, %wg : tensor<3x8xf32>, tensor<8x4xf32>) outs(%z : tensor<3x4xf32>) -> tensor<3x4xf32>
  %u = linalg.contract indexing_maps = [#x, #w, #r] ins(%x, %wu : tensor<3x8xf32>, tensor<8x4xf32>) outs(%z : tensor<3x4xf32>) -> tensor<3x4xf32>
  %m = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%g, %u : tensor<3x4xf32>, tensor<3x4xf32>) outs(%e : tensor<3x4xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %s = arith.mulf %a, %b : f32
    linalg.yield %s : f32
  } -> tensor<3x4xf32>
  return %m : tensor<3x4xf32>
}

// -----

#x = affine_map<(s, n, k) -> (s, k)>
#w = affine_map<(s, n, k) -> (k, n)>
#r = affine_map<(s, n, k) -> (s, n)>
#q = affine_map<(b, h, i, j, d, e) -> (i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (j, d)>
#v = affine_map<(b, h, i, j, d, e) -> (j, e)>
#o = affine_map<(b, h, i, j, d, e) -> (i, e)>
attn.global @wq : tensor<8x4xf32> = #attn.initializer<"wq">
attn.global @wk : tensor<8x4xf32> = #attn.initializer<"wk">
// The key is a result of the function, too, and one product does not start from zeros.
// CHECK-LABEL: func.func @used_elsewhere
// CHECK-COUNT-3: linalg.contract {{.*}} tensor<8x4xf32>
func.func @used_elsewhere(%x: tensor<3x8xf32>, %init: tensor<3x4xf32>) -> (tensor<3x4xf32>, tensor<3x4xf32>) {
  %zero = arith.constant 0.0 : f32
  %wq = attn.weight @wq : tensor<8x4xf32>
  %wk = attn.weight @wk : tensor<8x4xf32>
  %e = tensor.empty() : tensor<3x4xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<3x4xf32>) -> tensor<3x4xf32>
  %q = linalg.contract indexing_maps = [#x, #w, #r] ins(%x, %wq : tensor<3x8xf32>, tensor<8x4xf32>) outs(%z : tensor<3x4xf32>) -> tensor<3x4xf32>
  %k = linalg.contract indexing_maps = [#x, #w, #r] ins(%x, %wk : tensor<3x8xf32>, tensor<8x4xf32>) outs(%z : tensor<3x4xf32>) -> tensor<3x4xf32>
  %v = linalg.contract indexing_maps = [#x, #w, #r] ins(%x, %wk : tensor<3x8xf32>, tensor<8x4xf32>) outs(%init : tensor<3x4xf32>) -> tensor<3x4xf32>
  %o = attn.attention masked_rows zero maps [#q, #k, #v, #o]
      ins(%q, %k, %v : tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x4xf32>) -> tensor<3x4xf32>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
  return %o, %k : tensor<3x4xf32>, tensor<3x4xf32>
}
