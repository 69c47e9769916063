// RUN: attn-opt %s -attn-expose-attention="nodes=all as=weights,head-mean,argmax,top-k:4" -split-input-file | FileCheck %s
// RUN: attn-opt %s -attn-expose-attention="nodes=other as=entropy" -split-input-file | FileCheck %s --check-prefix=OTHER
// RUN: attn-opt %s -attn-expose-attention="nodes=second:soft as=entropy" -split-input-file | FileCheck %s --check-prefix=TWO
// RUN: attn-opt %s -attn-expose-attention="nodes=all as=entropy" -split-input-file | FileCheck %s --check-prefix=ENTROPY

#q = affine_map<(b, h, i, j, d, e) -> (b, h, i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (b, h, j, d)>
#v = affine_map<(b, h, i, j, d, e) -> (b, h, j, e)>
#o = affine_map<(b, h, i, j, d, e) -> (b, h, i, e)>
// A second attention with values of width one; the first stays as it is.
// CHECK-LABEL: func.func @entry
// CHECK-SAME: -> (tensor<2x3x?x8xf32>
// CHECK-SAME: tensor<2x3x?x?xf32> {attn.dims = ["", "", "", ""], attn.dtype = "float32", attn.name = "soft.weights"}
// CHECK-SAME: tensor<2x?x?xf32> {{.*}}attn.name = "soft.head_mean"}
// CHECK-SAME: tensor<2x3x?xi64> {attn.dims = ["", "", ""], attn.dtype = "int64", attn.name = "soft.argmax"}
// CHECK-SAME: tensor<2x3x?x4xf32> {{.*}}attn.name = "soft.top_k_weights"}
// CHECK-SAME: tensor<2x3x?x4xi64> {{.*}}attn.name = "soft.top_k_keys"}
// CHECK: %[[R:.*]] = attn.attention {{.*}} -> tensor<2x3x?x8xf32> score
// CHECK: %[[ZEROS:.*]] = linalg.fill {{.*}} -> tensor<?x1xf32>
// CHECK: %[[NONE:.*]], %[[W:.*]]:5 = attn.attention
// CHECK-SAME: %[[ZEROS]]
// CHECK-SAME: extras [#attn.extra<final_weights>, #attn.extra<final_weights, mean>, #attn.extra<final_weights, argmax>, #attn.extra<final_weights, topk_values>, #attn.extra<final_weights, topk_indices>]
// CHECK: return %[[R]], %[[W]]#0, %[[W]]#1, %[[W]]#2, %[[W]]#3, %[[W]]#4
// OTHER-LABEL: func.func @entry
// OTHER-COUNT-1: attn.attention
// OTHER-NOT: attn.attention
func.func @entry(%q: tensor<2x3x?x8xf32>, %k: tensor<2x3x?x8xf32>, %v: tensor<2x3x?x8xf32>)
    -> (tensor<2x3x?x8xf32> {attn.name = "y"}) attributes {attn.entry} {
  %r = attn.attention masked_rows nan maps [#q, #k, #v, #o]
      ins(%q, %k, %v : tensor<2x3x?x8xf32>, tensor<2x3x?x8xf32>, tensor<2x3x?x8xf32>) -> tensor<2x3x?x8xf32> score {
  ^bb0(%s: f32):
    attn.yield %s : f32
  } loc(#node)
  return %r : tensor<2x3x?x8xf32>
}
#node = loc("node 'soft' (Softmax)")

// -----

#q = affine_map<(b, h, i, j, d, e) -> (i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (j, d)>
#v = affine_map<(b, h, i, j, d, e) -> (j, e)>
#o = affine_map<(b, h, i, j, d, e) -> (i, e)>
// Batch and head, which it lacks, have size 1.
// CHECK-LABEL: func.func @plain
// CHECK-SAME: tensor<1x1x?x5xf32> {{.*}}attn.name = "soft.weights"}
// CHECK: tensor.expand_shape {{.*}}[0, 1, 2], [3]{{.*}} into tensor<1x1x?x5xf32>
// OTHER-LABEL: func.func @plain
func.func @plain(%q: tensor<?x8xf32>, %k: tensor<5x8xf32>, %v: tensor<5x8xf32>)
    -> (tensor<?x8xf32> {attn.name = "y"}) attributes {attn.entry} {
  %r = attn.attention masked_rows nan maps [#q, #k, #v, #o]
      ins(%q, %k, %v : tensor<?x8xf32>, tensor<5x8xf32>, tensor<5x8xf32>) -> tensor<?x8xf32> score {
  ^bb0(%s: f32):
    attn.yield %s : f32
  } loc(#node)
  return %r : tensor<?x8xf32>
}
#node = loc("node 'soft' (Softmax)")

// -----

#q = affine_map<(b, h, i, j, d, e) -> (i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (j, d)>
#v = affine_map<(b, h, i, j, d, e) -> (j, e)>
#o = affine_map<(b, h, i, j, d, e) -> (i, e)>
// Not where it stands in a loop, and the report says so.
// CHECK: module attributes {attn.fusion_report = [{fused = true, node = "node 'soft' (Softmax)",
// CHECK-SAME: not_exposed = "it stands in a loop or a branch"}]}
// CHECK-LABEL: func.func @loop
// CHECK-SAME: -> (tensor<4x8xf32> {attn.name = "y"})
module attributes {attn.fusion_report = [{fused = true, node = "node 'soft' (Softmax)"}]} {
  func.func @loop(%q: tensor<4x8xf32>, %k: tensor<5x8xf32>, %n: index) -> (tensor<4x8xf32> {attn.name = "y"})
      attributes {attn.entry} {
    %zero = arith.constant 0 : index
    %one = arith.constant 1 : index
    %y = scf.for %t = %zero to %n step %one iter_args(%x = %q) -> tensor<4x8xf32> {
      %r = attn.attention masked_rows nan maps [#q, #k, #v, #o]
          ins(%x, %k, %k : tensor<4x8xf32>, tensor<5x8xf32>, tensor<5x8xf32>) -> tensor<4x8xf32> score {
      ^bb0(%s: f32):
        attn.yield %s : f32
      } loc(#node)
      scf.yield %r : tensor<4x8xf32>
    }
    return %y : tensor<4x8xf32>
  }
}
#node = loc("node 'soft' (Softmax)")

// -----

#q = affine_map<(b, h, i, j, d, e) -> (b, h, i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (b, h, j, d)>
#v = affine_map<(b, h, i, j, d, e) -> (b, h, j, e)>
#o = affine_map<(b, h, i, j, d, e) -> (b, h, i, e)>
// Outputs have the axes of the graph, whose four heads are two of h with two rows each, and whose mean is therefore taken
// behind the kernel.
// CHECK-LABEL: func.func @axes
// CHECK-SAME: tensor<?x4x1x?xf32> {{.*}}attn.name = "soft.weights"}
// CHECK-SAME: tensor<?x1x?xf32> {{.*}}attn.name = "soft.head_mean"}
// CHECK-SAME: tensor<?x4x1xi64> {{.*}}attn.name = "soft.argmax"}
// CHECK: attn.attention
// CHECK: %[[NONE:.*]], %[[W:.*]]:5 = attn.attention
// CHECK-SAME: extras [#attn.extra<final_weights>, #attn.extra<final_weights>, #attn.extra<final_weights, argmax>,
// CHECK-NOT: axes
// CHECK: tensor.collapse_shape %[[W]]#0 {{\[}}[0], [1, 2], [3]] : tensor<?x2x2x?xf32> into tensor<?x4x?xf32>
// CHECK: tensor.expand_shape {{.*}}[0], [1], [2, 3]{{.*}} into tensor<?x4x1x?xf32>
// CHECK: iterator_types = ["parallel", "reduction", "parallel", "parallel"]
// CHECK: arith.divf
func.func @axes(%q: tensor<?x2x2x8xf32>, %k: tensor<?x2x?x8xf32>, %v: tensor<?x2x?x8xf32>)
    -> (tensor<?x2x2x8xf32> {attn.name = "y"}) attributes {attn.entry} {
  %r = attn.attention masked_rows nan maps [#q, #k, #v, #o]
      ins(%q, %k, %v : tensor<?x2x2x8xf32>, tensor<?x2x?x8xf32>, tensor<?x2x?x8xf32>) -> tensor<?x2x2x8xf32> score {
  ^bb0(%s: f32):
    attn.yield %s : f32
  } {axes = [#attn.axis_part<batch of 0, ?>, #attn.axis_part<head of 1, 2>, #attn.axis_part<head of 2, 2>,
             #attn.axis_part<key of 3, ?>]} loc(#node)
  return %r : tensor<?x2x2x8xf32>
}
#node = loc("node 'soft' (Softmax)")

// -----

#q = affine_map<(b, h, i, j, d, e) -> (b, h, i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (b, h, j, d)>
#v = affine_map<(b, h, i, j, d, e) -> (b, h, j, e)>
#o = affine_map<(b, h, i, j, d, e) -> (b, h, i, e)>
// Heads are three of b by two of i, batch is h: parts are cut out, moved and joined.
// CHECK-LABEL: func.func @parts
// CHECK-SAME: tensor<?x6x?x?xf32> {{.*}}attn.name = "soft.weights"}
// CHECK-DAG: %[[C2:.*]] = arith.constant 2 : index
// CHECK-DAG: %[[I:.*]] = tensor.dim %{{.*}}, %c2
// CHECK: %[[QUERIES:.*]] = arith.divui %[[I]], %[[C2]]
// CHECK: attn.attention
// CHECK-NOT: axes
// CHECK: %[[W:.*]] = tensor.expand_shape {{.*}} {{\[}}[0], [1], [2, 3], [4]] output_shape [3, %[[B:[^,]+]], 2, %[[QUERIES]],
// CHECK-SAME: into tensor<3x?x2x?x?xf32>
// CHECK: linalg.generic {{.*}} ins(%[[W]]{{.*}} outs({{.*}} : tensor<?x3x2x?x?xf32>)
// CHECK: tensor.collapse_shape {{.*}} {{\[}}[0], [1, 2], [3], [4]] : tensor<?x3x2x?x?xf32> into tensor<?x6x?x?xf32>
func.func @parts(%q: tensor<3x?x?x8xf32>, %k: tensor<3x?x?x8xf32>, %v: tensor<3x?x?x8xf32>)
    -> (tensor<3x?x?x8xf32> {attn.name = "y"}) attributes {attn.entry} {
  %r = attn.attention masked_rows nan maps [#q, #k, #v, #o]
      ins(%q, %k, %v : tensor<3x?x?x8xf32>, tensor<3x?x?x8xf32>, tensor<3x?x?x8xf32>) -> tensor<3x?x?x8xf32> score {
  ^bb0(%s: f32):
    attn.yield %s : f32
  } {axes = [#attn.axis_part<batch of 1, ?>, #attn.axis_part<head of 0, 3>, #attn.axis_part<head of 2, 2>,
             #attn.axis_part<query of 2, ?>, #attn.axis_part<key of 3, ?>]} loc(#node)
  return %r : tensor<3x?x?x8xf32>
}
#node = loc("node 'soft' (Softmax)")

// -----

#q = affine_map<(b, h, i, j, d, e) -> (i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (j, d)>
#v = affine_map<(b, h, i, j, d, e) -> (j, e)>
#o = affine_map<(b, h, i, j, d, e) -> (i, e)>
// Where entries have nodes of one name, an entry's name before the node's means one of them, and its verdict says so.
// TWO: {attn.fusion_report = [{entry = "first", fused = true, node = "node 'soft' (Softmax)"},
// TWO-SAME: {entry = "second", exposed = ["soft.entropy"], fused = true, node = "node 'soft' (Softmax)"}]}
// TWO-LABEL: func.func @first
// TWO-COUNT-1: attn.attention
// TWO-LABEL: func.func @second
// TWO-COUNT-2: attn.attention
module attributes {attn.fusion_report = [{fused = true, node = "node 'soft' (Softmax)", entry = "first"},
                                         {fused = true, node = "node 'soft' (Softmax)", entry = "second"}]} {
  func.func @first(%q: tensor<4x8xf32>, %k: tensor<5x8xf32>) -> (tensor<4x8xf32> {attn.name = "y"})
      attributes {attn.entry = "first"} {
    %r = attn.attention masked_rows nan maps [#q, #k, #v, #o]
        ins(%q, %k, %k : tensor<4x8xf32>, tensor<5x8xf32>, tensor<5x8xf32>) -> tensor<4x8xf32> score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    } loc(#node)
    return %r : tensor<4x8xf32>
  }
  func.func @second(%q: tensor<4x8xf32>, %k: tensor<5x8xf32>) -> (tensor<4x8xf32> {attn.name = "y"})
      attributes {attn.entry = "second"} {
    %r = attn.attention masked_rows nan maps [#q, #k, #v, #o]
        ins(%q, %k, %k : tensor<4x8xf32>, tensor<5x8xf32>, tensor<5x8xf32>) -> tensor<4x8xf32> score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    } loc(#node)
    return %r : tensor<4x8xf32>
  }
}
#node = loc("node 'soft' (Softmax)")

// -----

#q = affine_map<(b, h, i, j, d, e) -> (b, h, i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (b, h, j, d)>
#v = affine_map<(b, h, i, j, d, e) -> (b, h, j, e)>
#o = affine_map<(b, h, i, j, d, e) -> (b, h, i, e)>
// In the loop of a search, whose trace goes: the loop carries the last query of each step, behind the others, in slabs that
// grow; behind the loop each token has the row in which it was chosen.
// CHECK-LABEL: func.func @search
// CHECK-SAME: tensor<?x2x3x?x?xf32> {attn.dims = ["batch", "best", "", "length", ""], {{.*}}attn.name = "soft.weights"}
// CHECK-SAME: tensor<?x2x?x?xf32> {attn.dims = ["batch", "best", "length", ""], {{.*}}attn.name = "soft.head_mean"}
// CHECK-SAME: tensor<?x2x3x?xi64> {attn.dims = ["batch", "best", "", "length"], {{.*}}attn.name = "soft.argmax"}
// CHECK: scf.while
// CHECK: attn.attention
// CHECK: attn.attention
// CHECK: attn.require {{.*}} "search: 'soft.weights' has {0} rows, the tokens have {1}"
// CHECK: %[[LAST:.*]] = tensor.extract_slice %{{.*}} : tensor<?x3x4x?xf32> to tensor<?x3x1x?xf32>
// CHECK: %[[ROW:.*]] = tensor.collapse_shape %[[LAST]]
// CHECK: %[[ROOM:.*]] = attn.grow %{{.*}} dim 0 : tensor<?xf32>
// CHECK: tensor.insert_slice %[[ROW]] into %[[ROOM]]
// CHECK: scf.yield
// CHECK: linalg.generic {{.*}} ins(%{{.*}} : tensor<?x2x?xi64>) outs(%{{.*}} : tensor<?x2x3x?x?xf32>)
// CHECK-NOT: attn.trace
// OTHER-LABEL: func.func @search
// OTHER-NOT: attn.grow
// OTHER-NOT: attn.trace
func.func @search(%q: tensor<?x3x4x8xf32>, %k: tensor<?x3x?x8xf32>, %rows: tensor<?x2x?xi64>, %n: index)
    -> (tensor<?x2x?xi64> {attn.name = "tokens", attn.dims = ["batch", "best", "length"]}) attributes {attn.entry} {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %count = tensor.dim %q, %zero : tensor<?x3x4x8xf32>
  %steps, %y = scf.while (%t = %zero, %x = %q) : (index, tensor<?x3x4x8xf32>) -> (index, tensor<?x3x4x8xf32>) {
    %more = arith.cmpi ult, %t, %n : index
    scf.condition(%more) %t, %x : index, tensor<?x3x4x8xf32>
  } do {
  ^bb0(%t: index, %x: tensor<?x3x4x8xf32>):
    %next = arith.addi %t, %one : index
    %r = attn.attention masked_rows nan maps [#q, #k, #v, #o]
        ins(%x, %k, %k : tensor<?x3x4x8xf32>, tensor<?x3x?x8xf32>, tensor<?x3x?x8xf32>) -> tensor<?x3x4x8xf32> score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    } loc(#node)
    scf.yield %next, %r : index, tensor<?x3x4x8xf32>
  }
  attn.trace %rows of %count in %steps : tensor<?x2x?xi64>
  return %rows : tensor<?x2x?xi64>
}
#node = loc("node 'soft' (Softmax)")

// -----

#q = affine_map<(b, h, i, j, d, e) -> (i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (j, d)>
#v = affine_map<(b, h, i, j, d, e) -> (j, e)>
#o = affine_map<(b, h, i, j, d, e) -> (i, e)>
#l = affine_map<(b, h, i, j, d, e) -> (i)>
#row = affine_map<(i, e) -> (i)>
#all = affine_map<(i, e) -> (i, e)>
// Rows that are divided behind the attention, as of a sink: so are the weights, before they are reduced over heads. What is
// done with the result otherwise, here by columns, is not part of the weights.
// CHECK: #[[EACH:.*]] = affine_map<(d0, d1) -> (d0, d1)>
// CHECK: #[[ROWS:.*]] = affine_map<(d0, d1) -> (d0)>
// CHECK-LABEL: func.func @sink
// CHECK-SAME: tensor<1x1x4x5xf32> {{.*}}attn.name = "soft.weights"}
// CHECK: %[[R:.*]], %[[LSE:.*]] = attn.attention
// CHECK: %[[NONE:.*]], %[[W:.*]]:5 = attn.attention
// CHECK-SAME: extras [#attn.extra<final_weights>, #attn.extra<final_weights>, #attn.extra<final_weights, argmax>,
// CHECK: linalg.generic {indexing_maps = [#[[EACH]], #[[ROWS]], #[[ROWS]], #[[EACH]]]
// CHECK-SAME: ins(%[[W]]#0, %{{.*}}, %{{.*}} : tensor<4x5xf32>, tensor<4xf32>, tensor<4xf32>)
// CHECK: arith.divf
// CHECK-NOT: arith.mulf
// CHECK: linalg.yield
// Their entropy is taken of what was divided.
// ENTROPY-LABEL: func.func @sink
// ENTROPY: extras [#attn.extra<final_weights>]
// ENTROPY: arith.divf
// ENTROPY: iterator_types = ["parallel", "parallel", "parallel", "reduction"]
// ENTROPY: math.log
func.func @sink(%q: tensor<4x8xf32>, %k: tensor<5x8xf32>, %sink: tensor<4xf32>, %scale: tensor<8xf32>)
    -> (tensor<4x8xf32> {attn.name = "y"}) attributes {attn.entry} {
  %r, %lse = attn.attention masked_rows zero maps [#q, #k, #v, #o, #l]
      ins(%q, %k, %k : tensor<4x8xf32>, tensor<5x8xf32>, tensor<5x8xf32>) -> tensor<4x8xf32> extras [#attn.extra<lse>] : tensor<4xf32> score {
  ^bb0(%s: f32):
    attn.yield %s : f32
  } loc(#node)
  %to = tensor.empty() : tensor<4x8xf32>
  %y = linalg.generic {indexing_maps = [#all, #row, #row, affine_map<(i, e) -> (e)>, #all], iterator_types = ["parallel", "parallel"]}
      ins(%r, %lse, %sink, %scale : tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>, tensor<8xf32>) outs(%to : tensor<4x8xf32>) {
  ^bb0(%value: f32, %sum: f32, %own: f32, %by: f32, %out: f32):
    %one = arith.constant 1.0 : f32
    %above = arith.subf %own, %sum : f32
    %ratio = math.exp %above : f32
    %total = arith.addf %ratio, %one : f32
    %part = arith.divf %value, %total : f32
    %scaled = arith.mulf %part, %by : f32
    linalg.yield %scaled : f32
  } -> tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}
#node = loc("node 'soft' (Softmax)")

// -----

#q = affine_map<(b, h, i, j, d, e) -> (i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (j, d)>
#v = affine_map<(b, h, i, j, d, e) -> (j, e)>
#o = affine_map<(b, h, i, j, d, e) -> (i, e)>
#l = affine_map<(b, h, i, j, d, e) -> (i)>
#row = affine_map<(i, e) -> (i)>
#all = affine_map<(i, e) -> (i, e)>
// A near miss: they are multiplied.
// CHECK: not_exposed = "its weights are scaled behind it, by what is not understood"
// CHECK-LABEL: func.func @multiplied
// CHECK-COUNT-1: attn.attention
// CHECK-NOT: attn.attention
module attributes {attn.fusion_report = [{fused = true, node = "node 'soft' (Softmax)"}]} {
  func.func @multiplied(%q: tensor<4x8xf32>, %k: tensor<5x8xf32>) -> (tensor<4x8xf32> {attn.name = "y"}) attributes {attn.entry} {
    %r, %lse = attn.attention masked_rows zero maps [#q, #k, #v, #o, #l]
        ins(%q, %k, %k : tensor<4x8xf32>, tensor<5x8xf32>, tensor<5x8xf32>) -> tensor<4x8xf32> extras [#attn.extra<lse>] : tensor<4xf32> score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    } loc(#node)
    %to = tensor.empty() : tensor<4x8xf32>
    %y = linalg.generic {indexing_maps = [#all, #row, #all], iterator_types = ["parallel", "parallel"]}
        ins(%r, %lse : tensor<4x8xf32>, tensor<4xf32>) outs(%to : tensor<4x8xf32>) {
    ^bb0(%value: f32, %sum: f32, %out: f32):
      %part = arith.mulf %value, %sum : f32
      linalg.yield %part : f32
    } -> tensor<4x8xf32>
    return %y : tensor<4x8xf32>
  }
}
#node = loc("node 'soft' (Softmax)")

// -----

// Weights of edges are no matrix of queries and keys, and the report says so.
// CHECK: module attributes {attn.fusion_report = [{fused = true, node = "node 'soft' (Div)",
// CHECK-SAME: not_exposed = "it has one for each edge, not for queries and keys"}]}
// CHECK-LABEL: func.func @segments
// CHECK-SAME: -> (tensor<3x1x2xf32> {attn.name = "y"})
// OTHER: module attributes {attn.fusion_report = [{fused = true, node = "node 'soft' (Div)"}]}
// OTHER-NEXT: func.func @segments
module attributes {attn.fusion_report = [{fused = true, node = "node 'soft' (Div)"}]} {
  func.func @segments(%s: tensor<4x1xf32>, %v: tensor<4x1x2xf32>, %order: tensor<4xi64>, %ends: tensor<3xi64>)
      -> (tensor<3x1x2xf32> {attn.name = "y"}) attributes {attn.entry} {
    %y = attn.segment_attention %s, %v by %order, %ends
        : tensor<4x1xf32>, tensor<4x1x2xf32>, tensor<4xi64>, tensor<3xi64> -> tensor<3x1x2xf32> loc(#node)
    return %y : tensor<3x1x2xf32>
  }
}
#node = loc("node 'soft' (Div)")
