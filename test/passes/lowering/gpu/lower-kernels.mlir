// RUN: attn-opt %s --pass-pipeline='builtin.module(gpu.module(attn-lower-kernels))' | FileCheck %s
// RUN: attn-opt %s --pass-pipeline='builtin.module(gpu.module(attn-lower-kernels))' | FileCheck %s --check-prefix=ARGUMENTS

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
// Of a buffer come its address and what its type leaves open: sizes, and strides where these do not follow from them.
// ARGUMENTS: llvm.func @k(%{{[a-z0-9]*}}: !llvm.ptr) attributes
// ARGUMENTS: llvm.func @alone(%{{[a-z0-9]*}}: !llvm.ptr, %{{[a-z0-9]*}}: i64)
// ARGUMENTS: llvm.func @parts(%[[D:[a-z0-9]*]]: !llvm.ptr, %[[D1:[a-z0-9]*]]: i64, %[[S:[a-z0-9]*]]: !llvm.ptr, %[[S0:[a-z0-9]*]]: i64, %[[STRIDE:[a-z0-9]*]]: i64, %[[N:[a-z0-9]*]]: i32)
// ARGUMENTS: llvm.mul %{{.*}}, %[[D1]]
// ARGUMENTS: llvm.insertvalue %[[STRIDE]], %{{.*}}[4, 0]

gpu.module @kernels {
  gpu.func @k(%x: memref<40xf32>) workgroup(%s: memref<32xf32, #gpu.address_space<workgroup>> {llvm.align = 16 : i64}) kernel attributes {attn.resident_blocks = 1 : i64} {
    %c0 = arith.constant 0 : index
    %t = gpu.thread_id x
    %v = memref.load %x[%t] : memref<40xf32>
    %r = math.sqrt %v : f32
    %f = math.fma %r, %r, %v : f32
    memref.store %f, %s[%t] : memref<32xf32, #gpu.address_space<workgroup>>
    gpu.barrier
    %l = vector.load %s[%c0] {alignment = 16 : i64} : memref<32xf32, #gpu.address_space<workgroup>>, vector<4xf32>
    %e = vector.extract %l[0] : f32 from vector<4xf32>
    memref.store %e, %x[%t] : memref<40xf32>
    gpu.return
  }
  gpu.func @alone(%x: memref<?xf32>) kernel {
    %t = gpu.thread_id x
    %v = memref.load %x[%t] : memref<?xf32>
    memref.store %v, %x[%t] : memref<?xf32>
    gpu.return
  }  gpu.func @parts(%d: memref<4x?xf32>, %s: memref<?x3xf32, strided<[?, 1], offset: ?>>, %n: i32) kernel {
    %t = gpu.thread_id x
    %v = memref.load %d[%t, %t] : memref<4x?xf32>
    memref.store %v, %s[%t, %t] : memref<?x3xf32, strided<[?, 1], offset: ?>>
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
