// RUN: attn-opt %s --attn-view-bytes --canonicalize --cse --mlir-print-local-scope | FileCheck %s

// What makes bytes and what reads them goes before a transpose, both in turn.
// CHECK-LABEL: @sunk
// CHECK-SAME: %[[X:[^:]*]]: tensor<?x8xf32>, %[[S:[^:]*]]: tensor<f32>
// CHECK: %[[Q:.*]] = linalg.generic {{.*}} ins(%[[X]], %[[S]] : tensor<?x8xf32>, tensor<f32>) outs({{.*}} : tensor<?x8xi8>)
// CHECK: %[[D:.*]] = linalg.generic {{.*}} ins(%[[Q]], %[[S]] : tensor<?x8xi8>, tensor<f32>) outs({{.*}} : tensor<?x8xf32>)
// CHECK: %[[T:.*]] = linalg.transpose ins(%[[D]] : tensor<?x8xf32>) outs({{.*}} : tensor<8x?xf32>) permutation = [1, 0]
// CHECK: return %[[T]]
func.func @sunk(%x: tensor<?x8xf32>, %s: tensor<f32>, %t: tensor<8x?xf32>, %b: tensor<8x?xi8>) -> tensor<8x?xf32> {
  %turned = linalg.transpose ins(%x : tensor<?x8xf32>) outs(%t : tensor<8x?xf32>) permutation = [1, 0]
  %q = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> ()>, affine_map<(i, j) -> (i, j)>],
                       iterator_types = ["parallel", "parallel"]}
      ins(%turned, %s : tensor<8x?xf32>, tensor<f32>) outs(%b : tensor<8x?xi8>) {
    ^bb0(%p: f32, %scale: f32, %out: i8):
      %0 = arith.divf %p, %scale : f32
      %1 = arith.fptosi %0 : f32 to i8
      linalg.yield %1 : i8
  } -> tensor<8x?xi8>
  %d = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> ()>, affine_map<(i, j) -> (i, j)>],
                       iterator_types = ["parallel", "parallel"]}
      ins(%q, %s : tensor<8x?xi8>, tensor<f32>) outs(%t : tensor<8x?xf32>) {
    ^bb0(%p: i8, %scale: f32, %out: f32):
      %0 = arith.sitofp %p : i8 to f32
      %1 = arith.mulf %0, %scale : f32
      linalg.yield %1 : f32
  } -> tensor<8x?xf32>
  return %d : tensor<8x?xf32>
}

// Near misses: a transpose that somebody else reads, a scale along a dimension, floats on both sides.
// CHECK-LABEL: @kept
// CHECK-COUNT-3: linalg.transpose
// CHECK: linalg.generic
// CHECK-COUNT-2: linalg.generic
// CHECK-NOT: linalg.transpose
// CHECK: return
func.func @kept(%x: tensor<4x8xf32>, %y: tensor<4x8xf32>, %z: tensor<4x8xf32>, %s: tensor<8xf32>, %t: tensor<8x4xf32>, %b: tensor<8x4xi8>)
    -> (tensor<8x4xf32>, tensor<8x4xi8>, tensor<8x4xi8>, tensor<8x4xf32>) {
  %shared = linalg.transpose ins(%x : tensor<4x8xf32>) outs(%t : tensor<8x4xf32>) permutation = [1, 0]
  %scaled = linalg.transpose ins(%y : tensor<4x8xf32>) outs(%t : tensor<8x4xf32>) permutation = [1, 0]
  %floats = linalg.transpose ins(%z : tensor<4x8xf32>) outs(%t : tensor<8x4xf32>) permutation = [1, 0]
  %0 = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      ins(%shared : tensor<8x4xf32>) outs(%b : tensor<8x4xi8>) {
    ^bb0(%p: f32, %out: i8):
      %q = arith.fptosi %p : f32 to i8
      linalg.yield %q : i8
  } -> tensor<8x4xi8>
  %1 = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      ins(%scaled, %s : tensor<8x4xf32>, tensor<8xf32>) outs(%b : tensor<8x4xi8>) {
    ^bb0(%p: f32, %scale: f32, %out: i8):
      %m = arith.mulf %p, %scale : f32
      %q = arith.fptosi %m : f32 to i8
      linalg.yield %q : i8
  } -> tensor<8x4xi8>
  %2 = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      ins(%floats : tensor<8x4xf32>) outs(%t : tensor<8x4xf32>) {
    ^bb0(%p: f32, %out: f32):
      %q = arith.negf %p : f32
      linalg.yield %q : f32
  } -> tensor<8x4xf32>
  return %shared, %0, %1, %2 : tensor<8x4xf32>, tensor<8x4xi8>, tensor<8x4xi8>, tensor<8x4xf32>
}

