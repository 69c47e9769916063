// RUN: attn-opt %s --attn-choose-gpu-gemms=precision=bf16 --split-input-file | FileCheck %s

// A weight of e4m3 is copied as it is, and widened where it is read; the scale is part of the epilogue. Factors of f16
// stay so: e4m3 is exact in these.
// CHECK: attn.product_report = [{arithmetic = "f16", kernel = "gpu_gemm_f16_{{.*}}", node = "", storage = "e4m3"}]
// CHECK-LABEL: func.func @product
// CHECK: attn.kernel @[[K:gpu_gemm_f16_b1_mx_k64_n48_[0-9a-f]+]] ins(%{{.*}}, %{{.*}}, %{{.*}} : tensor<?x64xf16>, tensor<48x64xf8E4M3FN>, tensor<1x48xf32>)
// CHECK-NOT: linalg
// CHECK: func.func @[[K]]({{.*}}memref<48x64xf8E4M3FN>{{.*}}) attributes {attn.kernel}
// A single row: 16 numbers at once. Up to eight: eight.
// CHECK: vector.load {{.*}} {alignment = 16 : i64} : memref<?xf8E4M3FN>, vector<16xf8E4M3FN>
// CHECK: nvvm.convert.f8x2.to.f16x2
// CHECK: math.fma
// CHECK: vector.load {{.*}} {alignment = 8 : i64} : memref<?xf8E4M3FN>, vector<8xf8E4M3FN>
// CHECK: math.fma
// CHECK: nvvm.cp.async.shared.global {{.*}}, 16, cache = cg
// CHECK: nvvm.convert.f8x2.to.f16x2
// CHECK: nvvm.mma.sync
func.func @product(%x: tensor<?x64xf16>, %w: tensor<48x64xf8E4M3FN>, %s: tensor<1x48xf32>) -> tensor<?x48xf16> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %m = tensor.dim %x, %c0 : tensor<?x64xf16>
  %e = tensor.empty(%m) : tensor<?x48xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x48xf32>) -> tensor<?x48xf32>
  %p = linalg.contract indexing_maps = [affine_map<(i, j, k) -> (i, k)>, affine_map<(i, j, k) -> (j, k)>, affine_map<(i, j, k) -> (i, j)>]
    ins(%x, %w : tensor<?x64xf16>, tensor<48x64xf8E4M3FN>) outs(%f : tensor<?x48xf32>) -> tensor<?x48xf32>
  %h = tensor.empty(%m) : tensor<?x48xf16>
  %y = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (0, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
    ins(%p, %s : tensor<?x48xf32>, tensor<1x48xf32>) outs(%h : tensor<?x48xf16>) {
  ^bb0(%a: f32, %b: f32, %o: f16):
    %v = arith.mulf %a, %b : f32
    %t = arith.truncf %v : f32 to f16
    linalg.yield %t : f16
  } -> tensor<?x48xf16>
  return %y : tensor<?x48xf16>
}

// -----

// Near miss: rows of 60 are no groups of 16 bytes; each number is widened on its way to the tile.
// CHECK-LABEL: func.func @odd
// CHECK: func.func @gpu_gemm_bf16_b1_m40_k60_n48
// CHECK: memref.load {{.*}} : memref<?xf8E4M3FN>
// CHECK: nvvm.convert.f8x2.to.f16x2
// CHECK: memref.store
// CHECK: nvvm.mma.sync
func.func @odd(%x: tensor<40x60xf32>, %w: tensor<48x60xf8E4M3FN>) -> tensor<40x48xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<40x48xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<40x48xf32>) -> tensor<40x48xf32>
  %y = linalg.contract indexing_maps = [affine_map<(i, j, k) -> (i, k)>, affine_map<(i, j, k) -> (j, k)>, affine_map<(i, j, k) -> (i, j)>]
    ins(%x, %w : tensor<40x60xf32>, tensor<48x60xf8E4M3FN>) outs(%f : tensor<40x48xf32>) -> tensor<40x48xf32>
  return %y : tensor<40x48xf32>
}

// -----

// Near miss: e4m3 on the left has no kernel.
// CHECK-LABEL: func.func @left
// CHECK: linalg.contract
func.func @left(%w: tensor<48x64xf8E4M3FN>, %x: tensor<40x64xf32>) -> tensor<48x40xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<48x40xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<48x40xf32>) -> tensor<48x40xf32>
  %y = linalg.contract indexing_maps = [affine_map<(i, j, k) -> (i, k)>, affine_map<(i, j, k) -> (j, k)>, affine_map<(i, j, k) -> (i, j)>]
    ins(%w, %x : tensor<48x64xf8E4M3FN>, tensor<40x64xf32>) outs(%f : tensor<48x40xf32>) -> tensor<48x40xf32>
  return %y : tensor<48x40xf32>
}
