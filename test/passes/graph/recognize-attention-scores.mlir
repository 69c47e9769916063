// RUN: attn-opt %s -attn-recognize-attention -canonicalize -cse -split-input-file | FileCheck %s

// What scores are made of: given, additive, a sum of two terms; f64.

#w = affine_map<(b, i, e, j) -> (b, i, j)>
#v = affine_map<(b, i, e, j) -> (b, j, e)>
#o = affine_map<(b, i, e, j) -> (b, i, e)>
// Scores that are no product.
// CHECK: fused = true, kind = "given"
// CHECK-LABEL: func.func @given_scores
// CHECK-SAME: %[[S:[^:]+]]: tensor<2x5x7xf32>, %[[V:[^:]+]]: tensor<2x7x8xf32>
// CHECK: attn.attention kind given masked_rows nan
// CHECK-SAME: ins(%[[S]], %[[V]] : tensor<2x5x7xf32>, tensor<2x7x8xf32>)
func.func @given_scores(%s: tensor<2x5x7xf32>, %v: tensor<2x7x8xf32>) -> tensor<2x5x8xf32> {
  %zero = arith.constant 0.0 : f32
  %p = attn.softmax %s dim 2 : tensor<2x5x7xf32>
  %eo = tensor.empty() : tensor<2x5x8xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<2x5x8xf32>) -> tensor<2x5x8xf32>
  %o = linalg.contract indexing_maps = [#w, #v, #o] ins(%p, %v : tensor<2x5x7xf32>, tensor<2x7x8xf32>)
      outs(%fo : tensor<2x5x8xf32>) -> tensor<2x5x8xf32>
  return %o : tensor<2x5x8xf32>
}

// -----

