// RUN: attn-opt %s --attn-lower-contractions --split-input-file | FileCheck %s
// RUN: attn-opt %s --attn-lower-contractions --split-input-file --remarks-filter=attn-lower-contractions \
// RUN:   --remark-format=emitRemark -o /dev/null 2>&1 | FileCheck %s --check-prefix=REMARK

// Near misses: each keeps its linalg op, and a remark says why.

// REMARK: remark: [Missed] gemm {{.*}} Reason="the run would have to pack an operand, for too little work"
// CHECK-LABEL: func.func @two_activations
// CHECK: linalg.matmul
func.func @two_activations(%x: tensor<7x5xf32>, %w: tensor<5x9xf32>) -> tensor<7x9xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<7x9xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<7x9xf32>) -> tensor<7x9xf32>
  %m = linalg.matmul ins(%x, %w : tensor<7x5xf32>, tensor<5x9xf32>) outs(%z : tensor<7x9xf32>) -> tensor<7x9xf32>
  return %m : tensor<7x9xf32>
}

// -----

// REMARK: remark: [Missed] gemm {{.*}} Reason="it does not accumulate onto zeros"
// CHECK-LABEL: func.func @accumulates
// CHECK: linalg.matmul
attn.global @w : tensor<5x9xf32> = #attn.initializer<"w">
func.func @accumulates(%x: tensor<7x5xf32>, %z: tensor<7x9xf32>) -> tensor<7x9xf32> {
  %w = attn.weight @w : tensor<5x9xf32>
  %m = linalg.matmul ins(%x, %w : tensor<7x5xf32>, tensor<5x9xf32>) outs(%z : tensor<7x9xf32>) -> tensor<7x9xf32>
  return %m : tensor<7x9xf32>
}

// -----

// REMARK: remark: [Missed] gemm {{.*}} Reason="it is not all f32"
// CHECK-LABEL: func.func @half
// CHECK: linalg.matmul
attn.global @w : tensor<5x9xf16> = #attn.initializer<"w">
func.func @half(%x: tensor<7x5xf16>) -> tensor<7x9xf32> {
  %zero = arith.constant 0.0 : f32
  %w = attn.weight @w : tensor<5x9xf16>
  %e = tensor.empty() : tensor<7x9xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<7x9xf32>) -> tensor<7x9xf32>
  %m = linalg.matmul ins(%x, %w : tensor<7x5xf16>, tensor<5x9xf16>) outs(%z : tensor<7x9xf32>) -> tensor<7x9xf32>
  return %m : tensor<7x9xf32>
}

// -----

// REMARK: remark: [Missed] gemm {{.*}} Reason="the run would have to pack an operand, for too little work"
// CHECK-LABEL: func.func @batched_weight
// CHECK: linalg.batch_matmul
attn.global @w : tensor<2x5x9xf32> = #attn.initializer<"w">
func.func @batched_weight(%x: tensor<2x7x5xf32>) -> tensor<2x7x9xf32> {
  %zero = arith.constant 0.0 : f32
  %w = attn.weight @w : tensor<2x5x9xf32>
  %e = tensor.empty() : tensor<2x7x9xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<2x7x9xf32>) -> tensor<2x7x9xf32>
  %m = linalg.batch_matmul ins(%x, %w : tensor<2x7x5xf32>, tensor<2x5x9xf32>) outs(%z : tensor<2x7x9xf32>) -> tensor<2x7x9xf32>
  return %m : tensor<2x7x9xf32>
}

// -----

// REMARK: remark: [Missed] gemm {{.*}} Reason="the right-hand side is a vector"
// CHECK-LABEL: func.func @vector_weight
// CHECK: linalg.matvec
attn.global @w : tensor<5xf32> = #attn.initializer<"w">
func.func @vector_weight(%x: tensor<7x5xf32>) -> tensor<7xf32> {
  %zero = arith.constant 0.0 : f32
  %w = attn.weight @w : tensor<5xf32>
  %e = tensor.empty() : tensor<7xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<7xf32>) -> tensor<7xf32>
  %m = linalg.matvec ins(%x, %w : tensor<7x5xf32>, tensor<5xf32>) outs(%z : tensor<7xf32>) -> tensor<7xf32>
  return %m : tensor<7xf32>
}

// -----

