// RUN: attn-opt %s --attn-lower-contractions --split-input-file | FileCheck %s

// A transposed weight, dynamic batch and sequence, bias and residual: one kernel.
#x = affine_map<(b, s, n, k) -> (b, s, k)>
#wt = affine_map<(b, s, n, k) -> (n, k)>
#y = affine_map<(b, s, n, k) -> (b, s, n)>
#id = affine_map<(b, s, n) -> (b, s, n)>
#col = affine_map<(b, s, n) -> (n)>
module attributes {attn.target = #attn.target<triple = "x86_64-unknown-linux-gnu", cpu = "x86-64-v4",
    features = "", isa = "avx512", l1 = 49152, l2 = 1048576>} {
  attn.global @w : tensor<100x64xf32> = #attn.initializer<"w">
  attn.global @bias : tensor<100xf32> = #attn.initializer<"bias">

  // CHECK-LABEL: func.func @bias_residual
  // CHECK-SAME:    %[[X:.*]]: tensor<?x?x64xf32>, %[[R:.*]]: tensor<?x?x100xf32>
  // CHECK-NOT:   linalg
  // CHECK-DAG:   %[[BIAS:.*]] = attn.weight @bias
  // CHECK-DAG:   %[[A:.*]] = tensor.collapse_shape %[[X]] {{\[}}[0, 1], [2]] : tensor<?x?x64xf32> into tensor<?x64xf32>
  // CHECK-DAG:   %[[W:.*]] = attn.weight @w_tpanels64 : tensor<2x64x64xf32>
  // CHECK-DAG:   %[[R2:.*]] = tensor.collapse_shape %[[R]] {{\[}}[0, 1], [2]] : tensor<?x?x100xf32> into tensor<?x100xf32>
  // CHECK-DAG:   %[[M:.*]] = arith.muli %[[B:.*]], %[[S:.*]] : index
  // CHECK-DAG:   %[[E:.*]] = tensor.empty(%[[M]]) : tensor<?x100xf32>
  // CHECK:       %[[C:.*]] = attn.kernel @[[KERNEL:gemm_f32_mx_k64_n100_fma_6x4x16_next_c[0-9]+_e[0-9a-f]+]]
  // CHECK-SAME:    ins(%[[A]], %[[W]], %[[BIAS]], %[[R2]], %{{.*}} : {{.*}}, tensor<?x?x?xf32>) outs(%[[E]] : tensor<?x100xf32>) elementwise [3]
  // CHECK:       %[[Y:.*]] = tensor.expand_shape %[[C]] {{\[}}[0, 1], [2]] output_shape [%[[B]], %[[S]], 100]
  // CHECK-NOT:   linalg
  // CHECK:       return %[[Y]]
  func.func @bias_residual(%x: tensor<?x?x64xf32>, %r: tensor<?x?x100xf32>, %b: index, %s: index) -> tensor<?x?x100xf32> {
    %zero = arith.constant 0.0 : f32
    %w = attn.weight @w : tensor<100x64xf32>
    %bias = attn.weight @bias : tensor<100xf32>
    %e = tensor.empty(%b, %s) : tensor<?x?x100xf32>
    %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x?x100xf32>) -> tensor<?x?x100xf32>
    %c = linalg.contract indexing_maps = [#x, #wt, #y] ins(%x, %w : tensor<?x?x64xf32>, tensor<100x64xf32>)
        outs(%z : tensor<?x?x100xf32>) -> tensor<?x?x100xf32>
    %y = linalg.generic {indexing_maps = [#col, #id, #id, #id], iterator_types = ["parallel", "parallel", "parallel"]}
        ins(%bias, %c, %r : tensor<100xf32>, tensor<?x?x100xf32>, tensor<?x?x100xf32>) outs(%e : tensor<?x?x100xf32>) {
    ^bb0(%p: f32, %q: f32, %t: f32, %o: f32):
      %0 = arith.addf %p, %q : f32
      %1 = arith.addf %0, %t : f32
      linalg.yield %1 : f32
    } -> tensor<?x?x100xf32>
    return %y : tensor<?x?x100xf32>
  }

  // The same contraction again: the panels are shared, the kernel is another
  // without an epilogue. Two users: nothing is fused.
  // CHECK-LABEL: func.func @two_users
  // CHECK:       %[[W2:.*]] = attn.weight @w_tpanels64
  // CHECK:       attn.kernel @[[PLAIN:gemm_f32_mx_k64_n100_fma_6x4x16_next_c[0-9]+]] ins
  // CHECK-NOT:   elementwise
  // CHECK:       linalg.generic
  func.func @two_users(%x: tensor<?x?x64xf32>, %b: index, %s: index) -> (tensor<?x?x100xf32>, tensor<?x?x100xf32>) {
    %zero = arith.constant 0.0 : f32
    %w = attn.weight @w : tensor<100x64xf32>
    %e = tensor.empty(%b, %s) : tensor<?x?x100xf32>
    %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x?x100xf32>) -> tensor<?x?x100xf32>
    %c = linalg.contract indexing_maps = [#x, #wt, #y] ins(%x, %w : tensor<?x?x64xf32>, tensor<100x64xf32>)
        outs(%z : tensor<?x?x100xf32>) -> tensor<?x?x100xf32>
    %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel"]}
        ins(%c : tensor<?x?x100xf32>) outs(%e : tensor<?x?x100xf32>) {
    ^bb0(%p: f32, %o: f32):
      %0 = arith.negf %p : f32
      linalg.yield %0 : f32
    } -> tensor<?x?x100xf32>
    return %c, %y : tensor<?x?x100xf32>, tensor<?x?x100xf32>
  }
  // CHECK-DAG: attn.global @w_tpanels64 : tensor<2x64x64xf32> = #attn.pack_panels<@w, transposed = true, width = 64>
  // CHECK-DAG: func.func private @[[KERNEL]](%{{.*}}: memref<?x64xf32>, %{{.*}}: memref<2x64x64xf32>, %{{.*}}: memref<100xf32>, %{{.*}}: memref<?x100xf32>, %{{.*}}: memref<?x?x?xf32>, %{{.*}}: memref<?x100xf32>) attributes {attn.kernel, attn.product}
  // CHECK-DAG: func.func private @[[PLAIN]](%{{.*}}: memref<?x64xf32>, %{{.*}}: memref<2x64x64xf32>, %{{.*}}: memref<?x?x?xf32>, %{{.*}}: memref<?x100xf32>) attributes {attn.kernel, attn.product}
}

// -----

// No target: portable tiles. linalg.matmul, static rows, a scalar and a row of
// the epilogue with unit dimensions.
#id = affine_map<(i, j) -> (i, j)>
#one = affine_map<(i, j) -> (0, 0)>
#col = affine_map<(i, j) -> (0, j)>
#row = affine_map<(i, j) -> (i, 0)>
// CHECK-LABEL: func.func @unit_dimensions
// CHECK-SAME:    %[[X:.*]]: tensor<7x5xf32>, %[[C:.*]]: tensor<1x9xf32>, %[[R:.*]]: tensor<7x1xf32>, %[[S:.*]]: tensor<1x1xf32>
// CHECK-DAG:   %[[C1:.*]] = tensor.collapse_shape %[[C]] {{\[}}[0, 1]]
// CHECK-DAG:   %[[R1:.*]] = tensor.collapse_shape %[[R]] {{\[}}[0, 1]]
// CHECK-DAG:   %[[S1:.*]] = tensor.collapse_shape %[[S]] [] : tensor<1x1xf32> into tensor<f32>
// CHECK-DAG:   %[[W:.*]] = attn.weight @w_panels8 : tensor<2x5x8xf32>
// CHECK:       attn.kernel @gemm_f32_m7_k5_n9_mul_4x2x4_next_e{{[0-9a-f]+}} ins(%[[X]], %[[W]], %[[C1]], %[[R1]], %[[S1]], %{{.*}} :
attn.global @w : tensor<5x9xf32> = #attn.initializer<"w">
func.func @unit_dimensions(%x: tensor<7x5xf32>, %c: tensor<1x9xf32>, %r: tensor<7x1xf32>, %s: tensor<1x1xf32>) -> tensor<7x9xf32> {
  %zero = arith.constant 0.0 : f32
  %w = attn.weight @w : tensor<5x9xf32>
  %e = tensor.empty() : tensor<7x9xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<7x9xf32>) -> tensor<7x9xf32>
  %m = linalg.matmul ins(%x, %w : tensor<7x5xf32>, tensor<5x9xf32>) outs(%z : tensor<7x9xf32>) -> tensor<7x9xf32>
  %y = linalg.generic {indexing_maps = [#id, #col, #row, #one, #id], iterator_types = ["parallel", "parallel"]}
      ins(%m, %c, %r, %s : tensor<7x9xf32>, tensor<1x9xf32>, tensor<7x1xf32>, tensor<1x1xf32>) outs(%e : tensor<7x9xf32>) {
  ^bb0(%p: f32, %q: f32, %t: f32, %u: f32, %o: f32):
    %0 = arith.addf %p, %q : f32
    %1 = arith.mulf %0, %t : f32
    %2 = arith.maximumf %1, %u : f32
    linalg.yield %2 : f32
  } -> tensor<7x9xf32>
  return %y : tensor<7x9xf32>
}

// -----

// The weight is the left operand and its dimension comes first in the result:
// the activation is transposed before, the result after.
#w = affine_map<(n, m, k) -> (n, k)>
#x = affine_map<(n, m, k) -> (k, m)>
#y = affine_map<(n, m, k) -> (n, m)>
// CHECK-LABEL: func.func @weight_left
// CHECK-SAME:    %[[X:.*]]: tensor<5x?xf32>
// CHECK:       %[[A:.*]] = linalg.transpose ins(%[[X]] : tensor<5x?xf32>) outs(%{{.*}} : tensor<?x5xf32>) permutation = [1, 0]
// CHECK:       %[[C:.*]] = attn.kernel @gemm_f32_mx_k5_n9_mul_4x2x4_next_c{{[0-9]+}} ins(%[[A]], %{{.*}} : tensor<?x5xf32>, tensor<2x5x8xf32>, tensor<?x?x?xf32>)
// CHECK:       linalg.transpose ins(%[[C]] : tensor<?x9xf32>) outs(%{{.*}} : tensor<9x?xf32>) permutation = [1, 0]
// CHECK:       attn.global @w_tpanels8 {{.*}} transposed = true
attn.global @w : tensor<9x5xf32> = #attn.initializer<"w">
func.func @weight_left(%x: tensor<5x?xf32>, %n: index) -> tensor<9x?xf32> {
  %zero = arith.constant 0.0 : f32
  %w = attn.weight @w : tensor<9x5xf32>
  %e = tensor.empty(%n) : tensor<9x?xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<9x?xf32>) -> tensor<9x?xf32>
  %c = linalg.contract indexing_maps = [#w, #x, #y] ins(%w, %x : tensor<9x5xf32>, tensor<5x?xf32>)
      outs(%z : tensor<9x?xf32>) -> tensor<9x?xf32>
  return %c : tensor<9x?xf32>
}

// -----

// Two summed dimensions and two columns: the weight is one matrix of its groups.
#x = affine_map<(s, h, d, p, q) -> (h, s, d)>
#w = affine_map<(s, h, d, p, q) -> (h, d, p, q)>
#y = affine_map<(s, h, d, p, q) -> (s, p, q)>
// CHECK-LABEL: func.func @grouped
// CHECK:       %[[T:.*]] = linalg.transpose {{.*}} permutation = [1, 0, 2]
// CHECK:       %[[A:.*]] = tensor.collapse_shape %[[T]] {{\[}}[0], [1, 2]] : tensor<?x4x8xf32> into tensor<?x32xf32>
// CHECK:       %[[C:.*]] = attn.kernel @gemm_f32_mx_k32_n6_mul_4x2x4
// CHECK:       tensor.expand_shape %[[C]] {{\[}}[0], [1, 2]] output_shape [%{{.*}}, 2, 3] : tensor<?x6xf32> into tensor<?x2x3xf32>
// CHECK-DAG:   attn.global @w_matrix : tensor<32x6xf32> = #attn.reshape<@w>
// CHECK-DAG:   attn.global @w_matrix_panels8 : tensor<1x32x8xf32> = #attn.pack_panels<@w_matrix, transposed = false, width = 8>
attn.global @w : tensor<4x8x2x3xf32> = #attn.initializer<"w">
func.func @grouped(%x: tensor<4x?x8xf32>, %n: index) -> tensor<?x2x3xf32> {
  %zero = arith.constant 0.0 : f32
  %w = attn.weight @w : tensor<4x8x2x3xf32>
  %e = tensor.empty(%n) : tensor<?x2x3xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x2x3xf32>) -> tensor<?x2x3xf32>
  %c = linalg.contract indexing_maps = [#x, #w, #y] ins(%x, %w : tensor<4x?x8xf32>, tensor<4x8x2x3xf32>)
      outs(%z : tensor<?x2x3xf32>) -> tensor<?x2x3xf32>
  return %c : tensor<?x2x3xf32>
}

// -----

// A vector by a matrix: one row.
#x = affine_map<(n, k) -> (k)>
#w = affine_map<(n, k) -> (k, n)>
#y = affine_map<(n, k) -> (n)>
// CHECK-LABEL: func.func @vector
// CHECK:       tensor.expand_shape %{{.*}} {{\[}}[0, 1]] output_shape [1, 5] : tensor<5xf32> into tensor<1x5xf32>
// CHECK:       %[[C:.*]] = attn.kernel @gemm_f32_m1_k5_n9_mul_4x2x4
// CHECK:       tensor.collapse_shape %[[C]] {{\[}}[0, 1]] : tensor<1x9xf32> into tensor<9xf32>
attn.global @w : tensor<5x9xf32> = #attn.initializer<"w">
func.func @vector(%x: tensor<5xf32>) -> tensor<9xf32> {
  %zero = arith.constant 0.0 : f32
  %w = attn.weight @w : tensor<5x9xf32>
  %e = tensor.empty() : tensor<9xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<9xf32>) -> tensor<9xf32>
  %c = linalg.contract indexing_maps = [#x, #w, #y] ins(%x, %w : tensor<5xf32>, tensor<5x9xf32>)
      outs(%z : tensor<9xf32>) -> tensor<9xf32>
  return %c : tensor<9xf32>
}

// -----

// Two activations, a batch of them: the run packs the right one, whose columns
// are the result's last.
// CHECK-LABEL: func.func @batch(
// CHECK-SAME:  %[[X:.*]]: tensor<?x?x64xf32>, %[[Y:.*]]: tensor<?x64x?xf32>
// CHECK:       %[[P:.*]] = attn.kernel @pack_panels_f32_k64_nx_w48x16 ins(%[[Y]] : tensor<?x64x?xf32>)
// CHECK-SAME:      -> tensor<?x64x48xf32>
// CHECK:       attn.kernel @gemm_f32_batch_mx_k64_nx_fma_8x3x16_c{{[0-9]+}}_e{{[0-9a-f]+}} ins(%{{.*}}, %[[P]] :
// CHECK-NOT:   linalg.batch_matmul
module attributes {attn.target = #attn.target<triple = "x86_64-unknown-linux-gnu", cpu = "x86-64-v4", features = "",
                                              isa = "avx512", l1 = 49152, l2 = 1048576>} {
func.func @batch(%x: tensor<?x?x64xf32>, %y: tensor<?x64x?xf32>, %b: index, %m: index, %n: index) -> tensor<?x?x?xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty(%b, %m, %n) : tensor<?x?x?xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %c = linalg.batch_matmul ins(%x, %y : tensor<?x?x64xf32>, tensor<?x64x?xf32>) outs(%z : tensor<?x?x?xf32>)
      -> tensor<?x?x?xf32>
  %d = linalg.generic {indexing_maps = [affine_map<(i, j, k) -> (i, j, k)>, affine_map<(i, j, k) -> (i, j, k)>],
                       iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%c : tensor<?x?x?xf32>) outs(%e : tensor<?x?x?xf32>) {
  ^bb0(%v: f32, %o: f32):
    %h = arith.mulf %v, %v : f32
    linalg.yield %h : f32
  } -> tensor<?x?x?xf32>
  return %d : tensor<?x?x?xf32>
}
}

// -----

// Queries times keys, of which the columns stand in the first place: transposed first.
// CHECK-LABEL: func.func @keys
// CHECK:       %[[T:.*]] = linalg.transpose ins(%{{.*}} : tensor<96x32xf32>)
// CHECK:       %[[E:.*]] = tensor.expand_shape %{{.*}} {{\[}}[0, 1], [2]] output_shape [1, 32, 96]
// CHECK:       attn.kernel @pack_panels_f32_k32_n96_w8x4
// CHECK:       attn.kernel @gemm_f32_m64_k32_n96_mul_4x2x4 ins
func.func @keys(%q: tensor<64x32xf32>, %k: tensor<96x32xf32>) -> tensor<64x96xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<64x96xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<64x96xf32>) -> tensor<64x96xf32>
  %c = linalg.contract indexing_maps = [affine_map<(i, j, k) -> (i, k)>, affine_map<(i, j, k) -> (j, k)>,
                                        affine_map<(i, j, k) -> (i, j)>]
      ins(%q, %k : tensor<64x32xf32>, tensor<96x32xf32>) outs(%z : tensor<64x96xf32>) -> tensor<64x96xf32>
  return %c : tensor<64x96xf32>
}

