// RUN: attn-opt %s -attn-recognize-attention -split-input-file | FileCheck %s

#mixed = affine_map<(i, j, g, h) -> (h, i, j)>
#mix = affine_map<(i, j, g, h) -> (g, h)>
#weights = affine_map<(i, j, g, h) -> (i, j, g)>
#w = affine_map<(g, i, e, j) -> (i, j, g)>
#v = affine_map<(g, i, e, j) -> (g, j, e)>
#o = affine_map<(g, i, e, j) -> (g, i, e)>
// Re-attention: the heads' weights of each pair are mixed and then normalised over the heads, before they weigh values.
// CHECK: fused = false, {{.*}}reason = "the weights of several rows are mixed before they weigh values (talking heads): each needs the rows of all heads"
// CHECK-LABEL: func.func @re_attention
func.func @re_attention(%s: tensor<3x6x7xf32>, %x: tensor<3x7x4xf32>) -> tensor<3x6x4xf32> {
  %zero = arith.constant 0.0 : f32
  %m = arith.constant dense<[[1.0, 2.0, 3.0], [0.5, 0.25, 0.125], [4.0, 3.0, 1.0]]> : tensor<3x3xf32>
  %scale = arith.constant dense<[1.0, 2.0, 3.0]> : tensor<3xf32>
  %p = attn.softmax %s dim 2 : tensor<3x6x7xf32>
  %e = tensor.empty() : tensor<6x7x3xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<6x7x3xf32>) -> tensor<6x7x3xf32>
  %t = linalg.contract indexing_maps = [#mixed, #mix, #weights] ins(%p, %m : tensor<3x6x7xf32>, tensor<3x3xf32>)
      outs(%f : tensor<6x7x3xf32>) -> tensor<6x7x3xf32>
  %n = attn.layer_norm %t, %scale axis 2 epsilon 1.0e-5 : tensor<6x7x3xf32>, tensor<3xf32>
  %eo = tensor.empty() : tensor<3x6x4xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<3x6x4xf32>) -> tensor<3x6x4xf32>
  %y = linalg.contract indexing_maps = [#w, #v, #o] ins(%n, %x : tensor<6x7x3xf32>, tensor<3x7x4xf32>)
      outs(%fo : tensor<3x6x4xf32>) -> tensor<3x6x4xf32>
  return %y : tensor<3x6x4xf32>
}

// -----

#mixed = affine_map<(i, j, g, h) -> (h, i, j)>
#mix = affine_map<(i, j, g, h) -> (g, h)>
#weights = affine_map<(i, j, g, h) -> (i, j, g)>
// Near miss: what is mixed weighs nothing.
// CHECK: fused = false, {{.*}}reason = "the weights are summed over other dimensions than the softmax runs over"
// CHECK-LABEL: func.func @mixed_alone
func.func @mixed_alone(%s: tensor<3x6x7xf32>) -> tensor<6x7x3xf32> {
  %zero = arith.constant 0.0 : f32
  %m = arith.constant dense<[[1.0, 2.0, 3.0], [0.5, 0.25, 0.125], [4.0, 3.0, 1.0]]> : tensor<3x3xf32>
  %scale = arith.constant dense<[1.0, 2.0, 3.0]> : tensor<3xf32>
  %p = attn.softmax %s dim 2 : tensor<3x6x7xf32>
  %e = tensor.empty() : tensor<6x7x3xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<6x7x3xf32>) -> tensor<6x7x3xf32>
  %t = linalg.contract indexing_maps = [#mixed, #mix, #weights] ins(%p, %m : tensor<3x6x7xf32>, tensor<3x3xf32>)
      outs(%f : tensor<6x7x3xf32>) -> tensor<6x7x3xf32>
  %n = attn.layer_norm %t, %scale axis 2 epsilon 1.0e-5 : tensor<6x7x3xf32>, tensor<3xf32>
  return %n : tensor<6x7x3xf32>
}

// -----

