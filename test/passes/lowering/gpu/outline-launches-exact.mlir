// RUN: attn-opt %s --attn-outline-launches | FileCheck %s
// RUN: attn-opt %s --attn-outline-launches --lower-affine --convert-scf-to-cf --attn-lower-runtime | FileCheck %s --check-prefix=HOST
// RUN: attn-opt %s --pass-pipeline='builtin.module(attn-outline-launches,gpu.module(attn-lower-kernels))' | FileCheck %s --check-prefix=KERNEL

// A launch for one architecture alone: the host asks which code is loaded, and passes the size of shared memory on;
// the kernel keeps the mark, and says that one block a multiprocessor is enough, without which setmaxnreg does nothing.
// CHECK: attn.exact_arch : index
// CHECK: gpu.launch_func @kernels::@kernel_0 {{.*}} dynamic_shared_memory_size %{{.*}} args
// CHECK: gpu.launch_func @kernels::@kernel_1
// CHECK-NOT: dynamic_shared_memory_size
// CHECK: gpu.func @kernel_0{{.*}}attn.only_exact = 90
// CHECK: gpu.func @kernel_1
// CHECK-NOT: attn.only_exact
// KERNEL: llvm.func @kernel_0{{.*}}attn.only_exact = 90{{.*}}nvvm.minctasm = 1
// KERNEL: llvm.func @kernel_1
// KERNEL-NOT: nvvm.minctasm
// HOST: %[[FIELD:.*]] = llvm.load %{{.*}} : !llvm.ptr -> i32
// HOST: arith.index_cast %[[FIELD]] : i32 to index
// HOST: llvm.zext %{{.*}} : i32 to i64
func.func @main(%x: memref<4xf32>) attributes {attn.entry = "main"} {
  %c1 = arith.constant 1 : index
  %c32 = arith.constant 32 : index
  %c90 = arith.constant 90 : index
  %zero = arith.constant 0.0 : f32
  %one = arith.constant 1.0 : f32
  %bytes = arith.constant 50000 : i32
  %arch = attn.exact_arch : index
  %is = arith.cmpi eq, %arch, %c90 : index
  scf.if %is {
    gpu.launch blocks(%a0, %b0, %d0) in (%ga0 = %c1, %gb0 = %c1, %gd0 = %c1) threads(%i0, %j0, %k0) in (%ti0 = %c32, %tj0 = %c1, %tk0 = %c1)
        dynamic_shared_memory_size %bytes {
      memref.store %zero, %x[%a0] : memref<4xf32>
      gpu.terminator
    } {attn.only_exact = 90}
  } else {
    gpu.launch blocks(%a1, %b1, %d1) in (%ga1 = %c1, %gb1 = %c1, %gd1 = %c1) threads(%i1, %j1, %k1) in (%ti1 = %c32, %tj1 = %c1, %tk1 = %c1) {
      memref.store %one, %x[%a1] : memref<4xf32>
      gpu.terminator
    }
  }
  return
}
