// RUN: attn-opt %s --attn-choose-gpu-rows | FileCheck %s

// What numbers are rounded to bytes by: both extremes of a tensor are one kernel, and so is the greatest |x| of rows.
module attributes {attn.target = #attn.target<triple = "x86_64-unknown-linux-gnu", cpu = "x86-64-v3", features = "", isa = "avx2", l1 = 32768, l2 = 524288>} {
// CHECK-LABEL: func.func @range
// CHECK-SAME: %[[X:[^:]*]]: tensor<?x70xf32>
// CHECK: %[[ALL:.*]]:3 = attn.kernel @gpu_range_x_70 ins(%[[X]] : tensor<?x70xf32>)
// CHECK: return %[[ALL]]#1, %[[ALL]]#2
func.func @range(%x: tensor<?x70xf32>) -> (tensor<f32>, tensor<f32>) {
  %low = arith.constant dense<0xFF800000> : tensor<f32>
  %high = arith.constant dense<0x7F800000> : tensor<f32>
  %a = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> ()>], iterator_types = ["reduction", "reduction"]}
      ins(%x : tensor<?x70xf32>) outs(%low : tensor<f32>) {
    ^bb0(%e: f32, %s: f32):
      %0 = arith.maximumf %s, %e : f32
      linalg.yield %0 : f32
  } -> tensor<f32>
  %b = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> ()>], iterator_types = ["reduction", "reduction"]}
      ins(%x : tensor<?x70xf32>) outs(%high : tensor<f32>) {
    ^bb0(%e: f32, %s: f32):
      %0 = arith.minimumf %s, %e : f32
      linalg.yield %0 : f32
  } -> tensor<f32>
  return %a, %b : tensor<f32>, tensor<f32>
}

// CHECK-LABEL: func.func @magnitudes
// CHECK: %[[M:.*]] = attn.kernel @gpu_row_magnitudes_x_5_70 ins(%{{.*}} : tensor<?x5x70xf32>) outs(%{{.*}} : tensor<?x5xf32>)
// CHECK: return %[[M]]
func.func @magnitudes(%x: tensor<?x5x70xf32>, %e: tensor<?x5xf32>) -> tensor<?x5xf32> {
  %zero = arith.constant 0.0 : f32
  %start = linalg.fill ins(%zero : f32) outs(%e : tensor<?x5xf32>) -> tensor<?x5xf32>
  %a = linalg.generic {indexing_maps = [affine_map<(b, i, j) -> (b, i, j)>, affine_map<(b, i, j) -> (b, i)>], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x : tensor<?x5x70xf32>) outs(%start : tensor<?x5xf32>) {
    ^bb0(%e0: f32, %s: f32):
      %0 = math.absf %e0 : f32
      %1 = arith.maximumf %s, %0 : f32
      linalg.yield %1 : f32
  } -> tensor<?x5xf32>
  return %a : tensor<?x5xf32>
}

// Near misses: one extreme alone, and magnitudes that begin with another number than 0.
// CHECK-LABEL: func.func @others
// CHECK-NOT: attn.kernel
// CHECK: return
func.func @others(%x: tensor<?x70xf32>, %e: tensor<?xf32>) -> (tensor<f32>, tensor<?xf32>) {
  %low = arith.constant dense<0xFF800000> : tensor<f32>
  %one = arith.constant 1.0 : f32
  %start = linalg.fill ins(%one : f32) outs(%e : tensor<?xf32>) -> tensor<?xf32>
  %a = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> ()>], iterator_types = ["reduction", "reduction"]}
      ins(%x : tensor<?x70xf32>) outs(%low : tensor<f32>) {
    ^bb0(%e0: f32, %s: f32):
      %0 = arith.maximumf %s, %e0 : f32
      linalg.yield %0 : f32
  } -> tensor<f32>
  %b = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<?x70xf32>) outs(%start : tensor<?xf32>) {
    ^bb0(%e0: f32, %s: f32):
      %0 = math.absf %e0 : f32
      %1 = arith.maximumf %s, %0 : f32
      linalg.yield %1 : f32
  } -> tensor<?xf32>
  return %a, %b : tensor<f32>, tensor<?xf32>
}
}
