// RUN: attn-opt %s -attn-recognize-attention -canonicalize -cse -split-input-file | FileCheck %s

// A BERT layer: heads split by reshape and transpose, K transposed, scale, mask broadcast through unit dimensions, NaN
// guard, heads merged. All of it ends in maps and regions; the guard in masked_rows.

#id = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#bj = affine_map<(d0, d1, d2, d3) -> (d0, d3)>
#q = affine_map<(b, h, i, j, d) -> (b, h, i, d)>
#kt = affine_map<(b, h, i, j, d) -> (b, h, d, j)>
#s = affine_map<(b, h, i, j, d) -> (b, h, i, j)>
#w = affine_map<(b, h, i, e, j) -> (b, h, i, j)>
#v = affine_map<(b, h, i, e, j) -> (b, h, j, e)>
#o = affine_map<(b, h, i, e, j) -> (b, h, i, e)>
// CHECK-DAG: #[[Q:.+]] = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d2, d1, d4)>
// CHECK-DAG: #[[K:.+]] = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d3, d1, d4)>
// CHECK-DAG: #[[V:.+]] = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d3, d1, d5)>
// CHECK-DAG: #[[M:.+]] = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, 0, 0, d3)>
// CHECK-DAG: #[[O:.+]] = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d2, d1, d5)>
// CHECK: attn.fusion_report = [{fused = true, kind = "dot", mask = "dense"
// CHECK-LABEL: func.func @bert
// CHECK-SAME: %[[QUERY:[^:]+]]: tensor<?x?x384xf32>, {{.+}}, %[[MASK:[^:]+]]: tensor<?x1x1x?xf32>
// CHECK-NOT: linalg
// CHECK: %[[EXPANDED:.+]] = tensor.expand_shape %[[QUERY]] {{\[\[}}0], [1], [2, 3]]
// CHECK: %[[OUT:.+]] = attn.attention masked_rows zero maps [#[[Q]], #[[K]], #[[V]], #[[M]], #[[O]]]
// CHECK-SAME: ins(%[[EXPANDED]]
// CHECK-SAME: captures(%[[MASK]] : tensor<?x1x1x?xf32>)
// CHECK: ^bb0(%[[S:.+]]: f32, %[[X:.+]]: f32):
// CHECK: %[[D:.+]] = arith.divf %[[S]]
// CHECK: %[[Y:.+]] = arith.addf %[[D]], %[[X]]
// CHECK: attn.yield %[[Y]]
// CHECK-NOT: weight
// CHECK: tensor.collapse_shape %[[OUT]] {{\[\[}}0], [1], [2, 3]]
func.func @bert(%q: tensor<?x?x384xf32>, %k: tensor<?x?x384xf32>, %v: tensor<?x?x384xf32>, %mask: tensor<?x1x1x?xf32>) -> tensor<?x?x384xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %b = tensor.dim %q, %c0 : tensor<?x?x384xf32>
  %s = tensor.dim %q, %c1 : tensor<?x?x384xf32>
  %q4 = tensor.expand_shape %q [[0],[1],[2,3]] output_shape [%b,%s,12,32] : tensor<?x?x384xf32> into tensor<?x?x12x32xf32>
  %k4 = tensor.expand_shape %k [[0],[1],[2,3]] output_shape [%b,%s,12,32] : tensor<?x?x384xf32> into tensor<?x?x12x32xf32>
  %v4 = tensor.expand_shape %v [[0],[1],[2,3]] output_shape [%b,%s,12,32] : tensor<?x?x384xf32> into tensor<?x?x12x32xf32>
  %e0 = tensor.empty(%b,%s) : tensor<?x12x?x32xf32>
  %e1 = tensor.empty(%b,%s) : tensor<?x12x32x?xf32>
  %qt = linalg.transpose ins(%q4 : tensor<?x?x12x32xf32>) outs(%e0 : tensor<?x12x?x32xf32>) permutation = [0,2,1,3]
  %vt = linalg.transpose ins(%v4 : tensor<?x?x12x32xf32>) outs(%e0 : tensor<?x12x?x32xf32>) permutation = [0,2,1,3]
  %kt = linalg.transpose ins(%k4 : tensor<?x?x12x32xf32>) outs(%e1 : tensor<?x12x32x?xf32>) permutation = [0,2,3,1]
  %e2 = tensor.empty(%b,%s,%s) : tensor<?x12x?x?xf32>
  %f2 = linalg.fill ins(%zero : f32) outs(%e2 : tensor<?x12x?x?xf32>) -> tensor<?x12x?x?xf32>
  %sc = linalg.contract indexing_maps = [#q, #kt, #s] ins(%qt,%kt : tensor<?x12x?x32xf32>,tensor<?x12x32x?xf32>) outs(%f2 : tensor<?x12x?x?xf32>) -> tensor<?x12x?x?xf32>
  %sd = linalg.generic {indexing_maps=[#id,#id], iterator_types=["parallel","parallel","parallel","parallel"]} ins(%sc: tensor<?x12x?x?xf32>) outs(%e2 : tensor<?x12x?x?xf32>) {
  ^bb0(%x: f32, %y: f32):
    %cst = arith.constant 5.65 : f32
    %r = arith.divf %x, %cst : f32
    linalg.yield %r : f32
  } -> tensor<?x12x?x?xf32>
  %m2 = tensor.collapse_shape %mask [[0,1,2],[3]] : tensor<?x1x1x?xf32> into tensor<?x?xf32>
  %sm = linalg.generic {indexing_maps=[#id,#bj,#id], iterator_types=["parallel","parallel","parallel","parallel"]} ins(%sd, %m2: tensor<?x12x?x?xf32>, tensor<?x?xf32>) outs(%e2 : tensor<?x12x?x?xf32>) {
  ^bb0(%x: f32, %m: f32, %y: f32):
    %r = arith.addf %x, %m : f32
    linalg.yield %r : f32
  } -> tensor<?x12x?x?xf32>
  %p = attn.softmax %sm dim 3 : tensor<?x12x?x?xf32>
  %i8 = tensor.empty(%b,%s,%s) : tensor<?x12x?x?xi8>
  %nan = linalg.generic {indexing_maps=[#id,#id], iterator_types=["parallel","parallel","parallel","parallel"]} ins(%p: tensor<?x12x?x?xf32>) outs(%i8 : tensor<?x12x?x?xi8>) {
  ^bb0(%x: f32, %y: i8):
    %r = arith.cmpf uno, %x, %x : f32
    %t = arith.extui %r : i1 to i8
    linalg.yield %t : i8
  } -> tensor<?x12x?x?xi8>
  %g = linalg.generic {indexing_maps=[#id,#id,#id], iterator_types=["parallel","parallel","parallel","parallel"]} ins(%nan, %p: tensor<?x12x?x?xi8>, tensor<?x12x?x?xf32>) outs(%e2 : tensor<?x12x?x?xf32>) {
  ^bb0(%n: i8, %x: f32, %y: f32):
    %z8 = arith.constant 0 : i8
    %zz = arith.constant 0.0 : f32
    %t = arith.cmpi ne, %n, %z8 : i8
    %r = arith.select %t, %zz, %x : f32
    linalg.yield %r : f32
  } -> tensor<?x12x?x?xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%e0 : tensor<?x12x?x32xf32>) -> tensor<?x12x?x32xf32>
  %o = linalg.contract indexing_maps = [#w,#v,#o] ins(%g,%vt : tensor<?x12x?x?xf32>,tensor<?x12x?x32xf32>) outs(%fo : tensor<?x12x?x32xf32>) -> tensor<?x12x?x32xf32>
  %eo = tensor.empty(%b,%s) : tensor<?x?x12x32xf32>
  %ot = linalg.transpose ins(%o : tensor<?x12x?x32xf32>) outs(%eo : tensor<?x?x12x32xf32>) permutation = [0,2,1,3]
  %r = tensor.collapse_shape %ot [[0],[1],[2,3]] : tensor<?x?x12x32xf32> into tensor<?x?x384xf32>
  return %r : tensor<?x?x384xf32>
}

// -----

// Batch and heads merged before the products, cut again around the softmax: torch's MultiheadAttention.

#id4 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#bj = affine_map<(d0, d1, d2, d3) -> (d0, d3)>
#q = affine_map<(n, i, j, d) -> (n, i, d)>
#kt = affine_map<(n, i, j, d) -> (n, d, j)>
#s = affine_map<(n, i, j, d) -> (n, i, j)>
#w = affine_map<(n, i, e, j) -> (n, i, j)>
#v = affine_map<(n, i, e, j) -> (n, j, e)>
#o = affine_map<(n, i, e, j) -> (n, i, e)>
// CHECK-LABEL: func.func @merged_heads
// CHECK-SAME: %[[QUERY:[^:]+]]: tensor<?x4x?x8xf32>, %[[KEY:[^:]+]]: tensor<?x4x?x8xf32>, %[[VALUE:[^:]+]]: tensor<?x4x?x8xf32>
// CHECK-NOT: linalg
// CHECK: attn.attention masked_rows nan
// CHECK-SAME: ins(%[[QUERY]], %[[KEY]], %[[VALUE]]
// CHECK-SAME: captures(%{{.+}} : tensor<?x?xf32>)
// CHECK-NOT: linalg
// CHECK: return
func.func @merged_heads(%q: tensor<?x4x?x8xf32>, %k: tensor<?x4x?x8xf32>, %v: tensor<?x4x?x8xf32>,
                        %mask: tensor<?x?xf32>, %b: index, %s: index, %n: index) -> tensor<?x4x?x8xf32> {
  %zero = arith.constant 0.0 : f32
  %q3 = tensor.collapse_shape %q [[0, 1], [2], [3]] : tensor<?x4x?x8xf32> into tensor<?x?x8xf32>
  %k3 = tensor.collapse_shape %k [[0, 1], [2], [3]] : tensor<?x4x?x8xf32> into tensor<?x?x8xf32>
  %v3 = tensor.collapse_shape %v [[0, 1], [2], [3]] : tensor<?x4x?x8xf32> into tensor<?x?x8xf32>
  %ek = tensor.empty(%n, %s) : tensor<?x8x?xf32>
  %kt = linalg.transpose ins(%k3 : tensor<?x?x8xf32>) outs(%ek : tensor<?x8x?xf32>) permutation = [0, 2, 1]
  %es = tensor.empty(%n, %s, %s) : tensor<?x?x?xf32>
  %fs = linalg.fill ins(%zero : f32) outs(%es : tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %sc = linalg.contract indexing_maps = [#q, #kt, #s] ins(%q3, %kt : tensor<?x?x8xf32>, tensor<?x8x?xf32>)
      outs(%fs : tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %s4 = tensor.expand_shape %sc [[0, 1], [2], [3]] output_shape [%b, 4, %s, %s] : tensor<?x?x?xf32> into tensor<?x4x?x?xf32>
  %e4 = tensor.empty(%b, %s, %s) : tensor<?x4x?x?xf32>
  %sm = linalg.generic {indexing_maps = [#id4, #bj, #id4], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%s4, %mask : tensor<?x4x?x?xf32>, tensor<?x?xf32>) outs(%e4 : tensor<?x4x?x?xf32>) {
  ^bb0(%x: f32, %m: f32, %y: f32):
    %r = arith.addf %x, %m : f32
    linalg.yield %r : f32
  } -> tensor<?x4x?x?xf32>
  %s3 = tensor.collapse_shape %sm [[0, 1], [2], [3]] : tensor<?x4x?x?xf32> into tensor<?x?x?xf32>
  %p = attn.softmax %s3 dim 2 : tensor<?x?x?xf32>
  %eo = tensor.empty(%n, %s) : tensor<?x?x8xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<?x?x8xf32>) -> tensor<?x?x8xf32>
  %o = linalg.contract indexing_maps = [#w, #v, #o] ins(%p, %v3 : tensor<?x?x?xf32>, tensor<?x?x8xf32>)
      outs(%fo : tensor<?x?x8xf32>) -> tensor<?x?x8xf32>
  %r = tensor.expand_shape %o [[0, 1], [2], [3]] output_shape [%b, 4, %s, 8] : tensor<?x?x8xf32> into tensor<?x4x?x8xf32>
  return %r : tensor<?x4x?x8xf32>
}

// -----

// Two key heads repeated for six query heads: read at h floordiv 3. (Without the mask, that names the query position
// alone, the three heads and five positions of a group would be fifteen queries of one head.) The scale of the query moves into the region.

#id = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#id5 = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3, d4)>
#ij = affine_map<(d0, d1, d2, d3) -> (d2, d3)>
#rep = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d3, d4)>
#q = affine_map<(b, h, i, j, d) -> (b, h, i, d)>
#k = affine_map<(b, h, i, j, d) -> (b, h, j, d)>
#s = affine_map<(b, h, i, j, d) -> (b, h, i, j)>
#w = affine_map<(b, h, i, e, j) -> (b, h, i, j)>
#v = affine_map<(b, h, i, e, j) -> (b, h, j, e)>
#o = affine_map<(b, h, i, e, j) -> (b, h, i, e)>
// CHECK: #[[K:.+]] = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1 floordiv 3, d3, d4)>
// CHECK-LABEL: func.func @repeated_heads
// CHECK-SAME: %[[QUERY:[^:]+]]: tensor<2x6x5x8xf32>, %[[KEY:[^:]+]]: tensor<2x2x7x8xf32>, %[[VALUE:[^:]+]]: tensor<2x2x7x8xf32>
// CHECK-NOT: linalg
// CHECK: attn.attention masked_rows nan maps [#{{.+}}, #[[K]], #{{.+}}] ins(%[[QUERY]], %[[KEY]], %[[VALUE]]
// CHECK: %[[SCALE:.+]] = arith.constant 7.500000e-01 : f32
// CHECK: arith.mulf %{{.+}}, %[[SCALE]]
// CHECK: arith.select
func.func @repeated_heads(%q: tensor<2x6x5x8xf32>, %k: tensor<2x2x7x8xf32>, %v: tensor<2x2x7x8xf32>, %mask: tensor<5x7xi8>) -> tensor<2x6x5x8xf32> {
  %zero = arith.constant 0.0 : f32
  %ek = tensor.empty() : tensor<2x2x7x8xf32>
  %ks = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%k : tensor<2x2x7x8xf32>) outs(%ek : tensor<2x2x7x8xf32>) {
  ^bb0(%x: f32, %y: f32):
    %c = arith.constant 3.0 : f32
    %r = arith.mulf %c, %x : f32
    linalg.yield %r : f32
  } -> tensor<2x2x7x8xf32>
  %er = tensor.empty() : tensor<2x2x3x7x8xf32>
  %k5 = linalg.generic {indexing_maps = [#rep, #id5], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel"]}
      ins(%ks : tensor<2x2x7x8xf32>) outs(%er : tensor<2x2x3x7x8xf32>) {
  ^bb0(%x: f32, %y: f32):
    linalg.yield %x : f32
  } -> tensor<2x2x3x7x8xf32>
  %v5 = linalg.generic {indexing_maps = [#rep, #id5], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel"]}
      ins(%v : tensor<2x2x7x8xf32>) outs(%er : tensor<2x2x3x7x8xf32>) {
  ^bb0(%x: f32, %y: f32):
    linalg.yield %x : f32
  } -> tensor<2x2x3x7x8xf32>
  %k4 = tensor.collapse_shape %k5 [[0], [1, 2], [3], [4]] : tensor<2x2x3x7x8xf32> into tensor<2x6x7x8xf32>
  %v4 = tensor.collapse_shape %v5 [[0], [1, 2], [3], [4]] : tensor<2x2x3x7x8xf32> into tensor<2x6x7x8xf32>
  %eq = tensor.empty() : tensor<2x6x5x8xf32>
  %qs = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%q : tensor<2x6x5x8xf32>) outs(%eq : tensor<2x6x5x8xf32>) {
  ^bb0(%x: f32, %y: f32):
    %c = arith.constant 0.25 : f32
    %r = arith.mulf %x, %c : f32
    linalg.yield %r : f32
  } -> tensor<2x6x5x8xf32>
  %es = tensor.empty() : tensor<2x6x5x7xf32>
  %fs = linalg.fill ins(%zero : f32) outs(%es : tensor<2x6x5x7xf32>) -> tensor<2x6x5x7xf32>
  %sc = linalg.contract indexing_maps = [#q, #k, #s] ins(%qs, %k4 : tensor<2x6x5x8xf32>, tensor<2x6x7x8xf32>)
      outs(%fs : tensor<2x6x5x7xf32>) -> tensor<2x6x5x7xf32>
  %sm = linalg.generic {indexing_maps = [#id, #ij, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%sc, %mask : tensor<2x6x5x7xf32>, tensor<5x7xi8>) outs(%es : tensor<2x6x5x7xf32>) {
  ^bb0(%x: f32, %m: i8, %y: f32):
    %c0 = arith.constant 0 : i8
    %inf = arith.constant 0xFF800000 : f32
    %keep = arith.cmpi ne, %m, %c0 : i8
    %r = arith.select %keep, %x, %inf : f32
    linalg.yield %r : f32
  } -> tensor<2x6x5x7xf32>
  %p = attn.softmax %sm dim 3 : tensor<2x6x5x7xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eq : tensor<2x6x5x8xf32>) -> tensor<2x6x5x8xf32>
  %o = linalg.contract indexing_maps = [#w, #v, #o] ins(%p, %v4 : tensor<2x6x5x7xf32>, tensor<2x6x7x8xf32>)
      outs(%fo : tensor<2x6x5x8xf32>) -> tensor<2x6x5x8xf32>
  return %o : tensor<2x6x5x8xf32>
}

// -----

#q = affine_map<(b, i, j, d) -> (b, i, d)>
#k = affine_map<(b, i, j, d) -> (b, j, d)>
#s = affine_map<(b, i, j, d) -> (b, i, j)>
#w = affine_map<(b, i, e, j) -> (b, i, j)>
#v = affine_map<(b, i, e, j) -> (b, j, e)>
#o = affine_map<(b, i, e, j) -> (b, i, e)>
// Weights that are a result too are one of the attention.
// CHECK: attn.fusion_report = [{fused = true, kind = "dot", mask = "none", node = "", reason = "", reason_node = ""
// CHECK-LABEL: func.func @weights_returned
// CHECK-NOT: attn.softmax
// CHECK: %[[R:.*]], %[[W:.*]] = attn.attention
// CHECK-SAME: extras [#attn.extra<weights>]
// CHECK: return %[[R]], %[[W]]
func.func @weights_returned(%q: tensor<2x5x8xf32>, %k: tensor<2x7x8xf32>, %v: tensor<2x7x8xf32>) -> (tensor<2x5x8xf32>, tensor<2x5x7xf32>) {
  %zero = arith.constant 0.0 : f32
  %es = tensor.empty() : tensor<2x5x7xf32>
  %fs = linalg.fill ins(%zero : f32) outs(%es : tensor<2x5x7xf32>) -> tensor<2x5x7xf32>
  %sc = linalg.contract indexing_maps = [#q, #k, #s] ins(%q, %k : tensor<2x5x8xf32>, tensor<2x7x8xf32>)
      outs(%fs : tensor<2x5x7xf32>) -> tensor<2x5x7xf32>
  %p = attn.softmax %sc dim 2 : tensor<2x5x7xf32>
  %eo = tensor.empty() : tensor<2x5x8xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<2x5x8xf32>) -> tensor<2x5x8xf32>
  %o = linalg.contract indexing_maps = [#w, #v, #o] ins(%p, %v : tensor<2x5x7xf32>, tensor<2x7x8xf32>)
      outs(%fo : tensor<2x5x8xf32>) -> tensor<2x5x8xf32>
  return %o, %p : tensor<2x5x8xf32>, tensor<2x5x7xf32>
}

// -----

#w = affine_map<(b, e, j) -> (b, j)>
#v = affine_map<(b, e, j) -> (b, j, e)>
#o = affine_map<(b, e, j) -> (b, e)>
// What a bidirectional encoder wrote, [time][direction][batch][width]: the values of a key do not stand side by side,
// and are copied.
// CHECK-LABEL: func.func @both_directions
// CHECK: %[[T:.+]] = linalg.transpose
// CHECK: %[[V:.+]] = tensor.collapse_shape %{{.+}} {{\[\[}}0], [1], [2, 3]]
// CHECK: attn.attention kind given {{.*}}ins(%{{[^,]+}}, %[[V]]
func.func @both_directions(%s: tensor<3x7xf32>, %x: tensor<7x2x3x4xf32>) -> tensor<3x8xf32> {
  %zero = arith.constant 0.0 : f32
  %et = tensor.empty() : tensor<3x7x2x4xf32>
  %t = linalg.transpose ins(%x : tensor<7x2x3x4xf32>) outs(%et : tensor<3x7x2x4xf32>) permutation = [2, 0, 1, 3]
  %v = tensor.collapse_shape %t [[0], [1], [2, 3]] : tensor<3x7x2x4xf32> into tensor<3x7x8xf32>
  %p = attn.softmax %s dim 1 : tensor<3x7xf32>
  %eo = tensor.empty() : tensor<3x8xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<3x8xf32>) -> tensor<3x8xf32>
  %o = linalg.contract indexing_maps = [#w, #v, #o] ins(%p, %v : tensor<3x7xf32>, tensor<3x7x8xf32>)
      outs(%fo : tensor<3x8xf32>) -> tensor<3x8xf32>
  return %o : tensor<3x8xf32>
}

// -----

#q = affine_map<(b, i, j, d) -> (b, i, d)>
#k = affine_map<(b, i, j, d) -> (b, j, d)>
#s = affine_map<(b, i, j, d) -> (b, i, j)>
#w = affine_map<(b, i, e, j) -> (b, i, j)>
#v = affine_map<(b, i, e, j) -> (b, j, e)>
#o = affine_map<(b, i, e, j) -> (b, i, e)>
// What uses them before the weighted sum moves behind the attention.
// CHECK: attn.fusion_report = [{fused = true, kind = "dot", mask = "none", node = "", reason = "", reason_node = ""
// CHECK-LABEL: func.func @weights_used_before
// CHECK-NOT: attn.softmax
// CHECK: %[[R:.*]], %[[W:.*]] = attn.attention
// CHECK-SAME: extras [#attn.extra<weights>]
// CHECK: %[[T:.*]] = linalg.transpose ins(%[[W]]
// CHECK: return %[[R]], %[[T]]
func.func @weights_used_before(%q: tensor<2x5x8xf32>, %k: tensor<2x7x8xf32>, %v: tensor<2x7x8xf32>) -> (tensor<2x5x8xf32>, tensor<2x7x5xf32>) {
  %zero = arith.constant 0.0 : f32
  %es = tensor.empty() : tensor<2x5x7xf32>
  %fs = linalg.fill ins(%zero : f32) outs(%es : tensor<2x5x7xf32>) -> tensor<2x5x7xf32>
  %sc = linalg.contract indexing_maps = [#q, #k, #s] ins(%q, %k : tensor<2x5x8xf32>, tensor<2x7x8xf32>)
      outs(%fs : tensor<2x5x7xf32>) -> tensor<2x5x7xf32>
  %p = attn.softmax %sc dim 2 : tensor<2x5x7xf32>
  %et = tensor.empty() : tensor<2x7x5xf32>
  %t = linalg.transpose ins(%p : tensor<2x5x7xf32>) outs(%et : tensor<2x7x5xf32>) permutation = [0, 2, 1]
  %eo = tensor.empty() : tensor<2x5x8xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<2x5x8xf32>) -> tensor<2x5x8xf32>
  %o = linalg.contract indexing_maps = [#w, #v, #o] ins(%p, %v : tensor<2x5x7xf32>, tensor<2x7x8xf32>)
      outs(%fo : tensor<2x5x8xf32>) -> tensor<2x5x8xf32>
  return %o, %t : tensor<2x5x8xf32>, tensor<2x7x5xf32>
}

// -----

#q = affine_map<(b, i, j, d) -> (b, i, d)>
#k = affine_map<(b, i, j, d) -> (b, j, d)>
#s = affine_map<(b, i, j, d) -> (b, i, j)>
#t = affine_map<(b, i, e, j) -> (b, j, i)>
#v = affine_map<(b, i, e, j) -> (b, j, e)>
#o = affine_map<(b, i, e, j) -> (b, i, e)>
// What feeds the sum, too, is made once more of the attention's weights.
// CHECK: attn.fusion_report = [{fused = true, kind = "dot", mask = "none", node = "", reason = "", reason_node = ""
// CHECK-LABEL: func.func @weights_moved_first
// CHECK-NOT: attn.softmax
// CHECK: %[[R:.*]], %[[W:.*]] = attn.attention
// CHECK-SAME: extras [#attn.extra<weights>]
// CHECK: %[[T:.*]] = linalg.transpose ins(%[[W]]
// CHECK: return %[[R]], %[[T]]
func.func @weights_moved_first(%q: tensor<2x5x8xf32>, %k: tensor<2x7x8xf32>, %v: tensor<2x7x8xf32>) -> (tensor<2x5x8xf32>, tensor<2x7x5xf32>) {
  %zero = arith.constant 0.0 : f32
  %es = tensor.empty() : tensor<2x5x7xf32>
  %fs = linalg.fill ins(%zero : f32) outs(%es : tensor<2x5x7xf32>) -> tensor<2x5x7xf32>
  %sc = linalg.contract indexing_maps = [#q, #k, #s] ins(%q, %k : tensor<2x5x8xf32>, tensor<2x7x8xf32>)
      outs(%fs : tensor<2x5x7xf32>) -> tensor<2x5x7xf32>
  %p = attn.softmax %sc dim 2 : tensor<2x5x7xf32>
  %et = tensor.empty() : tensor<2x7x5xf32>
  %t = linalg.transpose ins(%p : tensor<2x5x7xf32>) outs(%et : tensor<2x7x5xf32>) permutation = [0, 2, 1]
  %eo = tensor.empty() : tensor<2x5x8xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<2x5x8xf32>) -> tensor<2x5x8xf32>
  %o = linalg.contract indexing_maps = [#t, #v, #o] ins(%t, %v : tensor<2x7x5xf32>, tensor<2x7x8xf32>)
      outs(%fo : tensor<2x5x8xf32>) -> tensor<2x5x8xf32>
  return %o, %t : tensor<2x5x8xf32>, tensor<2x7x5xf32>
}

// -----

#q = affine_map<(b, i, j, d) -> (b, i, d)>
#k = affine_map<(b, i, j, d) -> (b, j, d)>
#s = affine_map<(b, i, j, d) -> (b, i, j)>
#t = affine_map<(b, i, e, j) -> (b, j, i)>
#v = affine_map<(b, i, e, j) -> (b, j, e)>
#o = affine_map<(b, i, e, j) -> (b, i, e)>
#id = affine_map<(b, i, j) -> (b, i, j)>
// Near miss: weights that make the values, too, are needed before the sum.
// CHECK: attn.fusion_report = [{fused = true, kind = "dot", mask = "none", node = "", reason = "its weights are used elsewhere too, where they are computed again"
// CHECK-LABEL: func.func @weights_make_values
// CHECK: attn.softmax
// CHECK: attn.attention
// CHECK-NOT: extras
func.func @weights_make_values(%q: tensor<2x5x8xf32>, %k: tensor<2x7x8xf32>, %v: tensor<2x7x8xf32>) -> (tensor<2x5x8xf32>, tensor<2x7x5xf32>) {
  %zero = arith.constant 0.0 : f32
  %es = tensor.empty() : tensor<2x5x7xf32>
  %fs = linalg.fill ins(%zero : f32) outs(%es : tensor<2x5x7xf32>) -> tensor<2x5x7xf32>
  %sc = linalg.contract indexing_maps = [#q, #k, #s] ins(%q, %k : tensor<2x5x8xf32>, tensor<2x7x8xf32>)
      outs(%fs : tensor<2x5x7xf32>) -> tensor<2x5x7xf32>
  %p = attn.softmax %sc dim 2 : tensor<2x5x7xf32>
  %et = tensor.empty() : tensor<2x7x5xf32>
  %t = linalg.transpose ins(%p : tensor<2x5x7xf32>) outs(%et : tensor<2x7x5xf32>) permutation = [0, 2, 1]
  %gap = tensor.empty() : tensor<2x7x3xf32>
  %x = tensor.concat dim(2) %t, %gap : (tensor<2x7x5xf32>, tensor<2x7x3xf32>) -> tensor<2x7x8xf32>
  %ev = tensor.empty() : tensor<2x7x8xf32>
  %u = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%v, %x : tensor<2x7x8xf32>, tensor<2x7x8xf32>) outs(%ev : tensor<2x7x8xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %r = arith.addf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<2x7x8xf32>
  %eo = tensor.empty() : tensor<2x5x8xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<2x5x8xf32>) -> tensor<2x5x8xf32>
  %o = linalg.contract indexing_maps = [#t, #v, #o] ins(%t, %u : tensor<2x7x5xf32>, tensor<2x7x8xf32>)
      outs(%fo : tensor<2x5x8xf32>) -> tensor<2x5x8xf32>
  return %o, %t : tensor<2x5x8xf32>, tensor<2x7x5xf32>
}

// -----

#bj = affine_map<(b, j, e) -> (b, j)>
#bje = affine_map<(b, j, e) -> (b, j, e)>
#be = affine_map<(b, j, e) -> (b, e)>
// RETAIN: the weights of visits, times gates of features, which become heads; a result of the attention would repeat
// the weights for each of them.
// CHECK: attn.fusion_report = [{fused = true, {{.*}}its weights are used elsewhere too, where they are computed again"
// CHECK-LABEL: func.func @weights_of_all_heads
// CHECK: attn.softmax
// CHECK: attn.attention
// CHECK-NOT: extras
// CHECK: return
func.func @weights_of_all_heads(%s: tensor<2x7xf32>, %g: tensor<2x7x8xf32>, %v: tensor<2x7x8xf32>)
    -> (tensor<2x8xf32>, tensor<2x7xf32>) {
  %zero = arith.constant 0.0 : f32
  %p = attn.softmax %s dim 1 : tensor<2x7xf32>
  %ew = tensor.empty() : tensor<2x7x8xf32>
  %w = linalg.generic {indexing_maps = [#bj, #bje, #bje], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%p, %g : tensor<2x7xf32>, tensor<2x7x8xf32>) outs(%ew : tensor<2x7x8xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %r = arith.mulf %x, %y : f32
    linalg.yield %r : f32
  } -> tensor<2x7x8xf32>
  %eo = tensor.empty() : tensor<2x8xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<2x8xf32>) -> tensor<2x8xf32>
  %o = linalg.contract indexing_maps = [#bje, #bje, #be] ins(%w, %v : tensor<2x7x8xf32>, tensor<2x7x8xf32>)
      outs(%fo : tensor<2x8xf32>) -> tensor<2x8xf32>
  return %o, %p : tensor<2x8xf32>, tensor<2x7xf32>
}

// -----

#q = affine_map<(b, h, i, j, d) -> (b, i, h, d)>
#k = affine_map<(b, h, i, j, d) -> (b, j, h, d)>
#s = affine_map<(b, h, i, j, d) -> (b, h, i, j)>
#w = affine_map<(b, h, i, e, j) -> (b, h, i, j)>
#v = affine_map<(b, h, i, e, j) -> (b, j, h, e)>
#o = affine_map<(b, h, i, e, j) -> (b, h, i, e)>
// A size that is known apart from the type comes into the type of what is split.
// CHECK-LABEL: func.func @size_known_apart
// CHECK: tensor.expand_shape %{{.*}} output_shape [1, 5, 2, 8] : tensor<1x5x16xf32> into tensor<1x5x2x8xf32>
// CHECK: attn.attention
func.func @size_known_apart(%x: tensor<1x?x16xf32>, %k: tensor<1x7x2x8xf32>) -> tensor<1x2x5x8xf32> {
  %zero = arith.constant 0.0 : f32
  %c5 = arith.constant 5 : index
  %split = tensor.expand_shape %x [[0], [1], [2, 3]] output_shape [1, %c5, 2, 8] : tensor<1x?x16xf32> into tensor<1x?x2x8xf32>
  %q = tensor.cast %split : tensor<1x?x2x8xf32> to tensor<1x5x2x8xf32>
  %es = tensor.empty() : tensor<1x2x5x7xf32>
  %fs = linalg.fill ins(%zero : f32) outs(%es : tensor<1x2x5x7xf32>) -> tensor<1x2x5x7xf32>
  %sc = linalg.contract indexing_maps = [#q, #k, #s] ins(%q, %k : tensor<1x5x2x8xf32>, tensor<1x7x2x8xf32>)
      outs(%fs : tensor<1x2x5x7xf32>) -> tensor<1x2x5x7xf32>
  %p = attn.softmax %sc dim 3 : tensor<1x2x5x7xf32>
  %eo = tensor.empty() : tensor<1x2x5x8xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<1x2x5x8xf32>) -> tensor<1x2x5x8xf32>
  %o = linalg.contract indexing_maps = [#w, #v, #o] ins(%p, %k : tensor<1x2x5x7xf32>, tensor<1x7x2x8xf32>)
      outs(%fo : tensor<1x2x5x8xf32>) -> tensor<1x2x5x8xf32>
  return %o : tensor<1x2x5x8xf32>
}

// -----

#q = affine_map<(i, j, d) -> (i, d)>
#k = affine_map<(i, j, d) -> (j, d)>
#s = affine_map<(i, j, d) -> (i, j)>
#ij = affine_map<(i, j) -> (i, j)>
#w = affine_map<(i, e, j) -> (i, j)>
#v = affine_map<(i, e, j) -> (j, e)>
#o = affine_map<(i, e, j) -> (i, e)>
// A constant that is added in a half type, and a near miss: one that is no constant.
// CHECK: mask = "causal"{{.*}}mask = "dense"{{.*}}mask = "dense"
// CHECK-LABEL: func.func @half_mask
// What that one rounds may be a mask, of which a score that counts takes the steps; an infinite one hides all of it.
// CHECK: arith.select %{{.+}}, %{{.+}}, %{{.+}} : f32
// CHECK-NOT: truncf
// CHECK-LABEL: func.func @half_bias
// CHECK: arith.select %{{.+}}, %{{.+}}, %{{.+}} : f16
// CHECK: arith.addf
// CHECK-NEXT: arith.truncf
// CHECK-NEXT: arith.extf
// Nor is what scales such a sum.
// CHECK-LABEL: func.func @half_scaled
// CHECK: arith.addf
// CHECK-NEXT: arith.truncf
// CHECK-NEXT: arith.extf
// CHECK-NEXT: arith.mulf
// CHECK-NEXT: arith.truncf
// CHECK-NEXT: arith.extf
func.func @half_mask(%q: tensor<5x8xf16>, %k: tensor<7x8xf16>, %v: tensor<7x4xf16>) -> tensor<5x4xf16> {
  %zero = arith.constant 0.0 : f16
  %inf = arith.constant 0xFC00 : f16
  %e = tensor.empty() : tensor<5x7xf16>
  %f = linalg.fill ins(%zero : f16) outs(%e : tensor<5x7xf16>) -> tensor<5x7xf16>
  %s = linalg.contract indexing_maps = [#q, #k, #s] ins(%q, %k : tensor<5x8xf16>, tensor<7x8xf16>)
      outs(%f : tensor<5x7xf16>) -> tensor<5x7xf16>
  %m = linalg.generic {indexing_maps = [#ij, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%s : tensor<5x7xf16>) outs(%e : tensor<5x7xf16>) {
  ^bb0(%x: f16, %o: f16):
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %c = arith.cmpi sle, %j, %i : index
    %b = arith.select %c, %zero, %inf : f16
    %y = arith.extf %x : f16 to f32
    %z = arith.extf %b : f16 to f32
    %t = arith.addf %y, %z : f32
    %r = arith.truncf %t : f32 to f16
    linalg.yield %r : f16
  } -> tensor<5x7xf16>
  %p = attn.softmax %m dim 1 : tensor<5x7xf16>
  %eo = tensor.empty() : tensor<5x4xf16>
  %fo = linalg.fill ins(%zero : f16) outs(%eo : tensor<5x4xf16>) -> tensor<5x4xf16>
  %o = linalg.contract indexing_maps = [#w, #v, #o] ins(%p, %v : tensor<5x7xf16>, tensor<7x4xf16>)
      outs(%fo : tensor<5x4xf16>) -> tensor<5x4xf16>
  return %o : tensor<5x4xf16>
}
func.func @half_bias(%q: tensor<5x8xf16>, %k: tensor<7x8xf16>, %v: tensor<7x4xf16>, %m: tensor<5x7xf16>, %n: tensor<5x7xf16>) -> tensor<5x4xf16> {
  %zero = arith.constant 0.0 : f16
  %e = tensor.empty() : tensor<5x7xf16>
  %f = linalg.fill ins(%zero : f16) outs(%e : tensor<5x7xf16>) -> tensor<5x7xf16>
  %s = linalg.contract indexing_maps = [#q, #k, #s] ins(%q, %k : tensor<5x8xf16>, tensor<7x8xf16>)
      outs(%f : tensor<5x7xf16>) -> tensor<5x7xf16>
  %b = linalg.generic {indexing_maps = [#ij, #ij, #ij, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%s, %m, %n : tensor<5x7xf16>, tensor<5x7xf16>, tensor<5x7xf16>) outs(%e : tensor<5x7xf16>) {
  ^bb0(%x: f16, %a: f16, %d: f16, %o: f16):
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %c = arith.cmpi sle, %j, %i : index
    %u = arith.select %c, %a, %d : f16
    %y = arith.extf %x : f16 to f32
    %z = arith.extf %u : f16 to f32
    %t = arith.addf %y, %z : f32
    %r = arith.truncf %t : f32 to f16
    linalg.yield %r : f16
  } -> tensor<5x7xf16>
  %p = attn.softmax %b dim 1 : tensor<5x7xf16>
  %eo = tensor.empty() : tensor<5x4xf16>
  %fo = linalg.fill ins(%zero : f16) outs(%eo : tensor<5x4xf16>) -> tensor<5x4xf16>
  %o = linalg.contract indexing_maps = [#w, #v, #o] ins(%p, %v : tensor<5x7xf16>, tensor<7x4xf16>)
      outs(%fo : tensor<5x4xf16>) -> tensor<5x4xf16>
  return %o : tensor<5x4xf16>
}
func.func @half_scaled(%q: tensor<5x8xf16>, %k: tensor<7x8xf16>, %v: tensor<7x4xf16>, %m: tensor<5x7xf16>, %n: tensor<5x7xf16>) -> tensor<5x4xf16> {
  %zero = arith.constant 0.0 : f16
  %e = tensor.empty() : tensor<5x7xf16>
  %f = linalg.fill ins(%zero : f16) outs(%e : tensor<5x7xf16>) -> tensor<5x7xf16>
  %s = linalg.contract indexing_maps = [#q, #k, #s] ins(%q, %k : tensor<5x8xf16>, tensor<7x8xf16>)
      outs(%f : tensor<5x7xf16>) -> tensor<5x7xf16>
  %b = linalg.generic {indexing_maps = [#ij, #ij, #ij, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%s, %m, %n : tensor<5x7xf16>, tensor<5x7xf16>, tensor<5x7xf16>) outs(%e : tensor<5x7xf16>) {
  ^bb0(%x: f16, %a: f16, %d: f16, %o: f16):
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %c = arith.cmpi sle, %j, %i : index
    %u = arith.select %c, %a, %d : f16
    %y = arith.extf %x : f16 to f32
    %z = arith.extf %u : f16 to f32
    %t = arith.addf %y, %z : f32
    %sum = arith.truncf %t : f32 to f16
    %wide = arith.extf %sum : f16 to f32
    %eighth = arith.constant 0.125 : f32
    %scaled = arith.mulf %wide, %eighth : f32
    %r = arith.truncf %scaled : f32 to f16
    linalg.yield %r : f16
  } -> tensor<5x7xf16>
  %p = attn.softmax %b dim 1 : tensor<5x7xf16>
  %eo = tensor.empty() : tensor<5x4xf16>
  %fo = linalg.fill ins(%zero : f16) outs(%eo : tensor<5x4xf16>) -> tensor<5x4xf16>
  %o = linalg.contract indexing_maps = [#w, #v, #o] ins(%p, %v : tensor<5x7xf16>, tensor<7x4xf16>)
      outs(%fo : tensor<5x4xf16>) -> tensor<5x4xf16>
  return %o : tensor<5x4xf16>
}
