// RUN: attn-opt %s --attn-outline-parallel --split-input-file | FileCheck %s
// RUN: attn-opt %s --attn-outline-parallel --attn-lower-runtime --split-input-file | FileCheck %s --check-prefix=LLVM

// What has no operands is made again in the task, as a constant is.

// CHECK-LABEL: func.func private @main_task
// CHECK-SAME:  (%{{[^:]*}}: index, %{{[^:]*}}: index, %{{[^:]*}}: memref<?xindex>)
// CHECK:       vector.step : vector<16xindex>
func.func @main(%m: memref<?xindex>, %n: index) attributes {attn.kernel} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %step = vector.step : vector<16xindex>
  scf.parallel (%i) = (%c0) to (%n) step (%c1) {
    vector.store %step, %m[%i] : memref<?xindex>, vector<16xindex>
  }
  return
}

// -----

// A vector that a task takes is stored with its own alignment: the memory for
// the task's arguments has no smaller one.

// CHECK-LABEL: func.func private @main_task
// CHECK-SAME:  vector<16xindex>
// LLVM-LABEL:  func.func @main(
// LLVM:        llvm.alloca %{{.*}} x !llvm.struct<(ptr, vector<16xi64>, ptr, i64)> : (i64) -> !llvm.ptr
func.func @main(%m: memref<?xindex>, %n: index) attributes {attn.kernel} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %many = vector.broadcast %n : index to vector<16xindex>
  scf.parallel (%i) = (%c0) to (%n) step (%c1) {
    vector.store %many, %m[%i] : memref<?xindex>, vector<16xindex>
  }
  return
}
