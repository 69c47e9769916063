// RUN: attn-opt %s --attn-view-bytes --canonicalize --cse --mlir-print-local-scope | FileCheck %s
// RUN: attn-opt %s --attn-view-bytes | FileCheck %s --check-prefix=GLOBAL

attn.global @filters : tensor<5x3x2x2xi8> = #attn.initializer<"filters">
attn.global @w : tensor<8x6xi8> = #attn.initializer<"w">
attn.global @turned : tensor<6x8xi8> = #attn.initializer<"turned">
attn.global @points : tensor<5x8x1x1xi8> = #attn.initializer<"points">

// A convolution by patches that overlap: bytes are padded with the zero point and gathered, the filters, with a scale
// each, become a matrix.
// GLOBAL-DAG: attn.global @filters_view : tensor<5x12xi8> = #attn.reshape<@filters>
// CHECK-LABEL: @convolution
// CHECK-SAME: %[[X:[^:]*]]: tensor<1x3x4x4xi8>, %[[S:[^:]*]]: tensor<5x1x1x1xf32>
// CHECK: %[[ZERO:.*]] = arith.constant -128 : i8
// CHECK: %[[PAD:.*]] = tensor.pad %[[X]] low[0, 0, 1, 1] high[0, 0, 1, 1]
// CHECK: tensor.yield %[[ZERO]] : i8
// CHECK: %[[GATHER:.*]] = linalg.generic {{.*}}(d0, d1, d2, d3, d4, d5) -> (d0, d3, d1 + d4, d2 + d5){{.*}} ins(%[[PAD]] : tensor<1x3x6x6xi8>)
// CHECK: %[[ROWS:.*]] = tensor.collapse_shape %[[GATHER]] {{.*}} : tensor<1x5x5x3x2x2xi8> into tensor<1x25x12xi8>
// CHECK: %[[A:.*]] = linalg.generic {{.*}} ins(%[[ROWS]] : tensor<1x25x12xi8>)
// CHECK: arith.uitofp
// CHECK: %[[M:.*]] = attn.weight @filters_view
// CHECK: %[[B:.*]] = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, 0, 0, 0)>, {{.*}} ins(%[[M]], %[[S]] : tensor<5x12xi8>, tensor<5x1x1x1xf32>)
// CHECK: linalg.contract {{.*}} ins(%[[A]], %[[B]]
func.func @convolution(%x: tensor<1x3x4x4xi8>, %s: tensor<5x1x1x1xf32>) -> tensor<1x25x5xf32> {
  %c0 = arith.constant 0.0 : f32
  %w = attn.weight @filters : tensor<5x3x2x2xi8>
  %ex = tensor.empty() : tensor<1x3x4x4xf32>
  %dx = linalg.generic {indexing_maps = [affine_map<(a, b, c, d) -> (a, b, c, d)>, affine_map<(a, b, c, d) -> (a, b, c, d)>],
                        iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%x : tensor<1x3x4x4xi8>) outs(%ex : tensor<1x3x4x4xf32>) {
    ^bb0(%p: i8, %out: f32):
      %z = arith.constant 128.0 : f32
      %scale = arith.constant 0.5 : f32
      %0 = arith.uitofp %p : i8 to f32
      %1 = arith.subf %0, %z : f32
      %2 = arith.mulf %1, %scale : f32
      linalg.yield %2 : f32
  } -> tensor<1x3x4x4xf32>
  %pad = tensor.pad %dx low[0, 0, 1, 1] high[0, 0, 1, 1] {
    ^bb0(%a: index, %b: index, %c: index, %d: index):
      tensor.yield %c0 : f32
  } : tensor<1x3x4x4xf32> to tensor<1x3x6x6xf32>
  %ep = tensor.empty() : tensor<1x5x5x3x2x2xf32>
  %patches = linalg.generic {indexing_maps = [affine_map<(n, y, x, c, i, j) -> (n, c, y + i, x + j)>, affine_map<(n, y, x, c, i, j) -> (n, y, x, c, i, j)>],
                             iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel", "parallel"]}
      ins(%pad : tensor<1x3x6x6xf32>) outs(%ep : tensor<1x5x5x3x2x2xf32>) {
    ^bb0(%p: f32, %out: f32):
      linalg.yield %p : f32
  } -> tensor<1x5x5x3x2x2xf32>
  %rows = tensor.collapse_shape %patches [[0], [1, 2], [3, 4, 5]] : tensor<1x5x5x3x2x2xf32> into tensor<1x25x12xf32>
  %ew = tensor.empty() : tensor<5x3x2x2xf32>
  %dw = linalg.generic {indexing_maps = [affine_map<(a, b, c, d) -> (a, b, c, d)>, affine_map<(a, b, c, d) -> (a, 0, 0, 0)>, affine_map<(a, b, c, d) -> (a, b, c, d)>],
                        iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%w, %s : tensor<5x3x2x2xi8>, tensor<5x1x1x1xf32>) outs(%ew : tensor<5x3x2x2xf32>) {
    ^bb0(%p: i8, %scale: f32, %out: f32):
      %0 = arith.sitofp %p : i8 to f32
      %1 = arith.mulf %0, %scale : f32
      linalg.yield %1 : f32
  } -> tensor<5x3x2x2xf32>
  %matrix = tensor.collapse_shape %dw [[0], [1, 2, 3]] : tensor<5x3x2x2xf32> into tensor<5x12xf32>
  %e = tensor.empty() : tensor<1x25x5xf32>
  %zeros = linalg.fill ins(%c0 : f32) outs(%e : tensor<1x25x5xf32>) -> tensor<1x25x5xf32>
  %y = linalg.contract indexing_maps = [affine_map<(n, r, f, k) -> (n, r, k)>, affine_map<(n, r, f, k) -> (f, k)>, affine_map<(n, r, f, k) -> (n, r, f)>]
      ins(%rows, %matrix : tensor<1x25x12xf32>, tensor<5x12xf32>) outs(%zeros : tensor<1x25x5xf32>) -> tensor<1x25x5xf32>
  return %y : tensor<1x25x5xf32>
}

// Filters of one element are a matrix, too, and not read as one in each run.
// GLOBAL-DAG: attn.global @points_view : tensor<5x8xi8> = #attn.reshape<@points>
// CHECK-LABEL: @single
// CHECK: %[[M:.*]] = attn.weight @points_view : tensor<5x8xi8>
// CHECK: %[[B:.*]] = linalg.generic {{.*}} ins(%[[M]] : tensor<5x8xi8>)
// CHECK: linalg.contract {{.*}} ins(%{{.*}}, %[[B]]
func.func @single(%x: tensor<25x8xi8>) -> tensor<25x5xf32> {
  %c0 = arith.constant 0.0 : f32
  %w = attn.weight @points : tensor<5x8x1x1xi8>
  %ex = tensor.empty() : tensor<25x8xf32>
  %dx = linalg.generic {indexing_maps = [affine_map<(a, b) -> (a, b)>, affine_map<(a, b) -> (a, b)>], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<25x8xi8>) outs(%ex : tensor<25x8xf32>) {
    ^bb0(%p: i8, %out: f32):
      %0 = arith.uitofp %p : i8 to f32
      linalg.yield %0 : f32
  } -> tensor<25x8xf32>
  %ew = tensor.empty() : tensor<5x8x1x1xf32>
  %dw = linalg.generic {indexing_maps = [affine_map<(a, b, c, d) -> (a, b, c, d)>, affine_map<(a, b, c, d) -> (a, b, c, d)>],
                        iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%w : tensor<5x8x1x1xi8>) outs(%ew : tensor<5x8x1x1xf32>) {
    ^bb0(%p: i8, %out: f32):
      %0 = arith.sitofp %p : i8 to f32
      linalg.yield %0 : f32
  } -> tensor<5x8x1x1xf32>
  %matrix = tensor.collapse_shape %dw [[0], [1, 2, 3]] : tensor<5x8x1x1xf32> into tensor<5x8xf32>
  %e = tensor.empty() : tensor<25x5xf32>
  %zeros = linalg.fill ins(%c0 : f32) outs(%e : tensor<25x5xf32>) -> tensor<25x5xf32>
  %y = linalg.contract indexing_maps = [affine_map<(r, f, k) -> (r, k)>, affine_map<(r, f, k) -> (f, k)>, affine_map<(r, f, k) -> (r, f)>]
      ins(%dx, %matrix : tensor<25x8xf32>, tensor<5x8xf32>) outs(%zeros : tensor<25x5xf32>) -> tensor<25x5xf32>
  return %y : tensor<25x5xf32>
}

// A zero point that the run has, of integers: it is read where they are padded. The sizes are the run's.
// CHECK-LABEL: @integers
// CHECK-SAME: %[[X:[^:]*]]: tensor<?x6xi8>, %[[Z:[^:]*]]: tensor<i8>
// CHECK: %[[ONE:.*]] = tensor.extract %[[Z]][] : tensor<i8>
// CHECK: tensor.pad %[[X]] low[1, 2] high[0, 0]
// CHECK: tensor.yield %[[ONE]] : i8
// CHECK: linalg.generic
// CHECK: arith.subi
func.func @integers(%x: tensor<?x6xi8>, %z: tensor<i8>, %ex: tensor<?x6xi32>, %ew: tensor<8x6xi32>, %zeros: tensor<?x6xi32>) -> tensor<?x6xi32> {
  %c0 = arith.constant 0 : i32
  %w = attn.weight @w : tensor<8x6xi8>
  %dx = linalg.generic {indexing_maps = [affine_map<(a, b) -> (a, b)>, affine_map<(a, b) -> ()>, affine_map<(a, b) -> (a, b)>], iterator_types = ["parallel", "parallel"]}
      ins(%x, %z : tensor<?x6xi8>, tensor<i8>) outs(%ex : tensor<?x6xi32>) {
    ^bb0(%p: i8, %zero: i8, %out: i32):
      %0 = arith.extui %p : i8 to i32
      %1 = arith.extui %zero : i8 to i32
      %2 = arith.subi %0, %1 : i32
      linalg.yield %2 : i32
  } -> tensor<?x6xi32>
  %pad = tensor.pad %dx low[1, 2] high[0, 0] {
    ^bb0(%a: index, %b: index):
      tensor.yield %c0 : i32
  } : tensor<?x6xi32> to tensor<?x8xi32>
  %dw = linalg.generic {indexing_maps = [affine_map<(a, b) -> (a, b)>, affine_map<(a, b) -> (a, b)>], iterator_types = ["parallel", "parallel"]}
      ins(%w : tensor<8x6xi8>) outs(%ew : tensor<8x6xi32>) {
    ^bb0(%p: i8, %out: i32):
      %0 = arith.extsi %p : i8 to i32
      linalg.yield %0 : i32
  } -> tensor<8x6xi32>
  %init = linalg.fill ins(%c0 : i32) outs(%zeros : tensor<?x6xi32>) -> tensor<?x6xi32>
  %y = linalg.matmul ins(%pad, %dw : tensor<?x8xi32>, tensor<8x6xi32>) outs(%init : tensor<?x6xi32>) -> tensor<?x6xi32>
  return %y : tensor<?x6xi32>
}

// Near misses: padded with 1, and a scale along the dimension that a reshape joins.
// CHECK-LABEL: @missed
// CHECK: linalg.generic
// CHECK: arith.uitofp
// CHECK: %[[PAD:.*]] = tensor.pad
// CHECK: %[[D:.*]] = linalg.generic {{.*}} outs(%{{.*}} : tensor<2x4x8xf32>)
// CHECK: %[[JOINED:.*]] = tensor.collapse_shape %[[D]]
// CHECK-DAG: linalg.matmul ins(%[[PAD]]
// CHECK-DAG: linalg.matmul ins(%[[JOINED]]
func.func @missed(%x: tensor<4x6xi8>, %v: tensor<2x4x8xi8>, %s: tensor<4xf32>) -> (tensor<4x6xf32>, tensor<8x6xf32>) {
  %c0 = arith.constant 0.0 : f32
  %c1 = arith.constant 1.0 : f32
  %w = attn.weight @w : tensor<8x6xi8>
  %ex = tensor.empty() : tensor<4x6xf32>
  %dx = linalg.generic {indexing_maps = [affine_map<(a, b) -> (a, b)>, affine_map<(a, b) -> (a, b)>], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<4x6xi8>) outs(%ex : tensor<4x6xf32>) {
    ^bb0(%p: i8, %out: f32):
      %0 = arith.uitofp %p : i8 to f32
      linalg.yield %0 : f32
  } -> tensor<4x6xf32>
  %pad = tensor.pad %dx low[0, 2] high[0, 0] {
    ^bb0(%a: index, %b: index):
      tensor.yield %c1 : f32
  } : tensor<4x6xf32> to tensor<4x8xf32>
  %ev = tensor.empty() : tensor<2x4x8xf32>
  %dv = linalg.generic {indexing_maps = [affine_map<(a, b, c) -> (a, b, c)>, affine_map<(a, b, c) -> (b)>, affine_map<(a, b, c) -> (a, b, c)>],
                        iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%v, %s : tensor<2x4x8xi8>, tensor<4xf32>) outs(%ev : tensor<2x4x8xf32>) {
    ^bb0(%p: i8, %scale: f32, %out: f32):
      %0 = arith.uitofp %p : i8 to f32
      %1 = arith.mulf %0, %scale : f32
      linalg.yield %1 : f32
  } -> tensor<2x4x8xf32>
  %joined = tensor.collapse_shape %dv [[0, 1], [2]] : tensor<2x4x8xf32> into tensor<8x8xf32>
  %ew = tensor.empty() : tensor<8x6xf32>
  %dw = linalg.generic {indexing_maps = [affine_map<(a, b) -> (a, b)>, affine_map<(a, b) -> (a, b)>], iterator_types = ["parallel", "parallel"]}
      ins(%w : tensor<8x6xi8>) outs(%ew : tensor<8x6xf32>) {
    ^bb0(%p: i8, %out: f32):
      %0 = arith.sitofp %p : i8 to f32
      linalg.yield %0 : f32
  } -> tensor<8x6xf32>
  %e = tensor.empty() : tensor<4x6xf32>
  %init = linalg.fill ins(%c0 : f32) outs(%e : tensor<4x6xf32>) -> tensor<4x6xf32>
  %e2 = tensor.empty() : tensor<8x6xf32>
  %init2 = linalg.fill ins(%c0 : f32) outs(%e2 : tensor<8x6xf32>) -> tensor<8x6xf32>
  %y = linalg.matmul ins(%pad, %dw : tensor<4x8xf32>, tensor<8x6xf32>) outs(%init : tensor<4x6xf32>) -> tensor<4x6xf32>
  %z = linalg.matmul ins(%joined, %dw : tensor<8x8xf32>, tensor<8x6xf32>) outs(%init2 : tensor<8x6xf32>) -> tensor<8x6xf32>
  return %y, %z : tensor<4x6xf32>, tensor<8x6xf32>
}

// Filters with their channels last are a weight, too; a matrix that is only turned is read as it is, and an operand of no
// weight keeps its views.
// GLOBAL-DAG: attn.global @[[LAST:.*]] : tensor<5x2x2x3xi8> = #attn.transpose<@filters, [0, 2, 3, 1]>
// GLOBAL-DAG: attn.global @{{.*}} : tensor<5x12xi8> = #attn.reshape<@[[LAST]]>
// CHECK-LABEL: @turns
// CHECK-DAG: attn.weight @filters_view{{.*}} : tensor<5x12xi8>
// CHECK-DAG: attn.weight @turned : tensor<6x8xi8>
// CHECK-LABEL: @given
// CHECK: arith.uitofp
// CHECK: tensor.collapse_shape {{.*}}xf32>
func.func @turns(%x: tensor<4x8xf32>, %y: tensor<4x12xf32>, %ew: tensor<6x8xf32>, %et: tensor<8x6xf32>, %zeros: tensor<4x6xf32>, %zeros5: tensor<4x5xf32>)
    -> (tensor<4x6xf32>, tensor<4x5xf32>) {
  %c0 = arith.constant 0.0 : f32
  %w = attn.weight @turned : tensor<6x8xi8>
  %dw = linalg.generic {indexing_maps = [affine_map<(a, b) -> (a, b)>, affine_map<(a, b) -> (a, b)>], iterator_types = ["parallel", "parallel"]}
      ins(%w : tensor<6x8xi8>) outs(%ew : tensor<6x8xf32>) {
    ^bb0(%p: i8, %out: f32):
      %0 = arith.sitofp %p : i8 to f32
      linalg.yield %0 : f32
  } -> tensor<6x8xf32>
  %t = linalg.transpose ins(%dw : tensor<6x8xf32>) outs(%et : tensor<8x6xf32>) permutation = [1, 0]
  %init = linalg.fill ins(%c0 : f32) outs(%zeros : tensor<4x6xf32>) -> tensor<4x6xf32>
  %r = linalg.matmul ins(%x, %t : tensor<4x8xf32>, tensor<8x6xf32>) outs(%init : tensor<4x6xf32>) -> tensor<4x6xf32>
  %v = attn.weight @filters : tensor<5x3x2x2xi8>
  %ev = tensor.empty() : tensor<5x3x2x2xf32>
  %dv = linalg.generic {indexing_maps = [affine_map<(a, b, c, d) -> (a, b, c, d)>, affine_map<(a, b, c, d) -> (a, b, c, d)>],
                        iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%v : tensor<5x3x2x2xi8>) outs(%ev : tensor<5x3x2x2xf32>) {
    ^bb0(%p: i8, %out: f32):
      %0 = arith.sitofp %p : i8 to f32
      linalg.yield %0 : f32
  } -> tensor<5x3x2x2xf32>
  %el = tensor.empty() : tensor<5x2x2x3xf32>
  %last = linalg.transpose ins(%dv : tensor<5x3x2x2xf32>) outs(%el : tensor<5x2x2x3xf32>) permutation = [0, 2, 3, 1]
  %matrix = tensor.collapse_shape %last [[0], [1, 2, 3]] : tensor<5x2x2x3xf32> into tensor<5x12xf32>
  %init5 = linalg.fill ins(%c0 : f32) outs(%zeros5 : tensor<4x5xf32>) -> tensor<4x5xf32>
  %s = linalg.contract indexing_maps = [affine_map<(i, n, k) -> (i, k)>, affine_map<(i, n, k) -> (n, k)>, affine_map<(i, n, k) -> (i, n)>]
      ins(%y, %matrix : tensor<4x12xf32>, tensor<5x12xf32>) outs(%init5 : tensor<4x5xf32>) -> tensor<4x5xf32>
  return %r, %s : tensor<4x6xf32>, tensor<4x5xf32>
}
func.func @given(%x: tensor<2x2x8xi8>, %w: tensor<8x6xf32>, %zeros: tensor<4x6xf32>) -> tensor<4x6xf32> {
  %c0 = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<2x2x8xf32>
  %dx = linalg.generic {indexing_maps = [affine_map<(a, b, c) -> (a, b, c)>, affine_map<(a, b, c) -> (a, b, c)>], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%x : tensor<2x2x8xi8>) outs(%e : tensor<2x2x8xf32>) {
    ^bb0(%p: i8, %out: f32):
      %0 = arith.uitofp %p : i8 to f32
      linalg.yield %0 : f32
  } -> tensor<2x2x8xf32>
  %rows = tensor.collapse_shape %dx [[0, 1], [2]] : tensor<2x2x8xf32> into tensor<4x8xf32>
  %init = linalg.fill ins(%c0 : f32) outs(%zeros : tensor<4x6xf32>) -> tensor<4x6xf32>
  %y = linalg.matmul ins(%rows, %w : tensor<4x8xf32>, tensor<8x6xf32>) outs(%init : tensor<4x6xf32>) -> tensor<4x6xf32>
  return %y : tensor<4x6xf32>
}
