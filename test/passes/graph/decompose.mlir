// RUN: attn-opt %s -attn-decompose -canonicalize -cse -split-input-file | FileCheck %s
// RUN: env CC=%cc %python %S/Inputs/decompose_numeric.py
// RUN: env CC=%cc %python %S/Inputs/decompose_attention_numeric.py

// CHECK-LABEL: func.func @softmax
// CHECK: linalg.generic {{.*}}"parallel", "reduction"
// CHECK: arith.maximumf
// CHECK: math.exp
// CHECK: linalg.generic {{.*}}"parallel", "reduction"
// CHECK: arith.addf
// CHECK: arith.divf
func.func @softmax(%x: tensor<?x?xf32>) -> tensor<?x?xf32> {
  %y = attn.softmax %x dim 1 : tensor<?x?xf32>
  return %y : tensor<?x?xf32>
}

// -----

// Sums of half-precision elements are taken in f32.
// CHECK-LABEL: func.func @softmax_f16
// CHECK: tensor.empty() : tensor<4xf32>
// CHECK: arith.divf %{{.*}} : f32
// CHECK: arith.truncf %{{.*}} : f32 to f16
func.func @softmax_f16(%x: tensor<4x8xf16>) -> tensor<4x8xf16> {
  %y = attn.softmax %x dim 1 : tensor<4x8xf16>
  return %y : tensor<4x8xf16>
}

// -----

// CHECK-LABEL: func.func @layer_norm
// CHECK-NOT: attn.
// CHECK: math.sqrt
func.func @layer_norm(%x: tensor<?x8xf32>, %s: tensor<8xf32>) -> tensor<?x8xf32> {
  %y = attn.layer_norm %x, %s axis 1 epsilon 1.0e-5 : tensor<?x8xf32>, tensor<8xf32>
  return %y : tensor<?x8xf32>
}

// -----

#q = affine_map<(b, h, i, j, d, e) -> (b, i, h, d)>
#k = affine_map<(b, h, i, j, d, e) -> (b, j, 0, d)>
#v = affine_map<(b, h, i, j, d, e) -> (b, j, h floordiv 3, e)>
#o = affine_map<(b, h, i, j, d, e) -> (b, i, h, e)>

// The unit dimension goes by a collapse, the head groups by a repeat, and both
// products are contractions that read their operands in place.
// CHECK-DAG: #[[Q:.+]] = affine_map<(d0, d1, d2, d3, d4) -> (d0, d2, d1, d4)>
// CHECK-DAG: #[[K:.+]] = affine_map<(d0, d1, d2, d3, d4) -> (d0, d3, d4)>
// CHECK-LABEL: func.func @attention
// CHECK-SAME: (%[[ARG:.+]]: tensor<?x?x6x4xf32>
// CHECK: %[[KEY:.+]] = tensor.collapse_shape {{.*}} into tensor<?x?x4xf32>
// CHECK: %[[VALUE:.+]] = linalg.generic
// CHECK: arith.divui
// CHECK: linalg.contract indexing_maps = [#[[Q]], #[[K]], #{{.+}}] ins(%[[ARG]], %[[KEY]]
// CHECK: linalg.contract {{.*}} ins(%{{.+}}, %[[VALUE]]
func.func @attention(%q: tensor<?x?x6x4xf32>, %k: tensor<?x?x1x4xf32>, %v: tensor<?x?x2x4xf32>) -> tensor<?x?x6x4xf32> {
  %o = attn.attention masked_rows zero maps [#q, #k, #v, #o]
      ins(%q, %k, %v : tensor<?x?x6x4xf32>, tensor<?x?x1x4xf32>, tensor<?x?x2x4xf32>) -> tensor<?x?x6x4xf32>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
  return %o : tensor<?x?x6x4xf32>
}

// -----

// What a kernel holds is its builder's matter.
// CHECK-LABEL: func.func @kernel
// CHECK: attn.softmax
func.func @kernel(%x: tensor<?x?xf32>) -> tensor<?x?xf32> attributes {attn.kernel} {
  %y = attn.softmax %x dim 1 : tensor<?x?xf32>
  return %y : tensor<?x?xf32>
}
