// RUN: attn-opt %s --pass-pipeline='builtin.module(gpu.module(attn-lower-kernels))' | FileCheck %s

// Shared memory that the launch asks for lies behind a kernel's own: `.extern .shared x[]`, no array of no elements.
// CHECK: llvm.mlir.global external @[[DYNAMIC:.*]]() {addr_space = 3 : i32, alignment = 16 : i64} : !llvm.array<0 x i8>
// Functions that LLVM knows are its own, not libdevice's; shared memory is aligned for vectors.
// CHECK: llvm.mlir.global internal @{{.*}}() {addr_space = 3 : i32, alignment = 16 : i64} : !llvm.array<32 x f32>
// CHECK-LABEL: llvm.func @k
// CHECK-SAME: nvvm.kernel
// CHECK-SAME: nvvm.minctasm = 1
// CHECK: nvvm.read.ptx.sreg.tid.x
// CHECK-NOT: __nv
// CHECK: llvm.intr.sqrt
// CHECK: llvm.intr.fma
// CHECK: nvvm.barrier
// CHECK: llvm.load %{{.*}} {alignment = 16 : i64} : !llvm.ptr<3> -> vector<4xf32>
// Unless told otherwise, as many blocks as ptxas likes.
// CHECK-LABEL: llvm.func @alone
// CHECK-NOT: nvvm.minctasm
// CHECK: llvm.mlir.addressof @[[DYNAMIC]]
gpu.module @kernels {
  gpu.func @k(%x: memref<?xf32>) workgroup(%s: memref<32xf32, #gpu.address_space<workgroup>> {llvm.align = 16 : i64}) kernel attributes {attn.resident_blocks = 1 : i64} {
    %c0 = arith.constant 0 : index
    %t = gpu.thread_id x
    %v = memref.load %x[%t] : memref<?xf32>
    %r = math.sqrt %v : f32
    %f = math.fma %r, %r, %v : f32
    memref.store %f, %s[%t] : memref<32xf32, #gpu.address_space<workgroup>>
    gpu.barrier
    %l = vector.load %s[%c0] {alignment = 16 : i64} : memref<32xf32, #gpu.address_space<workgroup>>, vector<4xf32>
    %e = vector.extract %l[0] : f32 from vector<4xf32>
    memref.store %e, %x[%t] : memref<?xf32>
    gpu.return
  }
  gpu.func @alone(%x: memref<?xf32>) kernel {
    %t = gpu.thread_id x
    %v = memref.load %x[%t] : memref<?xf32>
    memref.store %v, %x[%t] : memref<?xf32>
    gpu.return
  }
  gpu.func @dynamic(%x: memref<1xf32>) kernel {
    %t = gpu.thread_id x
    %zero = arith.constant 0.0 : f32
    %c0 = arith.constant 0 : index
    %c4 = arith.constant 4 : index
    %memory = gpu.dynamic_shared_memory : memref<?xi8, #gpu.address_space<workgroup>>
    %s = memref.view %memory[%c0][%c4] : memref<?xi8, #gpu.address_space<workgroup>> to memref<?xf32, #gpu.address_space<workgroup>>
    memref.store %zero, %s[%t] : memref<?xf32, #gpu.address_space<workgroup>>
    gpu.return
  }
}
