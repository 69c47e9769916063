// RUN: attn-opt %s -attn-raise-softmax -split-input-file | FileCheck %s

#id = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#row = affine_map<(d0, d1, d2) -> (d0, d1)>
// Maximum, difference, exponential, sum and quotient, with kept unit dimensions between.
// CHECK-LABEL: func.func @five_ops
// CHECK-SAME: %[[S:[^:]+]]: tensor<?x5x?xf32>
// CHECK: %[[P:.+]] = attn.softmax %[[S]] dim 2
// CHECK: return %[[P]]
func.func @five_ops(%s: tensor<?x5x?xf32>, %b: index, %n: index) -> tensor<?x5x?xf32> {
  %low = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %er = tensor.empty(%b) : tensor<?x5xf32>
  %fm = linalg.fill ins(%low : f32) outs(%er : tensor<?x5xf32>) -> tensor<?x5xf32>
  %m = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%s : tensor<?x5x?xf32>) outs(%fm : tensor<?x5xf32>) {
  ^bb0(%x: f32, %y: f32):
    %r = arith.maximumf %y, %x : f32
    linalg.yield %r : f32
  } -> tensor<?x5xf32>
  %m1 = tensor.expand_shape %m [[0], [1, 2]] output_shape [%b, 5, 1] : tensor<?x5xf32> into tensor<?x5x1xf32>
  %m2 = tensor.collapse_shape %m1 [[0], [1, 2]] : tensor<?x5x1xf32> into tensor<?x5xf32>
  %es = tensor.empty(%b, %n) : tensor<?x5x?xf32>
  %d = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%s, %m2 : tensor<?x5x?xf32>, tensor<?x5xf32>) outs(%es : tensor<?x5x?xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %r = arith.subf %x, %y : f32
    linalg.yield %r : f32
  } -> tensor<?x5x?xf32>
  %e = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%d : tensor<?x5x?xf32>) outs(%es : tensor<?x5x?xf32>) {
  ^bb0(%x: f32, %o: f32):
    %r = math.exp %x : f32
    linalg.yield %r : f32
  } -> tensor<?x5x?xf32>
  %fz = linalg.fill ins(%zero : f32) outs(%er : tensor<?x5xf32>) -> tensor<?x5xf32>
  %z = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%e : tensor<?x5x?xf32>) outs(%fz : tensor<?x5xf32>) {
  ^bb0(%x: f32, %y: f32):
    %r = arith.addf %y, %x : f32
    linalg.yield %r : f32
  } -> tensor<?x5xf32>
  %p = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%e, %z : tensor<?x5x?xf32>, tensor<?x5xf32>) outs(%es : tensor<?x5x?xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %r = arith.divf %x, %y : f32
    linalg.yield %r : f32
  } -> tensor<?x5x?xf32>
  return %p : tensor<?x5x?xf32>
}

// -----

