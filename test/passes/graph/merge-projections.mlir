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
attn.global @wq : tensor<8x96xf32> = #attn.initializer<"wq">
attn.global @wk : tensor<8x48xf32> = #attn.initializer<"wk">
attn.global @wv : tensor<8x48xf32> = #attn.initializer<"wv">
// Grouped heads; the key has no bias.
// CHECK: attn.global @"wq+wk+wv" : tensor<8x192xf32> = #attn.concat<[@wq, @wk, @wv], dim 1>
// CHECK-LABEL: func.func @grouped
// CHECK-SAME: (%[[X:.+]]: tensor<2x3x8xf32>)
// CHECK: %[[W:.+]] = attn.weight @"wq+wk+wv" : tensor<8x192xf32>
// CHECK: %[[P:.+]] = linalg.contract {{.*}} ins(%[[X]], %[[W]] : tensor<2x3x8xf32>, tensor<8x192xf32>)
// CHECK-NOT: linalg.contract
// CHECK: %[[BIAS:.+]] = arith.constant dense<"0x{{(0000803F){96}(00000080){48}(00000040){48}"}}> : tensor<192xf32>
// CHECK: %[[A:.+]] = linalg.generic {{.*}} ins(%[[P]], %[[BIAS]]
// CHECK-DAG: %[[Q:.+]] = tensor.extract_slice %[[A]][0, 0, 0] [2, 3, 96] [1, 1, 1]
// CHECK-DAG: %[[K:.+]] = tensor.extract_slice %[[A]][0, 0, 96] [2, 3, 48] [1, 1, 1]
// CHECK-DAG: %[[V:.+]] = tensor.extract_slice %[[A]][0, 0, 144] [2, 3, 48] [1, 1, 1]
// CHECK-DAG: %[[QH:.+]] = tensor.expand_shape %[[Q]]
// CHECK-DAG: %[[KH:.+]] = tensor.expand_shape %[[K]]
// CHECK-DAG: %[[VH:.+]] = tensor.expand_shape %[[V]]
// CHECK: attn.attention {{.*}} ins(%[[QH]], %[[KH]], %[[VH]]
func.func @grouped(%x: tensor<2x3x8xf32>) -> tensor<2x3x4x24xf32> {
  %zero = arith.constant 0.0 : f32
  %bq = arith.constant dense<1.0> : tensor<96xf32>
  %bv = arith.constant dense<2.0> : tensor<48xf32>
  %wq = attn.weight @wq : tensor<8x96xf32>
  %wk = attn.weight @wk : tensor<8x48xf32>
  %wv = attn.weight @wv : tensor<8x48xf32>
  %e8 = tensor.empty() : tensor<2x3x96xf32>
  %z8 = linalg.fill ins(%zero : f32) outs(%e8 : tensor<2x3x96xf32>) -> tensor<2x3x96xf32>
  %e4 = tensor.empty() : tensor<2x3x48xf32>
  %z4 = linalg.fill ins(%zero : f32) outs(%e4 : tensor<2x3x48xf32>) -> tensor<2x3x48xf32>
  %q0 = linalg.contract indexing_maps = [#x, #w, #r] ins(%x, %wq : tensor<2x3x8xf32>, tensor<8x96xf32>) outs(%z8 : tensor<2x3x96xf32>) -> tensor<2x3x96xf32>
  %q1 = linalg.generic {indexing_maps = [#all, #last, #all], iterator_types = ["parallel", "parallel", "parallel"]} ins(%q0, %bq : tensor<2x3x96xf32>, tensor<96xf32>) outs(%e8 : tensor<2x3x96xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %s = arith.addf %a, %b : f32
    linalg.yield %s : f32
  } -> tensor<2x3x96xf32>
  %k0 = linalg.contract indexing_maps = [#x, #w, #r] ins(%x, %wk : tensor<2x3x8xf32>, tensor<8x48xf32>) outs(%z4 : tensor<2x3x48xf32>) -> tensor<2x3x48xf32>
  %v0 = linalg.contract indexing_maps = [#x, #w, #r] ins(%x, %wv : tensor<2x3x8xf32>, tensor<8x48xf32>) outs(%z4 : tensor<2x3x48xf32>) -> tensor<2x3x48xf32>
  %v1 = linalg.generic {indexing_maps = [#last, #all, #all], iterator_types = ["parallel", "parallel", "parallel"]} ins(%bv, %v0 : tensor<48xf32>, tensor<2x3x48xf32>) outs(%e4 : tensor<2x3x48xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %s = arith.addf %a, %b : f32
    linalg.yield %s : f32
  } -> tensor<2x3x48xf32>
  %qh = tensor.expand_shape %q1 [[0], [1], [2, 3]] output_shape [2, 3, 4, 24] : tensor<2x3x96xf32> into tensor<2x3x4x24xf32>
  %kh = tensor.expand_shape %k0 [[0], [1], [2, 3]] output_shape [2, 3, 2, 24] : tensor<2x3x48xf32> into tensor<2x3x2x24xf32>
  %vh = tensor.expand_shape %v1 [[0], [1], [2, 3]] output_shape [2, 3, 2, 24] : tensor<2x3x48xf32> into tensor<2x3x2x24xf32>
  %o = attn.attention masked_rows zero maps [#q, #k, #v, #o]
      ins(%qh, %kh, %vh : tensor<2x3x4x24xf32>, tensor<2x3x2x24xf32>, tensor<2x3x2x24xf32>) -> tensor<2x3x4x24xf32>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
  return %o : tensor<2x3x4x24xf32>
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
attn.global @wq : tensor<8x96xf32> = #attn.initializer<"wq">
attn.global @wk : tensor<8x48xf32> = #attn.initializer<"wk">
attn.global @wv : tensor<8x48xf32> = #attn.initializer<"wv">
// How many rows there are is not known.
// CHECK-LABEL: func.func @unknown_rows
// CHECK-COUNT-3: linalg.contract
func.func @unknown_rows(%x: tensor<?x3x8xf32>) -> tensor<?x3x4x24xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %n = tensor.dim %x, %c0 : tensor<?x3x8xf32>
  %bq = arith.constant dense<1.0> : tensor<96xf32>
  %bv = arith.constant dense<2.0> : tensor<48xf32>
  %wq = attn.weight @wq : tensor<8x96xf32>
  %wk = attn.weight @wk : tensor<8x48xf32>
  %wv = attn.weight @wv : tensor<8x48xf32>
  %e8 = tensor.empty(%n) : tensor<?x3x96xf32>
  %z8 = linalg.fill ins(%zero : f32) outs(%e8 : tensor<?x3x96xf32>) -> tensor<?x3x96xf32>
  %e4 = tensor.empty(%n) : tensor<?x3x48xf32>
  %z4 = linalg.fill ins(%zero : f32) outs(%e4 : tensor<?x3x48xf32>) -> tensor<?x3x48xf32>
  %q0 = linalg.contract indexing_maps = [#x, #w, #r] ins(%x, %wq : tensor<?x3x8xf32>, tensor<8x96xf32>) outs(%z8 : tensor<?x3x96xf32>) -> tensor<?x3x96xf32>
  %q1 = linalg.generic {indexing_maps = [#all, #last, #all], iterator_types = ["parallel", "parallel", "parallel"]} ins(%q0, %bq : tensor<?x3x96xf32>, tensor<96xf32>) outs(%e8 : tensor<?x3x96xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %s = arith.addf %a, %b : f32
    linalg.yield %s : f32
  } -> tensor<?x3x96xf32>
  %k0 = linalg.contract indexing_maps = [#x, #w, #r] ins(%x, %wk : tensor<?x3x8xf32>, tensor<8x48xf32>) outs(%z4 : tensor<?x3x48xf32>) -> tensor<?x3x48xf32>
  %v0 = linalg.contract indexing_maps = [#x, #w, #r] ins(%x, %wv : tensor<?x3x8xf32>, tensor<8x48xf32>) outs(%z4 : tensor<?x3x48xf32>) -> tensor<?x3x48xf32>
  %v1 = linalg.generic {indexing_maps = [#last, #all, #all], iterator_types = ["parallel", "parallel", "parallel"]} ins(%bv, %v0 : tensor<48xf32>, tensor<?x3x48xf32>) outs(%e4 : tensor<?x3x48xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %s = arith.addf %a, %b : f32
    linalg.yield %s : f32
  } -> tensor<?x3x48xf32>
  %qh = tensor.expand_shape %q1 [[0], [1], [2, 3]] output_shape [%n, 3, 4, 24] : tensor<?x3x96xf32> into tensor<?x3x4x24xf32>
  %kh = tensor.expand_shape %k0 [[0], [1], [2, 3]] output_shape [%n, 3, 2, 24] : tensor<?x3x48xf32> into tensor<?x3x2x24xf32>
  %vh = tensor.expand_shape %v1 [[0], [1], [2, 3]] output_shape [%n, 3, 2, 24] : tensor<?x3x48xf32> into tensor<?x3x2x24xf32>
  %o = attn.attention masked_rows zero maps [#q, #k, #v, #o]
      ins(%qh, %kh, %vh : tensor<?x3x4x24xf32>, tensor<?x3x2x24xf32>, tensor<?x3x2x24xf32>) -> tensor<?x3x4x24xf32>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
  return %o : tensor<?x3x4x24xf32>
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
attn.global @wq : tensor<8x96xf32> = #attn.initializer<"wq">
attn.global @wk : tensor<8x48xf32> = #attn.initializer<"wk">
attn.global @wv : tensor<8x48xf32> = #attn.initializer<"wv">
// 66 rows are too many.
// CHECK-LABEL: func.func @many_rows
// CHECK-COUNT-3: linalg.contract
func.func @many_rows(%x: tensor<22x3x8xf32>) -> tensor<22x3x4x24xf32> {
  %zero = arith.constant 0.0 : f32
  %bq = arith.constant dense<1.0> : tensor<96xf32>
  %bv = arith.constant dense<2.0> : tensor<48xf32>
  %wq = attn.weight @wq : tensor<8x96xf32>
  %wk = attn.weight @wk : tensor<8x48xf32>
  %wv = attn.weight @wv : tensor<8x48xf32>
  %e8 = tensor.empty() : tensor<22x3x96xf32>
  %z8 = linalg.fill ins(%zero : f32) outs(%e8 : tensor<22x3x96xf32>) -> tensor<22x3x96xf32>
  %e4 = tensor.empty() : tensor<22x3x48xf32>
  %z4 = linalg.fill ins(%zero : f32) outs(%e4 : tensor<22x3x48xf32>) -> tensor<22x3x48xf32>
  %q0 = linalg.contract indexing_maps = [#x, #w, #r] ins(%x, %wq : tensor<22x3x8xf32>, tensor<8x96xf32>) outs(%z8 : tensor<22x3x96xf32>) -> tensor<22x3x96xf32>
  %q1 = linalg.generic {indexing_maps = [#all, #last, #all], iterator_types = ["parallel", "parallel", "parallel"]} ins(%q0, %bq : tensor<22x3x96xf32>, tensor<96xf32>) outs(%e8 : tensor<22x3x96xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %s = arith.addf %a, %b : f32
    linalg.yield %s : f32
  } -> tensor<22x3x96xf32>
  %k0 = linalg.contract indexing_maps = [#x, #w, #r] ins(%x, %wk : tensor<22x3x8xf32>, tensor<8x48xf32>) outs(%z4 : tensor<22x3x48xf32>) -> tensor<22x3x48xf32>
  %v0 = linalg.contract indexing_maps = [#x, #w, #r] ins(%x, %wv : tensor<22x3x8xf32>, tensor<8x48xf32>) outs(%z4 : tensor<22x3x48xf32>) -> tensor<22x3x48xf32>
  %v1 = linalg.generic {indexing_maps = [#last, #all, #all], iterator_types = ["parallel", "parallel", "parallel"]} ins(%bv, %v0 : tensor<48xf32>, tensor<22x3x48xf32>) outs(%e4 : tensor<22x3x48xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %s = arith.addf %a, %b : f32
    linalg.yield %s : f32
  } -> tensor<22x3x48xf32>
  %qh = tensor.expand_shape %q1 [[0], [1], [2, 3]] output_shape [22, 3, 4, 24] : tensor<22x3x96xf32> into tensor<22x3x4x24xf32>
  %kh = tensor.expand_shape %k0 [[0], [1], [2, 3]] output_shape [22, 3, 2, 24] : tensor<22x3x48xf32> into tensor<22x3x2x24xf32>
  %vh = tensor.expand_shape %v1 [[0], [1], [2, 3]] output_shape [22, 3, 2, 24] : tensor<22x3x48xf32> into tensor<22x3x2x24xf32>
  %o = attn.attention masked_rows zero maps [#q, #k, #v, #o]
      ins(%qh, %kh, %vh : tensor<22x3x4x24xf32>, tensor<22x3x2x24xf32>, tensor<22x3x2x24xf32>) -> tensor<22x3x4x24xf32>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
  return %o : tensor<22x3x4x24xf32>
}

// -----

#x = affine_map<(s, n, k) -> (s, k)>
#w = affine_map<(s, n, k) -> (n, k)>
#r = affine_map<(s, n, k) -> (s, n)>
#q = affine_map<(b, h, i, j, d, e) -> (i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (j, d)>
#v = affine_map<(b, h, i, j, d, e) -> (j, e)>
#o = affine_map<(b, h, i, j, d, e) -> (i, e)>
attn.global @wq : tensor<64x8xf32> = #attn.initializer<"wq">
attn.global @wk : tensor<64x8xf32> = #attn.initializer<"wk">
attn.global @wv : tensor<64x8xf32> = #attn.initializer<"wv">
// Cross attention: the query's input is another one. Weights of N x K.
// CHECK: attn.global @"wk+wv" : tensor<128x8xf32> = #attn.concat<[@wk, @wv], dim 0>
// CHECK-LABEL: func.func @cross
// CHECK-SAME: (%[[X:.+]]: tensor<3x8xf32>, %[[M:.+]]: tensor<5x8xf32>)
// CHECK-DAG: linalg.contract {{.*}} ins(%[[X]], %{{.+}} : tensor<3x8xf32>, tensor<64x8xf32>)
// CHECK-DAG: linalg.contract {{.*}} ins(%[[M]], %{{.+}} : tensor<5x8xf32>, tensor<128x8xf32>)
func.func @cross(%x: tensor<3x8xf32>, %m: tensor<5x8xf32>) -> tensor<3x64xf32> {
  %zero = arith.constant 0.0 : f32
  %wq = attn.weight @wq : tensor<64x8xf32>
  %wk = attn.weight @wk : tensor<64x8xf32>
  %wv = attn.weight @wv : tensor<64x8xf32>
  %e3 = tensor.empty() : tensor<3x64xf32>
  %z3 = linalg.fill ins(%zero : f32) outs(%e3 : tensor<3x64xf32>) -> tensor<3x64xf32>
  %e5 = tensor.empty() : tensor<5x64xf32>
  %z5 = linalg.fill ins(%zero : f32) outs(%e5 : tensor<5x64xf32>) -> tensor<5x64xf32>
  %q = linalg.contract indexing_maps = [#x, #w, #r] ins(%x, %wq : tensor<3x8xf32>, tensor<64x8xf32>) outs(%z3 : tensor<3x64xf32>) -> tensor<3x64xf32>
  %k = linalg.contract indexing_maps = [#x, #w, #r] ins(%m, %wk : tensor<5x8xf32>, tensor<64x8xf32>) outs(%z5 : tensor<5x64xf32>) -> tensor<5x64xf32>
  %v = linalg.contract indexing_maps = [#x, #w, #r] ins(%m, %wv : tensor<5x8xf32>, tensor<64x8xf32>) outs(%z5 : tensor<5x64xf32>) -> tensor<5x64xf32>
  %o = attn.attention masked_rows zero maps [#q, #k, #v, #o]
      ins(%q, %k, %v : tensor<3x64xf32>, tensor<5x64xf32>, tensor<5x64xf32>) -> tensor<3x64xf32>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
  return %o : tensor<3x64xf32>
}

// -----

#x = affine_map<(s, n, k) -> (s, k)>
#w = affine_map<(s, n, k) -> (n, k)>
#r = affine_map<(s, n, k) -> (s, n)>
#q = affine_map<(b, h, i, j, d, e) -> (i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (j, d)>
#v = affine_map<(b, h, i, j, d, e) -> (j, e)>
#o = affine_map<(b, h, i, j, d, e) -> (i, e)>
attn.global @wq : tensor<56x8xf32> = #attn.initializer<"wq">
attn.global @wk : tensor<56x8xf32> = #attn.initializer<"wk">
attn.global @wv : tensor<56x8xf32> = #attn.initializer<"wv">
// 56 columns end within a panel.
// CHECK-LABEL: func.func @partial_panels
// CHECK-COUNT-3: linalg.contract
func.func @partial_panels(%x: tensor<3x8xf32>, %m: tensor<5x8xf32>) -> tensor<3x56xf32> {
  %zero = arith.constant 0.0 : f32
  %wq = attn.weight @wq : tensor<56x8xf32>
  %wk = attn.weight @wk : tensor<56x8xf32>
  %wv = attn.weight @wv : tensor<56x8xf32>
  %e3 = tensor.empty() : tensor<3x56xf32>
  %z3 = linalg.fill ins(%zero : f32) outs(%e3 : tensor<3x56xf32>) -> tensor<3x56xf32>
  %e5 = tensor.empty() : tensor<5x56xf32>
  %z5 = linalg.fill ins(%zero : f32) outs(%e5 : tensor<5x56xf32>) -> tensor<5x56xf32>
  %q = linalg.contract indexing_maps = [#x, #w, #r] ins(%x, %wq : tensor<3x8xf32>, tensor<56x8xf32>) outs(%z3 : tensor<3x56xf32>) -> tensor<3x56xf32>
  %k = linalg.contract indexing_maps = [#x, #w, #r] ins(%m, %wk : tensor<5x8xf32>, tensor<56x8xf32>) outs(%z5 : tensor<5x56xf32>) -> tensor<5x56xf32>
  %v = linalg.contract indexing_maps = [#x, #w, #r] ins(%m, %wv : tensor<5x8xf32>, tensor<56x8xf32>) outs(%z5 : tensor<5x56xf32>) -> tensor<5x56xf32>
  %o = attn.attention masked_rows zero maps [#q, #k, #v, #o]
      ins(%q, %k, %v : tensor<3x56xf32>, tensor<5x56xf32>, tensor<5x56xf32>) -> tensor<3x56xf32>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
  return %o : tensor<3x56xf32>
}

// -----

#x = affine_map<(s, n, k) -> (s, k)>
#w = affine_map<(s, n, k) -> (n, k)>
#r = affine_map<(s, n, k) -> (s, n)>
#q = affine_map<(b, h, i, j, d, e) -> (i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (j, d)>
#v = affine_map<(b, h, i, j, d, e) -> (j, e)>
#o = affine_map<(b, h, i, j, d, e) -> (i, e)>
attn.global @wq : tensor<64x8xf32> = #attn.initializer<"wq">
attn.global @wk : tensor<64x8xf32> = #attn.initializer<"wk">
attn.global @wv : tensor<64x8xf32> = #attn.initializer<"wv">
// Another entry reads one of the weights: it would be stored twice.
// CHECK-LABEL: func.func @read_by_two
// CHECK-COUNT-3: linalg.contract
func.func @read_by_two(%x: tensor<3x8xf32>, %m: tensor<5x8xf32>) -> tensor<3x64xf32> {
  %zero = arith.constant 0.0 : f32
  %wq = attn.weight @wq : tensor<64x8xf32>
  %wk = attn.weight @wk : tensor<64x8xf32>
  %wv = attn.weight @wv : tensor<64x8xf32>
  %e3 = tensor.empty() : tensor<3x64xf32>
  %z3 = linalg.fill ins(%zero : f32) outs(%e3 : tensor<3x64xf32>) -> tensor<3x64xf32>
  %e5 = tensor.empty() : tensor<5x64xf32>
  %z5 = linalg.fill ins(%zero : f32) outs(%e5 : tensor<5x64xf32>) -> tensor<5x64xf32>
  %q = linalg.contract indexing_maps = [#x, #w, #r] ins(%x, %wq : tensor<3x8xf32>, tensor<64x8xf32>) outs(%z3 : tensor<3x64xf32>) -> tensor<3x64xf32>
  %k = linalg.contract indexing_maps = [#x, #w, #r] ins(%m, %wk : tensor<5x8xf32>, tensor<64x8xf32>) outs(%z5 : tensor<5x64xf32>) -> tensor<5x64xf32>
  %v = linalg.contract indexing_maps = [#x, #w, #r] ins(%m, %wv : tensor<5x8xf32>, tensor<64x8xf32>) outs(%z5 : tensor<5x64xf32>) -> tensor<5x64xf32>
  %o = attn.attention masked_rows zero maps [#q, #k, #v, #o]
      ins(%q, %k, %v : tensor<3x64xf32>, tensor<5x64xf32>, tensor<5x64xf32>) -> tensor<3x64xf32>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
  return %o : tensor<3x64xf32>
}
func.func @other_entry() -> tensor<64x8xf32> {
  %wv = attn.weight @wv : tensor<64x8xf32>
  return %wv : tensor<64x8xf32>
}

// -----

#x = affine_map<(s, n, k) -> (s, k)>
#w = affine_map<(s, n, k) -> (k, n)>
#r = affine_map<(s, n, k) -> (s, n)>
#id = affine_map<(s, n) -> (s, n)>
attn.global @gate : tensor<8x48xf32> = #attn.initializer<"gate">
attn.global @up : tensor<8x48xf32> = #attn.initializer<"up">
// No attention reads them: an elementwise op is an epilogue of one of them.
// CHECK-LABEL: func.func @gated
// CHECK-COUNT-2: linalg.contract {{.*}} tensor<8x48xf32>
func.func @gated(%x: tensor<3x8xf32>) -> tensor<3x48xf32> {
  %zero = arith.constant 0.0 : f32
  %wg = attn.weight @gate : tensor<8x48xf32>
  %wu = attn.weight @up : tensor<8x48xf32>
  %e = tensor.empty() : tensor<3x48xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<3x48xf32>) -> tensor<3x48xf32>
  %g = linalg.contract indexing_maps = [#x, #w, #r] ins(%x, %wg : tensor<3x8xf32>, tensor<8x48xf32>) outs(%z : tensor<3x48xf32>) -> tensor<3x48xf32>
  %u = linalg.contract indexing_maps = [#x, #w, #r] ins(%x, %wu : tensor<3x8xf32>, tensor<8x48xf32>) outs(%z : tensor<3x48xf32>) -> tensor<3x48xf32>
  %m = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%g, %u : tensor<3x48xf32>, tensor<3x48xf32>) outs(%e : tensor<3x48xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %s = arith.mulf %a, %b : f32
    linalg.yield %s : f32
  } -> tensor<3x48xf32>
  return %m : tensor<3x48xf32>
}

// -----

#x = affine_map<(s, n, k) -> (s, k)>
#w = affine_map<(s, n, k) -> (k, n)>
#r = affine_map<(s, n, k) -> (s, n)>
#q = affine_map<(b, h, i, j, d, e) -> (i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (j, d)>
#v = affine_map<(b, h, i, j, d, e) -> (j, e)>
#o = affine_map<(b, h, i, j, d, e) -> (i, e)>
attn.global @wq : tensor<8x48xf32> = #attn.initializer<"wq">
attn.global @wk : tensor<8x48xf32> = #attn.initializer<"wk">
// The key is a result of the function, too, and one product does not start from zeros.
// CHECK-LABEL: func.func @used_elsewhere
// CHECK-COUNT-3: linalg.contract {{.*}} tensor<8x48xf32>
func.func @used_elsewhere(%x: tensor<3x8xf32>, %init: tensor<3x48xf32>) -> (tensor<3x48xf32>, tensor<3x48xf32>) {
  %zero = arith.constant 0.0 : f32
  %wq = attn.weight @wq : tensor<8x48xf32>
  %wk = attn.weight @wk : tensor<8x48xf32>
  %e = tensor.empty() : tensor<3x48xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<3x48xf32>) -> tensor<3x48xf32>
  %q = linalg.contract indexing_maps = [#x, #w, #r] ins(%x, %wq : tensor<3x8xf32>, tensor<8x48xf32>) outs(%z : tensor<3x48xf32>) -> tensor<3x48xf32>
  %k = linalg.contract indexing_maps = [#x, #w, #r] ins(%x, %wk : tensor<3x8xf32>, tensor<8x48xf32>) outs(%z : tensor<3x48xf32>) -> tensor<3x48xf32>
  %v = linalg.contract indexing_maps = [#x, #w, #r] ins(%x, %wk : tensor<3x8xf32>, tensor<8x48xf32>) outs(%init : tensor<3x48xf32>) -> tensor<3x48xf32>
  %o = attn.attention masked_rows zero maps [#q, #k, #v, #o]
      ins(%q, %k, %v : tensor<3x48xf32>, tensor<3x48xf32>, tensor<3x48xf32>) -> tensor<3x48xf32>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
  return %o, %k : tensor<3x48xf32>, tensor<3x48xf32>
}
