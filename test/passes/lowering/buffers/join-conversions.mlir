// RUN: attn-opt %s --attn-join-conversions | FileCheck %s

// A cache that comes in f32, is appended to in f16 and goes as f32: what came is rounded and widened in one loop, what is
// new widened alone, and both caches are put together.
// CHECK-LABEL: func.func @cache
// CHECK-SAME: %[[PAST:.*]]: tensor<2x?xf32>, %[[NEW:.*]]: tensor<2x1xf16>
// CHECK: %[[BOTH:.*]]:2 = linalg.generic {{.*}} ins(%[[PAST]] : tensor<2x?xf32>) outs({{.*}} : tensor<2x?xf16>, tensor<2x?xf32>)
// CHECK: %[[ROUNDED:.*]] = arith.truncf %{{.*}} : f32 to f16
// CHECK-NEXT: %[[WIDE:.*]] = arith.extf %[[ROUNDED]] : f16 to f32
// CHECK-NEXT: linalg.yield %[[ROUNDED]], %[[WIDE]] : f16, f32
// CHECK: tensor.insert_slice %[[BOTH]]#0 into %{{.*}} : tensor<2x?xf16> into tensor<2x?xf16>
// CHECK: %[[HALVES:.*]] = tensor.insert_slice %[[NEW]] into
// CHECK: tensor.insert_slice %[[BOTH]]#1 into %{{.*}} : tensor<2x?xf32> into tensor<2x?xf32>
// CHECK: %[[WIDENED:.*]] = linalg.generic {{.*}} ins(%[[NEW]] : tensor<2x1xf16>)
// CHECK: %[[FLOATS:.*]] = tensor.insert_slice %[[WIDENED]] into
// CHECK: return %[[HALVES]], %[[FLOATS]]
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @cache(%past: tensor<2x?xf32>, %new: tensor<2x1xf16>, %n: index, %m: index)
    -> (tensor<2x?xf16>, tensor<2x?xf32>) {
  %e = tensor.empty(%n) : tensor<2x?xf16>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%past : tensor<2x?xf32>) outs(%e : tensor<2x?xf16>) {
  ^bb0(%in: f32, %out: f16):
    %t = arith.truncf %in : f32 to f16
    linalg.yield %t : f16
  } -> tensor<2x?xf16>
  %whole = tensor.empty(%m) : tensor<2x?xf16>
  %a = tensor.insert_slice %r into %whole[0, 0] [2, %n] [1, 1] : tensor<2x?xf16> into tensor<2x?xf16>
  %b = tensor.insert_slice %new into %a[0, %n] [2, 1] [1, 1] : tensor<2x1xf16> into tensor<2x?xf16>
  %w = tensor.empty(%m) : tensor<2x?xf32>
  %f = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%b : tensor<2x?xf16>) outs(%w : tensor<2x?xf32>) {
  ^bb0(%in: f16, %out: f32):
    %x = arith.extf %in : f16 to f32
    linalg.yield %x : f32
  } -> tensor<2x?xf32>
  return %b, %f : tensor<2x?xf16>, tensor<2x?xf32>
}

// Where everything came in f16, widening stays one loop over the whole.
// CHECK-LABEL: func.func @narrow
// CHECK: tensor.insert_slice
// CHECK: %[[ALL:.*]] = tensor.insert_slice
// CHECK: linalg.generic {{.*}} ins(%[[ALL]] :
// CHECK-NOT: tensor.insert_slice
func.func @narrow(%past: tensor<2x4xf16>, %new: tensor<2x1xf16>) -> tensor<2x5xf32> {
  %whole = tensor.empty() : tensor<2x5xf16>
  %a = tensor.insert_slice %past into %whole[0, 0] [2, 4] [1, 1] : tensor<2x4xf16> into tensor<2x5xf16>
  %b = tensor.insert_slice %new into %a[0, 4] [2, 1] [1, 1] : tensor<2x1xf16> into tensor<2x5xf16>
  %w = tensor.empty() : tensor<2x5xf32>
  %f = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%b : tensor<2x5xf16>) outs(%w : tensor<2x5xf32>) {
  ^bb0(%in: f16, %out: f32):
    %x = arith.extf %in : f16 to f32
    linalg.yield %x : f32
  } -> tensor<2x5xf32>
  return %f : tensor<2x5xf32>
}

