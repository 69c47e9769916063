// RUN: attn-opt %s --attn-outline-parallel | FileCheck %s

// A kernel's scratch moves out of the loop, in the task and where a loop stays
// serial; scratch whose size only the run knows stays.

// CHECK-LABEL: func.func private @kernel_task
// CHECK:       memref.alloca() {alignment = 64 : i64} : memref<8x48xf32>
// CHECK:       scf.for
// CHECK-NOT:   memref.alloca()
// CHECK:       memref.alloca(%{{.*}}) : memref<?xf32>
// CHECK-LABEL: func.func private @kernel(
// CHECK-NOT:   memref.alloca
// CHECK:       attn.parallel_for @kernel_task
func.func private @kernel(%m: memref<?xf32>, %n: index) attributes {attn.kernel} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.parallel (%i) = (%c0) to (%n) step (%c1) {
    %s = memref.alloca() {alignment = 64 : i64} : memref<8x48xf32>
    %d = memref.alloca(%n) : memref<?xf32>
    %x = memref.load %m[%i] : memref<?xf32>
    memref.store %x, %s[%c0, %i] : memref<8x48xf32>
    memref.store %x, %d[%i] : memref<?xf32>
  }
  return
}

// CHECK-LABEL: func.func private @serial
// CHECK:       memref.alloca() : memref<8xf32>
// CHECK:       scf.for
// CHECK-NOT:   memref.alloca
// CHECK:       return
func.func private @serial(%m: memref<?xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %n step %c1 {
    %s = memref.alloca() : memref<8xf32>
    %x = memref.load %m[%i] : memref<?xf32>
    memref.store %x, %s[%c0] : memref<8xf32>
  }
  return
}

// A loop of one task has become none: its scratch lies behind the call's own.
// CHECK-LABEL: func.func private @one_task
// CHECK-SAME:  attn.scratch = array<i64: 6144, 4096>
// CHECK:       memref.alloca() {attn.scratch = 2048 : i64} : memref<1024xf32>
// CHECK:       memref.alloca() {attn.scratch = 0 : i64} : memref<512xf32>
func.func private @one_task(%m: memref<?xf32>) attributes {attn.kernel, attn.scratch = array<i64: 2048, 4096>} {
  %c0 = arith.constant 0 : index
  %s = memref.alloca() {attn.task_scratch = array<i64: 0, 4096>} : memref<1024xf32>
  %t = memref.alloca() {attn.scratch = 0 : i64} : memref<512xf32>
  %x = memref.load %m[%c0] : memref<?xf32>
  memref.store %x, %s[%c0] : memref<1024xf32>
  memref.store %x, %t[%c0] : memref<512xf32>
  return
}
