// RUN: attn-opt %s -attn-split-concat -split-input-file | FileCheck %s

#rep = affine_map<(b, j, k) -> (b, k)>
#id = affine_map<(b, j, k) -> (b, j, k)>
#x = affine_map<(b, j, a, k) -> (b, j, k)>
#w = affine_map<(b, j, a, k) -> (k, a)>
#o = affine_map<(b, j, a, k) -> (b, j, a)>
// W [s; h] with s repeated for every key: two products, the first for s as it is; slices of a weight are weights.
// CHECK-DAG: attn.global @w : tensor<24x8xf32>
// CHECK-DAG: attn.global @[[W1:.+]] : tensor<16x8xf32> = #attn.slice<@w, dim 0 at 0 size 16>
// CHECK-DAG: attn.global @[[W2:.+]] : tensor<8x8xf32> = #attn.slice<@w, dim 0 at 16 size 8>
// CHECK-LABEL: func.func @repeated_part
// CHECK-SAME: %[[S:[^:]+]]: tensor<2x16xf32>, %[[H:[^:]+]]: tensor<2x5x8xf32>
// CHECK-DAG: %[[A:.+]] = linalg.contract {{.*}} ins(%[[S]], %{{.+}} : tensor<2x16xf32>, tensor<16x8xf32>) {{.*}} -> tensor<2x8xf32>
// CHECK-DAG: %[[B:.+]] = linalg.contract {{.*}} ins(%[[H]], %{{.+}} : tensor<2x5x8xf32>, tensor<8x8xf32>) {{.*}} -> tensor<2x5x8xf32>
// CHECK: %[[SUM:.+]] = linalg.generic {{.*}} ins(%[[B]], %[[A]] : tensor<2x5x8xf32>, tensor<2x8xf32>)
// CHECK: return %[[SUM]]
attn.global @w : tensor<24x8xf32> = #attn.initializer<"w">
func.func @repeated_part(%s: tensor<2x16xf32>, %h: tensor<2x5x8xf32>) -> tensor<2x5x8xf32> {
  %zero = arith.constant 0.0 : f32
  %er = tensor.empty() : tensor<2x5x16xf32>
  %r = linalg.generic {indexing_maps = [#rep, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%s : tensor<2x16xf32>) outs(%er : tensor<2x5x16xf32>) {
  ^bb0(%e: f32, %y: f32):
    linalg.yield %e : f32
  } -> tensor<2x5x16xf32>
  %ec = tensor.empty() : tensor<2x5x24xf32>
  %c1 = tensor.insert_slice %r into %ec[0, 0, 0] [2, 5, 16] [1, 1, 1] : tensor<2x5x16xf32> into tensor<2x5x24xf32>
  %c = tensor.insert_slice %h into %c1[0, 0, 16] [2, 5, 8] [1, 1, 1] : tensor<2x5x8xf32> into tensor<2x5x24xf32>
  %w = attn.weight @w : tensor<24x8xf32>
  %eo = tensor.empty() : tensor<2x5x8xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<2x5x8xf32>) -> tensor<2x5x8xf32>
  %o = linalg.contract indexing_maps = [#x, #w, #o] ins(%c, %w : tensor<2x5x24xf32>, tensor<24x8xf32>)
      outs(%fo : tensor<2x5x8xf32>) -> tensor<2x5x8xf32>
  return %o : tensor<2x5x8xf32>
}

// -----

#x = affine_map<(b, a, k) -> (b, k)>
#w = affine_map<(b, a, k) -> (k, a)>
#o = affine_map<(b, a, k) -> (b, a)>
// No part is repeated: one product is better than two.
// CHECK-LABEL: func.func @nothing_repeated
// CHECK-COUNT-1: linalg.contract
// CHECK-NOT: linalg.contract
func.func @nothing_repeated(%s: tensor<2x16xf32>, %h: tensor<2x8xf32>, %w: tensor<24x8xf32>) -> tensor<2x8xf32> {
  %zero = arith.constant 0.0 : f32
  %ec = tensor.empty() : tensor<2x24xf32>
  %c1 = tensor.insert_slice %s into %ec[0, 0] [2, 16] [1, 1] : tensor<2x16xf32> into tensor<2x24xf32>
  %c = tensor.insert_slice %h into %c1[0, 16] [2, 8] [1, 1] : tensor<2x8xf32> into tensor<2x24xf32>
  %eo = tensor.empty() : tensor<2x8xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<2x8xf32>) -> tensor<2x8xf32>
  %o = linalg.contract indexing_maps = [#x, #w, #o] ins(%c, %w : tensor<2x24xf32>, tensor<24x8xf32>)
      outs(%fo : tensor<2x8xf32>) -> tensor<2x8xf32>
  return %o : tensor<2x8xf32>
}
