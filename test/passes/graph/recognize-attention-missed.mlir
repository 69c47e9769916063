// RUN: attn-opt %s -attn-recognize-attention -split-input-file | FileCheck %s

// Near misses: each softmax stays, and the report says why.

// CHECK: fused = false, kind = "none", {{.*}}reason = "not an attention: its result is not contracted"
// CHECK-LABEL: func.func @classifier
// CHECK: attn.softmax
func.func @classifier(%x: tensor<?x10xf32>) -> tensor<?x10xf32> {
  %p = attn.softmax %x dim 1 : tensor<?x10xf32>
  return %p : tensor<?x10xf32>
}

// -----

#ij = affine_map<(i, j) -> (i, j)>
#i = affine_map<(i, j) -> (i)>
#a = affine_map<(i, e, j) -> (i, j)>
#b = affine_map<(i, e, j) -> (e, j)>
#o = affine_map<(i, e, j) -> (i, e)>
// A focal loss: the weights times what is made of them, element by element. Near misses: the products of all rows of
// weights with what is made of them, and values in the place of a factor.
// CHECK: fused = false, kind = "none", {{.*}}reason = "not an attention: its weights are multiplied by what is made of them alone (an entropy, a loss)"
// CHECK: fused = true
// CHECK: fused = true
// CHECK-LABEL: func.func @focal_loss
// CHECK: attn.softmax
// CHECK: attn.attention
// CHECK: attn.attention
func.func @focal_loss(%x: tensor<5x7xf32>, %z: tensor<5x7xf32>, %u: tensor<5x7xf32>, %g: tensor<5x7xf32>)
    -> (tensor<5xf32>, tensor<5x5xf32>, tensor<5xf32>) {
  %zero = arith.constant 0.0 : f32
  %one = arith.constant 1.0 : f32
  %e = tensor.empty() : tensor<5x7xf32>
  %er = tensor.empty() : tensor<5xf32>
  %fr = linalg.fill ins(%zero : f32) outs(%er : tensor<5xf32>) -> tensor<5xf32>
  %p = attn.softmax %x dim 1 : tensor<5x7xf32>
  %h = linalg.generic {indexing_maps = [#ij, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%p : tensor<5x7xf32>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%w: f32, %out: f32):
    %l = math.log %w : f32
    %d = arith.subf %one, %w : f32
    %m = arith.mulf %d, %l : f32
    linalg.yield %m : f32
  } -> tensor<5x7xf32>
  %y = linalg.contract indexing_maps = [#ij, #ij, #i] ins(%p, %h : tensor<5x7xf32>, tensor<5x7xf32>)
      outs(%fr : tensor<5xf32>) -> tensor<5xf32>
  %eo = tensor.empty() : tensor<5x5xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<5x5xf32>) -> tensor<5x5xf32>
  %q = attn.softmax %z dim 1 : tensor<5x7xf32>
  %s = linalg.generic {indexing_maps = [#ij, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%q : tensor<5x7xf32>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%w: f32, %out: f32):
    %m = arith.mulf %w, %w : f32
    linalg.yield %m : f32
  } -> tensor<5x7xf32>
  %t = linalg.contract indexing_maps = [#a, #b, #o] ins(%q, %s : tensor<5x7xf32>, tensor<5x7xf32>)
      outs(%fo : tensor<5x5xf32>) -> tensor<5x5xf32>
  %r = attn.softmax %u dim 1 : tensor<5x7xf32>
  %k = linalg.generic {indexing_maps = [#ij, #ij, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%r, %g : tensor<5x7xf32>, tensor<5x7xf32>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%w: f32, %value: f32, %out: f32):
    %m = arith.mulf %w, %value : f32
    linalg.yield %m : f32
  } -> tensor<5x7xf32>
  %n = linalg.contract indexing_maps = [#ij, #ij, #i] ins(%r, %k : tensor<5x7xf32>, tensor<5x7xf32>)
      outs(%fr : tensor<5xf32>) -> tensor<5xf32>
  return %y, %t, %n : tensor<5xf32>, tensor<5x5xf32>, tensor<5xf32>
}

// -----

#ij = affine_map<(i, j) -> (i, j)>
#i = affine_map<(i, j) -> (i)>
#a = affine_map<(i, e, j) -> (i, j)>
#b = affine_map<(i, e, j) -> (j, e)>
#o = affine_map<(i, e, j) -> (i, e)>
// Weights that a factor of their row multiplies are weights still (a prefix of LLaMA-Adapter). Near misses: what they are
// multiplied by is themselves, or differs between keys.
// CHECK: fused = false, kind = "none", {{.*}}reason = "an operation that is not elementwise stands between the softmax and the weighted sum"
// CHECK: reason = "no contraction: its weights multiply values, and are not summed over them"
// CHECK: reason = "no contraction: its weights multiply values, and are not summed over them"
// CHECK-LABEL: func.func @scaled_rows
func.func @scaled_rows(%x: tensor<5x7xf32>, %x1: tensor<5x7xf32>, %x2: tensor<5x7xf32>, %w: tensor<5x3xf32>,
    %g: tensor<5xf32>, %h: tensor<5x7xf32>, %v: tensor<10x4xf32>) -> (tensor<5x4xf32>, tensor<5x4xf32>, tensor<5x4xf32>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<5x7xf32>
  %p = attn.softmax %x dim 1 : tensor<5x7xf32>
  %s = linalg.generic {indexing_maps = [#ij, #i, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%p, %g : tensor<5x7xf32>, tensor<5xf32>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%weight: f32, %factor: f32, %out: f32):
    %m = arith.mulf %weight, %factor : f32
    linalg.yield %m : f32
  } -> tensor<5x7xf32>
  %c = tensor.concat dim(1) %w, %s : (tensor<5x3xf32>, tensor<5x7xf32>) -> tensor<5x10xf32>
  %eo = tensor.empty() : tensor<5x4xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<5x4xf32>) -> tensor<5x4xf32>
  %y = linalg.contract indexing_maps = [#a, #b, #o] ins(%c, %v : tensor<5x10xf32>, tensor<10x4xf32>)
      outs(%fo : tensor<5x4xf32>) -> tensor<5x4xf32>
  %p1 = attn.softmax %x1 dim 1 : tensor<5x7xf32>
  %s1 = linalg.generic {indexing_maps = [#ij, #ij, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%p1, %p1 : tensor<5x7xf32>, tensor<5x7xf32>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%weight: f32, %factor: f32, %out: f32):
    %m = arith.mulf %weight, %factor : f32
    linalg.yield %m : f32
  } -> tensor<5x7xf32>
  %c1 = tensor.concat dim(1) %w, %s1 : (tensor<5x3xf32>, tensor<5x7xf32>) -> tensor<5x10xf32>
  %y1 = linalg.contract indexing_maps = [#a, #b, #o] ins(%c1, %v : tensor<5x10xf32>, tensor<10x4xf32>)
      outs(%fo : tensor<5x4xf32>) -> tensor<5x4xf32>
  %p2 = attn.softmax %x2 dim 1 : tensor<5x7xf32>
  %s2 = linalg.generic {indexing_maps = [#ij, #ij, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%p2, %h : tensor<5x7xf32>, tensor<5x7xf32>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%weight: f32, %factor: f32, %out: f32):
    %m = arith.mulf %weight, %factor : f32
    linalg.yield %m : f32
  } -> tensor<5x7xf32>
  %c2 = tensor.concat dim(1) %w, %s2 : (tensor<5x3xf32>, tensor<5x7xf32>) -> tensor<5x10xf32>
  %y2 = linalg.contract indexing_maps = [#a, #b, #o] ins(%c2, %v : tensor<5x10xf32>, tensor<10x4xf32>)
      outs(%fo : tensor<5x4xf32>) -> tensor<5x4xf32>
  return %y, %y1, %y2 : tensor<5x4xf32>, tensor<5x4xf32>, tensor<5x4xf32>
}

// -----

#f = affine_map<(b, i, d) -> (b, i, d)>
// A product and a sum that a rounding to half precision keeps apart.
// CHECK: fused = false, {{.*}}reason = "the weighted sum is a product and a sum that were not joined"
// CHECK-LABEL: func.func @apart
func.func @apart(%x: tensor<2x9x8xf16>, %v: tensor<2x9x8xf16>) -> tensor<2x8xf32> {
  %zero = arith.constant 0.0 : f32
  %p = attn.softmax %x dim 1 : tensor<2x9x8xf16>
  %y = linalg.generic {indexing_maps = [#f, #f, #f], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%p, %v : tensor<2x9x8xf16>, tensor<2x9x8xf16>) outs(%v : tensor<2x9x8xf16>) {
  ^bb0(%a: f16, %b: f16, %o: f16):
    %m = arith.mulf %a, %b : f16
    linalg.yield %m : f16
  } -> tensor<2x9x8xf16>
  %e = tensor.empty() : tensor<2x8xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<2x8xf32>) -> tensor<2x8xf32>
  %s = linalg.generic {indexing_maps = [affine_map<(b, j, d) -> (b, j, d)>, affine_map<(b, j, d) -> (b, d)>],
                       iterator_types = ["parallel", "reduction", "parallel"]}
      ins(%y : tensor<2x9x8xf16>) outs(%z : tensor<2x8xf32>) {
  ^bb0(%a: f16, %o: f32):
    %w = arith.extf %a : f16 to f32
    %n = arith.addf %o, %w : f32
    linalg.yield %n : f32
  } -> tensor<2x8xf32>
  return %s : tensor<2x8xf32>
}

// -----

#f = affine_map<(b, j) -> (b, j)>
#r = affine_map<(b, j) -> (b)>
// Weights of which a mask leaves some, divided by their sum again: what divides is judged, and this is no second miss.
// CHECK: fused = false, kind = "none", {{.*}}reason = "no contraction: what is left of its weights is divided by its sum again, and that is the weights"
// CHECK-LABEL: func.func @normalized_again
func.func @normalized_again(%x: tensor<2x9xf32>, %m: tensor<2x9xf32>) -> tensor<2x9xf32> {
  %zero = arith.constant 0.0 : f32
  %p = attn.softmax %x dim 1 : tensor<2x9xf32>
  %y = linalg.generic {indexing_maps = [#f, #f, #f], iterator_types = ["parallel", "parallel"]}
      ins(%p, %m : tensor<2x9xf32>, tensor<2x9xf32>) outs(%m : tensor<2x9xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %t = arith.mulf %a, %b : f32
    linalg.yield %t : f32
  } -> tensor<2x9xf32>
  %e = tensor.empty() : tensor<2xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<2xf32>) -> tensor<2xf32>
  %s = linalg.generic {indexing_maps = [#f, #r], iterator_types = ["parallel", "reduction"]}
      ins(%y : tensor<2x9xf32>) outs(%z : tensor<2xf32>) {
  ^bb0(%a: f32, %o: f32):
    %t = arith.addf %o, %a : f32
    linalg.yield %t : f32
  } -> tensor<2xf32>
  %d = linalg.generic {indexing_maps = [#f, #r, #f], iterator_types = ["parallel", "parallel"]}
      ins(%y, %s : tensor<2x9xf32>, tensor<2xf32>) outs(%m : tensor<2x9xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %t = arith.divf %a, %b : f32
    linalg.yield %t : f32
  } -> tensor<2x9xf32>
  return %d : tensor<2x9xf32>
}

// -----

#f = affine_map<(b, i, d) -> (b, i, d)>
// A gate over features, which multiplies and sums nothing.
// CHECK: fused = false, kind = "none", {{.*}}reason = "no contraction: its weights multiply values, and are not summed over them"
// CHECK-LABEL: func.func @gate
func.func @gate(%x: tensor<2x?x8xf32>, %v: tensor<2x?x8xf32>) -> tensor<2x?x8xf32> {
  %p = attn.softmax %x dim 1 : tensor<2x?x8xf32>
  %y = linalg.generic {indexing_maps = [#f, #f, #f], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%p, %v : tensor<2x?x8xf32>, tensor<2x?x8xf32>) outs(%v : tensor<2x?x8xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %m = arith.mulf %a, %b : f32
    linalg.yield %m : f32
  } -> tensor<2x?x8xf32>
  return %y : tensor<2x?x8xf32>
}

// -----

#qs = affine_map<(b, i, e, j) -> (b, i, j)>
#vs = affine_map<(b, i, e, j) -> (b, j, e)>
#os = affine_map<(b, i, e, j) -> (b, i, e)>
// An attention sink: its column is cut off after the softmax. Not fused, but a miss, not a classifier.
// CHECK: fused = false, {{.*}}reason = "an operation that is not elementwise stands between the softmax and the weighted sum"
// CHECK-LABEL: func.func @sink
func.func @sink(%s: tensor<2x7x9xf32>, %v: tensor<2x8x4xf32>) -> tensor<2x7x4xf32> {
  %zero = arith.constant 0.0 : f32
  %p = attn.softmax %s dim 2 : tensor<2x7x9xf32>
  %w = tensor.extract_slice %p[0, 0, 0] [2, 7, 8] [1, 1, 1] : tensor<2x7x9xf32> to tensor<2x7x8xf32>
  %eo = tensor.empty() : tensor<2x7x4xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<2x7x4xf32>) -> tensor<2x7x4xf32>
  %o = linalg.contract indexing_maps = [#qs, #vs, #os] ins(%w, %v : tensor<2x7x8xf32>, tensor<2x8x4xf32>)
      outs(%fo : tensor<2x7x4xf32>) -> tensor<2x7x4xf32>
  return %o : tensor<2x7x4xf32>
}

// -----

#q = affine_map<(b, i, j, d) -> (b, i, d)>
#k = affine_map<(b, i, j, d) -> (b, j, d)>
#s = affine_map<(b, i, j, d) -> (b, i, j)>
#w = affine_map<(b, i, e, j) -> (b, j, i)>
#v = affine_map<(b, i, e, j) -> (b, j, e)>
#o = affine_map<(b, i, e, j) -> (b, i, e)>
// The softmax runs over the queries' dimension, the sum over the other one.
// CHECK: reason = "the weights are summed over other dimensions than the softmax runs over"
// CHECK-LABEL: func.func @other_dimension
// CHECK-NOT: attn.attention
func.func @other_dimension(%q: tensor<2x7x8xf32>, %k: tensor<2x7x8xf32>, %v: tensor<2x7x8xf32>) -> tensor<2x7x8xf32> {
  %zero = arith.constant 0.0 : f32
  %es = tensor.empty() : tensor<2x7x7xf32>
  %fs = linalg.fill ins(%zero : f32) outs(%es : tensor<2x7x7xf32>) -> tensor<2x7x7xf32>
  %sc = linalg.contract indexing_maps = [#q, #k, #s] ins(%q, %k : tensor<2x7x8xf32>, tensor<2x7x8xf32>)
      outs(%fs : tensor<2x7x7xf32>) -> tensor<2x7x7xf32>
  %p = attn.softmax %sc dim 2 : tensor<2x7x7xf32>
  %eo = tensor.empty() : tensor<2x7x8xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<2x7x8xf32>) -> tensor<2x7x8xf32>
  %o = linalg.contract indexing_maps = [#w, #v, #o] ins(%p, %v : tensor<2x7x7xf32>, tensor<2x7x8xf32>)
      outs(%fo : tensor<2x7x8xf32>) -> tensor<2x7x8xf32>
  return %o : tensor<2x7x8xf32>
}

// -----

#mixed = affine_map<(i, j, g, h) -> (i, j, h)>
#mix = affine_map<(i, j, g, h) -> (g, h)>
#weights = affine_map<(i, j, g, h) -> (g, i, j)>
#w = affine_map<(g, i, e, j) -> (g, i, j)>
#v = affine_map<(g, i, e, j) -> (g, j, e)>
#o = affine_map<(g, i, e, j) -> (g, i, e)>
// Talking heads: a learnt matrix mixes the heads' weights of each pair, then values are weighed.
// CHECK: fused = false, {{.*}}reason = "the weights of several rows are mixed before they weigh values (talking heads): each needs the rows of all heads"
// CHECK-LABEL: func.func @talking_heads
func.func @talking_heads(%s: tensor<6x7x3xf32>, %x: tensor<3x7x4xf32>) -> tensor<3x6x4xf32> {
  %zero = arith.constant 0.0 : f32
  %m = arith.constant dense<[[1.0, 2.0, 3.0], [0.5, 0.25, 0.125], [4.0, 3.0, 1.0]]> : tensor<3x3xf32>
  %p = attn.softmax %s dim 1 : tensor<6x7x3xf32>
  %e = tensor.empty() : tensor<3x6x7xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<3x6x7xf32>) -> tensor<3x6x7xf32>
  %t = linalg.contract indexing_maps = [#mixed, #mix, #weights] ins(%p, %m : tensor<6x7x3xf32>, tensor<3x3xf32>)
      outs(%f : tensor<3x6x7xf32>) -> tensor<3x6x7xf32>
  %eo = tensor.empty() : tensor<3x6x4xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<3x6x4xf32>) -> tensor<3x6x4xf32>
  %y = linalg.contract indexing_maps = [#w, #v, #o] ins(%t, %x : tensor<3x6x7xf32>, tensor<3x7x4xf32>)
      outs(%fo : tensor<3x6x4xf32>) -> tensor<3x6x4xf32>
  return %y : tensor<3x6x4xf32>
}

// -----

// One score a row: its weight is 1, whatever reads it. Of two, it may be a classifier.
// CHECK-DAG: reason = "not an attention: it is over one score, whose weight is always 1"
// CHECK-DAG: reason = "not an attention: its result is not contracted"
// CHECK-LABEL: func.func @one_score
func.func @one_score(%s: tensor<5x1xf32>, %t: tensor<5x2xf32>) -> (tensor<5x1xf32>, tensor<5x2xf32>) {
  %p = attn.softmax %s dim 1 : tensor<5x1xf32>
  %q = attn.softmax %t dim 1 : tensor<5x2xf32>
  return %p, %q : tensor<5x1xf32>, tensor<5x2xf32>
}

// -----

#mixed = affine_map<(i, j, g, h) -> (i, j, h)>
#mix = affine_map<(i, j, g, h) -> (g, h)>
#weights = affine_map<(i, j, g, h) -> (g, i, j)>
#gij = affine_map<(g, i, j) -> (g, i, j)>
#ij = affine_map<(g, i, j) -> (i, j)>
#w = affine_map<(g, i, e, j) -> (g, i, j)>
#v = affine_map<(g, i, e, j) -> (g, j, e)>
#o = affine_map<(g, i, e, j) -> (g, i, e)>
// A norm over the heads between the two.
// CHECK: fused = false, {{.*}}reason = "the weights of several rows are mixed before they weigh values (talking heads): each needs the rows of all heads"
// CHECK-LABEL: func.func @normalised_heads
func.func @normalised_heads(%s: tensor<6x7x3xf32>, %x: tensor<3x7x4xf32>) -> tensor<3x6x4xf32> {
  %zero = arith.constant 0.0 : f32
  %m = arith.constant dense<[[1.0, 2.0, 3.0], [0.5, 0.25, 0.125], [4.0, 3.0, 1.0]]> : tensor<3x3xf32>
  %p = attn.softmax %s dim 1 : tensor<6x7x3xf32>
  %e = tensor.empty() : tensor<3x6x7xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<3x6x7xf32>) -> tensor<3x6x7xf32>
  %t = linalg.contract indexing_maps = [#mixed, #mix, #weights] ins(%p, %m : tensor<6x7x3xf32>, tensor<3x3xf32>)
      outs(%f : tensor<3x6x7xf32>) -> tensor<3x6x7xf32>
  %er = tensor.empty() : tensor<6x7xf32>
  %fr = linalg.fill ins(%zero : f32) outs(%er : tensor<6x7xf32>) -> tensor<6x7xf32>
  %r = linalg.generic {indexing_maps = [#gij, #ij], iterator_types = ["reduction", "parallel", "parallel"]}
      ins(%t : tensor<3x6x7xf32>) outs(%fr : tensor<6x7xf32>) {
  ^bb0(%b: f32, %a: f32):
    %c = arith.addf %a, %b : f32
    linalg.yield %c : f32
  } -> tensor<6x7xf32>
  %n = linalg.generic {indexing_maps = [#ij, #gij], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%r : tensor<6x7xf32>) outs(%e : tensor<3x6x7xf32>) {
  ^bb0(%b: f32, %a: f32):
    linalg.yield %b : f32
  } -> tensor<3x6x7xf32>
  %eo = tensor.empty() : tensor<3x6x4xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<3x6x4xf32>) -> tensor<3x6x4xf32>
  %y = linalg.contract indexing_maps = [#w, #v, #o] ins(%n, %x : tensor<3x6x7xf32>, tensor<3x7x4xf32>)
      outs(%fo : tensor<3x6x4xf32>) -> tensor<3x6x4xf32>
  return %y : tensor<3x6x4xf32>
}

// -----

#ij = affine_map<(i, j) -> (i, j)>
#i = affine_map<(i, j) -> (i)>
#r = affine_map<(i) -> (i)>
#w = affine_map<(i, e, j) -> (i, j)>
#v = affine_map<(i, e, j) -> (j, e)>
#o = affine_map<(i, e, j) -> (i, e)>
// Global response normalisation: what a function of the row's sum divides scales other values, to which more is added.
// Near miss: nothing is added.
// CHECK: fused = false, kind = "none", {{.*}}reason = "no contraction: other values are added to what a function of its row's sum divides (a norm)"
// CHECK: fused = false, kind = "missed", {{.*}}reason = "the weights are changed after they are divided by more than their sum"
// CHECK-LABEL: func.func @response_norm
func.func @response_norm(%y: tensor<5x7xf32>, %h: tensor<5x7xf32>, %v: tensor<7x4xf32>) -> (tensor<5x4xf32>, tensor<5x4xf32>) {
  %zero = arith.constant 0.0 : f32
  %eps = arith.constant 0.5 : f32
  %e = tensor.empty() : tensor<5x7xf32>
  %er = tensor.empty() : tensor<5xf32>
  %fr = linalg.fill ins(%zero : f32) outs(%er : tensor<5xf32>) -> tensor<5xf32>
  %x = linalg.generic {indexing_maps = [#ij, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%y : tensor<5x7xf32>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%x0: f32, %out: f32):
    %a = arith.mulf %x0, %x0 : f32
    linalg.yield %a : f32
  } -> tensor<5x7xf32>
  %t = linalg.generic {indexing_maps = [#ij, #i], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<5x7xf32>) outs(%fr : tensor<5xf32>) {
  ^bb0(%b: f32, %a: f32):
    %c = arith.addf %a, %b : f32
    linalg.yield %c : f32
  } -> tensor<5xf32>
  %u = linalg.generic {indexing_maps = [#r, #r], iterator_types = ["parallel"]}
      ins(%t : tensor<5xf32>) outs(%er : tensor<5xf32>) {
  ^bb0(%x0: f32, %out: f32):
    %a = arith.addf %x0, %eps : f32
    linalg.yield %a : f32
  } -> tensor<5xf32>
  %p = linalg.generic {indexing_maps = [#ij, #i, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%x, %u : tensor<5x7xf32>, tensor<5xf32>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%x0: f32, %x1: f32, %out: f32):
    %a = arith.divf %x0, %x1 : f32
    linalg.yield %a : f32
  } -> tensor<5x7xf32>
  %q = linalg.generic {indexing_maps = [#ij, #i, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%x, %u : tensor<5x7xf32>, tensor<5xf32>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%x0: f32, %x1: f32, %out: f32):
    %a = arith.divf %x0, %x1 : f32
    linalg.yield %a : f32
  } -> tensor<5x7xf32>
  %sum = linalg.generic {indexing_maps = [#ij, #ij, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%p, %h : tensor<5x7xf32>, tensor<5x7xf32>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%x0: f32, %x1: f32, %out: f32):
    %a = arith.mulf %x0, %x1 : f32
    %b = arith.addf %a, %x1 : f32
    linalg.yield %b : f32
  } -> tensor<5x7xf32>
  %product = linalg.generic {indexing_maps = [#ij, #ij, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%q, %h : tensor<5x7xf32>, tensor<5x7xf32>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%x0: f32, %x1: f32, %out: f32):
    %a = arith.mulf %x0, %x1 : f32
    linalg.yield %a : f32
  } -> tensor<5x7xf32>
  %eo = tensor.empty() : tensor<5x4xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<5x4xf32>) -> tensor<5x4xf32>
  %o = linalg.contract indexing_maps = [#w, #v, #o] ins(%sum, %v : tensor<5x7xf32>, tensor<7x4xf32>)
      outs(%fo : tensor<5x4xf32>) -> tensor<5x4xf32>
  %z = linalg.contract indexing_maps = [#w, #v, #o] ins(%product, %v : tensor<5x7xf32>, tensor<7x4xf32>)
      outs(%fo : tensor<5x4xf32>) -> tensor<5x4xf32>
  return %o, %z : tensor<5x4xf32>, tensor<5x4xf32>
}

// -----

#i = affine_map<(i, n) -> (n)>
#in = affine_map<(i, n) -> (i, n)>
#w = affine_map<(i, e, n) -> (i, n)>
#v = affine_map<(i, e, n) -> (n, e)>
#o = affine_map<(i, e, n) -> (i, e)>
// Some of the weights, at places that the run has: a body reads them.
// CHECK: fused = false, {{.*}}reason = "an operation that is not elementwise stands between the softmax and the weighted sum"
// CHECK-LABEL: func.func @gathered
func.func @gathered(%s: tensor<5x7xf32>, %places: tensor<4xindex>, %x: tensor<4x3xf32>) -> tensor<5x3xf32> {
  %zero = arith.constant 0.0 : f32
  %p = attn.softmax %s dim 1 : tensor<5x7xf32>
  %e = tensor.empty() : tensor<5x4xf32>
  %t = linalg.generic {indexing_maps = [#i, #in], iterator_types = ["parallel", "parallel"]}
      ins(%places : tensor<4xindex>) outs(%e : tensor<5x4xf32>) {
  ^bb0(%place: index, %a: f32):
    %row = linalg.index 0 : index
    %weight = tensor.extract %p[%row, %place] : tensor<5x7xf32>
    linalg.yield %weight : f32
  } -> tensor<5x4xf32>
  %eo = tensor.empty() : tensor<5x3xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<5x3xf32>) -> tensor<5x3xf32>
  %y = linalg.contract indexing_maps = [#w, #v, #o] ins(%t, %x : tensor<5x4xf32>, tensor<4x3xf32>)
      outs(%fo : tensor<5x3xf32>) -> tensor<5x3xf32>
  return %y : tensor<5x3xf32>
}

// -----

#i = affine_map<(i) -> (i)>
#w = affine_map<(e, n) -> (n)>
#v = affine_map<(e, n) -> (n, e)>
#o = affine_map<(e, n) -> (e)>
// Near misses: the probability of a label in a loss, as a logarithm; some probabilities in a layer of stored weights.
// CHECK-COUNT-2: reason = "not an attention: its result is not contracted"
// CHECK-LABEL: func.func @labels
attn.global @layer : tensor<5x3xf32> = #attn.initializer<"layer">
func.func @labels(%s: tensor<5x7xf32>, %r: tensor<5x7xf32>, %labels: tensor<5xindex>, %x: tensor<5x3xf32>)
    -> (tensor<3xf32>, tensor<3xf32>) {
  %zero = arith.constant 0.0 : f32
  %p = attn.softmax %s dim 1 : tensor<5x7xf32>
  %q = attn.softmax %r dim 1 : tensor<5x7xf32>
  %e = tensor.empty() : tensor<5xf32>
  %t = linalg.generic {indexing_maps = [#i, #i], iterator_types = ["parallel"]}
      ins(%labels : tensor<5xindex>) outs(%e : tensor<5xf32>) {
  ^bb0(%label: index, %a: f32):
    %row = linalg.index 0 : index
    %weight = tensor.extract %p[%row, %label] : tensor<5x7xf32>
    linalg.yield %weight : f32
  } -> tensor<5xf32>
  %u = linalg.generic {indexing_maps = [#i, #i], iterator_types = ["parallel"]}
      ins(%labels : tensor<5xindex>) outs(%e : tensor<5xf32>) {
  ^bb0(%label: index, %a: f32):
    %row = linalg.index 0 : index
    %weight = tensor.extract %q[%row, %label] : tensor<5x7xf32>
    linalg.yield %weight : f32
  } -> tensor<5xf32>
  %l = math.log %t : tensor<5xf32>
  %eo = tensor.empty() : tensor<3xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<3xf32>) -> tensor<3xf32>
  %y = linalg.contract indexing_maps = [#w, #v, #o] ins(%l, %x : tensor<5xf32>, tensor<5x3xf32>)
      outs(%fo : tensor<3xf32>) -> tensor<3xf32>
  %layer = attn.weight @layer : tensor<5x3xf32>
  %z = linalg.contract indexing_maps = [#w, #v, #o] ins(%u, %layer : tensor<5xf32>, tensor<5x3xf32>)
      outs(%fo : tensor<3xf32>) -> tensor<3xf32>
  return %y, %z : tensor<3xf32>, tensor<3xf32>
}

// -----

#w = affine_map<(i, e, n) -> (i, n)>
#v = affine_map<(i, e, n) -> (n, e)>
#o = affine_map<(i, e, n) -> (i, e)>
// A router: the greatest weights, by what their experts give.
// CHECK: reason = "not an attention: only its greatest weights are used (top-k)"
// CHECK-LABEL: func.func @router
func.func @router(%s: tensor<5x7xf32>, %x: tensor<2x3xf32>) -> tensor<5x3xf32> {
  %zero = arith.constant 0.0 : f32
  %p = attn.softmax %s dim 1 : tensor<5x7xf32>
  %two = arith.constant 2 : index
  %t:2 = attn.top_k %p, %two dim 1 : tensor<5x7xf32> -> tensor<5x2xf32>, tensor<5x2xi64>
  %eo = tensor.empty() : tensor<5x3xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<5x3xf32>) -> tensor<5x3xf32>
  %y = linalg.contract indexing_maps = [#w, #v, #o] ins(%t#0, %x : tensor<5x2xf32>, tensor<2x3xf32>)
      outs(%fo : tensor<5x3xf32>) -> tensor<5x3xf32>
  return %y : tensor<5x3xf32>
}

// -----

#ij = affine_map<(i, j) -> (i, j)>
// Bytes of the weights that a sum of integers reads, and that are moved before. Near misses: places that are found by
// the weights, and bytes that nothing sums.
// CHECK: fused = false, kind = "none", {{.*}}reason = "its weights are rounded to integers before the weighted sum, which is one of integers", reason_node = "node 'bytes' (QuantizeLinear)"
// CHECK-SAME: reason = "not an attention: its result is not contracted"
// CHECK-SAME: reason = "not an attention: its result is not contracted"
// CHECK-LABEL: func.func @rounded_weights
func.func @rounded_weights(%x: tensor<5x7xf32>, %x1: tensor<5x7xf32>, %x2: tensor<5x7xf32>, %v: tensor<7x4xi8>,
    %table: tensor<9xi8>) -> (tensor<5x4xi32>, tensor<5x4xi32>, tensor<5x7xi8>) {
  %step = arith.constant 0.00390625 : f32
  %e = tensor.empty() : tensor<5x7xi8>
  %e64 = tensor.empty() : tensor<5x7xi64>
  %p = attn.softmax %x dim 1 : tensor<5x7xf32>
  %b = linalg.generic {indexing_maps = [#ij, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%p : tensor<5x7xf32>) outs(%e : tensor<5x7xi8>) {
  ^bb0(%w: f32, %out: i8):
    %s = arith.divf %w, %step : f32
    %r = math.roundeven %s : f32
    %n = arith.fptoui %r : f32 to i8
    linalg.yield %n : i8
  } -> tensor<5x7xi8> loc(#bytes)
  %t = tensor.collapse_shape %b [[0, 1]] : tensor<5x7xi8> into tensor<35xi8>
  %u = tensor.expand_shape %t [[0, 1]] output_shape [5, 7] : tensor<35xi8> into tensor<5x7xi8>
  %y = attn.integer_product %u by %v : tensor<5x7xi8> by tensor<7x4xi8> -> tensor<5x4xi32>
  %p1 = attn.softmax %x1 dim 1 : tensor<5x7xf32>
  %places = linalg.generic {indexing_maps = [#ij, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%p1 : tensor<5x7xf32>) outs(%e64 : tensor<5x7xi64>) {
  ^bb0(%w: f32, %out: i64):
    %n = arith.fptosi %w : f32 to i64
    linalg.yield %n : i64
  } -> tensor<5x7xi64>
  %found = linalg.generic {indexing_maps = [#ij, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%places : tensor<5x7xi64>) outs(%e : tensor<5x7xi8>) {
  ^bb0(%place: i64, %out: i8):
    %n = arith.index_cast %place : i64 to index
    %a = tensor.extract %table[%n] : tensor<9xi8>
    linalg.yield %a : i8
  } -> tensor<5x7xi8>
  %y1 = attn.integer_product %found by %v : tensor<5x7xi8> by tensor<7x4xi8> -> tensor<5x4xi32>
  %p2 = attn.softmax %x2 dim 1 : tensor<5x7xf32>
  %b2 = linalg.generic {indexing_maps = [#ij, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%p2 : tensor<5x7xf32>) outs(%e : tensor<5x7xi8>) {
  ^bb0(%w: f32, %out: i8):
    %n = arith.fptoui %w : f32 to i8
    linalg.yield %n : i8
  } -> tensor<5x7xi8>
  return %y, %y1, %b2 : tensor<5x4xi32>, tensor<5x4xi32>, tensor<5x7xi8>
}
#file = loc("m.onnx":0:0)
#bytes = loc("node 'bytes' (QuantizeLinear)"(#file))

// -----

#row = affine_map<(i, j, k) -> (i, k)>
#column = affine_map<(i, j, k) -> (k, j)>
#both = affine_map<(i, j, k) -> (i, j)>
#all = affine_map<(i, j) -> (i, j)>
// Newton's step for a pseudo-inverse, p (7 I - p) of products p: what they are subtracted from is no gate, and nothing is
// reported. (A gate: what they are multiplied by, as in @decay.)
// CHECK: attn.fusion_report = []
// CHECK-LABEL: func.func @newton
// CHECK-NOT: attn.attention
// CHECK: return
func.func @newton(%x: tensor<64x64xf32>, %z: tensor<64x64xf32>) -> tensor<64x64xf32> {
  %zero = arith.constant 0.0 : f32
  %seven = arith.constant 7.0 : f32
  %e = tensor.empty() : tensor<64x64xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<64x64xf32>) -> tensor<64x64xf32>
  %p = linalg.contract indexing_maps = [#row, #column, #both] ins(%x, %z : tensor<64x64xf32>, tensor<64x64xf32>) outs(%f : tensor<64x64xf32>) -> tensor<64x64xf32>
  %eye = linalg.generic {indexing_maps = [#all], iterator_types = ["parallel", "parallel"]} outs(%e : tensor<64x64xf32>) {
  ^bb0(%o: f32):
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %is = arith.cmpi eq, %i, %j : index
    %n = arith.select %is, %seven, %zero : f32
    linalg.yield %n : f32
  } -> tensor<64x64xf32>
  %d = linalg.generic {indexing_maps = [#all, #all, #all], iterator_types = ["parallel", "parallel"]}
      ins(%eye, %p : tensor<64x64xf32>, tensor<64x64xf32>) outs(%e : tensor<64x64xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %s = arith.subf %a, %b : f32
    linalg.yield %s : f32
  } -> tensor<64x64xf32>
  %y = linalg.contract indexing_maps = [#row, #column, #both] ins(%p, %d : tensor<64x64xf32>, tensor<64x64xf32>) outs(%f : tensor<64x64xf32>) -> tensor<64x64xf32>
  return %y : tensor<64x64xf32>
}

// -----

#row = affine_map<(i, j, k) -> (i, k)>
#column = affine_map<(i, j, k) -> (k, j)>
#both = affine_map<(i, j, k) -> (i, j)>
#all = affine_map<(i, j) -> (i, j)>
// CHECK: fused = true
// CHECK-LABEL: func.func @decay
// CHECK: attn.attention
func.func @decay(%x: tensor<64x64xf32>, %z: tensor<64x64xf32>, %v: tensor<64x64xf32>) -> tensor<64x64xf32> {
  %zero = arith.constant 0.0 : f32
  %seven = arith.constant 7.0 : f32
  %e = tensor.empty() : tensor<64x64xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<64x64xf32>) -> tensor<64x64xf32>
  %p = linalg.contract indexing_maps = [#row, #column, #both] ins(%x, %z : tensor<64x64xf32>, tensor<64x64xf32>) outs(%f : tensor<64x64xf32>) -> tensor<64x64xf32>
  %decay = linalg.generic {indexing_maps = [#all], iterator_types = ["parallel", "parallel"]} outs(%e : tensor<64x64xf32>) {
  ^bb0(%o: f32):
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %is = arith.cmpi sge, %i, %j : index
    %n = arith.select %is, %seven, %zero : f32
    linalg.yield %n : f32
  } -> tensor<64x64xf32>
  %d = linalg.generic {indexing_maps = [#all, #all, #all], iterator_types = ["parallel", "parallel"]}
      ins(%decay, %p : tensor<64x64xf32>, tensor<64x64xf32>) outs(%e : tensor<64x64xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %s = arith.mulf %a, %b : f32
    linalg.yield %s : f32
  } -> tensor<64x64xf32>
  %y = linalg.contract indexing_maps = [#row, #column, #both] ins(%d, %v : tensor<64x64xf32>, tensor<64x64xf32>) outs(%f : tensor<64x64xf32>) -> tensor<64x64xf32>
  return %y : tensor<64x64xf32>
}
