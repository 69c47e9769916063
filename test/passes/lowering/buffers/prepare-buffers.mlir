// RUN: attn-opt %s --attn-prepare-buffers --split-input-file | FileCheck %s

// Each writer its own fill; the tensor.empty behind a fill of one use stays shared.
// CHECK-LABEL: func.func @fills
// CHECK-COUNT-2: linalg.fill
func.func @fills(%x: tensor<4x4xf32>) -> (tensor<4x4xf32>, tensor<4x4xf32>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x4xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %a = linalg.matmul ins(%x, %x : tensor<4x4xf32>, tensor<4x4xf32>) outs(%z : tensor<4x4xf32>) -> tensor<4x4xf32>
  %b = linalg.matmul ins(%a, %x : tensor<4x4xf32>, tensor<4x4xf32>) outs(%z : tensor<4x4xf32>) -> tensor<4x4xf32>
  return %a, %b : tensor<4x4xf32>, tensor<4x4xf32>
}

// -----

// So has each loop, and a value that is no fill is copied for all but one.
// CHECK-LABEL: func.func @loops
// CHECK: %[[SUM:.*]] = linalg.generic
// CHECK: %[[COPY:.*]] = linalg.copy ins(%[[SUM]]
// CHECK: scf.for {{.*}} iter_args(%{{.*}} = %[[COPY]])
// CHECK: scf.for {{.*}} iter_args(%{{.*}} = %[[SUM]])
func.func @loops(%x: tensor<4xf32>, %n: index) -> (tensor<4xf32>, tensor<4xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %one = arith.constant 1.0 : f32
  %e = tensor.empty() : tensor<4xf32>
  %s = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}
      ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) {
  ^bb0(%in: f32, %out: f32):
    %t = arith.addf %in, %one : f32
    linalg.yield %t : f32
  } -> tensor<4xf32>
  %a = scf.for %i = %c0 to %n step %c1 iter_args(%t = %s) -> (tensor<4xf32>) {
    %u = tensor.insert %one into %t[%i] : tensor<4xf32>
    scf.yield %u : tensor<4xf32>
  }
  %b = scf.for %i = %c0 to %n step %c1 iter_args(%t = %s) -> (tensor<4xf32>) {
    %u = tensor.insert %one into %t[%i] : tensor<4xf32>
    scf.yield %u : tensor<4xf32>
  }
  return %a, %b : tensor<4xf32>, tensor<4xf32>
}

// -----

// What has no elements is not reshaped but made; what may have some is.
// CHECK-LABEL: func.func @empty
// CHECK-NOT: tensor.collapse_shape %arg0
// CHECK: %[[NONE:.*]] = tensor.empty(%{{.*}}) : tensor<?x32xf32>
// CHECK: %[[SOME:.*]] = tensor.collapse_shape %arg1
// CHECK: return %[[NONE]], %[[SOME]]
func.func @empty(%a: tensor<?x0x32xf32>, %b: tensor<?x1x32xf32>) -> (tensor<?x32xf32>, tensor<?x32xf32>) {
  %c = tensor.collapse_shape %a [[0, 1], [2]] : tensor<?x0x32xf32> into tensor<?x32xf32>
  %d = tensor.collapse_shape %b [[0, 1], [2]] : tensor<?x1x32xf32> into tensor<?x32xf32>
  return %c, %d : tensor<?x32xf32>, tensor<?x32xf32>
}

// -----

// What stands at the end of a tensor is empty: memref.subview refuses such a place once it sees the size behind the cast.
// CHECK-LABEL: func.func @slices_at_the_end
// CHECK-SAME: %[[X:[^:]+]]: tensor<2xf32>, %[[Y:[^:]+]]: tensor<?xf32>, %[[N:[^:]+]]: index
// CHECK: %[[W:.+]] = tensor.cast %[[X]]
// CHECK: %[[S:.+]] = tensor.empty(%[[N]]) : tensor<?xf32>
// CHECK: %[[L:.+]] = tensor.extract_slice %[[W]][1] [%[[N]]] [1]
// CHECK: return %[[S]], %[[W]], %[[L]]
func.func @slices_at_the_end(%x: tensor<2xf32>, %y: tensor<?xf32>, %n: index) -> (tensor<?xf32>, tensor<?xf32>, tensor<?xf32>) {
  %w = tensor.cast %x : tensor<2xf32> to tensor<?xf32>
  %s = tensor.extract_slice %w[2] [%n] [1] : tensor<?xf32> to tensor<?xf32>
  %i = tensor.insert_slice %y into %w[2] [%n] [1] : tensor<?xf32> into tensor<?xf32>
  %l = tensor.extract_slice %w[1] [%n] [1] : tensor<?xf32> to tensor<?xf32>
  return %s, %i, %l : tensor<?xf32>, tensor<?xf32>, tensor<?xf32>
}

// -----

// A concatenation becomes its parts, each written into its place.
// CHECK-LABEL: func.func @concatenation
// CHECK-NOT: tensor.concat
// CHECK: %[[FIRST:.*]] = tensor.insert_slice %arg0 into %{{.*}}[0, 0]
// CHECK: tensor.insert_slice %arg1 into %[[FIRST]][0, %{{.*}}]
func.func @concatenation(%x: tensor<2x?xf32>, %y: tensor<2x?xf32>) -> tensor<2x?xf32> {
  %z = tensor.concat dim(1) %x, %y : (tensor<2x?xf32>, tensor<2x?xf32>) -> tensor<2x?xf32>
  return %z : tensor<2x?xf32>
}
