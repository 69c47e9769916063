// RUN: attn-opt %s -attn-raise-contraction -split-input-file | FileCheck %s

#bj = affine_map<(b, j, e) -> (b, j)>
#all = affine_map<(b, j, e) -> (b, j, e)>
#be = affine_map<(b, j, e) -> (b, e)>
// CHECK-DAG: #[[BJ:.+]] = affine_map<(d0, d1, d2) -> (d0, d1)>
// CHECK-DAG: #[[ALL:.+]] = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
// CHECK-DAG: #[[BE:.+]] = affine_map<(d0, d1, d2) -> (d0, d2)>
// CHECK-LABEL: func.func @weighted_sum
// CHECK: %[[P:.+]] = attn.softmax
// CHECK: linalg.contract indexing_maps = [#[[BJ]], #[[ALL]], #[[BE]]] ins(%[[P]], %{{.+}} : tensor<2x7xf32>, tensor<2x7x8xf32>)
func.func @weighted_sum(%s: tensor<2x7xf32>, %v: tensor<2x7x8xf32>) -> tensor<2x8xf32> {
  %zero = arith.constant 0.0 : f32
  %p = attn.softmax %s dim 1 : tensor<2x7xf32>
  %ex = tensor.empty() : tensor<2x7x8xf32>
  %x = linalg.generic {indexing_maps = [#bj, #all, #all], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%p, %v : tensor<2x7xf32>, tensor<2x7x8xf32>) outs(%ex : tensor<2x7x8xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %r = arith.mulf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<2x7x8xf32>
  %ec = tensor.empty() : tensor<2x8xf32>
  %fc = linalg.fill ins(%zero : f32) outs(%ec : tensor<2x8xf32>) -> tensor<2x8xf32>
  %c = linalg.generic {indexing_maps = [#all, #be], iterator_types = ["parallel", "reduction", "parallel"]}
      ins(%x : tensor<2x7x8xf32>) outs(%fc : tensor<2x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %r = arith.addf %o, %a : f32
    linalg.yield %r : f32
  } -> tensor<2x8xf32>
  return %c : tensor<2x8xf32>
}

// -----

#all = affine_map<(b, j) -> (b, j)>
#row = affine_map<(b, j) -> (b)>
// No softmax near: stays one loop.
// CHECK-LABEL: func.func @elsewhere
// CHECK-NOT: linalg.contract
func.func @elsewhere(%s: tensor<2x7xf32>, %v: tensor<2x7xf32>) -> tensor<2xf32> {
  %zero = arith.constant 0.0 : f32
  %ex = tensor.empty() : tensor<2x7xf32>
  %x = linalg.generic {indexing_maps = [#all, #all, #all], iterator_types = ["parallel", "parallel"]}
      ins(%s, %v : tensor<2x7xf32>, tensor<2x7xf32>) outs(%ex : tensor<2x7xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %r = arith.mulf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<2x7xf32>
  %ec = tensor.empty() : tensor<2xf32>
  %fc = linalg.fill ins(%zero : f32) outs(%ec : tensor<2xf32>) -> tensor<2xf32>
  %c = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<2x7xf32>) outs(%fc : tensor<2xf32>) {
  ^bb0(%a: f32, %o: f32):
    %r = arith.addf %o, %a : f32
    linalg.yield %r : f32
  } -> tensor<2xf32>
  return %c : tensor<2xf32>
}

// -----

#bj = affine_map<(b, j, e) -> (b, j)>
#all = affine_map<(b, j, e) -> (b, j, e)>
#be = affine_map<(b, j, e) -> (b, e)>
// A product that is rounded to the half type of its factors before the sum in f32.
// CHECK-LABEL: func.func @rounded_product
// CHECK: linalg.contract {{.*}} ins(%{{.+}}, %{{.+}} : tensor<2x7xf16>, tensor<2x7x8xf16>) outs(%{{.+}} : tensor<2x8xf32>)
func.func @rounded_product(%s: tensor<2x7xf16>, %v: tensor<2x7x8xf16>) -> tensor<2x8xf32> {
  %zero = arith.constant 0.0 : f32
  %p = attn.softmax %s dim 1 : tensor<2x7xf16>
  %ex = tensor.empty() : tensor<2x7x8xf16>
  %x = linalg.generic {indexing_maps = [#bj, #all, #all], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%p, %v : tensor<2x7xf16>, tensor<2x7x8xf16>) outs(%ex : tensor<2x7x8xf16>) {
  ^bb0(%a: f16, %b: f16, %o: f16):
    %wa = arith.extf %a : f16 to f32
    %wb = arith.extf %b : f16 to f32
    %r = arith.mulf %wa, %wb : f32
    %t = arith.truncf %r : f32 to f16
    linalg.yield %t : f16
  } -> tensor<2x7x8xf16>
  %ec = tensor.empty() : tensor<2x8xf32>
  %fc = linalg.fill ins(%zero : f32) outs(%ec : tensor<2x8xf32>) -> tensor<2x8xf32>
  %c = linalg.generic {indexing_maps = [#all, #be], iterator_types = ["parallel", "reduction", "parallel"]}
      ins(%x : tensor<2x7x8xf16>) outs(%fc : tensor<2x8xf32>) {
  ^bb0(%a: f16, %o: f32):
    %w = arith.extf %a : f16 to f32
    %r = arith.addf %o, %w : f32
    linalg.yield %r : f32
  } -> tensor<2x8xf32>
  return %c : tensor<2x8xf32>
}

// -----

#all = affine_map<(b, u, j) -> (b, u, j)>
#bj = affine_map<(b, u, j) -> (b, j)>
// A sum over a dimension of size 1 is a reshape; over another size it is none.
// CHECK-LABEL: func.func @unit_sum
// CHECK: %[[R:.+]] = tensor.collapse_shape %{{.+}} {{\[\[}}0], [1, 2]] : tensor<2x1x7xf32> into tensor<2x7xf32>
// CHECK: %[[S:.+]] = linalg.generic {{.*}}"reduction"
// CHECK: return %[[R]], %[[S]]
func.func @unit_sum(%x: tensor<2x1x7xf32>, %y: tensor<2x?x7xf32>) -> (tensor<2x7xf32>, tensor<2x7xf32>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<2x7xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<2x7xf32>) -> tensor<2x7xf32>
  %r = linalg.generic {indexing_maps = [#all, #bj], iterator_types = ["parallel", "reduction", "parallel"]}
      ins(%x : tensor<2x1x7xf32>) outs(%f : tensor<2x7xf32>) {
  ^bb0(%a: f32, %o: f32):
    %t = arith.addf %o, %a : f32
    linalg.yield %t : f32
  } -> tensor<2x7xf32>
  %s = linalg.generic {indexing_maps = [#all, #bj], iterator_types = ["parallel", "reduction", "parallel"]}
      ins(%y : tensor<2x?x7xf32>) outs(%f : tensor<2x7xf32>) {
  ^bb0(%a: f32, %o: f32):
    %t = arith.addf %o, %a : f32
    linalg.yield %t : f32
  } -> tensor<2x7xf32>
  return %r, %s : tensor<2x7xf32>, tensor<2x7xf32>
}

// -----

#bj = affine_map<(b, j, e) -> (b, j)>
#all = affine_map<(b, j, e) -> (b, j, e)>
#be = affine_map<(b, j, e) -> (b, e)>
#id = affine_map<(b, j) -> (b, j)>
#row = affine_map<(b, j) -> (b)>
// Scores over their own sum are weights, too. Near miss: over the sum of something else.
// CHECK-LABEL: func.func @own_sum
// CHECK: linalg.contract {{.*}} ins(%{{.+}}, %{{.+}} : tensor<2x7xf32>, tensor<2x7x8xf32>)
// CHECK-NOT: linalg.contract
func.func @own_sum(%s: tensor<2x7xf32>, %t: tensor<2x7xf32>, %v: tensor<2x7x8xf32>) -> (tensor<2x8xf32>, tensor<2x8xf32>) {
  %zero = arith.constant 0.0 : f32
  %er = tensor.empty() : tensor<2xf32>
  %fr = linalg.fill ins(%zero : f32) outs(%er : tensor<2xf32>) -> tensor<2xf32>
  %total = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%s : tensor<2x7xf32>) outs(%fr : tensor<2xf32>) {
  ^bb0(%a: f32, %o: f32):
    %r = arith.addf %o, %a : f32
    linalg.yield %r : f32
  } -> tensor<2xf32>
  %ew = tensor.empty() : tensor<2x7xf32>
  %p = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%s, %total : tensor<2x7xf32>, tensor<2xf32>) outs(%ew : tensor<2x7xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %r = arith.divf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<2x7xf32>
  %n = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%t, %total : tensor<2x7xf32>, tensor<2xf32>) outs(%ew : tensor<2x7xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %r = arith.divf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<2x7xf32>
  %ex = tensor.empty() : tensor<2x7x8xf32>
  %x = linalg.generic {indexing_maps = [#bj, #all, #all], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%p, %v : tensor<2x7xf32>, tensor<2x7x8xf32>) outs(%ex : tensor<2x7x8xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %r = arith.mulf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<2x7x8xf32>
  %y = linalg.generic {indexing_maps = [#bj, #all, #all], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%n, %v : tensor<2x7xf32>, tensor<2x7x8xf32>) outs(%ex : tensor<2x7x8xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %r = arith.mulf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<2x7x8xf32>
  %ec = tensor.empty() : tensor<2x8xf32>
  %fc = linalg.fill ins(%zero : f32) outs(%ec : tensor<2x8xf32>) -> tensor<2x8xf32>
  %c = linalg.generic {indexing_maps = [#all, #be], iterator_types = ["parallel", "reduction", "parallel"]}
      ins(%x : tensor<2x7x8xf32>) outs(%fc : tensor<2x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %r = arith.addf %o, %a : f32
    linalg.yield %r : f32
  } -> tensor<2x8xf32>
  %d = linalg.generic {indexing_maps = [#all, #be], iterator_types = ["parallel", "reduction", "parallel"]}
      ins(%y : tensor<2x7x8xf32>) outs(%fc : tensor<2x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %r = arith.addf %o, %a : f32
    linalg.yield %r : f32
  } -> tensor<2x8xf32>
  return %c, %d : tensor<2x8xf32>, tensor<2x8xf32>
}

// -----

#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
// The sum over one key by which its terms are divided stays a sum; near miss: the one that divides something else.
// CHECK-LABEL: func.func @one_key
// CHECK: linalg.generic {{.*}} iterator_types = ["parallel", "reduction"]
// CHECK-LABEL: func.func @one_column
// CHECK-NOT: reduction
// CHECK: tensor.collapse_shape
func.func @one_key(%x: tensor<5x1xf32>) -> tensor<5x1xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<5xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<5xf32>) -> tensor<5xf32>
  %s = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<5x1xf32>) outs(%f : tensor<5xf32>) {
  ^bb0(%a: f32, %t: f32):
    %r = arith.addf %t, %a : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %o = tensor.empty() : tensor<5x1xf32>
  %y = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x, %s : tensor<5x1xf32>, tensor<5xf32>) outs(%o : tensor<5x1xf32>) {
  ^bb0(%a: f32, %t: f32, %out: f32):
    %r = arith.divf %a, %t : f32
    linalg.yield %r : f32
  } -> tensor<5x1xf32>
  return %y : tensor<5x1xf32>
}
func.func @one_column(%x: tensor<5x1xf32>, %z: tensor<5x1xf32>) -> tensor<5x1xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<5xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<5xf32>) -> tensor<5xf32>
  %s = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<5x1xf32>) outs(%f : tensor<5xf32>) {
  ^bb0(%a: f32, %t: f32):
    %r = arith.addf %t, %a : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %o = tensor.empty() : tensor<5x1xf32>
  %y = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%z, %s : tensor<5x1xf32>, tensor<5xf32>) outs(%o : tensor<5x1xf32>) {
  ^bb0(%a: f32, %t: f32, %out: f32):
    %r = arith.divf %a, %t : f32
    linalg.yield %r : f32
  } -> tensor<5x1xf32>
  return %y : tensor<5x1xf32>
}

// -----

#h = affine_map<(h, i, j) -> (h, i, j)>
#w = affine_map<(h, i, e, j) -> (h, i, j)>
#v = affine_map<(h, i, e, j) -> (h, j, e)>
#o = affine_map<(h, i, e, j) -> (h, i, e)>
// (a - b) v of two softmaxes is a v - b v. Weights that come from one softmax alone stay one sum.
// CHECK-LABEL: func.func @two_softmaxes
// CHECK: %[[A:.*]] = attn.softmax %arg0
// CHECK: %[[B:.*]] = attn.softmax %arg1
// CHECK: %[[X:.*]] = linalg.contract {{.*}} ins(%[[A]], %arg2
// CHECK: %[[Y:.*]] = linalg.contract {{.*}} ins(%[[B]], %arg2
// CHECK: linalg.generic {{.*}} ins(%[[X]], %[[Y]]
// CHECK: arith.subf
func.func @two_softmaxes(%s: tensor<2x?x?xf32>, %t: tensor<2x?x?xf32>, %x: tensor<2x?x4xf32>, %m: index, %n: index) -> tensor<2x?x4xf32> {
  %zero = arith.constant 0.0 : f32
  %a = attn.softmax %s dim 2 : tensor<2x?x?xf32>
  %b = attn.softmax %t dim 2 : tensor<2x?x?xf32>
  %e = tensor.empty(%m, %n) : tensor<2x?x?xf32>
  %d = linalg.generic {indexing_maps = [#h, #h, #h], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%a, %b : tensor<2x?x?xf32>, tensor<2x?x?xf32>) outs(%e : tensor<2x?x?xf32>) {
  ^bb0(%p: f32, %q: f32, %out: f32):
    %r = arith.subf %p, %q : f32
    linalg.yield %r : f32
  } -> tensor<2x?x?xf32>
  %eo = tensor.empty(%m) : tensor<2x?x4xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<2x?x4xf32>) -> tensor<2x?x4xf32>
  %y = linalg.contract indexing_maps = [#w, #v, #o] ins(%d, %x : tensor<2x?x?xf32>, tensor<2x?x4xf32>)
      outs(%fo : tensor<2x?x4xf32>) -> tensor<2x?x4xf32>
  return %y : tensor<2x?x4xf32>
}
// CHECK-LABEL: func.func @one_softmax
// CHECK: linalg.contract
// CHECK-NOT: linalg.contract
// CHECK: return
func.func @one_softmax(%s: tensor<2x?x?xf32>, %t: tensor<2x?x?xf32>, %x: tensor<2x?x4xf32>, %m: index, %n: index) -> tensor<2x?x4xf32> {
  %zero = arith.constant 0.0 : f32
  %a = attn.softmax %s dim 2 : tensor<2x?x?xf32>
  %e = tensor.empty(%m, %n) : tensor<2x?x?xf32>
  %d = linalg.generic {indexing_maps = [#h, #h, #h], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%a, %t : tensor<2x?x?xf32>, tensor<2x?x?xf32>) outs(%e : tensor<2x?x?xf32>) {
  ^bb0(%p: f32, %q: f32, %out: f32):
    %r = arith.subf %p, %q : f32
    linalg.yield %r : f32
  } -> tensor<2x?x?xf32>
  %eo = tensor.empty(%m) : tensor<2x?x4xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<2x?x4xf32>) -> tensor<2x?x4xf32>
  %y = linalg.contract indexing_maps = [#w, #v, #o] ins(%d, %x : tensor<2x?x?xf32>, tensor<2x?x4xf32>)
      outs(%fo : tensor<2x?x4xf32>) -> tensor<2x?x4xf32>
  return %y : tensor<2x?x4xf32>
}

// -----

#h = affine_map<(h, i, j) -> (h, i, j)>
#w = affine_map<(h, i, e, j) -> (h, i, j)>
#v = affine_map<(h, i, e, j) -> (h, j, e)>
#o = affine_map<(h, i, e, j) -> (h, i, e)>
// Differential attention: both are places of one softmax, along the dimension behind the heads.
// CHECK-DAG: #[[W:.*]] = affine_map<(d0, d1, d2, d3, d4) -> (d0, d4, d1, d3)>
// CHECK-DAG: #[[V:.*]] = affine_map<(d0, d1, d2, d3, d4) -> (d0, d3, d2)>
// CHECK-DAG: #[[O:.*]] = affine_map<(d0, d1, d2, d3, d4) -> (d0, d4, d1, d2)>
// CHECK-LABEL: func.func @two_places
// CHECK: %[[P:.*]] = attn.softmax %arg0
// CHECK: %[[X:.*]] = linalg.contract indexing_maps = [#[[W]], #[[V]], #[[O]]] ins(%[[P]], %arg1
// CHECK: tensor.extract_slice %[[X]][0, 0, 0, 0] [3, 1, %{{.*}}, 4]
// CHECK: linalg.contract indexing_maps = [#[[W]], #[[V]], #[[O]]] ins(%[[P]], %arg1
// CHECK: tensor.extract_slice %{{.*}}[0, 1, 0, 0] [3, 1, %{{.*}}, 4]
// CHECK: arith.mulf
// CHECK: arith.subf
func.func @two_places(%s: tensor<3x2x?x?xf32>, %x: tensor<3x?x4xf32>) -> tensor<3x?x4xf32> {
  %zero = arith.constant 0.0 : f32
  %half = arith.constant 0.5 : f32
  %two = arith.constant 2 : index
  %three = arith.constant 3 : index
  %m = tensor.dim %s, %two : tensor<3x2x?x?xf32>
  %n = tensor.dim %s, %three : tensor<3x2x?x?xf32>
  %p = attn.softmax %s dim 3 : tensor<3x2x?x?xf32>
  %a = tensor.extract_slice %p[0, 0, 0, 0] [3, 1, %m, %n] [1, 1, 1, 1] : tensor<3x2x?x?xf32> to tensor<3x?x?xf32>
  %b1 = tensor.extract_slice %p[0, 1, 0, 0] [3, 1, %m, %n] [1, 1, 1, 1] : tensor<3x2x?x?xf32> to tensor<3x1x?x?xf32>
  %b = tensor.collapse_shape %b1 [[0, 1], [2], [3]] : tensor<3x1x?x?xf32> into tensor<3x?x?xf32>
  %e = tensor.empty(%m, %n) : tensor<3x?x?xf32>
  %c = linalg.generic {indexing_maps = [#h, #h], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%b : tensor<3x?x?xf32>) outs(%e : tensor<3x?x?xf32>) {
  ^bb0(%q: f32, %out: f32):
    %r = arith.mulf %q, %half : f32
    linalg.yield %r : f32
  } -> tensor<3x?x?xf32>
  %d = linalg.generic {indexing_maps = [#h, #h, #h], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%a, %c : tensor<3x?x?xf32>, tensor<3x?x?xf32>) outs(%e : tensor<3x?x?xf32>) {
  ^bb0(%q: f32, %t: f32, %out: f32):
    %r = arith.subf %q, %t : f32
    linalg.yield %r : f32
  } -> tensor<3x?x?xf32>
  %eo = tensor.empty(%m) : tensor<3x?x4xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<3x?x4xf32>) -> tensor<3x?x4xf32>
  %y = linalg.contract indexing_maps = [#w, #v, #o] ins(%d, %x : tensor<3x?x?xf32>, tensor<3x?x4xf32>)
      outs(%fo : tensor<3x?x4xf32>) -> tensor<3x?x4xf32>
  return %y : tensor<3x?x4xf32>
}

// -----

#h = affine_map<(h, i, j) -> (h, i, j)>
#f = affine_map<(h, i, j) -> (h)>
#w = affine_map<(h, i, e, j) -> (h, i, j)>
#v = affine_map<(h, i, e, j) -> (h, j, e)>
#o = affine_map<(h, i, e, j) -> (h, i, e)>
// A factor in f16 of a sum in f32.
// CHECK-LABEL: func.func @half_factor
// CHECK: %[[X:.*]] = linalg.contract {{.*}} -> tensor<3x2x5x4xf32>
// CHECK: %[[Y:.*]] = tensor.extract_slice %[[X]][0, 1, 0, 0]
// CHECK: linalg.generic {{.*}} ins(%arg2, %[[Y]] : tensor<3xf16>, tensor<3x5x4xf32>)
// CHECK: arith.extf
// CHECK: arith.mulf {{.*}} : f32
func.func @half_factor(%s: tensor<3x2x5x7xf16>, %x: tensor<3x7x4xf16>, %c: tensor<3xf16>) -> tensor<3x5x4xf32> {
  %zero = arith.constant 0.0 : f32
  %p = attn.softmax %s dim 3 : tensor<3x2x5x7xf16>
  %b = tensor.extract_slice %p[0, 1, 0, 0] [3, 1, 5, 7] [1, 1, 1, 1] : tensor<3x2x5x7xf16> to tensor<3x5x7xf16>
  %e = tensor.empty() : tensor<3x5x7xf16>
  %d = linalg.generic {indexing_maps = [#h, #f, #h], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%b, %c : tensor<3x5x7xf16>, tensor<3xf16>) outs(%e : tensor<3x5x7xf16>) {
  ^bb0(%q: f16, %t: f16, %out: f16):
    %r = arith.mulf %q, %t : f16
    linalg.yield %r : f16
  } -> tensor<3x5x7xf16>
  %eo = tensor.empty() : tensor<3x5x4xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<3x5x4xf32>) -> tensor<3x5x4xf32>
  %y = linalg.contract indexing_maps = [#w, #v, #o] ins(%d, %x : tensor<3x5x7xf16>, tensor<3x7x4xf16>)
      outs(%fo : tensor<3x5x4xf32>) -> tensor<3x5x4xf32>
  return %y : tensor<3x5x4xf32>
}

// -----

#p = affine_map<(b, i, j, h) -> (b, h, i, j)>
#r = affine_map<(b, i, j, h) -> (b, i, j)>
#w = affine_map<(b, i, e, j) -> (b, i, j)>
#v = affine_map<(b, i, e, j) -> (b, j, e)>
#o = affine_map<(b, i, e, j) -> (b, i, e)>
// Heads that share their values: the sum of their weights weighs the values as each head does, summed.
// CHECK-DAG: #[[W:.*]] = affine_map<(d0, d1, d2, d3, d4) -> (d0, d4, d1, d3)>
// CHECK-DAG: #[[V:.*]] = affine_map<(d0, d1, d2, d3, d4) -> (d0, d3, d2)>
// CHECK-DAG: #[[O:.*]] = affine_map<(d0, d1, d2, d3, d4) -> (d0, d4, d1, d2)>
// CHECK-LABEL: func.func @sum_of_heads
// CHECK: %[[P:.*]] = attn.softmax %arg0
// CHECK: %[[X:.*]] = linalg.contract indexing_maps = [#[[W]], #[[V]], #[[O]]] ins(%[[P]], %arg1
// CHECK: linalg.reduce ins(%[[X]] {{.*}} dimensions = [1]
func.func @sum_of_heads(%s: tensor<2x3x?x?xf32>, %x: tensor<2x?x4xf32>, %m: index, %n: index) -> tensor<2x?x4xf32> {
  %zero = arith.constant 0.0 : f32
  %a = attn.softmax %s dim 3 : tensor<2x3x?x?xf32>
  %e = tensor.empty(%m, %n) : tensor<2x?x?xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<2x?x?xf32>) -> tensor<2x?x?xf32>
  %d = linalg.generic {indexing_maps = [#p, #r], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%a : tensor<2x3x?x?xf32>) outs(%f : tensor<2x?x?xf32>) {
  ^bb0(%p: f32, %out: f32):
    %t = arith.addf %p, %out : f32
    linalg.yield %t : f32
  } -> tensor<2x?x?xf32>
  %eo = tensor.empty(%m) : tensor<2x?x4xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<2x?x4xf32>) -> tensor<2x?x4xf32>
  %y = linalg.contract indexing_maps = [#w, #v, #o] ins(%d, %x : tensor<2x?x?xf32>, tensor<2x?x4xf32>)
      outs(%fo : tensor<2x?x4xf32>) -> tensor<2x?x4xf32>
  return %y : tensor<2x?x4xf32>
}
// A softmax over the queries: its weighted sum is no attention's, and stays one product.
// CHECK-LABEL: func.func @over_queries
// CHECK: linalg.generic
// CHECK: linalg.contract
// CHECK-NOT: linalg.reduce
// CHECK: return
func.func @over_queries(%s: tensor<2x3x?x?xf32>, %x: tensor<2x?x4xf32>, %m: index, %n: index) -> tensor<2x?x4xf32> {
  %zero = arith.constant 0.0 : f32
  %a = attn.softmax %s dim 2 : tensor<2x3x?x?xf32>
  %e = tensor.empty(%m, %n) : tensor<2x?x?xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<2x?x?xf32>) -> tensor<2x?x?xf32>
  %d = linalg.generic {indexing_maps = [#p, #r], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%a : tensor<2x3x?x?xf32>) outs(%f : tensor<2x?x?xf32>) {
  ^bb0(%p: f32, %out: f32):
    %t = arith.addf %p, %out : f32
    linalg.yield %t : f32
  } -> tensor<2x?x?xf32>
  %eo = tensor.empty(%m) : tensor<2x?x4xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<2x?x4xf32>) -> tensor<2x?x4xf32>
  %y = linalg.contract indexing_maps = [#w, #v, #o] ins(%d, %x : tensor<2x?x?xf32>, tensor<2x?x4xf32>)
      outs(%fo : tensor<2x?x4xf32>) -> tensor<2x?x4xf32>
  return %y : tensor<2x?x4xf32>
}

// -----

#w = affine_map<(b, g, i, e, k) -> (b, g, i, k)>
#all = affine_map<(b, g, i, e, k) -> (b, k, e)>
#own = affine_map<(b, g, i, e, k) -> (b, g, k, e)>
#o = affine_map<(b, g, i, e, k) -> (b, g, i, e)>
#id = affine_map<(b, g, i, e) -> (b, g, i, e)>
// Global keys and those of a block, of which each has its part of one softmax: one sum over both. The global values are
// repeated for each block.
// CHECK-DAG: #[[W:.*]] = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d4)>
// CHECK-DAG: #[[V:.*]] = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d4, d3)>
// CHECK-LABEL: func.func @global_and_local
// CHECK: %[[P:.*]] = attn.softmax
// CHECK: tensor.insert_slice {{.*}}[0, 0, 0, 0]
// CHECK: %[[X:.*]] = tensor.insert_slice {{.*}}[0, 0, 2, 0]
// CHECK: %[[Y:.*]] = linalg.contract indexing_maps = [#[[W]], #[[V]], #{{.*}}] ins(%[[P]], %[[X]]
// CHECK: return %[[Y]]
func.func @global_and_local(%s: tensor<2x3x4x7xf32>, %x: tensor<2x2x8xf32>, %y: tensor<2x3x5x8xf32>) -> tensor<2x3x4x8xf32> {
  %zero = arith.constant 0.0 : f32
  %p = attn.softmax %s dim 3 : tensor<2x3x4x7xf32>
  %l = tensor.extract_slice %p[0, 0, 0, 0] [2, 3, 4, 2] [1, 1, 1, 1] : tensor<2x3x4x7xf32> to tensor<2x3x4x2xf32>
  %r = tensor.extract_slice %p[0, 0, 0, 2] [2, 3, 4, 5] [1, 1, 1, 1] : tensor<2x3x4x7xf32> to tensor<2x3x4x5xf32>
  %e = tensor.empty() : tensor<2x3x4x8xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<2x3x4x8xf32>) -> tensor<2x3x4x8xf32>
  %a = linalg.contract indexing_maps = [#w, #all, #o] ins(%l, %x : tensor<2x3x4x2xf32>, tensor<2x2x8xf32>)
      outs(%f : tensor<2x3x4x8xf32>) -> tensor<2x3x4x8xf32>
  %b = linalg.contract indexing_maps = [#w, #own, #o] ins(%r, %y : tensor<2x3x4x5xf32>, tensor<2x3x5x8xf32>)
      outs(%f : tensor<2x3x4x8xf32>) -> tensor<2x3x4x8xf32>
  %t = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%b, %a : tensor<2x3x4x8xf32>, tensor<2x3x4x8xf32>) outs(%e : tensor<2x3x4x8xf32>) {
  ^bb0(%m: f32, %n: f32, %out: f32):
    %u = arith.addf %m, %n : f32
    linalg.yield %u : f32
  } -> tensor<2x3x4x8xf32>
  return %t : tensor<2x3x4x8xf32>
}
// One key between both parts is in neither: they stay two sums.
// CHECK-LABEL: func.func @key_left_out
// CHECK-COUNT-2: linalg.contract
// CHECK: return
func.func @key_left_out(%s: tensor<2x3x4x8xf32>, %x: tensor<2x2x8xf32>, %y: tensor<2x3x5x8xf32>) -> tensor<2x3x4x8xf32> {
  %zero = arith.constant 0.0 : f32
  %p = attn.softmax %s dim 3 : tensor<2x3x4x8xf32>
  %l = tensor.extract_slice %p[0, 0, 0, 0] [2, 3, 4, 2] [1, 1, 1, 1] : tensor<2x3x4x8xf32> to tensor<2x3x4x2xf32>
  %r = tensor.extract_slice %p[0, 0, 0, 3] [2, 3, 4, 5] [1, 1, 1, 1] : tensor<2x3x4x8xf32> to tensor<2x3x4x5xf32>
  %e = tensor.empty() : tensor<2x3x4x8xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<2x3x4x8xf32>) -> tensor<2x3x4x8xf32>
  %a = linalg.contract indexing_maps = [#w, #all, #o] ins(%l, %x : tensor<2x3x4x2xf32>, tensor<2x2x8xf32>)
      outs(%f : tensor<2x3x4x8xf32>) -> tensor<2x3x4x8xf32>
  %b = linalg.contract indexing_maps = [#w, #own, #o] ins(%r, %y : tensor<2x3x4x5xf32>, tensor<2x3x5x8xf32>)
      outs(%f : tensor<2x3x4x8xf32>) -> tensor<2x3x4x8xf32>
  %t = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%b, %a : tensor<2x3x4x8xf32>, tensor<2x3x4x8xf32>) outs(%e : tensor<2x3x4x8xf32>) {
  ^bb0(%m: f32, %n: f32, %out: f32):
    %u = arith.addf %m, %n : f32
    linalg.yield %u : f32
  } -> tensor<2x3x4x8xf32>
  return %t : tensor<2x3x4x8xf32>
}

// -----

#w = affine_map<(y, x, e, k) -> (y, x, k)>
#row = affine_map<(y, x, e, k) -> (y, k, e)>
#column = affine_map<(y, x, e, k) -> (k, x, e)>
#o = affine_map<(y, x, e, k) -> (y, x, e)>
#id = affine_map<(y, x, e) -> (y, x, e)>
// A pixel's row and its column (criss-cross attention): joined, each pixel would have a copy of both. They stay two
// sums.
// CHECK-LABEL: func.func @row_and_column
// CHECK: attn.softmax
// CHECK-COUNT-2: linalg.contract {{.*}} -> tensor<4x5x8xf32>
// CHECK-NOT: tensor.insert_slice
// CHECK: return
func.func @row_and_column(%s: tensor<4x5x9xf32>, %v: tensor<4x5x8xf32>) -> tensor<4x5x8xf32> {
  %zero = arith.constant 0.0 : f32
  %p = attn.softmax %s dim 2 : tensor<4x5x9xf32>
  %l = tensor.extract_slice %p[0, 0, 0] [4, 5, 4] [1, 1, 1] : tensor<4x5x9xf32> to tensor<4x5x4xf32>
  %r = tensor.extract_slice %p[0, 0, 4] [4, 5, 5] [1, 1, 1] : tensor<4x5x9xf32> to tensor<4x5x5xf32>
  %e = tensor.empty() : tensor<4x5x8xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<4x5x8xf32>) -> tensor<4x5x8xf32>
  %a = linalg.contract indexing_maps = [#w, #column, #o] ins(%l, %v : tensor<4x5x4xf32>, tensor<4x5x8xf32>)
      outs(%f : tensor<4x5x8xf32>) -> tensor<4x5x8xf32>
  %b = linalg.contract indexing_maps = [#w, #row, #o] ins(%r, %v : tensor<4x5x5xf32>, tensor<4x5x8xf32>)
      outs(%f : tensor<4x5x8xf32>) -> tensor<4x5x8xf32>
  %t = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%a, %b : tensor<4x5x8xf32>, tensor<4x5x8xf32>) outs(%e : tensor<4x5x8xf32>) {
  ^bb0(%m: f32, %n: f32, %out: f32):
    %u = arith.addf %m, %n : f32
    linalg.yield %u : f32
  } -> tensor<4x5x8xf32>
  return %t : tensor<4x5x8xf32>
}

// -----

#x = affine_map<(b, n, j, m) -> (b, n, m)>
#y = affine_map<(b, n, j, m) -> (b, m, j)>
#xy = affine_map<(b, n, j, m) -> (b, n, j)>
#w = affine_map<(b, n, e, j) -> (b, n, j)>
#v = affine_map<(b, n, e, j) -> (b, j, e)>
#o = affine_map<(b, n, e, j) -> (b, n, e)>
// Both directions of a co-attention: (x y) v is x (y v), which is two weighted sums; y stands transposed.
// CHECK-DAG: #[[A:.*]] = affine_map<(d0, d1, d2, d3) -> (d0, d3, d2)>
// CHECK-DAG: #[[B:.*]] = affine_map<(d0, d1, d2, d3) -> (d0, d2, d1)>
// CHECK-DAG: #[[C:.*]] = affine_map<(d0, d1, d2, d3) -> (d0, d3, d1)>
// CHECK-DAG: #[[D:.*]] = affine_map<(d0, d1, d2, d3) -> (d0, d1, d3)>
// CHECK-DAG: #[[E:.*]] = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>
// CHECK-LABEL: func.func @both_ways
// CHECK: %[[X:.*]] = attn.softmax %arg0 dim 2
// CHECK: %[[Y:.*]] = attn.softmax %arg0 dim 1
// CHECK: %[[T:.*]] = linalg.transpose ins(%[[Y]]
// CHECK: %[[V:.*]] = linalg.contract indexing_maps = [#[[A]], #[[B]], #[[C]]] ins(%[[T]], %arg1 : tensor<2x?x?xf32>, tensor<2x?x4xf32>)
// CHECK: %[[O:.*]] = linalg.contract indexing_maps = [#[[D]], #[[A]], #[[E]]] ins(%[[X]], %[[V]] : tensor<2x?x?xf32>, tensor<2x?x4xf32>)
// CHECK: return %[[O]]
func.func @both_ways(%s: tensor<2x?x?xf32>, %v: tensor<2x?x4xf32>, %n: index, %m: index) -> tensor<2x?x4xf32> {
  %zero = arith.constant 0.0 : f32
  %x = attn.softmax %s dim 2 : tensor<2x?x?xf32>
  %p = attn.softmax %s dim 1 : tensor<2x?x?xf32>
  %et = tensor.empty(%m, %n) : tensor<2x?x?xf32>
  %y = linalg.transpose ins(%p : tensor<2x?x?xf32>) outs(%et : tensor<2x?x?xf32>) permutation = [0, 2, 1]
  %e = tensor.empty(%n, %n) : tensor<2x?x?xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<2x?x?xf32>) -> tensor<2x?x?xf32>
  %xy = linalg.contract indexing_maps = [#x, #y, #xy] ins(%x, %y : tensor<2x?x?xf32>, tensor<2x?x?xf32>)
      outs(%f : tensor<2x?x?xf32>) -> tensor<2x?x?xf32>
  %eo = tensor.empty(%n) : tensor<2x?x4xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<2x?x4xf32>) -> tensor<2x?x4xf32>
  %o = linalg.contract indexing_maps = [#w, #v, #o] ins(%xy, %v : tensor<2x?x?xf32>, tensor<2x?x4xf32>)
      outs(%fo : tensor<2x?x4xf32>) -> tensor<2x?x4xf32>
  return %o : tensor<2x?x4xf32>
}
// The softmax of y is over what x is summed over: x (y v) would be no weighted sum.
// CHECK-LABEL: func.func @same_way
// CHECK: linalg.contract {{.*}} -> tensor<2x6x6xf32>
// CHECK: linalg.contract {{.*}} -> tensor<2x6x4xf32>
func.func @same_way(%s: tensor<2x6x3xf32>, %t: tensor<2x3x6xf32>, %v: tensor<2x6x4xf32>) -> tensor<2x6x4xf32> {
  %zero = arith.constant 0.0 : f32
  %x = attn.softmax %s dim 2 : tensor<2x6x3xf32>
  %y = attn.softmax %t dim 1 : tensor<2x3x6xf32>
  %e = tensor.empty() : tensor<2x6x6xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<2x6x6xf32>) -> tensor<2x6x6xf32>
  %xy = linalg.contract indexing_maps = [#x, #y, #xy] ins(%x, %y : tensor<2x6x3xf32>, tensor<2x3x6xf32>)
      outs(%f : tensor<2x6x6xf32>) -> tensor<2x6x6xf32>
  %eo = tensor.empty() : tensor<2x6x4xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<2x6x4xf32>) -> tensor<2x6x4xf32>
  %o = linalg.contract indexing_maps = [#w, #v, #o] ins(%xy, %v : tensor<2x6x6xf32>, tensor<2x6x4xf32>)
      outs(%fo : tensor<2x6x4xf32>) -> tensor<2x6x4xf32>
  return %o : tensor<2x6x4xf32>
}
// The product of the weights is an output, too, and made anyway.
// CHECK-LABEL: func.func @product_used
// CHECK: linalg.contract {{.*}} -> tensor<2x6x6xf32>
// CHECK: linalg.contract {{.*}} -> tensor<2x6x4xf32>
func.func @product_used(%s: tensor<2x6x3xf32>, %t: tensor<2x3x6xf32>, %v: tensor<2x6x4xf32>) -> (tensor<2x6x4xf32>, tensor<2x6x6xf32>) {
  %zero = arith.constant 0.0 : f32
  %x = attn.softmax %s dim 2 : tensor<2x6x3xf32>
  %y = attn.softmax %t dim 2 : tensor<2x3x6xf32>
  %e = tensor.empty() : tensor<2x6x6xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<2x6x6xf32>) -> tensor<2x6x6xf32>
  %xy = linalg.contract indexing_maps = [#x, #y, #xy] ins(%x, %y : tensor<2x6x3xf32>, tensor<2x3x6xf32>)
      outs(%f : tensor<2x6x6xf32>) -> tensor<2x6x6xf32>
  %eo = tensor.empty() : tensor<2x6x4xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<2x6x4xf32>) -> tensor<2x6x4xf32>
  %o = linalg.contract indexing_maps = [#w, #v, #o] ins(%xy, %v : tensor<2x6x6xf32>, tensor<2x6x4xf32>)
      outs(%fo : tensor<2x6x4xf32>) -> tensor<2x6x4xf32>
  return %o, %xy : tensor<2x6x4xf32>, tensor<2x6x6xf32>
}
// It is an output as it is before it is transposed.
// CHECK-LABEL: func.func @transposed_product_used
// CHECK: linalg.contract {{.*}} -> tensor<2x6x6xf32>
// CHECK: linalg.contract {{.*}} -> tensor<2x6x4xf32>
func.func @transposed_product_used(%s: tensor<2x6x3xf32>, %t: tensor<2x3x6xf32>, %v: tensor<2x6x4xf32>) -> (tensor<2x6x4xf32>, tensor<2x6x6xf32>) {
  %zero = arith.constant 0.0 : f32
  %x = attn.softmax %s dim 2 : tensor<2x6x3xf32>
  %y = attn.softmax %t dim 2 : tensor<2x3x6xf32>
  %e = tensor.empty() : tensor<2x6x6xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<2x6x6xf32>) -> tensor<2x6x6xf32>
  %yx = linalg.contract indexing_maps = [#x, #y, affine_map<(b, n, j, m) -> (b, j, n)>]
      ins(%x, %y : tensor<2x6x3xf32>, tensor<2x3x6xf32>) outs(%f : tensor<2x6x6xf32>) -> tensor<2x6x6xf32>
  %xy = linalg.transpose ins(%yx : tensor<2x6x6xf32>) outs(%e : tensor<2x6x6xf32>) permutation = [0, 2, 1]
  %eo = tensor.empty() : tensor<2x6x4xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<2x6x4xf32>) -> tensor<2x6x4xf32>
  %o = linalg.contract indexing_maps = [#w, #v, #o] ins(%xy, %v : tensor<2x6x6xf32>, tensor<2x6x4xf32>)
      outs(%fo : tensor<2x6x4xf32>) -> tensor<2x6x4xf32>
  return %o, %yx : tensor<2x6x4xf32>, tensor<2x6x6xf32>
}
// Two rows that weigh 64 others: y v would take a sum of values for each of these.
// CHECK-LABEL: func.func @few_rows
// CHECK: linalg.contract {{.*}} -> tensor<2x2x64xf32>
// CHECK: linalg.contract {{.*}} -> tensor<2x2x32xf32>
func.func @few_rows(%s: tensor<2x2x64xf32>, %t: tensor<2x64x64xf32>, %v: tensor<2x64x32xf32>) -> tensor<2x2x32xf32> {
  %zero = arith.constant 0.0 : f32
  %x = attn.softmax %s dim 2 : tensor<2x2x64xf32>
  %y = attn.softmax %t dim 2 : tensor<2x64x64xf32>
  %e = tensor.empty() : tensor<2x2x64xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<2x2x64xf32>) -> tensor<2x2x64xf32>
  %xy = linalg.contract indexing_maps = [#x, #y, #xy] ins(%x, %y : tensor<2x2x64xf32>, tensor<2x64x64xf32>)
      outs(%f : tensor<2x2x64xf32>) -> tensor<2x2x64xf32>
  %eo = tensor.empty() : tensor<2x2x32xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<2x2x32xf32>) -> tensor<2x2x32xf32>
  %o = linalg.contract indexing_maps = [#w, #v, #o] ins(%xy, %v : tensor<2x2x64xf32>, tensor<2x64x32xf32>)
      outs(%fo : tensor<2x2x32xf32>) -> tensor<2x2x32xf32>
  return %o : tensor<2x2x32xf32>
}

// -----

#x = affine_map<(h, g, i, j) -> (i, g, h)>
#y = affine_map<(h, g, i, j) -> (i, h, j)>
#xy = affine_map<(h, g, i, j) -> (i, g, j)>
#w = affine_map<(i, g, e, j) -> (i, g, j)>
#v = affine_map<(i, g, e, j) -> (g, j, e)>
#o = affine_map<(i, g, e, j) -> (i, g, e)>
// Heads mixed by weights of their own, with values for each: each head would weigh the values of all.
// CHECK-LABEL: func.func @mixed_heads
// CHECK: linalg.contract {{.*}} -> tensor<6x3x5xf32>
// CHECK: linalg.contract {{.*}} -> tensor<6x3x4xf32>
func.func @mixed_heads(%s: tensor<6x3x3xf32>, %t: tensor<6x3x5xf32>, %v: tensor<3x5x4xf32>) -> tensor<6x3x4xf32> {
  %zero = arith.constant 0.0 : f32
  %x = attn.softmax %s dim 2 : tensor<6x3x3xf32>
  %y = attn.softmax %t dim 2 : tensor<6x3x5xf32>
  %e = tensor.empty() : tensor<6x3x5xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<6x3x5xf32>) -> tensor<6x3x5xf32>
  %xy = linalg.contract indexing_maps = [#x, #y, #xy] ins(%x, %y : tensor<6x3x3xf32>, tensor<6x3x5xf32>)
      outs(%f : tensor<6x3x5xf32>) -> tensor<6x3x5xf32>
  %eo = tensor.empty() : tensor<6x3x4xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<6x3x4xf32>) -> tensor<6x3x4xf32>
  %o = linalg.contract indexing_maps = [#w, #v, #o] ins(%xy, %v : tensor<6x3x5xf32>, tensor<3x5x4xf32>)
      outs(%fo : tensor<6x3x4xf32>) -> tensor<6x3x4xf32>
  return %o : tensor<6x3x4xf32>
}
