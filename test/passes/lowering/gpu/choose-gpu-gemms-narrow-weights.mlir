// RUN: attn-opt %s --attn-choose-gpu-gemms=precision=f16 --canonicalize | FileCheck %s
// RUN: attn-opt %s --attn-choose-gpu-gemms=precision=tf32 --canonicalize | FileCheck %s --check-prefix=WIDE

// Weights that products alone read are stored in the 16 bits that these round them to.
// CHECK-LABEL: func.func @main
// CHECK-DAG: %[[W:.*]] = attn.weight @w_f16
// CHECK-DAG: %[[V:.*]] = attn.weight @v_f16
// CHECK-DAG: %[[ODD:.*]] = attn.weight @odd : tensor<64x12xf32>
// CHECK-DAG: %[[TABLE:.*]] = attn.weight @table : tensor<64x48xf32>
// CHECK: attn.kernel @[[K0:gpu_gemm_f16_b1_mx_k64_n48_[0-9a-f]+]] ins(%arg0, %[[W]] : tensor<?x64xf32>, tensor<64x48xf16>)
// CHECK: attn.kernel @[[K1:gpu_gemm_f16_b1_mx_k64_n40_[0-9a-f]+]] ins(%arg0, %[[V]] : tensor<?x64xf32>, tensor<40x64xf16>)
// Near misses: lines of less than 16 bytes, and one that is read as it is, too.
// CHECK: attn.kernel @[[K2:gpu_gemm_f16_b1_mx_k64_n12_[0-9a-f]+]] ins(%arg0, %[[ODD]] :
// CHECK: attn.kernel @[[K3:gpu_gemm_f16_b1_mx_k64_n48_[0-9a-f]+]] ins(%arg0, %[[TABLE]] :
// CHECK: attn.global @w_f16 : tensor<64x48xf16> = #attn.reshape<@w>
// CHECK: attn.global @v_f16 : tensor<40x64xf16> = #attn.reshape<@v>
// CHECK-NOT: attn.global
// cuBLASLt has no product of f32 and 16 bits: there is scratch to round the former into.
// CHECK: func.func @[[K0]](%{{.*}}: memref<?x64xf32>, %{{.*}}: memref<64x48xf16>, %{{.*}}: memref<?x48xf32>, %{{.*}}: memref<?xf32>)
// CHECK-SAME: attributes {attn.kernel, attn.library_product = {{{.*}}narrow, {{.*}}rounded = 0 : i64
// CHECK: func.func @[[K2]](%{{.*}}: memref<?x64xf32>, %{{.*}}: memref<64x12xf32>, %{{.*}}: memref<?x12xf32>) attributes
// CHECK-SAME: {attn.kernel, attn.library_product
// CHECK-NOT: narrow

// WIDE-NOT: attn.reshape
attn.global @w : tensor<64x48xf32> = #attn.initializer<"w">
attn.global @v : tensor<40x64xf32> = #attn.initializer<"v">
attn.global @odd : tensor<64x12xf32> = #attn.initializer<"odd">
attn.global @table : tensor<64x48xf32> = #attn.initializer<"table">
#left = affine_map<(i, j, k) -> (i, k)>
#right = affine_map<(i, j, k) -> (k, j)>
#turned = affine_map<(i, j, k) -> (j, k)>
#result = affine_map<(i, j, k) -> (i, j)>
func.func @main(%x: tensor<?x64xf32>) -> (tensor<?x48xf32>, tensor<?x40xf32>, tensor<?x12xf32>, tensor<?x48xf32>, tensor<64x48xf32>) {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %m = tensor.dim %x, %c0 : tensor<?x64xf32>
  %w = attn.weight @w : tensor<64x48xf32>
  %v = attn.weight @v : tensor<40x64xf32>
  %odd = attn.weight @odd : tensor<64x12xf32>
  %table = attn.weight @table : tensor<64x48xf32>
  %e48 = tensor.empty(%m) : tensor<?x48xf32>
  %f48 = linalg.fill ins(%zero : f32) outs(%e48 : tensor<?x48xf32>) -> tensor<?x48xf32>
  %e40 = tensor.empty(%m) : tensor<?x40xf32>
  %f40 = linalg.fill ins(%zero : f32) outs(%e40 : tensor<?x40xf32>) -> tensor<?x40xf32>
  %e12 = tensor.empty(%m) : tensor<?x12xf32>
  %f12 = linalg.fill ins(%zero : f32) outs(%e12 : tensor<?x12xf32>) -> tensor<?x12xf32>
  %0 = linalg.contract indexing_maps = [#left, #right, #result] ins(%x, %w : tensor<?x64xf32>, tensor<64x48xf32>) outs(%f48 : tensor<?x48xf32>) -> tensor<?x48xf32>
  %1 = linalg.contract indexing_maps = [#left, #turned, #result] ins(%x, %v : tensor<?x64xf32>, tensor<40x64xf32>) outs(%f40 : tensor<?x40xf32>) -> tensor<?x40xf32>
  %2 = linalg.contract indexing_maps = [#left, #right, #result] ins(%x, %odd : tensor<?x64xf32>, tensor<64x12xf32>) outs(%f12 : tensor<?x12xf32>) -> tensor<?x12xf32>
  %3 = linalg.contract indexing_maps = [#left, #right, #result] ins(%x, %table : tensor<?x64xf32>, tensor<64x48xf32>) outs(%f48 : tensor<?x48xf32>) -> tensor<?x48xf32>
  return %0, %1, %2, %3, %table : tensor<?x48xf32>, tensor<?x40xf32>, tensor<?x12xf32>, tensor<?x48xf32>, tensor<64x48xf32>
}