// The kernel without the epilogue: a position embedding is neither by row nor by
// column.
// REMARK: remark: [Missed] epilogue {{.*}} Reason="operand 1 of the elementwise op is neither a scalar nor by row, by column or by element"
// REMARK: remark: [Passed] gemm {{.*}} Remark=gemm_f32_mx_k5_n9_mul_4x2x4
// CHECK-LABEL: func.func @by_position
// CHECK: attn.kernel @gemm_f32_mx_k5_n9_mul_4x2x4
// CHECK: linalg.generic
#x = affine_map<(b, s, n, k) -> (b, s, k)>
#w = affine_map<(b, s, n, k) -> (k, n)>
#y = affine_map<(b, s, n, k) -> (b, s, n)>
#id = affine_map<(b, s, n) -> (b, s, n)>
#pos = affine_map<(b, s, n) -> (s, n)>
attn.global @w : tensor<5x9xf32> = #attn.initializer<"w">
func.func @by_position(%x: tensor<?x3x5xf32>, %p: tensor<3x9xf32>, %b: index) -> tensor<?x3x9xf32> {
  %zero = arith.constant 0.0 : f32
  %w = attn.weight @w : tensor<5x9xf32>
  %e = tensor.empty(%b) : tensor<?x3x9xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x3x9xf32>) -> tensor<?x3x9xf32>
  %c = linalg.contract indexing_maps = [#x, #w, #y] ins(%x, %w : tensor<?x3x5xf32>, tensor<5x9xf32>)
      outs(%z : tensor<?x3x9xf32>) -> tensor<?x3x9xf32>
  %r = linalg.generic {indexing_maps = [#id, #pos, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%c, %p : tensor<?x3x9xf32>, tensor<3x9xf32>) outs(%e : tensor<?x3x9xf32>) {
  ^bb0(%s: f32, %t: f32, %o: f32):
    %0 = arith.addf %s, %t : f32
    linalg.yield %0 : f32
  } -> tensor<?x3x9xf32>
  return %r : tensor<?x3x9xf32>
}

// -----

// An epilogue that asks for its position, or reads a table.
// REMARK: remark: [Missed] epilogue {{.*}} Reason="the epilogue asks for its position"
// CHECK-LABEL: func.func @index
// CHECK: attn.kernel
// CHECK: linalg.generic
#id = affine_map<(i, j) -> (i, j)>
attn.global @w : tensor<5x9xf32> = #attn.initializer<"w">
func.func @index(%x: tensor<7x5xf32>) -> tensor<7x9xf32> {
  %zero = arith.constant 0.0 : f32
  %w = attn.weight @w : tensor<5x9xf32>
  %e = tensor.empty() : tensor<7x9xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<7x9xf32>) -> tensor<7x9xf32>
  %m = linalg.matmul ins(%x, %w : tensor<7x5xf32>, tensor<5x9xf32>) outs(%z : tensor<7x9xf32>) -> tensor<7x9xf32>
  %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%m : tensor<7x9xf32>) outs(%e : tensor<7x9xf32>) {
  ^bb0(%p: f32, %o: f32):
    %i = linalg.index 0 : index
    %n = arith.index_cast %i : index to i32
    %f = arith.sitofp %n : i32 to f32
    %0 = arith.addf %p, %f : f32
    linalg.yield %0 : f32
  } -> tensor<7x9xf32>
  return %y : tensor<7x9xf32>
}

// -----

// The kernel's name is taken by something else.
// REMARK: remark: [Missed] gemm {{.*}} Reason="the name 'gemm_f32_m7_k5_n9_mul_4x2x4_next' is taken"
// CHECK-LABEL: func.func @gemm_f32_m7_k5_n9_mul_4x2x4_next
// CHECK: linalg.matmul
attn.global @w : tensor<5x9xf32> = #attn.initializer<"w">
func.func @gemm_f32_m7_k5_n9_mul_4x2x4_next(%x: tensor<7x5xf32>) -> tensor<7x9xf32> {
  %zero = arith.constant 0.0 : f32
  %w = attn.weight @w : tensor<5x9xf32>
  %e = tensor.empty() : tensor<7x9xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<7x9xf32>) -> tensor<7x9xf32>
  %m = linalg.matmul ins(%x, %w : tensor<7x5xf32>, tensor<5x9xf32>) outs(%z : tensor<7x9xf32>) -> tensor<7x9xf32>
  return %m : tensor<7x9xf32>
}

// -----

// One query for each of many heads: packing the keys would cost as much as the product.
// REMARK: remark: [Missed] gemm {{.*}} Reason="the run would have to pack an operand, for too few rows"
// CHECK-LABEL: func.func @one_row
// CHECK: linalg.batch_matmul
func.func @one_row(%x: tensor<12x1x512xf32>, %y: tensor<12x512x512xf32>) -> tensor<12x1x512xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<12x1x512xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<12x1x512xf32>) -> tensor<12x1x512xf32>
  %m = linalg.batch_matmul ins(%x, %y : tensor<12x1x512xf32>, tensor<12x512x512xf32>) outs(%z : tensor<12x1x512xf32>)
      -> tensor<12x1x512xf32>
  return %m : tensor<12x1x512xf32>
}
