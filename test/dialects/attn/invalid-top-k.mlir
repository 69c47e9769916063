// RUN: attn-opt %s -split-input-file -verify-diagnostics

// top_k C1
func.func @dim(%x: tensor<5xf32>, %k: index) {
  // expected-error @below {{expects dim in [0, 1), got 1}}
  %a, %b = attn.top_k %x, %k dim 1 : tensor<5xf32> -> tensor<2xf32>, tensor<2xi64>
  return
}

// -----

// top_k C2
func.func @sizes(%x: tensor<4x5xf32>, %k: index) {
  // expected-error @below {{expects results of the input's sizes but for dimension 1, got 'tensor<3x2xf32>' for 'tensor<4x5xf32>'}}
  %a, %b = attn.top_k %x, %k dim 1 : tensor<4x5xf32> -> tensor<3x2xf32>, tensor<4x2xi64>
  return
}

// -----

// top_k C2
func.func @counts(%x: tensor<4x5xf32>, %k: index) {
  // expected-error @below {{expects results of one shape, got 'tensor<4x2xf32>' and 'tensor<4x3xi64>'}}
  %a, %b = attn.top_k %x, %k dim 1 : tensor<4x5xf32> -> tensor<4x2xf32>, tensor<4x3xi64>
  return
}

// -----

// top_k C3
func.func @elements(%x: tensor<5xf32>, %k: index) {
  // expected-error @below {{expects values of the input's type, floats or integers, and positions in i64, got 'tensor<2xf32>' and 'tensor<2xi32>'}}
  %a, %b = attn.top_k %x, %k dim 0 : tensor<5xf32> -> tensor<2xf32>, tensor<2xi32>
  return
}
