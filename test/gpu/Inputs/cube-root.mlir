// A function of f64 that no operator of ONNX asks for, and that a GPU has no code for.
func.func @main(%x: tensor<4xf64> {attn.name = "x"}) -> (tensor<4xf64> {attn.name = "y"}) attributes {attn.entry} {
  %made = tensor.empty() : tensor<4xf64>
  %y = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%x : tensor<4xf64>) outs(%made : tensor<4xf64>) {
  ^bb0(%a: f64, %o: f64):
    %r = math.cbrt %a : f64 loc(#node)
    linalg.yield %r : f64
  } -> tensor<4xf64> loc(#node)
  return %y : tensor<4xf64>
}
#node = loc("node 'root' (Cbrt)")
