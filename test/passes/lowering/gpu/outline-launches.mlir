// RUN: attn-opt %s --attn-outline-launches | FileCheck %s

// Equal launches are one kernel; constants and tables move in, buffers and sizes are arguments. A
// kernel is named after what it computes.
// CHECK: module attributes {attn.gpu_kernels = ["kernel_0", "sum_1"], gpu.container_module}
// CHECK: gpu.launch_func @kernels::@kernel_0 {{.*}} args(%{{.*}} : memref<?xf32>)
// CHECK: gpu.launch_func @kernels::@kernel_0
// CHECK: gpu.launch_func @kernels::@sum_1
// CHECK-NOT: gpu.launch_func
// CHECK: gpu.module @kernels
// CHECK: gpu.func @kernel_0
// CHECK: memref.get_global @table
// CHECK: gpu.func @sum_1{{.*}} workgroup(%{{.*}} : memref<32xf32, #gpu.address_space<workgroup>> {llvm.align = 16 : i64})
// CHECK: memref.global "private" constant @table
memref.global "private" constant @table : memref<2xf32> = dense<[1.0, 2.0]>
func.func @main(%x: memref<?xf32>, %y: memref<?xf32>) attributes {attn.entry = "main"} {
  %c1 = arith.constant 1 : index
  %c32 = arith.constant 32 : index
  %t = memref.get_global @table : memref<2xf32>
  gpu.launch blocks(%a0, %b0, %d0) in (%ga0 = %c1, %gb0 = %c1, %gd0 = %c1) threads(%i0, %j0, %k0) in (%ti0 = %c32, %tj0 = %c1, %tk0 = %c1) {
    %v = memref.load %t[%c1] : memref<2xf32>
    memref.store %v, %x[%i0] : memref<?xf32>
    gpu.terminator
  }
  gpu.launch blocks(%a1, %b1, %d1) in (%ga1 = %c1, %gb1 = %c1, %gd1 = %c1) threads(%i1, %j1, %k1) in (%ti1 = %c32, %tj1 = %c1, %tk1 = %c1) {
    %v = memref.load %t[%c1] : memref<2xf32>
    memref.store %v, %y[%i1] : memref<?xf32>
    gpu.terminator
  }
  gpu.launch blocks(%a2, %b2, %d2) in (%ga2 = %c1, %gb2 = %c1, %gd2 = %c1) threads(%i2, %j2, %k2) in (%ti2 = %c32, %tj2 = %c1, %tk2 = %c1)
      workgroup(%s: memref<32xf32, #gpu.address_space<workgroup>>) {
    %v = memref.load %x[%i2] : memref<?xf32>
    memref.store %v, %s[%i2] : memref<32xf32, #gpu.address_space<workgroup>>
    gpu.terminator
  } {attn.kernel_name = "sum"}
  return
}
