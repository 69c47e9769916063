// RUN: attn-opt %s --attn-narrow-gpu-caches -split-input-file | FileCheck %s
// RUN: attn-opt %s --attn-narrow-gpu-caches --attn-choose-gpu-rows -split-input-file | FileCheck %s --check-prefix=KERNEL
// RUN: attn-opt %s --pass-pipeline='builtin.module(attn-narrow-gpu-caches{e4m3=true})' -split-input-file | FileCheck %s --check-prefix=E4M3

// Keys and values of an attention in f16, four heads of queries a head of keys: bytes with a scale, 4 more a row.
// CHECK: attn.cache_report = [{bytes = 24 : i64, bytes_before = 32 : i64, cache = "state 'past_k'", entry = "step", reason = ""},
// CHECK-SAME: {bytes = 24 : i64, bytes_before = 32 : i64, cache = "state 'past_v'", entry = "step", reason = ""}]
// CHECK-LABEL: func.func @step
// CHECK: attn.narrow_rows %{{.*}} : tensor<?x2x1x8xf16> -> tensor<?x2x1x12xi8>
// CHECK: %[[K:.*]] = attn.kv_append {{.*}} : tensor<?x2x1x12xi8>, tensor<?x2x?x12xi8> -> tensor<?x2x?x12xi8>
// CHECK: %[[V:.*]] = attn.kv_append
// CHECK-DAG: %[[KEYS:.*]] = attn.widen_rows %[[K]] : tensor<?x2x?x12xi8> -> tensor<?x2x?x8xf16>
// CHECK-DAG: %[[VALUES:.*]] = attn.widen_rows %[[V]]
// CHECK: attn.attention {{.*}} ins(%{{.*}}, %[[KEYS]], %[[VALUES]] :
// What a library keeps, and not a search, is of i8 alone.
// E4M3: cache = "state 'past_k'", entry = "step", reason = "what a library keeps is of no such type"
// E4M3-LABEL: func.func @step
// E4M3-NOT: attn.narrow_rows
// E4M3: return
// KERNEL-LABEL: func.func @step
// KERNEL-COUNT-2: attn.kernel @gpu_narrow_rows_f16_nx2x1x8_
// KERNEL: attn.kernel @gpu_attention_f16_d8_e8_{{.*}}tensor<?x2x?x12xi8>, tensor<?x2x?x12xi8>
#q = affine_map<(b, h, i, j, d, e) -> (b, h, i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (b, h floordiv 4, j, d)>
#v = affine_map<(b, h, i, j, d, e) -> (b, h floordiv 4, j, e)>
#o = affine_map<(b, h, i, j, d, e) -> (b, h, i, e)>
module attributes {attn.target = #attn.target<triple = "x86_64-unknown-linux-gnu", cpu = "x86-64-v3", features = "", isa = "avx2", l1 = 32768, l2 = 1048576>} {
func.func @step(%q: tensor<?x8x1x8xf16>, %key: tensor<?x2x1x8xf16>, %value: tensor<?x2x1x8xf16>,
                %past_k: tensor<?x2x?x8xf16> {attn.name = "past_k"}, %past_v: tensor<?x2x?x8xf16> {attn.name = "past_v"})
    -> (tensor<?x8x1x8xf16>, tensor<?x2x?x8xf16>, tensor<?x2x?x8xf16>)
    attributes {attn.entry, attn.states = [array<i64: 3, 1>, array<i64: 4, 2>]} {
  %k = attn.kv_append %key to %past_k dim 2 state 0 : tensor<?x2x1x8xf16>, tensor<?x2x?x8xf16> -> tensor<?x2x?x8xf16>
  %v = attn.kv_append %value to %past_v dim 2 state 1 : tensor<?x2x1x8xf16>, tensor<?x2x?x8xf16> -> tensor<?x2x?x8xf16>
  %r = attn.attention masked_rows nan maps [#q, #k, #v, #o]
      ins(%q, %k, %v : tensor<?x8x1x8xf16>, tensor<?x2x?x8xf16>, tensor<?x2x?x8xf16>) -> tensor<?x8x1x8xf16>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
  return %r, %k, %v : tensor<?x8x1x8xf16>, tensor<?x2x?x8xf16>, tensor<?x2x?x8xf16>
}
}

// -----

// Near misses. Many queries, and one by rows that are no words, have the bytes written out.
// CHECK-LABEL: func.func @written_out
// CHECK-COUNT-2: attn.widen_rows
// KERNEL-LABEL: func.func @written_out
// KERNEL-COUNT-2: attn.widen_rows
// KERNEL: attn.kernel @gpu_attention_f32_d8_e8_{{.*}} : tensor<5x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>)
// KERNEL-COUNT-2: attn.widen_rows
// KERNEL: attn.kernel @gpu_attention_f32_d10_e10_{{.*}} : tensor<1x10xf32>, tensor<?x10xf32>, tensor<?x10xf32>)
#q = affine_map<(b, h, i, j, d, e) -> (i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (j, d)>
#v = affine_map<(b, h, i, j, d, e) -> (j, e)>
#o = affine_map<(b, h, i, j, d, e) -> (i, e)>
module attributes {attn.target = #attn.target<triple = "x86_64-unknown-linux-gnu", cpu = "x86-64-v3", features = "", isa = "avx2", l1 = 32768, l2 = 1048576>} {
func.func @written_out(%a: tensor<?x8xf32>, %b: tensor<?x10xf32>, %row: tensor<1x8xf32>, %odd: tensor<1x10xf32>, %many: tensor<5x8xf32>)
    -> (tensor<?x8xf32>, tensor<?x10xf32>, tensor<5x8xf32>, tensor<1x10xf32>)
    attributes {attn.entry, attn.states = [array<i64: 0, 0>, array<i64: 1, 1>]} {
  %0 = attn.kv_append %row to %a dim 0 state 0 : tensor<1x8xf32>, tensor<?x8xf32> -> tensor<?x8xf32>
  %1 = attn.kv_append %odd to %b dim 0 state 1 : tensor<1x10xf32>, tensor<?x10xf32> -> tensor<?x10xf32>
  %r = attn.attention masked_rows nan maps [#q, #k, #v, #o]
      ins(%many, %0, %0 : tensor<5x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<5x8xf32>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
  %t = attn.attention masked_rows nan maps [#q, #k, #v, #o]
      ins(%odd, %1, %1 : tensor<1x10xf32>, tensor<?x10xf32>, tensor<?x10xf32>) -> tensor<1x10xf32>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
  return %0, %1, %r, %t : tensor<?x8xf32>, tensor<?x10xf32>, tensor<5x8xf32>, tensor<1x10xf32>
}
}

// -----

// No products with keys, and a cache that something else reads, too: floats.
// CHECK: cache = "state '0'", entry = "misses", reason = "'attn.attention' has scores that are no products with keys"
// CHECK-SAME: cache = "state '1'", entry = "misses", reason = "'linalg.reduce' reads it, which is no attention"
// CHECK-LABEL: func.func @misses
// CHECK-NOT: i8
#q = affine_map<(b, h, i, j, d, e) -> (i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (j, d)>
#v = affine_map<(b, h, i, j, d, e) -> (j, e)>
#o = affine_map<(b, h, i, j, d, e) -> (i, e)>
module attributes {attn.target = #attn.target<triple = "x86_64-unknown-linux-gnu", cpu = "x86-64-v3", features = "", isa = "avx2", l1 = 32768, l2 = 1048576>} {
func.func @misses(%a: tensor<?x8xf32>, %b: tensor<?x8xf32>, %row: tensor<1x8xf32>)
    -> (tensor<?x8xf32>, tensor<?x8xf32>, tensor<8xf32>, tensor<1x8xf32>)
    attributes {attn.entry, attn.states = [array<i64: 0, 0>, array<i64: 1, 1>]} {
  %0 = attn.kv_append %row to %a dim 0 state 0 : tensor<1x8xf32>, tensor<?x8xf32> -> tensor<?x8xf32>
  %1 = attn.kv_append %row to %b dim 0 state 1 : tensor<1x8xf32>, tensor<?x8xf32> -> tensor<?x8xf32>
  %zero = arith.constant dense<0.0> : tensor<8xf32>
  %sum = linalg.reduce ins(%1 : tensor<?x8xf32>) outs(%zero : tensor<8xf32>) dimensions = [0] (%x: f32, %y: f32) {
    %z = arith.addf %x, %y : f32
    linalg.yield %z : f32
  }
  %r = attn.attention kind distance masked_rows nan maps [#q, #k, #v, #o]
      ins(%row, %0, %1 : tensor<1x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<1x8xf32>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
  return %0, %1, %sum, %r : tensor<?x8xf32>, tensor<?x8xf32>, tensor<8xf32>, tensor<1x8xf32>
}
}
