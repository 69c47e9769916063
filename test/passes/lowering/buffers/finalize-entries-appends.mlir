// RUN: attn-opt %s --attn-finalize-entries --split-input-file --verify-diagnostics | FileCheck %s

// Rows go where the state has room; what the run reads is the front of its memory.
// CHECK-LABEL: func.func @state
// CHECK-SAME: attn.states = [array<i64: 1, 0, 1>, array<i64: 2, 1, -1>]
// CHECK: %[[N:.*]] = memref.dim %arg1, %c1
// CHECK: attn.output 1
// CHECK-NOT: attn.output 0
// CHECK: %[[ROOM:.*]] = attn.cache 0 dim 1(%{{.*}}) : memref<4x?x8xf32>
// CHECK: %[[T:.*]] = bufferization.to_tensor %[[ROOM]] restrict writable
// CHECK: %[[ALL:.*]] = tensor.insert_slice %{{.*}} into %[[T]][0, %[[N]], 0] [4, 1, 8]
// CHECK: tensor.extract_slice %[[ALL]][0, 0, 0] [4, %{{.*}}, 8]
// CHECK: bufferization.materialize_in_destination %[[ALL]] in restrict writable %[[ROOM]]
func.func @state(%row: tensor<4x1x8xf32>, %past: tensor<4x?x8xf32>, %h: tensor<2xf32>) -> (tensor<4x?x8xf32>, tensor<2xf32>)
    attributes {attn.entry, attn.states = [array<i64: 1, 0>, array<i64: 2, 1>]} {
  %0 = attn.kv_append %row to %past dim 1 state 0 : tensor<4x1x8xf32>, tensor<4x?x8xf32> -> tensor<4x?x8xf32>
  return %0, %h : tensor<4x?x8xf32>, tensor<2xf32>
}

// -----

// Rows of a state that are replaced: its memory, which is written again with what the entry returns.
// CHECK-LABEL: func.func @open
// CHECK-SAME: attn.states = [array<i64: 0, 1, -2>]
// CHECK-NOT: attn.output 1
// CHECK: %[[MEMORY:.*]] = attn.cache 0(%{{.*}}) : memref<?x8xf32>
// CHECK: %[[T:.*]] = bufferization.to_tensor %[[MEMORY]] restrict writable
// CHECK: %[[NEW:.*]] = tensor.insert_slice %{{.*}} into %[[T]]
// CHECK: bufferization.materialize_in_destination %[[NEW]] in restrict writable %[[MEMORY]]
func.func @open(%past: tensor<?x8xf32>, %row: tensor<1x8xf32>) -> (tensor<1x8xf32>, tensor<?x8xf32>)
    attributes {attn.entry, attn.states = [array<i64: 0, 1>]} {
  %0 = attn.kv_open %past state 0 : tensor<?x8xf32>
  %1 = tensor.insert_slice %row into %0[0, 0] [1, 8] [1, 1] : tensor<1x8xf32> into tensor<?x8xf32>
  return %row, %1 : tensor<1x8xf32>, tensor<?x8xf32>
}

// -----

func.func @open_another(%past: tensor<?x8xf32>, %other: tensor<?x8xf32>) -> tensor<?x8xf32>
    attributes {attn.entry, attn.states = [array<i64: 0, 0>]} {
  // expected-error @below {{expects input 0, which state 0 holds}}
  %0 = attn.kv_open %other state 0 : tensor<?x8xf32>
  return %0 : tensor<?x8xf32>
}

// -----

// Without a state: a concatenation.
// CHECK-LABEL: func.func @plain
// CHECK-NOT: attn.cache
// CHECK: %[[E:.*]] = tensor.empty
// CHECK: %[[PAST:.*]] = tensor.insert_slice %{{.*}} into %[[E]][0, 0, 0]
// CHECK: tensor.insert_slice %{{.*}} into %[[PAST]][0, %{{.*}}, 0]
func.func @plain(%row: tensor<4x1x8xf32>, %past: tensor<4x?x8xf32>) -> tensor<4x?x8xf32> attributes {attn.entry} {
  %0 = attn.kv_append %row to %past dim 1 : tensor<4x1x8xf32>, tensor<4x?x8xf32> -> tensor<4x?x8xf32>
  return %0 : tensor<4x?x8xf32>
}

// -----

func.func @no_such_state(%row: tensor<1x8xf32>, %past: tensor<?x8xf32>) -> tensor<?x8xf32> attributes {attn.entry} {
  // expected-error @below {{expects a state of the entry that no other op writes to, got 0}}
  %0 = attn.kv_append %row to %past dim 0 state 0 : tensor<1x8xf32>, tensor<?x8xf32> -> tensor<?x8xf32>
  return %0 : tensor<?x8xf32>
}

// -----

func.func @other_input(%row: tensor<?x8xf32>, %past: tensor<?x8xf32>) -> tensor<?x8xf32>
    attributes {attn.entry, attn.states = [array<i64: 0, 0>]} {
  // expected-error @below {{expects input 0, which state 0 holds}}
  %0 = attn.kv_append %row to %past dim 0 state 0 : tensor<?x8xf32>, tensor<?x8xf32> -> tensor<?x8xf32>
  return %0 : tensor<?x8xf32>
}

// -----

func.func @read_elsewhere(%row: tensor<1x8xf32>, %past: tensor<?x8xf32>) -> (tensor<?x8xf32>, tensor<?x8xf32>)
    attributes {attn.entry, attn.states = [array<i64: 1, 0>]} {
  // expected-error @below {{expects no other op to read input 1, which lies in a state}}
  %0 = attn.kv_append %row to %past dim 0 state 0 : tensor<1x8xf32>, tensor<?x8xf32> -> tensor<?x8xf32>
  return %0, %past : tensor<?x8xf32>, tensor<?x8xf32>
}

// -----

// expected-error @below {{expects pairs of an input and an output, each in one pair, in attn.states}}
func.func @twice(%a: tensor<?xf32>) -> tensor<?xf32> attributes {attn.entry, attn.states = [array<i64: 0, 0>, array<i64: 0, 0>]} {
  return %a : tensor<?xf32>
}
