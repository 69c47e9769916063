// RUN: attn-opt %s -split-input-file -verify-diagnostics

// One case a constraint of dialects/attn/CacheOps.td, each labelled.

// kv_append C1
func.func @dim(%rows: tensor<1x4xf32>, %cache: tensor<?x4xf32>) {
  // expected-error @below {{expects dim to be a dimension of 'tensor<?x4xf32>', got 2}}
  %0 = attn.kv_append %rows to %cache dim 2 : tensor<1x4xf32>, tensor<?x4xf32> -> tensor<?x4xf32>
  return
}

// -----

// kv_append C2: rank
func.func @rank(%rows: tensor<4xf32>, %cache: tensor<?x4xf32>) {
  // expected-error @below {{expects tensors of the rank and element type of 'tensor<?x4xf32>', got 'tensor<4xf32>'}}
  %0 = attn.kv_append %rows to %cache dim 0 : tensor<4xf32>, tensor<?x4xf32> -> tensor<?x4xf32>
  return
}

// -----

// kv_append C2: element type
func.func @element(%rows: tensor<1x4xf32>, %cache: tensor<?x4xf32>) {
  // expected-error @below {{expects tensors of the rank and element type of 'tensor<?x4xf32>', got 'tensor<?x4xf16>'}}
  %0 = attn.kv_append %rows to %cache dim 0 : tensor<1x4xf32>, tensor<?x4xf32> -> tensor<?x4xf16>
  return
}

// -----

// kv_append C3: another size
func.func @size(%rows: tensor<1x5xf32>, %cache: tensor<?x4xf32>) {
  // expected-error @below {{expects size 4 in dimension 1, got 5}}
  %0 = attn.kv_append %rows to %cache dim 0 : tensor<1x5xf32>, tensor<?x4xf32> -> tensor<?x4xf32>
  return
}

// -----

// kv_append C3: another sum
func.func @sum(%rows: tensor<1x4xf32>, %cache: tensor<3x4xf32>) {
  // expected-error @below {{expects size 4 in dimension 0 of the result, got 5}}
  %0 = attn.kv_append %rows to %cache dim 0 : tensor<1x4xf32>, tensor<3x4xf32> -> tensor<5x4xf32>
  return
}

// -----

// kv_append C4
func.func @negative(%rows: tensor<1x4xf32>, %cache: tensor<?x4xf32>) {
  // expected-error @below {{expects a state that is not negative, got -1}}
  %0 = attn.kv_append %rows to %cache dim 0 state -1 : tensor<1x4xf32>, tensor<?x4xf32> -> tensor<?x4xf32>
  return
}

// -----

// kv_append C4: a size that cannot grow
func.func @fixed(%rows: tensor<1x4xf32>, %cache: tensor<3x4xf32>) {
  // expected-error @below {{expects a cache with a state to be dynamic in dimension 0, got 'tensor<3x4xf32>'}}
  %0 = attn.kv_append %rows to %cache dim 0 state 0 : tensor<1x4xf32>, tensor<3x4xf32> -> tensor<4x4xf32>
  return
}

// -----

// cache C1
func.func @sizes(%n: index) {
  // expected-error @below {{expects one size a dynamic dimension of 'memref<?x4x?xf32>', got 1}}
  %0 = attn.cache 0 dim 0 (%n) : memref<?x4x?xf32>
  return
}

// -----

// cache C2
func.func @layout(%n: index) {
  // expected-error @below {{expects a result of identity layout, got 'memref<?x4xf32, strided<[8, 1]>>'}}
  %0 = attn.cache 0 dim 0 (%n) : memref<?x4xf32, strided<[8, 1]>>
  return
}

// -----

// cache C3
func.func @state(%n: index) {
  // expected-error @below {{expects a state that is not negative, got -2}}
  %0 = attn.cache -2 dim 0 (%n) : memref<?x4xf32>
  return
}

// -----

// cache C4
func.func @cache_dim(%n: index) {
  // expected-error @below {{expects dim to be a dynamic dimension of 'memref<?x4xf32>', got 1}}
  %0 = attn.cache 0 dim 1 (%n) : memref<?x4xf32>
  return
}

// -----

// kv_open C1
func.func @type(%cache: tensor<?x4xf32>) {
  // expected-error @below {{failed to verify that all of {cache, result} have same type}}
  %0 = "attn.kv_open"(%cache) {state = 0 : i32} : (tensor<?x4xf32>) -> tensor<4x4xf32>
  return
}

// -----

// kv_open C2
func.func @negative_open(%cache: tensor<?x4xf32>) {
  // expected-error @below {{expects a state that is not negative, got -1}}
  %0 = attn.kv_open %cache state -1 : tensor<?x4xf32>
  return
}

// -----

// narrow_rows C1
func.func @narrow_type(%rows: tensor<2x8xf64>) {
  // expected-error @below {{expects rows of floats and rows of i8 or f8E4M3FN, got 'tensor<2x8xf64>' and 'tensor<2x12xi8>'}}
  %0 = attn.narrow_rows %rows : tensor<2x8xf64> -> tensor<2x12xi8>
  return
}

// -----

// narrow_rows C2
func.func @narrow_size(%rows: tensor<2x8xf32>) {
  // expected-error @below {{expects rows of bytes that are 4 longer than those of 'tensor<2x8xf32>', got 'tensor<2x8xi8>'}}
  %0 = attn.narrow_rows %rows : tensor<2x8xf32> -> tensor<2x8xi8>
  return
}

// -----

// widen_rows C1
func.func @wide_type(%bytes: tensor<2x12xi8>) {
  // expected-error @below {{expects rows of floats and rows of i8 or f8E4M3FN, got 'tensor<2x8xf64>' and 'tensor<2x12xi8>'}}
  %0 = attn.widen_rows %bytes : tensor<2x12xi8> -> tensor<2x8xf64>
  return
}

// -----

// widen_rows C2
func.func @wide_size(%bytes: tensor<?x12xi8>) {
  // expected-error @below {{expects rows of bytes that are 4 longer than those of 'tensor<2x8xf32>', got 'tensor<?x12xi8>'}}
  %0 = attn.widen_rows %bytes : tensor<?x12xi8> -> tensor<2x8xf32>
  return
}
