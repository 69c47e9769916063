// RUN: attn-opt %s --attn-lower-block-products | FileCheck %s

// Rows of f32 by codes on tiles of bf16 (AMX): what the kernel writes for itself has three parts of each number, of whole
// tiles of rows.
module attributes {attn.target = #attn.target<triple = "x86_64-unknown-linux-gnu", cpu = "x86-64-v4",
    features = "+amx-bf16,+amx-tile,+avx512bf16,-prefer-256-bit", isa = "avx512", l1 = 49152, l2 = 2097152>} {

attn.global @q : tensor<70x80xi8> = #attn.initializer<"q">
attn.global @s : tensor<70x3xf32> = #attn.initializer<"s">
attn.global @z : tensor<70x3xf32> = #attn.initializer<"z">

// CHECK-LABEL: func.func @open
// CHECK: %[[ROWS:.*]] = arith.muli
// CHECK: tensor.empty(%[[ROWS]]) : tensor<?x288xbf16>
// CHECK: attn.kernel @gemm_qu4b32_mx_k80_n70_fma_6x4x16_z8_amx16
func.func @open(%x: tensor<?x80xf32>) -> tensor<?x70xf32> {
  %q = attn.weight @q : tensor<70x80xi8>
  %s = attn.weight @s : tensor<70x3xf32>
  %y = attn.block_product %x by %q scales %s block 32 bits 4 zero_point 8 transposed unsigned
      : tensor<?x80xf32> by tensor<70x80xi8> scales tensor<70x3xf32> -> tensor<?x70xf32>
  return %y : tensor<?x70xf32>
}

// CHECK-LABEL: func.func @fixed
// CHECK: attn.kernel @gemm_qu4b32_m17_k80_n70_fma_6x4x16_z8_amx16 {{.*}} outs(%{{.*}} : tensor<32x288xbf16>, tensor<17x70xf32>)
func.func @fixed(%x: tensor<17x80xf32>) -> tensor<17x70xf32> {
  %q = attn.weight @q : tensor<70x80xi8>
  %s = attn.weight @s : tensor<70x3xf32>
  %y = attn.block_product %x by %q scales %s block 32 bits 4 zero_point 8 transposed unsigned
      : tensor<17x80xf32> by tensor<70x80xi8> scales tensor<70x3xf32> -> tensor<17x70xf32>
  return %y : tensor<17x70xf32>
}

// Few rows have none, nor have zero points that are no integers.
// CHECK-LABEL: func.func @few
// CHECK: attn.kernel @gemm_qu4b32_m15_k80_n70_fma_6x4x16_z8 ins
func.func @few(%x: tensor<15x80xf32>) -> tensor<15x70xf32> {
  %q = attn.weight @q : tensor<70x80xi8>
  %s = attn.weight @s : tensor<70x3xf32>
  %y = attn.block_product %x by %q scales %s block 32 bits 4 zero_point 8 transposed unsigned
      : tensor<15x80xf32> by tensor<70x80xi8> scales tensor<70x3xf32> -> tensor<15x70xf32>
  return %y : tensor<15x70xf32>
}

// CHECK-LABEL: func.func @floats
// CHECK: attn.kernel @gemm_qu4b32_m17_k80_n70_fma_6x4x16_zf ins
func.func @floats(%x: tensor<17x80xf32>) -> tensor<17x70xf32> {
  %q = attn.weight @q : tensor<70x80xi8>
  %s = attn.weight @s : tensor<70x3xf32>
  %z = attn.weight @z : tensor<70x3xf32>
  %y = attn.block_product %x by %q scales %s zeros %z block 32 bits 4 transposed unsigned
      : tensor<17x80xf32> by tensor<70x80xi8> scales tensor<70x3xf32> zeros tensor<70x3xf32> -> tensor<17x70xf32>
  return %y : tensor<17x70xf32>
}
}
