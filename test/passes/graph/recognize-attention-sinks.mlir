// RUN: attn-opt %s -attn-raise-softmax -attn-raise-contraction -attn-recognize-attention -canonicalize -cse -split-input-file | FileCheck %s

// One more score of each row whose key has no value.

#q = affine_map<(i, j, d) -> (i, d)>
#k = affine_map<(i, j, d) -> (j, d)>
#s = affine_map<(i, j, d) -> (i, j)>
#ij = affine_map<(i, j) -> (i, j)>
#i = affine_map<(i, j) -> (i)>
#j = affine_map<(i, j) -> (j)>
#r = affine_map<(i) -> (i)>
#w = affine_map<(i, e, j) -> (i, j)>
#v = affine_map<(i, e, j) -> (j, e)>
#o = affine_map<(i, e, j) -> (i, e)>
// exp(s - max(s)) / (exp(-max(s)) + sum): a sink of score 0, which the maximum of a row of -inf takes along. A near
// miss: another row's maximum.
// CHECK: fused = true, kind = "dot", mask = "none", node = ""
// CHECK-SAME: fused = false, kind = "missed"
// CHECK-LABEL: func.func @sink
// CHECK: attn.attention masked_rows nan {{.*}} extras [#attn.extra<lse>]
// CHECK-LABEL: func.func @other_sink
// CHECK-NOT: attn.attention
func.func @sink(%q: tensor<5x8xf32>, %k: tensor<7x8xf32>, %v: tensor<7x4xf32>) -> tensor<5x4xf32> {
  %zero = arith.constant 0.0 : f32
  %inf = arith.constant 0xFF800000 : f32
  %e = tensor.empty() : tensor<5x7xf32>
  %er = tensor.empty() : tensor<5xf32>
  %fr = linalg.fill ins(%zero : f32) outs(%er : tensor<5xf32>) -> tensor<5xf32>
  %fm = linalg.fill ins(%inf : f32) outs(%er : tensor<5xf32>) -> tensor<5xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<5x7xf32>) -> tensor<5x7xf32>
  %s = linalg.contract indexing_maps = [#q, #k, #s] ins(%q, %k : tensor<5x8xf32>, tensor<7x8xf32>)
      outs(%f : tensor<5x7xf32>) -> tensor<5x7xf32>
  %h = linalg.generic {indexing_maps = [#ij, #i], iterator_types = ["parallel", "reduction"]}
      ins(%s : tensor<5x7xf32>) outs(%fm : tensor<5xf32>) {
  ^bb0(%b: f32, %a: f32):
    %r = arith.maximumf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %d = linalg.generic {indexing_maps = [#ij, #i, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%s, %h : tensor<5x7xf32>, tensor<5xf32>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%x0: f32, %x1: f32, %out: f32):
    %r = arith.subf %x0, %x1 : f32
    linalg.yield %r : f32
  } -> tensor<5x7xf32>
  %g = linalg.generic {indexing_maps = [#ij, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%d : tensor<5x7xf32>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%x0: f32, %out: f32):
    %r = math.exp %x0 : f32
    linalg.yield %r : f32
  } -> tensor<5x7xf32>
  %n = linalg.generic {indexing_maps = [#r, #r], iterator_types = ["parallel"]}
      ins(%h : tensor<5xf32>) outs(%er : tensor<5xf32>) {
  ^bb0(%x0: f32, %out: f32):
    %r = arith.negf %x0 : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %c = linalg.generic {indexing_maps = [#r, #r], iterator_types = ["parallel"]}
      ins(%n : tensor<5xf32>) outs(%er : tensor<5xf32>) {
  ^bb0(%x0: f32, %out: f32):
    %r = math.exp %x0 : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %t = linalg.generic {indexing_maps = [#ij, #i], iterator_types = ["parallel", "reduction"]}
      ins(%g : tensor<5x7xf32>) outs(%fr : tensor<5xf32>) {
  ^bb0(%b: f32, %a: f32):
    %r = arith.addf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %u = linalg.generic {indexing_maps = [#r, #r, #r], iterator_types = ["parallel"]}
      ins(%t, %c : tensor<5xf32>, tensor<5xf32>) outs(%er : tensor<5xf32>) {
  ^bb0(%x0: f32, %x1: f32, %out: f32):
    %r = arith.addf %x0, %x1 : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %p = linalg.generic {indexing_maps = [#ij, #i, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%g, %u : tensor<5x7xf32>, tensor<5xf32>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%x0: f32, %x1: f32, %out: f32):
    %r = arith.divf %x0, %x1 : f32
    linalg.yield %r : f32
  } -> tensor<5x7xf32>
  %eo = tensor.empty() : tensor<5x4xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<5x4xf32>) -> tensor<5x4xf32>
  %o = linalg.contract indexing_maps = [#w, #v, #o] ins(%p, %v : tensor<5x7xf32>, tensor<7x4xf32>)
      outs(%fo : tensor<5x4xf32>) -> tensor<5x4xf32>
  return %o : tensor<5x4xf32>
}
func.func @other_sink(%q: tensor<5x8xf32>, %k: tensor<7x8xf32>, %v: tensor<7x4xf32>) -> tensor<5x4xf32> {
  %zero = arith.constant 0.0 : f32
  %inf = arith.constant 0xFF800000 : f32
  %e = tensor.empty() : tensor<5x7xf32>
  %er = tensor.empty() : tensor<5xf32>
  %fr = linalg.fill ins(%zero : f32) outs(%er : tensor<5xf32>) -> tensor<5xf32>
  %fm = linalg.fill ins(%inf : f32) outs(%er : tensor<5xf32>) -> tensor<5xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<5x7xf32>) -> tensor<5x7xf32>
  %s = linalg.contract indexing_maps = [#q, #k, #s] ins(%q, %k : tensor<5x8xf32>, tensor<7x8xf32>)
      outs(%f : tensor<5x7xf32>) -> tensor<5x7xf32>
  %h = linalg.generic {indexing_maps = [#ij, #i], iterator_types = ["parallel", "reduction"]}
      ins(%s : tensor<5x7xf32>) outs(%fm : tensor<5xf32>) {
  ^bb0(%b: f32, %a: f32):
    %r = arith.maximumf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %d = linalg.generic {indexing_maps = [#ij, #i, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%s, %h : tensor<5x7xf32>, tensor<5xf32>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%x0: f32, %x1: f32, %out: f32):
    %r = arith.subf %x0, %x1 : f32
    linalg.yield %r : f32
  } -> tensor<5x7xf32>
  %g = linalg.generic {indexing_maps = [#ij, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%d : tensor<5x7xf32>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%x0: f32, %out: f32):
    %r = math.exp %x0 : f32
    linalg.yield %r : f32
  } -> tensor<5x7xf32>
  %n = linalg.generic {indexing_maps = [#r, #r], iterator_types = ["parallel"]}
      ins(%h : tensor<5xf32>) outs(%er : tensor<5xf32>) {
  ^bb0(%x0: f32, %out: f32):
    %r = arith.negf %x0 : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %n2 = linalg.generic {indexing_maps = [#r, #r], iterator_types = ["parallel"]}
      ins(%n : tensor<5xf32>) outs(%er : tensor<5xf32>) {
  ^bb0(%x0: f32, %out: f32):
    %r = arith.negf %x0 : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %c = linalg.generic {indexing_maps = [#r, #r], iterator_types = ["parallel"]}
      ins(%n2 : tensor<5xf32>) outs(%er : tensor<5xf32>) {
  ^bb0(%x0: f32, %out: f32):
    %r = math.exp %x0 : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %t = linalg.generic {indexing_maps = [#ij, #i], iterator_types = ["parallel", "reduction"]}
      ins(%g : tensor<5x7xf32>) outs(%fr : tensor<5xf32>) {
  ^bb0(%b: f32, %a: f32):
    %r = arith.addf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %u = linalg.generic {indexing_maps = [#r, #r, #r], iterator_types = ["parallel"]}
      ins(%t, %c : tensor<5xf32>, tensor<5xf32>) outs(%er : tensor<5xf32>) {
  ^bb0(%x0: f32, %x1: f32, %out: f32):
    %r = arith.addf %x0, %x1 : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %p = linalg.generic {indexing_maps = [#ij, #i, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%g, %u : tensor<5x7xf32>, tensor<5xf32>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%x0: f32, %x1: f32, %out: f32):
    %r = arith.divf %x0, %x1 : f32
    linalg.yield %r : f32
  } -> tensor<5x7xf32>
  %eo = tensor.empty() : tensor<5x4xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<5x4xf32>) -> tensor<5x4xf32>
  %o = linalg.contract indexing_maps = [#w, #v, #o] ins(%p, %v : tensor<5x7xf32>, tensor<7x4xf32>)
      outs(%fo : tensor<5x4xf32>) -> tensor<5x4xf32>
  return %o : tensor<5x4xf32>
}

// -----

#w = affine_map<(i, e, j) -> (i, j)>
#v = affine_map<(i, e, j) -> (j, e)>
#o = affine_map<(i, e, j) -> (i, e)>
// An attention sink: one more column, cut off after the softmax. In @middle another one is cut off.
// CHECK: fused = true, kind = "given"
// CHECK-SAME: fused = false
// CHECK-LABEL: func.func @sink
// CHECK-SAME: %[[S:[^:]+]]: tensor<5x?xf32>, %[[SINK:[^:]+]]: tensor<5x1xf32>
// CHECK: %[[A:.+]], %[[LSE:.+]] = attn.attention kind given masked_rows zero {{.*}}ins(%[[S]], {{.*}} extras [#attn.extra<lse>]
// CHECK: %[[COLUMN:.+]] = tensor.collapse_shape %[[SINK]]
// CHECK: linalg.generic {{.*}} ins(%[[A]], %[[LSE]], %[[COLUMN]]
// CHECK-LABEL: func.func @middle
// CHECK: attn.softmax
func.func @sink(%s: tensor<5x?xf32>, %sink: tensor<5x1xf32>, %v: tensor<?x4xf32>) -> tensor<5x4xf32> {
  %zero = arith.constant 0.0 : f32
  %c1 = arith.constant 1 : index
  %n = tensor.dim %s, %c1 : tensor<5x?xf32>
  %m = arith.addi %n, %c1 : index
  %e = tensor.empty(%m) : tensor<5x?xf32>
  %a = tensor.insert_slice %s into %e[0, 0] [5, %n] [1, 1] : tensor<5x?xf32> into tensor<5x?xf32>
  %b = tensor.insert_slice %sink into %a[0, %n] [5, 1] [1, 1] : tensor<5x1xf32> into tensor<5x?xf32>
  %p = attn.softmax %b dim 1 : tensor<5x?xf32>
  %cut = tensor.extract_slice %p[0, 0] [5, %n] [1, 1] : tensor<5x?xf32> to tensor<5x?xf32>
  %eo = tensor.empty() : tensor<5x4xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<5x4xf32>) -> tensor<5x4xf32>
  %o = linalg.contract indexing_maps = [#w, #v, #o] ins(%cut, %v : tensor<5x?xf32>, tensor<?x4xf32>)
      outs(%fo : tensor<5x4xf32>) -> tensor<5x4xf32>
  return %o : tensor<5x4xf32>
}
func.func @middle(%s: tensor<5x?xf32>, %sink: tensor<5x1xf32>, %v: tensor<?x4xf32>) -> tensor<5x4xf32> {
  %zero = arith.constant 0.0 : f32
  %c1 = arith.constant 1 : index
  %n = tensor.dim %s, %c1 : tensor<5x?xf32>
  %m = arith.addi %n, %c1 : index
  %e = tensor.empty(%m) : tensor<5x?xf32>
  %a = tensor.insert_slice %s into %e[0, 0] [5, %n] [1, 1] : tensor<5x?xf32> into tensor<5x?xf32>
  %b = tensor.insert_slice %sink into %a[0, %n] [5, 1] [1, 1] : tensor<5x1xf32> into tensor<5x?xf32>
  %p = attn.softmax %b dim 1 : tensor<5x?xf32>
  %cut = tensor.extract_slice %p[0, 1] [5, %n] [1, 1] : tensor<5x?xf32> to tensor<5x?xf32>
  %eo = tensor.empty() : tensor<5x4xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<5x4xf32>) -> tensor<5x4xf32>
  %o = linalg.contract indexing_maps = [#w, #v, #o] ins(%cut, %v : tensor<5x?xf32>, tensor<?x4xf32>)
      outs(%fo : tensor<5x4xf32>) -> tensor<5x4xf32>
  return %o : tensor<5x4xf32>
}

// -----

#ij = affine_map<(i, j) -> (i, j)>
#i = affine_map<(i, j) -> (i)>
#r = affine_map<(i) -> (i)>
#w = affine_map<(i, e, j) -> (i, j)>
#v = affine_map<(i, e, j) -> (j, e)>
#o = affine_map<(i, e, j) -> (i, e)>
// exp(s - m) / (exp(sink - m) + sum) with m the maximum of both, in two spellings. Near misses: a maximum with another
// tensor, which may be far above both.
// CHECK: fused = true, kind = "given"
// CHECK-SAME: fused = true, kind = "given"
// CHECK-SAME: fused = false, kind = "missed"
// CHECK-SAME: fused = false, kind = "missed"
// CHECK-LABEL: func.func @tensor
// CHECK-SAME: %[[S:[^:]+]]: tensor<5x7xf32>, %[[SINK:[^:]+]]: tensor<5xf32>
// CHECK: %[[A:.+]], %[[LSE:.+]] = attn.attention kind given masked_rows zero {{.*}}ins(%[[S]], {{.*}} extras [#attn.extra<lse>]
// CHECK: linalg.generic {{.*}} ins(%[[A]], %[[LSE]], %[[SINK]]
// CHECK-NEXT: ^bb0(%{{.+}}: f32, %{{.+}}: f32, %[[OWN:.+]]: f32, %{{.+}}: f32):
// CHECK: %[[HIGH:.+]] = arith.maximumf %[[OWN]], %{{.+}} : f32
// CHECK: arith.subf %[[HIGH]], %[[HIGH]] : f32
// CHECK-LABEL: func.func @joined
// CHECK: attn.attention kind given masked_rows zero {{.*}} extras [#attn.extra<lse>]
// CHECK-LABEL: func.func @other_tensor
// CHECK-NOT: attn.attention
// CHECK-LABEL: func.func @other_joined
// CHECK-NOT: attn.attention
func.func @tensor(%s: tensor<5x7xf32>, %sink: tensor<5xf32>, %v: tensor<7x4xf32>) -> tensor<5x4xf32> {
  %zero = arith.constant 0.0 : f32
  %inf = arith.constant 0xFF800000 : f32
  %e = tensor.empty() : tensor<5x7xf32>
  %er = tensor.empty() : tensor<5xf32>
  %fr = linalg.fill ins(%zero : f32) outs(%er : tensor<5xf32>) -> tensor<5xf32>
  %fm = linalg.fill ins(%inf : f32) outs(%er : tensor<5xf32>) -> tensor<5xf32>
  %h = linalg.generic {indexing_maps = [#ij, #i], iterator_types = ["parallel", "reduction"]}
      ins(%s : tensor<5x7xf32>) outs(%fm : tensor<5xf32>) {
  ^bb0(%x: f32, %a: f32):
    %r = arith.maximumf %a, %x : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %m = linalg.generic {indexing_maps = [#r, #r, #r], iterator_types = ["parallel"]}
      ins(%h, %sink : tensor<5xf32>, tensor<5xf32>) outs(%er : tensor<5xf32>) {
  ^bb0(%x: f32, %y: f32, %out: f32):
    %r = arith.maximumf %x, %y : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %d = linalg.generic {indexing_maps = [#ij, #i, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%s, %m : tensor<5x7xf32>, tensor<5xf32>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%x: f32, %y: f32, %out: f32):
    %r = arith.subf %x, %y : f32
    linalg.yield %r : f32
  } -> tensor<5x7xf32>
  %g = linalg.generic {indexing_maps = [#ij, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%d : tensor<5x7xf32>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%x: f32, %out: f32):
    %r = math.exp %x : f32
    linalg.yield %r : f32
  } -> tensor<5x7xf32>
  %n = linalg.generic {indexing_maps = [#r, #r, #r], iterator_types = ["parallel"]}
      ins(%sink, %m : tensor<5xf32>, tensor<5xf32>) outs(%er : tensor<5xf32>) {
  ^bb0(%x: f32, %y: f32, %out: f32):
    %r = arith.subf %x, %y : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %c = linalg.generic {indexing_maps = [#r, #r], iterator_types = ["parallel"]}
      ins(%n : tensor<5xf32>) outs(%er : tensor<5xf32>) {
  ^bb0(%x: f32, %out: f32):
    %r = math.exp %x : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %t = linalg.generic {indexing_maps = [#ij, #i], iterator_types = ["parallel", "reduction"]}
      ins(%g : tensor<5x7xf32>) outs(%fr : tensor<5xf32>) {
  ^bb0(%x: f32, %a: f32):
    %r = arith.addf %a, %x : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %u = linalg.generic {indexing_maps = [#r, #r, #r], iterator_types = ["parallel"]}
      ins(%t, %c : tensor<5xf32>, tensor<5xf32>) outs(%er : tensor<5xf32>) {
  ^bb0(%x: f32, %y: f32, %out: f32):
    %r = arith.addf %x, %y : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %p = linalg.generic {indexing_maps = [#ij, #i, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%g, %u : tensor<5x7xf32>, tensor<5xf32>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%x: f32, %y: f32, %out: f32):
    %r = arith.divf %x, %y : f32
    linalg.yield %r : f32
  } -> tensor<5x7xf32>
  %eo = tensor.empty() : tensor<5x4xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<5x4xf32>) -> tensor<5x4xf32>
  %o = linalg.contract indexing_maps = [#w, #v, #o] ins(%p, %v : tensor<5x7xf32>, tensor<7x4xf32>)
      outs(%fo : tensor<5x4xf32>) -> tensor<5x4xf32>
  return %o : tensor<5x4xf32>
}
func.func @joined(%s: tensor<5x7xf32>, %sink: tensor<5xf32>, %v: tensor<7x4xf32>) -> tensor<5x4xf32> {
  %zero = arith.constant 0.0 : f32
  %inf = arith.constant 0xFF800000 : f32
  %e = tensor.empty() : tensor<5x7xf32>
  %er = tensor.empty() : tensor<5xf32>
  %fr = linalg.fill ins(%zero : f32) outs(%er : tensor<5xf32>) -> tensor<5xf32>
  %fm = linalg.fill ins(%inf : f32) outs(%er : tensor<5xf32>) -> tensor<5xf32>
  %column = tensor.expand_shape %sink [[0, 1]] output_shape [5, 1] : tensor<5xf32> into tensor<5x1xf32>
  %e8 = tensor.empty() : tensor<5x8xf32>
  %a8 = tensor.insert_slice %s into %e8[0, 0] [5, 7] [1, 1] : tensor<5x7xf32> into tensor<5x8xf32>
  %b8 = tensor.insert_slice %column into %a8[0, 7] [5, 1] [1, 1] : tensor<5x1xf32> into tensor<5x8xf32>
  %m = linalg.generic {indexing_maps = [#ij, #i], iterator_types = ["parallel", "reduction"]}
      ins(%b8 : tensor<5x8xf32>) outs(%fm : tensor<5xf32>) {
  ^bb0(%x: f32, %a: f32):
    %r = arith.maximumf %a, %x : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %d = linalg.generic {indexing_maps = [#ij, #i, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%s, %m : tensor<5x7xf32>, tensor<5xf32>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%x: f32, %y: f32, %out: f32):
    %r = arith.subf %x, %y : f32
    linalg.yield %r : f32
  } -> tensor<5x7xf32>
  %g = linalg.generic {indexing_maps = [#ij, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%d : tensor<5x7xf32>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%x: f32, %out: f32):
    %r = math.exp %x : f32
    linalg.yield %r : f32
  } -> tensor<5x7xf32>
  %n = linalg.generic {indexing_maps = [#r, #r, #r], iterator_types = ["parallel"]}
      ins(%sink, %m : tensor<5xf32>, tensor<5xf32>) outs(%er : tensor<5xf32>) {
  ^bb0(%x: f32, %y: f32, %out: f32):
    %r = arith.subf %x, %y : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %c = linalg.generic {indexing_maps = [#r, #r], iterator_types = ["parallel"]}
      ins(%n : tensor<5xf32>) outs(%er : tensor<5xf32>) {
  ^bb0(%x: f32, %out: f32):
    %r = math.exp %x : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %t = linalg.generic {indexing_maps = [#ij, #i], iterator_types = ["parallel", "reduction"]}
      ins(%g : tensor<5x7xf32>) outs(%fr : tensor<5xf32>) {
  ^bb0(%x: f32, %a: f32):
    %r = arith.addf %a, %x : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %u = linalg.generic {indexing_maps = [#r, #r, #r], iterator_types = ["parallel"]}
      ins(%t, %c : tensor<5xf32>, tensor<5xf32>) outs(%er : tensor<5xf32>) {
  ^bb0(%x: f32, %y: f32, %out: f32):
    %r = arith.addf %x, %y : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %p = linalg.generic {indexing_maps = [#ij, #i, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%g, %u : tensor<5x7xf32>, tensor<5xf32>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%x: f32, %y: f32, %out: f32):
    %r = arith.divf %x, %y : f32
    linalg.yield %r : f32
  } -> tensor<5x7xf32>
  %eo = tensor.empty() : tensor<5x4xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<5x4xf32>) -> tensor<5x4xf32>
  %o = linalg.contract indexing_maps = [#w, #v, #o] ins(%p, %v : tensor<5x7xf32>, tensor<7x4xf32>)
      outs(%fo : tensor<5x4xf32>) -> tensor<5x4xf32>
  return %o : tensor<5x4xf32>
}
func.func @other_tensor(%s: tensor<5x7xf32>, %sink: tensor<5xf32>, %z: tensor<5xf32>, %v: tensor<7x4xf32>) -> tensor<5x4xf32> {
  %zero = arith.constant 0.0 : f32
  %inf = arith.constant 0xFF800000 : f32
  %e = tensor.empty() : tensor<5x7xf32>
  %er = tensor.empty() : tensor<5xf32>
  %fr = linalg.fill ins(%zero : f32) outs(%er : tensor<5xf32>) -> tensor<5xf32>
  %fm = linalg.fill ins(%inf : f32) outs(%er : tensor<5xf32>) -> tensor<5xf32>
  %h = linalg.generic {indexing_maps = [#ij, #i], iterator_types = ["parallel", "reduction"]}
      ins(%s : tensor<5x7xf32>) outs(%fm : tensor<5xf32>) {
  ^bb0(%x: f32, %a: f32):
    %r = arith.maximumf %a, %x : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %m = linalg.generic {indexing_maps = [#r, #r, #r], iterator_types = ["parallel"]}
      ins(%h, %z : tensor<5xf32>, tensor<5xf32>) outs(%er : tensor<5xf32>) {
  ^bb0(%x: f32, %y: f32, %out: f32):
    %r = arith.maximumf %x, %y : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %d = linalg.generic {indexing_maps = [#ij, #i, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%s, %m : tensor<5x7xf32>, tensor<5xf32>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%x: f32, %y: f32, %out: f32):
    %r = arith.subf %x, %y : f32
    linalg.yield %r : f32
  } -> tensor<5x7xf32>
  %g = linalg.generic {indexing_maps = [#ij, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%d : tensor<5x7xf32>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%x: f32, %out: f32):
    %r = math.exp %x : f32
    linalg.yield %r : f32
  } -> tensor<5x7xf32>
  %n = linalg.generic {indexing_maps = [#r, #r, #r], iterator_types = ["parallel"]}
      ins(%sink, %m : tensor<5xf32>, tensor<5xf32>) outs(%er : tensor<5xf32>) {
  ^bb0(%x: f32, %y: f32, %out: f32):
    %r = arith.subf %x, %y : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %c = linalg.generic {indexing_maps = [#r, #r], iterator_types = ["parallel"]}
      ins(%n : tensor<5xf32>) outs(%er : tensor<5xf32>) {
  ^bb0(%x: f32, %out: f32):
    %r = math.exp %x : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %t = linalg.generic {indexing_maps = [#ij, #i], iterator_types = ["parallel", "reduction"]}
      ins(%g : tensor<5x7xf32>) outs(%fr : tensor<5xf32>) {
  ^bb0(%x: f32, %a: f32):
    %r = arith.addf %a, %x : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %u = linalg.generic {indexing_maps = [#r, #r, #r], iterator_types = ["parallel"]}
      ins(%t, %c : tensor<5xf32>, tensor<5xf32>) outs(%er : tensor<5xf32>) {
  ^bb0(%x: f32, %y: f32, %out: f32):
    %r = arith.addf %x, %y : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %p = linalg.generic {indexing_maps = [#ij, #i, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%g, %u : tensor<5x7xf32>, tensor<5xf32>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%x: f32, %y: f32, %out: f32):
    %r = arith.divf %x, %y : f32
    linalg.yield %r : f32
  } -> tensor<5x7xf32>
  %eo = tensor.empty() : tensor<5x4xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<5x4xf32>) -> tensor<5x4xf32>
  %o = linalg.contract indexing_maps = [#w, #v, #o] ins(%p, %v : tensor<5x7xf32>, tensor<7x4xf32>)
      outs(%fo : tensor<5x4xf32>) -> tensor<5x4xf32>
  return %o : tensor<5x4xf32>
}
func.func @other_joined(%s: tensor<5x7xf32>, %sink: tensor<5xf32>, %z: tensor<5xf32>, %v: tensor<7x4xf32>) -> tensor<5x4xf32> {
  %zero = arith.constant 0.0 : f32
  %inf = arith.constant 0xFF800000 : f32
  %e = tensor.empty() : tensor<5x7xf32>
  %er = tensor.empty() : tensor<5xf32>
  %fr = linalg.fill ins(%zero : f32) outs(%er : tensor<5xf32>) -> tensor<5xf32>
  %fm = linalg.fill ins(%inf : f32) outs(%er : tensor<5xf32>) -> tensor<5xf32>
  %column = tensor.expand_shape %z [[0, 1]] output_shape [5, 1] : tensor<5xf32> into tensor<5x1xf32>
  %e8 = tensor.empty() : tensor<5x8xf32>
  %a8 = tensor.insert_slice %s into %e8[0, 0] [5, 7] [1, 1] : tensor<5x7xf32> into tensor<5x8xf32>
  %b8 = tensor.insert_slice %column into %a8[0, 7] [5, 1] [1, 1] : tensor<5x1xf32> into tensor<5x8xf32>
  %m = linalg.generic {indexing_maps = [#ij, #i], iterator_types = ["parallel", "reduction"]}
      ins(%b8 : tensor<5x8xf32>) outs(%fm : tensor<5xf32>) {
  ^bb0(%x: f32, %a: f32):
    %r = arith.maximumf %a, %x : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %d = linalg.generic {indexing_maps = [#ij, #i, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%s, %m : tensor<5x7xf32>, tensor<5xf32>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%x: f32, %y: f32, %out: f32):
    %r = arith.subf %x, %y : f32
    linalg.yield %r : f32
  } -> tensor<5x7xf32>
  %g = linalg.generic {indexing_maps = [#ij, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%d : tensor<5x7xf32>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%x: f32, %out: f32):
    %r = math.exp %x : f32
    linalg.yield %r : f32
  } -> tensor<5x7xf32>
  %n = linalg.generic {indexing_maps = [#r, #r, #r], iterator_types = ["parallel"]}
      ins(%sink, %m : tensor<5xf32>, tensor<5xf32>) outs(%er : tensor<5xf32>) {
  ^bb0(%x: f32, %y: f32, %out: f32):
    %r = arith.subf %x, %y : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %c = linalg.generic {indexing_maps = [#r, #r], iterator_types = ["parallel"]}
      ins(%n : tensor<5xf32>) outs(%er : tensor<5xf32>) {
  ^bb0(%x: f32, %out: f32):
    %r = math.exp %x : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %t = linalg.generic {indexing_maps = [#ij, #i], iterator_types = ["parallel", "reduction"]}
      ins(%g : tensor<5x7xf32>) outs(%fr : tensor<5xf32>) {
  ^bb0(%x: f32, %a: f32):
    %r = arith.addf %a, %x : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %u = linalg.generic {indexing_maps = [#r, #r, #r], iterator_types = ["parallel"]}
      ins(%t, %c : tensor<5xf32>, tensor<5xf32>) outs(%er : tensor<5xf32>) {
  ^bb0(%x: f32, %y: f32, %out: f32):
    %r = arith.addf %x, %y : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %p = linalg.generic {indexing_maps = [#ij, #i, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%g, %u : tensor<5x7xf32>, tensor<5xf32>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%x: f32, %y: f32, %out: f32):
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

#w = affine_map<(i, e, j) -> (i, j)>
#v = affine_map<(i, e, j) -> (j, e)>
#o = affine_map<(i, e, j) -> (i, e)>
// Keys of any number with a zero before them; a near miss has two zeros.
// CHECK: fused = true, kind = "given"
// CHECK-SAME: fused = false, kind = "none"
// CHECK-LABEL: func.func @padded
// CHECK: attn.attention kind given masked_rows zero {{.*}} extras [#attn.extra<lse>]
// CHECK-LABEL: func.func @padded_twice
// CHECK: attn.softmax
func.func @padded(%s: tensor<5x?xf32>, %v: tensor<?x4xf32>) -> tensor<5x4xf32> {
  %zero = arith.constant 0.0 : f32
  %c1 = arith.constant 1 : index
  %more = arith.constant 1 : index
  %n = tensor.dim %s, %c1 : tensor<5x?xf32>
  %m = arith.addi %n, %more : index
  %e = tensor.empty(%m) : tensor<5x?xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<5x?xf32>) -> tensor<5x?xf32>
  %b = tensor.insert_slice %s into %f[0, 1] [5, %n] [1, 1] : tensor<5x?xf32> into tensor<5x?xf32>
  %p = attn.softmax %b dim 1 : tensor<5x?xf32>
  %cut = tensor.extract_slice %p[0, 1] [5, %n] [1, 1] : tensor<5x?xf32> to tensor<5x?xf32>
  %eo = tensor.empty() : tensor<5x4xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<5x4xf32>) -> tensor<5x4xf32>
  %o = linalg.contract indexing_maps = [#w, #v, #o] ins(%cut, %v : tensor<5x?xf32>, tensor<?x4xf32>)
      outs(%fo : tensor<5x4xf32>) -> tensor<5x4xf32>
  return %o : tensor<5x4xf32>
}
func.func @padded_twice(%s: tensor<5x?xf32>, %v: tensor<?x4xf32>) -> tensor<5x4xf32> {
  %zero = arith.constant 0.0 : f32
  %c1 = arith.constant 1 : index
  %more = arith.constant 2 : index
  %n = tensor.dim %s, %c1 : tensor<5x?xf32>
  %m = arith.addi %n, %more : index
  %e = tensor.empty(%m) : tensor<5x?xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<5x?xf32>) -> tensor<5x?xf32>
  %b = tensor.insert_slice %s into %f[0, 1] [5, %n] [1, 1] : tensor<5x?xf32> into tensor<5x?xf32>
  %p = attn.softmax %b dim 1 : tensor<5x?xf32>
  %cut = tensor.extract_slice %p[0, 1] [5, %n] [1, 1] : tensor<5x?xf32> to tensor<5x?xf32>
  %eo = tensor.empty() : tensor<5x4xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<5x4xf32>) -> tensor<5x4xf32>
  %o = linalg.contract indexing_maps = [#w, #v, #o] ins(%cut, %v : tensor<5x?xf32>, tensor<?x4xf32>)
      outs(%fo : tensor<5x4xf32>) -> tensor<5x4xf32>
  return %o : tensor<5x4xf32>
}

// -----

#ij = affine_map<(i, j) -> (i, j)>
#i = affine_map<(i, j) -> (i)>
#w = affine_map<(i, e, j) -> (i, j)>
#v = affine_map<(i, e, j) -> (j, e)>
#o = affine_map<(i, e, j) -> (i, e)>
// softmax of s - max(s) and a column: the sink counts from the maximum, and the largest weight says where that is. Near
// miss: the mean, or whatever else it may be, is subtracted before, and the scores are what is left.
// CHECK-LABEL: func.func @above
// CHECK-SAME: %[[S:[^:]+]]: tensor<5x7xf32>, %[[SINK:[^:]+]]: tensor<5x1xf32>
// CHECK: %[[A:.+]], %[[TOP:.+]] = attn.attention kind given masked_rows nan {{.*}}ins(%[[S]], {{.*}} extras [#attn.extra<weights, max>]
// CHECK: linalg.generic {{.*}} ins(%[[A]], %[[TOP]],
// CHECK: math.exp
// CHECK: arith.mulf
// CHECK-LABEL: func.func @above_sum
// CHECK: %[[D:.+]] = linalg.generic
// CHECK: attn.attention kind given {{.*}} extras [#attn.extra<lse>]
func.func @above(%s: tensor<5x7xf32>, %sink: tensor<5x1xf32>, %v: tensor<7x4xf32>) -> tensor<5x4xf32> {
  %zero = arith.constant 0.0 : f32
  %start = arith.constant 0xFF800000 : f32
  %e = tensor.empty() : tensor<5x7xf32>
  %er = tensor.empty() : tensor<5xf32>
  %fm = linalg.fill ins(%start : f32) outs(%er : tensor<5xf32>) -> tensor<5xf32>
  %m = linalg.generic {indexing_maps = [#ij, #i], iterator_types = ["parallel", "reduction"]}
      ins(%s : tensor<5x7xf32>) outs(%fm : tensor<5xf32>) {
  ^bb0(%x: f32, %a: f32):
    %r = arith.maximumf %a, %x : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %d = linalg.generic {indexing_maps = [#ij, #i, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%s, %m : tensor<5x7xf32>, tensor<5xf32>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%x: f32, %y: f32, %out: f32):
    %r = arith.subf %x, %y : f32
    linalg.yield %r : f32
  } -> tensor<5x7xf32>
  %e8 = tensor.empty() : tensor<5x8xf32>
  %a8 = tensor.insert_slice %d into %e8[0, 0] [5, 7] [1, 1] : tensor<5x7xf32> into tensor<5x8xf32>
  %b8 = tensor.insert_slice %sink into %a8[0, 7] [5, 1] [1, 1] : tensor<5x1xf32> into tensor<5x8xf32>
  %p = attn.softmax %b8 dim 1 : tensor<5x8xf32>
  %cut = tensor.extract_slice %p[0, 0] [5, 7] [1, 1] : tensor<5x8xf32> to tensor<5x7xf32>
  %eo = tensor.empty() : tensor<5x4xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<5x4xf32>) -> tensor<5x4xf32>
  %o = linalg.contract indexing_maps = [#w, #v, #o] ins(%cut, %v : tensor<5x7xf32>, tensor<7x4xf32>)
      outs(%fo : tensor<5x4xf32>) -> tensor<5x4xf32>
  return %o : tensor<5x4xf32>
}
func.func @above_sum(%s: tensor<5x7xf32>, %sink: tensor<5x1xf32>, %v: tensor<7x4xf32>) -> tensor<5x4xf32> {
  %zero = arith.constant 0.0 : f32
  %start = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<5x7xf32>
  %er = tensor.empty() : tensor<5xf32>
  %fm = linalg.fill ins(%start : f32) outs(%er : tensor<5xf32>) -> tensor<5xf32>
  %m = linalg.generic {indexing_maps = [#ij, #i], iterator_types = ["parallel", "reduction"]}
      ins(%s : tensor<5x7xf32>) outs(%fm : tensor<5xf32>) {
  ^bb0(%x: f32, %a: f32):
    %r = arith.addf %a, %x : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %d = linalg.generic {indexing_maps = [#ij, #i, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%s, %m : tensor<5x7xf32>, tensor<5xf32>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%x: f32, %y: f32, %out: f32):
    %r = arith.subf %x, %y : f32
    linalg.yield %r : f32
  } -> tensor<5x7xf32>
  %e8 = tensor.empty() : tensor<5x8xf32>
  %a8 = tensor.insert_slice %d into %e8[0, 0] [5, 7] [1, 1] : tensor<5x7xf32> into tensor<5x8xf32>
  %b8 = tensor.insert_slice %sink into %a8[0, 7] [5, 1] [1, 1] : tensor<5x1xf32> into tensor<5x8xf32>
  %p = attn.softmax %b8 dim 1 : tensor<5x8xf32>
  %cut = tensor.extract_slice %p[0, 0] [5, 7] [1, 1] : tensor<5x8xf32> to tensor<5x7xf32>
  %eo = tensor.empty() : tensor<5x4xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<5x4xf32>) -> tensor<5x4xf32>
  %o = linalg.contract indexing_maps = [#w, #v, #o] ins(%cut, %v : tensor<5x7xf32>, tensor<7x4xf32>)
      outs(%fo : tensor<5x4xf32>) -> tensor<5x4xf32>
  return %o : tensor<5x4xf32>
}
