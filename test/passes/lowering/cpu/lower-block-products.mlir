// RUN: attn-opt %s --attn-lower-block-products | FileCheck %s
// RUN: attn-opt %s --attn-lower-block-products | FileCheck %s --check-prefix=GLOBAL
// RUN: attn-opt %s --attn-lower-block-products --remarks-filter=attn-lower-block-products --remark-format=emitRemark \
// RUN:   -o /dev/null 2>&1 | FileCheck %s --check-prefix=REMARK
// RUN: sed 's/isa = "avx512"/isa = "portable"/' %s | attn-opt --attn-lower-block-products --remarks-filter=attn-lower-block-products \
// RUN:   --remark-format=emitRemark -o /dev/null 2>&1 | FileCheck %s --check-prefix=PLAIN
// PLAIN: remark: {{.*}}the processor does not multiply bytes

module attributes {attn.target = #attn.target<triple = "x86_64-unknown-linux-gnu", cpu = "x86-64-v4",
    features = "+avx512vnni,-prefer-256-bit", isa = "avx512", l1 = 49152, l2 = 2097152>} {

// The products say how they are computed, in their order, or why there is no kernel.
// CHECK: module attributes {attn.product_report = [
// CHECK-SAME: {arithmetic = "f32, unpacked", kernel = "gemm_qu4b32_mx_k80_n70_fma_6x4x16_z8_digits_e{{[0-9a-f]*}}", node = "", storage = "u4 blocks of 32"}
// CHECK-SAME: {arithmetic = "f32, unpacked", kernel = "gemm_qs8b16h_m1_k32_n6_fma_6x1x16_zs_digits", node = "", storage = "s8 blocks of 16"}
// CHECK-SAME: {arithmetic = "s8 blocks in s32", kernel = "gemm_qu4b32_m2_k80_n70_fma_6x4x16_z8_i8", node = "", storage = "u4 blocks of 32"}
// CHECK-SAME: {arithmetic = "f32, unpacked", kernel = "gemm_qu4b32_m2_k80_n70_fma_6x4x16_zf", node = "", storage = "u4 blocks of 32"}
// CHECK-SAME: {arithmetic = "f32, dequantised", node = "", reason = "the matrix is no weight", storage = "u4 blocks of 32"}
// CHECK-SAME: {arithmetic = "f32, dequantised", node = "", reason = "blocks of 24 are not whole words of 8 codes, or do not divide 256", storage = "u4 blocks of 24"}
// CHECK-SAME: {arithmetic = "f32, dequantised", node = "", reason = "the matrix is too small (up to 1 KiB) to be stored in panels", storage = "u4 blocks of 32"}
attn.global @q : tensor<70x80xi8> = #attn.initializer<"q">
attn.global @s : tensor<70x3xf32> = #attn.initializer<"s">
attn.global @t : tensor<32x6xi8> = #attn.initializer<"t">
attn.global @u : tensor<70x4xf32> = #attn.initializer<"u">
// GLOBAL-DAG: attn.global @q_words : tensor<2x10x64xi32> = #attn.byte_panels<@q, transposed = true, width = 64, group = 8, unsigned = true>
// GLOBAL-DAG: attn.global @s_panels : tensor<2x3x64xf32> = #attn.pack_panels<@s, transposed = true, width = 64>
// GLOBAL-DAG: attn.global @t_words : tensor<1x8x16xi32> = #attn.byte_panels<@t, transposed = false, width = 16, group = 4, unsigned = false>

// CHECK-LABEL: func.func @biased
// CHECK-SAME: %[[X:[^:]*]]: tensor<?x3x80xf32>, %[[B:[^:]*]]: tensor<70xf32>
// CHECK-NOT: linalg.generic
// CHECK-DAG: %[[Q:.*]] = attn.weight @q_words
// CHECK-DAG: %[[S:.*]] = attn.weight @s_panels
// CHECK-DAG: %[[A:.*]] = tensor.collapse_shape %[[X]] {{\[\[}}0, 1], [2]]
// CHECK: %[[K:[^:]*]]:4 = attn.kernel @gemm_qu4b32_mx_k80_n70_fma_6x4x16_z8_digits_e{{.*}} ins(%[[A]], %[[Q]], %[[S]], %[[B]] : {{.*}}) outs(%{{.*}} : tensor<4x96xi8>, tensor<1x3xf32>, tensor<2x3xi32>, tensor<?x70xf32>)
// CHECK: tensor.expand_shape %[[K]]#3 {{\[\[}}0, 1], [2]]
// REMARK: remark: {{.*}}gemm_qu4b32_mx_k80_n70
func.func @biased(%x: tensor<?x3x80xf32>, %b: tensor<70xf32>, %e: tensor<?x3x70xf32>) -> tensor<?x3x70xf32> {
  %q = attn.weight @q : tensor<70x80xi8>
  %s = attn.weight @s : tensor<70x3xf32>
  %p = attn.block_product %x by %q scales %s block 32 bits 4 zero_point 8 transposed unsigned
      : tensor<?x3x80xf32> by tensor<70x80xi8> scales tensor<70x3xf32> -> tensor<?x3x70xf32>
  %y = linalg.generic {indexing_maps = [affine_map<(i, j, n) -> (i, j, n)>, affine_map<(i, j, n) -> (n)>, affine_map<(i, j, n) -> (i, j, n)>],
                       iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%p, %b : tensor<?x3x70xf32>, tensor<70xf32>) outs(%e : tensor<?x3x70xf32>) {
    ^bb0(%sum: f32, %bias: f32, %out: f32):
      %0 = arith.addf %sum, %bias : f32
      linalg.yield %0 : f32
  } -> tensor<?x3x70xf32>
  return %y : tensor<?x3x70xf32>
}

// Scales and zero points that are constants become panels here.
// CHECK-LABEL: func.func @constants
// CHECK-DAG: arith.constant dense<{{.*}}> : tensor<1x2x16xf16>
// CHECK-DAG: arith.constant dense<{{.*}}> : tensor<1x2x16xi8>
// CHECK: attn.kernel @gemm_qs8b16h_m1_k32_n6_fma_6x1x16_zs_digits
func.func @constants(%x: tensor<32xf32>) -> tensor<6xf32> {
  %t = attn.weight @t : tensor<32x6xi8>
  %s = arith.constant dense<[[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [0.5, 0.5, 0.5, 0.5, 0.5, 0.5]]> : tensor<2x6xf16>
  %z = arith.constant dense<3> : tensor<2x6xi8>
  %y = attn.block_product %x by %t scales %s zeros %z block 16 bits 8
      : tensor<32xf32> by tensor<32x6xi8> scales tensor<2x6xf16> zeros tensor<2x6xi8> -> tensor<6xf32>
  return %y : tensor<6xf32>
}

// Rows that may be rounded become bytes, in results of the kernel that nothing else reads.
// CHECK-LABEL: func.func @narrow
// CHECK: %[[K:.*]]:4 = attn.kernel @gemm_qu4b32_m2_k80_n70_fma_6x4x16_z8_i8 ins(%{{.*}}) outs(%{{.*}} : tensor<2x96xi8>, tensor<2x3xf32>, tensor<2x3xi32>, tensor<2x70xf32>)
// CHECK: return %[[K]]#3
func.func @narrow(%x: tensor<2x80xf32>) -> tensor<2x70xf32> {
  %q = attn.weight @q : tensor<70x80xi8>
  %s = attn.weight @s : tensor<70x3xf32>
  %y = attn.block_product %x by %q scales %s block 32 bits 4 zero_point 8 transposed unsigned narrow_rows
      : tensor<2x80xf32> by tensor<70x80xi8> scales tensor<70x3xf32> -> tensor<2x70xf32>
  return %y : tensor<2x70xf32>
}

// With zero points that are floats rows stay as they are.
// CHECK-LABEL: func.func @shifted
// CHECK: attn.kernel @gemm_qu4b32_m2_k80_n70_fma_6x4x16_zf ins
// REMARK: remark: {{.*}}the zero points are floats
func.func @shifted(%x: tensor<2x80xf32>) -> tensor<2x70xf32> {
  %q = attn.weight @q : tensor<70x80xi8>
  %s = attn.weight @s : tensor<70x3xf32>
  %y = attn.block_product %x by %q scales %s zeros %s block 32 bits 4 transposed unsigned narrow_rows
      : tensor<2x80xf32> by tensor<70x80xi8> scales tensor<70x3xf32> zeros tensor<70x3xf32> -> tensor<2x70xf32>
  return %y : tensor<2x70xf32>
}

// Scales that were widened are read as they are stored; near miss: not where zero points, which have their type, are in f32.
// CHECK-LABEL: func.func @widened
// CHECK: attn.kernel @gemm_qu4b32h_m2_k80_n70_fma_6x4x16_z8 ins
// CHECK: attn.kernel @gemm_qu4b32_m2_k80_n70_fma_6x4x16_zf ins
// GLOBAL-DAG: attn.global @h_panels : tensor<2x3x64xf16> = #attn.pack_panels<@h, transposed = true, width = 64>
attn.global @h : tensor<70x3xf16> = #attn.initializer<"h">
attn.global @h_f32 : tensor<70x3xf32> = #attn.reshape<@h>
func.func @widened(%x: tensor<2x80xf32>) -> (tensor<2x70xf32>, tensor<2x70xf32>) {
  %q = attn.weight @q : tensor<70x80xi8>
  %h = attn.weight @h_f32 : tensor<70x3xf32>
  %s = attn.weight @s : tensor<70x3xf32>
  %y = attn.block_product %x by %q scales %h block 32 bits 4 zero_point 8 transposed unsigned
      : tensor<2x80xf32> by tensor<70x80xi8> scales tensor<70x3xf32> -> tensor<2x70xf32>
  %z = attn.block_product %x by %q scales %h zeros %s block 32 bits 4 transposed unsigned
      : tensor<2x80xf32> by tensor<70x80xi8> scales tensor<70x3xf32> zeros tensor<70x3xf32> -> tensor<2x70xf32>
  return %y, %z : tensor<2x70xf32>, tensor<2x70xf32>
}

// CHECK-LABEL: func.func @computed
// CHECK: attn.block_product
// REMARK: remark: {{.*}}the matrix is no weight
func.func @computed(%x: tensor<4x80xf32>, %q: tensor<70x80xi8>, %s: tensor<70x3xf32>) -> tensor<4x70xf32> {
  %y = attn.block_product %x by %q scales %s block 32 bits 4 transposed unsigned
      : tensor<4x80xf32> by tensor<70x80xi8> scales tensor<70x3xf32> -> tensor<4x70xf32>
  return %y : tensor<4x70xf32>
}

// CHECK-LABEL: func.func @odd
// CHECK: attn.block_product
func.func @odd(%x: tensor<4x80xf32>) -> tensor<4x70xf32> {
  %q = attn.weight @q : tensor<70x80xi8>
  %u = attn.weight @u : tensor<70x4xf32>
  %y = attn.block_product %x by %q scales %u block 24 bits 4 transposed unsigned
      : tensor<4x80xf32> by tensor<70x80xi8> scales tensor<70x4xf32> -> tensor<4x70xf32>
  return %y : tensor<4x70xf32>
}

// CHECK-LABEL: func.func @small
// CHECK: attn.block_product
func.func @small(%x: tensor<4x32xf32>) -> tensor<4x16xf32> {
  %q = arith.constant dense<3> : tensor<16x32xi8>
  %s = arith.constant dense<0.5> : tensor<16x1xf32>
  %y = attn.block_product %x by %q scales %s block 32 bits 4 zero_point 8 transposed unsigned
      : tensor<4x32xf32> by tensor<16x32xi8> scales tensor<16x1xf32> -> tensor<4x16xf32>
  return %y : tensor<4x16xf32>
}
}
