// RUN: attn-opt %s -attn-raise-softmax -attn-raise-contraction -attn-recognize-attention -canonicalize -cse -split-input-file | FileCheck %s

// Weights that are divided by a function of their sum: what the sum comes to is another result of the attention.

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
// relu(s) / (sum + 0.5)
// CHECK: fused = true, kind = "dot", mask = "none", node = {{[^}]*}}normalizer = "none"
// CHECK-LABEL: func.func @added
// CHECK: %[[A:.+]], %[[SUM:.+]] = attn.attention normalizer none masked_rows zero {{.*}} extras [#attn.extra<final_weights, sum>] : tensor<5xf32>
// CHECK: linalg.generic {{.*}} ins(%[[A]], %[[SUM]]
// CHECK: %[[MORE:.+]] = arith.addf %{{.+}}, %cst
// CHECK: arith.divf %{{.+}}, %[[MORE]]
func.func @added(%q: tensor<5x8xf32>, %k: tensor<7x8xf32>, %v: tensor<7x4xf32>) -> tensor<5x4xf32> {
  %zero = arith.constant 0.0 : f32
  %eps = arith.constant 0.5 : f32
  %e = tensor.empty() : tensor<5x7xf32>
  %er = tensor.empty() : tensor<5xf32>
  %fr = linalg.fill ins(%zero : f32) outs(%er : tensor<5xf32>) -> tensor<5xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<5x7xf32>) -> tensor<5x7xf32>
  %s = linalg.contract indexing_maps = [#q, #k, #s] ins(%q, %k : tensor<5x8xf32>, tensor<7x8xf32>)
      outs(%f : tensor<5x7xf32>) -> tensor<5x7xf32>
  %x = linalg.generic {indexing_maps = [#ij, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%s : tensor<5x7xf32>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%x0: f32, %out: f32):
    %r = arith.maximumf %x0, %zero : f32
    linalg.yield %r : f32
  } -> tensor<5x7xf32>
  %t = linalg.generic {indexing_maps = [#ij, #i], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<5x7xf32>) outs(%fr : tensor<5xf32>) {
  ^bb0(%b: f32, %a: f32):
    %r = arith.addf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %u = linalg.generic {indexing_maps = [#r, #r], iterator_types = ["parallel"]}
      ins(%t : tensor<5xf32>) outs(%er : tensor<5xf32>) {
  ^bb0(%x0: f32, %out: f32):
    %r = arith.addf %x0, %eps : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %p = linalg.generic {indexing_maps = [#ij, #i, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%x, %u : tensor<5x7xf32>, tensor<5xf32>) outs(%e : tensor<5x7xf32>) {
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
// exp(s - max(s)) m / (sum + 0.5), and near misses: the maximum of other scores, and a sum of m, too.
// CHECK: fused = true, kind = "dot", mask = "none", node = ""
// CHECK-SAME: fused = false, kind = "missed"
// CHECK-SAME: fused = false, kind = "missed"
// CHECK-LABEL: func.func @shifted
// CHECK: %[[A:.+]], %[[X:.+]]:2 = attn.attention masked_rows nan {{.*}} extras [#attn.extra<final_weights, sum>, #attn.extra<weights, max>]
// CHECK: weight
// CHECK: arith.mulf
// CHECK: linalg.generic {{.*}} ins(%[[A]], %[[X]]#0, %[[X]]#1
// CHECK-LABEL: func.func @other_maximum
// CHECK-NOT: attn.attention
// CHECK-LABEL: func.func @no_multiple
// CHECK-NOT: attn.attention
func.func @shifted(%q: tensor<5x8xf32>, %k: tensor<7x8xf32>, %v: tensor<7x4xf32>,
    %m: tensor<7xf32>) -> tensor<5x4xf32> {
  %zero = arith.constant 0.0 : f32
  %inf = arith.constant 0xFF800000 : f32
  %eps = arith.constant 0.5 : f32
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
  %x = linalg.generic {indexing_maps = [#ij, #j, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%g, %m : tensor<5x7xf32>, tensor<7xf32>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%x0: f32, %x1: f32, %out: f32):
    %r = arith.mulf %x0, %x1 : f32
    linalg.yield %r : f32
  } -> tensor<5x7xf32>
  %t = linalg.generic {indexing_maps = [#ij, #i], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<5x7xf32>) outs(%fr : tensor<5xf32>) {
  ^bb0(%b: f32, %a: f32):
    %r = arith.addf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %u = linalg.generic {indexing_maps = [#r, #r], iterator_types = ["parallel"]}
      ins(%t : tensor<5xf32>) outs(%er : tensor<5xf32>) {
  ^bb0(%x0: f32, %out: f32):
    %r = arith.addf %x0, %eps : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %p = linalg.generic {indexing_maps = [#ij, #i, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%x, %u : tensor<5x7xf32>, tensor<5xf32>) outs(%e : tensor<5x7xf32>) {
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
func.func @other_maximum(%q: tensor<5x8xf32>, %k: tensor<7x8xf32>, %v: tensor<7x4xf32>,
    %m: tensor<7xf32>) -> tensor<5x4xf32> {
  %zero = arith.constant 0.0 : f32
  %inf = arith.constant 0xFF800000 : f32
  %eps = arith.constant 0.5 : f32
  %e = tensor.empty() : tensor<5x7xf32>
  %er = tensor.empty() : tensor<5xf32>
  %fr = linalg.fill ins(%zero : f32) outs(%er : tensor<5xf32>) -> tensor<5xf32>
  %fm = linalg.fill ins(%inf : f32) outs(%er : tensor<5xf32>) -> tensor<5xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<5x7xf32>) -> tensor<5x7xf32>
  %s = linalg.contract indexing_maps = [#q, #k, #s] ins(%q, %k : tensor<5x8xf32>, tensor<7x8xf32>)
      outs(%f : tensor<5x7xf32>) -> tensor<5x7xf32>
  %z = linalg.generic {indexing_maps = [#ij, #j, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%s, %m : tensor<5x7xf32>, tensor<7xf32>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%x0: f32, %x1: f32, %out: f32):
    %r = arith.mulf %x0, %x1 : f32
    linalg.yield %r : f32
  } -> tensor<5x7xf32>
  %h = linalg.generic {indexing_maps = [#ij, #i], iterator_types = ["parallel", "reduction"]}
      ins(%z : tensor<5x7xf32>) outs(%fm : tensor<5xf32>) {
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
  %x = linalg.generic {indexing_maps = [#ij, #j, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%g, %m : tensor<5x7xf32>, tensor<7xf32>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%x0: f32, %x1: f32, %out: f32):
    %r = arith.mulf %x0, %x1 : f32
    linalg.yield %r : f32
  } -> tensor<5x7xf32>
  %t = linalg.generic {indexing_maps = [#ij, #i], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<5x7xf32>) outs(%fr : tensor<5xf32>) {
  ^bb0(%b: f32, %a: f32):
    %r = arith.addf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %u = linalg.generic {indexing_maps = [#r, #r], iterator_types = ["parallel"]}
      ins(%t : tensor<5xf32>) outs(%er : tensor<5xf32>) {
  ^bb0(%x0: f32, %out: f32):
    %r = arith.addf %x0, %eps : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %p = linalg.generic {indexing_maps = [#ij, #i, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%x, %u : tensor<5x7xf32>, tensor<5xf32>) outs(%e : tensor<5x7xf32>) {
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
func.func @no_multiple(%q: tensor<5x8xf32>, %k: tensor<7x8xf32>, %v: tensor<7x4xf32>) -> tensor<5x4xf32> {
  %zero = arith.constant 0.0 : f32
  %inf = arith.constant 0xFF800000 : f32
  %eps = arith.constant 0.5 : f32
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
  %x = linalg.generic {indexing_maps = [#ij, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%g : tensor<5x7xf32>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%x0: f32, %out: f32):
    %r = arith.addf %x0, %eps : f32
    linalg.yield %r : f32
  } -> tensor<5x7xf32>
  %t = linalg.generic {indexing_maps = [#ij, #i], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<5x7xf32>) outs(%fr : tensor<5xf32>) {
  ^bb0(%b: f32, %a: f32):
    %r = arith.addf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %u = linalg.generic {indexing_maps = [#r, #r], iterator_types = ["parallel"]}
      ins(%t : tensor<5xf32>) outs(%er : tensor<5xf32>) {
  ^bb0(%x0: f32, %out: f32):
    %r = arith.addf %x0, %eps : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %p = linalg.generic {indexing_maps = [#ij, #i, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%x, %u : tensor<5x7xf32>, tensor<5xf32>) outs(%e : tensor<5x7xf32>) {
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
// The division comes after the weighted sum; and a near miss, by another sum.
// CHECK: fused = true, kind = "dot", mask = "none", node = "", reason = ""
// CHECK-LABEL: func.func @late
// CHECK: attn.attention masked_rows nan
// CHECK-NOT: arith.divf
// CHECK-LABEL: func.func @later
// CHECK: linalg.contract
func.func @late(%q: tensor<5x8xf32>, %k: tensor<7x8xf32>, %v: tensor<7x4xf32>) -> tensor<5x4xf32> {
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
  %t = linalg.generic {indexing_maps = [#ij, #i], iterator_types = ["parallel", "reduction"]}
      ins(%g : tensor<5x7xf32>) outs(%fr : tensor<5xf32>) {
  ^bb0(%b: f32, %a: f32):
    %r = arith.addf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %eo = tensor.empty() : tensor<5x4xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<5x4xf32>) -> tensor<5x4xf32>
  %o = linalg.contract indexing_maps = [#w, #v, #o] ins(%g, %v : tensor<5x7xf32>, tensor<7x4xf32>)
      outs(%fo : tensor<5x4xf32>) -> tensor<5x4xf32>
  %y = linalg.generic {indexing_maps = [#ij, #i, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%o, %t : tensor<5x4xf32>, tensor<5xf32>) outs(%eo : tensor<5x4xf32>) {
  ^bb0(%x0: f32, %x1: f32, %out: f32):
    %r = arith.divf %x0, %x1 : f32
    linalg.yield %r : f32
  } -> tensor<5x4xf32>
  return %y : tensor<5x4xf32>
}
func.func @later(%q: tensor<5x8xf32>, %k: tensor<7x8xf32>, %v: tensor<7x4xf32>,
    %m: tensor<7xf32>) -> tensor<5x4xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<5x7xf32>
  %er = tensor.empty() : tensor<5xf32>
  %fr = linalg.fill ins(%zero : f32) outs(%er : tensor<5xf32>) -> tensor<5xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<5x7xf32>) -> tensor<5x7xf32>
  %s = linalg.contract indexing_maps = [#q, #k, #s] ins(%q, %k : tensor<5x8xf32>, tensor<7x8xf32>)
      outs(%f : tensor<5x7xf32>) -> tensor<5x7xf32>
  %z = linalg.generic {indexing_maps = [#ij, #j, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%s, %m : tensor<5x7xf32>, tensor<7xf32>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%x0: f32, %x1: f32, %out: f32):
    %r = arith.mulf %x0, %x1 : f32
    linalg.yield %r : f32
  } -> tensor<5x7xf32>
  %g = linalg.generic {indexing_maps = [#ij, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%s : tensor<5x7xf32>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%x0: f32, %out: f32):
    %r = math.exp %x0 : f32
    linalg.yield %r : f32
  } -> tensor<5x7xf32>
  %g2 = linalg.generic {indexing_maps = [#ij, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%z : tensor<5x7xf32>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%x0: f32, %out: f32):
    %r = math.exp %x0 : f32
    linalg.yield %r : f32
  } -> tensor<5x7xf32>
  %t = linalg.generic {indexing_maps = [#ij, #i], iterator_types = ["parallel", "reduction"]}
      ins(%g2 : tensor<5x7xf32>) outs(%fr : tensor<5xf32>) {
  ^bb0(%b: f32, %a: f32):
    %r = arith.addf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %eo = tensor.empty() : tensor<5x4xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<5x4xf32>) -> tensor<5x4xf32>
  %o = linalg.contract indexing_maps = [#w, #v, #o] ins(%g, %v : tensor<5x7xf32>, tensor<7x4xf32>)
      outs(%fo : tensor<5x4xf32>) -> tensor<5x4xf32>
  %y = linalg.generic {indexing_maps = [#ij, #i, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%o, %t : tensor<5x4xf32>, tensor<5xf32>) outs(%eo : tensor<5x4xf32>) {
  ^bb0(%x0: f32, %x1: f32, %out: f32):
    %r = arith.divf %x0, %x1 : f32
    linalg.yield %r : f32
  } -> tensor<5x4xf32>
  return %y : tensor<5x4xf32>
}

// -----

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
// exp(s - log(sum(exp(s)))) with the maximum, 2^(s - max(s)) over its sum; near misses: the sum of other scores, a power of a tensor.
// CHECK: fused = true, kind = "dot", mask = "none", node = "", reason = ""
// CHECK-SAME: fused = true, kind = "dot", mask = "none", node = "", reason = ""
// CHECK-LABEL: func.func @logarithm
// CHECK: attn.attention masked_rows nan
// CHECK-LABEL: func.func @power
// CHECK: attn.attention masked_rows nan
// CHECK: arith.constant 0.693147182 : f32
// CHECK-LABEL: func.func @other_logarithm
// CHECK-NOT: attn.attention masked_rows nan
func.func @logarithm(%q: tensor<5x8xf32>, %k: tensor<7x8xf32>, %v: tensor<7x4xf32>) -> tensor<5x4xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<5x7xf32>
  %er = tensor.empty() : tensor<5xf32>
  %inf = arith.constant 0xFF800000 : f32
  %fm = linalg.fill ins(%inf : f32) outs(%er : tensor<5xf32>) -> tensor<5xf32>
  %fr = linalg.fill ins(%zero : f32) outs(%er : tensor<5xf32>) -> tensor<5xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<5x7xf32>) -> tensor<5x7xf32>
  %s = linalg.contract indexing_maps = [#q, #k, #s] ins(%q, %k : tensor<5x8xf32>, tensor<7x8xf32>)
      outs(%f : tensor<5x7xf32>) -> tensor<5x7xf32>
  %h = linalg.generic {indexing_maps = [#ij, #i], iterator_types = ["parallel", "reduction"]}
      ins(%s : tensor<5x7xf32>) outs(%fm : tensor<5xf32>) {
  ^bb0(%b: f32, %a: f32):
    %r = arith.maximumf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %c = linalg.generic {indexing_maps = [#ij, #i, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%s, %h : tensor<5x7xf32>, tensor<5xf32>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%x0: f32, %x1: f32, %out: f32):
    %r = arith.subf %x0, %x1 : f32
    linalg.yield %r : f32
  } -> tensor<5x7xf32>
  %g = linalg.generic {indexing_maps = [#ij, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%c : tensor<5x7xf32>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%x0: f32, %out: f32):
    %r = math.exp %x0 : f32
    linalg.yield %r : f32
  } -> tensor<5x7xf32>
  %t = linalg.generic {indexing_maps = [#ij, #i], iterator_types = ["parallel", "reduction"]}
      ins(%g : tensor<5x7xf32>) outs(%fr : tensor<5xf32>) {
  ^bb0(%b: f32, %a: f32):
    %r = arith.addf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %l = linalg.generic {indexing_maps = [#r, #r, #r], iterator_types = ["parallel"]}
      ins(%t, %h : tensor<5xf32>, tensor<5xf32>) outs(%er : tensor<5xf32>) {
  ^bb0(%x0: f32, %x1: f32, %out: f32):
    %n = math.log %x0 : f32
    %r = arith.addf %n, %x1 : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %d = linalg.generic {indexing_maps = [#ij, #i, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%s, %l : tensor<5x7xf32>, tensor<5xf32>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%x0: f32, %x1: f32, %out: f32):
    %r = arith.subf %x0, %x1 : f32
    linalg.yield %r : f32
  } -> tensor<5x7xf32>
  %p = linalg.generic {indexing_maps = [#ij, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%d : tensor<5x7xf32>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%x0: f32, %out: f32):
    %r = math.exp %x0 : f32
    linalg.yield %r : f32
  } -> tensor<5x7xf32>
  %eo = tensor.empty() : tensor<5x4xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<5x4xf32>) -> tensor<5x4xf32>
  %o = linalg.contract indexing_maps = [#w, #v, #o] ins(%p, %v : tensor<5x7xf32>, tensor<7x4xf32>)
      outs(%fo : tensor<5x4xf32>) -> tensor<5x4xf32>
  return %o : tensor<5x4xf32>
}
func.func @power(%q: tensor<5x8xf32>, %k: tensor<7x8xf32>, %v: tensor<7x4xf32>) -> tensor<5x4xf32> {
  %zero = arith.constant 0.0 : f32
  %inf = arith.constant 0xFF800000 : f32
  %e = tensor.empty() : tensor<5x7xf32>
  %er = tensor.empty() : tensor<5xf32>
  %fr = linalg.fill ins(%zero : f32) outs(%er : tensor<5xf32>) -> tensor<5xf32>
  %fm = linalg.fill ins(%inf : f32) outs(%er : tensor<5xf32>) -> tensor<5xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<5x7xf32>) -> tensor<5x7xf32>
  %s = linalg.contract indexing_maps = [#q, #k, #s] ins(%q, %k : tensor<5x8xf32>, tensor<7x8xf32>)
      outs(%f : tensor<5x7xf32>) -> tensor<5x7xf32>
  %two = arith.constant 2.0 : f32
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
    %r = math.powf %two, %x0 : f32
    linalg.yield %r : f32
  } -> tensor<5x7xf32>
  %t = linalg.generic {indexing_maps = [#ij, #i], iterator_types = ["parallel", "reduction"]}
      ins(%g : tensor<5x7xf32>) outs(%fr : tensor<5xf32>) {
  ^bb0(%b: f32, %a: f32):
    %r = arith.addf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %p = linalg.generic {indexing_maps = [#ij, #i, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%g, %t : tensor<5x7xf32>, tensor<5xf32>) outs(%e : tensor<5x7xf32>) {
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
func.func @other_logarithm(%q: tensor<5x8xf32>, %k: tensor<7x8xf32>, %v: tensor<7x4xf32>,
    %m: tensor<7xf32>) -> tensor<5x4xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<5x7xf32>
  %er = tensor.empty() : tensor<5xf32>
  %inf = arith.constant 0xFF800000 : f32
  %fm = linalg.fill ins(%inf : f32) outs(%er : tensor<5xf32>) -> tensor<5xf32>
  %fr = linalg.fill ins(%zero : f32) outs(%er : tensor<5xf32>) -> tensor<5xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<5x7xf32>) -> tensor<5x7xf32>
  %s = linalg.contract indexing_maps = [#q, #k, #s] ins(%q, %k : tensor<5x8xf32>, tensor<7x8xf32>)
      outs(%f : tensor<5x7xf32>) -> tensor<5x7xf32>
  %z = linalg.generic {indexing_maps = [#ij, #j, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%s, %m : tensor<5x7xf32>, tensor<7xf32>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%x0: f32, %x1: f32, %out: f32):
    %r = arith.mulf %x0, %x1 : f32
    linalg.yield %r : f32
  } -> tensor<5x7xf32>
  %h = linalg.generic {indexing_maps = [#ij, #i], iterator_types = ["parallel", "reduction"]}
      ins(%z : tensor<5x7xf32>) outs(%fm : tensor<5xf32>) {
  ^bb0(%b: f32, %a: f32):
    %r = arith.maximumf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %c = linalg.generic {indexing_maps = [#ij, #i, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%z, %h : tensor<5x7xf32>, tensor<5xf32>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%x0: f32, %x1: f32, %out: f32):
    %r = arith.subf %x0, %x1 : f32
    linalg.yield %r : f32
  } -> tensor<5x7xf32>
  %g = linalg.generic {indexing_maps = [#ij, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%c : tensor<5x7xf32>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%x0: f32, %out: f32):
    %r = math.exp %x0 : f32
    linalg.yield %r : f32
  } -> tensor<5x7xf32>
  %t = linalg.generic {indexing_maps = [#ij, #i], iterator_types = ["parallel", "reduction"]}
      ins(%g : tensor<5x7xf32>) outs(%fr : tensor<5xf32>) {
  ^bb0(%b: f32, %a: f32):
    %r = arith.addf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %l = linalg.generic {indexing_maps = [#r, #r, #r], iterator_types = ["parallel"]}
      ins(%t, %h : tensor<5xf32>, tensor<5xf32>) outs(%er : tensor<5xf32>) {
  ^bb0(%x0: f32, %x1: f32, %out: f32):
    %n = math.log %x0 : f32
    %r = arith.addf %n, %x1 : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %d = linalg.generic {indexing_maps = [#ij, #i, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%s, %l : tensor<5x7xf32>, tensor<5xf32>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%x0: f32, %x1: f32, %out: f32):
    %r = arith.subf %x0, %x1 : f32
    linalg.yield %r : f32
  } -> tensor<5x7xf32>
  %p = linalg.generic {indexing_maps = [#ij, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%d : tensor<5x7xf32>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%x0: f32, %out: f32):
    %r = math.exp %x0 : f32
    linalg.yield %r : f32
  } -> tensor<5x7xf32>
  %eo = tensor.empty() : tensor<5x4xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<5x4xf32>) -> tensor<5x4xf32>
  %o = linalg.contract indexing_maps = [#w, #v, #o] ins(%p, %v : tensor<5x7xf32>, tensor<7x4xf32>)
      outs(%fo : tensor<5x4xf32>) -> tensor<5x4xf32>
  return %o : tensor<5x4xf32>
}
