#id = affine_map<(i) -> (i)>
func.func @main(%x: tensor<4xf32> {attn.name = "x"}) -> tensor<4xf32> attributes {attn.entry} {
  %e = tensor.empty() : tensor<4xf32>
  %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
      ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) {
  ^bb0(%a: f32, %o: f32):
    %b = math.acosh %a : f32
    %c = math.erfc %b : f32
    linalg.yield %c : f32
  } -> tensor<4xf32>
  return %y : tensor<4xf32>
}
