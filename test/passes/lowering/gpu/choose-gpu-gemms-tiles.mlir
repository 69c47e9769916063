// RUN: attn-opt %s --split-input-file --attn-choose-gpu-gemms="precision=bf16 sm90a=only" | FileCheck %s

// Both sides are matrices of 16 bits: warpgroups copy their tiles as they lie, in one launch and without scratch. The
// right one lies across the sum, so that 64 of its columns are a tile; rows of two dimensions are one.
// CHECK-LABEL: func.func @both
// CHECK: func.func @gpu_gemm_bf16_b1_m512_k64_n512_{{[0-9a-f]+}}(%[[X:.*]]: memref<2x256x64xbf16>, %[[W:.*]]: memref<64x512xbf16>, %{{.*}}: memref<2x256x512xf32>)
// CHECK: %[[ROWS:.*]] = memref.collapse_shape %[[X]] {{\[}}[0, 1], [2]] : memref<2x256x64xbf16> into memref<512x64xbf16>
// CHECK: %[[LEFT:.*]] = attn.map_tiles %[[ROWS]] tile [128, 64] : memref<512x64xbf16>
// CHECK: %[[RIGHT:.*]] = attn.map_tiles %[[W]] tile [64, 64] : memref<64x512xbf16>
// CHECK: gpu.launch
// CHECK-DAG: attn.tiles_address %[[LEFT]]
// CHECK-DAG: attn.tiles_address %[[RIGHT]]
// CHECK-NOT: gpu.launch
func.func @both(%x: tensor<2x256x64xbf16>, %w: tensor<64x512xbf16>) -> tensor<2x256x512xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<2x256x512xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<2x256x512xf32>) -> tensor<2x256x512xf32>
  %p = linalg.contract indexing_maps = [affine_map<(b, i, j, k) -> (b, i, k)>, affine_map<(b, i, j, k) -> (k, j)>, affine_map<(b, i, j, k) -> (b, i, j)>]
    ins(%x, %w : tensor<2x256x64xbf16>, tensor<64x512xbf16>) outs(%f : tensor<2x256x512xf32>) -> tensor<2x256x512xf32>
  return %p : tensor<2x256x512xf32>
}

// -----

// Near miss: rows of f32 are rounded by a launch in front.
// CHECK-LABEL: func.func @rows
// CHECK: func.func @gpu_gemm_bf16_{{.*}}(%{{.*}}: memref<512x64xf32>, %[[W:.*]]: memref<512x64xbf16>, %{{.*}}: memref<512x512xf32>, %{{.*}}: memref<?xf32>)
// CHECK: gpu.launch
// CHECK: attn.map_tiles %[[W]] tile [128, 64] : memref<512x64xbf16>
// CHECK: gpu.launch
// CHECK-NOT: gpu.launch
func.func @rows(%x: tensor<512x64xf32>, %w: tensor<512x64xbf16>) -> tensor<512x512xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<512x512xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<512x512xf32>) -> tensor<512x512xf32>
  %p = linalg.contract indexing_maps = [affine_map<(i, j, k) -> (i, k)>, affine_map<(i, j, k) -> (j, k)>, affine_map<(i, j, k) -> (i, j)>]
    ins(%x, %w : tensor<512x64xf32>, tensor<512x64xbf16>) outs(%f : tensor<512x512xf32>) -> tensor<512x512xf32>
  return %p : tensor<512x512xf32>
}

// -----

// Near miss: rows of 68 elements do not begin at multiples of 16 bytes, and a batch has matrices of its own.
// CHECK-LABEL: func.func @pieces
// CHECK-NOT: attn.map_tiles
func.func @pieces(%x: tensor<512x68xbf16>, %w: tensor<512x68xbf16>, %y: tensor<2x512x64xbf16>) -> (tensor<512x512xf32>, tensor<2x512x512xf32>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<512x512xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<512x512xf32>) -> tensor<512x512xf32>
  %p = linalg.contract indexing_maps = [affine_map<(i, j, k) -> (i, k)>, affine_map<(i, j, k) -> (j, k)>, affine_map<(i, j, k) -> (i, j)>]
    ins(%x, %w : tensor<512x68xbf16>, tensor<512x68xbf16>) outs(%f : tensor<512x512xf32>) -> tensor<512x512xf32>
  %d = tensor.empty() : tensor<2x512x512xf32>
  %g = linalg.fill ins(%zero : f32) outs(%d : tensor<2x512x512xf32>) -> tensor<2x512x512xf32>
  %q = linalg.contract indexing_maps = [affine_map<(b, i, j, k) -> (b, i, k)>, affine_map<(b, i, j, k) -> (b, j, k)>, affine_map<(b, i, j, k) -> (b, i, j)>]
    ins(%y, %y : tensor<2x512x64xbf16>, tensor<2x512x64xbf16>) outs(%g : tensor<2x512x512xf32>) -> tensor<2x512x512xf32>
  return %p, %q : tensor<512x512xf32>, tensor<2x512x512xf32>
}
