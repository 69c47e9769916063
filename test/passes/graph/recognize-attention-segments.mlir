// RUN: attn-opt %s -attn-recognize-attention -split-input-file | FileCheck %s

#e = affine_map<(e) -> (e)>
#e1 = affine_map<(e, c) -> (e)>
#ec = affine_map<(e, c) -> (e, c)>

// Edges are sorted by their nodes. Their values are rows of a tensor, and nothing else has a row for each edge.
// CHECK: fused = true, kind = "given", mask = "edges"
// CHECK-LABEL: func.func @segments
// CHECK-SAME: %[[S:[a-z0-9]+]]: tensor<?xf32>, %[[V:[a-z0-9]+]]: tensor<?x4xf32>, %[[TO:[a-z0-9]+]]: tensor<?xi64>, %[[FROM:[a-z0-9]+]]: tensor<?xi64>
// CHECK: scf.for
// CHECK: tensor.extract %[[TO]]
// CHECK: attn.check_index %{{.*}}, %{{.*}}, "result"
// CHECK: scf.for
// CHECK: %[[L:.*]]:2 = scf.for
// CHECK: %[[SCORES:.*]] = tensor.expand_shape %[[S]]
// CHECK: %[[VALUES:.*]] = tensor.expand_shape %[[V]]
// CHECK: %[[R:.*]] = linalg.generic
// CHECK: tensor.extract %[[FROM]]
// CHECK: attn.check_index %{{.*}}, %{{.*}}, "values"
// CHECK: attn.segment_attention %[[SCORES]], %[[VALUES]] by %[[L]]#1, %[[L]]#0 rows %[[R]] : tensor<?x1xf32>
// CHECK-NOT: scf.for
// CHECK: return
func.func @segments(%s: tensor<?xf32>, %v: tensor<?x4xf32>, %to: tensor<?xi64>, %from: tensor<?xi64>) -> tensor<?x4xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %zero = arith.constant 0.0 : f32
  %nodes = tensor.dim %v, %c0 : tensor<?x4xf32>
  %edges = tensor.dim %s, %c0 : tensor<?xf32>
  %none = tensor.empty(%edges) : tensor<?xf32>
  %none2 = tensor.empty(%edges) : tensor<?x4xf32>
  %e1 = tensor.empty(%nodes) : tensor<?xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%e1 : tensor<?xf32>) -> tensor<?xf32>
  %e2 = tensor.empty(%nodes) : tensor<?x4xf32>
  %zeros2 = linalg.fill ins(%zero : f32) outs(%e2 : tensor<?x4xf32>) -> tensor<?x4xf32>
  %max = scf.for %e = %c0 to %edges step %c1 iter_args(%t = %zeros) -> (tensor<?xf32>) {
    %i = tensor.extract %to[%e] : tensor<?xi64>
    %a = arith.index_cast %i : i64 to index
    %n = attn.check_index %a, %nodes, "max" : index
    %x = tensor.extract %s[%e] : tensor<?xf32>
    %y = tensor.extract %t[%n] : tensor<?xf32>
    %z = arith.maximumf %y, %x : f32
    %w = tensor.insert %z into %t[%n] : tensor<?xf32>
    scf.yield %w : tensor<?xf32>
  }
  %m = linalg.generic {indexing_maps = [#e, #e], iterator_types = ["parallel"]}
      ins(%to : tensor<?xi64>) outs(%none : tensor<?xf32>) {
  ^bb0(%in: i64, %out: f32):
    %a = arith.index_cast %in : i64 to index
    %n = attn.check_index %a, %nodes, "m" : index
    %x = tensor.extract %max[%n] : tensor<?xf32>
    linalg.yield %x : f32
  } -> tensor<?xf32>
  %less = linalg.generic {indexing_maps = [#e, #e, #e], iterator_types = ["parallel"]}
      ins(%s, %m : tensor<?xf32>, tensor<?xf32>) outs(%none : tensor<?xf32>) {
  ^bb0(%i0: f32, %i1: f32, %out: f32):
    %x = arith.subf %i0, %i1 : f32
    linalg.yield %x : f32
  } -> tensor<?xf32>
  %exps = linalg.generic {indexing_maps = [#e, #e], iterator_types = ["parallel"]}
      ins(%less : tensor<?xf32>) outs(%none : tensor<?xf32>) {
  ^bb0(%i0: f32, %out: f32):
    %x = math.exp %i0 : f32
    linalg.yield %x : f32
  } -> tensor<?xf32>
  %sum = scf.for %e = %c0 to %edges step %c1 iter_args(%t = %zeros) -> (tensor<?xf32>) {
    %i = tensor.extract %to[%e] : tensor<?xi64>
    %a = arith.index_cast %i : i64 to index
    %n = attn.check_index %a, %nodes, "sum" : index
    %x = tensor.extract %exps[%e] : tensor<?xf32>
    %y = tensor.extract %t[%n] : tensor<?xf32>
    %z = arith.addf %y, %x : f32
    %w = tensor.insert %z into %t[%n] : tensor<?xf32>
    scf.yield %w : tensor<?xf32>
  }
  %picked = linalg.generic {indexing_maps = [#e, #e], iterator_types = ["parallel"]}
      ins(%to : tensor<?xi64>) outs(%none : tensor<?xf32>) {
  ^bb0(%in: i64, %out: f32):
    %a = arith.index_cast %in : i64 to index
    %n = attn.check_index %a, %nodes, "z" : index
    %x = tensor.extract %sum[%n] : tensor<?xf32>
    linalg.yield %x : f32
  } -> tensor<?xf32>
  %weights = linalg.generic {indexing_maps = [#e, #e, #e], iterator_types = ["parallel"]}
      ins(%exps, %picked : tensor<?xf32>, tensor<?xf32>) outs(%none : tensor<?xf32>) {
  ^bb0(%i0: f32, %i1: f32, %out: f32):
    %x = arith.divf %i0, %i1 : f32
    linalg.yield %x : f32
  } -> tensor<?xf32>
  %vj = linalg.generic {indexing_maps = [#e1, #ec], iterator_types = ["parallel", "parallel"]}
      ins(%from : tensor<?xi64>) outs(%none2 : tensor<?x4xf32>) {
  ^bb0(%in: i64, %out: f32):
    %a = arith.index_cast %in : i64 to index
    %n = attn.check_index %a, %nodes, "values" : index
    %c = linalg.index 1 : index
    %x = tensor.extract %v[%n, %c] : tensor<?x4xf32>
    linalg.yield %x : f32
  } -> tensor<?x4xf32>
  %p = linalg.generic {indexing_maps = [#e1, #ec, #ec], iterator_types = ["parallel", "parallel"]}
      ins(%weights, %vj : tensor<?xf32>, tensor<?x4xf32>) outs(%none2 : tensor<?x4xf32>) {
  ^bb0(%i0: f32, %i1: f32, %out: f32):
    %x = arith.mulf %i0, %i1 : f32
    linalg.yield %x : f32
  } -> tensor<?x4xf32>
  %result = scf.for %e = %c0 to %edges step %c1 iter_args(%o = %zeros2) -> (tensor<?x4xf32>) {
    %inner = scf.for %c = %c0 to %c4 step %c1 iter_args(%t = %o) -> (tensor<?x4xf32>) {
      %i = tensor.extract %to[%e] : tensor<?xi64>
      %a = arith.index_cast %i : i64 to index
      %n = attn.check_index %a, %nodes, "result" : index
      %x = tensor.extract %p[%e, %c] : tensor<?x4xf32>
      %b = tensor.extract %t[%n, %c] : tensor<?x4xf32>
      %z = arith.addf %b, %x : f32
      %d = tensor.insert %z into %t[%n, %c] : tensor<?x4xf32>
      scf.yield %d : tensor<?x4xf32>
    }
    scf.yield %inner : tensor<?x4xf32>
  }
  return %result : tensor<?x4xf32>
}

// -----

#e = affine_map<(e) -> (e)>
#e1 = affine_map<(e, c) -> (e)>
#ec = affine_map<(e, c) -> (e, c)>

// The values are summed at other nodes. More near misses: test/e2e/segment_softmax.py.
// CHECK: fused = false{{.*}}its divisor is not the sum of its exponentials over the edges of the node at which values are summed
// CHECK-LABEL: func.func @sources
// CHECK-NOT: attn.segment_attention
// CHECK: return
func.func @sources(%s: tensor<?xf32>, %v: tensor<?x4xf32>, %to: tensor<?xi64>, %from: tensor<?xi64>) -> tensor<?x4xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %zero = arith.constant 0.0 : f32
  %nodes = tensor.dim %v, %c0 : tensor<?x4xf32>
  %edges = tensor.dim %s, %c0 : tensor<?xf32>
  %none = tensor.empty(%edges) : tensor<?xf32>
  %none2 = tensor.empty(%edges) : tensor<?x4xf32>
  %e1 = tensor.empty(%nodes) : tensor<?xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%e1 : tensor<?xf32>) -> tensor<?xf32>
  %e2 = tensor.empty(%nodes) : tensor<?x4xf32>
  %zeros2 = linalg.fill ins(%zero : f32) outs(%e2 : tensor<?x4xf32>) -> tensor<?x4xf32>
  %max = scf.for %e = %c0 to %edges step %c1 iter_args(%t = %zeros) -> (tensor<?xf32>) {
    %i = tensor.extract %to[%e] : tensor<?xi64>
    %a = arith.index_cast %i : i64 to index
    %n = attn.check_index %a, %nodes, "max" : index
    %x = tensor.extract %s[%e] : tensor<?xf32>
    %y = tensor.extract %t[%n] : tensor<?xf32>
    %z = arith.maximumf %y, %x : f32
    %w = tensor.insert %z into %t[%n] : tensor<?xf32>
    scf.yield %w : tensor<?xf32>
  }
  %m = linalg.generic {indexing_maps = [#e, #e], iterator_types = ["parallel"]}
      ins(%to : tensor<?xi64>) outs(%none : tensor<?xf32>) {
  ^bb0(%in: i64, %out: f32):
    %a = arith.index_cast %in : i64 to index
    %n = attn.check_index %a, %nodes, "m" : index
    %x = tensor.extract %max[%n] : tensor<?xf32>
    linalg.yield %x : f32
  } -> tensor<?xf32>
  %less = linalg.generic {indexing_maps = [#e, #e, #e], iterator_types = ["parallel"]}
      ins(%s, %m : tensor<?xf32>, tensor<?xf32>) outs(%none : tensor<?xf32>) {
  ^bb0(%i0: f32, %i1: f32, %out: f32):
    %x = arith.subf %i0, %i1 : f32
    linalg.yield %x : f32
  } -> tensor<?xf32>
  %exps = linalg.generic {indexing_maps = [#e, #e], iterator_types = ["parallel"]}
      ins(%less : tensor<?xf32>) outs(%none : tensor<?xf32>) {
  ^bb0(%i0: f32, %out: f32):
    %x = math.exp %i0 : f32
    linalg.yield %x : f32
  } -> tensor<?xf32>
  %sum = scf.for %e = %c0 to %edges step %c1 iter_args(%t = %zeros) -> (tensor<?xf32>) {
    %i = tensor.extract %to[%e] : tensor<?xi64>
    %a = arith.index_cast %i : i64 to index
    %n = attn.check_index %a, %nodes, "sum" : index
    %x = tensor.extract %exps[%e] : tensor<?xf32>
    %y = tensor.extract %t[%n] : tensor<?xf32>
    %z = arith.addf %y, %x : f32
    %w = tensor.insert %z into %t[%n] : tensor<?xf32>
    scf.yield %w : tensor<?xf32>
  }
  %picked = linalg.generic {indexing_maps = [#e, #e], iterator_types = ["parallel"]}
      ins(%to : tensor<?xi64>) outs(%none : tensor<?xf32>) {
  ^bb0(%in: i64, %out: f32):
    %a = arith.index_cast %in : i64 to index
    %n = attn.check_index %a, %nodes, "z" : index
    %x = tensor.extract %sum[%n] : tensor<?xf32>
    linalg.yield %x : f32
  } -> tensor<?xf32>
  %weights = linalg.generic {indexing_maps = [#e, #e, #e], iterator_types = ["parallel"]}
      ins(%exps, %picked : tensor<?xf32>, tensor<?xf32>) outs(%none : tensor<?xf32>) {
  ^bb0(%i0: f32, %i1: f32, %out: f32):
    %x = arith.divf %i0, %i1 : f32
    linalg.yield %x : f32
  } -> tensor<?xf32>
  %vj = linalg.generic {indexing_maps = [#e1, #ec], iterator_types = ["parallel", "parallel"]}
      ins(%from : tensor<?xi64>) outs(%none2 : tensor<?x4xf32>) {
  ^bb0(%in: i64, %out: f32):
    %a = arith.index_cast %in : i64 to index
    %n = attn.check_index %a, %nodes, "values" : index
    %c = linalg.index 1 : index
    %x = tensor.extract %v[%n, %c] : tensor<?x4xf32>
    linalg.yield %x : f32
  } -> tensor<?x4xf32>
  %p = linalg.generic {indexing_maps = [#e1, #ec, #ec], iterator_types = ["parallel", "parallel"]}
      ins(%weights, %vj : tensor<?xf32>, tensor<?x4xf32>) outs(%none2 : tensor<?x4xf32>) {
  ^bb0(%i0: f32, %i1: f32, %out: f32):
    %x = arith.mulf %i0, %i1 : f32
    linalg.yield %x : f32
  } -> tensor<?x4xf32>
  %result = scf.for %e = %c0 to %edges step %c1 iter_args(%o = %zeros2) -> (tensor<?x4xf32>) {
    %inner = scf.for %c = %c0 to %c4 step %c1 iter_args(%t = %o) -> (tensor<?x4xf32>) {
      %i = tensor.extract %from[%e] : tensor<?xi64>
      %a = arith.index_cast %i : i64 to index
      %n = attn.check_index %a, %nodes, "result" : index
      %x = tensor.extract %p[%e, %c] : tensor<?x4xf32>
      %b = tensor.extract %t[%n, %c] : tensor<?x4xf32>
      %z = arith.addf %b, %x : f32
      %d = tensor.insert %z into %t[%n, %c] : tensor<?x4xf32>
      scf.yield %d : tensor<?x4xf32>
    }
    scf.yield %inner : tensor<?x4xf32>
  }
  return %result : tensor<?x4xf32>
}

// -----

#e = affine_map<(e) -> (e)>
#e1 = affine_map<(e, c) -> (e)>
#ec = affine_map<(e, c) -> (e, c)>

// The weights are a result.
// CHECK: fused = false{{.*}}its weights are used elsewhere too
// CHECK-LABEL: func.func @shown
// CHECK-NOT: attn.segment_attention
// CHECK: return
func.func @shown(%s: tensor<?xf32>, %v: tensor<?x4xf32>, %to: tensor<?xi64>, %from: tensor<?xi64>) -> (tensor<?x4xf32>, tensor<?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %zero = arith.constant 0.0 : f32
  %nodes = tensor.dim %v, %c0 : tensor<?x4xf32>
  %edges = tensor.dim %s, %c0 : tensor<?xf32>
  %none = tensor.empty(%edges) : tensor<?xf32>
  %none2 = tensor.empty(%edges) : tensor<?x4xf32>
  %e1 = tensor.empty(%nodes) : tensor<?xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%e1 : tensor<?xf32>) -> tensor<?xf32>
  %e2 = tensor.empty(%nodes) : tensor<?x4xf32>
  %zeros2 = linalg.fill ins(%zero : f32) outs(%e2 : tensor<?x4xf32>) -> tensor<?x4xf32>
  %max = scf.for %e = %c0 to %edges step %c1 iter_args(%t = %zeros) -> (tensor<?xf32>) {
    %i = tensor.extract %to[%e] : tensor<?xi64>
    %a = arith.index_cast %i : i64 to index
    %n = attn.check_index %a, %nodes, "max" : index
    %x = tensor.extract %s[%e] : tensor<?xf32>
    %y = tensor.extract %t[%n] : tensor<?xf32>
    %z = arith.maximumf %y, %x : f32
    %w = tensor.insert %z into %t[%n] : tensor<?xf32>
    scf.yield %w : tensor<?xf32>
  }
  %m = linalg.generic {indexing_maps = [#e, #e], iterator_types = ["parallel"]}
      ins(%to : tensor<?xi64>) outs(%none : tensor<?xf32>) {
  ^bb0(%in: i64, %out: f32):
    %a = arith.index_cast %in : i64 to index
    %n = attn.check_index %a, %nodes, "m" : index
    %x = tensor.extract %max[%n] : tensor<?xf32>
    linalg.yield %x : f32
  } -> tensor<?xf32>
  %less = linalg.generic {indexing_maps = [#e, #e, #e], iterator_types = ["parallel"]}
      ins(%s, %m : tensor<?xf32>, tensor<?xf32>) outs(%none : tensor<?xf32>) {
  ^bb0(%i0: f32, %i1: f32, %out: f32):
    %x = arith.subf %i0, %i1 : f32
    linalg.yield %x : f32
  } -> tensor<?xf32>
  %exps = linalg.generic {indexing_maps = [#e, #e], iterator_types = ["parallel"]}
      ins(%less : tensor<?xf32>) outs(%none : tensor<?xf32>) {
  ^bb0(%i0: f32, %out: f32):
    %x = math.exp %i0 : f32
    linalg.yield %x : f32
  } -> tensor<?xf32>
  %sum = scf.for %e = %c0 to %edges step %c1 iter_args(%t = %zeros) -> (tensor<?xf32>) {
    %i = tensor.extract %to[%e] : tensor<?xi64>
    %a = arith.index_cast %i : i64 to index
    %n = attn.check_index %a, %nodes, "sum" : index
    %x = tensor.extract %exps[%e] : tensor<?xf32>
    %y = tensor.extract %t[%n] : tensor<?xf32>
    %z = arith.addf %y, %x : f32
    %w = tensor.insert %z into %t[%n] : tensor<?xf32>
    scf.yield %w : tensor<?xf32>
  }
  %picked = linalg.generic {indexing_maps = [#e, #e], iterator_types = ["parallel"]}
      ins(%to : tensor<?xi64>) outs(%none : tensor<?xf32>) {
  ^bb0(%in: i64, %out: f32):
    %a = arith.index_cast %in : i64 to index
    %n = attn.check_index %a, %nodes, "z" : index
    %x = tensor.extract %sum[%n] : tensor<?xf32>
    linalg.yield %x : f32
  } -> tensor<?xf32>
  %weights = linalg.generic {indexing_maps = [#e, #e, #e], iterator_types = ["parallel"]}
      ins(%exps, %picked : tensor<?xf32>, tensor<?xf32>) outs(%none : tensor<?xf32>) {
  ^bb0(%i0: f32, %i1: f32, %out: f32):
    %x = arith.divf %i0, %i1 : f32
    linalg.yield %x : f32
  } -> tensor<?xf32>
  %vj = linalg.generic {indexing_maps = [#e1, #ec], iterator_types = ["parallel", "parallel"]}
      ins(%from : tensor<?xi64>) outs(%none2 : tensor<?x4xf32>) {
  ^bb0(%in: i64, %out: f32):
    %a = arith.index_cast %in : i64 to index
    %n = attn.check_index %a, %nodes, "values" : index
    %c = linalg.index 1 : index
    %x = tensor.extract %v[%n, %c] : tensor<?x4xf32>
    linalg.yield %x : f32
  } -> tensor<?x4xf32>
  %p = linalg.generic {indexing_maps = [#e1, #ec, #ec], iterator_types = ["parallel", "parallel"]}
      ins(%weights, %vj : tensor<?xf32>, tensor<?x4xf32>) outs(%none2 : tensor<?x4xf32>) {
  ^bb0(%i0: f32, %i1: f32, %out: f32):
    %x = arith.mulf %i0, %i1 : f32
    linalg.yield %x : f32
  } -> tensor<?x4xf32>
  %result = scf.for %e = %c0 to %edges step %c1 iter_args(%o = %zeros2) -> (tensor<?x4xf32>) {
    %inner = scf.for %c = %c0 to %c4 step %c1 iter_args(%t = %o) -> (tensor<?x4xf32>) {
      %i = tensor.extract %to[%e] : tensor<?xi64>
      %a = arith.index_cast %i : i64 to index
      %n = attn.check_index %a, %nodes, "result" : index
      %x = tensor.extract %p[%e, %c] : tensor<?x4xf32>
      %b = tensor.extract %t[%n, %c] : tensor<?x4xf32>
      %z = arith.addf %b, %x : f32
      %d = tensor.insert %z into %t[%n, %c] : tensor<?x4xf32>
      scf.yield %d : tensor<?x4xf32>
    }
    scf.yield %inner : tensor<?x4xf32>
  }
  return %result, %weights : tensor<?x4xf32>, tensor<?xf32>
}

// -----

#e = affine_map<(e) -> (e)>
#e1 = affine_map<(e, c) -> (e)>
#ec = affine_map<(e, c) -> (e, c)>

// Of each value, the first column is summed.
// CHECK: fused = false{{.*}}no loops sum values that it weighs
// CHECK-LABEL: func.func @column
// CHECK-NOT: attn.segment_attention
// CHECK: return
func.func @column(%s: tensor<?xf32>, %v: tensor<?x4xf32>, %to: tensor<?xi64>, %from: tensor<?xi64>) -> tensor<?x4xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %nodes = tensor.dim %v, %c0 : tensor<?x4xf32>
  %edges = tensor.dim %s, %c0 : tensor<?xf32>
  %none = tensor.empty(%edges) : tensor<?xf32>
  %none2 = tensor.empty(%edges) : tensor<?x4xf32>
  %e1 = tensor.empty(%nodes) : tensor<?xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%e1 : tensor<?xf32>) -> tensor<?xf32>
  %e2 = tensor.empty(%nodes) : tensor<?x4xf32>
  %zeros2 = linalg.fill ins(%zero : f32) outs(%e2 : tensor<?x4xf32>) -> tensor<?x4xf32>
  %max = scf.for %e = %c0 to %edges step %c1 iter_args(%t = %zeros) -> (tensor<?xf32>) {
    %i = tensor.extract %to[%e] : tensor<?xi64>
    %a = arith.index_cast %i : i64 to index
    %n = attn.check_index %a, %nodes, "max" : index
    %x = tensor.extract %s[%e] : tensor<?xf32>
    %y = tensor.extract %t[%n] : tensor<?xf32>
    %z = arith.maximumf %y, %x : f32
    %w = tensor.insert %z into %t[%n] : tensor<?xf32>
    scf.yield %w : tensor<?xf32>
  }
  %m = linalg.generic {indexing_maps = [#e, #e], iterator_types = ["parallel"]}
      ins(%to : tensor<?xi64>) outs(%none : tensor<?xf32>) {
  ^bb0(%in: i64, %out: f32):
    %a = arith.index_cast %in : i64 to index
    %n = attn.check_index %a, %nodes, "m" : index
    %x = tensor.extract %max[%n] : tensor<?xf32>
    linalg.yield %x : f32
  } -> tensor<?xf32>
  %less = linalg.generic {indexing_maps = [#e, #e, #e], iterator_types = ["parallel"]}
      ins(%s, %m : tensor<?xf32>, tensor<?xf32>) outs(%none : tensor<?xf32>) {
  ^bb0(%i0: f32, %i1: f32, %out: f32):
    %x = arith.subf %i0, %i1 : f32
    linalg.yield %x : f32
  } -> tensor<?xf32>
  %exps = linalg.generic {indexing_maps = [#e, #e], iterator_types = ["parallel"]}
      ins(%less : tensor<?xf32>) outs(%none : tensor<?xf32>) {
  ^bb0(%i0: f32, %out: f32):
    %x = math.exp %i0 : f32
    linalg.yield %x : f32
  } -> tensor<?xf32>
  %sum = scf.for %e = %c0 to %edges step %c1 iter_args(%t = %zeros) -> (tensor<?xf32>) {
    %i = tensor.extract %to[%e] : tensor<?xi64>
    %a = arith.index_cast %i : i64 to index
    %n = attn.check_index %a, %nodes, "sum" : index
    %x = tensor.extract %exps[%e] : tensor<?xf32>
    %y = tensor.extract %t[%n] : tensor<?xf32>
    %z = arith.addf %y, %x : f32
    %w = tensor.insert %z into %t[%n] : tensor<?xf32>
    scf.yield %w : tensor<?xf32>
  }
  %picked = linalg.generic {indexing_maps = [#e, #e], iterator_types = ["parallel"]}
      ins(%to : tensor<?xi64>) outs(%none : tensor<?xf32>) {
  ^bb0(%in: i64, %out: f32):
    %a = arith.index_cast %in : i64 to index
    %n = attn.check_index %a, %nodes, "z" : index
    %x = tensor.extract %sum[%n] : tensor<?xf32>
    linalg.yield %x : f32
  } -> tensor<?xf32>
  %weights = linalg.generic {indexing_maps = [#e, #e, #e], iterator_types = ["parallel"]}
      ins(%exps, %picked : tensor<?xf32>, tensor<?xf32>) outs(%none : tensor<?xf32>) {
  ^bb0(%i0: f32, %i1: f32, %out: f32):
    %x = arith.divf %i0, %i1 : f32
    linalg.yield %x : f32
  } -> tensor<?xf32>
  %vj = linalg.generic {indexing_maps = [#e1, #ec], iterator_types = ["parallel", "parallel"]}
      ins(%from : tensor<?xi64>) outs(%none2 : tensor<?x4xf32>) {
  ^bb0(%in: i64, %out: f32):
    %a = arith.index_cast %in : i64 to index
    %n = attn.check_index %a, %nodes, "values" : index
    %c = linalg.index 1 : index
    %x = tensor.extract %v[%n, %c] : tensor<?x4xf32>
    linalg.yield %x : f32
  } -> tensor<?x4xf32>
  %p = linalg.generic {indexing_maps = [#e1, #ec, #ec], iterator_types = ["parallel", "parallel"]}
      ins(%weights, %vj : tensor<?xf32>, tensor<?x4xf32>) outs(%none2 : tensor<?x4xf32>) {
  ^bb0(%i0: f32, %i1: f32, %out: f32):
    %x = arith.mulf %i0, %i1 : f32
    linalg.yield %x : f32
  } -> tensor<?x4xf32>
  %result = scf.for %e = %c0 to %edges step %c1 iter_args(%t = %zeros2) -> (tensor<?x4xf32>) {
    %i = tensor.extract %to[%e] : tensor<?xi64>
    %a = arith.index_cast %i : i64 to index
    %n = attn.check_index %a, %nodes, "result" : index
    %x = tensor.extract %p[%e, %c0] : tensor<?x4xf32>
    %b = tensor.extract %t[%n, %c0] : tensor<?x4xf32>
    %z = arith.addf %b, %x : f32
    %d = tensor.insert %z into %t[%n, %c0] : tensor<?x4xf32>
    scf.yield %d : tensor<?x4xf32>
  }
  return %result : tensor<?x4xf32>
}
