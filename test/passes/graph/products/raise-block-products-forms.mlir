// RUN: attn-opt %s --attn-raise-block-products --split-input-file | FileCheck %s

// An entry and its form for sizes that a run broadcasts have one line for the same product.
// CHECK: attn.product_report = [{{[{][^}]*[}]}}]}
// CHECK: func.func @served
attn.global @q : tensor<6x64xi8> = #attn.initializer<"q">
func.func @served(%x: tensor<3x64xf32>, %s: tensor<2x64xf32>, %out: tensor<3x6xf32>) -> tensor<3x6xf32> attributes {attn.entry} {
  %c0 = arith.constant 0.0 : f32
  %q = attn.weight @q : tensor<6x64xi8>
  %w = attn.dequantize_blocks %q scales %s axis 0 block 4 bits 4 : tensor<6x64xi8> scales tensor<2x64xf32> -> tensor<6x64xf32>
  %zeros = linalg.fill ins(%c0 : f32) outs(%out : tensor<3x6xf32>) -> tensor<3x6xf32>
  %y = linalg.contract indexing_maps = [affine_map<(i, n, k) -> (i, k)>, affine_map<(i, n, k) -> (n, k)>, affine_map<(i, n, k) -> (i, n)>]
      ins(%x, %w : tensor<3x64xf32>, tensor<6x64xf32>) outs(%zeros : tensor<3x6xf32>) -> tensor<3x6xf32>
  return %y : tensor<3x6xf32>
}
func.func @form(%x: tensor<3x64xf32>, %s: tensor<2x64xf32>, %out: tensor<3x6xf32>) -> tensor<3x6xf32> attributes {attn.entry, attn.broadcast_form = @served} {
  %c0 = arith.constant 0.0 : f32
  %q = attn.weight @q : tensor<6x64xi8>
  %w = attn.dequantize_blocks %q scales %s axis 0 block 4 bits 4 : tensor<6x64xi8> scales tensor<2x64xf32> -> tensor<6x64xf32>
  %zeros = linalg.fill ins(%c0 : f32) outs(%out : tensor<3x6xf32>) -> tensor<3x6xf32>
  %y = linalg.contract indexing_maps = [affine_map<(i, n, k) -> (i, k)>, affine_map<(i, n, k) -> (n, k)>, affine_map<(i, n, k) -> (i, n)>]
      ins(%x, %w : tensor<3x64xf32>, tensor<6x64xf32>) outs(%zeros : tensor<3x6xf32>) -> tensor<3x6xf32>
  return %y : tensor<3x6xf32>
}

// -----

// Near miss: two entries have two.
// CHECK: attn.product_report = [{{[{][^}]*[}], [{][^}]*[}]}}]}
// CHECK: func.func @one
attn.global @q : tensor<6x64xi8> = #attn.initializer<"q">
func.func @one(%x: tensor<3x64xf32>, %s: tensor<2x64xf32>, %out: tensor<3x6xf32>) -> tensor<3x6xf32> attributes {attn.entry} {
  %c0 = arith.constant 0.0 : f32
  %q = attn.weight @q : tensor<6x64xi8>
  %w = attn.dequantize_blocks %q scales %s axis 0 block 4 bits 4 : tensor<6x64xi8> scales tensor<2x64xf32> -> tensor<6x64xf32>
  %zeros = linalg.fill ins(%c0 : f32) outs(%out : tensor<3x6xf32>) -> tensor<3x6xf32>
  %y = linalg.contract indexing_maps = [affine_map<(i, n, k) -> (i, k)>, affine_map<(i, n, k) -> (n, k)>, affine_map<(i, n, k) -> (i, n)>]
      ins(%x, %w : tensor<3x64xf32>, tensor<6x64xf32>) outs(%zeros : tensor<3x6xf32>) -> tensor<3x6xf32>
  return %y : tensor<3x6xf32>
}
func.func @two(%x: tensor<3x64xf32>, %s: tensor<2x64xf32>, %out: tensor<3x6xf32>) -> tensor<3x6xf32> attributes {attn.entry} {
  %c0 = arith.constant 0.0 : f32
  %q = attn.weight @q : tensor<6x64xi8>
  %w = attn.dequantize_blocks %q scales %s axis 0 block 4 bits 4 : tensor<6x64xi8> scales tensor<2x64xf32> -> tensor<6x64xf32>
  %zeros = linalg.fill ins(%c0 : f32) outs(%out : tensor<3x6xf32>) -> tensor<3x6xf32>
  %y = linalg.contract indexing_maps = [affine_map<(i, n, k) -> (i, k)>, affine_map<(i, n, k) -> (n, k)>, affine_map<(i, n, k) -> (i, n)>]
      ins(%x, %w : tensor<3x64xf32>, tensor<6x64xf32>) outs(%zeros : tensor<3x6xf32>) -> tensor<3x6xf32>
  return %y : tensor<3x6xf32>
}