#id = affine_map<(d0, d1) -> (d0, d1)>
#col = affine_map<(d0, d1) -> (d1)>
#one = affine_map<(d0) -> (d0)>
#merged = affine_map<(d0, d1, d2) -> (d2)>
#id3 = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#col3 = affine_map<(d0, d1, d2) -> (d2)>
// Over dimension 0, no maximum, a product by the reciprocal, and a reshape between exponential and quotient: the
// softmax is taken where the exponential was.
// CHECK-LABEL: func.func @reciprocal
// CHECK-SAME: %[[S:[^:]+]]: tensor<6x4xf32>
// CHECK: %[[P:.+]] = attn.softmax %[[S]] dim 0 : tensor<6x4xf32>
// CHECK: %[[V:.+]] = tensor.expand_shape %[[P]] {{\[\[}}0, 1], [2]] output_shape [2, 3, 4]
// CHECK: return %[[V]]
func.func @reciprocal(%s: tensor<6x4xf32>) -> tensor<2x3x4xf32> {
  %zero = arith.constant 0.0 : f32
  %es = tensor.empty() : tensor<6x4xf32>
  %e3 = tensor.empty() : tensor<2x3x4xf32>
  %er = tensor.empty() : tensor<4xf32>
  %e = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%s : tensor<6x4xf32>) outs(%es : tensor<6x4xf32>) {
  ^bb0(%x: f32, %o: f32):
    %r = math.exp %x : f32
    linalg.yield %r : f32
  } -> tensor<6x4xf32>
  %v = tensor.expand_shape %e [[0, 1], [2]] output_shape [2, 3, 4] : tensor<6x4xf32> into tensor<2x3x4xf32>
  %fz = linalg.fill ins(%zero : f32) outs(%er : tensor<4xf32>) -> tensor<4xf32>
  %z = linalg.generic {indexing_maps = [#id3, #merged], iterator_types = ["reduction", "reduction", "parallel"]}
      ins(%v : tensor<2x3x4xf32>) outs(%fz : tensor<4xf32>) {
  ^bb0(%x: f32, %y: f32):
    %r = arith.addf %x, %y : f32
    linalg.yield %r : f32
  } -> tensor<4xf32>
  %i = linalg.generic {indexing_maps = [#one, #one], iterator_types = ["parallel"]} ins(%z : tensor<4xf32>) outs(%er : tensor<4xf32>) {
  ^bb0(%x: f32, %o: f32):
    %c = arith.constant 1.0 : f32
    %r = arith.divf %c, %x : f32
    linalg.yield %r : f32
  } -> tensor<4xf32>
  %p = linalg.generic {indexing_maps = [#id3, #col3, #id3], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%v, %i : tensor<2x3x4xf32>, tensor<4xf32>) outs(%e3 : tensor<2x3x4xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %r = arith.mulf %x, %y : f32
    linalg.yield %r : f32
  } -> tensor<2x3x4xf32>
  return %p : tensor<2x3x4xf32>
}

// -----

#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
#col = affine_map<(d0, d1) -> (d1)>
// The sum of row i divides column i: no softmax.
// CHECK-LABEL: func.func @other_dimension
// CHECK-NOT: attn.softmax
// CHECK: return
func.func @other_dimension(%s: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %zero = arith.constant 0.0 : f32
  %es = tensor.empty() : tensor<4x4xf32>
  %er = tensor.empty() : tensor<4xf32>
  %e = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%s : tensor<4x4xf32>) outs(%es : tensor<4x4xf32>) {
  ^bb0(%x: f32, %o: f32):
    %r = math.exp %x : f32
    linalg.yield %r : f32
  } -> tensor<4x4xf32>
  %fz = linalg.fill ins(%zero : f32) outs(%er : tensor<4xf32>) -> tensor<4xf32>
  %z = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%e : tensor<4x4xf32>) outs(%fz : tensor<4xf32>) {
  ^bb0(%x: f32, %y: f32):
    %r = arith.addf %x, %y : f32
    linalg.yield %r : f32
  } -> tensor<4xf32>
  %p = linalg.generic {indexing_maps = [#id, #col, #id], iterator_types = ["parallel", "parallel"]}
      ins(%e, %z : tensor<4x4xf32>, tensor<4xf32>) outs(%es : tensor<4x4xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %r = arith.divf %x, %y : f32
    linalg.yield %r : f32
  } -> tensor<4x4xf32>
  return %p : tensor<4x4xf32>
}

// -----

#id = affine_map<(d0, d1) -> (d0, d1)>
// CHECK-LABEL: func.func @exp_of_log
// CHECK: attn.softmax %{{.+}} dim 1 : tensor<4x4xf32>
func.func @exp_of_log(%s: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %l = attn.softmax %s dim 1 log : tensor<4x4xf32>
  %es = tensor.empty() : tensor<4x4xf32>
  %e = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%l : tensor<4x4xf32>) outs(%es : tensor<4x4xf32>) {
  ^bb0(%x: f32, %o: f32):
    %r = math.exp %x : f32
    linalg.yield %r : f32
  } -> tensor<4x4xf32>
  return %e : tensor<4x4xf32>
}

// -----

#id = affine_map<(d0, d1) -> (d0, d1)>
// Views between: of sizes that a run knows, and into another order. What is not the logarithm itself stays.
// CHECK-LABEL: func.func @exp_of_log_behind_views
// CHECK: %[[P:.*]] = attn.softmax %{{.+}} dim 1 : tensor<?x?xf32>
// CHECK: %[[C:.*]] = tensor.cast %[[P]] : tensor<?x?xf32> to tensor<4x6xf32>
// CHECK: %[[T:.*]] = linalg.transpose ins(%[[C]]
// CHECK: %[[M:.*]] = attn.softmax %{{.+}} dim 1 log
// CHECK: %[[N:.*]] = linalg.generic {{.*}} ins(%[[M]]
// CHECK: arith.negf
// CHECK: return %[[T]], %{{.*}}
func.func @exp_of_log_behind_views(%s: tensor<?x?xf32>, %q: tensor<6x4xf32>) -> (tensor<6x4xf32>, tensor<6x4xf32>) {
  %l = attn.softmax %s dim 1 log : tensor<?x?xf32>
  %c = tensor.cast %l : tensor<?x?xf32> to tensor<4x6xf32>
  %es = tensor.empty() : tensor<6x4xf32>
  %t = linalg.transpose ins(%c : tensor<4x6xf32>) outs(%es : tensor<6x4xf32>) permutation = [1, 0]
  %e = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%t : tensor<6x4xf32>) outs(%es : tensor<6x4xf32>) {
  ^bb0(%x: f32, %o: f32):
    %r = math.exp %x : f32
    linalg.yield %r : f32
  } -> tensor<6x4xf32>
  %m = attn.softmax %q dim 1 log : tensor<6x4xf32>
  %n = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%m : tensor<6x4xf32>) outs(%es : tensor<6x4xf32>) {
  ^bb0(%x: f32, %o: f32):
    %y = arith.negf %x : f32
    %r = math.exp %y : f32
    linalg.yield %r : f32
  } -> tensor<6x4xf32>
  return %e, %n : tensor<6x4xf32>, tensor<6x4xf32>
}

