// RUN: attn-opt %s -split-input-file -verify-diagnostics

func.func @step(%t: tensor<?xi64>, %h: tensor<?x4xf32>) -> (tensor<?x9xf32>, tensor<?x4xf32>) {
  %c0 = arith.constant 0 : index
  %n = tensor.dim %t, %c0 : tensor<?xi64>
  %l = tensor.empty(%n) : tensor<?x9xf32>
  return %l, %h : tensor<?x9xf32>, tensor<?x4xf32>
}
// search C1
func.func @search(%f: tensor<?xi64>, %m: index, %h: tensor<?x4xf32>) {
  // expected-error @below {{expects a number for each of the 2 arguments of 'step', got 1}}
  %a, %b, %c = attn.search "greedy" @step from %f max %m (%h : tensor<?x4xf32>)
      {sources = array<i64: -1, 1>, batch_dims = array<i64: 0>, grow_dims = array<i64: -1, -1>, logits_result = 0 : i64}
      : tensor<?xi64> -> tensor<?x?xi64>, tensor<?xi64>, tensor<?xf32>
  return
}

// -----

func.func @step(%t: tensor<?xi64>, %h: tensor<?x4xf32>) -> (tensor<?x9xf32>, tensor<?x4xf32>) {
  %c0 = arith.constant 0 : index
  %n = tensor.dim %t, %c0 : tensor<?xi64>
  %l = tensor.empty(%n) : tensor<?x9xf32>
  return %l, %h : tensor<?x9xf32>, tensor<?x4xf32>
}
// search C2
func.func @search(%f: tensor<?xi64>, %m: index, %h: tensor<?x5xf32>) {
  // expected-error @below {{expects an init of type 'tensor<?x4xf32>' for argument 1 of 'step'}}
  %a, %b, %c = attn.search "greedy" @step from %f max %m (%h : tensor<?x5xf32>)
      {sources = array<i64: -1, 1>, batch_dims = array<i64: 0, 0>, grow_dims = array<i64: -1, -1>, logits_result = 0 : i64}
      : tensor<?xi64> -> tensor<?x?xi64>, tensor<?xi64>, tensor<?xf32>
  return
}

// -----

func.func @step(%t: tensor<?xi64>) -> tensor<?x9xf32> {
  %c0 = arith.constant 0 : index
  %n = tensor.dim %t, %c0 : tensor<?xi64>
  %l = tensor.empty(%n) : tensor<?x9xf32>
  return %l : tensor<?x9xf32>
}
// search C3
func.func @search(%f: tensor<?xi64>, %m: index) {
  // expected-error @below {{expects 1 <= n_best <= width, and width 1 but for beam, got n_best 1 and width 3}}
  %a, %b, %c = attn.search "sample" @step from %f max %m
      {sources = array<i64: -1>, batch_dims = array<i64: 0>, grow_dims = array<i64: -1>, logits_result = 0 : i64, width = 3 : i64}
      : tensor<?xi64> -> tensor<?x?xi64>, tensor<?xi64>, tensor<?xf32>
  return
}

// -----

func.func @step(%t: tensor<?xi64>) -> tensor<?x9xf32> {
  %c0 = arith.constant 0 : index
  %n = tensor.dim %t, %c0 : tensor<?xi64>
  %l = tensor.empty(%n) : tensor<?x9xf32>
  return %l : tensor<?x9xf32>
}
// search C4
func.func @search(%f: tensor<?xi64>, %m: index) {
  // expected-error @below {{ends with token 9, which is outside the vocabulary of 9}}
  %a, %b, %c = attn.search "greedy" @step from %f max %m
      {sources = array<i64: -1>, batch_dims = array<i64: 0>, grow_dims = array<i64: -1>, logits_result = 0 : i64, eos = array<i64: 8, 9>}
      : tensor<?xi64> -> tensor<?x?xi64>, tensor<?xi64>, tensor<?xf32>
  return
}

// -----

func.func @step(%t: tensor<2xi64>) -> tensor<2x9xf32> {
  %l = tensor.empty() : tensor<2x9xf32>
  return %l : tensor<2x9xf32>
}
// search C5
func.func @search(%f: tensor<?xi64>, %m: index) {
  // expected-error @below {{expects the rows of argument 0 of 'step' to be a dynamic dimension, got 'tensor<2xi64>'}}
  %a, %b, %c = attn.search "beam" @step from %f max %m
      {sources = array<i64: -1>, batch_dims = array<i64: 0>, grow_dims = array<i64: -1>, logits_result = 0 : i64, width = 2 : i64}
      : tensor<?xi64> -> tensor<?x1x?xi64>, tensor<?x1xi64>, tensor<?x1xf32>
  return
}

// -----

func.func @step(%t: tensor<?xi64>) -> tensor<?x9xf32> {
  %c0 = arith.constant 0 : index
  %n = tensor.dim %t, %c0 : tensor<?xi64>
  %l = tensor.empty(%n) : tensor<?x9xf32>
  return %l : tensor<?x9xf32>
}
// search C6
func.func @search(%f: tensor<?xi64>, %m: index) {
  // expected-error @below {{expects a coverage_penalty only in a beam search with an alignment_result}}
  %a, %b, %c = attn.search "beam" @step from %f max %m
      {sources = array<i64: -1>, batch_dims = array<i64: 0>, grow_dims = array<i64: -1>, logits_result = 0 : i64, coverage_penalty = 0.5 : f64}
      : tensor<?xi64> -> tensor<?x1x?xi64>, tensor<?x1xi64>, tensor<?x1xf32>
  return
}

// -----

// ctc_search D1
func.func @search(%x: tensor<?x?x9xf64>, %n: tensor<?xi64>) {
  // expected-error @below {{expects scores of rank 3 in f32 and frames of rank 1 in i64}}
  %a, %b, %c = attn.ctc_search %x frames %n {blank = 0 : i64}
      : tensor<?x?x9xf64>, tensor<?xi64> -> tensor<?x?xi64>, tensor<?xi64>, tensor<?xf32>
  return
}

// -----

// ctc_search D2
func.func @search(%x: tensor<?x?x9xf32>, %n: tensor<?xi64>) {
  // expected-error @below {{expects 1 <= n_best <= width, got n_best 3 and width 2}}
  %a, %b, %c = attn.ctc_search %x frames %n {blank = 0 : i64, width = 2 : i64, n_best = 3 : i64}
      : tensor<?x?x9xf32>, tensor<?xi64> -> tensor<?x3x?xi64>, tensor<?x3xi64>, tensor<?x3xf32>
  return
}

// -----

// ctc_search D3
func.func @search(%x: tensor<?x?x9xf32>, %n: tensor<?xi64>) {
  // expected-error @below {{has blank 9, which is none of 9 labels}}
  %a, %b, %c = attn.ctc_search %x frames %n {blank = 9 : i64}
      : tensor<?x?x9xf32>, tensor<?xi64> -> tensor<?x?xi64>, tensor<?xi64>, tensor<?xf32>
  return
}

// -----

// ctc_search D4
func.func @search(%x: tensor<?x?x9xf32>, %n: tensor<?xi64>) {
  // expected-error @below {{expects results of ranks 3, 2 and 2 in i64, i64 and f32}}
  %a, %b, %c = attn.ctc_search %x frames %n {blank = 0 : i64, width = 2 : i64}
      : tensor<?x?x9xf32>, tensor<?xi64> -> tensor<?x?xi64>, tensor<?xi64>, tensor<?xf32>
  return
}
