// RUN: attn-opt %s --split-input-file --attn-choose-gpu-rows | FileCheck %s

// A warp a row; another dimension than the last stays.
// CHECK-LABEL: func.func @softmax
// CHECK: attn.kernel @gpu_softmax
// CHECK: attn.softmax %{{.*}} dim 0
// CHECK-LABEL: func.func @gpu_softmax
// CHECK: gpu.launch
// CHECK-COUNT-5: gpu.shuffle xor
func.func @softmax(%x: tensor<?x100xf32>) -> (tensor<?x100xf32>, tensor<?x100xf32>) {
  %y = attn.softmax %x dim 1 : tensor<?x100xf32>
  %z = attn.softmax %x dim 0 : tensor<?x100xf32>
  return %y, %z : tensor<?x100xf32>, tensor<?x100xf32>
}

// -----

// CHECK-LABEL: func.func @attention
// CHECK-COUNT-2: attn.kernel @gpu_attention_f32
// CHECK-NOT: attn.attention
// CHECK: return
#q = affine_map<(b, h, i, j, d, e) -> (b, h, i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (b, h, j, d)>
#v = affine_map<(b, h, i, j, d, e) -> (b, h, j, e)>
#s = affine_map<(b, h, i, j, d, e) -> (b, h, i, j)>
#o = affine_map<(b, h, i, j, d, e) -> (b, h, i, e)>
func.func @attention(%q: tensor<2x3x?x32xf32>, %k: tensor<2x3x?x32xf32>, %v: tensor<2x3x?x32xf32>, %s: tensor<2x3x?x?xf32>) -> (tensor<2x3x?x32xf32>, tensor<2x3x?x32xf32>) {
  %x = attn.attention masked_rows nan mask [#attn.causal<0>] maps [#q, #k, #v, #o]
      ins(%q, %k, %v : tensor<2x3x?x32xf32>, tensor<2x3x?x32xf32>, tensor<2x3x?x32xf32>) -> tensor<2x3x?x32xf32>
    score {
    ^bb0(%a: f32):
      attn.yield %a : f32
    }
  %y = attn.attention kind given masked_rows nan maps [#s, #v, #o]
      ins(%s, %v : tensor<2x3x?x?xf32>, tensor<2x3x?x32xf32>) -> tensor<2x3x?x32xf32>
    score {
    ^bb0(%a: f32):
      attn.yield %a : f32
    }
  return %x, %y : tensor<2x3x?x32xf32>, tensor<2x3x?x32xf32>
}

// -----

// Buffers of half precision: the products of few queries are of f32, to which the tiles are widened.
// CHECK-LABEL: func.func @attention_half
// CHECK: attn.kernel @gpu_attention_f16_d32_e32_
// CHECK-LABEL: func.func @gpu_attention_f16_d32_e32_
// CHECK: gpu.launch
// CHECK: vector.load {{.*}} {alignment = 8 : i64} : memref<?xf16>, vector<4xf16>
// CHECK: math.fma
// CHECK: arith.truncf {{.*}} : f32 to f16
// CHECK-NOT: nvvm.mma
#q = affine_map<(b, h, i, j, d, e) -> (b, h, i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (b, h, j, d)>
#v = affine_map<(b, h, i, j, d, e) -> (b, h, j, e)>
#s = affine_map<(b, h, i, j, d, e) -> (b, h, i, j)>
#o = affine_map<(b, h, i, j, d, e) -> (b, h, i, e)>
func.func @attention_half(%q: tensor<2x3x9x32xf16>, %k: tensor<2x3x7x32xf16>) -> (tensor<2x3x9x32xf16>, tensor<2x3x9x7xf16>) {
  %x:2 = attn.attention masked_rows nan maps [#q, #k, #v, #o, #s]
      ins(%q, %k, %k : tensor<2x3x9x32xf16>, tensor<2x3x7x32xf16>, tensor<2x3x7x32xf16>) -> tensor<2x3x9x32xf16>
      extras [#attn.extra<weights>] : tensor<2x3x9x7xf16>
    score {
    ^bb0(%a: f32):
      attn.yield %a : f32
    }
  return %x#0, %x#1 : tensor<2x3x9x32xf16>, tensor<2x3x9x7xf16>
}

// -----

// Matrix units take them as they are. Near miss: f64.
// CHECK-LABEL: func.func @attention_of_many
// CHECK: attn.kernel @gpu_attention_bf16_d32_e32_
// CHECK: attn.attention
// CHECK-LABEL: func.func @gpu_attention_bf16_d32_e32_
// CHECK: gpu.launch
// CHECK: nvvm.cp.async.shared.global {{.*}}, 16, cache = cg
// CHECK: nvvm.ldmatrix
// CHECK: nvvm.mma.sync
// CHECK-COUNT-2: gpu.shuffle xor
// CHECK: vector.store %{{.*}} {alignment = 16 : i64} : memref<?xbf16>, vector<8xbf16>
#q = affine_map<(b, h, i, j, d, e) -> (b, h, i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (b, h, j, d)>
#v = affine_map<(b, h, i, j, d, e) -> (b, h, j, e)>
#o = affine_map<(b, h, i, j, d, e) -> (b, h, i, e)>
func.func @attention_of_many(%q: tensor<2x3x90x32xbf16>, %k: tensor<2x3x7x32xbf16>, %r: tensor<2x3x9x32xf64>) -> (tensor<2x3x90x32xbf16>, tensor<2x3x9x32xf64>) {
  %x = attn.attention masked_rows nan maps [#q, #k, #v, #o]
      ins(%q, %k, %k : tensor<2x3x90x32xbf16>, tensor<2x3x7x32xbf16>, tensor<2x3x7x32xbf16>) -> tensor<2x3x90x32xbf16>
    score {
    ^bb0(%a: f32):
      attn.yield %a : f32
    }
  %y = attn.attention masked_rows nan maps [#q, #k, #v, #o]
      ins(%r, %r, %r : tensor<2x3x9x32xf64>, tensor<2x3x9x32xf64>, tensor<2x3x9x32xf64>) -> tensor<2x3x9x32xf64>
    score {
    ^bb0(%a: f64):
      attn.yield %a : f64
    }
  return %x, %y : tensor<2x3x90x32xbf16>, tensor<2x3x9x32xf64>
}
