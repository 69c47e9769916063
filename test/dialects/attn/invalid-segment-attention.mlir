// RUN: attn-opt %s -split-input-file -verify-diagnostics

// segment_attention C1
func.func @ranks(%s: tensor<4xf32>, %v: tensor<4x1x8xf32>, %l: tensor<4xi64>) {
  // expected-error @below {{expects scores of rank 2, values and a result of rank 3, got 'tensor<4xf32>', 'tensor<4x1x8xf32>' and 'tensor<4x1x8xf32>'}}
  %y = attn.segment_attention %s, %v by %l, %l
      : tensor<4xf32>, tensor<4x1x8xf32>, tensor<4xi64>, tensor<4xi64> -> tensor<4x1x8xf32>
  return
}

// -----

// segment_attention C1
func.func @types(%s: tensor<4x1xf32>, %v: tensor<4x1x8xf16>, %l: tensor<4xi64>) {
  // expected-error @below {{expects scores, values and a result of one float type, got 'tensor<4x1xf32>', 'tensor<4x1x8xf16>' and 'tensor<4x1x8xf32>'}}
  %y = attn.segment_attention %s, %v by %l, %l
      : tensor<4x1xf32>, tensor<4x1x8xf16>, tensor<4xi64>, tensor<4xi64> -> tensor<4x1x8xf32>
  return
}

// -----

// segment_attention C1
func.func @heads(%s: tensor<4x2xf32>, %v: tensor<4x3x8xf32>, %l: tensor<4xi64>) {
  // expected-error @below {{expects heads and widths that agree, got 'tensor<4x2xf32>', 'tensor<4x3x8xf32>' and 'tensor<4x3x8xf32>'}}
  %y = attn.segment_attention %s, %v by %l, %l
      : tensor<4x2xf32>, tensor<4x3x8xf32>, tensor<4xi64>, tensor<4xi64> -> tensor<4x3x8xf32>
  return
}

// -----

// segment_attention C2
func.func @lists(%s: tensor<4x1xf32>, %v: tensor<4x1x8xf32>, %l: tensor<4xi64>, %m: tensor<4xi32>) {
  // expected-error @below {{expects lists of i64, got 'tensor<4xi32>'}}
  %y = attn.segment_attention %s, %v by %m, %l
      : tensor<4x1xf32>, tensor<4x1x8xf32>, tensor<4xi32>, tensor<4xi64> -> tensor<4x1x8xf32>
  return
}

// -----

// segment_attention C2
func.func @ends(%s: tensor<4x1xf32>, %v: tensor<4x1x8xf32>, %l: tensor<4xi64>) {
  // expected-error @below {{expects an end for each node, got 'tensor<4xi64>' for 'tensor<5x1x8xf32>'}}
  %y = attn.segment_attention %s, %v by %l, %l
      : tensor<4x1xf32>, tensor<4x1x8xf32>, tensor<4xi64>, tensor<4xi64> -> tensor<5x1x8xf32>
  return
}

// -----

// segment_attention C2
func.func @edges(%s: tensor<4x1xf32>, %v: tensor<3x1x8xf32>, %l: tensor<4xi64>) {
  // expected-error @below {{expects values for each edge, got 'tensor<3x1x8xf32>' for 'tensor<4x1xf32>'}}
  %y = attn.segment_attention %s, %v by %l, %l
      : tensor<4x1xf32>, tensor<3x1x8xf32>, tensor<4xi64>, tensor<4xi64> -> tensor<4x1x8xf32>
  return
}

// -----

// segment_attention C3
func.func @epsilon(%s: tensor<4x1xf32>, %v: tensor<4x1x8xf32>, %l: tensor<4xi64>) {
  // expected-error @below {{expects an epsilon of at least 0, got -1.0}}
  %y = attn.segment_attention %s, %v by %l, %l epsilon -1.0
      : tensor<4x1xf32>, tensor<4x1x8xf32>, tensor<4xi64>, tensor<4xi64> -> tensor<4x1x8xf32>
  return
}
