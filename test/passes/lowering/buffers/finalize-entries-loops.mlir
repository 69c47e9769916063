// RUN: attn-opt %s --pass-pipeline='builtin.module(attn-finalize-entries)' --split-input-file | FileCheck %s --check-prefix=TIE
// RUN: attn-opt %s --pass-pipeline='builtin.module(attn-finalize-entries,canonicalize,func.func(attn-prepare-buffers),one-shot-bufferize{bufferize-function-boundaries=1 function-boundary-type-conversion=identity-layout-map},cse,canonicalize,func.func(attn-finish-buffers,attn-plan-memory),canonicalize,cse)' --split-input-file | FileCheck %s --check-prefix=PLAN

// A new value is written over the argument; what is inserted into it stays.
// TIE-LABEL: func.func @carried
// TIE: scf.for
// TIE: %[[E:.*]] = linalg.exp
// TIE: %[[I:.*]] = tensor.insert_slice
// TIE: %[[M:.*]] = bufferization.materialize_in_destination %[[E]] in %{{.*}} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
// TIE: scf.yield %[[M]], %[[I]]

// The state needs a second buffer for a moment, all in one arena before the loop; nothing is asked for in it.
// PLAN-LABEL: func.func @carried
// PLAN: attn.workspace
// PLAN: scf.for
// PLAN-NOT: attn.workspace
// PLAN-NOT: memref.alloc
// PLAN: return
func.func @carried(%x: tensor<4xf32>, %rows: tensor<?x4xf32>) -> (tensor<4xf32>, tensor<?x4xf32>)
    attributes {attn.entry} {
  %c0 = arith.constant 0 : index
  %n = tensor.dim %rows, %c0 : tensor<?x4xf32>
  %c1 = arith.constant 1 : index
  %r:2 = scf.for %i = %c0 to %n step %c1 iter_args(%h = %x, %all = %rows) -> (tensor<4xf32>, tensor<?x4xf32>) {
    %e = tensor.empty() : tensor<4xf32>
    %y = linalg.exp ins(%h : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
    %more = tensor.insert_slice %y into %all[%i, 0] [1, 4] [1, 1] : tensor<4xf32> into tensor<?x4xf32>
    scf.yield %y, %more : tensor<4xf32>, tensor<?x4xf32>
  }
  return %r#0, %r#1 : tensor<4xf32>, tensor<?x4xf32>
}

// -----

// Growth is a test and, where it fails, memory of its own that is not reused.
// TIE-LABEL: func.func @grown
// TIE: scf.for
// TIE-NOT: materialize_in_destination
// TIE: scf.yield
// PLAN-LABEL: func.func @grown
// PLAN: scf.for
// PLAN: %[[FITS:.*]] = arith.cmpi sle
// PLAN: scf.if %[[FITS]] -> (memref<?x4xf32>)
// PLAN: attn.workspace %{{[^ ]*}} : memref<?xi8>
// PLAN: linalg.generic
// PLAN: scf.yield
func.func @grown(%m: tensor<?xf32>, %x: tensor<4xf32>, %rows: tensor<?x4xf32>) -> tensor<?x4xf32> attributes {attn.entry} {
  %c0 = arith.constant 0 : index
  %n = tensor.dim %m, %c0 : tensor<?xf32>
  %c1 = arith.constant 1 : index
  %r = scf.for %i = %c0 to %n step %c1 iter_args(%all = %rows) -> tensor<?x4xf32> {
    %k = arith.addi %i, %c1 : index
    %room = attn.grow %all to %k dim 0 : tensor<?x4xf32>
    %more = tensor.insert_slice %x into %room[%i, 0] [1, 4] [1, 1] : tensor<4xf32> into tensor<?x4xf32>
    scf.yield %more : tensor<?x4xf32>
  }
  return %r : tensor<?x4xf32>
}

// -----

// TIE-LABEL: func.func @sized_inside
// A buffer whose size an iteration computes takes memory that the next one uses again.
// PLAN-LABEL: func.func @sized_inside
// PLAN: scf.for
// PLAN: attn.workspace %{{.*}} {attn.reused} : memref<?xi8>
func.func @sized_inside(%m: tensor<?xf32>, %y: tensor<f32>) -> tensor<f32> attributes {attn.entry} {
  %c0 = arith.constant 0 : index
  %n = tensor.dim %m, %c0 : tensor<?xf32>
  %c1 = arith.constant 1 : index
  %one = arith.constant 1.0 : f32
  %r = scf.for %i = %c0 to %n step %c1 iter_args(%s = %y) -> tensor<f32> {
    %e = tensor.empty(%i) : tensor<?xf32>
    %f = linalg.fill ins(%one : f32) outs(%e : tensor<?xf32>) -> tensor<?xf32>
    %g = linalg.exp ins(%f : tensor<?xf32>) outs(%f : tensor<?xf32>) -> tensor<?xf32>
    %t = linalg.reduce { arith.addf } ins(%g : tensor<?xf32>) outs(%s : tensor<f32>) dimensions = [0]
    scf.yield %t : tensor<f32>
  }
  return %r : tensor<f32>
}

// -----

// A test that forwards in another order, and not all: the arguments come first.
// PLAN-LABEL: func.func @while
// PLAN: scf.while
// PLAN: scf.condition
func.func @while(%l: tensor<f32>, %x: tensor<4xf32>) -> tensor<4xf32> attributes {attn.entry} {
  %c0 = arith.constant 0 : index
  %limit = tensor.extract %l[] : tensor<f32>
  %t = arith.constant true
  %r:2 = scf.while (%go = %t, %h = %x) : (i1, tensor<4xf32>) -> (tensor<4xf32>, i1) {
    scf.condition(%go) %h, %go : tensor<4xf32>, i1
  } do {
  ^bb0(%h: tensor<4xf32>, %go: i1):
    %e = tensor.empty() : tensor<4xf32>
    %y = linalg.exp ins(%h : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
    %v = tensor.extract %y[%c0] : tensor<4xf32>
    %next = arith.cmpf olt, %v, %limit : f32
    scf.yield %next, %y : i1, tensor<4xf32>
  }
  return %r#0 : tensor<4xf32>
}
