// RUN: attn-opt %s -attn-recognize-attention -split-input-file | FileCheck %s

// What a score region is proved to hide; each case ends in a select with -inf.

#q = affine_map<(b, h, i, j, d, e) -> (i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (j, d)>
#v = affine_map<(b, h, i, j, d, e) -> (j, e)>
#o = affine_map<(b, h, i, j, d, e) -> (i, e)>
// j <= i + 3, spelled as not j > i + 3.
// CHECK: mask = "causal"
func.func @causal(%q: tensor<5x4xf32>, %k: tensor<8x4xf32>, %v: tensor<8x4xf32>) -> tensor<5x4xf32> {
  %r = attn.attention masked_rows nan maps [#q, #k, #v, #o] ins(%q, %k, %v : tensor<5x4xf32>, tensor<8x4xf32>, tensor<8x4xf32>)
      -> tensor<5x4xf32> score {
  ^bb0(%s: f32):
    %i = attn.index 2 : index
    %j = attn.index 3 : index
    %c3 = arith.constant 3 : index
    %inf = arith.constant 0xFF800000 : f32
    %limit = arith.addi %i, %c3 : index
    %hidden = arith.cmpi sgt, %j, %limit : index
    %y = arith.select %hidden, %inf, %s : f32
    attn.yield %y : f32
  }
  return %r : tensor<5x4xf32>
}

// -----

#q = affine_map<(b, h, i, j, d, e) -> (b, i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (b, j, d)>
#v = affine_map<(b, h, i, j, d, e) -> (b, j, e)>
#n = affine_map<(b, h, i, j, d, e) -> (b)>
#o = affine_map<(b, h, i, j, d, e) -> (b, i, e)>
// |i - j| <= 2 and j < n[b], as a bias of -inf.
// CHECK: mask = "window+lengths"
func.func @band_and_lengths(%q: tensor<2x5x4xf32>, %k: tensor<2x5x4xf32>, %v: tensor<2x5x4xf32>, %n: tensor<2xi64>) -> tensor<2x5x4xf32> {
  %r = attn.attention masked_rows nan maps [#q, #k, #v, #n, #o]
      ins(%q, %k, %v : tensor<2x5x4xf32>, tensor<2x5x4xf32>, tensor<2x5x4xf32>) captures(%n : tensor<2xi64>)
      -> tensor<2x5x4xf32> score {
  ^bb0(%s: f32, %len: i64):
    %i = attn.index 2 : index
    %j = attn.index 3 : index
    %c2 = arith.constant 2 : index
    %inf = arith.constant 0xFF800000 : f32
    %zero = arith.constant 0.0 : f32
    %d = arith.subi %i, %j : index
    %a = math.absi %d : index
    %near = arith.cmpi sle, %a, %c2 : index
    %j64 = arith.index_cast %j : index to i64
    %short = arith.cmpi slt, %j64, %len : i64
    %both = arith.andi %near, %short : i1
    %bias = arith.select %both, %zero, %inf : f32
    %y = arith.addf %s, %bias : f32
    attn.yield %y : f32
  }
  return %r : tensor<2x5x4xf32>
}

// -----

#q = affine_map<(b, h, i, j, d, e) -> (i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (j, d)>
#v = affine_map<(b, h, i, j, d, e) -> (j, e)>
#m = affine_map<(b, h, i, j, d, e) -> (i, j)>
#o = affine_map<(b, h, i, j, d, e) -> (i, e)>
// j <= i or j < 3; and a stored mask.
// CHECK: mask = "causal+prefix+dense"
func.func @prefix_and_dense(%q: tensor<5x4xf32>, %k: tensor<5x4xf32>, %v: tensor<5x4xf32>, %m: tensor<5x5xi8>) -> tensor<5x4xf32> {
  %r = attn.attention masked_rows nan maps [#q, #k, #v, #m, #o] ins(%q, %k, %v : tensor<5x4xf32>, tensor<5x4xf32>, tensor<5x4xf32>)
      captures(%m : tensor<5x5xi8>) -> tensor<5x4xf32> score {
  ^bb0(%s: f32, %x: i8):
    %i = attn.index 2 : index
    %j = attn.index 3 : index
    %c3 = arith.constant 3 : index
    %c0 = arith.constant 0 : i8
    %inf = arith.constant 0xFF800000 : f32
    %below = arith.cmpi sle, %j, %i : index
    %early = arith.cmpi slt, %j, %c3 : index
    %either = arith.ori %early, %below : i1
    %stored = arith.cmpi ne, %x, %c0 : i8
    %t = arith.select %stored, %s, %inf : f32
    %y = arith.select %either, %t, %inf : f32
    attn.yield %y : f32
  }
  return %r : tensor<5x4xf32>
}

// -----

#q = affine_map<(b, h, i, j, d, e) -> (i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (j, d)>
#v = affine_map<(b, h, i, j, d, e) -> (j, e)>
#o = affine_map<(b, h, i, j, d, e) -> (i, e)>
// -1e9 is not -inf, and i * j is not linear: nothing is claimed.
// CHECK: mask = "computed"
func.func @finite(%q: tensor<5x4xf32>, %k: tensor<5x4xf32>, %v: tensor<5x4xf32>) -> tensor<5x4xf32> {
  %r = attn.attention masked_rows nan maps [#q, #k, #v, #o] ins(%q, %k, %v : tensor<5x4xf32>, tensor<5x4xf32>, tensor<5x4xf32>)
      -> tensor<5x4xf32> score {
  ^bb0(%s: f32):
    %i = attn.index 2 : index
    %j = attn.index 3 : index
    %c9 = arith.constant 9 : index
    %inf = arith.constant 0xFF800000 : f32
    %low = arith.constant -1.0e9 : f32
    %p = arith.muli %i, %j : index
    %odd = arith.cmpi sle, %p, %c9 : index
    %below = arith.cmpi sle, %j, %i : index
    %x = arith.select %below, %s, %low : f32
    %y = arith.select %odd, %x, %inf : f32
    attn.yield %y : f32
  }
  return %r : tensor<5x4xf32>
}

// -----

#ij = affine_map<(i, j) -> (i, j)>
#qs = affine_map<(i, j, d) -> (i, d)>
#ks = affine_map<(i, j, d) -> (j, d)>
#ss = affine_map<(i, j, d) -> (i, j)>
#ws = affine_map<(i, e, j) -> (i, j)>
#vs = affine_map<(i, e, j) -> (j, e)>
#os = affine_map<(i, e, j) -> (i, e)>
// s b - 1e4 (1 - b), where b is 1 and 0 by a comparison of positions: a select of s and -1e4.
// CHECK: fused = true, kind = "dot", mask = "computed"
// CHECK-LABEL: func.func @kept_by_a_product
// CHECK: %[[SHOWN:.*]] = arith.cmpi sle, %{{.*}}, %{{.*}} : index
// CHECK-NOT: arith.mulf
// CHECK: %[[LOW:.*]] = arith.constant -1.000000e+04 : f32
// CHECK: arith.select %[[SHOWN]], %{{.*}}, %[[LOW]] : f32
// CHECK: attn.yield
func.func @kept_by_a_product(%q: tensor<8x4xf32>, %k: tensor<8x4xf32>, %v: tensor<8x4xf32>) -> tensor<8x4xf32> {
  %zero = arith.constant 0.0 : f32
  %one = arith.constant 1.0 : f32
  %low = arith.constant 1.0e4 : f32
  %e = tensor.empty() : tensor<8x8xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
  %s = linalg.contract indexing_maps = [#qs, #ks, #ss] ins(%q, %k : tensor<8x4xf32>, tensor<8x4xf32>)
      outs(%f : tensor<8x8xf32>) -> tensor<8x8xf32>
  %m = linalg.generic {indexing_maps = [#ij, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%s : tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) {
  ^bb0(%x: f32, %o: f32):
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %c = arith.cmpi sle, %j, %i : index
    %b = arith.select %c, %one, %zero : f32
    %kept = arith.mulf %x, %b : f32
    %rest = arith.subf %one, %b : f32
    %hidden = arith.mulf %low, %rest : f32
    %y = arith.subf %kept, %hidden : f32
    linalg.yield %y : f32
  } -> tensor<8x8xf32>
  %p = attn.softmax %m dim 1 : tensor<8x8xf32>
  %eo = tensor.empty() : tensor<8x4xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<8x4xf32>) -> tensor<8x4xf32>
  %o = linalg.contract indexing_maps = [#ws, #vs, #os] ins(%p, %v : tensor<8x8xf32>, tensor<8x4xf32>)
      outs(%fo : tensor<8x4xf32>) -> tensor<8x4xf32>
  return %o : tensor<8x4xf32>
}

// -----

#ij = affine_map<(i, j) -> (i, j)>
#qs = affine_map<(i, j, d) -> (i, d)>
#ks = affine_map<(i, j, d) -> (j, d)>
#ss = affine_map<(i, j, d) -> (i, j)>
#ws = affine_map<(i, e, j) -> (i, j)>
#vs = affine_map<(i, e, j) -> (j, e)>
#os = affine_map<(i, e, j) -> (i, e)>
// -3 hides nothing: the product stays.
// CHECK-LABEL: func.func @lowered_by_a_product
// CHECK: arith.mulf
// CHECK: attn.yield
func.func @lowered_by_a_product(%q: tensor<8x4xf32>, %k: tensor<8x4xf32>, %v: tensor<8x4xf32>) -> tensor<8x4xf32> {
  %zero = arith.constant 0.0 : f32
  %one = arith.constant 1.0 : f32
  %low = arith.constant 3.0 : f32
  %e = tensor.empty() : tensor<8x8xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
  %s = linalg.contract indexing_maps = [#qs, #ks, #ss] ins(%q, %k : tensor<8x4xf32>, tensor<8x4xf32>)
      outs(%f : tensor<8x8xf32>) -> tensor<8x8xf32>
  %m = linalg.generic {indexing_maps = [#ij, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%s : tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) {
  ^bb0(%x: f32, %o: f32):
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %c = arith.cmpi sle, %j, %i : index
    %b = arith.select %c, %one, %zero : f32
    %kept = arith.mulf %x, %b : f32
    %rest = arith.subf %one, %b : f32
    %hidden = arith.mulf %low, %rest : f32
    %y = arith.subf %kept, %hidden : f32
    linalg.yield %y : f32
  } -> tensor<8x8xf32>
  %p = attn.softmax %m dim 1 : tensor<8x8xf32>
  %eo = tensor.empty() : tensor<8x4xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<8x4xf32>) -> tensor<8x4xf32>
  %o = linalg.contract indexing_maps = [#ws, #vs, #os] ins(%p, %v : tensor<8x8xf32>, tensor<8x4xf32>)
      outs(%fo : tensor<8x4xf32>) -> tensor<8x4xf32>
  return %o : tensor<8x4xf32>
}

// -----

#ij = affine_map<(i, j) -> (i, j)>
#qs = affine_map<(i, j, d) -> (i, d)>
#ks = affine_map<(i, j, d) -> (j, d)>
#ss = affine_map<(i, j, d) -> (i, j)>
#ws = affine_map<(i, e, j) -> (i, j)>
#vs = affine_map<(i, e, j) -> (j, e)>
#os = affine_map<(i, e, j) -> (i, e)>
// c s + (1 - c) (s - 1e9), each factor by a comparison of its own: s and a selected bias.
// CHECK-LABEL: func.func @chosen_by_products
// CHECK: %[[SHOWN:.*]] = arith.cmpi sle, %{{.*}}, %{{.*}} : index
// CHECK-NOT: arith.mulf
// CHECK: %[[LOW:.*]] = arith.constant -1.000000e+09 : f32
// CHECK: %[[BIAS:.*]] = arith.select %[[SHOWN]], %{{.*}}, %[[LOW]] : f32
// CHECK: arith.addf %{{.*}}, %[[BIAS]] : f32
// CHECK: attn.yield
func.func @chosen_by_products(%q: tensor<8x4xf32>, %k: tensor<8x4xf32>, %v: tensor<8x4xf32>) -> tensor<8x4xf32> {
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 1.0e9 : f32
  %e = tensor.empty() : tensor<8x8xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
  %s = linalg.contract indexing_maps = [#qs, #ks, #ss] ins(%q, %k : tensor<8x4xf32>, tensor<8x4xf32>)
      outs(%f : tensor<8x8xf32>) -> tensor<8x8xf32>
  %m = linalg.generic {indexing_maps = [#ij, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%s : tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) {
  ^bb0(%x: f32, %o: f32):
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %c = arith.cmpi sle, %j, %i : index
    %shown = arith.uitofp %c : i1 to f32
    %kept = arith.mulf %shown, %x : f32
    %d = arith.cmpi sgt, %j, %i : index
    %hides = arith.uitofp %d : i1 to f32
    %shifted = arith.subf %x, %low : f32
    %hidden = arith.mulf %shifted, %hides : f32
    %y = arith.addf %hidden, %kept : f32
    linalg.yield %y : f32
  } -> tensor<8x8xf32>
  %p = attn.softmax %m dim 1 : tensor<8x8xf32>
  %eo = tensor.empty() : tensor<8x4xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<8x4xf32>) -> tensor<8x4xf32>
  %o = linalg.contract indexing_maps = [#ws, #vs, #os] ins(%p, %v : tensor<8x8xf32>, tensor<8x4xf32>)
      outs(%fo : tensor<8x4xf32>) -> tensor<8x4xf32>
  return %o : tensor<8x4xf32>
}

// -----

#ij = affine_map<(i, j) -> (i, j)>
#qs = affine_map<(i, j, d) -> (i, d)>
#ks = affine_map<(i, j, d) -> (j, d)>
#ss = affine_map<(i, j, d) -> (i, j)>
#ws = affine_map<(i, e, j) -> (i, j)>
#vs = affine_map<(i, e, j) -> (j, e)>
#os = affine_map<(i, e, j) -> (i, e)>
// On the diagonal both factors are 1: no choice of one of two.
// CHECK-LABEL: func.func @both_on_the_diagonal
// CHECK: arith.mulf
// CHECK: arith.mulf
// CHECK: attn.yield
func.func @both_on_the_diagonal(%q: tensor<8x4xf32>, %k: tensor<8x4xf32>, %v: tensor<8x4xf32>) -> tensor<8x4xf32> {
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 1.0e9 : f32
  %e = tensor.empty() : tensor<8x8xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
  %s = linalg.contract indexing_maps = [#qs, #ks, #ss] ins(%q, %k : tensor<8x4xf32>, tensor<8x4xf32>)
      outs(%f : tensor<8x8xf32>) -> tensor<8x8xf32>
  %m = linalg.generic {indexing_maps = [#ij, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%s : tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) {
  ^bb0(%x: f32, %o: f32):
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %c = arith.cmpi sle, %j, %i : index
    %shown = arith.uitofp %c : i1 to f32
    %kept = arith.mulf %shown, %x : f32
    %d = arith.cmpi sge, %j, %i : index
    %hides = arith.uitofp %d : i1 to f32
    %shifted = arith.subf %x, %low : f32
    %hidden = arith.mulf %shifted, %hides : f32
    %y = arith.addf %hidden, %kept : f32
    linalg.yield %y : f32
  } -> tensor<8x8xf32>
  %p = attn.softmax %m dim 1 : tensor<8x8xf32>
  %eo = tensor.empty() : tensor<8x4xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<8x4xf32>) -> tensor<8x4xf32>
  %o = linalg.contract indexing_maps = [#ws, #vs, #os] ins(%p, %v : tensor<8x8xf32>, tensor<8x4xf32>)
      outs(%fo : tensor<8x4xf32>) -> tensor<8x4xf32>
  return %o : tensor<8x4xf32>
}

// -----

#ij = affine_map<(i, j) -> (i, j)>
#qs = affine_map<(i, j, d) -> (i, d)>
#ks = affine_map<(i, j, d) -> (j, d)>
#ss = affine_map<(i, j, d) -> (i, j)>
#ws = affine_map<(i, e, j) -> (i, j)>
#vs = affine_map<(i, e, j) -> (j, e)>
#os = affine_map<(i, e, j) -> (i, e)>
// The scale of the scores is in b.
// CHECK-LABEL: func.func @scaled_by_a_product
// CHECK: %[[SHOWN:.*]] = arith.cmpi sle, %{{.*}}, %{{.*}} : index
// CHECK: %[[LOW:.*]] = arith.constant -1.000000e+04 : f32
// CHECK: %[[SCALED:.*]] = arith.mulf %{{.*}}, %{{.*}} : f32
// CHECK: arith.select %[[SHOWN]], %[[SCALED]], %[[LOW]] : f32
// CHECK: attn.yield
func.func @scaled_by_a_product(%q: tensor<8x4xf32>, %k: tensor<8x4xf32>, %v: tensor<8x4xf32>) -> tensor<8x4xf32> {
  %zero = arith.constant 0.0 : f32
  %one = arith.constant 1.0 : f32
  %low = arith.constant 1.0e4 : f32
  %e = tensor.empty() : tensor<8x8xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
  %s = linalg.contract indexing_maps = [#qs, #ks, #ss] ins(%q, %k : tensor<8x4xf32>, tensor<8x4xf32>)
      outs(%f : tensor<8x8xf32>) -> tensor<8x8xf32>
  %m = linalg.generic {indexing_maps = [#ij, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%s : tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) {
  ^bb0(%x: f32, %o: f32):
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %c = arith.cmpi sle, %j, %i : index
    %b = arith.select %c, %one, %zero : f32
    %half = arith.constant 0.5 : f32
    %scale = arith.mulf %b, %half : f32
    %kept = arith.mulf %x, %scale : f32
    %rest = arith.subf %one, %b : f32
    %hidden = arith.mulf %low, %rest : f32
    %y = arith.subf %kept, %hidden : f32
    linalg.yield %y : f32
  } -> tensor<8x8xf32>
  %p = attn.softmax %m dim 1 : tensor<8x8xf32>
  %eo = tensor.empty() : tensor<8x4xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<8x4xf32>) -> tensor<8x4xf32>
  %o = linalg.contract indexing_maps = [#ws, #vs, #os] ins(%p, %v : tensor<8x8xf32>, tensor<8x4xf32>)
      outs(%fo : tensor<8x4xf32>) -> tensor<8x4xf32>
  return %o : tensor<8x4xf32>
}

// -----

#q = affine_map<(b, h, i, j, d, e) -> (i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (j, d)>
#v = affine_map<(b, h, i, j, d, e) -> (j, e)>
#n = affine_map<(b, h, i, j, d, e) -> ()>
#o = affine_map<(b, h, i, j, d, e) -> (i, e)>
// Positions as 32-bit integers. Near misses: as bytes, in which they may wrap, and a length that may have more bits.
// CHECK: mask = "causal"
// CHECK-SAME: mask = "computed"
// CHECK-SAME: mask = "computed"
func.func @truncated(%q: tensor<5x4xf32>, %k: tensor<8x4xf32>, %v: tensor<8x4xf32>) -> tensor<5x4xf32> {
  %r = attn.attention masked_rows nan maps [#q, #k, #v, #o] ins(%q, %k, %v : tensor<5x4xf32>, tensor<8x4xf32>, tensor<8x4xf32>)
      -> tensor<5x4xf32> score {
  ^bb0(%s: f32):
    %i = attn.index 2 : index
    %j = attn.index 3 : index
    %inf = arith.constant 0xFF800000 : f32
    %wide_i = arith.index_cast %i : index to i64
    %wide_j = arith.index_cast %j : index to i64
    %row = arith.trunci %wide_i : i64 to i32
    %column = arith.trunci %wide_j : i64 to i32
    %shown = arith.cmpi sge, %row, %column : i32
    %y = arith.select %shown, %s, %inf : f32
    attn.yield %y : f32
  }
  return %r : tensor<5x4xf32>
}
func.func @bytes(%q: tensor<5x4xf32>, %k: tensor<8x4xf32>, %v: tensor<8x4xf32>) -> tensor<5x4xf32> {
  %r = attn.attention masked_rows nan maps [#q, #k, #v, #o] ins(%q, %k, %v : tensor<5x4xf32>, tensor<8x4xf32>, tensor<8x4xf32>)
      -> tensor<5x4xf32> score {
  ^bb0(%s: f32):
    %i = attn.index 2 : index
    %j = attn.index 3 : index
    %inf = arith.constant 0xFF800000 : f32
    %wide_i = arith.index_cast %i : index to i64
    %wide_j = arith.index_cast %j : index to i64
    %row = arith.trunci %wide_i : i64 to i8
    %column = arith.trunci %wide_j : i64 to i8
    %shown = arith.cmpi sge, %row, %column : i8
    %y = arith.select %shown, %s, %inf : f32
    attn.yield %y : f32
  }
  return %r : tensor<5x4xf32>
}
func.func @long_length(%q: tensor<5x4xf32>, %k: tensor<8x4xf32>, %v: tensor<8x4xf32>, %n: tensor<i64>) -> tensor<5x4xf32> {
  %r = attn.attention masked_rows nan maps [#q, #k, #v, #n, #o]
      ins(%q, %k, %v : tensor<5x4xf32>, tensor<8x4xf32>, tensor<8x4xf32>) captures(%n : tensor<i64>)
      -> tensor<5x4xf32> score {
  ^bb0(%s: f32, %len: i64):
    %j = attn.index 3 : index
    %inf = arith.constant 0xFF800000 : f32
    %wide_j = arith.index_cast %j : index to i64
    %column = arith.trunci %wide_j : i64 to i32
    %length = arith.trunci %len : i64 to i32
    %shown = arith.cmpi slt, %column, %length : i32
    %y = arith.select %shown, %s, %inf : f32
    attn.yield %y : f32
  }
  return %r : tensor<5x4xf32>
}
