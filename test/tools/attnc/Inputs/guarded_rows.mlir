#q = affine_map<(b, i, j, d) -> (b, i, d)>
#k = affine_map<(b, i, j, d) -> (b, j, d)>
#s = affine_map<(b, i, j, d) -> (b, i, j)>
#w = affine_map<(b, i, e, j) -> (b, i, j)>
#v = affine_map<(b, i, e, j) -> (b, j, e)>
#o = affine_map<(b, i, e, j) -> (b, i, e)>
#row = affine_map<(b, i, j) -> (i)>
#id = affine_map<(b, i, j) -> (b, i, j)>
// Weights that are NaN become 0: those of rows that the mask hides, which is added to the scores.
func.func @main(%q: tensor<2x5x8xf32> {attn.name = "q", attn.dtype = "float32", attn.dims = ["", "", ""]},
                %k: tensor<2x7x8xf32> {attn.name = "k", attn.dtype = "float32", attn.dims = ["", "", ""]},
                %m: tensor<5xf32> {attn.name = "m", attn.dtype = "float32", attn.dims = [""]},
                %v: tensor<2x7x8xf32> {attn.name = "v", attn.dtype = "float32", attn.dims = ["", "", ""]})
    -> (tensor<2x5x8xf32> {attn.name = "y", attn.dtype = "float32", attn.dims = ["", "", ""]}) attributes {attn.entry} {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<2x5x7xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<2x5x7xf32>) -> tensor<2x5x7xf32>
  %s = linalg.contract indexing_maps = [#q, #k, #s] ins(%q, %k : tensor<2x5x8xf32>, tensor<2x7x8xf32>)
      outs(%z : tensor<2x5x7xf32>) -> tensor<2x5x7xf32>
  %b = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%s, %m : tensor<2x5x7xf32>, tensor<5xf32>) outs(%e : tensor<2x5x7xf32>) {
  ^bb0(%x: f32, %y: f32, %out: f32):
    %t = arith.addf %x, %y : f32
    linalg.yield %t : f32
  } -> tensor<2x5x7xf32>
  %w = attn.softmax %b dim 2 : tensor<2x5x7xf32>
  %g = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%w : tensor<2x5x7xf32>) outs(%e : tensor<2x5x7xf32>) {
  ^bb0(%x: f32, %out: f32):
    %n = math.isnan %x : f32
    %y = arith.select %n, %zero, %x : f32
    linalg.yield %y : f32
  } -> tensor<2x5x7xf32>
  %f = tensor.empty() : tensor<2x5x8xf32>
  %y = linalg.fill ins(%zero : f32) outs(%f : tensor<2x5x8xf32>) -> tensor<2x5x8xf32>
  %o = linalg.contract indexing_maps = [#w, #v, #o] ins(%g, %v : tensor<2x5x7xf32>, tensor<2x7x8xf32>)
      outs(%y : tensor<2x5x8xf32>) -> tensor<2x5x8xf32>
  return %o : tensor<2x5x8xf32>
}