// -----

#id = affine_map<(d0, d1) -> (d0, d1)>
// A view that has other inputs, too, before the one that it moves.
// CHECK-LABEL: func.func @exp_of_log_behind_another_input
// CHECK-SAME: %[[S:[^:]+]]: tensor<4x4xf32>
// CHECK: %[[P:.+]] = attn.softmax %[[S]] dim 1 :
// CHECK: %[[V:.+]] = linalg.generic {{.*}} ins(%{{.+}}, %[[P]] :
// CHECK: return %[[V]]
func.func @exp_of_log_behind_another_input(%s: tensor<4x4xf32>, %u: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %l = attn.softmax %s dim 1 log : tensor<4x4xf32>
  %m = attn.softmax %u dim 1 log : tensor<4x4xf32>
  %es = tensor.empty() : tensor<4x4xf32>
  %v = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%m, %l : tensor<4x4xf32>, tensor<4x4xf32>) outs(%es : tensor<4x4xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    linalg.yield %y : f32
  } -> tensor<4x4xf32>
  %e = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%v : tensor<4x4xf32>) outs(%es : tensor<4x4xf32>) {
  ^bb0(%x: f32, %o: f32):
    %r = math.exp %x : f32
    linalg.yield %r : f32
  } -> tensor<4x4xf32>
  return %e : tensor<4x4xf32>
}

// -----

