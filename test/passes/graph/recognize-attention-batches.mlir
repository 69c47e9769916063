// RUN: attn-opt %s -attn-recognize-attention -canonicalize -cse -split-input-file | FileCheck %s

// Batch dimensions that do not lie side by side in scores that are given.

// Deformable attention: scores are [image, query, head, sample], samples [image * head, width, query, sample], each of
// one query. The scores are brought into the order of the samples.
// CHECK: fused = true, kind = "given"
// CHECK-LABEL: func.func @samples
// CHECK-SAME: %[[S:[^:]+]]: tensor<2x5x3x7xf32>, %[[V:[^:]+]]: tensor<6x8x5x7xf32>
// CHECK: %[[T:.+]] = linalg.transpose ins(%[[S]] : tensor<2x5x3x7xf32>) {{.*}} permutation = [0, 2, 1, 3]
// CHECK: %[[C:.+]] = tensor.collapse_shape %[[T]] {{\[}}[0, 1], [2], [3]] : tensor<2x3x5x7xf32> into tensor<6x5x7xf32>
// CHECK: attn.attention kind given
// CHECK-SAME: ins(%[[C]], %[[V]] : tensor<6x5x7xf32>, tensor<6x8x5x7xf32>)
func.func @samples(%s: tensor<2x5x3x7xf32>, %v: tensor<6x8x5x7xf32>) -> tensor<6x8x5xf32> {
  %z = arith.constant 0.0 : f32
  %p = attn.softmax %s dim 3 : tensor<2x5x3x7xf32>
  %te = tensor.empty() : tensor<2x3x5x7xf32>
  %t = linalg.transpose ins(%p : tensor<2x5x3x7xf32>) outs(%te : tensor<2x3x5x7xf32>) permutation = [0, 2, 1, 3]
  %w = tensor.collapse_shape %t [[0, 1], [2], [3]] : tensor<2x3x5x7xf32> into tensor<6x5x7xf32>
  %e = tensor.empty() : tensor<6x8x5xf32>
  %f = linalg.fill ins(%z : f32) outs(%e : tensor<6x8x5xf32>) -> tensor<6x8x5xf32>
  %y = linalg.contract indexing_maps = [affine_map<(b, e, i, j) -> (b, i, j)>, affine_map<(b, e, i, j) -> (b, e, i, j)>, affine_map<(b, e, i, j) -> (b, e, i)>]
      ins(%w, %v : tensor<6x5x7xf32>, tensor<6x8x5x7xf32>) outs(%f : tensor<6x8x5xf32>) -> tensor<6x8x5xf32>
  return %y : tensor<6x8x5xf32>
}

// -----

// Near miss: images and heads are apart in the samples, too, which are not moved.
// CHECK: fused = false, kind = "missed"
// CHECK-LABEL: func.func @apart
// CHECK-NOT: attn.attention kind
func.func @apart(%s: tensor<2x5x3x7xf32>, %v: tensor<2x8x5x3x7xf32>) -> tensor<2x8x3x5xf32> {
  %z = arith.constant 0.0 : f32
  %p = attn.softmax %s dim 3 : tensor<2x5x3x7xf32>
  %e = tensor.empty() : tensor<2x8x3x5xf32>
  %f = linalg.fill ins(%z : f32) outs(%e : tensor<2x8x3x5xf32>) -> tensor<2x8x3x5xf32>
  %y = linalg.contract indexing_maps = [affine_map<(b, e, h, i, j) -> (b, i, h, j)>, affine_map<(b, e, h, i, j) -> (b, e, i, h, j)>, affine_map<(b, e, h, i, j) -> (b, e, h, i)>]
      ins(%p, %v : tensor<2x5x3x7xf32>, tensor<2x8x5x3x7xf32>) outs(%f : tensor<2x8x3x5xf32>) -> tensor<2x8x3x5xf32>
  return %y : tensor<2x8x3x5xf32>
}
