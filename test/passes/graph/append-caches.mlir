// RUN: attn-opt %s -attn-append-caches -split-input-file | FileCheck %s

// An input with rows behind it, returned: an append, to the state that the entry has for it.
// CHECK-LABEL: func.func @states
// CHECK-SAME: %[[KEY:.*]]: tensor<?x4x1x8xf32>, %[[PAST:.*]]: tensor<?x4x?x8xf32>, %[[OTHER:[a-z0-9]*]]: tensor<?x4x?x8xf32>
// CHECK-NOT: tensor.insert_slice
// CHECK: %[[FIRST:.*]] = attn.kv_append %[[KEY]] to %[[PAST]] dim 2 state 1 : tensor<?x4x1x8xf32>, tensor<?x4x?x8xf32> -> tensor<?x4x?x8xf32>
// CHECK: %[[SECOND:.*]] = attn.kv_append %[[KEY]] to %[[OTHER]] dim 2 : tensor
// CHECK: return %[[SECOND]], %[[FIRST]]
func.func @states(%key: tensor<?x4x1x8xf32>, %past: tensor<?x4x?x8xf32>, %other: tensor<?x4x?x8xf32>)
    -> (tensor<?x4x?x8xf32>, tensor<?x4x?x8xf32>) attributes {attn.entry, attn.states = [array<i64: 0, 0>, array<i64: 1, 1>]} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %b = tensor.dim %past, %c0 : tensor<?x4x?x8xf32>
  %n = tensor.dim %past, %c2 : tensor<?x4x?x8xf32>
  %total = arith.addi %n, %c1 : index
  %e = tensor.empty(%b, %total) : tensor<?x4x?x8xf32>
  %0 = tensor.insert_slice %past into %e[0, 0, 0, 0] [%b, 4, %n, 8] [1, 1, 1, 1] : tensor<?x4x?x8xf32> into tensor<?x4x?x8xf32>
  %1 = tensor.insert_slice %key into %0[0, 0, %n, 0] [%b, 4, 1, 8] [1, 1, 1, 1] : tensor<?x4x1x8xf32> into tensor<?x4x?x8xf32>
  %2 = tensor.concat dim(2) %other, %key : (tensor<?x4x?x8xf32>, tensor<?x4x1x8xf32>) -> tensor<?x4x?x8xf32>
  return %2, %1 : tensor<?x4x?x8xf32>, tensor<?x4x?x8xf32>
}

// -----

// Others read the input: they read it in front of the result, which is made before them.
// CHECK-LABEL: func.func @read
// CHECK-SAME: %[[ROW:.*]]: tensor<1x8xf32>, %[[PAST:[a-z0-9]*]]: tensor<?x8xf32>
// CHECK-NOT: attn.state_reasons
// CHECK: %[[ALL:.*]] = attn.kv_append %[[ROW]] to %[[PAST]] dim 0 state 0 : tensor
// CHECK: %[[SIZE:.*]] = tensor.dim %[[PAST]]
// CHECK: %[[FRONT:.*]] = tensor.extract_slice %[[ALL]][0, 0] [%[[SIZE]], 8] [1, 1] : tensor<?x8xf32> to tensor<?x8xf32>
// CHECK: tensor.extract_slice %[[FRONT]][0, 0] [1, 8]
// CHECK: linalg.generic
// CHECK: tensor.extract %[[FRONT]]
// CHECK: return %[[ALL]]
func.func @read(%row: tensor<1x8xf32>, %past: tensor<?x8xf32>) -> (tensor<?x8xf32>, tensor<8xf32>, tensor<3xf32>)
    attributes {attn.entry, attn.states = [array<i64: 1, 0>]} {
  %c0 = arith.constant 0 : index
  %1 = tensor.extract_slice %past[0, 0] [1, 8] [1, 1] : tensor<?x8xf32> to tensor<8xf32>
  %0 = tensor.concat dim(0) %past, %row : (tensor<?x8xf32>, tensor<1x8xf32>) -> tensor<?x8xf32>
  %e = tensor.empty() : tensor<3xf32>
  %2 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} outs(%e : tensor<3xf32>) {
  ^bb0(%out: f32):
    %x = tensor.extract %past[%c0, %c0] : tensor<?x8xf32>
    linalg.yield %x : f32
  } -> tensor<3xf32>
  return %0, %1, %2 : tensor<?x8xf32>, tensor<8xf32>, tensor<3xf32>
}

