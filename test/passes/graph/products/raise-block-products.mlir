// RUN: attn-opt %s --attn-raise-block-products --canonicalize --cse --mlir-print-local-scope | FileCheck %s
// RUN: attn-opt %s --attn-raise-block-products --remarks-filter=attn-raise-block-products --remark-format=emitRemark \
// RUN:   -o /dev/null 2>&1 | FileCheck %s --check-prefix=REMARK

// CHECK: attn.product_report = [{arithmetic = "f32, dequantised", node = "", reason = "its blocks do not lie along the sum", storage = "s4 blocks of 4"}, {{.*}}reason = "the rows of the activation stand in another order than those of the result", {{.*}}reason = "the sum does not run along the rows of the activation", {{.*}}]
attn.global @q : tensor<6x64xi8> = #attn.initializer<"q">
attn.global @s : tensor<6x2xf32> = #attn.initializer<"s">
attn.global @h : tensor<6x2xf16> = #attn.initializer<"h">

// MatMulNBits: a matrix N x K by a transpose.
// CHECK-LABEL: @transposed
// CHECK-SAME: %[[X:[^:]*]]: tensor<?x64xf32>
// CHECK-DAG: %[[Q:.*]] = attn.weight @q
// CHECK-DAG: %[[S:.*]] = attn.weight @s
// CHECK: %[[Y:.*]] = attn.block_product %[[X]] by %[[Q]] scales %[[S]] block 32 bits 4 zero_point 8 transposed unsigned : tensor<?x64xf32> by tensor<6x64xi8> scales tensor<6x2xf32> -> tensor<?x6xf32>
// CHECK-NEXT: return %[[Y]]
// REMARK: remark: {{.*}}of 4 bits
func.func @transposed(%x: tensor<?x64xf32>, %e: tensor<64x6xf32>, %out: tensor<?x6xf32>) -> tensor<?x6xf32> {
  %c0 = arith.constant 0.0 : f32
  %q = attn.weight @q : tensor<6x64xi8>
  %s = attn.weight @s : tensor<6x2xf32>
  %w = attn.dequantize_blocks %q scales %s axis 1 block 32 bits 4 zero_point 8 unsigned
      : tensor<6x64xi8> scales tensor<6x2xf32> -> tensor<6x64xf32>
  %t = linalg.transpose ins(%w : tensor<6x64xf32>) outs(%e : tensor<64x6xf32>) permutation = [1, 0]
  %zeros = linalg.fill ins(%c0 : f32) outs(%out : tensor<?x6xf32>) -> tensor<?x6xf32>
  %y = linalg.matmul ins(%x, %t : tensor<?x64xf32>, tensor<64x6xf32>) outs(%zeros : tensor<?x6xf32>) -> tensor<?x6xf32>
  return %y : tensor<?x6xf32>
}

// Rows of f16 are widened; the sum is of f32.
// CHECK-LABEL: @halves
// CHECK: %[[WIDE:.*]] = linalg.generic {{.*}} ins(%{{.*}} : tensor<3x64xf16>)
// CHECK: arith.extf
// CHECK: attn.block_product %[[WIDE]] by %{{.*}} scales %{{.*}} block 32 bits 4 transposed
func.func @halves(%x: tensor<3x64xf16>, %out: tensor<3x6xf32>) -> tensor<3x6xf32> {
  %c0 = arith.constant 0.0 : f32
  %q = attn.weight @q : tensor<6x64xi8>
  %h = attn.weight @h : tensor<6x2xf16>
  %w = attn.dequantize_blocks %q scales %h axis 1 block 32 bits 4 : tensor<6x64xi8> scales tensor<6x2xf16> -> tensor<6x64xf16>
  %zeros = linalg.fill ins(%c0 : f32) outs(%out : tensor<3x6xf32>) -> tensor<3x6xf32>
  %y = linalg.contract indexing_maps = [affine_map<(i, n, k) -> (i, k)>, affine_map<(i, n, k) -> (n, k)>, affine_map<(i, n, k) -> (i, n)>]
      ins(%x, %w : tensor<3x64xf16>, tensor<6x64xf16>) outs(%zeros : tensor<3x6xf32>) -> tensor<3x6xf32>
  return %y : tensor<3x6xf32>
}

// Near miss: a scale for each 4 columns.
// CHECK-LABEL: @across
// CHECK: attn.dequantize_blocks
// CHECK: linalg.contract
// REMARK: remark: {{.*}}its blocks do not lie along the sum
func.func @across(%x: tensor<3x64xf32>, %s: tensor<2x64xf32>, %out: tensor<3x6xf32>) -> tensor<3x6xf32> {
  %c0 = arith.constant 0.0 : f32
  %q = attn.weight @q : tensor<6x64xi8>
  %w = attn.dequantize_blocks %q scales %s axis 0 block 4 bits 4 : tensor<6x64xi8> scales tensor<2x64xf32> -> tensor<6x64xf32>
  %zeros = linalg.fill ins(%c0 : f32) outs(%out : tensor<3x6xf32>) -> tensor<3x6xf32>
  %y = linalg.contract indexing_maps = [affine_map<(i, n, k) -> (i, k)>, affine_map<(i, n, k) -> (n, k)>, affine_map<(i, n, k) -> (i, n)>]
      ins(%x, %w : tensor<3x64xf32>, tensor<6x64xf32>) outs(%zeros : tensor<3x6xf32>) -> tensor<3x6xf32>
  return %y : tensor<3x6xf32>
}

