// RUN: attn-opt %s -resolve-ranked-shaped-type-result-dims -canonicalize -cse -split-input-file | FileCheck %s

// tensor.dim of a result is a dimension of an operand.

// CHECK-LABEL: func.func @softmax_dim
// CHECK-SAME: (%[[X:.+]]: tensor<?x?xf32>)
// CHECK: %[[D:.+]] = tensor.dim %[[X]], %{{.+}}
// CHECK-NEXT: return %[[D]]
func.func @softmax_dim(%x: tensor<?x?xf32>) -> index {
  %c1 = arith.constant 1 : index
  %y = attn.softmax %x dim 1 : tensor<?x?xf32>
  %d = tensor.dim %y, %c1 : tensor<?x?xf32>
  return %d : index
}

// -----

// CHECK-LABEL: func.func @layer_norm_dim
// CHECK-SAME: (%[[X:.+]]: tensor<?x8xf32>
// CHECK: %[[D:.+]] = tensor.dim %[[X]], %{{.+}}
// CHECK-NEXT: return %[[D]]
func.func @layer_norm_dim(%x: tensor<?x8xf32>, %s: tensor<8xf32>) -> index {
  %c0 = arith.constant 0 : index
  %y = attn.layer_norm %x, %s axis 1 epsilon 1.0e-5 : tensor<?x8xf32>, tensor<8xf32>
  %d = tensor.dim %y, %c0 : tensor<?x8xf32>
  return %d : index
}

// -----

func.func private @f(memref<?xf32>, memref<?xf32>) attributes {attn.kernel}
// CHECK-LABEL: func.func @kernel_dim
// CHECK-SAME: (%{{.+}}: tensor<?xf32>, %[[N:.+]]: index)
// CHECK-NEXT: return %[[N]]
func.func @kernel_dim(%x: tensor<?xf32>, %n: index) -> index {
  %c0 = arith.constant 0 : index
  %e = tensor.empty(%n) : tensor<?xf32>
  %y = attn.kernel @f ins(%x : tensor<?xf32>) outs(%e : tensor<?xf32>) -> tensor<?xf32>
  %d = tensor.dim %y, %c0 : tensor<?xf32>
  return %d : index
}

// -----

#q = affine_map<(b, h, i, j, d, e) -> (b, i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (h floordiv 3, j, d)>
#v = affine_map<(b, h, i, j, d, e) -> (b, j, e)>
#o = affine_map<(b, h, i, j, d, e) -> (h, i, b, e)>
// The size of i is the query's, and that of h three times the key's first.
// CHECK-LABEL: func.func @attention_dim
// CHECK-SAME: (%[[Q:.+]]: tensor<2x?x8xf32>, %[[K:.+]]: tensor<?x?x8xf32>,
// CHECK: %[[G:.+]] = tensor.dim %[[K]], %c0
// CHECK: %[[H:.+]] = affine.apply #{{.+}}()[%[[G]]]
// CHECK: %[[I:.+]] = tensor.dim %[[Q]], %c1
// CHECK: return %[[H]], %[[I]]
func.func @attention_dim(%q: tensor<2x?x8xf32>, %k: tensor<?x?x8xf32>, %v: tensor<2x?x8xf32>) -> (index, index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %o = attn.attention masked_rows zero maps [#q, #k, #v, #o]
      ins(%q, %k, %v : tensor<2x?x8xf32>, tensor<?x?x8xf32>, tensor<2x?x8xf32>) -> tensor<?x?x2x8xf32>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
  %h = tensor.dim %o, %c0 : tensor<?x?x2x8xf32>
  %i = tensor.dim %o, %c1 : tensor<?x?x2x8xf32>
  return %h, %i : index, index
}

// -----

#q = affine_map<(b, h, i, j, d, e) -> (b, i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (b, j, d)>
#v = affine_map<(b, h, i, j, d, e) -> (b, j, e)>
#o = affine_map<(b, h, i, j, d, e) -> (b, i, e)>
// A constant stays in the region, whatever uses it outside.
// CHECK-LABEL: func.func @constants
// CHECK: score {
// CHECK: arith.constant 5.000000e-01 : f32
// CHECK: arith.mulf
func.func @constants(%q: tensor<2x3x8xf32>, %k: tensor<2x5x8xf32>, %v: tensor<2x5x8xf32>) -> (f32, tensor<2x3x8xf32>) {
  %c = arith.constant 0.5 : f32
  %o = attn.attention masked_rows zero maps [#q, #k, #v, #o]
      ins(%q, %k, %v : tensor<2x3x8xf32>, tensor<2x5x8xf32>, tensor<2x5x8xf32>) -> tensor<2x3x8xf32>
    score {
    ^bb0(%s: f32):
      %half = arith.constant 0.5 : f32
      %x = arith.mulf %s, %half : f32
      attn.yield %x : f32
    }
  return %c, %o : f32, tensor<2x3x8xf32>
}