#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
#w = affine_map<(i, e, j) -> (i, j)>
#v = affine_map<(i, e, j) -> (j, e)>
#o = affine_map<(i, e, j) -> (i, e)>
// The same behind the weighted sum, which is divided first.
// CHECK-LABEL: func.func @divided_behind_another_input
// CHECK-SAME: %[[S:[^:]+]]: tensor<4x6xf32>
// CHECK: %[[P:.+]] = attn.softmax %[[S]] dim 1 :
// CHECK: %[[Y:.+]] = linalg.contract {{.*}} ins(%[[P]],
// CHECK: %[[T:.+]] = linalg.generic {{.*}} ins(%{{.+}}, %[[Y]] :
// CHECK: return %[[T]]
func.func @divided_behind_another_input(%s: tensor<4x6xf32>, %v: tensor<6x3xf32>, %u: tensor<4x3xf32>) -> tensor<4x3xf32> {
  %zero = arith.constant 0.0 : f32
  %es = tensor.empty() : tensor<4x6xf32>
  %er = tensor.empty() : tensor<4xf32>
  %ey = tensor.empty() : tensor<4x3xf32>
  %fr = linalg.fill ins(%zero : f32) outs(%er : tensor<4xf32>) -> tensor<4xf32>
  %fy = linalg.fill ins(%zero : f32) outs(%ey : tensor<4x3xf32>) -> tensor<4x3xf32>
  %e = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%s : tensor<4x6xf32>) outs(%es : tensor<4x6xf32>) {
  ^bb0(%x: f32, %o: f32):
    %r = math.exp %x : f32
    linalg.yield %r : f32
  } -> tensor<4x6xf32>
  %l = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%e : tensor<4x6xf32>) outs(%fr : tensor<4xf32>) {
  ^bb0(%x: f32, %o: f32):
    %r = arith.addf %o, %x : f32
    linalg.yield %r : f32
  } -> tensor<4xf32>
  %y = linalg.contract indexing_maps = [#w, #v, #o] ins(%e, %v : tensor<4x6xf32>, tensor<6x3xf32>)
      outs(%fy : tensor<4x3xf32>) -> tensor<4x3xf32>
  %t = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%u, %y : tensor<4x3xf32>, tensor<4x3xf32>) outs(%ey : tensor<4x3xf32>) {
  ^bb0(%x: f32, %z: f32, %o: f32):
    linalg.yield %z : f32
  } -> tensor<4x3xf32>
  %q = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%t, %l : tensor<4x3xf32>, tensor<4xf32>) outs(%ey : tensor<4x3xf32>) {
  ^bb0(%x: f32, %z: f32, %o: f32):
    %r = arith.divf %x, %z : f32
    linalg.yield %r : f32
  } -> tensor<4x3xf32>
  return %q : tensor<4x3xf32>
}

// -----

#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
// 32 (s / 32 - max(s / 32)), by which half types keep their range.
// CHECK-LABEL: func.func @scaled_shift
// CHECK-SAME: %[[S:[^:]+]]: tensor<4x6xf32>
// CHECK: %[[P:.+]] = attn.softmax %[[S]] dim 1 : tensor<4x6xf32>
// CHECK: return %[[P]]
func.func @scaled_shift(%s: tensor<4x6xf32>) -> tensor<4x6xf32> {
  %low = arith.constant 0xFF800000 : f32
  %c = arith.constant 3.200000e+01 : f32
  %e = tensor.empty() : tensor<4x6xf32>
  %er = tensor.empty() : tensor<4xf32>
  %fm = linalg.fill ins(%low : f32) outs(%er : tensor<4xf32>) -> tensor<4xf32>
  %t = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%s : tensor<4x6xf32>) outs(%e : tensor<4x6xf32>) {
  ^bb0(%x: f32, %o: f32):
    %r = arith.divf %x, %c : f32
    linalg.yield %r : f32
  } -> tensor<4x6xf32>
  %m = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%t : tensor<4x6xf32>) outs(%fm : tensor<4xf32>) {
  ^bb0(%x: f32, %y: f32):
    %r = arith.maximumf %y, %x : f32
    linalg.yield %r : f32
  } -> tensor<4xf32>
  %d = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%t, %m : tensor<4x6xf32>, tensor<4xf32>) outs(%e : tensor<4x6xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %r = arith.subf %x, %y : f32
    linalg.yield %r : f32
  } -> tensor<4x6xf32>
  %u = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%d : tensor<4x6xf32>) outs(%e : tensor<4x6xf32>) {
  ^bb0(%x: f32, %o: f32):
    %r = arith.mulf %x, %c : f32
    linalg.yield %r : f32
  } -> tensor<4x6xf32>
  %p = attn.softmax %u dim 1 : tensor<4x6xf32>
  return %p : tensor<4x6xf32>
}

// -----