// Near miss: rows that the result has in another order.
// CHECK-LABEL: @order
// CHECK: linalg.contract
// REMARK: remark: {{.*}}the rows of the activation stand in another order than those of the result
func.func @order(%x: tensor<3x?x64xf32>, %out: tensor<?x3x6xf32>) -> tensor<?x3x6xf32> {
  %c0 = arith.constant 0.0 : f32
  %q = attn.weight @q : tensor<6x64xi8>
  %s = attn.weight @s : tensor<6x2xf32>
  %w = attn.dequantize_blocks %q scales %s axis 1 block 32 bits 4 : tensor<6x64xi8> scales tensor<6x2xf32> -> tensor<6x64xf32>
  %zeros = linalg.fill ins(%c0 : f32) outs(%out : tensor<?x3x6xf32>) -> tensor<?x3x6xf32>
  %y = linalg.contract indexing_maps = [affine_map<(h, i, n, k) -> (h, i, k)>, affine_map<(h, i, n, k) -> (n, k)>, affine_map<(h, i, n, k) -> (i, h, n)>]
      ins(%x, %w : tensor<3x?x64xf32>, tensor<6x64xf32>) outs(%zeros : tensor<?x3x6xf32>) -> tensor<?x3x6xf32>
  return %y : tensor<?x3x6xf32>
}

// Near miss: the sum goes along columns of the activation.
// CHECK-LABEL: @columns
// CHECK: linalg.contract
// REMARK: remark: {{.*}}the sum does not run along the rows of the activation
func.func @columns(%x: tensor<64x?xf32>, %out: tensor<?x6xf32>) -> tensor<?x6xf32> {
  %c0 = arith.constant 0.0 : f32
  %q = attn.weight @q : tensor<6x64xi8>
  %s = attn.weight @s : tensor<6x2xf32>
  %w = attn.dequantize_blocks %q scales %s axis 1 block 32 bits 4 : tensor<6x64xi8> scales tensor<6x2xf32> -> tensor<6x64xf32>
  %zeros = linalg.fill ins(%c0 : f32) outs(%out : tensor<?x6xf32>) -> tensor<?x6xf32>
  %y = linalg.contract indexing_maps = [affine_map<(i, n, k) -> (k, i)>, affine_map<(i, n, k) -> (n, k)>, affine_map<(i, n, k) -> (i, n)>]
      ins(%x, %w : tensor<64x?xf32>, tensor<6x64xf32>) outs(%zeros : tensor<?x6xf32>) -> tensor<?x6xf32>
  return %y : tensor<?x6xf32>
}

// Near miss: codes that the run computes, as those of a cache.
// CHECK-LABEL: @computed
// CHECK: attn.dequantize_blocks
// CHECK: linalg.contract
func.func @computed(%x: tensor<3x64xf32>, %q: tensor<6x64xi8>, %s: tensor<6x2xf32>, %out: tensor<3x6xf32>) -> tensor<3x6xf32> {
  %c0 = arith.constant 0.0 : f32
  %w = attn.dequantize_blocks %q scales %s axis 1 block 32 bits 4 : tensor<6x64xi8> scales tensor<6x2xf32> -> tensor<6x64xf32>
  %zeros = linalg.fill ins(%c0 : f32) outs(%out : tensor<3x6xf32>) -> tensor<3x6xf32>
  %y = linalg.contract indexing_maps = [affine_map<(i, n, k) -> (i, k)>, affine_map<(i, n, k) -> (n, k)>, affine_map<(i, n, k) -> (i, n)>]
      ins(%x, %w : tensor<3x64xf32>, tensor<6x64xf32>) outs(%zeros : tensor<3x6xf32>) -> tensor<3x6xf32>
  return %y : tensor<3x6xf32>
}

// An embedding reads codes.
// CHECK-LABEL: @rows
// CHECK-NOT: attn.dequantize_blocks
// CHECK: linalg.generic
// CHECK: tensor.extract %{{.*}}[%{{.*}}, %{{.*}}] : tensor<6x64xi8>
// CHECK: tensor.extract %{{.*}}[%{{.*}}, %{{.*}}] : tensor<6x2xf32>
// CHECK: arith.mulf
func.func @rows(%ids: tensor<?xi64>, %out: tensor<?x64xf32>) -> tensor<?x64xf32> {
  %q = attn.weight @q : tensor<6x64xi8>
  %s = attn.weight @s : tensor<6x2xf32>
  %w = attn.dequantize_blocks %q scales %s axis 1 block 32 bits 4 : tensor<6x64xi8> scales tensor<6x2xf32> -> tensor<6x64xf32>
  %y = linalg.generic {indexing_maps = [affine_map<(i, k) -> (i)>, affine_map<(i, k) -> (i, k)>], iterator_types = ["parallel", "parallel"]}
      ins(%ids : tensor<?xi64>) outs(%out : tensor<?x64xf32>) {
    ^bb0(%id: i64, %o: f32):
      %row = arith.index_cast %id : i64 to index
      %column = linalg.index 1 : index
      %element = tensor.extract %w[%row, %column] : tensor<6x64xf32>
      linalg.yield %element : f32
  } -> tensor<?x64xf32>
  return %y : tensor<?x64xf32>
}
