// RUN: attn-opt %s -attn-move-channels -canonicalize -split-input-file | FileCheck %s

#id3 = affine_map<(n, c, p) -> (n, c, p)>
// Between two transposes of one order.
// CHECK-LABEL: func.func @between
// CHECK-SAME: (%[[X:.+]]: tensor<1x49x64xf32>)
// CHECK-NOT: linalg.transpose
// CHECK: %[[Y:.+]] = linalg.generic {{.*}} ins(%[[X]] : tensor<1x49x64xf32>) outs(%{{.+}} : tensor<1x49x64xf32>)
// CHECK: return %[[Y]]
func.func @between(%x: tensor<1x49x64xf32>) -> tensor<1x49x64xf32> {
  %e = tensor.empty() : tensor<1x64x49xf32>
  %o = tensor.empty() : tensor<1x49x64xf32>
  %t = linalg.transpose ins(%x : tensor<1x49x64xf32>) outs(%e : tensor<1x64x49xf32>) permutation = [0, 2, 1]
  %y = linalg.generic {indexing_maps = [#id3, #id3], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%t : tensor<1x64x49xf32>) outs(%e : tensor<1x64x49xf32>) {
  ^bb0(%a: f32, %b: f32):
    %s = math.absf %a : f32
    linalg.yield %s : f32
  } -> tensor<1x64x49xf32>
  %z = linalg.transpose ins(%y : tensor<1x64x49xf32>) outs(%o : tensor<1x49x64xf32>) permutation = [0, 2, 1]
  return %z : tensor<1x49x64xf32>
}

// -----

#id4 = affine_map<(n, c, h, w) -> (n, c, h, w)>
#window = affine_map<(n, c, h, w, i, j) -> (n, c, h * 2 + i, w * 2 + j)>
#taps = affine_map<(n, c, h, w, i, j) -> (i, j, c)>
#places = affine_map<(n, c, h, w, i, j) -> (n, c, h, w)>
#channel = affine_map<(n, c, h, w) -> (c)>
#mean = affine_map<(n, c, h, w) -> (n, c)>
// A pad, a window and a sum over places; spatial dimensions are split behind the first transpose and joined before the
// last.
// CHECK-DAG: #[[WINDOW:.+]] = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1 * 2 + d4, d2 * 2 + d5, d3)>
// CHECK-DAG: #[[TAPS:.+]] = affine_map<(d0, d1, d2, d3, d4, d5) -> (d4, d5, d3)>
// CHECK-DAG: #[[LAST:.+]] = affine_map<(d0, d1, d2, d3) -> (d0, d2, d3, d1)>
// CHECK-LABEL: func.func @windows
// CHECK-SAME: (%[[X:.+]]: tensor<?x16x8xf32>, %[[W:.+]]: tensor<3x3x8xf32>
// CHECK-NOT: linalg.transpose
// CHECK: %[[SPLIT:.+]] = tensor.expand_shape %[[X]] {{\[\[}}0], [1, 2], [3]] output_shape [%{{.+}}, 4, 4, 8]
// CHECK: %[[PADDED:.+]] = tensor.pad %[[SPLIT]] low[0, 1, 1, 0] high[0, 1, 1, 0]
// CHECK: %[[Y:.+]] = linalg.generic {indexing_maps = [#[[WINDOW]], #[[TAPS]], #{{.+}}], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction"]} ins(%[[PADDED]], %[[W]]
// CHECK: %[[Z:.+]] = tensor.collapse_shape %[[Y]] {{\[\[}}0], [1, 2], [3]]
// CHECK: %[[M:.+]] = linalg.generic {indexing_maps = [#[[LAST]], #{{.+}}]{{.*}} ins(%[[Y]] : tensor<?x2x2x8xf32>)
// CHECK: return %[[Z]], %[[M]]
func.func @windows(%x: tensor<?x16x8xf32>, %w: tensor<3x3x8xf32>, %n: index) -> (tensor<?x4x8xf32>, tensor<?x8xf32>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty(%n) : tensor<?x8x16xf32>
  %t = linalg.transpose ins(%x : tensor<?x16x8xf32>) outs(%e : tensor<?x8x16xf32>) permutation = [0, 2, 1]
  %s = tensor.expand_shape %t [[0], [1], [2, 3]] output_shape [%n, 8, 4, 4] : tensor<?x8x16xf32> into tensor<?x8x4x4xf32>
  %p = tensor.pad %s low[0, 0, 1, 1] high[0, 0, 1, 1] {
  ^bb0(%a: index, %b: index, %c: index, %d: index):
    tensor.yield %zero : f32
  } : tensor<?x8x4x4xf32> to tensor<?x8x6x6xf32>
  %ye = tensor.empty(%n) : tensor<?x8x2x2xf32>
  %yi = linalg.fill ins(%zero : f32) outs(%ye : tensor<?x8x2x2xf32>) -> tensor<?x8x2x2xf32>
  %y = linalg.generic {indexing_maps = [#window, #taps, #places], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction"]}
      ins(%p, %w : tensor<?x8x6x6xf32>, tensor<3x3x8xf32>) outs(%yi : tensor<?x8x2x2xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %m = arith.mulf %a, %b : f32
    %r = arith.addf %c, %m : f32
    linalg.yield %r : f32
  } -> tensor<?x8x2x2xf32>
  %me = tensor.empty(%n) : tensor<?x8xf32>
  %mi = linalg.fill ins(%zero : f32) outs(%me : tensor<?x8xf32>) -> tensor<?x8xf32>
  %mean = linalg.generic {indexing_maps = [#id4, #mean], iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%y : tensor<?x8x2x2xf32>) outs(%mi : tensor<?x8xf32>) {
  ^bb0(%a: f32, %b: f32):
    %r = arith.addf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<?x8xf32>
  %j = tensor.collapse_shape %y [[0], [1], [2, 3]] : tensor<?x8x2x2xf32> into tensor<?x8x4xf32>
  %ze = tensor.empty(%n) : tensor<?x4x8xf32>
  %z = linalg.transpose ins(%j : tensor<?x8x4xf32>) outs(%ze : tensor<?x4x8xf32>) permutation = [0, 2, 1]
  return %z, %mean : tensor<?x4x8xf32>, tensor<?x8xf32>
}

// -----

#id4 = affine_map<(n, c, h, w) -> (n, c, h, w)>
// Parts of a concatenation, a part that is an input (transposed, as it is smaller than what is saved), and where an
// element stands.
// CHECK-LABEL: func.func @concat
// CHECK-SAME: (%[[X:.+]]: tensor<2x5x7x8xf32>, %[[I:.+]]: tensor<2x3x5x7xf32>)
// CHECK: %[[T:.+]] = linalg.transpose ins(%[[I]] : tensor<2x3x5x7xf32>) {{.*}} permutation = [0, 2, 3, 1]
// CHECK: %[[C:.+]] = tensor.concat dim(3) %[[X]], %[[T]]
// CHECK: %[[Y:.+]] = linalg.generic {{.*}} ins(%[[C]] : tensor<2x5x7x11xf32>)
// CHECK: linalg.index 3
// CHECK-NOT: linalg.transpose
// CHECK: return
func.func @concat(%x: tensor<2x5x7x8xf32>, %i: tensor<2x3x5x7xf32>) -> tensor<2x5x7x11xf32> {
  %e = tensor.empty() : tensor<2x8x5x7xf32>
  %t = linalg.transpose ins(%x : tensor<2x5x7x8xf32>) outs(%e : tensor<2x8x5x7xf32>) permutation = [0, 3, 1, 2]
  %c = tensor.concat dim(1) %t, %i : (tensor<2x8x5x7xf32>, tensor<2x3x5x7xf32>) -> tensor<2x11x5x7xf32>
  %ye = tensor.empty() : tensor<2x11x5x7xf32>
  %y = linalg.generic {indexing_maps = [#id4, #id4], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%c : tensor<2x11x5x7xf32>) outs(%ye : tensor<2x11x5x7xf32>) {
  ^bb0(%a: f32, %b: f32):
    %at = linalg.index 1 : index
    %n = arith.index_cast %at : index to i32
    %f = arith.sitofp %n : i32 to f32
    %s = arith.addf %a, %f : f32
    linalg.yield %s : f32
  } -> tensor<2x11x5x7xf32>
  %ze = tensor.empty() : tensor<2x5x7x11xf32>
  %z = linalg.transpose ins(%y : tensor<2x11x5x7xf32>) outs(%ze : tensor<2x5x7x11xf32>) permutation = [0, 2, 3, 1]
  return %z : tensor<2x5x7x11xf32>
}

// -----

#id4 = affine_map<(n, c, h, w) -> (n, c, h, w)>
// The result is asked for in the first order: as much would be transposed behind the op as before it.
// CHECK-LABEL: func.func @asked
// CHECK: %[[T:.+]] = linalg.transpose
// CHECK: %[[Y:.+]] = linalg.generic {{.*}} ins(%[[T]] :
// CHECK: return %[[Y]]
func.func @asked(%x: tensor<2x5x7x8xf32>) -> tensor<2x8x5x7xf32> {
  %e = tensor.empty() : tensor<2x8x5x7xf32>
  %t = linalg.transpose ins(%x : tensor<2x5x7x8xf32>) outs(%e : tensor<2x8x5x7xf32>) permutation = [0, 3, 1, 2]
  %y = linalg.generic {indexing_maps = [#id4, #id4], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%t : tensor<2x8x5x7xf32>) outs(%e : tensor<2x8x5x7xf32>) {
  ^bb0(%a: f32, %b: f32):
    %s = math.absf %a : f32
    linalg.yield %s : f32
  } -> tensor<2x8x5x7xf32>
  return %y : tensor<2x8x5x7xf32>
}

// -----

#id4 = affine_map<(n, c, h, w) -> (n, c, h, w)>
// Another order, and channels that are joined with the batch.
// CHECK-LABEL: func.func @others
// CHECK-COUNT-2: linalg.transpose
// CHECK: tensor.collapse_shape {{.*}} {{\[\[}}0, 1], [2], [3]]
func.func @others(%x: tensor<2x5x7x8xf32>, %u: tensor<2x5x8x7xf32>) -> (tensor<2x5x7x8xf32>, tensor<10x8x7xf32>) {
  %e = tensor.empty() : tensor<2x5x8x7xf32>
  %t = linalg.transpose ins(%x : tensor<2x5x7x8xf32>) outs(%e : tensor<2x5x8x7xf32>) permutation = [0, 1, 3, 2]
  %y = linalg.generic {indexing_maps = [#id4, #id4, #id4], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%t, %u : tensor<2x5x8x7xf32>, tensor<2x5x8x7xf32>) outs(%e : tensor<2x5x8x7xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %s = arith.addf %a, %b : f32
    linalg.yield %s : f32
  } -> tensor<2x5x8x7xf32>
  %ze = tensor.empty() : tensor<2x5x7x8xf32>
  %z = linalg.transpose ins(%y : tensor<2x5x8x7xf32>) outs(%ze : tensor<2x5x7x8xf32>) permutation = [0, 1, 3, 2]
  %j = tensor.collapse_shape %y [[0, 1], [2], [3]] : tensor<2x5x8x7xf32> into tensor<10x8x7xf32>
  return %z, %j : tensor<2x5x7x8xf32>, tensor<10x8x7xf32>
}

// -----

// A constant in the body of a pad.
// CHECK-LABEL: func.func @body
// CHECK-SAME: (%[[X:.+]]: tensor<1x4x4x8xf32>)
// CHECK: %[[ONE:.+]] = arith.constant 1.0
// CHECK-NOT: linalg.transpose
// CHECK: %[[P:.+]] = tensor.pad %[[X]] low[0, 0, 1, 0] high[0, 0, 1, 0]
// CHECK: tensor.yield %[[ONE]]
// CHECK: return %[[P]]
func.func @body(%x: tensor<1x4x4x8xf32>) -> tensor<1x4x6x8xf32> {
  %e = tensor.empty() : tensor<1x8x4x4xf32>
  %t = linalg.transpose ins(%x : tensor<1x4x4x8xf32>) outs(%e : tensor<1x8x4x4xf32>) permutation = [0, 3, 1, 2]
  %p = tensor.pad %t low[0, 0, 0, 1] high[0, 0, 0, 1] {
  ^bb0(%a: index, %b: index, %c: index, %d: index):
    %one = arith.constant 1.0 : f32
    tensor.yield %one : f32
  } : tensor<1x8x4x4xf32> to tensor<1x8x4x6xf32>
  %ze = tensor.empty() : tensor<1x4x6x8xf32>
  %z = linalg.transpose ins(%p : tensor<1x8x4x6xf32>) outs(%ze : tensor<1x4x6x8xf32>) permutation = [0, 2, 3, 1]
  return %z : tensor<1x4x6x8xf32>
}

// -----

#id4 = affine_map<(n, c, h, w) -> (n, c, h, w)>
#numbers = affine_map<(n, c, h, w, k) -> (n, c, k)>
#sums = affine_map<(n, c, h, w, k) -> (n, c, h, w)>
// A sum that starts from the group's result has the result's order: it is no sum over channels or places.
// CHECK-LABEL: func.func @start
// CHECK: %[[T:.+]] = linalg.transpose
// CHECK: %[[Y:.+]] = linalg.generic {{.*}} ins(%[[T]] :
// CHECK: %[[S:.+]] = linalg.generic {{.*}} outs(%[[Y]] : tensor<2x8x8x8xf32>)
// CHECK: return %[[S]]
func.func @start(%x: tensor<2x8x8x8xf32>, %k: tensor<2x8x3xf32>) -> tensor<2x8x8x8xf32> {
  %e = tensor.empty() : tensor<2x8x8x8xf32>
  %t = linalg.transpose ins(%x : tensor<2x8x8x8xf32>) outs(%e : tensor<2x8x8x8xf32>) permutation = [0, 3, 1, 2]
  %y = linalg.generic {indexing_maps = [#id4, #id4], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%t : tensor<2x8x8x8xf32>) outs(%e : tensor<2x8x8x8xf32>) {
  ^bb0(%a: f32, %b: f32):
    %s = math.absf %a : f32
    linalg.yield %s : f32
  } -> tensor<2x8x8x8xf32>
  %s = linalg.generic {indexing_maps = [#numbers, #sums], iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction"]}
      ins(%k : tensor<2x8x3xf32>) outs(%y : tensor<2x8x8x8xf32>) {
  ^bb0(%a: f32, %b: f32):
    %r = arith.addf %b, %a : f32
    linalg.yield %r : f32
  } -> tensor<2x8x8x8xf32>
  return %s : tensor<2x8x8x8xf32>
}
