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
