// RUN: attn-opt %s -attn-fold-layout -split-input-file | FileCheck %s

#q = affine_map<(b, h, i, j, d, e) -> (b, h, i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (b, h floordiv 2, j, d)>
#v = affine_map<(b, h, i, j, d, e) -> (b, h floordiv 2, j, e)>
#o = affine_map<(b, h, i, j, d, e) -> (b, h, i, e)>
// CHECK-DAG: #[[Q:.+]] = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d2, d1, d4)>
// CHECK-DAG: #[[K:.+]] = affine_map<(d0, d1, d2, d3, d4, d5) -> (d4, d0, d1 floordiv 2, d3)>
// CHECK-DAG: #[[O:.+]] = affine_map<(d0, d1, d2, d3, d4, d5) -> (d5, d0, d1, d2)>
// CHECK-LABEL: func.func @attention
// CHECK-SAME: (%[[QUERY:.+]]: tensor<2x3x4x8xf32>, %[[KEY:.+]]: tensor<8x2x2x5xf32>
// CHECK-NOT: linalg.transpose
// CHECK: %[[R:.+]] = attn.attention masked_rows zero maps [#[[Q]], #[[K]], #{{.+}}, #[[O]]] ins(%[[QUERY]], %[[KEY]]
// CHECK: return %[[R]]
func.func @attention(%q: tensor<2x3x4x8xf32>, %k: tensor<8x2x2x5xf32>, %v: tensor<2x2x5x6xf32>) -> tensor<6x2x4x3xf32> {
  %eq = tensor.empty() : tensor<2x4x3x8xf32>
  %qt = linalg.transpose ins(%q : tensor<2x3x4x8xf32>) outs(%eq : tensor<2x4x3x8xf32>) permutation = [0, 2, 1, 3]
  %ek = tensor.empty() : tensor<2x2x5x8xf32>
  %kt = linalg.transpose ins(%k : tensor<8x2x2x5xf32>) outs(%ek : tensor<2x2x5x8xf32>) permutation = [1, 2, 3, 0]
  %o = attn.attention masked_rows zero maps [#q, #k, #v, #o]
      ins(%qt, %kt, %v : tensor<2x4x3x8xf32>, tensor<2x2x5x8xf32>, tensor<2x2x5x6xf32>) -> tensor<2x4x3x6xf32>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
  %eo = tensor.empty() : tensor<6x2x4x3xf32>
  %r = linalg.transpose ins(%o : tensor<2x4x3x6xf32>) outs(%eo : tensor<6x2x4x3xf32>) permutation = [3, 0, 1, 2]
  return %r : tensor<6x2x4x3xf32>
}

// -----

#q = affine_map<(b, h, i, j, d, e) -> (b, i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (b, j, d)>
#v = affine_map<(b, h, i, j, d, e) -> (b, j, e)>
#o = affine_map<(b, h, i, j, d, e) -> (b, i, e)>
// The untransposed result is used too.
// CHECK-LABEL: func.func @result_used_twice
// CHECK: attn.attention
// CHECK: linalg.transpose
func.func @result_used_twice(%q: tensor<2x3x8xf32>, %k: tensor<2x5x8xf32>, %v: tensor<2x5x6xf32>) -> (tensor<2x3x6xf32>, tensor<3x2x6xf32>) {
  %o = attn.attention masked_rows zero maps [#q, #k, #v, #o]
      ins(%q, %k, %v : tensor<2x3x8xf32>, tensor<2x5x8xf32>, tensor<2x5x6xf32>) -> tensor<2x3x6xf32>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
  %eo = tensor.empty() : tensor<3x2x6xf32>
  %r = linalg.transpose ins(%o : tensor<2x3x6xf32>) outs(%eo : tensor<3x2x6xf32>) permutation = [1, 0, 2]
  return %o, %r : tensor<2x3x6xf32>, tensor<3x2x6xf32>
}

// -----

#a = affine_map<(m, n, k) -> (m, k)>
#b = affine_map<(m, n, k) -> (k, n)>
#c = affine_map<(m, n, k) -> (m, n)>
attn.global @w : tensor<8x6xf32> = #attn.initializer<"w">
// CHECK: #[[T:.+]] = affine_map<(d0, d1, d2) -> (d2, d0)>
// CHECK-LABEL: func.func @contract
// CHECK-SAME: (%[[X:.+]]: tensor<8x4xf32>, %[[Y:.+]]: tensor<8x6xf32>
// CHECK: linalg.contract indexing_maps = [#[[T]], #{{.+}}, #{{.+}}] ins(%[[X]], %[[Y]]
// A GEMM with a weight reads rows: its transpose stays.
// CHECK: %[[ROWS:.+]] = linalg.transpose
// CHECK: linalg.contract {{.*}} ins(%[[ROWS]],
func.func @contract(%x: tensor<8x4xf32>, %y: tensor<8x6xf32>, %init: tensor<4x6xf32>) -> (tensor<4x6xf32>, tensor<4x6xf32>) {
  %w = attn.weight @w : tensor<8x6xf32>
  %e0 = tensor.empty() : tensor<4x8xf32>
  %x0 = linalg.transpose ins(%x : tensor<8x4xf32>) outs(%e0 : tensor<4x8xf32>) permutation = [1, 0]
  %c0 = linalg.contract indexing_maps = [#a, #b, #c] ins(%x0, %y : tensor<4x8xf32>, tensor<8x6xf32>) outs(%init : tensor<4x6xf32>) -> tensor<4x6xf32>
  %x1 = linalg.transpose ins(%x : tensor<8x4xf32>) outs(%e0 : tensor<4x8xf32>) permutation = [1, 0]
  %c1 = linalg.contract indexing_maps = [#a, #b, #c] ins(%x1, %w : tensor<4x8xf32>, tensor<8x6xf32>) outs(%init : tensor<4x6xf32>) -> tensor<4x6xf32>
  return %c0, %c1 : tensor<4x6xf32>, tensor<4x6xf32>
}