// Parts that stand in what was there before are no concatenation: what was there is not known to be wide.
// CHECK-LABEL: func.func @written
// CHECK: %[[SET:.*]] = tensor.insert_slice
// CHECK: linalg.generic {{.*}} ins(%[[SET]] :
func.func @written(%past: tensor<2x4xf32>, %old: tensor<2x5xf16>) -> tensor<2x5xf32> {
  %e = tensor.empty() : tensor<2x4xf16>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%past : tensor<2x4xf32>) outs(%e : tensor<2x4xf16>) {
  ^bb0(%in: f32, %out: f16):
    %t = arith.truncf %in : f32 to f16
    linalg.yield %t : f16
  } -> tensor<2x4xf16>
  %a = tensor.insert_slice %r into %old[0, 0] [2, 4] [1, 1] : tensor<2x4xf16> into tensor<2x5xf16>
  %w = tensor.empty() : tensor<2x5xf32>
  %f = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%a : tensor<2x5xf16>) outs(%w : tensor<2x5xf32>) {
  ^bb0(%in: f16, %out: f32):
    %x = arith.extf %in : f16 to f32
    linalg.yield %x : f32
  } -> tensor<2x5xf32>
  return %f : tensor<2x5xf32>
}

// Another function of what is rounded is no widening.
// CHECK-LABEL: func.func @other
// CHECK: linalg.generic {{.*}} outs(%{{.*}} : tensor<4xf16>)
// CHECK: linalg.generic {{.*}} outs(%{{.*}} : tensor<4xf32>)
#line = affine_map<(d0) -> (d0)>
func.func @other(%x: tensor<4xf32>) -> (tensor<4xf16>, tensor<4xf32>) {
  %e = tensor.empty() : tensor<4xf16>
  %r = linalg.generic {indexing_maps = [#line, #line], iterator_types = ["parallel"]}
      ins(%x : tensor<4xf32>) outs(%e : tensor<4xf16>) {
  ^bb0(%in: f32, %out: f16):
    %t = arith.truncf %in : f32 to f16
    linalg.yield %t : f16
  } -> tensor<4xf16>
  %w = tensor.empty() : tensor<4xf32>
  %f = linalg.generic {indexing_maps = [#line, #line], iterator_types = ["parallel"]}
      ins(%r : tensor<4xf16>) outs(%w : tensor<4xf32>) {
  ^bb0(%in: f16, %out: f32):
    %x1 = arith.extf %in : f16 to f32
    %n = arith.negf %x1 : f32
    linalg.yield %n : f32
  } -> tensor<4xf32>
  return %r, %f : tensor<4xf16>, tensor<4xf32>
}

// A size that only the widened floats' type tells stays in that type.
// CHECK-LABEL: func.func @sizes
// CHECK: %[[BOTH:.*]]:2 = linalg.generic
// CHECK: tensor.cast %[[BOTH]]#1 : tensor<?xf32> to tensor<4xf32>
func.func @sizes(%x: tensor<?xf32>, %n: index) -> (tensor<?xf16>, tensor<4xf32>) {
  %e = tensor.empty(%n) : tensor<?xf16>
  %r = linalg.generic {indexing_maps = [#line, #line], iterator_types = ["parallel"]}
      ins(%x : tensor<?xf32>) outs(%e : tensor<?xf16>) {
  ^bb0(%in: f32, %out: f16):
    %t = arith.truncf %in : f32 to f16
    linalg.yield %t : f16
  } -> tensor<?xf16>
  %w = tensor.empty() : tensor<4xf32>
  %f = linalg.generic {indexing_maps = [#line, #line], iterator_types = ["parallel"]}
      ins(%r : tensor<?xf16>) outs(%w : tensor<4xf32>) {
  ^bb0(%in: f16, %out: f32):
    %x1 = arith.extf %in : f16 to f32
    linalg.yield %x1 : f32
  } -> tensor<4xf32>
  return %r, %f : tensor<?xf16>, tensor<4xf32>
}
