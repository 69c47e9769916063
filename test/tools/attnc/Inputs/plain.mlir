#q = affine_map<(b, i, j, d) -> (b, i, d)>
#k = affine_map<(b, i, j, d) -> (b, j, d)>
#s = affine_map<(b, i, j, d) -> (b, i, j)>
#w = affine_map<(b, i, e, j) -> (b, i, j)>
#v = affine_map<(b, i, e, j) -> (b, j, e)>
#o = affine_map<(b, i, e, j) -> (b, i, e)>
func.func @main(%q: tensor<2x5x8xf32> {attn.name = "q", attn.dtype = "float32", attn.dims = ["", "", ""]},
                %k: tensor<2x7x8xf32> {attn.name = "k", attn.dtype = "float32", attn.dims = ["", "", ""]},
                %v: tensor<2x7x8xf32> {attn.name = "v", attn.dtype = "float32", attn.dims = ["", "", ""]})
    -> (tensor<2x5x8xf32> {attn.name = "y", attn.dtype = "float32", attn.dims = ["", "", ""]}) attributes {attn.entry} {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<2x5x7xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<2x5x7xf32>) -> tensor<2x5x7xf32>
  %s = linalg.contract indexing_maps = [#q, #k, #s] ins(%q, %k : tensor<2x5x8xf32>, tensor<2x7x8xf32>)
      outs(%z : tensor<2x5x7xf32>) -> tensor<2x5x7xf32>
  %w = attn.softmax %s dim 2 : tensor<2x5x7xf32>
  %f = tensor.empty() : tensor<2x5x8xf32>
  %y = linalg.fill ins(%zero : f32) outs(%f : tensor<2x5x8xf32>) -> tensor<2x5x8xf32>
  %o = linalg.contract indexing_maps = [#w, #v, #o] ins(%w, %v : tensor<2x5x7xf32>, tensor<2x7x8xf32>)
      outs(%y : tensor<2x5x8xf32>) -> tensor<2x5x8xf32>
  return %o : tensor<2x5x8xf32>
}
