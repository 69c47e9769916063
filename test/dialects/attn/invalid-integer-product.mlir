// RUN: attn-opt %s -split-input-file -verify-diagnostics

// integer_product C1
func.func @operand(%x: tensor<2x8xi32>, %w: tensor<8x6xi8>) {
  // expected-error @below {{expects operands of i8, got 'tensor<2x8xi32>'}}
  %a = attn.integer_product %x by %w : tensor<2x8xi32> by tensor<8x6xi8> -> tensor<2x6xi32>
  return
}

// -----

// integer_product C1
func.func @result(%x: tensor<2x8xi8>, %w: tensor<8x6xi8>) {
  // expected-error @below {{expects a result of i32, got 'tensor<2x6xf32>'}}
  %a = attn.integer_product %x by %w : tensor<2x8xi8> by tensor<8x6xi8> -> tensor<2x6xf32>
  return
}

// -----

// integer_product C2
func.func @rank(%x: tensor<2x8xi8>, %w: tensor<8xi8>) {
  // expected-error @below {{expects rows by a matrix, got 'tensor<2x8xi8>' by 'tensor<8xi8>'}}
  %a = attn.integer_product %x by %w : tensor<2x8xi8> by tensor<8xi8> -> tensor<2xi32>
  return
}

// -----

// integer_product C2
func.func @batch(%x: tensor<2x4x8xi8>, %w: tensor<3x8x6xi8>) {
  // expected-error @below {{expects a matrix for each of the first dimensions of lhs, got 'tensor<2x4x8xi8>' by 'tensor<3x8x6xi8>'}}
  %a = attn.integer_product %x by %w : tensor<2x4x8xi8> by tensor<3x8x6xi8> -> tensor<2x4x6xi32>
  return
}

// -----

// integer_product C2
func.func @batches(%x: tensor<2x8xi8>, %w: tensor<2x2x8x6xi8>) {
  // expected-error @below {{expects rows by a matrix, got 'tensor<2x8xi8>' by 'tensor<2x2x8x6xi8>'}}
  %a = attn.integer_product %x by %w : tensor<2x8xi8> by tensor<2x2x8x6xi8> -> tensor<2x6xi32>
  return
}

// -----

// integer_product C3
func.func @depth(%x: tensor<2x8xi8>, %w: tensor<8x6xi8>) {
  // expected-error @below {{expects the rows of lhs to be as long as the columns of rhs, got 8 and 6}}
  %a = attn.integer_product %x by %w transposed : tensor<2x8xi8> by tensor<8x6xi8> -> tensor<2x8xi32>
  return
}

// -----

// integer_product C4
func.func @sizes(%x: tensor<2x8xi8>, %w: tensor<8x6xi8>) {
  // expected-error @below {{expects a result of the shape of 'tensor<2x6xi32>', got 'tensor<2x7xi32>'}}
  %a = attn.integer_product %x by %w : tensor<2x8xi8> by tensor<8x6xi8> -> tensor<2x7xi32>
  return
}

// -----

// integer_product C5
func.func @lhs_zero(%x: tensor<2x8xi8>, %z: tensor<2xi8>, %w: tensor<8x6xi8>) {
  // expected-error @below {{expects one zero point for lhs, got 'tensor<2xi8>'}}
  %a = attn.integer_product %x zero %z by %w : tensor<2x8xi8> zero tensor<2xi8> by tensor<8x6xi8> -> tensor<2x6xi32>
  return
}

// -----

// integer_product C5
func.func @rhs_zero(%x: tensor<2x8xi8>, %w: tensor<8x6xi8>, %z: tensor<5xi8>) {
  // expected-error @below {{expects one zero point for rhs, or one for each of its 6 columns, got 'tensor<5xi8>'}}
  %a = attn.integer_product %x by %w zero %z : tensor<2x8xi8> by tensor<8x6xi8> zero tensor<5xi8> -> tensor<2x6xi32>
  return
}
