// RUN: attn-opt %s --attn-store-float8 --mlir-print-local-scope | FileCheck %s
// RUN: attn-opt %s --attn-store-float8 --mlir-print-local-scope | FileCheck %s --check-prefix=GLOBAL

// What stays is said.
// CHECK: attn.product_report = [{arithmetic = "f32", node = "", reason = "the weight is no matrix", storage = "f32"}, {arithmetic = "f16", node = "", reason = "it is not summed in f32, of f32, f16 or bf16", storage = "f16"}]
// A matrix lies N x K, in f32 before it is rounded.
// GLOBAL-DAG: attn.global @w_t : tensor<6x80xf32> = #attn.transpose<@w, [1, 0]>
// GLOBAL-DAG: attn.global @w_t_e4m3 : tensor<6x80xf8E4M3FN> = #attn.block_codes<@w_t, transposed = true, block = 80, bits = 8>
// GLOBAL-DAG: attn.global @w_t_e4m3_scales : tensor<6x1xf32> = #attn.block_scales<@w_t, transposed = true, block = 80, bits = 8>
// GLOBAL-DAG: attn.global @h_f32 : tensor<6x80xf32> = #attn.reshape<@h>
// GLOBAL-DAG: attn.global @h_f32_e4m3 : tensor<6x80xf8E4M3FN> = #attn.block_codes<@h_f32, transposed = true, block = 80, bits = 8>
attn.global @w : tensor<80x6xf32> = #attn.initializer<"w">
attn.global @h : tensor<6x80xf16> = #attn.initializer<"h">
attn.global @u : tensor<80x2x3xf32> = #attn.initializer<"u">

// The scales are those of columns, in the op behind the product.
// CHECK-LABEL: func.func @rows
// CHECK-SAME: %[[X:[^:]*]]: tensor<?x80xf32>
// CHECK: %[[W:.*]] = attn.weight @w_t_e4m3 : tensor<6x80xf8E4M3FN>
// CHECK: %[[S:.*]] = attn.weight @w_t_e4m3_scales : tensor<6x1xf32>
// CHECK: %[[P:.*]] = linalg.contract indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d2)>, affine_map<(d0, d1, d2) -> (d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1)>] ins(%[[X]], %[[W]] : tensor<?x80xf32>, tensor<6x80xf8E4M3FN>)
// CHECK: linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1, 0)>, affine_map<(d0, d1) -> (d0, d1)>]{{.*}} ins(%[[P]], %[[S]] : tensor<?x6xf32>, tensor<6x1xf32>)
// CHECK: arith.mulf
// CHECK-NEXT: math.tanh
// CHECK-NOT: linalg.generic
// CHECK: return
func.func @rows(%x: tensor<?x80xf32>, %e: tensor<?x6xf32>) -> tensor<?x6xf32> {
  %zero = arith.constant 0.0 : f32
  %w = attn.weight @w : tensor<80x6xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x6xf32>) -> tensor<?x6xf32>
  %c = linalg.matmul ins(%x, %w : tensor<?x80xf32>, tensor<80x6xf32>) outs(%z : tensor<?x6xf32>) -> tensor<?x6xf32>
  %t = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
    ins(%c : tensor<?x6xf32>) outs(%e : tensor<?x6xf32>) {
  ^bb0(%a: f32, %o: f32):
    %b = math.tanh %a : f32
    linalg.yield %b : f32
  } -> tensor<?x6xf32>
  return %t : tensor<?x6xf32>
}

// On the left, of f16, its columns behind the sum in the result.
// CHECK-LABEL: func.func @left
// CHECK: attn.weight @h_f32_e4m3 : tensor<6x80xf8E4M3FN>
// CHECK: linalg.contract {{.*}} ins(%arg0, %{{.*}} : tensor<?x80xf16>, tensor<6x80xf8E4M3FN>) {{.*}} -> tensor<6x?xf32>
// CHECK: linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, 0)>, affine_map<(d0, d1) -> (d0, d1)>]
func.func @left(%x: tensor<?x80xf16>, %e: tensor<6x?xf32>) -> tensor<6x?xf32> {
  %zero = arith.constant 0.0 : f32
  %h = attn.weight @h : tensor<6x80xf16>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<6x?xf32>) -> tensor<6x?xf32>
  %c = linalg.contract indexing_maps = [affine_map<(n, s, k) -> (n, k)>, affine_map<(n, s, k) -> (s, k)>, affine_map<(n, s, k) -> (n, s)>]
    ins(%h, %x : tensor<6x80xf16>, tensor<?x80xf16>) outs(%z : tensor<6x?xf32>) -> tensor<6x?xf32>
  return %c : tensor<6x?xf32>
}

// Near misses: columns in two dimensions, sums in f16, and operands that the run computes.
// CHECK-LABEL: func.func @others
// CHECK-NOT: f8E4M3FN
// CHECK: return
func.func @others(%x: tensor<4x80xf32>, %y: tensor<4x80xf16>, %a: tensor<80x6xf32>, %e: tensor<4x2x3xf32>, %f: tensor<4x6xf16>, %g: tensor<4x6xf32>)
    -> (tensor<4x2x3xf32>, tensor<4x6xf16>, tensor<4x6xf32>) {
  %zero = arith.constant 0.0 : f32
  %half = arith.constant 0.0 : f16
  %u = attn.weight @u : tensor<80x2x3xf32>
  %h = attn.weight @h : tensor<6x80xf16>
  %z0 = linalg.fill ins(%zero : f32) outs(%e : tensor<4x2x3xf32>) -> tensor<4x2x3xf32>
  %0 = linalg.contract indexing_maps = [affine_map<(i, m, n, k) -> (i, k)>, affine_map<(i, m, n, k) -> (k, m, n)>, affine_map<(i, m, n, k) -> (i, m, n)>]
      ins(%x, %u : tensor<4x80xf32>, tensor<80x2x3xf32>) outs(%z0 : tensor<4x2x3xf32>) -> tensor<4x2x3xf32>
  %z1 = linalg.fill ins(%half : f16) outs(%f : tensor<4x6xf16>) -> tensor<4x6xf16>
  %1 = linalg.contract indexing_maps = [affine_map<(i, n, k) -> (i, k)>, affine_map<(i, n, k) -> (n, k)>, affine_map<(i, n, k) -> (i, n)>]
      ins(%y, %h : tensor<4x80xf16>, tensor<6x80xf16>) outs(%z1 : tensor<4x6xf16>) -> tensor<4x6xf16>
  %z2 = linalg.fill ins(%zero : f32) outs(%g : tensor<4x6xf32>) -> tensor<4x6xf32>
  %2 = linalg.matmul ins(%x, %a : tensor<4x80xf32>, tensor<80x6xf32>) outs(%z2 : tensor<4x6xf32>) -> tensor<4x6xf32>
  return %0, %1, %2 : tensor<4x2x3xf32>, tensor<4x6xf16>, tensor<4x6xf32>
}
