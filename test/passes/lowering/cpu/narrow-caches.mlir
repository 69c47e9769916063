// RUN: attn-opt %s --attn-narrow-caches -split-input-file | FileCheck %s
// RUN: attn-opt %s --attn-narrow-caches --attn-lower-attention --attn-lower-normalization -split-input-file | FileCheck %s --check-prefix=KERNEL

// Keys and values of an attention, four heads of queries a head of keys: bytes with a scale, 4 more a row.
// CHECK: attn.cache_report = [{bytes = 24 : i64, bytes_before = 64 : i64, cache = "state 'past_k'", entry = "step", reason = ""},
// CHECK-SAME: {bytes = 24 : i64, bytes_before = 32 : i64, cache = "state 'past_v'", entry = "step", reason = ""}]
// CHECK-LABEL: func.func @step
// CHECK-SAME: %[[KEY:[a-z0-9]*]]: tensor<?x2x1x8xf32>, %[[VALUE:[a-z0-9]*]]: tensor<?x2x1x8xf16>
// CHECK-SAME: %[[PASTK:[a-z0-9]*]]: tensor<?x2x?x12xi8> {attn.dtype = "int8", attn.name = "past_k"}
// CHECK-SAME: %[[PASTV:[a-z0-9]*]]: tensor<?x2x?x12xi8> {attn.dtype = "int8", attn.name = "past_v"}
// CHECK-SAME: -> (tensor<?x8x1x8xf32>, tensor<?x2x?x12xi8> {attn.dtype = "int8"}, tensor<?x2x?x12xi8> {attn.dtype = "int8"})
// CHECK: %[[ROWS:.*]] = attn.narrow_rows %[[KEY]] : tensor<?x2x1x8xf32> -> tensor<?x2x1x12xi8>
// CHECK: %[[K:.*]] = attn.kv_append %[[ROWS]] to %[[PASTK]] dim 2 state 0 : tensor<?x2x1x12xi8>, tensor<?x2x?x12xi8> -> tensor<?x2x?x12xi8>
// CHECK: attn.narrow_rows %[[VALUE]] : tensor<?x2x1x8xf16> -> tensor<?x2x1x12xi8>
// CHECK: %[[V:.*]] = attn.kv_append
// CHECK-DAG: %[[KEYS:.*]] = attn.widen_rows %[[K]] : tensor<?x2x?x12xi8> -> tensor<?x2x?x8xf32>
// CHECK-DAG: %[[VALUES:.*]] = attn.widen_rows %[[V]]
// CHECK: attn.attention {{.*}} ins(%{{.*}}, %[[KEYS]], %[[VALUES]] :
// KERNEL-LABEL: func.func @step
// KERNEL-COUNT-2: attn.kernel @narrow_rows_
// KERNEL: attn.kernel @attention_f32_d8_e8_{{.*}}tensor<?x2x?x12xi8>, tensor<?x2x?x12xi8>
#q = affine_map<(b, h, i, j, d, e) -> (b, h, i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (b, h floordiv 4, j, d)>
#v = affine_map<(b, h, i, j, d, e) -> (b, h floordiv 4, j, e)>
#o = affine_map<(b, h, i, j, d, e) -> (b, h, i, e)>
#id = affine_map<(a, b, c, d) -> (a, b, c, d)>
module attributes {attn.target = #attn.target<triple = "x86_64-unknown-linux-gnu", cpu = "x86-64-v3", features = "", isa = "avx2", l1 = 32768, l2 = 1048576>} {
func.func @step(%q: tensor<?x8x1x8xf32>, %key: tensor<?x2x1x8xf32>, %value: tensor<?x2x1x8xf16>,
                %past_k: tensor<?x2x?x8xf32> {attn.name = "past_k"}, %past_v: tensor<?x2x?x8xf16> {attn.name = "past_v"})
    -> (tensor<?x8x1x8xf32>, tensor<?x2x?x8xf32>, tensor<?x2x?x8xf16>)
    attributes {attn.entry, attn.states = [array<i64: 3, 1>, array<i64: 4, 2>]} {
  %k = attn.kv_append %key to %past_k dim 2 state 0 : tensor<?x2x1x8xf32>, tensor<?x2x?x8xf32> -> tensor<?x2x?x8xf32>
  %v = attn.kv_append %value to %past_v dim 2 state 1 : tensor<?x2x1x8xf16>, tensor<?x2x?x8xf16> -> tensor<?x2x?x8xf16>
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %b = tensor.dim %v, %c0 : tensor<?x2x?x8xf16>
  %n = tensor.dim %v, %c2 : tensor<?x2x?x8xf16>
  %e = tensor.empty(%b, %n) : tensor<?x2x?x8xf32>
  %wide = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%v : tensor<?x2x?x8xf16>) outs(%e : tensor<?x2x?x8xf32>) {
  ^bb0(%x: f16, %out: f32):
    %y = arith.extf %x : f16 to f32
    linalg.yield %y : f32
  } -> tensor<?x2x?x8xf32>
  %r = attn.attention masked_rows nan maps [#q, #k, #v, #o]
      ins(%q, %k, %wide : tensor<?x8x1x8xf32>, tensor<?x2x?x8xf32>, tensor<?x2x?x8xf32>) -> tensor<?x8x1x8xf32>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
  return %r, %k, %v : tensor<?x8x1x8xf32>, tensor<?x2x?x8xf32>, tensor<?x2x?x8xf16>
}
}

// -----