#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
// 2 (s - max(s)): 2 s may be -inf where s is the least float, in a row that has nothing else, too.
// CHECK-LABEL: func.func @enlarged_shift
// CHECK: arith.subf
// CHECK: %[[U:.+]] = linalg.generic
// CHECK: arith.mulf
// CHECK: attn.softmax %[[U]] dim 1
func.func @enlarged_shift(%s: tensor<4x6xf32>) -> tensor<4x6xf32> {
  %low = arith.constant 0xFF800000 : f32
  %c = arith.constant 2.0 : f32
  %e = tensor.empty() : tensor<4x6xf32>
  %er = tensor.empty() : tensor<4xf32>
  %fm = linalg.fill ins(%low : f32) outs(%er : tensor<4xf32>) -> tensor<4xf32>
  %m = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%s : tensor<4x6xf32>) outs(%fm : tensor<4xf32>) {
  ^bb0(%x: f32, %y: f32):
    %r = arith.maximumf %y, %x : f32
    linalg.yield %r : f32
  } -> tensor<4xf32>
  %d = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%s, %m : tensor<4x6xf32>, tensor<4xf32>) outs(%e : tensor<4x6xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %r = arith.subf %x, %y : f32
    linalg.yield %r : f32
  } -> tensor<4x6xf32>
  %u = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%d : tensor<4x6xf32>) outs(%e : tensor<4x6xf32>) {
  ^bb0(%x: f32, %o: f32):
    %r = arith.mulf %x, %c : f32
    linalg.yield %r : f32
  } -> tensor<4x6xf32>
  %p = attn.softmax %u dim 1 : tensor<4x6xf32>
  return %p : tensor<4x6xf32>
}

// -----

#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
// (2 s - max(2 s)) / 2: 2 s is -inf where s is the least float, and a row that has nothing else is NaN.
// CHECK-LABEL: func.func @enlarged_scores
// CHECK: arith.subf
// CHECK: %[[U:.+]] = linalg.generic
// CHECK: arith.mulf
// CHECK: attn.softmax %[[U]] dim 1
func.func @enlarged_scores(%given: tensor<4x6xf32>) -> tensor<4x6xf32> {
  %low = arith.constant 0xFF800000 : f32
  %c = arith.constant 0.5 : f32
  %two = arith.constant 2.0 : f32
  %e = tensor.empty() : tensor<4x6xf32>
  %er = tensor.empty() : tensor<4xf32>
  %s = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%given : tensor<4x6xf32>) outs(%e : tensor<4x6xf32>) {
  ^bb0(%y: f32, %o: f32):
    %r = arith.mulf %y, %two : f32
    linalg.yield %r : f32
  } -> tensor<4x6xf32>
  %fm = linalg.fill ins(%low : f32) outs(%er : tensor<4xf32>) -> tensor<4xf32>
  %m = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%s : tensor<4x6xf32>) outs(%fm : tensor<4xf32>) {
  ^bb0(%x: f32, %y: f32):
    %r = arith.maximumf %y, %x : f32
    linalg.yield %r : f32
  } -> tensor<4xf32>
  %d = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%s, %m : tensor<4x6xf32>, tensor<4xf32>) outs(%e : tensor<4x6xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %r = arith.subf %x, %y : f32
    linalg.yield %r : f32
  } -> tensor<4x6xf32>
  %u = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%d : tensor<4x6xf32>) outs(%e : tensor<4x6xf32>) {
  ^bb0(%x: f32, %o: f32):
    %r = arith.mulf %x, %c : f32
    linalg.yield %r : f32
  } -> tensor<4x6xf32>
  %p = attn.softmax %u dim 1 : tensor<4x6xf32>
  return %p : tensor<4x6xf32>
}

// -----

