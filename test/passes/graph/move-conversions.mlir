// RUN: attn-opt %s --attn-move-conversions --canonicalize --cse | FileCheck %s

#id2 = affine_map<(i, j) -> (i, j)>
#a = affine_map<(m, n, k) -> (m, k)>
#b = affine_map<(m, n, k) -> (n, k)>
#c = affine_map<(m, n, k) -> (m, n)>

// What is turned to and fro and rounded between is rounded alone.
// CHECK-LABEL: func.func @narrow
// CHECK-SAME: (%[[X:.*]]: tensor<?x6x8xf32>)
// CHECK: %[[Y:.*]] = linalg.generic {{.*}} ins(%[[X]] : tensor<?x6x8xf32>) {{.*}} attrs = {attn.rounds} {
// CHECK: arith.truncf %{{.*}} : f32 to bf16
// CHECK-NOT: linalg.transpose
// CHECK: return %[[Y]]
func.func @narrow(%x: tensor<?x6x8xf32>) -> tensor<?x6x8xbf16> {
  %c0 = arith.constant 0 : index
  %n = tensor.dim %x, %c0 : tensor<?x6x8xf32>
  %0 = tensor.empty(%n) : tensor<?x8x6xf32>
  %t = linalg.transpose ins(%x : tensor<?x6x8xf32>) outs(%0 : tensor<?x8x6xf32>) permutation = [0, 2, 1]
  %f = tensor.collapse_shape %t [[0], [1, 2]] : tensor<?x8x6xf32> into tensor<?x48xf32>
  %1 = tensor.empty(%n) : tensor<?x48xbf16>
  %r = linalg.generic {indexing_maps = [#id2, #id2], iterator_types = ["parallel", "parallel"]}
      ins(%f : tensor<?x48xf32>) outs(%1 : tensor<?x48xbf16>) attrs = {attn.rounds} {
  ^bb0(%in: f32, %out: bf16):
    %v = arith.truncf %in : f32 to bf16
    linalg.yield %v : bf16
  } -> tensor<?x48xbf16>
  %e = tensor.expand_shape %r [[0], [1, 2]] output_shape [%n, 8, 6] : tensor<?x48xbf16> into tensor<?x8x6xbf16>
  %2 = tensor.empty(%n) : tensor<?x6x8xbf16>
  %y = linalg.transpose ins(%e : tensor<?x8x6xbf16>) outs(%2 : tensor<?x6x8xbf16>) permutation = [0, 2, 1]
  return %y : tensor<?x6x8xbf16>
}

// Both factors are multiplied as they are. Near misses: one that is f32, and two of different types.
// CHECK-LABEL: func.func @contract
// CHECK: linalg.transpose ins(%{{.*}} : tensor<8x4xbf16>)
// CHECK: linalg.contract {{.*}} ins(%{{.*}}, %{{.*}} : tensor<4x8xbf16>, tensor<6x8xbf16>)
// CHECK: linalg.contract {{.*}} ins(%{{.*}}, %{{.*}} : tensor<4x8xf32>, tensor<6x8xf32>)
// CHECK: linalg.contract {{.*}} ins(%{{.*}}, %{{.*}} : tensor<4x8xf32>, tensor<6x8xf32>)
func.func @contract(%x: tensor<8x4xbf16>, %w: tensor<6x8xbf16>, %f: tensor<6x8xf32>, %h: tensor<6x8xf16>, %zeros: tensor<4x6xf32>)
    -> (tensor<4x6xf32>, tensor<4x6xf32>, tensor<4x6xf32>) {
  %0 = tensor.empty() : tensor<8x4xf32>
  %wide = linalg.generic {indexing_maps = [#id2, #id2], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<8x4xbf16>) outs(%0 : tensor<8x4xf32>) {
  ^bb0(%in: bf16, %out: f32):
    %v = arith.extf %in : bf16 to f32
    linalg.yield %v : f32
  } -> tensor<8x4xf32>
  %1 = tensor.empty() : tensor<4x8xf32>
  %t = linalg.transpose ins(%wide : tensor<8x4xf32>) outs(%1 : tensor<4x8xf32>) permutation = [1, 0]
  %2 = tensor.empty() : tensor<6x8xf32>
  %wideW = linalg.generic {indexing_maps = [#id2, #id2], iterator_types = ["parallel", "parallel"]}
      ins(%w : tensor<6x8xbf16>) outs(%2 : tensor<6x8xf32>) {
  ^bb0(%in: bf16, %out: f32):
    %v = arith.extf %in : bf16 to f32
    linalg.yield %v : f32
  } -> tensor<6x8xf32>
  %wideH = linalg.generic {indexing_maps = [#id2, #id2], iterator_types = ["parallel", "parallel"]}
      ins(%h : tensor<6x8xf16>) outs(%2 : tensor<6x8xf32>) {
  ^bb0(%in: f16, %out: f32):
    %v = arith.extf %in : f16 to f32
    linalg.yield %v : f32
  } -> tensor<6x8xf32>
  %p = linalg.contract indexing_maps = [#a, #b, #c] ins(%t, %wideW : tensor<4x8xf32>, tensor<6x8xf32>) outs(%zeros : tensor<4x6xf32>) -> tensor<4x6xf32>
  %q = linalg.contract indexing_maps = [#a, #b, #c] ins(%t, %f : tensor<4x8xf32>, tensor<6x8xf32>) outs(%zeros : tensor<4x6xf32>) -> tensor<4x6xf32>
  %r = linalg.contract indexing_maps = [#a, #b, #c] ins(%t, %wideH : tensor<4x8xf32>, tensor<6x8xf32>) outs(%zeros : tensor<4x6xf32>) -> tensor<4x6xf32>
  return %p, %q, %r : tensor<4x6xf32>, tensor<4x6xf32>, tensor<4x6xf32>
}

// Near miss: something else reads what was transposed.
// CHECK-LABEL: func.func @shared
// CHECK: linalg.transpose ins(%{{.*}} : tensor<4x8xf32>)
// CHECK: linalg.generic
// CHECK-NOT: linalg.transpose
func.func @shared(%x: tensor<4x8xf32>) -> (tensor<8x4xf32>, tensor<8x4xbf16>) {
  %0 = tensor.empty() : tensor<8x4xf32>
  %t = linalg.transpose ins(%x : tensor<4x8xf32>) outs(%0 : tensor<8x4xf32>) permutation = [1, 0]
  %1 = tensor.empty() : tensor<8x4xbf16>
  %y = linalg.generic {indexing_maps = [#id2, #id2], iterator_types = ["parallel", "parallel"]}
      ins(%t : tensor<8x4xf32>) outs(%1 : tensor<8x4xbf16>) {
  ^bb0(%in: f32, %out: bf16):
    %v = arith.truncf %in : f32 to bf16
    linalg.yield %v : bf16
  } -> tensor<8x4xbf16>
  return %t, %y : tensor<8x4xf32>, tensor<8x4xbf16>
}
