#q = affine_map<(i, j, d) -> (i, d)>
#k = affine_map<(i, j, d) -> (j, d)>
#s = affine_map<(i, j, d) -> (i, j)>
#id = affine_map<(i, j) -> (i, j)>
#w = affine_map<(i, e, j) -> (i, j)>
#v = affine_map<(i, e, j) -> (j, e)>
#o = affine_map<(i, e, j) -> (i, e)>
func.func @main(%q: tensor<5x4xf32>, %k: tensor<6x4xf32>, %v: tensor<6x3xf32>,
                %a: tensor<5x6xf32>, %b: tensor<5x6xf32>, %c: tensor<5x6xf32>) -> tensor<5x3xf32>
    attributes {attn.entry} {
  %zero = arith.constant 0.0 : f32
  %es = tensor.empty() : tensor<5x6xf32>
  %ey = tensor.empty() : tensor<5x3xf32>
  %fs = linalg.fill ins(%zero : f32) outs(%es : tensor<5x6xf32>) -> tensor<5x6xf32>
  %fy = linalg.fill ins(%zero : f32) outs(%ey : tensor<5x3xf32>) -> tensor<5x3xf32>
  %s = linalg.contract indexing_maps = [#q, #k, #s]
      ins(%q, %k : tensor<5x4xf32>, tensor<6x4xf32>) outs(%fs : tensor<5x6xf32>) -> tensor<5x6xf32>
  %m = linalg.generic {indexing_maps = [#id, #id, #id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%s, %a, %b, %c : tensor<5x6xf32>, tensor<5x6xf32>, tensor<5x6xf32>, tensor<5x6xf32>) outs(%es : tensor<5x6xf32>) {
  ^bb0(%x: f32, %x1: f32, %x2: f32, %x3: f32, %o: f32):
    %c1 = arith.cmpf ogt, %x1, %zero : f32
    %c2 = arith.cmpf ogt, %x2, %zero : f32
    %c3 = arith.cmpf olt, %x, %x3 : f32
    %either = arith.ori %c1, %c2 : i1
    %both = arith.andi %either, %c3 : i1
    %r = arith.select %both, %x, %zero : f32
    linalg.yield %r : f32
  } -> tensor<5x6xf32>
  %p = attn.softmax %m dim 1 : tensor<5x6xf32>
  %y = linalg.contract indexing_maps = [#w, #v, #o]
      ins(%p, %v : tensor<5x6xf32>, tensor<6x3xf32>) outs(%fy : tensor<5x3xf32>) -> tensor<5x3xf32>
  return %y : tensor<5x3xf32>
}
