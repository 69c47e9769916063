// RUN: attn-opt %s --attn-outline-launches | FileCheck %s
// RUN: attn-opt %s --attn-outline-launches --lower-affine --convert-scf-to-cf --attn-lower-runtime | FileCheck %s --check-prefix=HOST
// RUN: attn-opt %s --pass-pipeline='builtin.module(attn-outline-launches,gpu.module(attn-lower-kernels))' | FileCheck %s --check-prefix=KERNEL

// A map of tiles is made on the host, by the runtime, and goes to the kernel as 128 bytes that begin at a multiple of 64
// and stay where they are.
// CHECK: %[[MAP:.*]] = attn.map_tiles %{{.*}} tile [8, 64] : memref<4x16xbf16>
// CHECK: gpu.launch_func @kernels::@kernel_0 {{.*}} args(%{{.*}} : memref<4x16xbf16>, %[[MAP]] : vector<16xi64>)
// CHECK: gpu.func @kernel_0(%{{.*}}: memref<4x16xbf16>, %[[TILES:.*]]: vector<16xi64>)
// CHECK: attn.tiles_address %[[TILES]]

// HOST: llvm.call %{{.*}}(%{{.*}}, %[[MAP:[0-9]*]], %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}) : !llvm.ptr, (!llvm.ptr, !llvm.ptr, !llvm.ptr, i32, !llvm.ptr, !llvm.ptr, !llvm.ptr) -> i32
// HOST: %[[WORDS:.*]] = llvm.load %[[MAP]] {alignment = 8 : i64} : !llvm.ptr -> vector<16xi64>
// HOST: %[[AT:.*]] = llvm.mlir.constant(64 : i64)
// HOST: %[[PLACE:.*]] = llvm.getelementptr %{{.*}}[%[[AT]]]
// HOST: llvm.store %[[WORDS]], %[[PLACE]] {alignment = 8 : i64} : vector<16xi64>, !llvm.ptr

// KERNEL: llvm.func @kernel_0(%{{.*}}: !llvm.ptr, %[[TILES:.*]]: !llvm.ptr {llvm.align = 64 : i64, llvm.byval = !llvm.array<16 x i64>, nvvm.grid_constant})
// KERNEL: llvm.ptrtoint %[[TILES]] : !llvm.ptr to i64
func.func @main(%x: memref<4x16xbf16>) attributes {attn.entry = "main"} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : bf16
  %map = attn.map_tiles %x tile [8, 64] : memref<4x16xbf16>
  gpu.launch blocks(%a, %b, %d) in (%ga = %c1, %gb = %c1, %gd = %c1) threads(%i, %j, %k) in (%ti = %c1, %tj = %c1, %tk = %c1) {
    memref.store %zero, %x[%c0, %c0] : memref<4x16xbf16>
    %place = attn.tiles_address %map
    llvm.inline_asm has_side_effects "prefetch.tensormap [$0];", "l" %place : (i64) -> ()
    gpu.terminator
  }
  return
}
