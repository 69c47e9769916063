// RUN: attn-opt %s -attn-recognize-attention -canonicalize -cse -split-input-file | FileCheck %s

#ijd = affine_map<(i, j, d) -> (i, j, d)>
#id = affine_map<(i, j, d) -> (i, d)>
#jd = affine_map<(i, j, d) -> (j, d)>
#ij = affine_map<(i, j, d) -> (i, j)>
#w = affine_map<(i, e, j) -> (i, j)>
#v = affine_map<(i, e, j) -> (j, e)>
#o = affine_map<(i, e, j) -> (i, e)>
// The softmax of negated squares of distances. The difference may be taken either way.
// CHECK: kind = "distance"
// CHECK-LABEL: func.func @gaussian
// CHECK-SAME: %[[Q:[^:]+]]: tensor<5x16xf32>, %[[K:[^:]+]]: tensor<?x16xf32>, %[[V:[^:]+]]: tensor<?x8xf32>
// CHECK: attn.attention kind distance masked_rows nan maps [#{{.+}}, #{{.+}}, #{{.+}}, #{{.+}}] ins(%[[Q]], %[[K]], %[[V]]
// CHECK: score
// CHECK-NOT: activation
// CHECK: return
func.func @gaussian(%q: tensor<5x16xf32>, %k: tensor<?x16xf32>, %v: tensor<?x8xf32>, %n: index) -> tensor<5x8xf32> {
  %zero = arith.constant 0.0 : f32
  %e3 = tensor.empty(%n) : tensor<5x?x16xf32>
  %t = linalg.generic {indexing_maps = [#id, #jd, #ijd], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%q, %k : tensor<5x16xf32>, tensor<?x16xf32>) outs(%e3 : tensor<5x?x16xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %s = arith.subf %y, %x : f32
    linalg.yield %s : f32
  } -> tensor<5x?x16xf32>
  %es = tensor.empty(%n) : tensor<5x?xf32>
  %fs = linalg.fill ins(%zero : f32) outs(%es : tensor<5x?xf32>) -> tensor<5x?xf32>
  %sq = linalg.generic {indexing_maps = [#ijd, #ij], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%t : tensor<5x?x16xf32>) outs(%fs : tensor<5x?xf32>) {
  ^bb0(%x: f32, %sum: f32):
    %s = arith.mulf %x, %x : f32
    %r = arith.addf %sum, %s : f32
    linalg.yield %r : f32
  } -> tensor<5x?xf32>
  %sc = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>],
                        iterator_types = ["parallel", "parallel"]}
      ins(%sq : tensor<5x?xf32>) outs(%es : tensor<5x?xf32>) {
  ^bb0(%x: f32, %o: f32):
    %r = arith.negf %x : f32
    linalg.yield %r : f32
  } -> tensor<5x?xf32>
  %p = attn.softmax %sc dim 1 : tensor<5x?xf32>
  %eo = tensor.empty() : tensor<5x8xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<5x8xf32>) -> tensor<5x8xf32>
  %o = linalg.contract indexing_maps = [#w, #v, #o] ins(%p, %v : tensor<5x?xf32>, tensor<?x8xf32>)
      outs(%fo : tensor<5x8xf32>) -> tensor<5x8xf32>
  return %o : tensor<5x8xf32>
}

// -----

