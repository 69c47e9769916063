// RUN: attn-opt %s -split-input-file -verify-diagnostics

// dequantize_blocks C1
func.func @codes(%q: tensor<6x80xi32>, %s: tensor<6x3xf32>) {
  // expected-error @below {{expects codes of i8, got 'tensor<6x80xi32>'}}
  %a = attn.dequantize_blocks %q scales %s axis 1 block 32 bits 4 : tensor<6x80xi32> scales tensor<6x3xf32> -> tensor<6x80xf32>
  return
}

// -----

// dequantize_blocks C1
func.func @result(%q: tensor<6x80xi8>, %s: tensor<6x3xf16>) {
  // expected-error @below {{expects a result of the scales' type, got 'tensor<6x80xf32>' and 'tensor<6x3xf16>'}}
  %a = attn.dequantize_blocks %q scales %s axis 1 block 32 bits 4 : tensor<6x80xi8> scales tensor<6x3xf16> -> tensor<6x80xf32>
  return
}

// -----

// dequantize_blocks C1
func.func @zeros(%q: tensor<6x80xi8>, %s: tensor<6x3xf32>, %z: tensor<6x3xf16>) {
  // expected-error @below {{expects zero points of i8 or of the scales' type, got 'tensor<6x3xf16>'}}
  %a = attn.dequantize_blocks %q scales %s zeros %z axis 1 block 32 bits 4
      : tensor<6x80xi8> scales tensor<6x3xf32> zeros tensor<6x3xf16> -> tensor<6x80xf32>
  return
}

// -----

// dequantize_blocks C5
func.func @e4m3(%q: tensor<6x80xi8>, %s: tensor<6x1xf32>) {
  // expected-error @below {{expects codes of e4m3 in 8 bits, with a sign and without zero points, got 4 bits}}
  %a = attn.dequantize_blocks %q scales %s axis 1 block 80 bits 4 e4m3 : tensor<6x80xi8> scales tensor<6x1xf32> -> tensor<6x80xf32>
  return
}

// -----

// dequantize_blocks C2
func.func @axis(%q: tensor<6x80xi8>, %s: tensor<6x3xf32>) {
  // expected-error @below {{expects blocks along one of 2 dimensions, got 2}}
  %a = attn.dequantize_blocks %q scales %s axis 2 block 32 bits 4 : tensor<6x80xi8> scales tensor<6x3xf32> -> tensor<6x80xf32>
  return
}

// -----

// dequantize_blocks C2
func.func @bits(%q: tensor<6x80xi8>, %s: tensor<6x3xf32>) {
  // expected-error @below {{expects 2, 4 or 8 bits and a positive block, got 3 and 32}}
  %a = attn.dequantize_blocks %q scales %s axis 1 block 32 bits 3 : tensor<6x80xi8> scales tensor<6x3xf32> -> tensor<6x80xf32>
  return
}

// -----

// dequantize_blocks C3
func.func @shape(%q: tensor<6x40xi8>, %s: tensor<6x3xf32>) {
  // expected-error @below {{expects codes of the shape of 'tensor<6x80xi8>', got 'tensor<6x40xi8>'}}
  %a = attn.dequantize_blocks %q scales %s axis 1 block 32 bits 4 : tensor<6x40xi8> scales tensor<6x3xf32> -> tensor<6x80xf32>
  return
}

// -----

// dequantize_blocks C4
func.func @scales(%q: tensor<6x80xi8>, %s: tensor<6x2xf32>) {
  // expected-error @below {{expects scales of the shape of 'tensor<6x3xf32>', got 'tensor<6x2xf32>'}}
  %a = attn.dequantize_blocks %q scales %s axis 1 block 32 bits 4 : tensor<6x80xi8> scales tensor<6x2xf32> -> tensor<6x80xf32>
  return
}

// -----

// block_product C1
func.func @rows(%x: tensor<2x80xf16>, %q: tensor<6x80xi8>, %s: tensor<6x3xf16>) {
  // expected-error @below {{expects rows and a result of f32, got 'tensor<2x80xf16>' and 'tensor<2x6xf16>'}}
  %a = attn.block_product %x by %q scales %s block 32 bits 4 transposed : tensor<2x80xf16> by tensor<6x80xi8> scales tensor<6x3xf16> -> tensor<2x6xf16>
  return
}

// -----

// block_product C2
func.func @matrix(%x: tensor<2x80xf32>, %q: tensor<80xi8>, %s: tensor<3xf32>) {
  // expected-error @below {{expects a matrix of codes, got 'tensor<80xi8>'}}
  %a = attn.block_product %x by %q scales %s block 32 bits 4 transposed : tensor<2x80xf32> by tensor<80xi8> scales tensor<3xf32> -> tensor<2x1xf32>
  return
}

// -----

// block_product C3
func.func @depth(%x: tensor<2x?xf32>, %q: tensor<6x80xi8>, %s: tensor<6x3xf32>) {
  // expected-error @below {{expects rows of a static length, got 'tensor<2x?xf32>'}}
  %a = attn.block_product %x by %q scales %s block 32 bits 4 transposed : tensor<2x?xf32> by tensor<6x80xi8> scales tensor<6x3xf32> -> tensor<2x6xf32>
  return
}

// -----

// block_product C4
func.func @columns(%x: tensor<2x80xf32>, %q: tensor<6x80xi8>, %s: tensor<6x3xf32>) {
  // expected-error @below {{expects a result of the shape of 'tensor<2x6xf32>', got 'tensor<2x7xf32>'}}
  %a = attn.block_product %x by %q scales %s block 32 bits 4 transposed : tensor<2x80xf32> by tensor<6x80xi8> scales tensor<6x3xf32> -> tensor<2x7xf32>
  return
}
