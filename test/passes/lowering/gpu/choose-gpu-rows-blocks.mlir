// RUN: attn-opt %s --attn-choose-gpu-rows | FileCheck %s
// RUN: attn-opt %s --attn-choose-gpu-rows | FileCheck %s --check-prefix=GLOBAL
// RUN: attn-opt %s --attn-choose-gpu-rows --remarks-filter=attn-choose-gpu-rows --remark-format=emitRemark \
// RUN:   -o /dev/null 2>&1 | FileCheck %s --check-prefix=REMARK

// REMARK: remark: {{.*}}the matrix is no weight
// REMARK: remark: {{.*}}blocks of 20 are not whole words of 8 codes

// CHECK: module attributes {attn.product_report = [
// CHECK-SAME: {arithmetic = "f32, unpacked", kernel = "gpu_blocks_m1_u4b32f_k80_n70_z8", node = "", storage = "u4 blocks of 32"}
// CHECK-SAME: {arithmetic = "f32, unpacked", kernel = "gpu_blocks_m9_u4b32f_k80_n70_z8", node = "", storage = "u4 blocks of 32"}
// CHECK-SAME: {arithmetic = "f32, unpacked", kernel = "gpu_blocks_mx_s8b16h_k32_n6_zi", node = "", storage = "s8 blocks of 16"}
// CHECK-SAME: {arithmetic = "f32, dequantised", node = "", reason = "the matrix is no weight", storage = "u4 blocks of 32"}
module attributes {attn.target = #attn.target<triple = "x86_64-unknown-linux-gnu", cpu = "x86-64-v3", features = "", isa = "avx2", l1 = 32768, l2 = 524288>} {
// GLOBAL-DAG: attn.global @q_words : tensor<3x10x32xi32> = #attn.byte_panels<@q, transposed = true, width = 32, group = 8, unsigned = true>
// GLOBAL-DAG: attn.global @s_panels : tensor<3x3x32xf32> = #attn.pack_panels<@s, transposed = true, width = 32>
attn.global @q : tensor<70x80xi8> = #attn.initializer<"q">
attn.global @s : tensor<70x3xf32> = #attn.initializer<"s">
attn.global @t : tensor<32x6xi8> = #attn.initializer<"t">
attn.global @u : tensor<70x4xf32> = #attn.initializer<"u">

// CHECK-LABEL: func.func @few
// CHECK-SAME: %[[X:[^:]*]]: tensor<1x80xf32>
// CHECK-DAG: %[[Q:.*]] = attn.weight @q_words
// CHECK-DAG: %[[S:.*]] = attn.weight @s_panels
// CHECK: attn.kernel @gpu_blocks_m1_u4b32f_k80_n70_z8 ins(%[[X]], %[[Q]], %[[S]]
// CHECK-NOT: linalg.contract
func.func @few(%x: tensor<1x80xf32>) -> tensor<1x70xf32> {
  %q = attn.weight @q : tensor<70x80xi8>
  %s = attn.weight @s : tensor<70x3xf32>
  %p = attn.block_product %x by %q scales %s block 32 bits 4 zero_point 8 transposed unsigned
      : tensor<1x80xf32> by tensor<70x80xi8> scales tensor<70x3xf32> -> tensor<1x70xf32>
  return %p : tensor<1x70xf32>
}

// One more row than eight: the matrix is written out for a product in tiles.
// CHECK-LABEL: func.func @many
// CHECK-SAME: %[[X:[^:]*]]: tensor<3x3x80xf32>
// CHECK: %[[W:.*]] = attn.kernel @gpu_unpack_u4b32f_k80_n70_z8
// CHECK: linalg.contract {{.*}} ins(%[[X]], %[[W]] : tensor<3x3x80xf32>, tensor<80x70xf32>)
func.func @many(%x: tensor<3x3x80xf32>) -> tensor<3x3x70xf32> {
  %q = attn.weight @q : tensor<70x80xi8>
  %s = attn.weight @s : tensor<70x3xf32>
  %p = attn.block_product %x by %q scales %s block 32 bits 4 zero_point 8 transposed unsigned
      : tensor<3x3x80xf32> by tensor<70x80xi8> scales tensor<70x3xf32> -> tensor<3x3x70xf32>
  return %p : tensor<3x3x70xf32>
}

// The host asks where the run alone tells.
// CHECK-LABEL: func.func @open
// CHECK: %[[FEW:.*]] = arith.cmpi ule
// CHECK: scf.if %[[FEW]] -> (tensor<?x6xf32>)
// CHECK: attn.kernel @gpu_blocks_mx_s8b16h_k32_n6_zi
// CHECK: } else {
// CHECK: attn.kernel @gpu_unpack_s8b16h_k32_n6_zi
// CHECK: linalg.contract
func.func @open(%x: tensor<?x32xf32>) -> tensor<?x6xf32> {
  %t = attn.weight @t : tensor<32x6xi8>
  %s = arith.constant dense<[[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [0.5, 0.5, 0.5, 0.5, 0.5, 0.5]]> : tensor<2x6xf16>
  %z = arith.constant dense<3> : tensor<2x6xi8>
  %p = attn.block_product %x by %t scales %s zeros %z block 16 bits 8
      : tensor<?x32xf32> by tensor<32x6xi8> scales tensor<2x6xf16> zeros tensor<2x6xi8> -> tensor<?x6xf32>
  return %p : tensor<?x6xf32>
}

// CHECK-LABEL: func.func @stays
// CHECK: attn.block_product
// CHECK: attn.block_product
func.func @stays(%x: tensor<1x80xf32>, %q: tensor<70x80xi8>) -> (tensor<1x70xf32>, tensor<1x70xf32>) {
  %s = attn.weight @s : tensor<70x3xf32>
  %a = attn.block_product %x by %q scales %s block 32 bits 4 zero_point 8 transposed unsigned
      : tensor<1x80xf32> by tensor<70x80xi8> scales tensor<70x3xf32> -> tensor<1x70xf32>
  %v = attn.weight @q : tensor<70x80xi8>
  %u = attn.weight @u : tensor<70x4xf32>
  %b = attn.block_product %x by %v scales %u block 20 bits 4 zero_point 8 transposed unsigned
      : tensor<1x80xf32> by tensor<70x80xi8> scales tensor<70x4xf32> -> tensor<1x70xf32>
  return %a, %b : tensor<1x70xf32>, tensor<1x70xf32>
}
}