#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
// An L1 norm of exponentials is their sum.
// CHECK-LABEL: func.func @norm_of_exponentials
// CHECK: %[[P:.+]] = attn.softmax %arg0 dim 1
// CHECK: return %[[P]]
func.func @norm_of_exponentials(%s: tensor<4x6xf32>) -> tensor<4x6xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x6xf32>
  %er = tensor.empty() : tensor<4xf32>
  %x = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%s : tensor<4x6xf32>) outs(%e : tensor<4x6xf32>) {
  ^bb0(%y: f32, %o: f32):
    %r = math.exp %y : f32
    linalg.yield %r : f32
  } -> tensor<4x6xf32>
  %fz = linalg.fill ins(%zero : f32) outs(%er : tensor<4xf32>) -> tensor<4xf32>
  %z = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<4x6xf32>) outs(%fz : tensor<4xf32>) {
  ^bb0(%y: f32, %sum: f32):
    %a = math.absf %y : f32
    %r = arith.addf %sum, %a : f32
    linalg.yield %r : f32
  } -> tensor<4xf32>
  %p = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x, %z : tensor<4x6xf32>, tensor<4xf32>) outs(%e : tensor<4x6xf32>) {
  ^bb0(%y: f32, %sum: f32, %o: f32):
    %r = arith.divf %y, %sum : f32
    linalg.yield %r : f32
  } -> tensor<4x6xf32>
  return %p : tensor<4x6xf32>
}

// -----

#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
// What may be negative keeps its magnitudes.
// CHECK-LABEL: func.func @norm_of_scores
// CHECK: math.absf
func.func @norm_of_scores(%s: tensor<4x6xf32>) -> tensor<4xf32> {
  %zero = arith.constant 0.0 : f32
  %er = tensor.empty() : tensor<4xf32>
  %fz = linalg.fill ins(%zero : f32) outs(%er : tensor<4xf32>) -> tensor<4xf32>
  %z = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%s : tensor<4x6xf32>) outs(%fz : tensor<4xf32>) {
  ^bb0(%y: f32, %sum: f32):
    %a = math.absf %y : f32
    %r = arith.addf %sum, %a : f32
    linalg.yield %r : f32
  } -> tensor<4xf32>
  return %z : tensor<4xf32>
}

// -----

#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
// A root may be -0.0, and what is divided by it minus infinity.
// CHECK-LABEL: func.func @norm_of_quotients
// CHECK: math.absf
func.func @norm_of_quotients(%s: tensor<4x6xf32>) -> tensor<4xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x6xf32>
  %er = tensor.empty() : tensor<4xf32>
  %x = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%s : tensor<4x6xf32>) outs(%e : tensor<4x6xf32>) {
  ^bb0(%y: f32, %o: f32):
    %a = math.exp %y : f32
    %b = math.sqrt %y : f32
    %r = arith.divf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<4x6xf32>
  %fz = linalg.fill ins(%zero : f32) outs(%er : tensor<4xf32>) -> tensor<4xf32>
  %z = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<4x6xf32>) outs(%fz : tensor<4xf32>) {
  ^bb0(%y: f32, %sum: f32):
    %a = math.absf %y : f32
    %r = arith.addf %sum, %a : f32
    linalg.yield %r : f32
  } -> tensor<4xf32>
  return %z : tensor<4xf32>
}

// -----

