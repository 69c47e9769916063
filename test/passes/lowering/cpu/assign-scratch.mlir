// RUN: attn-opt %s --attn-assign-scratch | FileCheck %s

// CHECK: func.func @task(%{{.*}}) attributes {attn.kernel, attn.scratch = array<i64: 0, 16384>}
// CHECK: memref.alloca() {alignment = 64 : i64, attn.task_scratch = array<i64: 0, 16384>} : memref<4096xf32>
func.func @task(%x: memref<?xf32>) attributes {attn.kernel} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %n = memref.dim %x, %c0 : memref<?xf32>
  scf.parallel (%i) = (%c0) to (%n) step (%c1) {
    %rows = memref.alloca() {alignment = 64 : i64} : memref<4096xf32>
    %v = memref.load %x[%i] : memref<?xf32>
    memref.store %v, %rows[%i] : memref<4096xf32>
    scf.reduce
  }
  return
}

// Places of one function do not overlap; what is small stays on the stack. Two loops, which never run at a time, share
// theirs. Allocations of different functions count apart.
// CHECK: func.func @several(%{{.*}}) attributes {attn.kernel, attn.scratch = array<i64: 8256, 20096>}
// CHECK-DAG: memref.alloca() {attn.scratch = 0 : i64} : memref<4100xf16>
// CHECK-DAG: memref.alloca() {attn.task_scratch = array<i64: 0, 20096>} : memref<1025xf32>
// CHECK-DAG: memref.alloca() {attn.task_scratch = array<i64: 4160, 20096>} : memref<1990xindex>
// CHECK-DAG: memref.alloca() : memref<255xf32>
// CHECK-DAG: memref.alloca() {attn.task_scratch = array<i64: 0, 9024>} : memref<9000xi1>
func.func @several(%x: memref<?xf32>) attributes {attn.kernel} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %n = memref.dim %x, %c0 : memref<?xf32>
  %shared = memref.alloca() : memref<4100xf16>
  scf.parallel (%i) = (%c0) to (%n) step (%c1) {
    %a = memref.alloca() : memref<1025xf32>
    scf.for %j = %c0 to %n step %c1 {
      %b = memref.alloca() : memref<1990xindex>
      memref.store %j, %b[%i] : memref<1990xindex>
    }
    %c = memref.alloca() : memref<255xf32>
    %v = memref.load %x[%i] : memref<?xf32>
    memref.store %v, %a[%i] : memref<1025xf32>
    memref.store %v, %c[%i] : memref<255xf32>
    scf.reduce
  }
  scf.parallel (%i) = (%c0) to (%n) step (%c1) {
    %d = memref.alloca() : memref<9000xi1>
    %s = memref.load %shared[%i] : memref<4100xf16>
    %t = arith.constant true
    memref.store %t, %d[%i] : memref<9000xi1>
    scf.reduce
  }
  return
}

// Of a call, 4 KiB are no more than a stack has; of a task, 8 KiB.
// CHECK: func.func @fits(%{{.*}}) attributes {attn.kernel}
// CHECK: memref.alloca() : memref<1024xf32>
// CHECK: memref.alloca() : memref<2048xf32>
func.func @fits(%x: memref<?xf32>) attributes {attn.kernel} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %n = memref.dim %x, %c0 : memref<?xf32>
  %shared = memref.alloca() : memref<1024xf32>
  scf.parallel (%i) = (%c0) to (%n) step (%c1) {
    %rows = memref.alloca() : memref<2048xf32>
    %v = memref.load %shared[%i] : memref<1024xf32>
    memref.store %v, %rows[%i] : memref<2048xf32>
    scf.reduce
  }
  return
}

// CHECK: func.func @shared(%{{.*}}) attributes {attn.kernel, attn.scratch = array<i64: 4160, 0>}
// CHECK: memref.alloca() {attn.scratch = 0 : i64} : memref<1025xf32>
func.func @shared(%x: memref<?xf32>) attributes {attn.kernel} {
  %c0 = arith.constant 0 : index
  %rows = memref.alloca() : memref<1025xf32>
  %v = memref.load %x[%c0] : memref<?xf32>
  memref.store %v, %rows[%c0] : memref<1025xf32>
  return
}

// Whoever calls this one has scratch of its own.
// CHECK: func.func @called(%{{.*}}) attributes {attn.kernel}
// CHECK: memref.alloca() : memref<8192xf32>
func.func @called(%x: memref<?xf32>) attributes {attn.kernel} {
  %c0 = arith.constant 0 : index
  %rows = memref.alloca() : memref<8192xf32>
  %v = memref.load %x[%c0] : memref<?xf32>
  memref.store %v, %rows[%c0] : memref<8192xf32>
  return
}
func.func @calls(%x: memref<?xf32>) attributes {attn.kernel} {
  attn.kernel @called ins() outs(%x : memref<?xf32>)
  return
}

// No kernel: nobody provides scratch.
// CHECK: func.func @entry(%{{.*}}) attributes {attn.entry}
// CHECK: memref.alloca() : memref<8192xf32>
func.func @entry(%x: memref<?xf32>) attributes {attn.entry} {
  %c0 = arith.constant 0 : index
  %rows = memref.alloca() : memref<8192xf32>
  %v = memref.load %x[%c0] : memref<?xf32>
  memref.store %v, %rows[%c0] : memref<8192xf32>
  return
}
