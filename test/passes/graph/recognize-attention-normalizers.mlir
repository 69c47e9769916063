// RUN: attn-opt %s -attn-recognize-attention -canonicalize -cse -split-input-file | FileCheck %s

// What makes weights of scores, other than a softmax of exactly those.

#q = affine_map<(i, j, d) -> (i, d)>
#k = affine_map<(i, j, d) -> (j, d)>
#s = affine_map<(i, j, d) -> (i, j)>
#ij = affine_map<(i, j) -> (i, j)>
#i = affine_map<(i, j) -> (i)>
#w = affine_map<(i, e, j) -> (i, j)>
#v = affine_map<(i, e, j) -> (j, e)>
#o = affine_map<(i, e, j) -> (i, e)>
// Sigmoid smoothing: a function that is not negative over its sum.
// CHECK: fused = true, kind = "dot", mask = "none", node = {{[^}]*}}normalizer = "sum"
// CHECK-LABEL: func.func @sigmoid_over_sum
// CHECK: attn.attention normalizer sum masked_rows nan
// CHECK: score
// CHECK: math.exp
func.func @sigmoid_over_sum(%q: tensor<5x8xf32>, %k: tensor<7x8xf32>, %v: tensor<7x4xf32>) -> tensor<5x4xf32> {
  %zero = arith.constant 0.0 : f32
  %one = arith.constant 1.0 : f32
  %e = tensor.empty() : tensor<5x7xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<5x7xf32>) -> tensor<5x7xf32>
  %s = linalg.contract indexing_maps = [#q, #k, #s] ins(%q, %k : tensor<5x8xf32>, tensor<7x8xf32>)
      outs(%f : tensor<5x7xf32>) -> tensor<5x7xf32>
  %g = linalg.generic {indexing_maps = [#ij, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%s : tensor<5x7xf32>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%x: f32, %o: f32):
    %n = arith.negf %x : f32
    %t = math.exp %n : f32
    %u = arith.addf %t, %one : f32
    %r = arith.divf %one, %u : f32
    linalg.yield %r : f32
  } -> tensor<5x7xf32>
  %er = tensor.empty() : tensor<5xf32>
  %fr = linalg.fill ins(%zero : f32) outs(%er : tensor<5xf32>) -> tensor<5xf32>
  %sum = linalg.generic {indexing_maps = [#ij, #i], iterator_types = ["parallel", "reduction"]}
      ins(%g : tensor<5x7xf32>) outs(%fr : tensor<5xf32>) {
  ^bb0(%x: f32, %a: f32):
    %r = arith.addf %a, %x : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %p = linalg.generic {indexing_maps = [#ij, #i, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%g, %sum : tensor<5x7xf32>, tensor<5xf32>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %r = arith.divf %x, %y : f32
    linalg.yield %r : f32
  } -> tensor<5x7xf32>
  %eo = tensor.empty() : tensor<5x4xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<5x4xf32>) -> tensor<5x4xf32>
  %o = linalg.contract indexing_maps = [#w, #v, #o] ins(%p, %v : tensor<5x7xf32>, tensor<7x4xf32>)
      outs(%fo : tensor<5x4xf32>) -> tensor<5x4xf32>
  return %o : tensor<5x4xf32>
}

// -----

#ij = affine_map<(i, j) -> (i, j)>
#i = affine_map<(i, j) -> (i)>
#w = affine_map<(i, e, j) -> (i, j)>
#v = affine_map<(i, e, j) -> (j, e)>
#o = affine_map<(i, e, j) -> (i, e)>
// exp(s) / (1 + sum exp(s)): one more score, 0, whose key has no value. The near misses: a tensor is added to the
// sum of other terms than an exponential (a verdict), and terms that may be negative (none is due).
// CHECK: fused = true, kind = "given"
// CHECK-SAME: fused = false, kind = "missed"
// CHECK-SAME: reason = "the weights are not divided by the sum of their row alone"
// CHECK-NOT: fused
// CHECK-LABEL: func.func @softmax_one
// CHECK: %[[A:.+]], %[[LSE:.+]] = attn.attention kind given masked_rows zero {{.*}} extras [#attn.extra<lse>] : tensor<5xf32>
// CHECK: linalg.generic {{.*}} ins(%[[A]], %[[LSE]]
// CHECK: arith.subf
// CHECK: math.exp
// CHECK: arith.divf
func.func @softmax_one(%s: tensor<5x7xf32>, %v: tensor<7x4xf32>) -> tensor<5x4xf32> {
  %zero = arith.constant 0.0 : f32
  %one = arith.constant 1.0 : f32
  %e = tensor.empty() : tensor<5x7xf32>
  %g = linalg.generic {indexing_maps = [#ij, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%s : tensor<5x7xf32>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%x: f32, %o: f32):
    %r = math.exp %x : f32
    linalg.yield %r : f32
  } -> tensor<5x7xf32>
  %er = tensor.empty() : tensor<5xf32>
  %fr = linalg.fill ins(%zero : f32) outs(%er : tensor<5xf32>) -> tensor<5xf32>
  %sum = linalg.generic {indexing_maps = [#ij, #i], iterator_types = ["parallel", "reduction"]}
      ins(%g : tensor<5x7xf32>) outs(%fr : tensor<5xf32>) {
  ^bb0(%x: f32, %a: f32):
    %r = arith.addf %a, %x : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %more = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%sum : tensor<5xf32>) outs(%er : tensor<5xf32>) {
  ^bb0(%x: f32, %a: f32):
    %r = arith.addf %x, %one : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %p = linalg.generic {indexing_maps = [#ij, #i, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%g, %more : tensor<5x7xf32>, tensor<5xf32>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %r = arith.divf %x, %y : f32
    linalg.yield %r : f32
  } -> tensor<5x7xf32>
  %eo = tensor.empty() : tensor<5x4xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<5x4xf32>) -> tensor<5x4xf32>
  %o = linalg.contract indexing_maps = [#w, #v, #o] ins(%p, %v : tensor<5x7xf32>, tensor<7x4xf32>)
      outs(%fo : tensor<5x4xf32>) -> tensor<5x4xf32>
  return %o : tensor<5x4xf32>
}
// CHECK-LABEL: func.func @absolute_and_more
// CHECK-NOT: attn.attention
// CHECK-LABEL: func.func @signed
// CHECK-NOT: attn.attention
func.func @absolute_and_more(%s: tensor<5x7xf32>, %t: tensor<5xf32>, %v: tensor<7x4xf32>) -> tensor<5x4xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<5x7xf32>
  %g = linalg.generic {indexing_maps = [#ij, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%s : tensor<5x7xf32>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%x: f32, %o: f32):
    %r = math.absf %x : f32
    linalg.yield %r : f32
  } -> tensor<5x7xf32>
  %er = tensor.empty() : tensor<5xf32>
  %fr = linalg.fill ins(%zero : f32) outs(%er : tensor<5xf32>) -> tensor<5xf32>
  %sum = linalg.generic {indexing_maps = [#ij, #i], iterator_types = ["parallel", "reduction"]}
      ins(%g : tensor<5x7xf32>) outs(%fr : tensor<5xf32>) {
  ^bb0(%x: f32, %a: f32):
    %r = arith.addf %a, %x : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %more = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
      iterator_types = ["parallel"]} ins(%sum, %t : tensor<5xf32>, tensor<5xf32>) outs(%er : tensor<5xf32>) {
  ^bb0(%x: f32, %y: f32, %a: f32):
    %r = arith.addf %x, %y : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %p = linalg.generic {indexing_maps = [#ij, #i, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%g, %more : tensor<5x7xf32>, tensor<5xf32>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %r = arith.divf %x, %y : f32
    linalg.yield %r : f32
  } -> tensor<5x7xf32>
  %eo = tensor.empty() : tensor<5x4xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<5x4xf32>) -> tensor<5x4xf32>
  %o = linalg.contract indexing_maps = [#w, #v, #o] ins(%p, %v : tensor<5x7xf32>, tensor<7x4xf32>)
      outs(%fo : tensor<5x4xf32>) -> tensor<5x4xf32>
  return %o : tensor<5x4xf32>
}
func.func @signed(%s: tensor<5x7xf32>, %v: tensor<7x4xf32>) -> tensor<5x4xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<5x7xf32>
  %er = tensor.empty() : tensor<5xf32>
  %fr = linalg.fill ins(%zero : f32) outs(%er : tensor<5xf32>) -> tensor<5xf32>
  %sum = linalg.generic {indexing_maps = [#ij, #i], iterator_types = ["parallel", "reduction"]}
      ins(%s : tensor<5x7xf32>) outs(%fr : tensor<5xf32>) {
  ^bb0(%x: f32, %a: f32):
    %r = arith.addf %a, %x : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %p = linalg.generic {indexing_maps = [#ij, #i, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%s, %sum : tensor<5x7xf32>, tensor<5xf32>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %r = arith.divf %x, %y : f32
    linalg.yield %r : f32
  } -> tensor<5x7xf32>
  %eo = tensor.empty() : tensor<5x4xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<5x4xf32>) -> tensor<5x4xf32>
  %o = linalg.contract indexing_maps = [#w, #v, #o] ins(%p, %v : tensor<5x7xf32>, tensor<7x4xf32>)
      outs(%fo : tensor<5x4xf32>) -> tensor<5x4xf32>
  return %o : tensor<5x4xf32>
}

// -----

#q = affine_map<(i, j, d) -> (i, d)>
#k = affine_map<(i, j, d) -> (j, d)>
#s = affine_map<(i, j, d) -> (i, j)>
#ij = affine_map<(i, j) -> (i, j)>
#w = affine_map<(i, e, j) -> (i, j)>
#v = affine_map<(i, e, j) -> (j, e)>
#o = affine_map<(i, e, j) -> (i, e)>
#row = affine_map<(i, j) -> (i)>
// Weights above a threshold that the row sets, as sparsemax has them: no sum normalises them, and no gate is its own.
// CHECK: fused = false, kind = "none", {{[^}]*}}"not an attention: its weights depend on the other scores of their row, not by their sum alone (a threshold as of sparsemax, a norm)"
// CHECK-LABEL: func.func @threshold
// CHECK-NOT: attn.attention
func.func @threshold(%q: tensor<5x8xf32>, %k: tensor<7x8xf32>, %v: tensor<7x4xf32>) -> tensor<5x4xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<5x7xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<5x7xf32>) -> tensor<5x7xf32>
  %s = linalg.contract indexing_maps = [#q, #k, #s] ins(%q, %k : tensor<5x8xf32>, tensor<7x8xf32>)
      outs(%f : tensor<5x7xf32>) -> tensor<5x7xf32>
  %er = tensor.empty() : tensor<5xf32>
  %fr = linalg.fill ins(%zero : f32) outs(%er : tensor<5xf32>) -> tensor<5xf32>
  %t = linalg.generic {indexing_maps = [#ij, #row], iterator_types = ["parallel", "reduction"]}
      ins(%s : tensor<5x7xf32>) outs(%fr : tensor<5xf32>) {
  ^bb0(%x: f32, %o: f32):
    %t2 = arith.mulf %x, %x : f32
    %r = arith.addf %o, %t2 : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %one = arith.constant 1.0 : f32
  %g = linalg.generic {indexing_maps = [#ij, #row, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%s, %t : tensor<5x7xf32>, tensor<5xf32>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%x: f32, %m: f32, %o: f32):
    %d = arith.subf %x, %m : f32
    %u = arith.addf %d, %one : f32
    %r = arith.maximumf %u, %zero : f32
    linalg.yield %r : f32
  } -> tensor<5x7xf32>
  %eo = tensor.empty() : tensor<5x4xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<5x4xf32>) -> tensor<5x4xf32>
  %o = linalg.contract indexing_maps = [#w, #v, #o] ins(%g, %v : tensor<5x7xf32>, tensor<7x4xf32>)
      outs(%fo : tensor<5x4xf32>) -> tensor<5x4xf32>
  return %o : tensor<5x4xf32>
}

// -----

#q = affine_map<(i, j, d) -> (i, d)>
#k = affine_map<(i, j, d) -> (j, d)>
#s = affine_map<(i, j, d) -> (i, j)>
#ij = affine_map<(i, j) -> (i, j)>
#w = affine_map<(i, e, j) -> (i, j)>
#v = affine_map<(i, e, j) -> (j, e)>
#o = affine_map<(i, e, j) -> (i, e)>
// Gates: relu(q k^T) v has no normaliser. With a constant for keys it is a layer of a network, and no verdict is due.
// CHECK: fused = true, kind = "dot", mask = "none", node = {{[^}]*}}normalizer = "none"
// CHECK-NOT: fused
// CHECK-LABEL: func.func @gate
// CHECK: attn.attention normalizer none masked_rows zero
// CHECK-LABEL: func.func @layer
// CHECK-NOT: attn.attention
func.func @gate(%q: tensor<5x8xf32>, %k: tensor<7x8xf32>, %v: tensor<7x4xf32>) -> tensor<5x4xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<5x7xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<5x7xf32>) -> tensor<5x7xf32>
  %s = linalg.contract indexing_maps = [#q, #k, #s] ins(%q, %k : tensor<5x8xf32>, tensor<7x8xf32>)
      outs(%f : tensor<5x7xf32>) -> tensor<5x7xf32>
  %g = linalg.generic {indexing_maps = [#ij, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%s : tensor<5x7xf32>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%x: f32, %o: f32):
    %r = arith.maximumf %x, %zero : f32
    linalg.yield %r : f32
  } -> tensor<5x7xf32>
  %eo = tensor.empty() : tensor<5x4xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<5x4xf32>) -> tensor<5x4xf32>
  %o = linalg.contract indexing_maps = [#w, #v, #o] ins(%g, %v : tensor<5x7xf32>, tensor<7x4xf32>)
      outs(%fo : tensor<5x4xf32>) -> tensor<5x4xf32>
  return %o : tensor<5x4xf32>
}
func.func @layer(%q: tensor<5x8xf32>, %v: tensor<7x4xf32>) -> tensor<5x4xf32> {
  %k = arith.constant dense<0.5> : tensor<7x8xf32>
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<5x7xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<5x7xf32>) -> tensor<5x7xf32>
  %s = linalg.contract indexing_maps = [#q, #k, #s] ins(%q, %k : tensor<5x8xf32>, tensor<7x8xf32>)
      outs(%f : tensor<5x7xf32>) -> tensor<5x7xf32>
  %g = linalg.generic {indexing_maps = [#ij, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%s : tensor<5x7xf32>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%x: f32, %o: f32):
    %r = arith.maximumf %x, %zero : f32
    linalg.yield %r : f32
  } -> tensor<5x7xf32>
  %eo = tensor.empty() : tensor<5x4xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<5x4xf32>) -> tensor<5x4xf32>
  %o = linalg.contract indexing_maps = [#w, #v, #o] ins(%g, %v : tensor<5x7xf32>, tensor<7x4xf32>)
      outs(%fo : tensor<5x4xf32>) -> tensor<5x4xf32>
  return %o : tensor<5x4xf32>
}

// -----

#ctx = affine_map<(d, e, n) -> (n, d)>
#val = affine_map<(d, e, n) -> (n, e)>
#de = affine_map<(d, e, n) -> (d, e)>
#nd = affine_map<(n, e, d) -> (n, d)>
#dv = affine_map<(n, e, d) -> (d, e)>
#ne = affine_map<(n, e, d) -> (n, e)>
// Co-attention: what each row of one side makes of the other side is what it is weighted with. Written like the next
// one, but the dimension that is normalised numbers rows.
// CHECK: fused = true, kind = "given"
// CHECK-SAME: fused = true, kind = "given"
// CHECK-LABEL: func.func @co_attention
func.func @co_attention(%s: tensor<?x?xf32>, %v: tensor<?x4xf32>, %m: index, %n: index) -> tensor<?x4xf32> {
  %zero = arith.constant 0.0 : f32
  %pq = attn.softmax %s dim 1 : tensor<?x?xf32>
  %pk = attn.softmax %s dim 0 : tensor<?x?xf32>
  %ec = tensor.empty(%m) : tensor<?x4xf32>
  %fc = linalg.fill ins(%zero : f32) outs(%ec : tensor<?x4xf32>) -> tensor<?x4xf32>
  %c = linalg.contract indexing_maps = [#ctx, #val, #de] ins(%pk, %v : tensor<?x?xf32>, tensor<?x4xf32>)
      outs(%fc : tensor<?x4xf32>) -> tensor<?x4xf32>
  %eo = tensor.empty(%n) : tensor<?x4xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<?x4xf32>) -> tensor<?x4xf32>
  %o = linalg.contract indexing_maps = [#nd, #dv, #ne] ins(%pq, %c : tensor<?x?xf32>, tensor<?x4xf32>)
      outs(%fo : tensor<?x4xf32>) -> tensor<?x4xf32>
  return %o : tensor<?x4xf32>
}

// -----

#ctx = affine_map<(d, e, n) -> (n, d)>
#val = affine_map<(d, e, n) -> (n, e)>
#de = affine_map<(d, e, n) -> (d, e)>
#nd = affine_map<(n, e, d) -> (n, d)>
#dv = affine_map<(n, e, d) -> (d, e)>
#ne = affine_map<(n, e, d) -> (n, e)>
// Linear attention: no weight is of a query and a key. The inner softmax gathers values over positions, for each
// feature; the outer one is over features.
// CHECK: fused = false, kind = "none", {{[^}]*}}"no contraction: it normalises features (linear attention)"
// CHECK-SAME: fused = true, kind = "given", mask = "none"
// CHECK-LABEL: func.func @linear_attention
// CHECK: attn.softmax %arg0 dim 1
// CHECK-NOT: attn.softmax
// CHECK: attn.attention kind  given {{.*}} ins(%arg1, %arg2
func.func @linear_attention(%q: tensor<?x8xf32>, %k: tensor<?x8xf32>, %v: tensor<?x4xf32>, %n: index) -> tensor<?x4xf32> {
  %zero = arith.constant 0.0 : f32
  %pq = attn.softmax %q dim 1 : tensor<?x8xf32>
  %pk = attn.softmax %k dim 0 : tensor<?x8xf32>
  %ec = tensor.empty() : tensor<8x4xf32>
  %fc = linalg.fill ins(%zero : f32) outs(%ec : tensor<8x4xf32>) -> tensor<8x4xf32>
  %c = linalg.contract indexing_maps = [#ctx, #val, #de] ins(%pk, %v : tensor<?x8xf32>, tensor<?x4xf32>)
      outs(%fc : tensor<8x4xf32>) -> tensor<8x4xf32>
  %eo = tensor.empty(%n) : tensor<?x4xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<?x4xf32>) -> tensor<?x4xf32>
  %o = linalg.contract indexing_maps = [#nd, #dv, #ne] ins(%pq, %c : tensor<?x8xf32>, tensor<8x4xf32>)
      outs(%fo : tensor<?x4xf32>) -> tensor<?x4xf32>
  return %o : tensor<?x4xf32>
}

// -----

#q = affine_map<(i, j, d) -> (i, d)>
#k = affine_map<(i, j, d) -> (j, d)>
#s = affine_map<(i, j, d) -> (i, j)>
#ij = affine_map<(i, j) -> (i, j)>
#w = affine_map<(i, e, j) -> (i, j)>
#v = affine_map<(i, e, j) -> (j, e)>
#o = affine_map<(i, e, j) -> (i, e)>
// Values that a constant list of indices gathers from what the run computes are no constant.
// CHECK: fused = true, kind = "dot", mask = "none", node = {{[^}]*}}normalizer = "none"
// CHECK-LABEL: func.func @gate_of_gathered
// CHECK: attn.attention normalizer none masked_rows zero
func.func @gate_of_gathered(%q: tensor<5x8xf32>, %k: tensor<7x8xf32>, %x: tensor<3x4xf32>) -> tensor<5x4xf32> {
  %zero = arith.constant 0.0 : f32
  %rows = arith.constant dense<[0, 0, 1, 1, 2, 2, 0]> : tensor<7xi64>
  %ev = tensor.empty() : tensor<7x4xf32>
  %v = linalg.generic {indexing_maps = [affine_map<(j, e) -> (j)>, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%rows : tensor<7xi64>) outs(%ev : tensor<7x4xf32>) {
  ^bb0(%n: i64, %o: f32):
    %row = arith.index_cast %n : i64 to index
    %column = linalg.index 1 : index
    %r = tensor.extract %x[%row, %column] : tensor<3x4xf32>
    linalg.yield %r : f32
  } -> tensor<7x4xf32>
  %e = tensor.empty() : tensor<5x7xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<5x7xf32>) -> tensor<5x7xf32>
  %s = linalg.contract indexing_maps = [#q, #k, #s] ins(%q, %k : tensor<5x8xf32>, tensor<7x8xf32>)
      outs(%f : tensor<5x7xf32>) -> tensor<5x7xf32>
  %g = linalg.generic {indexing_maps = [#ij, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%s : tensor<5x7xf32>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%y: f32, %o: f32):
    %r = arith.maximumf %y, %zero : f32
    linalg.yield %r : f32
  } -> tensor<5x7xf32>
  %eo = tensor.empty() : tensor<5x4xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<5x4xf32>) -> tensor<5x4xf32>
  %o = linalg.contract indexing_maps = [#w, #v, #o] ins(%g, %v : tensor<5x7xf32>, tensor<7x4xf32>)
      outs(%fo : tensor<5x4xf32>) -> tensor<5x4xf32>
  return %o : tensor<5x4xf32>
}

// -----

// The square of one tensor, read twice, over its sum is a normaliser; a product of two is none.
// CHECK: fused = {{.*}}normalizer = "sum"
// CHECK-NOT: fused
// CHECK-LABEL: func.func @square
func.func @square(%s: tensor<5x6xf32>, %t: tensor<5x6xf32>, %v: tensor<6x4xf32>) -> (tensor<5x4xf32>, tensor<5x4xf32>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<5x6xf32>
  %e1 = tensor.empty() : tensor<5xf32>
  %f1 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<5xf32>) -> tensor<5xf32>
  %eo = tensor.empty() : tensor<5x4xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<5x4xf32>) -> tensor<5x4xf32>
  %x = linalg.mul ins(%s, %s : tensor<5x6xf32>, tensor<5x6xf32>) outs(%e : tensor<5x6xf32>) -> tensor<5x6xf32>
  %sx = linalg.reduce ins(%x : tensor<5x6xf32>) outs(%f1 : tensor<5xf32>) dimensions = [1] (%a: f32, %o: f32) {
    %y = arith.addf %a, %o : f32
    linalg.yield %y : f32
  }
  %p = linalg.generic {indexing_maps = [affine_map<(a, b) -> (a, b)>, affine_map<(a, b) -> (a)>, affine_map<(a, b) -> (a, b)>], iterator_types = ["parallel", "parallel"]}
      ins(%x, %sx : tensor<5x6xf32>, tensor<5xf32>) outs(%e : tensor<5x6xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %y = arith.divf %a, %b : f32
    linalg.yield %y : f32
  } -> tensor<5x6xf32>
  %r = linalg.contract indexing_maps = [affine_map<(i, e, j) -> (i, j)>, affine_map<(i, e, j) -> (j, e)>, affine_map<(i, e, j) -> (i, e)>]
      ins(%p, %v : tensor<5x6xf32>, tensor<6x4xf32>) outs(%fo : tensor<5x4xf32>) -> tensor<5x4xf32>
  %x2 = linalg.mul ins(%s, %t : tensor<5x6xf32>, tensor<5x6xf32>) outs(%e : tensor<5x6xf32>) -> tensor<5x6xf32>
  %sx2 = linalg.reduce ins(%x2 : tensor<5x6xf32>) outs(%f1 : tensor<5xf32>) dimensions = [1] (%a: f32, %o: f32) {
    %y = arith.addf %a, %o : f32
    linalg.yield %y : f32
  }
  %p2 = linalg.generic {indexing_maps = [affine_map<(a, b) -> (a, b)>, affine_map<(a, b) -> (a)>, affine_map<(a, b) -> (a, b)>], iterator_types = ["parallel", "parallel"]}
      ins(%x2, %sx2 : tensor<5x6xf32>, tensor<5xf32>) outs(%e : tensor<5x6xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %y = arith.divf %a, %b : f32
    linalg.yield %y : f32
  } -> tensor<5x6xf32>
  %r2 = linalg.contract indexing_maps = [affine_map<(i, e, j) -> (i, j)>, affine_map<(i, e, j) -> (j, e)>, affine_map<(i, e, j) -> (i, e)>]
      ins(%p2, %v : tensor<5x6xf32>, tensor<6x4xf32>) outs(%fo : tensor<5x4xf32>) -> tensor<5x4xf32>
  return %r, %r2 : tensor<5x4xf32>, tensor<5x4xf32>
}

// -----

#q = affine_map<(i, j, d) -> (i, d)>
#k = affine_map<(i, j, d) -> (j, d)>
#s = affine_map<(i, j, d) -> (i, j)>
#ij = affine_map<(i, j) -> (i, j)>
#i = affine_map<(i, j) -> (i)>
#w = affine_map<(i, e, j) -> (i, j)>
#v = affine_map<(i, e, j) -> (j, e)>
#o = affine_map<(i, e, j) -> (i, e)>
// Near miss: half of a number is not more than nothing.
// CHECK-NOT: fused = true
// CHECK-LABEL: func.func @half_over_sum
// CHECK-NOT: attn.attention
func.func @half_over_sum(%q: tensor<5x8xf32>, %k: tensor<7x8xf32>, %v: tensor<7x4xf32>) -> tensor<5x4xf32> {
  %zero = arith.constant 0.0 : f32
  %half = arith.constant 0.5 : f32
  %e = tensor.empty() : tensor<5x7xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<5x7xf32>) -> tensor<5x7xf32>
  %s = linalg.contract indexing_maps = [#q, #k, #s] ins(%q, %k : tensor<5x8xf32>, tensor<7x8xf32>)
      outs(%f : tensor<5x7xf32>) -> tensor<5x7xf32>
  %g = linalg.generic {indexing_maps = [#ij, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%s : tensor<5x7xf32>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%x: f32, %o: f32):
    %r = arith.mulf %x, %half : f32
    linalg.yield %r : f32
  } -> tensor<5x7xf32>
  %er = tensor.empty() : tensor<5xf32>
  %fr = linalg.fill ins(%zero : f32) outs(%er : tensor<5xf32>) -> tensor<5xf32>
  %sum = linalg.generic {indexing_maps = [#ij, #i], iterator_types = ["parallel", "reduction"]}
      ins(%g : tensor<5x7xf32>) outs(%fr : tensor<5xf32>) {
  ^bb0(%x: f32, %a: f32):
    %r = arith.addf %a, %x : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %p = linalg.generic {indexing_maps = [#ij, #i, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%g, %sum : tensor<5x7xf32>, tensor<5xf32>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %r = arith.divf %x, %y : f32
    linalg.yield %r : f32
  } -> tensor<5x7xf32>
  %eo = tensor.empty() : tensor<5x4xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<5x4xf32>) -> tensor<5x4xf32>
  %o = linalg.contract indexing_maps = [#w, #v, #o] ins(%p, %v : tensor<5x7xf32>, tensor<7x4xf32>)
      outs(%fo : tensor<5x4xf32>) -> tensor<5x4xf32>
  return %o : tensor<5x4xf32>
}

// -----

#ij = affine_map<(i, j) -> (i, j)>
#ji = affine_map<(i, j) -> (j, i)>
#i = affine_map<(i, j) -> (i)>
#w = affine_map<(i, e, j) -> (i, j)>
#v = affine_map<(i, e, j) -> (j, e)>
#o = affine_map<(i, e, j) -> (i, e)>
// Near miss: divided by the sums of columns.
// CHECK: fused = false, {{.*}}normalizer = "sum", reason = "the weights are not divided by the sum of their row alone"
// CHECK-LABEL: func.func @columns
// CHECK-NOT: attn.attention
func.func @columns(%x: tensor<5x5xf32>, %v: tensor<5x4xf32>) -> tensor<5x4xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<5x5xf32>
  %er = tensor.empty() : tensor<5xf32>
  %fr = linalg.fill ins(%zero : f32) outs(%er : tensor<5xf32>) -> tensor<5xf32>
  %eo = tensor.empty() : tensor<5x4xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<5x4xf32>) -> tensor<5x4xf32>
  %w = linalg.generic {indexing_maps = [#ij, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<5x5xf32>) outs(%e : tensor<5x5xf32>) {
  ^bb0(%a: f32, %out: f32):
    %m = math.absf %a : f32
    linalg.yield %m : f32
  } -> tensor<5x5xf32>
  %t = linalg.generic {indexing_maps = [#ij, #ji], iterator_types = ["parallel", "parallel"]}
      ins(%w : tensor<5x5xf32>) outs(%e : tensor<5x5xf32>) {
  ^bb0(%a: f32, %out: f32):
    linalg.yield %a : f32
  } -> tensor<5x5xf32>
  %sum = linalg.generic {indexing_maps = [#ij, #i], iterator_types = ["parallel", "reduction"]}
      ins(%t : tensor<5x5xf32>) outs(%fr : tensor<5xf32>) {
  ^bb0(%a: f32, %acc: f32):
    %m = arith.addf %acc, %a : f32
    linalg.yield %m : f32
  } -> tensor<5xf32>
  %p = linalg.generic {indexing_maps = [#ij, #i, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%w, %sum : tensor<5x5xf32>, tensor<5xf32>) outs(%e : tensor<5x5xf32>) {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %m = arith.divf %a, %b : f32
    linalg.yield %m : f32
  } -> tensor<5x5xf32>
  %y = linalg.contract indexing_maps = [#w, #v, #o] ins(%p, %v : tensor<5x5xf32>, tensor<5x4xf32>)
      outs(%fo : tensor<5x4xf32>) -> tensor<5x4xf32>
  return %y : tensor<5x4xf32>
}