#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
#none = affine_map<(d0, d1) -> ()>
// A row of which nothing is left but -inf: the guard is the softmax's.
// CHECK-LABEL: func.func @guarded_by_own_maximum
// CHECK: attn.softmax %arg0 dim 1
func.func @guarded_by_own_maximum(%s: tensor<4x6xf32>) -> tensor<4x6xf32> {
  %low = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x6xf32>
  %em = tensor.empty() : tensor<4xf32>
  %er = tensor.empty() : tensor<4xf32>
  %fm = linalg.fill ins(%low : f32) outs(%em : tensor<4xf32>) -> tensor<4xf32>
  %m = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%s : tensor<4x6xf32>) outs(%fm : tensor<4xf32>) {
  ^bb0(%x: f32, %y: f32):
    %r = arith.maximumf %y, %x : f32
    linalg.yield %r : f32
  } -> tensor<4xf32>
  %x = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%s, %m : tensor<4x6xf32>, tensor<4xf32>) outs(%e : tensor<4x6xf32>) {
  ^bb0(%y: f32, %most: f32, %o: f32):
    %d = arith.subf %y, %most : f32
    linalg.yield %d : f32
  } -> tensor<4x6xf32>
  %exp = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<4x6xf32>) outs(%e : tensor<4x6xf32>) {
  ^bb0(%y: f32, %o: f32):
    %r = math.exp %y : f32
    linalg.yield %r : f32
  } -> tensor<4x6xf32>
  %fz = linalg.fill ins(%zero : f32) outs(%er : tensor<4xf32>) -> tensor<4xf32>
  %z = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%exp : tensor<4x6xf32>) outs(%fz : tensor<4xf32>) {
  ^bb0(%y: f32, %sum: f32):
    %r = arith.addf %sum, %y : f32
    linalg.yield %r : f32
  } -> tensor<4xf32>
  %p = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%exp, %z : tensor<4x6xf32>, tensor<4xf32>) outs(%e : tensor<4x6xf32>) {
  ^bb0(%y: f32, %sum: f32, %o: f32):
    %r = arith.divf %y, %sum : f32
    linalg.yield %r : f32
  } -> tensor<4x6xf32>
  %g = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%p : tensor<4x6xf32>) outs(%e : tensor<4x6xf32>) {
  ^bb0(%y: f32, %o: f32):
    %isnan = arith.cmpf uno, %y, %y : f32
    %r = arith.select %isnan, %zero, %y : f32
    linalg.yield %r : f32
  } -> tensor<4x6xf32>
  return %g : tensor<4x6xf32>
}

// -----

#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
#none = affine_map<(d0, d1) -> ()>
// All exponentials of a row far below the others are 0, and what makes 0 of 0 / 0 means it.
// CHECK-LABEL: func.func @guarded_by_another_maximum
// CHECK-NOT: attn.softmax
// CHECK: return
func.func @guarded_by_another_maximum(%s: tensor<4x6xf32>) -> tensor<4x6xf32> {
  %low = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x6xf32>
  %em = tensor.empty() : tensor<f32>
  %er = tensor.empty() : tensor<4xf32>
  %fm = linalg.fill ins(%low : f32) outs(%em : tensor<f32>) -> tensor<f32>
  %m = linalg.generic {indexing_maps = [#id, #none], iterator_types = ["reduction", "reduction"]}
      ins(%s : tensor<4x6xf32>) outs(%fm : tensor<f32>) {
  ^bb0(%x: f32, %y: f32):
    %r = arith.maximumf %y, %x : f32
    linalg.yield %r : f32
  } -> tensor<f32>
  %x = linalg.generic {indexing_maps = [#id, #none, #id], iterator_types = ["parallel", "parallel"]}
      ins(%s, %m : tensor<4x6xf32>, tensor<f32>) outs(%e : tensor<4x6xf32>) {
  ^bb0(%y: f32, %most: f32, %o: f32):
    %d = arith.subf %y, %most : f32
    linalg.yield %d : f32
  } -> tensor<4x6xf32>
  %exp = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<4x6xf32>) outs(%e : tensor<4x6xf32>) {
  ^bb0(%y: f32, %o: f32):
    %r = math.exp %y : f32
    linalg.yield %r : f32
  } -> tensor<4x6xf32>
  %fz = linalg.fill ins(%zero : f32) outs(%er : tensor<4xf32>) -> tensor<4xf32>
  %z = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%exp : tensor<4x6xf32>) outs(%fz : tensor<4xf32>) {
  ^bb0(%y: f32, %sum: f32):
    %r = arith.addf %sum, %y : f32
    linalg.yield %r : f32
  } -> tensor<4xf32>
  %p = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%exp, %z : tensor<4x6xf32>, tensor<4xf32>) outs(%e : tensor<4x6xf32>) {
  ^bb0(%y: f32, %sum: f32, %o: f32):
    %r = arith.divf %y, %sum : f32
    linalg.yield %r : f32
  } -> tensor<4x6xf32>
  %g = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%p : tensor<4x6xf32>) outs(%e : tensor<4x6xf32>) {
  ^bb0(%y: f32, %o: f32):
    %isnan = arith.cmpf uno, %y, %y : f32
    %r = arith.select %isnan, %zero, %y : f32
    linalg.yield %r : f32
  } -> tensor<4x6xf32>
  return %g : tensor<4x6xf32>
}