// -----

// Near miss: the rows are made from the input, whose memory must be as an op expects.
// CHECK-LABEL: func.func @made_from
// CHECK-SAME: attn.state_reasons = ["the new rows are made from the input"]
// CHECK: attn.kv_append %{{.*}} to %{{.*}} dim 0 : tensor
func.func @made_from(%past: tensor<?x8xf32>) -> tensor<?x8xf32>
    attributes {attn.entry, attn.states = [array<i64: 0, 0>]} {
  %row = tensor.extract_slice %past[0, 0] [1, 8] [1, 1] : tensor<?x8xf32> to tensor<1x8xf32>
  %0 = tensor.concat dim(0) %past, %row : (tensor<?x8xf32>, tensor<1x8xf32>) -> tensor<?x8xf32>
  return %0 : tensor<?x8xf32>
}

// CHECK-LABEL: func.func @doubled
// CHECK-SAME: attn.state_reasons = ["the new rows are made from the input"]
func.func @doubled(%past: tensor<?x8xf32>) -> tensor<?x8xf32>
    attributes {attn.entry, attn.states = [array<i64: 0, 0>]} {
  %0 = tensor.concat dim(0) %past, %past : (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  return %0 : tensor<?x8xf32>
}

// -----

// The value is another output, too, and an earlier one: the state takes it. Sizes are computed twice.
// CHECK-LABEL: func.func @twice
// CHECK-NOT: attn.state_reasons
// CHECK: %[[ALL:.*]] = attn.kv_append %{{.*}} to %{{.*}} dim 0 state 0 : tensor
// CHECK-NOT: attn.kv_append
// CHECK: return %[[ALL]], %[[ALL]]
func.func @twice(%row: tensor<1x8xf32>, %past: tensor<?x8xf32>) -> (tensor<?x8xf32>, tensor<?x8xf32>)
    attributes {attn.entry, attn.states = [array<i64: 1, 1>]} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %n = tensor.dim %past, %c0 : tensor<?x8xf32>
  %total = arith.addi %n, %c1 : index
  %e = tensor.empty(%total) : tensor<?x8xf32>
  %size = tensor.dim %past, %c0 : tensor<?x8xf32>
  %0 = tensor.insert_slice %past into %e[0, 0] [%size, 8] [1, 1] : tensor<?x8xf32> into tensor<?x8xf32>
  %1 = tensor.insert_slice %row into %0[%size, 0] [1, 8] [1, 1] : tensor<1x8xf32> into tensor<?x8xf32>
  return %1, %1 : tensor<?x8xf32>, tensor<?x8xf32>
}

// -----

