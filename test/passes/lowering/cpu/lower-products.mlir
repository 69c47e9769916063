// RUN: attn-opt %s --attn-lower-products | FileCheck %s
// RUN: attn-opt %s --attn-lower-products | FileCheck %s --check-prefix=GLOBAL
// RUN: attn-opt %s --attn-lower-products --remarks-filter=attn-lower-products --remark-format=emitRemark \
// RUN:   -o /dev/null 2>&1 | FileCheck %s --check-prefix=REMARK

module attributes {attn.target = #attn.target<triple = "x86_64-unknown-linux-gnu", cpu = "x86-64-v4",
    features = "+avx512vnni,-prefer-256-bit", isa = "avx512", l1 = 49152, l2 = 2097152>} {

// The products say how they are computed, in their order, or why there is no kernel.
// CHECK: module attributes {attn.product_report = [
// CHECK-SAME: {arithmetic = "u8 x s8 in s32", kernel = "gemm_i8_mx_k8_n6_quads_8x3x16_za_c{{[0-9]*}}_e{{[0-9a-f]*}}", node = "", storage = "s8"}
// CHECK-SAME: {arithmetic = "u8 x s8 in s32", kernel = "gemm_i8_m1_k8_n6_quads_8x3x16_zs", node = "", storage = "u8"}
// CHECK-SAME: {arithmetic = "u8 x s8 in s32", kernel = "gemm_i8_b_mx_k8_n6_quads_8x3x16_c{{[0-9]*}}", node = "", storage = "s8, computed"}
// CHECK-SAME: {arithmetic = "u8 x s8 in s32", kernel = "gemm_i8_b_mx_kx_nx_quads_8x3x16_zs_c{{[0-9]*}}", node = "", storage = "u8, computed"}
// CHECK-SAME: {arithmetic = "u8 x s8 in s32", kernel = "gemm_i8_b_mx_k8_n6_quads_8x3x16_c{{[0-9]*}}", node = "", storage = "s8, computed"}
// CHECK-SAME: {arithmetic = "u8 x s8 in s32", node = "", reason = "the sizes M, K, N ({{.*}}, 0, 6) are not positive", storage = "s8, computed"}
attn.global @w : tensor<8x6xi8> = #attn.initializer<"w">
attn.global @t : tensor<6x8xi8> = #attn.initializer<"t">
// GLOBAL-DAG: attn.global @w_bytes : tensor<1x2x192xi8> = #attn.byte_panels<@w, transposed = false, width = 48, group = 4, unsigned = false>
// GLOBAL-DAG: attn.global @w_sums : tensor<1x48xi32> = #attn.column_sums<@w, transposed = false, width = 48, unsigned = false>
// GLOBAL-DAG: attn.global @t_tbytes : tensor<1x2x192xi8> = #attn.byte_panels<@t, transposed = true, width = 48, group = 4, unsigned = true>
// GLOBAL-DAG: attn.global @t_tsums : tensor<1x48xi32> = #attn.column_sums<@t, transposed = true, width = 48, unsigned = true>

// CHECK-LABEL: func.func @scaled
// CHECK-SAME: %[[X:[^:]*]]: tensor<?x3x8xi8>, %[[Z:[^:]*]]: tensor<i8>, %[[S:[^:]*]]: tensor<6xf32>
// CHECK-NOT: linalg.generic
// CHECK-DAG: %[[P:.*]] = attn.weight @w_bytes
// CHECK-DAG: %[[C:.*]] = attn.weight @w_sums
// CHECK-DAG: %[[A:.*]] = tensor.collapse_shape %[[X]] {{\[\[}}0, 1], [2]]
// CHECK: %[[K:.*]] = attn.kernel @gemm_i8_mx_k8_n6_quads_8x3x16_za_c{{[0-9]*}}_e{{.*}} ins(%[[A]], %[[P]], %[[C]], %[[Z]], %[[S]] : {{.*}}) outs(%{{.*}} : tensor<?x6xf32>)
// CHECK: tensor.expand_shape %[[K]] {{\[\[}}0, 1], [2]]
// REMARK: remark: {{.*}}gemm_i8_mx_k8_n6_quads_8x3x16_za_c
func.func @scaled(%x: tensor<?x3x8xi8>, %z: tensor<i8>, %s: tensor<6xf32>, %e: tensor<?x3x6xf32>) -> tensor<?x3x6xf32> {
  %w = attn.weight @w : tensor<8x6xi8>
  %p = attn.integer_product %x zero %z by %w : tensor<?x3x8xi8> zero tensor<i8> by tensor<8x6xi8> -> tensor<?x3x6xi32>
  %y = linalg.generic {indexing_maps = [affine_map<(i, j, n) -> (i, j, n)>, affine_map<(i, j, n) -> (n)>, affine_map<(i, j, n) -> (i, j, n)>],
                       iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%p, %s : tensor<?x3x6xi32>, tensor<6xf32>) outs(%e : tensor<?x3x6xf32>) {
    ^bb0(%sum: i32, %scale: f32, %out: f32):
      %0 = arith.sitofp %sum : i32 to f32
      %1 = arith.mulf %0, %scale : f32
      linalg.yield %1 : f32
  } -> tensor<?x3x6xf32>
  return %y : tensor<?x3x6xf32>
}

// A weight of 0 to 255 without a zero point has one of -128 in its panels.
// CHECK-LABEL: func.func @unsigned
// CHECK: arith.constant dense<-128> : tensor<i8>
// CHECK: attn.kernel @gemm_i8_m1_k8_n6_quads_8x3x16_zs
func.func @unsigned(%x: tensor<8xi8>) -> tensor<6xi32> {
  %w = attn.weight @t : tensor<6x8xi8>
  %p = attn.integer_product %x by %w transposed unsigned : tensor<8xi8> by tensor<6x8xi8> -> tensor<6xi32>
  return %p : tensor<6xi32>
}

// What the run computes it packs.
// CHECK-LABEL: func.func @computed
// CHECK-SAME: %[[X:[^:]*]]: tensor<4x8xi8>, %[[W:[^:]*]]: tensor<8x6xi8>
// CHECK: %[[CUBE:.*]] = tensor.expand_shape %[[W]] {{\[\[}}0, 1], [2]] output_shape [1, 8, 6]
// CHECK: %[[P:.*]]:2 = attn.kernel @pack_bytes_k8_n6_w48x4x16 ins(%{{.*}} : tensor<?x8x6xi8>) outs(%{{.*}}, %{{.*}} : tensor<?x2x192xi8>, tensor<?x48xi32>)
// CHECK: attn.kernel @gemm_i8_b_mx_k8_n6_quads_8x3x16_c{{[0-9]*}} ins(%{{.*}}, %[[P]]#0, %[[P]]#1 : tensor<?x8xi8>, tensor<?x2x192xi8>, tensor<?x48xi32>)
func.func @computed(%x: tensor<4x8xi8>, %w: tensor<8x6xi8>) -> tensor<4x6xi32> {
  %p = attn.integer_product %x by %w : tensor<4x8xi8> by tensor<8x6xi8> -> tensor<4x6xi32>
  return %p : tensor<4x6xi32>
}

// A matrix for each of two dimensions, all sizes open.
// CHECK-LABEL: func.func @matrices
// CHECK-SAME: %[[X:[^:]*]]: tensor<?x?x?x?xi8>, %[[W:[^:]*]]: tensor<?x?x?x?xi8>
// CHECK: %[[CUBE:.*]] = tensor.collapse_shape %[[W]] {{\[\[}}0, 1], [2], [3]]
// CHECK: attn.kernel @pack_bytes_kx_nx_w48x4x16_t_u ins(%[[CUBE]] : tensor<?x?x?xi8>)
// CHECK: attn.kernel @gemm_i8_b_mx_kx_nx_quads_8x3x16_zs_c
// CHECK: tensor.expand_shape {{.*}} tensor<?x?xi32> into tensor<?x?x?x?xi32>
func.func @matrices(%x: tensor<?x?x?x?xi8>, %w: tensor<?x?x?x?xi8>) -> tensor<?x?x?x?xi32> {
  %p = attn.integer_product %x by %w transposed unsigned
      : tensor<?x?x?x?xi8> by tensor<?x?x?x?xi8> -> tensor<?x?x?x?xi32>
  return %p : tensor<?x?x?x?xi32>
}

// The op knows more sizes than the kernel, whose rows are open.
// CHECK-LABEL: func.func @known
// CHECK: %[[K:.*]] = attn.kernel @gemm_i8_b_mx_k8_n6
// CHECK: %[[C:.*]] = tensor.cast %[[K]] : tensor<?x6xi32> to tensor<84x6xi32>
// CHECK: tensor.expand_shape %[[C]] {{\[\[}}0, 1], [2]] output_shape [2, 42, 6]
func.func @known(%x: tensor<2x42x8xi8>, %w: tensor<8x6xi8>) -> tensor<2x42x6xi32> {
  %p = attn.integer_product %x by %w : tensor<2x42x8xi8> by tensor<8x6xi8> -> tensor<2x42x6xi32>
  return %p : tensor<2x42x6xi32>
}

// CHECK-LABEL: func.func @empty
// CHECK: attn.integer_product
// REMARK: remark: {{.*}}the sizes M, K, N ({{.*}}, 0, 6) are not positive
func.func @empty(%x: tensor<4x0xi8>, %w: tensor<0x6xi8>) -> tensor<4x6xi32> {
  %p = attn.integer_product %x by %w : tensor<4x0xi8> by tensor<0x6xi8> -> tensor<4x6xi32>
  return %p : tensor<4x6xi32>
}

// CHECK-LABEL: func.func @range
// CHECK: attn.kernel @range_f32_n_8_v16 ins(%{{.*}} : tensor<?x8xf32>) outs(%{{.*}}, %{{.*}}, %{{.*}} : tensor<2x64xf32>, tensor<f32>, tensor<f32>)
// CHECK-NOT: linalg.generic
// CHECK: return
func.func @range(%x: tensor<?x8xf32>, %e: tensor<f32>) -> (tensor<f32>, tensor<f32>) {
  %low = arith.constant 0xFF800000 : f32
  %high = arith.constant 0x7F800000 : f32
  %a = linalg.fill ins(%low : f32) outs(%e : tensor<f32>) -> tensor<f32>
  %b = linalg.fill ins(%high : f32) outs(%e : tensor<f32>) -> tensor<f32>
  %max = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> ()>], iterator_types = ["reduction", "reduction"]}
      ins(%x : tensor<?x8xf32>) outs(%a : tensor<f32>) {
    ^bb0(%p: f32, %m: f32):
      %0 = arith.maximumf %m, %p : f32
      linalg.yield %0 : f32
  } -> tensor<f32>
  %min = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> ()>], iterator_types = ["reduction", "reduction"]}
      ins(%x : tensor<?x8xf32>) outs(%b : tensor<f32>) {
    ^bb0(%p: f32, %m: f32):
      %0 = arith.minimumf %m, %p : f32
      linalg.yield %0 : f32
  } -> tensor<f32>
  return %max, %min : tensor<f32>, tensor<f32>
}

// One extreme alone stays what it is.
// CHECK-LABEL: func.func @greatest
// CHECK-NOT: attn.kernel
// CHECK: linalg.generic
func.func @greatest(%x: tensor<?x8xf32>, %e: tensor<f32>) -> tensor<f32> {
  %low = arith.constant 0xFF800000 : f32
  %a = linalg.fill ins(%low : f32) outs(%e : tensor<f32>) -> tensor<f32>
  %max = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> ()>], iterator_types = ["reduction", "reduction"]}
      ins(%x : tensor<?x8xf32>) outs(%a : tensor<f32>) {
    ^bb0(%p: f32, %m: f32):
      %0 = arith.maximumf %m, %p : f32
      linalg.yield %0 : f32
  } -> tensor<f32>
  return %max : tensor<f32>
}
}
