// RUN: attn-opt %s --attn-lower-products | FileCheck %s
// RUN: attn-opt %s --attn-lower-products | FileCheck %s --check-prefix=GLOBAL
// RUN: attn-opt %s --attn-lower-products | FileCheck %s --check-prefix=FLOPS --implicit-check-not=attn.flops

// Products of bytes on tiles (AMX): the rows are packed once for those that share them, and panels are 32 columns wide.
// A zero point of the matrix asks for the sums of the rows, which come with them.
module attributes {attn.target = #attn.target<triple = "x86_64-unknown-linux-gnu", cpu = "x86-64-v4",
    features = "+amx-int8,+amx-tile,+avx512vnni,-prefer-256-bit", isa = "avx512", l1 = 49152, l2 = 2097152>} {

attn.global @v : tensor<100x6xi8> = #attn.initializer<"v">
attn.global @w : tensor<100x6xi8> = #attn.initializer<"w">
// GLOBAL-DAG: attn.global @v_bytes : tensor<1x25x128xi8> = #attn.byte_panels<@v, transposed = false, width = 32, group = 4, unsigned = false>

// CHECK-LABEL: func.func @shared
// CHECK-SAME: %[[X:[^:]*]]: tensor<?x100xi8>
// CHECK: tensor.empty(%{{.*}}) : tensor<?x?x2x2048xi8>
// CHECK: %[[ROWS:.*]]:2 = attn.kernel @pack_rows_mx_k100 ins(%[[X]] : tensor<?x100xi8>) outs(%{{.*}} : tensor<?x?x2x2048xi8>, tensor<?xi32>)
// CHECK: attn.kernel @gemm_i8_mx_k100_n6_quads_12x2x16_c{{[0-9]+}}_amx{{[0-9]+}} ins(%[[X]], %[[ROWS]]#0, %{{.*}} : {{.*}}) outs(
// CHECK-NOT: @pack_rows
// CHECK: attn.kernel @gemm_i8_mx_k100_n6_quads_12x2x16_zs_c{{[0-9]+}}_amx{{[0-9]+}} ins(%[[X]], %[[ROWS]]#0, %[[ROWS]]#1,
func.func @shared(%x: tensor<?x100xi8>, %z: tensor<i8>) -> (tensor<?x6xi32>, tensor<?x6xi32>) {
  %v = attn.weight @v : tensor<100x6xi8>
  %w = attn.weight @w : tensor<100x6xi8>
  %p = attn.integer_product %x by %v : tensor<?x100xi8> by tensor<100x6xi8> -> tensor<?x6xi32>
  %q = attn.integer_product %x by %w zero %z : tensor<?x100xi8> by tensor<100x6xi8> zero tensor<i8> -> tensor<?x6xi32>
  return %p, %q : tensor<?x6xi32>, tensor<?x6xi32>
}

// Few rows have no tiles, on the same panels.
// CHECK-LABEL: func.func @few
// CHECK-NOT: @pack_rows
// CHECK: %[[P:.*]] = attn.weight @v_bytes : tensor<1x25x128xi8>
// CHECK: attn.kernel @gemm_i8_m7_k100_n6_quads_12x2x16 ins(%{{.*}}, %[[P]],
// How much a product computes is said where its sizes are known: 2 * 7 * 100 * 6.
// FLOPS: attn.kernel @gemm_i8_m7_k100_n6_quads_12x2x16 {{.*}}attn.flops = array<i64: 8400>
func.func @few(%x: tensor<7x100xi8>) -> tensor<7x6xi32> {
  %v = attn.weight @v : tensor<100x6xi8>
  %p = attn.integer_product %x by %v : tensor<7x100xi8> by tensor<100x6xi8> -> tensor<7x6xi32>
  return %p : tensor<7x6xi32>
}

// What the run computes on both sides: the rows of each matrix by themselves.
// CHECK-LABEL: func.func @computed
// CHECK-SAME: %[[X:[^:]*]]: tensor<?x5x9xi8>
// CHECK: %[[M:.*]] = tensor.collapse_shape %[[X]] {{\[\[}}0, 1], [2]]
// CHECK: tensor.empty(%{{.*}}, %{{.*}}) : tensor<?x?x1x2048xi8>
// CHECK: %[[ROWS:.*]]:2 = attn.kernel @pack_rows_mx_k9 ins(%[[M]]
// CHECK: attn.kernel @gemm_i8_b_mx_k9_n6_quads_12x2x16_c{{[0-9]+}}_amx{{[0-9]+}} ins(%[[M]], %[[ROWS]]#0,
func.func @computed(%x: tensor<?x5x9xi8>, %y: tensor<?x9x6xi8>) -> tensor<?x5x6xi32> {
  %p = attn.integer_product %x by %y : tensor<?x5x9xi8> by tensor<?x9x6xi8> -> tensor<?x5x6xi32>
  return %p : tensor<?x5x6xi32>
}
}