#qk_q = affine_map<(h, i, j, d) -> (h, i, d)>
#qk_k = affine_map<(h, i, j, d) -> (h, j, d)>
#qk_s = affine_map<(h, i, j, d) -> (h, i, j)>
#mix = affine_map<(g, i, j, h) -> (g, h)>
#mixed = affine_map<(g, i, j, h) -> (h, i, j)>
#scores = affine_map<(g, i, j, h) -> (g, i, j)>
#w = affine_map<(g, i, e, j) -> (g, i, j)>
#v = affine_map<(g, i, e, j) -> (g, j, e)>
#o = affine_map<(g, i, e, j) -> (g, i, e)>
// Heads are mixed before the softmax: the mixed scores are given. As a dot product of the matrix with them, each query
// would have keys of its own.
// CHECK: fused = true, kind = "given", {{.*}}reason = "its scores are stored before: a contraction mixes scores before the softmax (talking heads)"
// CHECK-LABEL: func.func @mixed_scores
// CHECK: %[[SCORES:.*]] = linalg.contract
// CHECK: %[[MIXED:.*]] = linalg.contract {{.*}}ins(%{{.*}}, %[[SCORES]] :
// CHECK: attn.attention kind  given {{.*}}ins(%[[MIXED]], %
func.func @mixed_scores(%q: tensor<3x6x4xf32>, %k: tensor<3x7x4xf32>, %x: tensor<3x7x4xf32>) -> tensor<3x6x4xf32> {
  %zero = arith.constant 0.0 : f32
  %m = arith.constant dense<[[1.0, 2.0, 3.0], [0.5, 0.25, 0.125], [4.0, 3.0, 1.0]]> : tensor<3x3xf32>
  %e = tensor.empty() : tensor<3x6x7xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<3x6x7xf32>) -> tensor<3x6x7xf32>
  %s = linalg.contract indexing_maps = [#qk_q, #qk_k, #qk_s] ins(%q, %k : tensor<3x6x4xf32>, tensor<3x7x4xf32>)
      outs(%f : tensor<3x6x7xf32>) -> tensor<3x6x7xf32>
  %t = linalg.contract indexing_maps = [#mix, #mixed, #scores] ins(%m, %s : tensor<3x3xf32>, tensor<3x6x7xf32>)
      outs(%f : tensor<3x6x7xf32>) -> tensor<3x6x7xf32>
  %p = attn.softmax %t dim 2 : tensor<3x6x7xf32>
  %eo = tensor.empty() : tensor<3x6x4xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<3x6x4xf32>) -> tensor<3x6x4xf32>
  %y = linalg.contract indexing_maps = [#w, #v, #o] ins(%p, %x : tensor<3x6x7xf32>, tensor<3x7x4xf32>)
      outs(%fo : tensor<3x6x4xf32>) -> tensor<3x6x4xf32>
  return %y : tensor<3x6x4xf32>
}

// -----

#pair = affine_map<(i, j, d) -> (i, j, d)>
#shared = affine_map<(i, j, d) -> (i, d)>
#s = affine_map<(i, j, d) -> (i, j)>
#w = affine_map<(i, e, j) -> (i, j)>
#v = affine_map<(i, e, j) -> (j, e)>
#o = affine_map<(i, e, j) -> (i, e)>
// Near miss: features of each pair that a vector weighs are keys, not scores that are mixed.
// CHECK: fused = true, kind = "dot"
// CHECK-LABEL: func.func @features_of_pairs
func.func @features_of_pairs(%k: tensor<6x7x4xf32>, %x: tensor<7x4xf32>) -> tensor<6x4xf32> {
  %zero = arith.constant 0.0 : f32
  %q = arith.constant dense<[1.0, 2.0, 3.0, 4.0]> : tensor<4xf32>
  %e = tensor.empty() : tensor<6x7xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<6x7xf32>) -> tensor<6x7xf32>
  %t = linalg.contract indexing_maps = [affine_map<(i, j, d) -> (d)>, #pair, #s] ins(%q, %k : tensor<4xf32>, tensor<6x7x4xf32>)
      outs(%f : tensor<6x7xf32>) -> tensor<6x7xf32>
  %p = attn.softmax %t dim 1 : tensor<6x7xf32>
  %eo = tensor.empty() : tensor<6x4xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<6x4xf32>) -> tensor<6x4xf32>
  %y = linalg.contract indexing_maps = [#w, #v, #o] ins(%p, %x : tensor<6x7xf32>, tensor<7x4xf32>)
      outs(%fo : tensor<6x4xf32>) -> tensor<6x4xf32>
  return %y : tensor<6x4xf32>
}

// -----

#pair = affine_map<(i, j, d) -> (i, j, d)>
#shared = affine_map<(i, j, d) -> (i, d)>
#s = affine_map<(i, j, d) -> (i, j)>
#w = affine_map<(i, e, j) -> (i, j)>
#v = affine_map<(i, e, j) -> (j, e)>
#o = affine_map<(i, e, j) -> (i, e)>
// Near miss: each query has keys of its own and is itself one of many, as with relative positions.
// CHECK: fused = true, kind = "dot"
// CHECK-LABEL: func.func @keys_of_each_query
func.func @keys_of_each_query(%q: tensor<6x4xf32>, %k: tensor<6x7x4xf32>, %x: tensor<7x4xf32>) -> tensor<6x4xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<6x7xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<6x7xf32>) -> tensor<6x7xf32>
  %t = linalg.contract indexing_maps = [#shared, #pair, #s] ins(%q, %k : tensor<6x4xf32>, tensor<6x7x4xf32>)
      outs(%f : tensor<6x7xf32>) -> tensor<6x7xf32>
  %p = attn.softmax %t dim 1 : tensor<6x7xf32>
  %eo = tensor.empty() : tensor<6x4xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<6x4xf32>) -> tensor<6x4xf32>
  %y = linalg.contract indexing_maps = [#w, #v, #o] ins(%p, %x : tensor<6x7xf32>, tensor<7x4xf32>)
      outs(%fo : tensor<6x4xf32>) -> tensor<6x4xf32>
  return %y : tensor<6x4xf32>
}
