// RUN: attn-opt %s --attn-choose-gpu-rows | FileCheck %s
// RUN: attn-opt %s --attn-choose-gpu-rows | FileCheck %s --check-prefix=GLOBAL
// RUN: attn-opt %s --attn-choose-gpu-rows --remarks-filter=attn-choose-gpu-rows --remark-format=emitRemark \
// RUN:   -o /dev/null 2>&1 | FileCheck %s --check-prefix=REMARK

// REMARK: remark: {{.*}}the sizes M, K, N ({{.*}}, 0, 6) are not positive

// CHECK: module attributes {attn.product_report = [
// CHECK-SAME: {arithmetic = "u8 x s8 in s32", kernel = "gpu_gemm_i8_m12_k80_n40_za_e{{[0-9a-f]*}}", node = "", storage = "s8"}
// CHECK-SAME: {arithmetic = "u8 x s8 in s32", kernel = "gpu_gemm_i8_mx_k80_n40_za", node = "", storage = "s8"}
// CHECK-SAME: {arithmetic = "u8 x s8 in s32", kernel = "gpu_gemm_i8_m1_k80_n40_zs", node = "", storage = "u8"}
// CHECK-SAME: {arithmetic = "u8 x s8 in s32", kernel = "gpu_gemm_i8_b_mx_k8_nx", node = "", storage = "s8, computed"}
// CHECK-SAME: {arithmetic = "u8 x s8 in s32", node = "", reason = "the sizes M, K, N ({{.*}}, 0, 6) are not positive", storage = "s8, computed"}
module attributes {attn.target = #attn.target<triple = "x86_64-unknown-linux-gnu", cpu = "x86-64-v3", features = "", isa = "avx2", l1 = 32768, l2 = 524288>} {
// Panels of 32 columns, 16 rows of a column side by side.
// GLOBAL-DAG: attn.global @w_bytes : tensor<2x5x512xi8> = #attn.byte_panels<@w, transposed = false, width = 32, group = 16, unsigned = false>
// GLOBAL-DAG: attn.global @w_sums : tensor<2x32xi32> = #attn.column_sums<@w, transposed = false, width = 32, unsigned = false>
// GLOBAL-DAG: attn.global @t_tbytes : tensor<2x5x512xi8> = #attn.byte_panels<@t, transposed = true, width = 32, group = 16, unsigned = true>
attn.global @w : tensor<80x40xi8> = #attn.initializer<"w">
attn.global @t : tensor<40x80xi8> = #attn.initializer<"t">

// What alone uses the sums becomes part of the kernel, on operands by row, by column and by element.
// CHECK-LABEL: func.func @scaled
// CHECK-SAME: %[[X:[^:]*]]: tensor<3x4x80xi8>, %[[Z:[^:]*]]: tensor<i8>, %[[S:[^:]*]]: tensor<3x4xf32>, %[[B:[^:]*]]: tensor<40xf32>
// CHECK-NOT: linalg.generic
// CHECK-DAG: %[[P:.*]] = attn.weight @w_bytes
// CHECK-DAG: %[[C:.*]] = attn.weight @w_sums
// CHECK-DAG: %[[A:.*]] = tensor.collapse_shape %[[X]] {{\[\[}}0, 1], [2]]
// CHECK-DAG: %[[R:.*]] = tensor.collapse_shape %[[S]] {{\[\[}}0, 1]]
// CHECK: attn.kernel @gpu_gemm_i8_m12_k80_n40_za_e{{.*}} ins(%[[A]], %[[P]], %[[C]], %[[Z]], %[[R]], %[[B]]
// CHECK-NOT: linalg.generic
func.func @scaled(%x: tensor<3x4x80xi8>, %z: tensor<i8>, %s: tensor<3x4xf32>, %b: tensor<40xf32>, %e: tensor<3x4x40xf32>) -> tensor<3x4x40xf32> {
  %w = attn.weight @w : tensor<80x40xi8>
  %p = attn.integer_product %x zero %z by %w : tensor<3x4x80xi8> zero tensor<i8> by tensor<80x40xi8> -> tensor<3x4x40xi32>
  %y = linalg.generic {indexing_maps = [affine_map<(i, j, n) -> (i, j, n)>, affine_map<(i, j, n) -> (i, j)>,
                                        affine_map<(i, j, n) -> (n)>, affine_map<(i, j, n) -> (i, j, n)>],
                       iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%p, %s, %b : tensor<3x4x40xi32>, tensor<3x4xf32>, tensor<40xf32>) outs(%e : tensor<3x4x40xf32>) {
    ^bb0(%sum: i32, %scale: f32, %bias: f32, %out: f32):
      %0 = arith.sitofp %sum : i32 to f32
      %1 = math.fma %0, %scale, %bias : f32
      linalg.yield %1 : f32
  } -> tensor<3x4x40xf32>
  return %y : tensor<3x4x40xf32>
}

// Of a number of rows that the run tells, the host chooses in the kernel. The near miss for an epilogue: one that turns
// the result, which stays an op of its own.
// CHECK-LABEL: func.func @turned
// CHECK: %[[SUMS:.*]] = attn.kernel @gpu_gemm_i8_mx_k80_n40_za ins
// CHECK: linalg.generic {{.*}} ins(%[[SUMS]]
func.func @turned(%x: tensor<?x80xi8>, %z: tensor<i8>, %e: tensor<40x?xf32>) -> tensor<40x?xf32> {
  %w = attn.weight @w : tensor<80x40xi8>
  %p = attn.integer_product %x zero %z by %w : tensor<?x80xi8> zero tensor<i8> by tensor<80x40xi8> -> tensor<?x40xi32>
  %y = linalg.generic {indexing_maps = [affine_map<(n, i) -> (i, n)>, affine_map<(n, i) -> (n, i)>], iterator_types = ["parallel", "parallel"]}
      ins(%p : tensor<?x40xi32>) outs(%e : tensor<40x?xf32>) {
    ^bb0(%sum: i32, %out: f32):
      %0 = arith.sitofp %sum : i32 to f32
      linalg.yield %0 : f32
  } -> tensor<40x?xf32>
  return %y : tensor<40x?xf32>
}

// A weight of 0 to 255 without a zero point has one of -128 in its panels.
// CHECK-LABEL: func.func @unsigned
// CHECK: arith.constant dense<-128> : tensor<i8>
// CHECK: attn.kernel @gpu_gemm_i8_m1_k80_n40_zs
func.func @unsigned(%x: tensor<80xi8>) -> tensor<40xi32> {
  %w = attn.weight @t : tensor<40x80xi8>
  %p = attn.integer_product %x by %w transposed unsigned : tensor<80xi8> by tensor<40x80xi8> -> tensor<40xi32>
  return %p : tensor<40xi32>
}

// What the run computes another kernel packs.
// CHECK-LABEL: func.func @computed
// CHECK: %[[PACKED:.*]]:2 = attn.kernel @gpu_pack_bytes_k8_nx_t
// CHECK: attn.kernel @gpu_gemm_i8_b_mx_k8_nx ins(%{{.*}}, %[[PACKED]]#0, %[[PACKED]]#1
func.func @computed(%x: tensor<?x5x8xi8>, %y: tensor<?x?x8xi8>) -> tensor<?x5x?xi32> {
  %p = attn.integer_product %x by %y transposed : tensor<?x5x8xi8> by tensor<?x?x8xi8> -> tensor<?x5x?xi32>
  return %p : tensor<?x5x?xi32>
}

// CHECK-LABEL: func.func @empty
// CHECK: attn.integer_product
func.func @empty(%x: tensor<4x0xi8>, %w: tensor<0x6xi8>) -> tensor<4x6xi32> {
  %p = attn.integer_product %x by %w : tensor<4x0xi8> by tensor<0x6xi8> -> tensor<4x6xi32>
  return %p : tensor<4x6xi32>
}
}