// -----

// A right side of 64 columns, such as a head's values: one panel of 64, not two of 48. 96 columns are two of 48.
// CHECK-LABEL: func.func @heads(
// CHECK:       attn.kernel @pack_panels_f32_k768_n64_w64x16
// CHECK:       attn.kernel @gemm_f32_batch_mx_k768_n64_fma_6x4x16
// CHECK:       attn.kernel @pack_panels_f32_k768_n96_w48x16
// CHECK:       attn.kernel @gemm_f32_batch_mx_k768_n96_fma_8x3x16
module attributes {attn.target = #attn.target<triple = "x86_64-unknown-linux-gnu", cpu = "x86-64-v4", features = "",
                                              isa = "avx512", l1 = 49152, l2 = 1048576>} {
func.func @heads(%w: tensor<12x256x768xf32>, %v: tensor<12x768x64xf32>, %u: tensor<12x768x96xf32>)
    -> (tensor<12x256x64xf32>, tensor<12x256x96xf32>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<12x256x64xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<12x256x64xf32>) -> tensor<12x256x64xf32>
  %c = linalg.batch_matmul ins(%w, %v : tensor<12x256x768xf32>, tensor<12x768x64xf32>)
      outs(%z : tensor<12x256x64xf32>) -> tensor<12x256x64xf32>
  %f = tensor.empty() : tensor<12x256x96xf32>
  %y = linalg.fill ins(%zero : f32) outs(%f : tensor<12x256x96xf32>) -> tensor<12x256x96xf32>
  %d = linalg.batch_matmul ins(%w, %u : tensor<12x256x768xf32>, tensor<12x768x96xf32>)
      outs(%y : tensor<12x256x96xf32>) -> tensor<12x256x96xf32>
  return %c, %d : tensor<12x256x64xf32>, tensor<12x256x96xf32>
}
}
