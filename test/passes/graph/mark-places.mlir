// RUN: attn-opt %s -attn-mark-places -canonicalize -cse -split-input-file | FileCheck %s

// A number in planes of scores: which of them, a run says, and all of their rows.
// CHECK-LABEL: func.func @planes
// CHECK-SAME: %[[S:[^:]+]]: tensor<2x?x6xf32>, %[[P:[^:]+]]: tensor<?x2xi64>, %[[N:[^:]+]]: index
// CHECK: %[[ZERO:.+]] = linalg.fill ins(%c0_i8 : i8)
// CHECK: %[[M:.+]] = scf.for %[[I:.+]] = %c0 to %[[N]] step %c1 iter_args(%[[T:.+]] = %[[ZERO]]) -> (tensor<2x?xi8>) {
// CHECK: tensor.extract %[[P]][%[[I]], %c0]
// CHECK: tensor.extract %[[P]][%[[I]], %c1]
// CHECK: tensor.insert %c1_i8 into %[[T]][
// CHECK-NOT: scf.for
// CHECK: linalg.generic {{.*}} ins(%[[S]], %[[M]] : tensor<2x?x6xf32>, tensor<2x?xi8>)
// CHECK: ^bb0(%[[X:.+]]: f32, %[[B:.+]]: i8
// CHECK: %[[C:.+]] = arith.cmpi ne, %[[B]], %c0_i8
// CHECK: arith.select %[[C]], %cst, %[[X]] : f32
// CHECK: attn.softmax
func.func @planes(%s: tensor<2x?x6xf32>, %p: tensor<?x2xi64>, %n: index) -> tensor<2x?x6xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c6 = arith.constant 6 : index
  %hidden = arith.constant -1.0e+30 : f32
  %rows = tensor.dim %s, %c1 : tensor<2x?x6xf32>
  %y = scf.for %i = %c0 to %n step %c1 iter_args(%t = %s) -> (tensor<2x?x6xf32>) {
    %r = scf.for %j = %c0 to %c6 step %c1 iter_args(%q = %t) -> (tensor<2x?x6xf32>) {
      %a = tensor.extract %p[%i, %c0] : tensor<?x2xi64>
      %ai = arith.index_cast %a : i64 to index
      %at = attn.check_index %ai, %c2, "node 'hide' (ScatterND)" : index
      %b = tensor.extract %p[%i, %c1] : tensor<?x2xi64>
      %bi = arith.index_cast %b : i64 to index
      %to = attn.check_index %bi, %rows, "node 'hide' (ScatterND)" : index
      %w = tensor.insert %hidden into %q[%at, %to, %j] : tensor<2x?x6xf32>
      scf.yield %w : tensor<2x?x6xf32>
    }
    scf.yield %r : tensor<2x?x6xf32>
  }
  %z = attn.softmax %y dim 1 : tensor<2x?x6xf32>
  return %z : tensor<2x?x6xf32>
}

// -----

// Not where the plane depends on the row,
// CHECK-LABEL: func.func @staircase
// CHECK: scf.for
// CHECK: scf.for
// CHECK-NOT: linalg.generic
func.func @staircase(%s: tensor<8x6xf32>, %p: tensor<4x6xi64>) -> tensor<8x6xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %c6 = arith.constant 6 : index
  %c8 = arith.constant 8 : index
  %hidden = arith.constant -1.0e+30 : f32
  %y = scf.for %i = %c0 to %c4 step %c1 iter_args(%t = %s) -> (tensor<8x6xf32>) {
    %r = scf.for %j = %c0 to %c6 step %c1 iter_args(%q = %t) -> (tensor<8x6xf32>) {
      %a = tensor.extract %p[%i, %j] : tensor<4x6xi64>
      %ai = arith.index_cast %a : i64 to index
      %at = attn.check_index %ai, %c8, "node 'hide' (ScatterND)" : index
      %w = tensor.insert %hidden into %q[%at, %j] : tensor<8x6xf32>
      scf.yield %w : tensor<8x6xf32>
    }
    scf.yield %r : tensor<8x6xf32>
  }
  %z = attn.softmax %y dim 0 : tensor<8x6xf32>
  return %z : tensor<8x6xf32>
}

// -----

// not where rows are left out,
// CHECK-LABEL: func.func @some_rows
// CHECK: scf.for
// CHECK: scf.for
// CHECK-NOT: linalg.generic
func.func @some_rows(%s: tensor<8x6xf32>, %p: tensor<4xi64>) -> tensor<8x6xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %c5 = arith.constant 5 : index
  %c8 = arith.constant 8 : index
  %hidden = arith.constant -1.0e+30 : f32
  %y = scf.for %i = %c0 to %c4 step %c1 iter_args(%t = %s) -> (tensor<8x6xf32>) {
    %r = scf.for %j = %c0 to %c5 step %c1 iter_args(%q = %t) -> (tensor<8x6xf32>) {
      %a = tensor.extract %p[%i] : tensor<4xi64>
      %ai = arith.index_cast %a : i64 to index
      %at = attn.check_index %ai, %c8, "node 'hide' (ScatterND)" : index
      %w = tensor.insert %hidden into %q[%at, %j] : tensor<8x6xf32>
      scf.yield %w : tensor<8x6xf32>
    }
    scf.yield %r : tensor<8x6xf32>
  }
  %z = attn.softmax %y dim 0 : tensor<8x6xf32>
  return %z : tensor<8x6xf32>
}

// -----

// and not of what are no scores: a loop that writes few rows is less work.
// CHECK-LABEL: func.func @no_scores
// CHECK: scf.for
// CHECK: scf.for
// CHECK-NOT: linalg.generic
func.func @no_scores(%s: tensor<8x6xf32>, %p: tensor<4xi64>) -> tensor<8x6xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %c6 = arith.constant 6 : index
  %c8 = arith.constant 8 : index
  %none = arith.constant 0.0 : f32
  %y = scf.for %i = %c0 to %c4 step %c1 iter_args(%t = %s) -> (tensor<8x6xf32>) {
    %r = scf.for %j = %c0 to %c6 step %c1 iter_args(%q = %t) -> (tensor<8x6xf32>) {
      %a = tensor.extract %p[%i] : tensor<4xi64>
      %ai = arith.index_cast %a : i64 to index
      %at = attn.check_index %ai, %c8, "node 'clear' (ScatterND)" : index
      %w = tensor.insert %none into %q[%at, %j] : tensor<8x6xf32>
      scf.yield %w : tensor<8x6xf32>
    }
    scf.yield %r : tensor<8x6xf32>
  }
  return %y : tensor<8x6xf32>
}