// Keys that heads share are repeated behind both: x is quantised once for all heads, and dequantised.
// CHECK-LABEL: @shared
// CHECK-SAME: %[[X:[^:]*]]: tensor<2x?x8xf32>, %[[S:[^:]*]]: tensor<f32>
// CHECK: %[[Q:.*]] = linalg.generic {{.*}} ins(%[[X]], %[[S]] : tensor<2x?x8xf32>, tensor<f32>) outs({{.*}} : tensor<2x?x8xi8>)
// CHECK: %[[D:.*]] = linalg.generic {{.*}} ins(%[[Q]], %[[S]] : tensor<2x?x8xi8>, tensor<f32>) outs({{.*}} : tensor<2x?x8xf32>)
// CHECK: %[[MANY:.*]] = linalg.generic {{.*}} ins(%[[D]] : tensor<2x?x8xf32>) outs({{.*}} : tensor<2x3x?x8xf32>)
// CHECK: %[[HEADS:.*]] = tensor.collapse_shape %[[MANY]] {{\[\[}}0, 1], [2], [3]]
// CHECK: %[[T:.*]] = linalg.transpose ins(%[[HEADS]] : tensor<6x?x8xf32>)
// CHECK: return %[[T]]
func.func @shared(%x: tensor<2x?x8xf32>, %s: tensor<f32>, %many: tensor<2x3x?x8xf32>, %t: tensor<6x8x?xf32>, %b: tensor<6x8x?xi8>)
    -> tensor<6x8x?xf32> {
  %repeated = linalg.generic {indexing_maps = [affine_map<(h, g, i, j) -> (h, i, j)>, affine_map<(h, g, i, j) -> (h, g, i, j)>],
                              iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%x : tensor<2x?x8xf32>) outs(%many : tensor<2x3x?x8xf32>) {
    ^bb0(%p: f32, %out: f32):
      linalg.yield %p : f32
  } -> tensor<2x3x?x8xf32>
  %heads = tensor.collapse_shape %repeated [[0, 1], [2], [3]] : tensor<2x3x?x8xf32> into tensor<6x?x8xf32>
  %turned = linalg.transpose ins(%heads : tensor<6x?x8xf32>) outs(%t : tensor<6x8x?xf32>) permutation = [0, 2, 1]
  %q = linalg.generic {indexing_maps = [affine_map<(h, i, j) -> (h, i, j)>, affine_map<(h, i, j) -> ()>, affine_map<(h, i, j) -> (h, i, j)>],
                       iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%turned, %s : tensor<6x8x?xf32>, tensor<f32>) outs(%b : tensor<6x8x?xi8>) {
    ^bb0(%p: f32, %scale: f32, %out: i8):
      %0 = arith.divf %p, %scale : f32
      %1 = arith.fptosi %0 : f32 to i8
      linalg.yield %1 : i8
  } -> tensor<6x8x?xi8>
  %d = linalg.generic {indexing_maps = [affine_map<(h, i, j) -> (h, i, j)>, affine_map<(h, i, j) -> ()>, affine_map<(h, i, j) -> (h, i, j)>],
                       iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%q, %s : tensor<6x8x?xi8>, tensor<f32>) outs(%t : tensor<6x8x?xf32>) {
    ^bb0(%p: i8, %scale: f32, %out: f32):
      %0 = arith.sitofp %p : i8 to f32
      %1 = arith.mulf %0, %scale : f32
      linalg.yield %1 : f32
  } -> tensor<6x8x?xf32>
  return %d : tensor<6x8x?xf32>
}

// A reshape alone stays before what reads it: nothing is repeated or turned.
// CHECK-LABEL: @reshaped
// CHECK: tensor.collapse_shape {{.*}}xf32>
// CHECK: linalg.generic
// CHECK-NOT: tensor.collapse_shape
func.func @reshaped(%x: tensor<2x3x8xf32>, %b: tensor<6x8xi8>) -> tensor<6x8xi8> {
  %rows = tensor.collapse_shape %x [[0, 1], [2]] : tensor<2x3x8xf32> into tensor<6x8xf32>
  %q = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      ins(%rows : tensor<6x8xf32>) outs(%b : tensor<6x8xi8>) {
    ^bb0(%p: f32, %out: i8):
      %0 = arith.fptosi %p : f32 to i8
      linalg.yield %0 : i8
  } -> tensor<6x8xi8>
  return %q : tensor<6x8xi8>
}
