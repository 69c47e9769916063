// RUN: attn-opt %s --attn-lower-products | FileCheck %s
// RUN: attn-opt %s --attn-lower-products | FileCheck %s --check-prefix=GLOBAL
// RUN: sed 's/x86-64-v3/x86-64-v2/; s/isa = "avx2"/isa = "portable"/' %s | attn-opt --attn-lower-products | FileCheck %s --check-prefix=NONE

// Two products of bytes are added in 16 bits where they fit: the kernel is told where. One product at a time
// needs no such thing.
// NONE-NOT: order

module attributes {attn.target = #attn.target<triple = "x86_64-unknown-linux-gnu", cpu = "x86-64-v3",
    features = "", isa = "avx2", l1 = 32768, l2 = 524288>} {

attn.global @w : tensor<10x6xi8> = #attn.initializer<"w">
attn.global @t : tensor<6x10xi8> = #attn.initializer<"t">
// GLOBAL-DAG: attn.global @w_order : tensor<1x4xi16> = #attn.step_order<@w, transposed = false, width = 16, group = 4, unsigned = false>
// GLOBAL-DAG: attn.global @t_torder : tensor<1x4xi16> = #attn.step_order<@t, transposed = true, width = 16, group = 4, unsigned = true>

// CHECK-LABEL: func.func @stored
// CHECK: %[[P:.*]] = attn.weight @w_bytes
// CHECK: %[[S:.*]] = attn.weight @w_sums
// CHECK: %[[W:.*]] = attn.weight @w_order
// CHECK: attn.kernel @gemm_i8_m4_k10_n6_pairs_4x2x8 ins(%{{.*}}, %[[P]], %[[S]], %[[W]] :
func.func @stored(%x: tensor<4x10xi8>) -> tensor<4x6xi32> {
  %w = attn.weight @w : tensor<10x6xi8>
  %p = attn.integer_product %x by %w : tensor<4x10xi8> by tensor<10x6xi8> -> tensor<4x6xi32>
  return %p : tensor<4x6xi32>
}

// CHECK-LABEL: func.func @transposed
// CHECK: attn.weight @t_torder
func.func @transposed(%x: tensor<4x10xi8>) -> tensor<4x6xi32> {
  %w = attn.weight @t : tensor<6x10xi8>
  %p = attn.integer_product %x by %w transposed unsigned : tensor<4x10xi8> by tensor<6x10xi8> -> tensor<4x6xi32>
  return %p : tensor<4x6xi32>
}

// CHECK-LABEL: func.func @computed
// CHECK: %[[P:.*]]:3 = attn.kernel @pack_bytes_kx_n6_w16x4x8_ordered ins(%{{.*}}) outs(%{{.*}} : tensor<?x?x64xi8>, tensor<?x16xi32>, tensor<?x?xi32>)
// CHECK: attn.kernel @gemm_i8_b_mx_kx_n6_pairs_4x2x8{{.*}} ins(%{{.*}}, %[[P]]#0, %[[P]]#1, %[[P]]#2 :
func.func @computed(%x: tensor<2x4x?xi8>, %w: tensor<2x?x6xi8>) -> tensor<2x4x6xi32> {
  %p = attn.integer_product %x by %w : tensor<2x4x?xi8> by tensor<2x?x6xi8> -> tensor<2x4x6xi32>
  return %p : tensor<2x4x6xi32>
}
}
