// RUN: attn-opt %s --attn-choose-gpu-rows --canonicalize --cse --mlir-print-local-scope | FileCheck %s
// RUN: attn-opt %s --attn-choose-gpu-rows | FileCheck %s --check-prefix=GLOBAL

// CHECK: attn.product_report = [{arithmetic = "f32, dequantised", node = "", reason = "its scales do not lie along the columns", storage = "e4m3"}, {{[{].*}}reason = "it has scales of blocks"{{.*}}}, {{[{].*}}reason = "the matrix is no weight"{{.*}}}]
// GLOBAL-DAG: attn.global @q_t : tensor<6x64xi8> = #attn.transpose<@q, [1, 0]>
// GLOBAL-DAG: attn.global @q_t_e4m3 : tensor<6x64xf8E4M3FN> = #attn.reshape<@q_t>
// GLOBAL-DAG: attn.global @r_e4m3 : tensor<6x64xf8E4M3FN> = #attn.reshape<@r>
attn.global @q : tensor<64x6xi8> = #attn.initializer<"q">
attn.global @r : tensor<6x64xi8> = #attn.initializer<"r">

// A scale for each column of a matrix K x N, which the op behind the product takes in.
// CHECK-LABEL: @columns
// CHECK-SAME: %[[X:[^:]*]]: tensor<?x64xf32>, %[[S:[^:]*]]: tensor<1x6xf32>
// CHECK: %[[W:.*]] = attn.weight @q_t_e4m3 : tensor<6x64xf8E4M3FN>
// CHECK: %[[P:.*]] = linalg.contract indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d2)>, affine_map<(d0, d1, d2) -> (d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1)>] ins(%[[X]], %[[W]] : tensor<?x64xf32>, tensor<6x64xf8E4M3FN>)
// CHECK: linalg.generic {{.*}} ins(%[[P]], %[[S]] : tensor<?x6xf32>, tensor<1x6xf32>)
// CHECK: arith.mulf
// CHECK-NEXT: math.tanh
// CHECK-NOT: linalg.generic
// CHECK: return
func.func @columns(%x: tensor<?x64xf32>, %s: tensor<1x6xf32>, %out: tensor<?x6xf32>) -> tensor<?x6xf32> {
  %c0 = arith.constant 0.0 : f32
  %q = attn.weight @q : tensor<64x6xi8>
  %w = attn.dequantize_blocks %q scales %s axis 0 block 64 bits 8 e4m3 : tensor<64x6xi8> scales tensor<1x6xf32> -> tensor<64x6xf32>
  %zeros = linalg.fill ins(%c0 : f32) outs(%out : tensor<?x6xf32>) -> tensor<?x6xf32>
  %y = linalg.matmul ins(%x, %w : tensor<?x64xf32>, tensor<64x6xf32>) outs(%zeros : tensor<?x6xf32>) -> tensor<?x6xf32>
  %t = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
    ins(%y : tensor<?x6xf32>) outs(%out : tensor<?x6xf32>) {
  ^bb0(%a: f32, %o: f32):
    %b = math.tanh %a : f32
    linalg.yield %b : f32
  } -> tensor<?x6xf32>
  return %t : tensor<?x6xf32>
}

// One scale for all, whichever dimension has the blocks.
// CHECK-LABEL: @all
// CHECK: attn.weight @r_e4m3 : tensor<6x64xf8E4M3FN>
// CHECK: linalg.contract {{.*}} : tensor<3x64xf16>, tensor<6x64xf8E4M3FN>)
// CHECK: linalg.generic
// CHECK: arith.mulf %{{.*}}, %cst
func.func @all(%x: tensor<3x64xf16>, %out: tensor<3x6xf32>) -> tensor<3x6xf32> {
  %c0 = arith.constant 0.0 : f32
  %r = attn.weight @r : tensor<6x64xi8>
  %s = arith.constant dense<0.5> : tensor<1x64xf16>
  %w = attn.dequantize_blocks %r scales %s axis 0 block 6 bits 8 e4m3 : tensor<6x64xi8> scales tensor<1x64xf16> -> tensor<6x64xf16>
  %zeros = linalg.fill ins(%c0 : f32) outs(%out : tensor<3x6xf32>) -> tensor<3x6xf32>
  %y = linalg.contract indexing_maps = [affine_map<(i, n, k) -> (i, k)>, affine_map<(i, n, k) -> (n, k)>, affine_map<(i, n, k) -> (i, n)>]
      ins(%x, %w : tensor<3x64xf16>, tensor<6x64xf16>) outs(%zeros : tensor<3x6xf32>) -> tensor<3x6xf32>
  return %y : tensor<3x6xf32>
}

// Near miss: a scale for each row of the matrix.
// CHECK-LABEL: @rows
// CHECK: attn.dequantize_blocks
// CHECK: linalg.matmul
func.func @rows(%x: tensor<3x64xf32>, %s: tensor<64x1xf32>, %out: tensor<3x6xf32>) -> tensor<3x6xf32> {
  %c0 = arith.constant 0.0 : f32
  %q = attn.weight @q : tensor<64x6xi8>
  %w = attn.dequantize_blocks %q scales %s axis 1 block 6 bits 8 e4m3 : tensor<64x6xi8> scales tensor<64x1xf32> -> tensor<64x6xf32>
  %zeros = linalg.fill ins(%c0 : f32) outs(%out : tensor<3x6xf32>) -> tensor<3x6xf32>
  %y = linalg.matmul ins(%x, %w : tensor<3x64xf32>, tensor<64x6xf32>) outs(%zeros : tensor<3x6xf32>) -> tensor<3x6xf32>
  return %y : tensor<3x6xf32>
}

// Near miss: two scales a column.
// CHECK-LABEL: @halves
// CHECK: attn.dequantize_blocks
func.func @halves(%x: tensor<3x64xf32>, %s: tensor<2x6xf32>, %out: tensor<3x6xf32>) -> tensor<3x6xf32> {
  %c0 = arith.constant 0.0 : f32
  %q = attn.weight @q : tensor<64x6xi8>
  %w = attn.dequantize_blocks %q scales %s axis 0 block 32 bits 8 e4m3 : tensor<64x6xi8> scales tensor<2x6xf32> -> tensor<64x6xf32>
  %zeros = linalg.fill ins(%c0 : f32) outs(%out : tensor<3x6xf32>) -> tensor<3x6xf32>
  %y = linalg.matmul ins(%x, %w : tensor<3x64xf32>, tensor<64x6xf32>) outs(%zeros : tensor<3x6xf32>) -> tensor<3x6xf32>
  return %y : tensor<3x6xf32>
}

// Near miss: what the run gives.
// CHECK-LABEL: @given
// CHECK: attn.dequantize_blocks
func.func @given(%x: tensor<3x64xf32>, %q: tensor<64x6xi8>, %s: tensor<1x6xf32>, %out: tensor<3x6xf32>) -> tensor<3x6xf32> {
  %c0 = arith.constant 0.0 : f32
  %w = attn.dequantize_blocks %q scales %s axis 0 block 64 bits 8 e4m3 : tensor<64x6xi8> scales tensor<1x6xf32> -> tensor<64x6xf32>
  %zeros = linalg.fill ins(%c0 : f32) outs(%out : tensor<3x6xf32>) -> tensor<3x6xf32>
  %y = linalg.matmul ins(%x, %w : tensor<3x64xf32>, tensor<64x6xf32>) outs(%zeros : tensor<3x6xf32>) -> tensor<3x6xf32>
  return %y : tensor<3x6xf32>
}
