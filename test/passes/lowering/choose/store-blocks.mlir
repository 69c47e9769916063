// RUN: attn-opt %s --attn-store-blocks | FileCheck %s
// RUN: attn-opt %s --attn-store-blocks | FileCheck %s --check-prefix=GLOBAL
// RUN: attn-opt %s --attn-store-blocks="weights=int4:16 narrow-rows" | FileCheck %s --check-prefix=NARROW
// RUN: attn-opt %s --attn-store-blocks=weights=int8 | FileCheck %s --check-prefix=BYTES
// RUN: attn-opt %s --attn-store-blocks=weights=int8:16 | FileCheck %s --check-prefix=GROUPS
// RUN: not attn-opt %s --attn-store-blocks=weights=bf16 2>&1 | FileCheck %s --check-prefix=WRONG
// WRONG: error: expects weights in int4:16, int4:32, int4:64, int4:128, int4:256, int8 or int8:GROUP, got 'bf16'

// A scale for each column, or for each column's 16 rows.
// BYTES-DAG: attn.global @w_blocks80_bytes : tensor<80x6xi8> = #attn.block_codes<@w, transposed = false, block = 80, bits = 8>
// BYTES-DAG: attn.global @t_tblocks80_bytes_scales : tensor<6x1xf32> = #attn.block_scales<@t, transposed = true, block = 80, bits = 8>
// BYTES-DAG: attn.block_product %arg0 by %{{.*}} scales %{{.*}} block 80 bits 8 : tensor<?x80xf32> by tensor<80x6xi8> scales tensor<1x6xf32>
// GROUPS-DAG: attn.block_product %arg0 by %{{.*}} scales %{{.*}} block 16 bits 8 : tensor<?x80xf32> by tensor<80x6xi8> scales tensor<5x6xf32>

// What stays f32 is said.
// CHECK: module attributes {attn.product_report = [
// CHECK-SAME: reason = "its weight has more than two dimensions"
// CHECK-SAME: reason = "rows are not the first dimensions of its operand and its result"
// GLOBAL-DAG: attn.global @w_blocks32 : tensor<80x6xi8> = #attn.block_codes<@w, transposed = false, block = 32, bits = 4>
// GLOBAL-DAG: attn.global @w_blocks32_scales : tensor<3x6xf32> = #attn.block_scales<@w, transposed = false, block = 32, bits = 4>
// GLOBAL-DAG: attn.global @t_tblocks32 : tensor<6x80xi8> = #attn.block_codes<@t, transposed = true, block = 32, bits = 4>
// GLOBAL-DAG: attn.global @t_tblocks32_scales : tensor<6x3xf32> = #attn.block_scales<@t, transposed = true, block = 32, bits = 4>
attn.global @w : tensor<80x6xf32> = #attn.initializer<"w">
attn.global @t : tensor<6x80xf32> = #attn.initializer<"t">
attn.global @u : tensor<80x2x3xf32> = #attn.initializer<"u">

// CHECK-LABEL: func.func @rows
// CHECK-DAG: %[[Q:.*]] = attn.weight @w_blocks32 : tensor<80x6xi8>
// CHECK-DAG: %[[S:.*]] = attn.weight @w_blocks32_scales : tensor<3x6xf32>
// CHECK: attn.block_product %arg0 by %[[Q]] scales %[[S]] block 32 bits 4 : tensor<?x80xf32>
// NARROW-LABEL: func.func @rows
// NARROW: attn.block_product %arg0 by %{{.*}} scales %{{.*}} block 16 bits 4 narrow_rows : tensor<?x80xf32> by tensor<80x6xi8> scales tensor<5x6xf32>
func.func @rows(%x: tensor<?x80xf32>, %e: tensor<?x6xf32>) -> tensor<?x6xf32> {
  %zero = arith.constant 0.0 : f32
  %w = attn.weight @w : tensor<80x6xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x6xf32>) -> tensor<?x6xf32>
  %y = linalg.matmul ins(%x, %w : tensor<?x80xf32>, tensor<80x6xf32>) outs(%z : tensor<?x6xf32>) -> tensor<?x6xf32>
  return %y : tensor<?x6xf32>
}

// CHECK-LABEL: func.func @transposed
// CHECK: attn.block_product %arg0 by %{{.*}} scales %{{.*}} block 32 bits 4 transposed : tensor<2x?x80xf32>
func.func @transposed(%x: tensor<2x?x80xf32>, %e: tensor<2x?x6xf32>) -> tensor<2x?x6xf32> {
  %zero = arith.constant 0.0 : f32
  %w = attn.weight @t : tensor<6x80xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<2x?x6xf32>) -> tensor<2x?x6xf32>
  %y = linalg.contract indexing_maps = [affine_map<(b, s, n, k) -> (b, s, k)>, affine_map<(b, s, n, k) -> (n, k)>, affine_map<(b, s, n, k) -> (b, s, n)>]
      ins(%x, %w : tensor<2x?x80xf32>, tensor<6x80xf32>) outs(%z : tensor<2x?x6xf32>) -> tensor<2x?x6xf32>
  return %y : tensor<2x?x6xf32>
}

// Near misses: columns in two dimensions, a result that is transposed, and operands that the run computes.
// CHECK-LABEL: func.func @others
// CHECK-NOT: attn.block_product
// CHECK: return
func.func @others(%x: tensor<4x80xf32>, %a: tensor<80x6xf32>, %e: tensor<4x2x3xf32>, %f: tensor<6x4xf32>, %g: tensor<4x6xf32>)
    -> (tensor<4x2x3xf32>, tensor<6x4xf32>, tensor<4x6xf32>) {
  %zero = arith.constant 0.0 : f32
  %u = attn.weight @u : tensor<80x2x3xf32>
  %w = attn.weight @w : tensor<80x6xf32>
  %y = linalg.fill ins(%zero : f32) outs(%e : tensor<4x2x3xf32>) -> tensor<4x2x3xf32>
  %0 = linalg.contract indexing_maps = [affine_map<(i, m, n, k) -> (i, k)>, affine_map<(i, m, n, k) -> (k, m, n)>, affine_map<(i, m, n, k) -> (i, m, n)>]
      ins(%x, %u : tensor<4x80xf32>, tensor<80x2x3xf32>) outs(%y : tensor<4x2x3xf32>) -> tensor<4x2x3xf32>
  %z = linalg.fill ins(%zero : f32) outs(%f : tensor<6x4xf32>) -> tensor<6x4xf32>
  %1 = linalg.contract indexing_maps = [affine_map<(i, n, k) -> (i, k)>, affine_map<(i, n, k) -> (k, n)>, affine_map<(i, n, k) -> (n, i)>]
      ins(%x, %w : tensor<4x80xf32>, tensor<80x6xf32>) outs(%z : tensor<6x4xf32>) -> tensor<6x4xf32>
  %v = linalg.fill ins(%zero : f32) outs(%g : tensor<4x6xf32>) -> tensor<4x6xf32>
  %2 = linalg.matmul ins(%x, %a : tensor<4x80xf32>, tensor<80x6xf32>) outs(%v : tensor<4x6xf32>) -> tensor<4x6xf32>
  return %0, %1, %2 : tensor<4x2x3xf32>, tensor<6x4xf32>, tensor<4x6xf32>
}
