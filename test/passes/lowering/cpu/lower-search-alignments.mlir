// RUN: not attn-opt %s -attn-lower-search 2>&1 | FileCheck %s

// No argument of the step says how long an alignment is: the pass fails.
// CHECK: error: 'attn.search' op returns alignments whose size no argument of 'step' has
func.func @step(%t: tensor<?xi64>, %h: tensor<?x4xf32>) -> (tensor<?x9xf32>, tensor<?x4xf32>, tensor<?x?xf32>) {
  %c0 = arith.constant 0 : index
  %n = tensor.dim %t, %c0 : tensor<?xi64>
  %l = tensor.empty(%n) : tensor<?x9xf32>
  %a = tensor.empty(%n, %n) : tensor<?x?xf32>
  return %l, %h, %a : tensor<?x9xf32>, tensor<?x4xf32>, tensor<?x?xf32>
}

func.func @greedy(%f: tensor<?xi64>, %max: index, %h: tensor<?x4xf32>)
    -> (tensor<?x?xi64>, tensor<?xi64>, tensor<?xf32>, tensor<?x?x?xf32>) {
  %a, %b, %c, %d = attn.search "greedy" @step from %f max %max (%h : tensor<?x4xf32>)
      {sources = array<i64: -1, 1>, batch_dims = array<i64: 0, 0>, grow_dims = array<i64: -1, -1>,
       logits_result = 0 : i64, alignment_result = 2 : i64, eos = array<i64: 2>}
      : tensor<?xi64> -> tensor<?x?xi64>, tensor<?xi64>, tensor<?xf32>, tensor<?x?x?xf32>
  return %a, %b, %c, %d : tensor<?x?xi64>, tensor<?xi64>, tensor<?xf32>, tensor<?x?x?xf32>
}
