// RUN: attn-opt %s | attn-opt | FileCheck %s
// RUN: attn-opt %s --mlir-print-op-generic | attn-opt | FileCheck %s

#q = affine_map<(b, h, i, j, d, e) -> (b, h, i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (b, h floordiv 2, j, d)>
#v = affine_map<(b, h, i, j, d, e) -> (b, h floordiv 2, j, e)>
#o = affine_map<(b, h, i, j, d, e) -> (b, h, i, e)>
#s = affine_map<(b, h, i, j, d, e) -> (b, h, i, j)>
#r = affine_map<(b, h, i, j, d, e) -> (b, h, i)>
#a = affine_map<(b, h, i, j, d, e) -> (h, d)>
#n = affine_map<(b, h, i, j, d, e) -> (b)>
#m = affine_map<(b, h, i, j, d, e) -> (b, j)>
#g = affine_map<(b, h, i, j, d, e) -> (i floordiv 64)>
#c = affine_map<(b, h, i, j, d, e) -> (b, h, j)>

// Every mask term, with and without operands; lse, head mean, column sums, top-k.
// CHECK-LABEL: func.func @masked
// CHECK: attn.attention masked_rows zero mask [#attn.causal<3>, #attn.causal<?>, #attn.window<4, -1>, #attn.window<inf, 2, offset>, #attn.window<10, 10, centre>, #attn.chunks<8, 1, 0>, #attn.prefix<5>, #attn.lengths, #attn.blocks<64, 32>, #attn.dense] maps
// CHECK-SAME: mask_operands(%{{.*}} : tensor<?xi64>, tensor<?xi32>, tensor<?x4x?xf32>, tensor<?xindex>, tensor<?x8xi64>, tensor<?x?xi8>)
// CHECK-SAME: extras [#attn.extra<lse>, #attn.extra<weights, mean>, #attn.extra<final_weights, sum>, #attn.extra<weights, topk_indices>] : tensor<?x4x?xf32>, tensor<?x?x?xf32>, tensor<?x4x?xf32>, tensor<?x4x?x3xi64>
func.func @masked(%q: tensor<?x4x?x8xf32>, %k: tensor<?x2x?x8xf32>, %v: tensor<?x2x?x6xf32>, %n: tensor<?xi64>,
                  %p: tensor<?xi32>, %x: tensor<?x4x?xf32>, %l: tensor<?xindex>, %t: tensor<?x8xi64>,
                  %m: tensor<?x?xi8>) -> tensor<?x4x?x6xf32> {
  %o:5 = attn.attention masked_rows zero
      mask [#attn.causal<3>, #attn.causal<?>, #attn.window<4, -1>, #attn.window<inf, 2, offset>,
            #attn.window<10, 10, centre>, #attn.chunks<8, 1, 0>, #attn.prefix<5>, #attn.lengths, #attn.blocks<64, 32>, #attn.dense]
      maps [#q, #k, #v, #n, #n, #r, #n, #g, #m, #o, #r, affine_map<(b, h, i, j, d, e) -> (b, i, j)>, #c, #r]
      ins(%q, %k, %v : tensor<?x4x?x8xf32>, tensor<?x2x?x8xf32>, tensor<?x2x?x6xf32>)
      mask_operands(%n, %p, %x, %l, %t, %m
          : tensor<?xi64>, tensor<?xi32>, tensor<?x4x?xf32>, tensor<?xindex>, tensor<?x8xi64>, tensor<?x?xi8>)
      -> tensor<?x4x?x6xf32>
    extras [#attn.extra<lse>, #attn.extra<weights, mean>, #attn.extra<final_weights, sum>, #attn.extra<weights, topk_indices>]
      : tensor<?x4x?xf32>, tensor<?x?x?xf32>, tensor<?x4x?xf32>, tensor<?x4x?x3xi64>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
  return %o#0 : tensor<?x4x?x6xf32>
}

// CHECK-LABEL: func.func @additive
// CHECK: attn.attention kind additive masked_rows finite mask [#attn.causal<0>] softmax_type f64 maps
// CHECK-SAME: ins(%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} : tensor<2x4x3x8xf32>, tensor<2x2x5x8xf32>, tensor<2x2x5x6xf32>, tensor<4x8xf32>) captures(%{{.*}} : tensor<2x5xf32>) -> tensor<2x4x3x6xf32> score {
// CHECK: } weight {
// CHECK: } activation {
// CHECK: math.tanh
// CHECK: } masked {
func.func @additive(%q: tensor<2x4x3x8xf32>, %k: tensor<2x2x5x8xf32>, %v: tensor<2x2x5x6xf32>, %a: tensor<4x8xf32>,
                    %x: tensor<2x5xf32>) -> tensor<2x4x3x6xf32> {
  %o = attn.attention kind additive masked_rows finite mask [#attn.causal<0>] softmax_type f64
      maps [#q, #k, #v, #a, #m, #o]
      ins(%q, %k, %v, %a : tensor<2x4x3x8xf32>, tensor<2x2x5x8xf32>, tensor<2x2x5x6xf32>, tensor<4x8xf32>)
      captures(%x : tensor<2x5xf32>) -> tensor<2x4x3x6xf32>
    score {
    ^bb0(%s: f32, %c: f32):
      attn.yield %s : f32
    }
    weight {
    ^bb0(%w: f32, %c: f32):
      %y = arith.mulf %w, %c : f32
      attn.yield %y : f32
    }
    activation {
    ^bb0(%s: f32):
      %t = math.tanh %s : f32
      attn.yield %t : f32
    }
    masked {
    ^bb0(%s: f32, %c: f32):
      %big = arith.constant -1.0e4 : f32
      %y = arith.addf %s, %big : f32
      attn.yield %y : f32
    }
  return %o : tensor<2x4x3x6xf32>
}

// CHECK-LABEL: func.func @distance
// CHECK: attn.attention kind distance masked_rows nan maps
// CHECK-SAME: ins(%{{.*}}, %{{.*}}, %{{.*}} : tensor<2x4x3x8xf32>, tensor<2x2x5x8xf32>, tensor<2x2x5x6xf32>)
func.func @distance(%q: tensor<2x4x3x8xf32>, %k: tensor<2x2x5x8xf32>, %v: tensor<2x2x5x6xf32>) -> tensor<2x4x3x6xf32> {
  %o = attn.attention kind distance masked_rows nan maps [#q, #k, #v, #o]
      ins(%q, %k, %v : tensor<2x4x3x8xf32>, tensor<2x2x5x8xf32>, tensor<2x2x5x6xf32>) -> tensor<2x4x3x6xf32>
    score {
    ^bb0(%s: f32):
      %y = arith.negf %s : f32
      attn.yield %y : f32
    }
  return %o : tensor<2x4x3x6xf32>
}

// CHECK-LABEL: func.func @given
// CHECK: attn.attention kind given normalizer sum masked_rows nan maps
// CHECK-SAME: ins(%{{.*}}, %{{.*}} : tensor<2x4x3x5xf64>, tensor<2x2x5x6xf64>) -> tensor<2x4x3x6xf64> score {
// CHECK: ^bb0(%{{.*}}: f64):
func.func @given(%s: tensor<2x4x3x5xf64>, %v: tensor<2x2x5x6xf64>) -> tensor<2x4x3x6xf64> {
  %o = attn.attention kind given normalizer sum masked_rows nan maps [#s, #v, #o]
      ins(%s, %v : tensor<2x4x3x5xf64>, tensor<2x2x5x6xf64>) -> tensor<2x4x3x6xf64>
    score {
    ^bb0(%x: f64):
      %y = math.exp %x : f64
      attn.yield %y : f64
    }
  return %o : tensor<2x4x3x6xf64>
}
