// RUN: attn-opt %s --attn-choose-gpu-rows=precision=int8 | FileCheck %s
// RUN: attn-opt %s --attn-choose-gpu-rows=precision=int8 | FileCheck %s --check-prefix=GLOBAL
// RUN: attn-opt %s --attn-choose-gpu-rows | FileCheck %s --check-prefix=PLAIN

// On a GPU bytes are multiplied whatever the CPU does: rows are rounded in the run, weights per column.
// CHECK: attn.product_report = [
// CHECK-SAME: reason = "it is too small to gain from bytes"
// CHECK-SAME: {arithmetic = "s8 rows in s32", kernel = "gpu_gemm_i8_mx_k80_n60_za_e{{[0-9a-f]*}}", node = "", storage = "s8 columns"}
// PLAIN-NOT: attn.kernel
module attributes {attn.target = #attn.target<triple = "x86_64-unknown-linux-gnu", cpu = "x86-64-v3", features = "", isa = "avx2", l1 = 32768, l2 = 524288>} {
attn.global @w : tensor<80x60xf32> = #attn.initializer<"w">
attn.global @few : tensor<80x15xf32> = #attn.initializer<"few">
// GLOBAL-DAG: attn.global @h_f32 : tensor<60x80xf32> = #attn.reshape<@h>
// GLOBAL-DAG: attn.global @h_f32_tbytes : tensor<60x80xi8> = #attn.block_codes<@h_f32, transposed = true, block = 80, bits = 8>
attn.global @h : tensor<60x80xbf16> = #attn.initializer<"h">

// CHECK-LABEL: func.func @rows
// CHECK-SAME: %[[X:[^:]*]]: tensor<?x80xf32>
// CHECK: attn.kernel @gpu_row_magnitudes_x_80 ins(%[[X]]
// CHECK: attn.kernel @gpu_gemm_i8_mx_k80_n60_za_e
// CHECK-NOT: arith.sitofp
// CHECK: linalg.matmul
func.func @rows(%x: tensor<?x80xf32>, %e: tensor<?x60xf32>, %f: tensor<?x15xf32>) -> (tensor<?x60xf32>, tensor<?x15xf32>) {
  %zero = arith.constant 0.0 : f32
  %w = attn.weight @w : tensor<80x60xf32>
  %few = attn.weight @few : tensor<80x15xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x60xf32>) -> tensor<?x60xf32>
  %c = linalg.matmul ins(%x, %w : tensor<?x80xf32>, tensor<80x60xf32>) outs(%z : tensor<?x60xf32>) -> tensor<?x60xf32>
  %v = linalg.fill ins(%zero : f32) outs(%f : tensor<?x15xf32>) -> tensor<?x15xf32>
  %d = linalg.matmul ins(%x, %few : tensor<?x80xf32>, tensor<80x15xf32>) outs(%v : tensor<?x15xf32>) -> tensor<?x15xf32>
  return %c, %d : tensor<?x60xf32>, tensor<?x15xf32>
}

// Rows and weights of 16 bits likewise, summed in f32; what rounds the result to 16 bits again is the end of the kernel.
// CHECK-LABEL: func.func @halves
// CHECK-SAME: %[[X:[^:]*]]: tensor<?x80xbf16>
// CHECK: attn.kernel @gpu_row_magnitudes_x_80_bf16 ins(%[[X]] : tensor<?x80xbf16>)
// CHECK: attn.kernel @gpu_gemm_i8_mx_k80_n60_za_e{{.*}} -> tensor<?x60xbf16>
// CHECK-NOT: arith.truncf
// CHECK: return
func.func @halves(%x: tensor<?x80xbf16>, %e: tensor<?x60xf32>, %f: tensor<?x60xbf16>) -> tensor<?x60xbf16> {
  %zero = arith.constant 0.0 : f32
  %h = attn.weight @h : tensor<60x80xbf16>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x60xf32>) -> tensor<?x60xf32>
  %c = linalg.contract indexing_maps = [affine_map<(s, n, k) -> (s, k)>, affine_map<(s, n, k) -> (n, k)>, affine_map<(s, n, k) -> (s, n)>]
      ins(%x, %h : tensor<?x80xbf16>, tensor<60x80xbf16>) outs(%z : tensor<?x60xf32>) -> tensor<?x60xf32>
  %t = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
    ins(%c : tensor<?x60xf32>) outs(%f : tensor<?x60xbf16>) {
  ^bb0(%a: f32, %o: bf16):
    %b = arith.truncf %a : f32 to bf16
    linalg.yield %b : bf16
  } -> tensor<?x60xbf16>
  return %t : tensor<?x60xbf16>
}
}
