// RUN: attn-opt %s --attn-outline-parallel --split-input-file | FileCheck %s

// CHECK-LABEL: func.func private @main_task(%arg0: index, %arg1: index, %arg2: memref<?xf32>) attributes {attn.task}
// CHECK: arith.constant 1.0
// CHECK: scf.for %{{.*}} = %arg0 to %arg1
// CHECK: memref.store
// CHECK-LABEL: func.func @main
// CHECK: attn.parallel_for @main_task %{{.*}} captures(%arg1 : memref<?xf32>) min_iterations 7
func.func @main(%n: index, %y: memref<?xf32>) attributes {attn.entry} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %v = arith.constant 1.0 : f32
  scf.parallel (%i) = (%c0) to (%n) step (%c1) {
    memref.store %v, %y[%i] : memref<?xf32>
    scf.reduce
  } {attn.min_iterations = 7 : i64}
  return
}

// -----

// Two dimensions, or another start: serial.
// CHECK-LABEL: func.func @serial
// CHECK-NOT: attn.parallel_for
// CHECK-COUNT-2: scf.parallel
func.func @serial(%n: index, %y: memref<?xf32>) attributes {attn.entry} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %v = arith.constant 1.0 : f32
  scf.parallel (%i, %j) = (%c0, %c0) to (%n, %n) step (%c1, %c1) {
    memref.store %v, %y[%i] : memref<?xf32>
    scf.reduce
  }
  scf.parallel (%i) = (%c1) to (%n) step (%c1) {
    memref.store %v, %y[%i] : memref<?xf32>
    scf.reduce
  }
  return
}

// -----

// Loops that differ in what they capture alone are one task; another constant makes another one.
// CHECK: func.func private @same_task(
// CHECK: func.func private @same_task_1(
// CHECK-NOT: func.func private
// CHECK: attn.parallel_for @same_task %{{.*}} captures(%arg1 : memref<?xf32>)
// CHECK-NEXT: attn.parallel_for @same_task %{{.*}} captures(%arg2 : memref<?xf32>)
// CHECK-NEXT: attn.parallel_for @same_task_1 %{{.*}} captures(%arg2 : memref<?xf32>)
func.func @same(%n: index, %x: memref<?xf32>, %y: memref<?xf32>) attributes {attn.entry} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %v = arith.constant 1.0 : f32
  %w = arith.constant 2.0 : f32
  scf.parallel (%i) = (%c0) to (%n) step (%c1) {
    memref.store %v, %x[%i] : memref<?xf32>
    scf.reduce
  }
  scf.parallel (%i) = (%c0) to (%n) step (%c1) {
    memref.store %v, %y[%i] : memref<?xf32>
    scf.reduce
  }
  scf.parallel (%i) = (%c0) to (%n) step (%c1) {
    memref.store %w, %y[%i] : memref<?xf32>
    scf.reduce
  }
  return
}
