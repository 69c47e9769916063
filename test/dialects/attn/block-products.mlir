// RUN: attn-opt %s | attn-opt | FileCheck %s
// RUN: attn-opt %s --attn-decompose | FileCheck %s --check-prefix=LINALG

// CHECK-LABEL: @numbers
// CHECK: attn.dequantize_blocks %{{.*}} scales %{{.*}} axis 1 block 32 bits 4 zero_point 8 unsigned : tensor<6x80xi8> scales tensor<6x3xf32> -> tensor<6x80xf32>
// CHECK: attn.dequantize_blocks %{{.*}} scales %{{.*}} zeros %{{.*}} axis 0 block 16 bits 8 : tensor<?x4xi8> scales tensor<?x4xf16> zeros tensor<?x4xi8> -> tensor<?x4xf16>
// LINALG-DAG: #[[ROWS:.*]] = affine_map<(d0, d1, d2, d3) -> (d0, d1, d3)>
// LINALG-DAG: #[[TURNED:.*]] = affine_map<(d0, d1, d2, d3) -> (d2, d3)>
// LINALG-DAG: #[[MATRIX:.*]] = affine_map<(d0, d1, d2, d3) -> (d3, d2)>
// LINALG-LABEL: @numbers
// LINALG-NOT: attn.dequantize_blocks
// LINALG: linalg.generic
// LINALG: %[[I:.*]] = linalg.index 0
// LINALG: %[[J:.*]] = linalg.index 1
// LINALG: %[[B:.*]] = arith.divui %[[J]], %{{.*}} : index
// LINALG: %[[Q:.*]] = tensor.extract %{{.*}}[%[[I]], %[[J]]] : tensor<6x80xi8>
// LINALG: %[[F:.*]] = arith.uitofp %[[Q]] : i8 to f32
// LINALG: %[[D:.*]] = arith.subf %[[F]], %{{.*}} : f32
// LINALG: %[[S:.*]] = tensor.extract %{{.*}}[%[[I]], %[[B]]] : tensor<6x3xf32>
// LINALG: arith.mulf %[[D]], %[[S]] : f32
// LINALG: linalg.generic
// LINALG: arith.sitofp %{{.*}} : i8 to f32
// LINALG: arith.truncf %{{.*}} : f32 to f16
func.func @numbers(%q: tensor<6x80xi8>, %s: tensor<6x3xf32>, %r: tensor<?x4xi8>, %t: tensor<?x4xf16>, %z: tensor<?x4xi8>)
    -> (tensor<6x80xf32>, tensor<?x4xf16>) {
  %a = attn.dequantize_blocks %q scales %s axis 1 block 32 bits 4 zero_point 8 unsigned
      : tensor<6x80xi8> scales tensor<6x3xf32> -> tensor<6x80xf32>
  %b = attn.dequantize_blocks %r scales %t zeros %z axis 0 block 16 bits 8
      : tensor<?x4xi8> scales tensor<?x4xf16> zeros tensor<?x4xi8> -> tensor<?x4xf16>
  return %a, %b : tensor<6x80xf32>, tensor<?x4xf16>
}

// With one block a column has its scale where it is.
// CHECK-LABEL: @floats
// CHECK: attn.dequantize_blocks %{{.*}} scales %{{.*}} axis 0 block 6 bits 8 e4m3 : tensor<6x80xi8> scales tensor<1x80xf16> -> tensor<6x80xf16>
// LINALG-LABEL: @floats
// LINALG: linalg.generic {{.*}} ins(%{{.*}}, %{{.*}} : tensor<6x80xi8>, tensor<1x80xf16>)
// LINALG-NOT: tensor.extract
// LINALG: arith.extui %{{.*}} : i8 to i32
// LINALG: arith.mulf %{{.*}} : f32
// LINALG: arith.truncf %{{.*}} : f32 to f16
func.func @floats(%q: tensor<6x80xi8>, %s: tensor<1x80xf16>) -> tensor<6x80xf16> {
  %a = attn.dequantize_blocks %q scales %s axis 0 block 6 bits 8 e4m3 : tensor<6x80xi8> scales tensor<1x80xf16> -> tensor<6x80xf16>
  return %a : tensor<6x80xf16>
}

// CHECK-LABEL: @product
// CHECK: attn.block_product %{{.*}} by %{{.*}} scales %{{.*}} zeros %{{.*}} block 32 bits 4 transposed unsigned narrow_rows : tensor<?x2x80xf32> by tensor<6x80xi8> scales tensor<6x3xf32> zeros tensor<6x3xf32> -> tensor<?x2x6xf32>
// LINALG-LABEL: @product
// LINALG-NOT: attn.block_product
// LINALG: linalg.contract indexing_maps = [#[[ROWS]], #[[TURNED]], #{{.*}}] ins(%{{.*}}, %{{.*}} : tensor<?x2x80xf32>, tensor<6x80xf32>)
func.func @product(%x: tensor<?x2x80xf32>, %q: tensor<6x80xi8>, %s: tensor<6x3xf32>, %z: tensor<6x3xf32>) -> tensor<?x2x6xf32> {
  %y = attn.block_product %x by %q scales %s zeros %z block 32 bits 4 transposed unsigned narrow_rows
      : tensor<?x2x80xf32> by tensor<6x80xi8> scales tensor<6x3xf32> zeros tensor<6x3xf32> -> tensor<?x2x6xf32>
  return %y : tensor<?x2x6xf32>
}

// LINALG-LABEL: @product_by_columns
// LINALG: linalg.contract indexing_maps = [#[[ROWS]], #[[MATRIX]], #{{.*}}] ins(%{{.*}}, %{{.*}} : tensor<?x2x80xf32>, tensor<80x6xf32>)
func.func @product_by_columns(%x: tensor<?x2x80xf32>, %q: tensor<80x6xi8>, %s: tensor<3x6xf32>) -> tensor<?x2x6xf32> {
  %y = attn.block_product %x by %q scales %s block 32 bits 4
      : tensor<?x2x80xf32> by tensor<80x6xi8> scales tensor<3x6xf32> -> tensor<?x2x6xf32>
  return %y : tensor<?x2x6xf32>
}