#s = affine_map<(b, i, j) -> (b, i, j)>
#t = affine_map<(b, i, j) -> (b, i)>
#w = affine_map<(b, i, e, j) -> (b, i, j)>
#v = affine_map<(b, i, e, j) -> (b, j, e)>
#o = affine_map<(b, i, e, j) -> (b, i, e)>
// Scores below one of themselves are hidden: those that it is one of are given, not what they are computed from.
// CHECK-LABEL: func.func @threshold_of_scores
// CHECK-SAME: %[[S:[^:]+]]: tensor<2x5x7xf32>, %[[V:[^:]+]]: tensor<2x7x8xf32>
// CHECK: %[[SCALED:.+]] = linalg.generic {{.*}}ins(%[[S]]
// CHECK: %[[TOP:.+]], %{{.+}} = attn.top_k %[[SCALED]]
// CHECK: attn.attention kind given
// CHECK-SAME: ins(%[[SCALED]], %[[V]]
// CHECK: score
// CHECK-NOT: arith.divf
// CHECK: arith.cmpf
// CHECK: return
func.func @threshold_of_scores(%s: tensor<2x5x7xf32>, %v: tensor<2x7x8xf32>) -> tensor<2x5x8xf32> {
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %rate = arith.constant 3.0 : f32
  %one = arith.constant 1 : index
  %es = tensor.empty() : tensor<2x5x7xf32>
  %scaled = linalg.generic {indexing_maps = [#s, #s], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%s : tensor<2x5x7xf32>) outs(%es : tensor<2x5x7xf32>) {
  ^bb0(%a: f32, %out: f32):
    %r = arith.divf %a, %rate : f32
    linalg.yield %r : f32
  } -> tensor<2x5x7xf32>
  %top, %at = attn.top_k %scaled, %one dim 2 : tensor<2x5x7xf32> -> tensor<2x5x1xf32>, tensor<2x5x1xi64>
  %least = tensor.collapse_shape %top [[0], [1, 2]] : tensor<2x5x1xf32> into tensor<2x5xf32>
  %z = linalg.generic {indexing_maps = [#s, #t, #s], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%scaled, %least : tensor<2x5x7xf32>, tensor<2x5xf32>) outs(%es : tensor<2x5x7xf32>) {
  ^bb0(%a: f32, %t: f32, %out: f32):
    %c = arith.cmpf olt, %a, %t : f32
    %r = arith.select %c, %low, %a : f32
    linalg.yield %r : f32
  } -> tensor<2x5x7xf32>
  %p = attn.softmax %z dim 2 : tensor<2x5x7xf32>
  %eo = tensor.empty() : tensor<2x5x8xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<2x5x8xf32>) -> tensor<2x5x8xf32>
  %o = linalg.contract indexing_maps = [#w, #v, #o] ins(%p, %v : tensor<2x5x7xf32>, tensor<2x7x8xf32>)
      outs(%fo : tensor<2x5x8xf32>) -> tensor<2x5x8xf32>
  return %o : tensor<2x5x8xf32>
}

// -----

#q = affine_map<(b, i, j, d) -> (b, i, d)>
#k = affine_map<(b, i, j, d) -> (b, j, d)>
#s = affine_map<(b, i, j, d) -> (b, i, j)>
#w = affine_map<(b, i, e, j) -> (b, i, j)>
#v = affine_map<(b, i, e, j) -> (b, j, e)>
#o = affine_map<(b, i, e, j) -> (b, i, e)>
// In f64 regions, too.
// CHECK-LABEL: func.func @double
// CHECK: attn.attention masked_rows nan
// CHECK: ^bb0(%{{.+}}: f64):
func.func @double(%q: tensor<2x5x8xf64>, %k: tensor<2x7x8xf64>, %v: tensor<2x7x8xf64>) -> tensor<2x5x8xf64> {
  %zero = arith.constant 0.0 : f64
  %es = tensor.empty() : tensor<2x5x7xf64>
  %fs = linalg.fill ins(%zero : f64) outs(%es : tensor<2x5x7xf64>) -> tensor<2x5x7xf64>
  %sc = linalg.contract indexing_maps = [#q, #k, #s] ins(%q, %k : tensor<2x5x8xf64>, tensor<2x7x8xf64>)
      outs(%fs : tensor<2x5x7xf64>) -> tensor<2x5x7xf64>
  %p = attn.softmax %sc dim 2 : tensor<2x5x7xf64>
  %eo = tensor.empty() : tensor<2x5x8xf64>
  %fo = linalg.fill ins(%zero : f64) outs(%eo : tensor<2x5x8xf64>) -> tensor<2x5x8xf64>
  %o = linalg.contract indexing_maps = [#w, #v, #o] ins(%p, %v : tensor<2x5x7xf64>, tensor<2x7x8xf64>)
      outs(%fo : tensor<2x5x8xf64>) -> tensor<2x5x8xf64>
  return %o : tensor<2x5x8xf64>
}

// -----

#all = affine_map<(b, j, d) -> (b, j, d)>
#bd = affine_map<(b, j, d) -> (b, d)>
#dv = affine_map<(b, j, d) -> (d)>
#bj = affine_map<(b, j, d) -> (b, j)>
#w = affine_map<(b, e, j) -> (b, j)>
#v = affine_map<(b, e, j) -> (b, j, e)>
#o = affine_map<(b, e, j) -> (b, e)>
// Bahdanau: tanh of a sum of query, key and bias, contracted with a vector. What does not depend on the key is the
// query; the rest stays one tensor.
// CHECK: #[[Q:.+]] = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d4)>
// CHECK: #[[K:.+]] = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d3, d4)>
// CHECK: #[[A:.+]] = affine_map<(d0, d1, d2, d3, d4, d5) -> (d4)>
// CHECK: fused = true, kind = "additive"
// CHECK-LABEL: func.func @additive
// CHECK-SAME: %[[QUERY:[^:]+]]: tensor<?x16xf32>, %[[KEY:[^:]+]]: tensor<?x?x16xf32>, %[[BIAS:[^:]+]]: tensor<16xf32>, %[[A1:[^:]+]]: tensor<16xf32>
// CHECK: %[[SUM:.+]] = linalg.generic {{.*}}ins(%[[QUERY]], %[[BIAS]]
// CHECK: attn.attention kind additive masked_rows nan maps [#[[Q]], #[[K]], #{{.+}}, #[[A]], #{{.+}}]
// CHECK-SAME: ins(%[[SUM]], %[[KEY]], %{{.+}}, %[[A1]] :
// CHECK: score
// CHECK: activation
// CHECK: math.tanh
func.func @additive(%q: tensor<?x16xf32>, %k: tensor<?x?x16xf32>, %bias: tensor<16xf32>, %a: tensor<16xf32>,
                    %v: tensor<?x?x8xf32>, %b: index, %n: index) -> tensor<?x8xf32> {
  %zero = arith.constant 0.0 : f32
  %e3 = tensor.empty(%b, %n) : tensor<?x?x16xf32>
  %qk = linalg.generic {indexing_maps = [#all, #bd, #all], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%k, %q : tensor<?x?x16xf32>, tensor<?x16xf32>) outs(%e3 : tensor<?x?x16xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %r = arith.addf %x, %y : f32
    linalg.yield %r : f32
  } -> tensor<?x?x16xf32>
  %sum = linalg.generic {indexing_maps = [#all, #dv, #all], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%qk, %bias : tensor<?x?x16xf32>, tensor<16xf32>) outs(%e3 : tensor<?x?x16xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %r = arith.addf %x, %y : f32
    linalg.yield %r : f32
  } -> tensor<?x?x16xf32>
  %t = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%sum : tensor<?x?x16xf32>) outs(%e3 : tensor<?x?x16xf32>) {
  ^bb0(%x: f32, %o: f32):
    %r = math.tanh %x : f32
    linalg.yield %r : f32
  } -> tensor<?x?x16xf32>
  %es = tensor.empty(%b, %n) : tensor<?x?xf32>
  %fs = linalg.fill ins(%zero : f32) outs(%es : tensor<?x?xf32>) -> tensor<?x?xf32>
  %s = linalg.contract indexing_maps = [#all, #dv, #bj] ins(%t, %a : tensor<?x?x16xf32>, tensor<16xf32>)
      outs(%fs : tensor<?x?xf32>) -> tensor<?x?xf32>
  %p = attn.softmax %s dim 1 : tensor<?x?xf32>
  %eo = tensor.empty(%b) : tensor<?x8xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<?x8xf32>) -> tensor<?x8xf32>
  %o = linalg.contract indexing_maps = [#w, #v, #o] ins(%p, %v : tensor<?x?xf32>, tensor<?x?x8xf32>)
      outs(%fo : tensor<?x8xf32>) -> tensor<?x8xf32>
  return %o : tensor<?x8xf32>
}

// -----

#ij = affine_map<(i, j) -> (i, j)>
#i = affine_map<(i, j) -> (i)>
#j = affine_map<(i, j) -> (j)>
#w = affine_map<(i, e, j) -> (i, j)>
#v = affine_map<(i, e, j) -> (j, e)>
#o = affine_map<(i, e, j) -> (i, e)>
// Graph attention: a term of the query and a term of the key, of width one; LeakyReLU is part of the score region.
// CHECK: fused = true, kind = "additive"
// CHECK-LABEL: func.func @rank_one
// CHECK: %[[ONE:.+]] = arith.constant dense<1.000000e+00> : tensor<1xf32>
// CHECK: attn.attention kind additive masked_rows nan
// CHECK-SAME: ins(%{{.+}}, %{{.+}}, %{{.+}}, %[[ONE]] : tensor<?x1xf32>, tensor<?x1xf32>, tensor<?x8xf32>, tensor<1xf32>)
// CHECK: score
// CHECK: arith.maximumf
// CHECK-NOT: activation
// CHECK: return
func.func @rank_one(%l: tensor<?xf32>, %r: tensor<?xf32>, %v: tensor<?x8xf32>, %n: index) -> tensor<?x8xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty(%n, %n) : tensor<?x?xf32>
  %s = linalg.generic {indexing_maps = [#i, #j, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%l, %r : tensor<?xf32>, tensor<?xf32>) outs(%e : tensor<?x?xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %t = arith.addf %x, %y : f32
    linalg.yield %t : f32
  } -> tensor<?x?xf32>
  %leaky = linalg.generic {indexing_maps = [#ij, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%s : tensor<?x?xf32>) outs(%e : tensor<?x?xf32>) {
  ^bb0(%x: f32, %o: f32):
    %c = arith.constant 0.2 : f32
    %t = arith.mulf %x, %c : f32
    %m = arith.maximumf %x, %t : f32
    linalg.yield %m : f32
  } -> tensor<?x?xf32>
  %p = attn.softmax %leaky dim 1 : tensor<?x?xf32>
  %eo = tensor.empty(%n) : tensor<?x8xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<?x8xf32>) -> tensor<?x8xf32>
  %o = linalg.contract indexing_maps = [#w, #v, #o] ins(%p, %v : tensor<?x?xf32>, tensor<?x8xf32>)
      outs(%fo : tensor<?x8xf32>) -> tensor<?x8xf32>
  return %o : tensor<?x8xf32>
}

// -----

#ij = affine_map<(i, j) -> (i, j)>
#i = affine_map<(i, j) -> (i)>
#j = affine_map<(i, j) -> (j)>
#w = affine_map<(i, e, j) -> (i, j)>
#v = affine_map<(i, e, j) -> (j, e)>
#o = affine_map<(i, e, j) -> (i, e)>
// A bias for every pair comes first in the sum; the two terms are found behind the other one.
// CHECK: fused = true, kind = "additive"
// CHECK-LABEL: func.func @bias_before_two_terms
// CHECK-SAME: %[[BIAS:[^:]+]]: tensor<?x?xf32>
// CHECK: attn.attention kind additive {{.*}}captures(%[[BIAS]] : tensor<?x?xf32>)
func.func @bias_before_two_terms(%bias: tensor<?x?xf32>, %l: tensor<?xf32>, %r: tensor<?xf32>, %v: tensor<?x8xf32>, %n: index) -> tensor<?x8xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty(%n, %n) : tensor<?x?xf32>
  %s = linalg.generic {indexing_maps = [#i, #j, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%l, %r : tensor<?xf32>, tensor<?xf32>) outs(%e : tensor<?x?xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %t = arith.addf %x, %y : f32
    linalg.yield %t : f32
  } -> tensor<?x?xf32>
  %sum = linalg.generic {indexing_maps = [#ij, #ij, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%bias, %s : tensor<?x?xf32>, tensor<?x?xf32>) outs(%e : tensor<?x?xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %t = arith.addf %x, %y : f32
    linalg.yield %t : f32
  } -> tensor<?x?xf32>
  %p = attn.softmax %sum dim 1 : tensor<?x?xf32>
  %eo = tensor.empty(%n) : tensor<?x8xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<?x8xf32>) -> tensor<?x8xf32>
  %o = linalg.contract indexing_maps = [#w, #v, #o] ins(%p, %v : tensor<?x?xf32>, tensor<?x8xf32>)
      outs(%fo : tensor<?x8xf32>) -> tensor<?x8xf32>
  return %o : tensor<?x8xf32>
}

// -----

#kd = affine_map<(j, d) -> (j, d)>
#qd = affine_map<(j, d) -> (d)>
#sj = affine_map<(j, d) -> (j)>
#ij = affine_map<(i, j) -> (i, j)>
#j = affine_map<(i, j) -> (j)>
#w = affine_map<(i, e, j) -> (i, j)>
#v = affine_map<(i, e, j) -> (j, e)>
#o = affine_map<(i, e, j) -> (i, e)>
// One query, and a mask with rows (one, in the runs that are meant): the query is repeated for them.
// CHECK: fused = true, kind = "dot"
// CHECK-LABEL: func.func @rows_of_the_mask
// CHECK-SAME: %[[Q:[^:]+]]: tensor<8xf32>
// CHECK: %[[REPEATED:.+]] = linalg.generic {{.*}} ins(%[[Q]] : tensor<8xf32>) outs(%{{.+}} : tensor<?x8xf32>)
// CHECK: attn.attention masked_rows nan
// CHECK-SAME: ins(%[[REPEATED]],
func.func @rows_of_the_mask(%q: tensor<8xf32>, %k: tensor<?x8xf32>, %mask: tensor<?x?xf32>, %v: tensor<?x8xf32>, %m: index, %n: index) -> tensor<?x8xf32> {
  %zero = arith.constant 0.0 : f32
  %es = tensor.empty(%n) : tensor<?xf32>
  %fs = linalg.fill ins(%zero : f32) outs(%es : tensor<?xf32>) -> tensor<?xf32>
  %s = linalg.contract indexing_maps = [#kd, #qd, #sj] ins(%k, %q : tensor<?x8xf32>, tensor<8xf32>)
      outs(%fs : tensor<?xf32>) -> tensor<?xf32>
  %e = tensor.empty(%m, %n) : tensor<?x?xf32>
  %sum = linalg.generic {indexing_maps = [#j, #ij, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%s, %mask : tensor<?xf32>, tensor<?x?xf32>) outs(%e : tensor<?x?xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %t = arith.addf %x, %y : f32
    linalg.yield %t : f32
  } -> tensor<?x?xf32>
  %p = attn.softmax %sum dim 1 : tensor<?x?xf32>
  %eo = tensor.empty(%m) : tensor<?x8xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<?x8xf32>) -> tensor<?x8xf32>
  %o = linalg.contract indexing_maps = [#w, #v, #o] ins(%p, %v : tensor<?x?xf32>, tensor<?x8xf32>)
      outs(%fo : tensor<?x8xf32>) -> tensor<?x8xf32>
  return %o : tensor<?x8xf32>
}

// -----

// Heads that share key and value, after the rows in the query: the mask asks for
// the row's place, so the heads are the batch.
// CHECK-LABEL: func @shared_key
// CHECK: attn.attention
// CHECK: attn.index 3
// CHECK: attn.index 2
func.func @shared_key(%q: tensor<12x4x8xf32>, %k: tensor<12x8xf32>, %v: tensor<12x8xf32>) -> tensor<4x12x8xf32> {
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x12x12xf32>
  %f = linalg.fill ins(%z : f32) outs(%e : tensor<4x12x12xf32>) -> tensor<4x12x12xf32>
  %s = linalg.contract indexing_maps = [affine_map<(h, i, j, d) -> (i, h, d)>, affine_map<(h, i, j, d) -> (j, d)>, affine_map<(h, i, j, d) -> (h, i, j)>]
      ins(%q, %k : tensor<12x4x8xf32>, tensor<12x8xf32>) outs(%f : tensor<4x12x12xf32>) -> tensor<4x12x12xf32>
  %m = linalg.generic {indexing_maps = [affine_map<(h, i, j) -> (h, i, j)>, affine_map<(h, i, j) -> (h, i, j)>], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%s : tensor<4x12x12xf32>) outs(%e : tensor<4x12x12xf32>) {
  ^bb0(%a: f32, %o: f32):
    %low = arith.constant 0xFF800000 : f32
    %j = linalg.index 2 : index
    %i = linalg.index 1 : index
    %shown = arith.cmpi sle, %j, %i : index
    %y = arith.select %shown, %a, %low : f32
    linalg.yield %y : f32
  } -> tensor<4x12x12xf32>
  %p = attn.softmax %m dim 2 : tensor<4x12x12xf32>
  %e1 = tensor.empty() : tensor<4x12x8xf32>
  %f1 = linalg.fill ins(%z : f32) outs(%e1 : tensor<4x12x8xf32>) -> tensor<4x12x8xf32>
  %y = linalg.contract indexing_maps = [affine_map<(h, i, e, j) -> (h, i, j)>, affine_map<(h, i, e, j) -> (j, e)>, affine_map<(h, i, e, j) -> (h, i, e)>]
      ins(%p, %v : tensor<4x12x12xf32>, tensor<12x8xf32>) outs(%f1 : tensor<4x12x8xf32>) -> tensor<4x12x8xf32>
  return %y : tensor<4x12x8xf32>
}

// -----

// Shifted windows: the mask of each of 4 windows is repeated for 2 images, which
// q, k and v hold in one dimension. It is read at b then, and the bias at h.
// CHECK-LABEL: func @windows
// CHECK-SAME: %[[M:[^:]+]]: tensor<4x5x5xf32>, %[[B:[^:]+]]: tensor<3x5x5xf32>
// CHECK: %[[R:.+]] = linalg.generic {{.*}} ins(%[[M]] : tensor<4x5x5xf32>) outs(%{{.+}} : tensor<2x4x5x5xf32>)
// CHECK: %[[C:.+]] = tensor.collapse_shape %[[R]] {{.*}} into tensor<8x5x5xf32>
// CHECK: attn.attention
// CHECK-SAME: captures(%[[B]], %[[C]] : tensor<3x5x5xf32>, tensor<8x5x5xf32>)
func.func @windows(%m: tensor<4x5x5xf32>, %b: tensor<3x5x5xf32>, %q: tensor<8x3x5x7xf32>, %k: tensor<8x3x5x7xf32>, %v: tensor<8x3x5x7xf32>) -> tensor<8x3x5x7xf32> {
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<8x3x5x5xf32>
  %f = linalg.fill ins(%z : f32) outs(%e : tensor<8x3x5x5xf32>) -> tensor<8x3x5x5xf32>
  %s = linalg.contract indexing_maps = [affine_map<(n, h, i, j, d) -> (n, h, i, d)>, affine_map<(n, h, i, j, d) -> (n, h, j, d)>, affine_map<(n, h, i, j, d) -> (n, h, i, j)>]
      ins(%q, %k : tensor<8x3x5x7xf32>, tensor<8x3x5x7xf32>) outs(%f : tensor<8x3x5x5xf32>) -> tensor<8x3x5x5xf32>
  %t = linalg.generic {indexing_maps = [affine_map<(n, h, i, j) -> (n, h, i, j)>, affine_map<(n, h, i, j) -> (h, i, j)>, affine_map<(n, h, i, j) -> (n, h, i, j)>],
      iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%s, %b : tensor<8x3x5x5xf32>, tensor<3x5x5xf32>) outs(%e : tensor<8x3x5x5xf32>) {
  ^bb0(%x: f32, %c: f32, %o: f32):
    %y = arith.addf %x, %c : f32
    linalg.yield %y : f32
  } -> tensor<8x3x5x5xf32>
  %split = tensor.expand_shape %t [[0, 1], [2], [3], [4]] output_shape [2, 4, 3, 5, 5] : tensor<8x3x5x5xf32> into tensor<2x4x3x5x5xf32>
  %e5 = tensor.empty() : tensor<2x4x3x5x5xf32>
  %u = linalg.generic {indexing_maps = [affine_map<(g, w, h, i, j) -> (g, w, h, i, j)>, affine_map<(g, w, h, i, j) -> (w, i, j)>, affine_map<(g, w, h, i, j) -> (g, w, h, i, j)>],
      iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel"]} ins(%split, %m : tensor<2x4x3x5x5xf32>, tensor<4x5x5xf32>) outs(%e5 : tensor<2x4x3x5x5xf32>) {
  ^bb0(%x: f32, %c: f32, %o: f32):
    %y = arith.addf %x, %c : f32
    linalg.yield %y : f32
  } -> tensor<2x4x3x5x5xf32>
  %whole = tensor.collapse_shape %u [[0, 1], [2], [3], [4]] : tensor<2x4x3x5x5xf32> into tensor<8x3x5x5xf32>
  %p = attn.softmax %whole dim 3 : tensor<8x3x5x5xf32>
  %e1 = tensor.empty() : tensor<8x3x5x7xf32>
  %f1 = linalg.fill ins(%z : f32) outs(%e1 : tensor<8x3x5x7xf32>) -> tensor<8x3x5x7xf32>
  %y = linalg.contract indexing_maps = [affine_map<(n, h, i, d, j) -> (n, h, i, j)>, affine_map<(n, h, i, d, j) -> (n, h, j, d)>, affine_map<(n, h, i, d, j) -> (n, h, i, d)>]
      ins(%p, %v : tensor<8x3x5x5xf32>, tensor<8x3x5x7xf32>) outs(%f1 : tensor<8x3x5x7xf32>) -> tensor<8x3x5x7xf32>
  return %y : tensor<8x3x5x7xf32>
}

// -----

// Keys of an image of 3 x 3: a bias for each of its rows and one for each of its columns (relative positions,
// decomposed) are added to scores cut for that. Each bias is repeated along what it lacks, and
// their sum is what is read.
// CHECK: kind = "dot", {{.*}}reason = ""
// CHECK-LABEL: func @grid
// CHECK-SAME: %[[Q:[^:]+]]: tensor<2x5x7xf32>, %[[K:[^:]+]]: tensor<2x9x7xf32>, %[[V:[^:]+]]: tensor<2x9x7xf32>, %[[H:[^:]+]]: tensor<2x5x3xf32>, %[[W:[^:]+]]: tensor<2x5x3xf32>
// CHECK-DAG: %[[RH:.+]] = linalg.generic {indexing_maps = [#[[ROW:.+]], #[[ALL:.+]]], {{.*}} ins(%[[H]] : tensor<2x5x3xf32>)
// CHECK-DAG: %[[RW:.+]] = linalg.generic {indexing_maps = [#[[COLUMN:.+]], #[[ALL]]], {{.*}} ins(%[[W]] : tensor<2x5x3xf32>)
// CHECK: %[[SUM:.+]] = linalg.generic {{.*}} ins(%[[RH]], %[[RW]] : tensor<2x5x3x3xf32>, tensor<2x5x3x3xf32>)
// CHECK: %[[C:.+]] = tensor.collapse_shape %[[SUM]] {{.*}} into tensor<2x5x9xf32>
// CHECK: attn.attention
// CHECK-SAME: ins(%[[Q]], %[[K]], %[[V]] : {{.*}}) captures(%[[C]] : tensor<2x5x9xf32>)
#g = affine_map<(b, i, y, x) -> (b, i, y, x)>
#y = affine_map<(b, i, y, x) -> (b, i, y)>
#x = affine_map<(b, i, y, x) -> (b, i, x)>
func.func @grid(%q: tensor<2x5x7xf32>, %k: tensor<2x9x7xf32>, %v: tensor<2x9x7xf32>, %h: tensor<2x5x3xf32>, %w: tensor<2x5x3xf32>) -> tensor<2x5x7xf32> {
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<2x5x9xf32>
  %f = linalg.fill ins(%z : f32) outs(%e : tensor<2x5x9xf32>) -> tensor<2x5x9xf32>
  %s = linalg.contract indexing_maps = [affine_map<(b, i, j, d) -> (b, i, d)>, affine_map<(b, i, j, d) -> (b, j, d)>, affine_map<(b, i, j, d) -> (b, i, j)>]
      ins(%q, %k : tensor<2x5x7xf32>, tensor<2x9x7xf32>) outs(%f : tensor<2x5x9xf32>) -> tensor<2x5x9xf32>
  %cut = tensor.expand_shape %s [[0], [1], [2, 3]] output_shape [2, 5, 3, 3] : tensor<2x5x9xf32> into tensor<2x5x3x3xf32>
  %e4 = tensor.empty() : tensor<2x5x3x3xf32>
  %t = linalg.generic {indexing_maps = [#g, #y, #g], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%cut, %h : tensor<2x5x3x3xf32>, tensor<2x5x3xf32>) outs(%e4 : tensor<2x5x3x3xf32>) {
  ^bb0(%a: f32, %c: f32, %o: f32):
    %r = arith.addf %c, %a : f32
    linalg.yield %r : f32
  } -> tensor<2x5x3x3xf32>
  %u = linalg.generic {indexing_maps = [#g, #x, #g], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%t, %w : tensor<2x5x3x3xf32>, tensor<2x5x3xf32>) outs(%e4 : tensor<2x5x3x3xf32>) {
  ^bb0(%a: f32, %c: f32, %o: f32):
    %r = arith.addf %a, %c : f32
    linalg.yield %r : f32
  } -> tensor<2x5x3x3xf32>
  %whole = tensor.collapse_shape %u [[0], [1], [2, 3]] : tensor<2x5x3x3xf32> into tensor<2x5x9xf32>
  %p = attn.softmax %whole dim 2 : tensor<2x5x9xf32>
  %e1 = tensor.empty() : tensor<2x5x7xf32>
  %f1 = linalg.fill ins(%z : f32) outs(%e1 : tensor<2x5x7xf32>) -> tensor<2x5x7xf32>
  %y = linalg.contract indexing_maps = [affine_map<(b, i, d, j) -> (b, i, j)>, affine_map<(b, i, d, j) -> (b, j, d)>, affine_map<(b, i, d, j) -> (b, i, d)>]
      ins(%p, %v : tensor<2x5x9xf32>, tensor<2x9x7xf32>) outs(%f1 : tensor<2x5x7xf32>) -> tensor<2x5x7xf32>
  return %y : tensor<2x5x7xf32>
}

// -----

// The bias is stored by columns of the image: as it is, its keys are not in the order of the values.
// CHECK: reason = "several key dimensions that are not side by side"
// CHECK-LABEL: func @grid_by_columns
// CHECK-NOT: attn.attention masked_rows
#g = affine_map<(b, i, y, x) -> (b, i, y, x)>
#y = affine_map<(b, i, y, x) -> (b, i, x, y)>
#x = affine_map<(b, i, y, x) -> (b, i, x)>
func.func @grid_by_columns(%q: tensor<2x5x7xf32>, %k: tensor<2x9x7xf32>, %v: tensor<2x9x7xf32>, %h: tensor<2x5x3x3xf32>, %w: tensor<2x5x3xf32>) -> tensor<2x5x7xf32> {
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<2x5x9xf32>
  %f = linalg.fill ins(%z : f32) outs(%e : tensor<2x5x9xf32>) -> tensor<2x5x9xf32>
  %s = linalg.contract indexing_maps = [affine_map<(b, i, j, d) -> (b, i, d)>, affine_map<(b, i, j, d) -> (b, j, d)>, affine_map<(b, i, j, d) -> (b, i, j)>]
      ins(%q, %k : tensor<2x5x7xf32>, tensor<2x9x7xf32>) outs(%f : tensor<2x5x9xf32>) -> tensor<2x5x9xf32>
  %cut = tensor.expand_shape %s [[0], [1], [2, 3]] output_shape [2, 5, 3, 3] : tensor<2x5x9xf32> into tensor<2x5x3x3xf32>
  %e4 = tensor.empty() : tensor<2x5x3x3xf32>
  %t = linalg.generic {indexing_maps = [#g, #y, #g], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%cut, %h : tensor<2x5x3x3xf32>, tensor<2x5x3x3xf32>) outs(%e4 : tensor<2x5x3x3xf32>) {
  ^bb0(%a: f32, %c: f32, %o: f32):
    %r = arith.addf %a, %c : f32
    linalg.yield %r : f32
  } -> tensor<2x5x3x3xf32>
  %u = linalg.generic {indexing_maps = [#g, #x, #g], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%t, %w : tensor<2x5x3x3xf32>, tensor<2x5x3xf32>) outs(%e4 : tensor<2x5x3x3xf32>) {
  ^bb0(%a: f32, %c: f32, %o: f32):
    %r = arith.addf %a, %c : f32
    linalg.yield %r : f32
  } -> tensor<2x5x3x3xf32>
  %whole = tensor.collapse_shape %u [[0], [1], [2, 3]] : tensor<2x5x3x3xf32> into tensor<2x5x9xf32>
  %p = attn.softmax %whole dim 2 : tensor<2x5x9xf32>
  %e1 = tensor.empty() : tensor<2x5x7xf32>
  %f1 = linalg.fill ins(%z : f32) outs(%e1 : tensor<2x5x7xf32>) -> tensor<2x5x7xf32>
  %y = linalg.contract indexing_maps = [affine_map<(b, i, d, j) -> (b, i, j)>, affine_map<(b, i, d, j) -> (b, j, d)>, affine_map<(b, i, d, j) -> (b, i, d)>]
      ins(%p, %v : tensor<2x5x9xf32>, tensor<2x9x7xf32>) outs(%f1 : tensor<2x5x7xf32>) -> tensor<2x5x7xf32>
  return %y : tensor<2x5x7xf32>
}

// -----

// The second one is no term of a sum: each stays a capture.
// CHECK: kind = "dot"
// CHECK-LABEL: func @grid_of_maximum
// CHECK: attn.attention
// CHECK-SAME: captures(%{{.+}}, %{{.+}} : tensor<2x5x9xf32>, tensor<2x5x9xf32>)
#g = affine_map<(b, i, y, x) -> (b, i, y, x)>
#y = affine_map<(b, i, y, x) -> (b, i, y)>
#x = affine_map<(b, i, y, x) -> (b, i, x)>
func.func @grid_of_maximum(%q: tensor<2x5x7xf32>, %k: tensor<2x9x7xf32>, %v: tensor<2x9x7xf32>, %h: tensor<2x5x3xf32>, %w: tensor<2x5x3xf32>) -> tensor<2x5x7xf32> {
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<2x5x9xf32>
  %f = linalg.fill ins(%z : f32) outs(%e : tensor<2x5x9xf32>) -> tensor<2x5x9xf32>
  %s = linalg.contract indexing_maps = [affine_map<(b, i, j, d) -> (b, i, d)>, affine_map<(b, i, j, d) -> (b, j, d)>, affine_map<(b, i, j, d) -> (b, i, j)>]
      ins(%q, %k : tensor<2x5x7xf32>, tensor<2x9x7xf32>) outs(%f : tensor<2x5x9xf32>) -> tensor<2x5x9xf32>
  %cut = tensor.expand_shape %s [[0], [1], [2, 3]] output_shape [2, 5, 3, 3] : tensor<2x5x9xf32> into tensor<2x5x3x3xf32>
  %e4 = tensor.empty() : tensor<2x5x3x3xf32>
  %t = linalg.generic {indexing_maps = [#g, #y, #g], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%cut, %h : tensor<2x5x3x3xf32>, tensor<2x5x3xf32>) outs(%e4 : tensor<2x5x3x3xf32>) {
  ^bb0(%a: f32, %c: f32, %o: f32):
    %r = arith.addf %c, %a : f32
    linalg.yield %r : f32
  } -> tensor<2x5x3x3xf32>
  %u = linalg.generic {indexing_maps = [#g, #x, #g], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%t, %w : tensor<2x5x3x3xf32>, tensor<2x5x3xf32>) outs(%e4 : tensor<2x5x3x3xf32>) {
  ^bb0(%a: f32, %c: f32, %o: f32):
    %r = arith.maximumf %a, %c : f32
    linalg.yield %r : f32
  } -> tensor<2x5x3x3xf32>
  %whole = tensor.collapse_shape %u [[0], [1], [2, 3]] : tensor<2x5x3x3xf32> into tensor<2x5x9xf32>
  %p = attn.softmax %whole dim 2 : tensor<2x5x9xf32>
  %e1 = tensor.empty() : tensor<2x5x7xf32>
  %f1 = linalg.fill ins(%z : f32) outs(%e1 : tensor<2x5x7xf32>) -> tensor<2x5x7xf32>
  %y = linalg.contract indexing_maps = [affine_map<(b, i, d, j) -> (b, i, j)>, affine_map<(b, i, d, j) -> (b, j, d)>, affine_map<(b, i, d, j) -> (b, i, d)>]
      ins(%p, %v : tensor<2x5x9xf32>, tensor<2x9x7xf32>) outs(%f1 : tensor<2x5x7xf32>) -> tensor<2x5x7xf32>
  return %y : tensor<2x5x7xf32>
}

// -----

#all = affine_map<(i, j, h, d) -> (i, j, h, d)>
#ihd = affine_map<(i, j, h, d) -> (i, h, d)>
#jhd = affine_map<(i, j, h, d) -> (j, h, d)>
#hd = affine_map<(i, j, h, d) -> (h, d)>
#ijh = affine_map<(i, j, h, d) -> (i, j, h)>
#w = affine_map<(i, h, e, j) -> (i, j, h)>
#v = affine_map<(i, h, e, j) -> (j, h, e)>
#o = affine_map<(i, h, e, j) -> (i, h, e)>
// A vector over the width for each head, as in GATv2.
// CHECK: #[[Q:.+]] = affine_map<(d0, d1, d2, d3, d4, d5) -> (d2, d1, d4)>
// CHECK: #[[A:.+]] = affine_map<(d0, d1, d2, d3, d4, d5) -> (d1, d4)>
// CHECK: fused = true, kind = "additive"
// CHECK-LABEL: func.func @vector_of_a_head
// CHECK: attn.attention kind additive masked_rows nan maps [#[[Q]], #{{.+}}, #{{.+}}, #[[A]], #{{.+}}]
func.func @vector_of_a_head(%q: tensor<5x4x16xf32>, %k: tensor<?x4x16xf32>, %n: index) -> tensor<5x4x16xf32> {
  %a = arith.constant dense_resource<vectors> : tensor<4x16xf32>
  %zero = arith.constant 0.0 : f32
  %e4 = tensor.empty(%n) : tensor<5x?x4x16xf32>
  %t = linalg.generic {indexing_maps = [#ihd, #jhd, #all], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%q, %k : tensor<5x4x16xf32>, tensor<?x4x16xf32>) outs(%e4 : tensor<5x?x4x16xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %s = arith.addf %x, %y : f32
    linalg.yield %s : f32
  } -> tensor<5x?x4x16xf32>
  %es = tensor.empty(%n) : tensor<5x?x4xf32>
  %fs = linalg.fill ins(%zero : f32) outs(%es : tensor<5x?x4xf32>) -> tensor<5x?x4xf32>
  %sc = linalg.contract indexing_maps = [#all, #hd, #ijh] ins(%t, %a : tensor<5x?x4x16xf32>, tensor<4x16xf32>)
      outs(%fs : tensor<5x?x4xf32>) -> tensor<5x?x4xf32>
  %p = attn.softmax %sc dim 1 : tensor<5x?x4xf32>
  %eo = tensor.empty() : tensor<5x4x16xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<5x4x16xf32>) -> tensor<5x4x16xf32>
  %o = linalg.contract indexing_maps = [#w, #v, #o] ins(%p, %k : tensor<5x?x4xf32>, tensor<?x4x16xf32>)
      outs(%fo : tensor<5x4x16xf32>) -> tensor<5x4x16xf32>
  return %o : tensor<5x4x16xf32>
}
{-# dialect_resources: {builtin: {vectors: "0x04000000"}} #-}

// -----

#all = affine_map<(i, j, d) -> (i, j, d)>
#id = affine_map<(i, j, d) -> (i, d)>
#jd = affine_map<(i, j, d) -> (j, d)>
#ij = affine_map<(i, j, d) -> (i, j)>
#w = affine_map<(i, e, j) -> (i, j)>
#v = affine_map<(i, e, j) -> (j, e)>
#o = affine_map<(i, e, j) -> (i, e)>
// Near miss: a vector for each query.
// CHECK-LABEL: func.func @vector_of_a_query
// CHECK-NOT: kind additive
// CHECK: return
func.func @vector_of_a_query(%q: tensor<5x16xf32>, %k: tensor<?x16xf32>, %n: index) -> tensor<5x16xf32> {
  %a = arith.constant dense_resource<rows> : tensor<5x16xf32>
  %zero = arith.constant 0.0 : f32
  %e3 = tensor.empty(%n) : tensor<5x?x16xf32>
  %t = linalg.generic {indexing_maps = [#id, #jd, #all], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%q, %k : tensor<5x16xf32>, tensor<?x16xf32>) outs(%e3 : tensor<5x?x16xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %s = arith.addf %x, %y : f32
    linalg.yield %s : f32
  } -> tensor<5x?x16xf32>
  %es = tensor.empty(%n) : tensor<5x?xf32>
  %fs = linalg.fill ins(%zero : f32) outs(%es : tensor<5x?xf32>) -> tensor<5x?xf32>
  %sc = linalg.contract indexing_maps = [#all, #id, #ij] ins(%t, %a : tensor<5x?x16xf32>, tensor<5x16xf32>)
      outs(%fs : tensor<5x?xf32>) -> tensor<5x?xf32>
  %p = attn.softmax %sc dim 1 : tensor<5x?xf32>
  %eo = tensor.empty() : tensor<5x16xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<5x16xf32>) -> tensor<5x16xf32>
  %o = linalg.contract indexing_maps = [#w, #v, #o] ins(%p, %k : tensor<5x?xf32>, tensor<?x16xf32>)
      outs(%fo : tensor<5x16xf32>) -> tensor<5x16xf32>
  return %o : tensor<5x16xf32>
}
{-# dialect_resources: {builtin: {rows: "0x04000000"}} #-}

// -----

#w = affine_map<(b, h, p, i, e, j) -> (b, h, p, i, j)>
#v = affine_map<(b, h, p, i, e, j) -> (b, h, p, j, e)>
#o = affine_map<(b, h, p, i, e, j) -> (b, h, p, i, e)>
// Windows of an image: batch and heads stand side by side in values and result, and not in the scores, which are copied.
// CHECK: fused = true, kind = "given"
// CHECK-LABEL: func.func @windows
// CHECK-SAME: %[[S:[^:]+]]: tensor<4x49x2x9x9xf32>, %[[V:[^:]+]]: tensor<4x2x8x9x49xf32>
// CHECK: %[[T:.+]] = linalg.transpose ins(%[[S]] : tensor<4x49x2x9x9xf32>)
// CHECK-DAG: %[[Q:.+]] = tensor.collapse_shape %[[T]] {{.+}} : tensor<4x2x49x9x9xf32> into tensor<8x49x9x9xf32>
// CHECK-DAG: %[[X:.+]] = tensor.collapse_shape %[[V]] {{.+}} : tensor<4x2x8x9x49xf32> into tensor<8x8x9x49xf32>
// CHECK: %[[Y:.+]] = attn.attention kind given {{.+}} ins(%[[Q]], %[[X]] : {{.+}}) -> tensor<8x8x9x49xf32>
// CHECK-NOT: linalg.transpose
// CHECK: return
func.func @windows(%s: tensor<4x49x2x9x9xf32>, %v: tensor<4x2x8x9x49xf32>) -> tensor<4x2x8x9x49xf32> {
  %zero = arith.constant 0.0 : f32
  %se = tensor.empty() : tensor<4x2x49x9x9xf32>
  %st = linalg.transpose ins(%s : tensor<4x49x2x9x9xf32>) outs(%se : tensor<4x2x49x9x9xf32>) permutation = [0, 2, 1, 3, 4]
  %p = attn.softmax %st dim 4 : tensor<4x2x49x9x9xf32>
  %ve = tensor.empty() : tensor<4x2x49x9x8xf32>
  %vt = linalg.transpose ins(%v : tensor<4x2x8x9x49xf32>) outs(%ve : tensor<4x2x49x9x8xf32>) permutation = [0, 1, 4, 3, 2]
  %fo = linalg.fill ins(%zero : f32) outs(%ve : tensor<4x2x49x9x8xf32>) -> tensor<4x2x49x9x8xf32>
  %o = linalg.contract indexing_maps = [#w, #v, #o] ins(%p, %vt : tensor<4x2x49x9x9xf32>, tensor<4x2x49x9x8xf32>)
      outs(%fo : tensor<4x2x49x9x8xf32>) -> tensor<4x2x49x9x8xf32>
  %ye = tensor.empty() : tensor<4x2x8x9x49xf32>
  %y = linalg.transpose ins(%o : tensor<4x2x49x9x8xf32>) outs(%ye : tensor<4x2x8x9x49xf32>) permutation = [0, 1, 4, 3, 2]
  return %y : tensor<4x2x8x9x49xf32>
}
