// RUN: attn-opt %s --attn-round-rows | FileCheck %s
// RUN: attn-opt %s --attn-round-rows | FileCheck %s --check-prefix=GLOBAL
// RUN: attn-opt %s --attn-round-rows --attn-lower-products | FileCheck %s --check-prefix=KERNEL
// RUN: sed 's/isa = "avx512"/isa = "portable"/' %s | attn-opt --attn-round-rows | FileCheck %s --check-prefix=PLAIN
// PLAIN: reason = "the processor does not multiply bytes"
// PLAIN-NOT: attn.integer_product

// What stays f32 is said.
// CHECK: attn.product_report = [
// CHECK-SAME: reason = "it is too small to gain from bytes"
// CHECK-SAME: reason = "it is too small to gain from bytes"
// CHECK-SAME: reason = "its weight has more than two dimensions"
module attributes {attn.target = #attn.target<triple = "x86_64-unknown-linux-gnu", cpu = "x86-64-v4",
    features = "+avx512vnni,-prefer-256-bit", isa = "avx512", l1 = 49152, l2 = 2097152>} {
// GLOBAL-DAG: attn.global @w_bytes : tensor<80x60xi8> = #attn.block_codes<@w, transposed = false, block = 80, bits = 8>
// GLOBAL-DAG: attn.global @w_bytes_scales : tensor<1x60xf32> = #attn.block_scales<@w, transposed = false, block = 80, bits = 8>
// GLOBAL-DAG: attn.global @w_bytes_by_column : tensor<60xf32> = #attn.reshape<@w_bytes_scales>
// GLOBAL-DAG: attn.global @t_tbytes : tensor<70x80xi8> = #attn.block_codes<@t, transposed = true, block = 80, bits = 8>
attn.global @w : tensor<80x60xf32> = #attn.initializer<"w">
attn.global @t : tensor<70x80xf32> = #attn.initializer<"t">
attn.global @few : tensor<80x15xf32> = #attn.initializer<"few">
attn.global @short : tensor<31x60xf32> = #attn.initializer<"short">
attn.global @u : tensor<80x6x10xf32> = #attn.initializer<"u">

// Rows are rounded once for both products; what follows one is its epilogue.
// CHECK-LABEL: func.func @rows
// CHECK: math.absf
// CHECK: %[[X:.*]] = linalg.generic {{.*}} outs(%{{.*}} : tensor<?x80xi8>)
// CHECK-NOT: math.absf
// CHECK: attn.integer_product %[[X]] zero %{{.*}} by %{{.*}} : tensor<?x80xi8> zero tensor<i8> by tensor<80x60xi8> -> tensor<?x60xi32>
// CHECK: linalg.generic
// CHECK: arith.sitofp
// CHECK-NOT: linalg.generic
// CHECK: arith.addf
// CHECK: attn.integer_product %[[X]] zero %{{.*}} by %{{.*}} transposed
// CHECK: return
// KERNEL-LABEL: func.func @rows
// KERNEL: attn.kernel @gemm_i8_mx_k80_n60{{.*}}_e
// KERNEL: attn.kernel @gemm_i8_mx_k80_n70{{.*}}_e
func.func @rows(%x: tensor<?x80xf32>, %b: tensor<60xf32>, %e: tensor<?x60xf32>, %f: tensor<?x70xf32>) -> (tensor<?x60xf32>, tensor<?x70xf32>) {
  %zero = arith.constant 0.0 : f32
  %w = attn.weight @w : tensor<80x60xf32>
  %t = attn.weight @t : tensor<70x80xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x60xf32>) -> tensor<?x60xf32>
  %c = linalg.matmul ins(%x, %w : tensor<?x80xf32>, tensor<80x60xf32>) outs(%z : tensor<?x60xf32>) -> tensor<?x60xf32>
  %y = linalg.generic {indexing_maps = [affine_map<(i, n) -> (i, n)>, affine_map<(i, n) -> (n)>, affine_map<(i, n) -> (i, n)>],
                       iterator_types = ["parallel", "parallel"]}
      ins(%c, %b : tensor<?x60xf32>, tensor<60xf32>) outs(%e : tensor<?x60xf32>) {
    ^bb0(%sum: f32, %bias: f32, %out: f32):
      %0 = arith.addf %sum, %bias : f32
      linalg.yield %0 : f32
  } -> tensor<?x60xf32>
  %v = linalg.fill ins(%zero : f32) outs(%f : tensor<?x70xf32>) -> tensor<?x70xf32>
  %d = linalg.contract indexing_maps = [affine_map<(s, n, k) -> (s, k)>, affine_map<(s, n, k) -> (n, k)>, affine_map<(s, n, k) -> (s, n)>]
      ins(%x, %t : tensor<?x80xf32>, tensor<70x80xf32>) outs(%v : tensor<?x70xf32>) -> tensor<?x70xf32>
  return %y, %d : tensor<?x60xf32>, tensor<?x70xf32>
}

// Near misses: 15 columns, 31 terms, columns in two dimensions, and operands that the run computes.
// CHECK-LABEL: func.func @others
// CHECK-NOT: attn.integer_product
// CHECK: return
func.func @others(%x: tensor<4x80xf32>, %s: tensor<4x31xf32>, %a: tensor<80x60xf32>, %e: tensor<4x15xf32>, %f: tensor<4x60xf32>, %g: tensor<4x6x10xf32>)
    -> (tensor<4x15xf32>, tensor<4x60xf32>, tensor<4x6x10xf32>, tensor<4x60xf32>) {
  %zero = arith.constant 0.0 : f32
  %few = attn.weight @few : tensor<80x15xf32>
  %short = attn.weight @short : tensor<31x60xf32>
  %u = attn.weight @u : tensor<80x6x10xf32>
  %z0 = linalg.fill ins(%zero : f32) outs(%e : tensor<4x15xf32>) -> tensor<4x15xf32>
  %0 = linalg.matmul ins(%x, %few : tensor<4x80xf32>, tensor<80x15xf32>) outs(%z0 : tensor<4x15xf32>) -> tensor<4x15xf32>
  %z1 = linalg.fill ins(%zero : f32) outs(%f : tensor<4x60xf32>) -> tensor<4x60xf32>
  %1 = linalg.matmul ins(%s, %short : tensor<4x31xf32>, tensor<31x60xf32>) outs(%z1 : tensor<4x60xf32>) -> tensor<4x60xf32>
  %z2 = linalg.fill ins(%zero : f32) outs(%g : tensor<4x6x10xf32>) -> tensor<4x6x10xf32>
  %2 = linalg.contract indexing_maps = [affine_map<(i, m, n, k) -> (i, k)>, affine_map<(i, m, n, k) -> (k, m, n)>, affine_map<(i, m, n, k) -> (i, m, n)>]
      ins(%x, %u : tensor<4x80xf32>, tensor<80x6x10xf32>) outs(%z2 : tensor<4x6x10xf32>) -> tensor<4x6x10xf32>
  %3 = linalg.matmul ins(%x, %a : tensor<4x80xf32>, tensor<80x60xf32>) outs(%z1 : tensor<4x60xf32>) -> tensor<4x60xf32>
  return %0, %1, %2, %3 : tensor<4x15xf32>, tensor<4x60xf32>, tensor<4x6x10xf32>, tensor<4x60xf32>
}
}