// Near misses: the rows in front, three parts, a gap, a result that nobody returns, a size that is not the sum.
// CHECK-LABEL: func.func @misses
// CHECK-NOT: attn.kv_append
func.func @misses(%row: tensor<1x8xf32>, %past: tensor<?x8xf32>, %n: index)
    -> (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>, tensor<8xf32>, tensor<?x8xf32>)
    attributes {attn.entry, attn.states = [array<i64: 1, 0>]} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %size = tensor.dim %past, %c0 : tensor<?x8xf32>
  %head = tensor.extract_slice %past[0, 0] [1, 8] [1, 1] : tensor<?x8xf32> to tensor<1x8xf32>
  %front = tensor.concat dim(0) %head, %past : (tensor<1x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  %three = tensor.concat dim(0) %past, %row, %row : (tensor<?x8xf32>, tensor<1x8xf32>, tensor<1x8xf32>) -> tensor<?x8xf32>
  %two = arith.addi %size, %c2 : index
  %more = arith.addi %size, %c1 : index
  %e = tensor.empty(%two) : tensor<?x8xf32>
  %0 = tensor.insert_slice %past into %e[0, 0] [%size, 8] [1, 1] : tensor<?x8xf32> into tensor<?x8xf32>
  %gap = tensor.insert_slice %row into %0[%more, 0] [1, 8] [1, 1] : tensor<1x8xf32> into tensor<?x8xf32>
  %inside = tensor.concat dim(0) %past, %row : (tensor<?x8xf32>, tensor<1x8xf32>) -> tensor<?x8xf32>
  %first = tensor.extract_slice %inside[0, 0] [1, 8] [1, 1] : tensor<?x8xf32> to tensor<8xf32>
  %e2 = tensor.empty(%two) : tensor<?x8xf32>
  %1 = tensor.insert_slice %past into %e2[0, 0] [%size, 8] [1, 1] : tensor<?x8xf32> into tensor<?x8xf32>
  %long = tensor.insert_slice %row into %1[%size, 0] [1, 8] [1, 1] : tensor<1x8xf32> into tensor<?x8xf32>
  return %front, %three, %gap, %first, %long : tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>, tensor<8xf32>, tensor<?x8xf32>
}

// -----

// Rows replaced: the state is opened, and all that reads the input reads it there.
// CHECK-LABEL: func.func @replaced
// CHECK-SAME: %[[ROW:.*]]: tensor<1x8xf32>, %[[PAST:.*]]: tensor<?x8xf32>, %[[AT:.*]]: index
// CHECK-NOT: attn.state_reasons
// CHECK: %[[OPEN:.*]] = attn.kv_open %[[PAST]] state 0 : tensor<?x8xf32>
// CHECK: %[[LOOP:.*]] = scf.for {{.*}} iter_args(%{{.*}} = %[[OPEN]])
// CHECK: %[[NEW:.*]] = tensor.insert_slice %[[ROW]] into %[[LOOP]]
// CHECK: tensor.extract_slice %[[OPEN]]
// CHECK: return %[[NEW]]
func.func @replaced(%row: tensor<1x8xf32>, %past: tensor<?x8xf32>, %at: index) -> (tensor<?x8xf32>, tensor<8xf32>)
    attributes {attn.entry, attn.states = [array<i64: 1, 0>]} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %x = arith.constant 1.0 : f32
  %0 = scf.for %i = %c0 to %at step %c1 iter_args(%t = %past) -> tensor<?x8xf32> {
    %2 = tensor.insert %x into %t[%i, %c0] : tensor<?x8xf32>
    scf.yield %2 : tensor<?x8xf32>
  }
  %1 = tensor.insert_slice %row into %0[%at, 0] [1, 8] [1, 1] : tensor<1x8xf32> into tensor<?x8xf32>
  %old = tensor.extract_slice %past[0, 0] [1, 8] [1, 1] : tensor<?x8xf32> to tensor<8xf32>
  return %1, %old : tensor<?x8xf32>, tensor<8xf32>
}

// -----

// Near misses: the input itself, another input with rows replaced, and what a loop makes anew of the input.
// CHECK-LABEL: func.func @others
// CHECK-NOT: attn.kv_open
func.func @others(%row: tensor<1x8xf32>, %a: tensor<?x8xf32>, %b: tensor<?x8xf32>, %c: tensor<?x8xf32>, %at: index)
    -> (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>)
    attributes {attn.entry, attn.states = [array<i64: 1, 0>, array<i64: 2, 1>, array<i64: 3, 2>]} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %0 = tensor.insert_slice %row into %a[%at, 0] [1, 8] [1, 1] : tensor<1x8xf32> into tensor<?x8xf32>
  %1 = scf.for %i = %c0 to %at step %c1 iter_args(%t = %c) -> tensor<?x8xf32> {
    %2 = linalg.exp ins(%t : tensor<?x8xf32>) outs(%t : tensor<?x8xf32>) -> tensor<?x8xf32>
    scf.yield %2 : tensor<?x8xf32>
  }
  return %a, %0, %1 : tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>
}
