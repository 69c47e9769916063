#row = affine_map<(i, j) -> (i)>
#all = affine_map<(i, j) -> (i, j)>
func.func @main(%table: tensor<?x384xf32> {attn.name = "table", attn.dims = ["n", ""]},
                %ids: tensor<?xi64> {attn.name = "ids", attn.dims = ["k"]}) -> tensor<?x384xf32> attributes {attn.entry} {
  %c0 = arith.constant 0 : index
  %n = tensor.dim %table, %c0 : tensor<?x384xf32>
  %k = tensor.dim %ids, %c0 : tensor<?xi64>
  %e = tensor.empty(%k) : tensor<?x384xf32>
  %y = linalg.generic {indexing_maps = [#row, #all], iterator_types = ["parallel", "parallel"]}
      ins(%ids : tensor<?xi64>) outs(%e : tensor<?x384xf32>) {
  ^bb0(%id: i64, %o: f32):
    %i = arith.index_cast %id : i64 to index
    %at = attn.check_index %i, %n, "node 'emb' (Gather)" : index
    %j = linalg.index 1 : index
    %v = tensor.extract %table[%at, %j] : tensor<?x384xf32>
    linalg.yield %v : f32
  } -> tensor<?x384xf32>
  return %y : tensor<?x384xf32>
}
