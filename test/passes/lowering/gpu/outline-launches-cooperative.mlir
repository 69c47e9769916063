// RUN: attn-opt %s --attn-outline-launches | FileCheck %s
// RUN: attn-opt %s --attn-outline-launches --lower-affine --convert-scf-to-cf --attn-lower-runtime | FileCheck %s --check-prefix=HOST
// RUN: attn-opt %s --pass-pipeline='builtin.module(attn-outline-launches,gpu.module(attn-lower-kernels))' | FileCheck %s --check-prefix=KERNEL

// Blocks that wait for each other: the runtime is told, and so is ptxas, that one a multiprocessor is all; their number
// comes from the device. Not so the second launch.
// CHECK: attn.device_limits : index, index
// CHECK: gpu.launch_func @kernels::@kernel_0 {{.*}} {attn.cooperative}
// CHECK: gpu.launch_func @kernels::@kernel_1
// CHECK-NOT: attn.cooperative
// CHECK: gpu.func @kernel_0{{.*}}attn.cooperative
// CHECK: gpu.func @kernel_1
// CHECK-NOT: attn.cooperative
// KERNEL: llvm.func @kernel_0{{.*}}nvvm.minctasm = 1
// KERNEL: llvm.func @kernel_1
// KERNEL-NOT: nvvm.minctasm
// HOST: %[[PROCESSORS:.*]] = llvm.load %{{.*}} : !llvm.ptr -> i32
// HOST: arith.index_cast %[[PROCESSORS]] : i32 to index
// HOST: %[[BYTES:.*]] = llvm.load %{{.*}} : !llvm.ptr -> i32
// HOST: arith.index_cast %[[BYTES]] : i32 to index
// HOST: %[[SHARED:.*]] = llvm.zext %{{.*}} : i32 to i64
// HOST: llvm.mlir.constant(1073741824 : i64)
// HOST: llvm.or %[[SHARED]]
// HOST-NOT: llvm.or
func.func @main(%x: memref<4xf32>) attributes {attn.entry = "main"} {
  %c1 = arith.constant 1 : index
  %c32 = arith.constant 32 : index
  %zero = arith.constant 0.0 : f32
  %one = arith.constant 1.0 : f32
  %processors, %bytes = attn.device_limits : index, index
  %shared = arith.index_cast %bytes : index to i32
  gpu.launch blocks(%a0, %b0, %d0) in (%ga0 = %processors, %gb0 = %c1, %gd0 = %c1) threads(%i0, %j0, %k0) in (%ti0 = %c32, %tj0 = %c1, %tk0 = %c1)
      dynamic_shared_memory_size %shared {
    memref.store %zero, %x[%a0] : memref<4xf32>
    gpu.terminator
  } {attn.cooperative}
  gpu.launch blocks(%a1, %b1, %d1) in (%ga1 = %c1, %gb1 = %c1, %gd1 = %c1) threads(%i1, %j1, %k1) in (%ti1 = %c32, %tj1 = %c1, %tk1 = %c1) {
    memref.store %one, %x[%a1] : memref<4xf32>
    gpu.terminator
  }
  return
}
