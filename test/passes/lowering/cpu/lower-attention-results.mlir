// RUN: attn-opt %s --split-input-file --attn-lower-attention | FileCheck %s

// A reduction of the weights: the kernel writes them whole, linalg reduces them.

#q = affine_map<(b, h, i, j, d, e) -> (b, h, i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (b, h, j, d)>
#v = affine_map<(b, h, i, j, d, e) -> (b, h, j, e)>
#n = affine_map<(b, h, i, j, d, e) -> (b)>
#o = affine_map<(b, h, i, j, d, e) -> (b, h, i, e)>
#l = affine_map<(b, h, i, j, d, e) -> (b, h, i)>
#w = affine_map<(b, h, i, j, d, e) -> (b, i, j)>
// CHECK-LABEL: func.func @head_mean
// CHECK: %[[R:.*]]:3 = attn.kernel @[[K:attention_f32_d8_e8_[0-9a-f]+]] ins(%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} :
// CHECK-SAME: -> tensor<1x2x8x8xf32>, tensor<1x2x8xf32>, tensor<1x2x8x8xf32>
// CHECK: linalg.generic {{.*}} ins(%[[R]]#2
// CHECK: func.func @[[K]]
func.func @head_mean(%q: tensor<1x2x8x8xf32>, %n: tensor<1xi64>) -> (tensor<1x2x8x8xf32>, tensor<1x2x8xf32>, tensor<1x8x8xf32>) {
  %x:3 = attn.attention masked_rows zero mask [#attn.causal<0>, #attn.lengths] maps [#q, #k, #v, #n, #o, #l, #w]
      ins(%q, %q, %q : tensor<1x2x8x8xf32>, tensor<1x2x8x8xf32>, tensor<1x2x8x8xf32>)
      mask_operands(%n : tensor<1xi64>) -> tensor<1x2x8x8xf32>
      extras [#attn.extra<lse>, #attn.extra<weights, mean>] : tensor<1x2x8xf32>, tensor<1x8x8xf32>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
  return %x#0, %x#1, %x#2 : tensor<1x2x8x8xf32>, tensor<1x2x8xf32>, tensor<1x8x8xf32>
}

// -----

#q = affine_map<(b, h, i, j, d, e) -> (b, h, i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (b, h, j, d)>
#v = affine_map<(b, h, i, j, d, e) -> (b, h, j, e)>
#o = affine_map<(b, h, i, j, d, e) -> (b, h, i, e)>
// Weights of one query, in a tensor whose last dimension is the query: it is read row by row, and many keys are
// split, so that a second round of the loop makes weights of the scores.
#w1 = affine_map<(b, h, i, j, d, e) -> (b, h, j, i)>
// CHECK-LABEL: func.func @one_query
// CHECK: attn.kernel @[[K1:attention_f32_d8_e8_[0-9a-f]+]]
// CHECK: func.func @[[K1]]
// CHECK: scf.for
// CHECK: scf.parallel
// CHECK-NOT: scf.parallel
func.func @one_query(%q: tensor<1x2x1x8xf32>, %k: tensor<1x2x4096x8xf32>) -> (tensor<1x2x1x8xf32>, tensor<1x2x4096x1xf32>) {
  %x:2 = attn.attention masked_rows nan maps [#q, #k, #v, #o, #w1]
      ins(%q, %k, %k : tensor<1x2x1x8xf32>, tensor<1x2x4096x8xf32>, tensor<1x2x4096x8xf32>) -> tensor<1x2x1x8xf32>
      extras [#attn.extra<weights>] : tensor<1x2x4096x1xf32>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
  return %x#0, %x#1 : tensor<1x2x1x8xf32>, tensor<1x2x4096x1xf32>
}