#ijd = affine_map<(i, j, d) -> (i, j, d)>
#id = affine_map<(i, j, d) -> (i, d)>
#jd = affine_map<(i, j, d) -> (j, d)>
#ij = affine_map<(i, j, d) -> (i, j)>
#w = affine_map<(i, e, j) -> (i, j)>
#v = affine_map<(i, e, j) -> (j, e)>
#o = affine_map<(i, e, j) -> (i, e)>
// Near miss: sums of differences times their absolute values are no squares.
// CHECK: kind = "additive"
// CHECK-LABEL: func.func @signed_squares
// CHECK: attn.attention kind additive
// CHECK: activation
func.func @signed_squares(%q: tensor<5x16xf32>, %k: tensor<?x16xf32>, %v: tensor<?x8xf32>, %n: index) -> tensor<5x8xf32> {
  %zero = arith.constant 0.0 : f32
  %e3 = tensor.empty(%n) : tensor<5x?x16xf32>
  %t = linalg.generic {indexing_maps = [#id, #jd, #ijd], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%q, %k : tensor<5x16xf32>, tensor<?x16xf32>) outs(%e3 : tensor<5x?x16xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %s = arith.subf %x, %y : f32
    linalg.yield %s : f32
  } -> tensor<5x?x16xf32>
  %es = tensor.empty(%n) : tensor<5x?xf32>
  %fs = linalg.fill ins(%zero : f32) outs(%es : tensor<5x?xf32>) -> tensor<5x?xf32>
  %sc = linalg.generic {indexing_maps = [#ijd, #ij], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%t : tensor<5x?x16xf32>) outs(%fs : tensor<5x?xf32>) {
  ^bb0(%x: f32, %sum: f32):
    %a = math.absf %x : f32
    %s = arith.mulf %x, %a : f32
    %r = arith.addf %sum, %s : f32
    linalg.yield %r : f32
  } -> tensor<5x?xf32>
  %p = attn.softmax %sc dim 1 : tensor<5x?xf32>
  %eo = tensor.empty() : tensor<5x8xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<5x8xf32>) -> tensor<5x8xf32>
  %o = linalg.contract indexing_maps = [#w, #v, #o] ins(%p, %v : tensor<5x?xf32>, tensor<?x8xf32>)
      outs(%fo : tensor<5x8xf32>) -> tensor<5x8xf32>
  return %o : tensor<5x8xf32>
}

// -----

#ijd = affine_map<(i, j, d) -> (i, j, d)>
#id = affine_map<(i, j, d) -> (i, d)>
#jd = affine_map<(i, j, d) -> (j, d)>
#ij = affine_map<(i, j, d) -> (i, j)>
#w = affine_map<(i, e, j) -> (i, j)>
#v = affine_map<(i, e, j) -> (j, e)>
#o = affine_map<(i, e, j) -> (i, e)>
// Near miss: a term of the sum that depends on its place.
// CHECK: kind = "given"
// CHECK-LABEL: func.func @by_place
func.func @by_place(%q: tensor<5x16xf32>, %k: tensor<?x16xf32>, %v: tensor<?x8xf32>, %n: index) -> tensor<5x8xf32> {
  %zero = arith.constant 0.0 : f32
  %e3 = tensor.empty(%n) : tensor<5x?x16xf32>
  %t = linalg.generic {indexing_maps = [#id, #jd, #ijd], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%q, %k : tensor<5x16xf32>, tensor<?x16xf32>) outs(%e3 : tensor<5x?x16xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %s = arith.subf %y, %x : f32
    linalg.yield %s : f32
  } -> tensor<5x?x16xf32>
  %es = tensor.empty(%n) : tensor<5x?xf32>
  %fs = linalg.fill ins(%zero : f32) outs(%es : tensor<5x?xf32>) -> tensor<5x?xf32>
  %sq = linalg.generic {indexing_maps = [#ijd, #ij], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%t : tensor<5x?x16xf32>) outs(%fs : tensor<5x?xf32>) {
  ^bb0(%x: f32, %sum: f32):
    %d = linalg.index 2 : index
    %i = arith.index_cast %d : index to i32
    %f = arith.sitofp %i : i32 to f32
    %s = arith.mulf %x, %f : f32
    %r = arith.addf %sum, %s : f32
    linalg.yield %r : f32
  } -> tensor<5x?xf32>
  %sc = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>],
                        iterator_types = ["parallel", "parallel"]}
      ins(%sq : tensor<5x?xf32>) outs(%es : tensor<5x?xf32>) {
  ^bb0(%x: f32, %o: f32):
    %r = arith.negf %x : f32
    linalg.yield %r : f32
  } -> tensor<5x?xf32>
  %p = attn.softmax %sc dim 1 : tensor<5x?xf32>
  %eo = tensor.empty() : tensor<5x8xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<5x8xf32>) -> tensor<5x8xf32>
  %o = linalg.contract indexing_maps = [#w, #v, #o] ins(%p, %v : tensor<5x?xf32>, tensor<?x8xf32>)
      outs(%fo : tensor<5x8xf32>) -> tensor<5x8xf32>
  return %o : tensor<5x8xf32>
}