// Near misses: a state of which no attention knows, one that something else reads, too, one whose columns are keys, one
// of short rows, one that an attention reads as its query.
// CHECK: cache = "state '0'", entry = "misses", reason = "no attention reads it"
// CHECK-SAME: cache = "state '1'", entry = "misses", reason = "'linalg.reduce' reads it, which is no attention"
// CHECK-SAME: cache = "state '2'", entry = "misses", reason = "'attn.attention' has keys that are not its rows"
// CHECK-SAME: cache = "state '3'", entry = "misses", reason = "its rows are of 4 numbers, and for less than 8 the scales would take too much"
// CHECK-SAME: cache = "state '4'", entry = "misses", reason = "'attn.attention' reads it as something else than keys or values"
// CHECK-LABEL: func.func @misses
// CHECK-NOT: i8
#q = affine_map<(b, h, i, j, d, e) -> (i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (j, d)>
#columns = affine_map<(b, h, i, j, d, e) -> (d, j)>
#v = affine_map<(b, h, i, j, d, e) -> (j, e)>
#o = affine_map<(b, h, i, j, d, e) -> (i, e)>
module attributes {attn.target = #attn.target<triple = "x86_64-unknown-linux-gnu", cpu = "x86-64-v3", features = "", isa = "avx2", l1 = 32768, l2 = 1048576>} {
func.func @misses(%a: tensor<?x8xf32>, %b: tensor<?x8xf32>, %c: tensor<?x8xf32>, %d: tensor<?x4xf32>, %e: tensor<?x8xf32>,
                  %row: tensor<1x8xf32>, %short: tensor<1x4xf32>, %given: tensor<8x8xf32>)
    -> (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x4xf32>, tensor<?x8xf32>, tensor<8xf32>,
        tensor<1x8xf32>, tensor<8x4xf32>, tensor<?x8xf32>)
    attributes {attn.entry, attn.states = [array<i64: 0, 0>, array<i64: 1, 1>, array<i64: 2, 2>, array<i64: 3, 3>, array<i64: 4, 4>]} {
  %0 = attn.kv_append %row to %a dim 0 state 0 : tensor<1x8xf32>, tensor<?x8xf32> -> tensor<?x8xf32>
  %1 = attn.kv_append %row to %b dim 0 state 1 : tensor<1x8xf32>, tensor<?x8xf32> -> tensor<?x8xf32>
  %2 = attn.kv_append %row to %c dim 0 state 2 : tensor<1x8xf32>, tensor<?x8xf32> -> tensor<?x8xf32>
  %3 = attn.kv_append %short to %d dim 0 state 3 : tensor<1x4xf32>, tensor<?x4xf32> -> tensor<?x4xf32>
  %4 = attn.kv_append %row to %e dim 0 state 4 : tensor<1x8xf32>, tensor<?x8xf32> -> tensor<?x8xf32>
  %zero = arith.constant dense<0.0> : tensor<8xf32>
  %sum = linalg.reduce ins(%1 : tensor<?x8xf32>) outs(%zero : tensor<8xf32>) dimensions = [0] (%x: f32, %y: f32) {
    %z = arith.addf %x, %y : f32
    linalg.yield %z : f32
  }
  %r = attn.attention masked_rows nan maps [#q, #columns, #v, #o]
      ins(%row, %given, %1 : tensor<1x8xf32>, tensor<8x8xf32>, tensor<?x8xf32>) -> tensor<1x8xf32>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
  %t = attn.attention masked_rows nan maps [affine_map<(b, h, i, j, d, e) -> (i, d)>, #columns, #v, #o]
      ins(%given, %2, %given : tensor<8x8xf32>, tensor<?x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
  %w = attn.attention masked_rows nan maps [#q, #k, #v, #o]
      ins(%given, %given, %3 : tensor<8x8xf32>, tensor<8x8xf32>, tensor<?x4xf32>) -> tensor<8x4xf32>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
  %u = attn.attention masked_rows nan maps [#q, #k, #v, #o]
      ins(%4, %given, %t : tensor<?x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<?x8xf32>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
  return %0, %1, %2, %3, %4, %sum, %r, %w, %u : tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x4xf32>,
      tensor<?x8xf32>, tensor<8xf32>, tensor<1x8xf32>, tensor<8x4xf32>, tensor<?x8xf32>
}
}

// -----

// Nor one that is also what another state, which each run makes anew, becomes: the manifest calls that one floats.
// CHECK: cache = "state '0'", entry = "twice", reason = "it is another output, too"
// CHECK-LABEL: func.func @twice
// CHECK-NOT: i8
#q = affine_map<(b, h, i, j, d, e) -> (i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (j, d)>
#v = affine_map<(b, h, i, j, d, e) -> (j, e)>
#o = affine_map<(b, h, i, j, d, e) -> (i, e)>
module attributes {attn.target = #attn.target<triple = "x86_64-unknown-linux-gnu", cpu = "x86-64-v3", features = "", isa = "avx2", l1 = 32768, l2 = 1048576>} {
func.func @twice(%a: tensor<?x8xf32>, %b: tensor<?x8xf32>, %row: tensor<1x8xf32>)
    -> (tensor<?x8xf32>, tensor<?x8xf32>, tensor<1x8xf32>)
    attributes {attn.entry, attn.states = [array<i64: 0, 0>, array<i64: 1, 1>]} {
  %0 = attn.kv_append %row to %a dim 0 state 0 : tensor<1x8xf32>, tensor<?x8xf32> -> tensor<?x8xf32>
  %r = attn.attention masked_rows nan maps [#q, #k, #v, #o]
      ins(%row, %0, %0 : tensor<1x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<1x8xf32>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
  return %0, %0, %r : tensor<?x8xf32>, tensor<?x8xf32>, tensor<1x8xf32>
}
}
