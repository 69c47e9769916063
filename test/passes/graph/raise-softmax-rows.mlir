// RUN: attn-opt %s -attn-raise-softmax -split-input-file | FileCheck %s

#id3 = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#row3 = affine_map<(d0, d1, d2) -> (d0, d1)>
#id4 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#row4 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>
// The sums are those of the same rows in another shape: their first two dimensions are one there.
// CHECK-LABEL: func.func @reshaped_sum
// CHECK-SAME: %[[S:[^:]+]]: tensor<2x?x5x7xf32>
// CHECK: %[[P:.+]] = attn.softmax %[[S]] dim 3
// CHECK: return %[[P]]
func.func @reshaped_sum(%s: tensor<2x?x5x7xf32>, %h: index, %bh: index) -> tensor<2x?x5x7xf32> {
  %zero = arith.constant 0.0 : f32
  %es = tensor.empty(%h) : tensor<2x?x5x7xf32>
  %e = linalg.generic {indexing_maps = [#id4, #id4], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%s : tensor<2x?x5x7xf32>) outs(%es : tensor<2x?x5x7xf32>) {
  ^bb0(%x: f32, %o: f32):
    %r = math.exp %x : f32
    linalg.yield %r : f32
  } -> tensor<2x?x5x7xf32>
  %flat = tensor.collapse_shape %e [[0, 1], [2], [3]] : tensor<2x?x5x7xf32> into tensor<?x5x7xf32>
  %er = tensor.empty(%bh) : tensor<?x5xf32>
  %fz = linalg.fill ins(%zero : f32) outs(%er : tensor<?x5xf32>) -> tensor<?x5xf32>
  %z = linalg.generic {indexing_maps = [#id3, #row3], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%flat : tensor<?x5x7xf32>) outs(%fz : tensor<?x5xf32>) {
  ^bb0(%x: f32, %y: f32):
    %r = arith.addf %y, %x : f32
    linalg.yield %r : f32
  } -> tensor<?x5xf32>
  %c0 = arith.constant 1 : index
  %n = tensor.dim %e, %c0 : tensor<2x?x5x7xf32>
  %z4 = tensor.expand_shape %z [[0, 1], [2]] output_shape [2, %n, 5] : tensor<?x5xf32> into tensor<2x?x5xf32>
  %p = linalg.generic {indexing_maps = [#id4, #row4, #id4], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%e, %z4 : tensor<2x?x5x7xf32>, tensor<2x?x5xf32>) outs(%es : tensor<2x?x5x7xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %r = arith.divf %x, %y : f32
    linalg.yield %r : f32
  } -> tensor<2x?x5x7xf32>
  return %p : tensor<2x?x5x7xf32>
}

// -----

#id2 = affine_map<(d0, d1) -> (d0, d1)>
#row2 = affine_map<(d0, d1) -> (d0)>
#id3 = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#no_last = affine_map<(d0, d1, d2) -> (d0, d1)>
// A row that is counted three times, and the first five of seven: neither is the row's sum.
// CHECK-LABEL: func.func @repeated_row
// CHECK-NOT: attn.softmax
// CHECK: return
func.func @repeated_row(%s: tensor<4x7xf32>) -> tensor<4x7xf32> {
  %zero = arith.constant 0.0 : f32
  %es = tensor.empty() : tensor<4x7xf32>
  %e = linalg.generic {indexing_maps = [#id2, #id2], iterator_types = ["parallel", "parallel"]}
      ins(%s : tensor<4x7xf32>) outs(%es : tensor<4x7xf32>) {
  ^bb0(%x: f32, %o: f32):
    %r = math.exp %x : f32
    linalg.yield %r : f32
  } -> tensor<4x7xf32>
  %et = tensor.empty() : tensor<4x7x3xf32>
  %three = linalg.generic {indexing_maps = [#no_last, #id3], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%e : tensor<4x7xf32>) outs(%et : tensor<4x7x3xf32>) {
  ^bb0(%x: f32, %o: f32):
    linalg.yield %x : f32
  } -> tensor<4x7x3xf32>
  %flat = tensor.collapse_shape %three [[0], [1, 2]] : tensor<4x7x3xf32> into tensor<4x21xf32>
  %er = tensor.empty() : tensor<4xf32>
  %fz = linalg.fill ins(%zero : f32) outs(%er : tensor<4xf32>) -> tensor<4xf32>
  %z = linalg.generic {indexing_maps = [#id2, #row2], iterator_types = ["parallel", "reduction"]}
      ins(%flat : tensor<4x21xf32>) outs(%fz : tensor<4xf32>) {
  ^bb0(%x: f32, %y: f32):
    %r = arith.addf %y, %x : f32
    linalg.yield %r : f32
  } -> tensor<4xf32>
  %p = linalg.generic {indexing_maps = [#id2, #row2, #id2], iterator_types = ["parallel", "parallel"]}
      ins(%e, %z : tensor<4x7xf32>, tensor<4xf32>) outs(%es : tensor<4x7xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %r = arith.divf %x, %y : f32
    linalg.yield %r : f32
  } -> tensor<4x7xf32>
  return %p : tensor<4x7xf32>
}
// CHECK-LABEL: func.func @part_of_row
// CHECK-NOT: attn.softmax
// CHECK: return
func.func @part_of_row(%s: tensor<4x7xf32>) -> tensor<4x7xf32> {
  %zero = arith.constant 0.0 : f32
  %es = tensor.empty() : tensor<4x7xf32>
  %e = linalg.generic {indexing_maps = [#id2, #id2], iterator_types = ["parallel", "parallel"]}
      ins(%s : tensor<4x7xf32>) outs(%es : tensor<4x7xf32>) {
  ^bb0(%x: f32, %o: f32):
    %r = math.exp %x : f32
    linalg.yield %r : f32
  } -> tensor<4x7xf32>
  %part = tensor.extract_slice %e[0, 0] [4, 5] [1, 1] : tensor<4x7xf32> to tensor<4x5xf32>
  %er = tensor.empty() : tensor<4xf32>
  %fz = linalg.fill ins(%zero : f32) outs(%er : tensor<4xf32>) -> tensor<4xf32>
  %z = linalg.generic {indexing_maps = [#id2, #row2], iterator_types = ["parallel", "reduction"]}
      ins(%part : tensor<4x5xf32>) outs(%fz : tensor<4xf32>) {
  ^bb0(%x: f32, %y: f32):
    %r = arith.addf %y, %x : f32
    linalg.yield %r : f32
  } -> tensor<4xf32>
  %p = linalg.generic {indexing_maps = [#id2, #row2, #id2], iterator_types = ["parallel", "parallel"]}
      ins(%e, %z : tensor<4x7xf32>, tensor<4xf32>) outs(%es : tensor<4x7xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %r = arith.divf %x, %y : f32
    linalg.yield %r : f32
  } -> tensor<4x7xf32>
  return %p : tensor<4x7xf32>
}

// -----

#id2 = affine_map<(d0, d1) -> (d0, d1)>
#row2 = affine_map<(d0, d1) -> (d0)>
#one = affine_map<(d0) -> (d0)>
// exp(y - log(sum(exp(y)))), y = s - max(s); with half of the maximum, exponentials may overflow.
// CHECK-LABEL: func.func @log_of_shifted
// CHECK: %[[P:.+]] = attn.softmax %arg0 dim 1
// CHECK: return %[[P]]
func.func @log_of_shifted(%s: tensor<4x7xf32>) -> tensor<4x7xf32> {
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %half = arith.constant 0.5 : f32
  %es = tensor.empty() : tensor<4x7xf32>
  %er = tensor.empty() : tensor<4xf32>
  %fz = linalg.fill ins(%zero : f32) outs(%er : tensor<4xf32>) -> tensor<4xf32>
  %fm = linalg.fill ins(%low : f32) outs(%er : tensor<4xf32>) -> tensor<4xf32>
  %m = linalg.generic {indexing_maps = [#id2, #row2], iterator_types = ["parallel", "reduction"]}
      ins(%s : tensor<4x7xf32>) outs(%fm : tensor<4xf32>) {
  ^bb0(%x: f32, %y: f32):
    %r = arith.maximumf %y, %x : f32
    linalg.yield %r : f32
  } -> tensor<4xf32>
  %d = linalg.generic {indexing_maps = [#id2, #row2, #id2], iterator_types = ["parallel", "parallel"]}
      ins(%s, %m : tensor<4x7xf32>, tensor<4xf32>) outs(%es : tensor<4x7xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %r = arith.subf %x, %y : f32
    linalg.yield %r : f32
  } -> tensor<4x7xf32>
  %e = linalg.generic {indexing_maps = [#id2, #id2], iterator_types = ["parallel", "parallel"]}
      ins(%d : tensor<4x7xf32>) outs(%es : tensor<4x7xf32>) {
  ^bb0(%x: f32, %o: f32):
    %r = math.exp %x : f32
    linalg.yield %r : f32
  } -> tensor<4x7xf32>
  %z = linalg.generic {indexing_maps = [#id2, #row2], iterator_types = ["parallel", "reduction"]}
      ins(%e : tensor<4x7xf32>) outs(%fz : tensor<4xf32>) {
  ^bb0(%x: f32, %y: f32):
    %r = arith.addf %y, %x : f32
    linalg.yield %r : f32
  } -> tensor<4xf32>
  %l = linalg.generic {indexing_maps = [#one, #one], iterator_types = ["parallel"]}
      ins(%z : tensor<4xf32>) outs(%er : tensor<4xf32>) {
  ^bb0(%x: f32, %o: f32):
    %r = math.log %x : f32
    linalg.yield %r : f32
  } -> tensor<4xf32>
  %w = linalg.generic {indexing_maps = [#id2, #row2, #id2], iterator_types = ["parallel", "parallel"]}
      ins(%d, %l : tensor<4x7xf32>, tensor<4xf32>) outs(%es : tensor<4x7xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %r = arith.subf %x, %y : f32
    linalg.yield %r : f32
  } -> tensor<4x7xf32>
  %p = linalg.generic {indexing_maps = [#id2, #id2], iterator_types = ["parallel", "parallel"]}
      ins(%w : tensor<4x7xf32>) outs(%es : tensor<4x7xf32>) {
  ^bb0(%x: f32, %o: f32):
    %r = math.exp %x : f32
    linalg.yield %r : f32
  } -> tensor<4x7xf32>
  return %p : tensor<4x7xf32>
}
// CHECK-LABEL: func.func @log_of_half_shifted
// CHECK-NOT: attn.softmax
// CHECK: return
func.func @log_of_half_shifted(%s: tensor<4x7xf32>) -> tensor<4x7xf32> {
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %half = arith.constant 0.5 : f32
  %es = tensor.empty() : tensor<4x7xf32>
  %er = tensor.empty() : tensor<4xf32>
  %fz = linalg.fill ins(%zero : f32) outs(%er : tensor<4xf32>) -> tensor<4xf32>
  %fm = linalg.fill ins(%low : f32) outs(%er : tensor<4xf32>) -> tensor<4xf32>
  %m = linalg.generic {indexing_maps = [#id2, #row2], iterator_types = ["parallel", "reduction"]}
      ins(%s : tensor<4x7xf32>) outs(%fm : tensor<4xf32>) {
  ^bb0(%x: f32, %y: f32):
    %r = arith.maximumf %y, %x : f32
    linalg.yield %r : f32
  } -> tensor<4xf32>
  %h = linalg.generic {indexing_maps = [#one, #one], iterator_types = ["parallel"]}
      ins(%m : tensor<4xf32>) outs(%er : tensor<4xf32>) {
  ^bb0(%x: f32, %o: f32):
    %r = arith.mulf %x, %half : f32
    linalg.yield %r : f32
  } -> tensor<4xf32>
  %d = linalg.generic {indexing_maps = [#id2, #row2, #id2], iterator_types = ["parallel", "parallel"]}
      ins(%s, %h : tensor<4x7xf32>, tensor<4xf32>) outs(%es : tensor<4x7xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %r = arith.subf %x, %y : f32
    linalg.yield %r : f32
  } -> tensor<4x7xf32>
  %e = linalg.generic {indexing_maps = [#id2, #id2], iterator_types = ["parallel", "parallel"]}
      ins(%d : tensor<4x7xf32>) outs(%es : tensor<4x7xf32>) {
  ^bb0(%x: f32, %o: f32):
    %r = math.exp %x : f32
    linalg.yield %r : f32
  } -> tensor<4x7xf32>
  %z = linalg.generic {indexing_maps = [#id2, #row2], iterator_types = ["parallel", "reduction"]}
      ins(%e : tensor<4x7xf32>) outs(%fz : tensor<4xf32>) {
  ^bb0(%x: f32, %y: f32):
    %r = arith.addf %y, %x : f32
    linalg.yield %r : f32
  } -> tensor<4xf32>
  %l = linalg.generic {indexing_maps = [#one, #one], iterator_types = ["parallel"]}
      ins(%z : tensor<4xf32>) outs(%er : tensor<4xf32>) {
  ^bb0(%x: f32, %o: f32):
    %r = math.log %x : f32
    linalg.yield %r : f32
  } -> tensor<4xf32>
  %w = linalg.generic {indexing_maps = [#id2, #row2, #id2], iterator_types = ["parallel", "parallel"]}
      ins(%d, %l : tensor<4x7xf32>, tensor<4xf32>) outs(%es : tensor<4x7xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %r = arith.subf %x, %y : f32
    linalg.yield %r : f32
  } -> tensor<4x7xf32>
  %p = linalg.generic {indexing_maps = [#id2, #id2], iterator_types = ["parallel", "parallel"]}
      ins(%w : tensor<4x7xf32>) outs(%es : tensor<4x7xf32>) {
  ^bb0(%x: f32, %o: f32):
    %r = math.exp %x : f32
    linalg.yield %r : f32
  } -> tensor<4x7xf32>
  return %p : tensor<4x7xf32>
}
// A product by the sum to the power of -1, and of -2.
// CHECK-LABEL: func.func @power
// CHECK: %[[P:.+]] = attn.softmax %arg0 dim 1
// CHECK: return %[[P]]
func.func @power(%s: tensor<4x7xf32>) -> tensor<4x7xf32> {
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %n = arith.constant -1.0 : f32
  %es = tensor.empty() : tensor<4x7xf32>
  %er = tensor.empty() : tensor<4xf32>
  %fz = linalg.fill ins(%zero : f32) outs(%er : tensor<4xf32>) -> tensor<4xf32>
  %fm = linalg.fill ins(%low : f32) outs(%er : tensor<4xf32>) -> tensor<4xf32>
  %e = linalg.generic {indexing_maps = [#id2, #id2], iterator_types = ["parallel", "parallel"]}
      ins(%s : tensor<4x7xf32>) outs(%es : tensor<4x7xf32>) {
  ^bb0(%x: f32, %o: f32):
    %r = math.exp %x : f32
    linalg.yield %r : f32
  } -> tensor<4x7xf32>
  %z = linalg.generic {indexing_maps = [#id2, #row2], iterator_types = ["parallel", "reduction"]}
      ins(%e : tensor<4x7xf32>) outs(%fz : tensor<4xf32>) {
  ^bb0(%x: f32, %y: f32):
    %r = arith.addf %y, %x : f32
    linalg.yield %r : f32
  } -> tensor<4xf32>
  %i = linalg.generic {indexing_maps = [#one, #one], iterator_types = ["parallel"]}
      ins(%z : tensor<4xf32>) outs(%er : tensor<4xf32>) {
  ^bb0(%x: f32, %o: f32):
    %r = math.powf %x, %n : f32
    linalg.yield %r : f32
  } -> tensor<4xf32>
  %p = linalg.generic {indexing_maps = [#id2, #row2, #id2], iterator_types = ["parallel", "parallel"]}
      ins(%e, %i : tensor<4x7xf32>, tensor<4xf32>) outs(%es : tensor<4x7xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %r = arith.mulf %x, %y : f32
    linalg.yield %r : f32
  } -> tensor<4x7xf32>
  return %p : tensor<4x7xf32>
}
// CHECK-LABEL: func.func @other_power
// CHECK-NOT: attn.softmax
// CHECK: return
func.func @other_power(%s: tensor<4x7xf32>) -> tensor<4x7xf32> {
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %n = arith.constant -2.0 : f32
  %es = tensor.empty() : tensor<4x7xf32>
  %er = tensor.empty() : tensor<4xf32>
  %fz = linalg.fill ins(%zero : f32) outs(%er : tensor<4xf32>) -> tensor<4xf32>
  %fm = linalg.fill ins(%low : f32) outs(%er : tensor<4xf32>) -> tensor<4xf32>
  %e = linalg.generic {indexing_maps = [#id2, #id2], iterator_types = ["parallel", "parallel"]}
      ins(%s : tensor<4x7xf32>) outs(%es : tensor<4x7xf32>) {
  ^bb0(%x: f32, %o: f32):
    %r = math.exp %x : f32
    linalg.yield %r : f32
  } -> tensor<4x7xf32>
  %z = linalg.generic {indexing_maps = [#id2, #row2], iterator_types = ["parallel", "reduction"]}
      ins(%e : tensor<4x7xf32>) outs(%fz : tensor<4xf32>) {
  ^bb0(%x: f32, %y: f32):
    %r = arith.addf %y, %x : f32
    linalg.yield %r : f32
  } -> tensor<4xf32>
  %i = linalg.generic {indexing_maps = [#one, #one], iterator_types = ["parallel"]}
      ins(%z : tensor<4xf32>) outs(%er : tensor<4xf32>) {
  ^bb0(%x: f32, %o: f32):
    %r = math.powf %x, %n : f32
    linalg.yield %r : f32
  } -> tensor<4xf32>
  %p = linalg.generic {indexing_maps = [#id2, #row2, #id2], iterator_types = ["parallel", "parallel"]}
      ins(%e, %i : tensor<4x7xf32>, tensor<4xf32>) outs(%es : tensor<4x7xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %r = arith.mulf %x, %y : f32
    linalg.yield %r : f32
  } -> tensor<4x7xf32>
  return %p : tensor<4x7xf32>
}

// -----

#id2 = affine_map<(d0, d1) -> (d0, d1)>
#row2 = affine_map<(d0, d1) -> (d0)>
#key = affine_map<(d0, d1) -> (d1)>
// The sum as a product with ones; with twos it is another number.
// CHECK-LABEL: func.func @ones
// CHECK: attn.softmax %arg0 dim 1
// CHECK: return
func.func @ones(%s: tensor<4x7xf32>) -> tensor<4x7xf32> {
  %zero = arith.constant 0.0 : f32
  %w = arith.constant dense<1.0> : tensor<7xf32>
  %es = tensor.empty() : tensor<4x7xf32>
  %er = tensor.empty() : tensor<4xf32>
  %fz = linalg.fill ins(%zero : f32) outs(%er : tensor<4xf32>) -> tensor<4xf32>
  %e = linalg.generic {indexing_maps = [#id2, #id2], iterator_types = ["parallel", "parallel"]}
      ins(%s : tensor<4x7xf32>) outs(%es : tensor<4x7xf32>) {
  ^bb0(%x: f32, %o: f32):
    %r = math.exp %x : f32
    linalg.yield %r : f32
  } -> tensor<4x7xf32>
  %z = linalg.contract indexing_maps = [#id2, #key, #row2] ins(%e, %w : tensor<4x7xf32>, tensor<7xf32>)
      outs(%fz : tensor<4xf32>) -> tensor<4xf32>
  %p = linalg.generic {indexing_maps = [#id2, #row2, #id2], iterator_types = ["parallel", "parallel"]}
      ins(%e, %z : tensor<4x7xf32>, tensor<4xf32>) outs(%es : tensor<4x7xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %r = arith.divf %x, %y : f32
    linalg.yield %r : f32
  } -> tensor<4x7xf32>
  return %p : tensor<4x7xf32>
}
// CHECK-LABEL: func.func @twos
// CHECK-NOT: attn.softmax
// CHECK: return
func.func @twos(%s: tensor<4x7xf32>) -> tensor<4x7xf32> {
  %zero = arith.constant 0.0 : f32
  %w = arith.constant dense<2.0> : tensor<7xf32>
  %es = tensor.empty() : tensor<4x7xf32>
  %er = tensor.empty() : tensor<4xf32>
  %fz = linalg.fill ins(%zero : f32) outs(%er : tensor<4xf32>) -> tensor<4xf32>
  %e = linalg.generic {indexing_maps = [#id2, #id2], iterator_types = ["parallel", "parallel"]}
      ins(%s : tensor<4x7xf32>) outs(%es : tensor<4x7xf32>) {
  ^bb0(%x: f32, %o: f32):
    %r = math.exp %x : f32
    linalg.yield %r : f32
  } -> tensor<4x7xf32>
  %z = linalg.contract indexing_maps = [#id2, #key, #row2] ins(%e, %w : tensor<4x7xf32>, tensor<7xf32>)
      outs(%fz : tensor<4xf32>) -> tensor<4xf32>
  %p = linalg.generic {indexing_maps = [#id2, #row2, #id2], iterator_types = ["parallel", "parallel"]}
      ins(%e, %z : tensor<4x7xf32>, tensor<4xf32>) outs(%es : tensor<4x7xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %r = arith.divf %x, %y : f32
    linalg.yield %r : f32
  } -> tensor<4x7xf32>
  return %p : tensor<4x7xf32>
}
