// RUN: attn-opt %s --split-input-file --attn-choose-gpu-gemms --canonicalize | FileCheck %s

// A row times weights: whole lines of 128 bytes would make 12 blocks, so lanes read sectors of more rows.
// CHECK-LABEL: func.func @sectors
// CHECK: func.func @gpu_gemm_
// CHECK-NOT: gpu.launch
// CHECK: gpu.launch blocks({{.*}}) in (%{{.*}} = %c48, {{.*}}) threads({{.*}}) in (%{{.*}} = %c192,
// There are registers for all that a thread asks for at once.
// CHECK: gpu.terminator
// CHECK-NEXT: } {attn.resident_blocks = 1 : i64}
// CHECK-NOT: gpu.launch
func.func @sectors(%x: tensor<1x768xbf16>, %w: tensor<768x768xbf16>) -> tensor<1x768xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<1x768xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<1x768xf32>) -> tensor<1x768xf32>
  %y = linalg.matmul ins(%x, %w : tensor<1x768xbf16>, tensor<768x768xbf16>) outs(%f : tensor<1x768xf32>) -> tensor<1x768xf32>
  return %y : tensor<1x768xf32>
}

// -----

// The same of weights that are contiguous along the sum: a warp takes 4 columns, not 16, and a block has two of them.
// CHECK-LABEL: func.func @columns
// CHECK: func.func @gpu_gemm_
// CHECK: gpu.launch blocks({{.*}}) in (%{{.*}} = %c96,
#row = affine_map<(i, j, k) -> (i, k)>
#turned = affine_map<(i, j, k) -> (j, k)>
#result = affine_map<(i, j, k) -> (i, j)>
func.func @columns(%x: tensor<1x768xbf16>, %w: tensor<768x768xbf16>) -> tensor<1x768xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<1x768xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<1x768xf32>) -> tensor<1x768xf32>
  %y = linalg.contract indexing_maps = [#row, #turned, #result]
    ins(%x, %w : tensor<1x768xbf16>, tensor<768x768xbf16>) outs(%f : tensor<1x768xf32>) -> tensor<1x768xf32>
  return %y : tensor<1x768xf32>
}

// -----

// Near miss: columns for all processors are read in whole lines.
// CHECK-LABEL: func.func @lines
// CHECK: func.func @gpu_gemm_
// CHECK: gpu.launch blocks({{.*}}) in (%{{.*}} = %c132,
func.func @lines(%x: tensor<1x768xbf16>, %w: tensor<768x8448xbf16>) -> tensor<1x8448xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<1x8448xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<1x8448xf32>) -> tensor<1x8448xf32>
  %y = linalg.matmul ins(%x, %w : tensor<1x768xbf16>, tensor<768x8448xbf16>) outs(%f : tensor<1x8448xf32>) -> tensor<1x8448xf32>
  return %y : tensor<1x8448xf32>
}

// -----

// As many rows as the run has: one has as many threads as above, up to eight have registers for their sums.
// CHECK-LABEL: func.func @any
// CHECK: func.func @gpu_gemm_
// CHECK: scf.if
// CHECK: scf.if
// CHECK: gpu.launch blocks({{.*}}) in (%{{.*}} = %c48, {{.*}}) threads({{.*}}) in (%{{.*}} = %c192,
// CHECK: else
// CHECK: gpu.launch blocks({{.*}}) in (%{{.*}} = %c48, {{.*}}) threads({{.*}}) in (%{{.*}} = %c192,
// CHECK: memref<{{.*}}xf32, #gpu.address_space<workgroup>>
// CHECK: else
// CHECK: nvvm.mma.sync
func.func @any(%x: tensor<?x768xbf16>, %w: tensor<768x768xbf16>) -> tensor<?x768xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %m = tensor.dim %x, %c0 : tensor<?x768xbf16>
  %e = tensor.empty(%m) : tensor<?x768xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x768xf32>) -> tensor<?x768xf32>
  %y = linalg.matmul ins(%x, %w : tensor<?x768xbf16>, tensor<768x768xbf16>) outs(%f : tensor<?x768xf32>) -> tensor<?x768xf32>
  return %y : tensor<?x768xf32>
}
