// RUN: attn-opt %s --pass-pipeline='builtin.module(attn-finalize-entries,canonicalize,cse,func.func(attn-prepare-buffers))' --split-input-file | FileCheck %s
// RUN: attn-opt %s --pass-pipeline='builtin.module(attn-finalize-entries,canonicalize,cse,func.func(attn-prepare-buffers),eliminate-empty-tensors,one-shot-bufferize{bufferize-function-boundaries=1 function-boundary-type-conversion=identity-layout-map},cse,canonicalize)' --split-input-file | FileCheck %s --check-prefix=BUFFERS

// Each state is read where the other one is written: both are copied first, and one of the copies is made in place.
// CHECK-LABEL: func.func @swap
// CHECK: scf.for {{.*}} iter_args(%[[A:.*]] = %{{.*}}, %[[B:.*]] = %{{.*}}) ->
// CHECK-DAG: %[[OLD_A:.*]] = linalg.copy ins(%[[A]]
// CHECK-DAG: %[[OLD_B:.*]] = linalg.copy ins(%[[B]]
// CHECK-DAG: materialize_in_destination %[[OLD_B]] in %[[A]]
// CHECK-DAG: materialize_in_destination %[[OLD_A]] in %[[B]]
// BUFFERS-LABEL: func.func @swap
// BUFFERS: scf.for
// BUFFERS: memref.alloc
// BUFFERS-NOT: memref.alloc
// BUFFERS: return
func.func @swap(%n: tensor<?xf32>, %x: tensor<4xf32>, %y: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>)
    attributes {attn.entry} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %end = tensor.dim %n, %c0 : tensor<?xf32>
  %r:2 = scf.for %i = %c0 to %end step %c1 iter_args(%a = %x, %b = %y) -> (tensor<4xf32>, tensor<4xf32>) {
    scf.yield %b, %a : tensor<4xf32>, tensor<4xf32>
  }
  return %r#0, %r#1 : tensor<4xf32>, tensor<4xf32>
}

// -----

// One value for two states: the second place gets a copy. A view of a state counts as the state.
// CHECK-LABEL: func.func @shared
// CHECK: scf.for {{.*}} iter_args(%[[A:.*]] = %{{.*}}, %[[B:.*]] = %{{.*}}, %[[C:.*]] = %{{[^)]*}}) ->
// CHECK: %[[VIEW:.*]] = tensor.collapse_shape %[[A]]
// CHECK: %[[OLD:.*]] = linalg.copy ins(%[[VIEW]]
// CHECK: %[[E:.*]] = linalg.exp
// CHECK: %[[SAME:.*]] = linalg.copy ins(%[[E]]
// CHECK: materialize_in_destination %[[E]] in %[[A]]
// CHECK: materialize_in_destination %[[SAME]] in %[[B]]
// CHECK: materialize_in_destination %[[OLD]] in %[[C]]
// BUFFERS-LABEL: func.func @shared
// BUFFERS: scf.for
func.func @shared(%n: tensor<?xf32>, %x: tensor<2x2xf32>, %y: tensor<2x2xf32>, %z: tensor<4xf32>)
    -> (tensor<2x2xf32>, tensor<2x2xf32>, tensor<4xf32>) attributes {attn.entry} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %end = tensor.dim %n, %c0 : tensor<?xf32>
  %r:3 = scf.for %i = %c0 to %end step %c1 iter_args(%a = %x, %b = %y, %c = %z)
      -> (tensor<2x2xf32>, tensor<2x2xf32>, tensor<4xf32>) {
    %v = tensor.collapse_shape %a [[0, 1]] : tensor<2x2xf32> into tensor<4xf32>
    %e = tensor.empty() : tensor<2x2xf32>
    %s = linalg.exp ins(%b : tensor<2x2xf32>) outs(%e : tensor<2x2xf32>) -> tensor<2x2xf32>
    scf.yield %s, %s, %v : tensor<2x2xf32>, tensor<2x2xf32>, tensor<4xf32>
  }
  return %r#0, %r#1, %r#2 : tensor<2x2xf32>, tensor<2x2xf32>, tensor<4xf32>
}

// -----

// What is written in place and read afterwards as it was: the reader takes a copy.
// CHECK-LABEL: func.func @read_later
// CHECK: scf.for {{.*}} iter_args(%[[A:.*]] = %{{.*}}, %[[B:.*]] = %{{.*}}) ->
// CHECK: %[[OLD:.*]] = linalg.copy ins(%[[A]]
// CHECK: tensor.insert %{{.*}} into %[[A]]
// CHECK: linalg.exp ins(%[[OLD]]
// BUFFERS-LABEL: func.func @read_later
// BUFFERS: scf.for
func.func @read_later(%n: tensor<?xf32>, %x: tensor<4xf32>, %y: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>)
    attributes {attn.entry} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %one = arith.constant 1.0 : f32
  %end = tensor.dim %n, %c0 : tensor<?xf32>
  %r:2 = scf.for %i = %c0 to %end step %c1 iter_args(%a = %x, %b = %y) -> (tensor<4xf32>, tensor<4xf32>) {
    %e = tensor.empty() : tensor<4xf32>
    %u = tensor.insert %one into %a[%c0] : tensor<4xf32>
    %s = linalg.exp ins(%a : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
    scf.yield %u, %s : tensor<4xf32>, tensor<4xf32>
  }
  return %r#0, %r#1 : tensor<4xf32>, tensor<4xf32>
}

// -----

// Near misses: read before it is written, a value for each state, and one that stays.
// CHECK-LABEL: func.func @independent
// CHECK-NOT: linalg.copy
// CHECK: return
// BUFFERS-LABEL: func.func @independent
// BUFFERS: scf.for
func.func @independent(%n: tensor<?xf32>, %x: tensor<4xf32>, %y: tensor<4xf32>, %z: tensor<4xf32>, %w: tensor<4xf32>)
    -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) attributes {attn.entry} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %one = arith.constant 1.0 : f32
  %end = tensor.dim %n, %c0 : tensor<?xf32>
  %r:4 = scf.for %i = %c0 to %end step %c1 iter_args(%a = %x, %b = %y, %c = %z, %d = %w)
      -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
    %e = tensor.empty() : tensor<4xf32>
    %s = linalg.exp ins(%a : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
    %t = linalg.tanh ins(%c : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
    %u = tensor.insert %one into %a[%c0] : tensor<4xf32>
    scf.yield %u, %s, %t, %d : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
  }
  return %r#0, %r#1, %r#2 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}
