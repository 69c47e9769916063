#map = affine_map<(d0, d1) -> (d0, d1)>
func.func @main(%x: tensor<?x4xf32> {attn.dims = ["n", ""], attn.dtype = "float32", attn.name = "x"})
    -> (tensor<?x4xf32> {attn.dims = ["n", ""], attn.dtype = "float32", attn.name = "y"}) attributes {attn.entry} {
  %c0 = arith.constant 0 : index
  %n = tensor.dim %x, %c0 : tensor<?x4xf32>
  %e = tensor.empty(%n) : tensor<?x4xf32>
  %y = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<?x4xf32>) outs(%e : tensor<?x4xf32>) {
  ^bb0(%in: f32, %out: f32):
    %negated = arith.negf %in : f32
    linalg.yield %negated : f32
  } -> tensor<?x4xf32>
  return %y : tensor<?x4xf32>
}
