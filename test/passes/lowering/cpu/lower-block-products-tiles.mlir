// RUN: attn-opt %s --attn-lower-block-products | FileCheck %s

// Rows in bytes by codes on tiles (AMX): what the kernel writes for itself has whole tiles of rows.
module attributes {attn.target = #attn.target<triple = "x86_64-unknown-linux-gnu", cpu = "x86-64-v4",
    features = "+amx-int8,+amx-tile,+avx512vnni,-prefer-256-bit", isa = "avx512", l1 = 49152, l2 = 2097152>} {

attn.global @q : tensor<70x80xi8> = #attn.initializer<"q">
attn.global @s : tensor<70x3xf32> = #attn.initializer<"s">
attn.global @b : tensor<70x256xi8> = #attn.initializer<"b">
attn.global @t : tensor<70x1xf32> = #attn.initializer<"t">

// CHECK-LABEL: func.func @open
// CHECK-SAME: %[[X:[^:]*]]: tensor<?x80xf32>
// CHECK: %[[C0:.*]] = arith.constant 0 : index
// CHECK: %[[M:.*]] = tensor.dim %[[X]], %[[C0]]
// CHECK: %[[C16:.*]] = arith.constant 16 : index
// CHECK: %[[TILES:.*]] = arith.ceildivui %[[M]], %[[C16]]
// CHECK: %[[ROWS:.*]] = arith.muli %[[TILES]], %[[C16]]
// CHECK: tensor.empty(%[[ROWS]]) : tensor<?x96xi8>
// CHECK: tensor.empty(%[[ROWS]]) : tensor<?x3xf32>
// CHECK: tensor.empty(%[[ROWS]]) : tensor<?x3xi32>
// CHECK: attn.kernel @gemm_qu4b32_mx_k80_n70_fma_6x4x16_z8_amx
func.func @open(%x: tensor<?x80xf32>) -> tensor<?x70xf32> {
  %q = attn.weight @q : tensor<70x80xi8>
  %s = attn.weight @s : tensor<70x3xf32>
  %y = attn.block_product %x by %q scales %s block 32 bits 4 zero_point 8 transposed unsigned narrow_rows
      : tensor<?x80xf32> by tensor<70x80xi8> scales tensor<70x3xf32> -> tensor<?x70xf32>
  return %y : tensor<?x70xf32>
}

// CHECK-LABEL: func.func @fixed
// CHECK: attn.kernel @gemm_qu4b32_m17_k80_n70_fma_6x4x16_z8_amx {{.*}} outs(%{{.*}} : tensor<32x96xi8>, tensor<32x3xf32>, tensor<32x3xi32>, tensor<17x70xf32>)
func.func @fixed(%x: tensor<17x80xf32>) -> tensor<17x70xf32> {
  %q = attn.weight @q : tensor<70x80xi8>
  %s = attn.weight @s : tensor<70x3xf32>
  %y = attn.block_product %x by %q scales %s block 32 bits 4 zero_point 8 transposed unsigned narrow_rows
      : tensor<17x80xf32> by tensor<70x80xi8> scales tensor<70x3xf32> -> tensor<17x70xf32>
  return %y : tensor<17x70xf32>
}

// Few rows have none, nor have rows that stay f32, nor codes that are no bytes without their zero point.
// CHECK-LABEL: func.func @few
// CHECK: attn.kernel @gemm_qu4b32_m15_k80_n70_fma_6x4x16_z8_i8
func.func @few(%x: tensor<15x80xf32>) -> tensor<15x70xf32> {
  %q = attn.weight @q : tensor<70x80xi8>
  %s = attn.weight @s : tensor<70x3xf32>
  %y = attn.block_product %x by %q scales %s block 32 bits 4 zero_point 8 transposed unsigned narrow_rows
      : tensor<15x80xf32> by tensor<70x80xi8> scales tensor<70x3xf32> -> tensor<15x70xf32>
  return %y : tensor<15x70xf32>
}

// CHECK-LABEL: func.func @floats
// CHECK: attn.kernel @gemm_qu4b32_m17_k80_n70_fma_6x4x16_z8 ins
func.func @floats(%x: tensor<17x80xf32>) -> tensor<17x70xf32> {
  %q = attn.weight @q : tensor<70x80xi8>
  %s = attn.weight @s : tensor<70x3xf32>
  %y = attn.block_product %x by %q scales %s block 32 bits 4 zero_point 8 transposed unsigned
      : tensor<17x80xf32> by tensor<70x80xi8> scales tensor<70x3xf32> -> tensor<17x70xf32>
  return %y : tensor<17x70xf32>
}

// CHECK-LABEL: func.func @wide
// CHECK: attn.kernel @gemm_qs8b256_m17_k256_n70_fma_6x4x16_z0_amx
// CHECK: attn.kernel @gemm_qs8b256_m17_k256_n70_fma_6x4x16_z1_i8
func.func @wide(%x: tensor<17x256xf32>) -> (tensor<17x70xf32>, tensor<17x70xf32>) {
  %b = attn.weight @b : tensor<70x256xi8>
  %t = attn.weight @t : tensor<70x1xf32>
  %y = attn.block_product %x by %b scales %t block 256 bits 8 transposed narrow_rows
      : tensor<17x256xf32> by tensor<70x256xi8> scales tensor<70x1xf32> -> tensor<17x70xf32>
  %z = attn.block_product %x by %b scales %t block 256 bits 8 zero_point 1 transposed narrow_rows
      : tensor<17x256xf32> by tensor<70x256xi8> scales tensor<70x1xf32> -> tensor<17x70xf32>
  return %y, %z : tensor<17x70xf32>, tensor<17x70xf32>
}
}
