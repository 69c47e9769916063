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
