// RUN: attn-opt %s --split-input-file --attn-choose-gpu-gemms | FileCheck %s
// RUN: attn-opt %s --split-input-file --attn-choose-gpu-gemms=precision=bf16 | FileCheck %s

// Products of two f16 are exact: matrix units make them, whatever operands of f32 are rounded to. The ops that follow
// stay in the graph's types; the library sums up in f32 and rounds once.
// CHECK-LABEL: func.func @product
// CHECK: attn.kernel @gpu_gemm_f16_b1_mx_k64_n48_{{[0-9a-f]+}} ins(%{{.*}}, %{{.*}}, %{{.*}} : tensor<?x64xf16>, tensor<64x48xf16>, tensor<48xf16>)
// CHECK-NOT: linalg
// CHECK: func.func @gpu_gemm_f16_b1_mx_k64_n48_{{[0-9a-f]+}}(%{{.*}}: memref<?x64xf16>, %{{.*}}: memref<64x48xf16>, %{{.*}}: memref<48xf16>, %{{.*}}: memref<?x48xf16>)
// CHECK-SAME: attributes {attn.kernel, attn.library_product = {activation = 1 : i32, {{.*}}bias = 2 : i64, {{.*}}narrow, precision = 3 : i32
// Up to eight rows multiply in f32.
// CHECK: scf.if
// CHECK: vector.load {{.*}} {alignment = 16 : i64} : memref<?xf16>, vector<8xf16>
// CHECK: math.fma
// CHECK: else
// CHECK: nvvm.cp.async.shared.global {{.*}}, 16, cache = cg
// CHECK: nvvm.ldmatrix {{.*}} {{.*}}layout = #nvvm.mma_layout<row>, num = 4
// CHECK: nvvm.ldmatrix {{.*}} {{.*}}layout = #nvvm.mma_layout<col>, num = 4
// CHECK: nvvm.mma.sync
// CHECK: arith.truncf %{{.*}} : f32 to f16
// CHECK: vector.store {{.*}} {alignment = 8 : i64} : memref<?xf16>, vector<4xf16>
func.func @product(%x: tensor<?x64xf16>, %w: tensor<64x48xf16>, %c: tensor<48xf16>) -> tensor<?x48xf16> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %m = tensor.dim %x, %c0 : tensor<?x64xf16>
  %e = tensor.empty(%m) : tensor<?x48xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x48xf32>) -> tensor<?x48xf32>
  %p = linalg.contract indexing_maps = [affine_map<(i, j, k) -> (i, k)>, affine_map<(i, j, k) -> (k, j)>, affine_map<(i, j, k) -> (i, j)>]
    ins(%x, %w : tensor<?x64xf16>, tensor<64x48xf16>) outs(%f : tensor<?x48xf32>) -> tensor<?x48xf32>
  %h = tensor.empty(%m) : tensor<?x48xf16>
  %y = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
    ins(%p, %c : tensor<?x48xf32>, tensor<48xf16>) outs(%h : tensor<?x48xf16>) {
  ^bb0(%a: f32, %b: f16, %o: f16):
    %n = arith.truncf %a : f32 to f16
    %u = arith.extf %n : f16 to f32
    %v = arith.extf %b : f16 to f32
    %s = arith.addf %u, %v : f32
    %r = arith.maximumf %s, %zero : f32
    %t = arith.truncf %r : f32 to f16
    linalg.yield %t : f16
  } -> tensor<?x48xf16>
  return %y : tensor<?x48xf16>
}

// -----

// Near miss: a factor in bf16 and one in f32, of which no library has a product. What has no groups of 16 bytes is
// widened on its way to the tile.
// CHECK-LABEL: func.func @mixed
// CHECK: attn.kernel @gpu_gemm_
// CHECK: func.func @gpu_gemm_
// CHECK: arith.extf %{{.*}} : bf16 to f32
// CHECK: nvvm.cp.async
func.func @mixed(%x: tensor<40x60xbf16>, %w: tensor<60x48xf32>) -> tensor<40x48xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<40x48xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<40x48xf32>) -> tensor<40x48xf32>
  %y = linalg.matmul ins(%x, %w : tensor<40x60xbf16>, tensor<60x48xf32>) outs(%f : tensor<40x48xf32>) -> tensor<40x48xf32>
  return %y : tensor<40x48xf32>
}
