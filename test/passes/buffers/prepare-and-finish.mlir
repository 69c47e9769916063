// RUN: attn-opt %s --pass-pipeline='builtin.module(func.func(attn-prepare-buffers))' --split-input-file | FileCheck %s --check-prefix=PREPARE
// RUN: attn-opt %s --pass-pipeline='builtin.module(func.func(attn-finish-buffers))' --split-input-file | FileCheck %s --check-prefix=FINISH

// Each writer its own fill; the tensor.empty behind a fill of one use stays shared.
// PREPARE-LABEL: func.func @fills
// PREPARE-COUNT-2: linalg.fill
// FINISH-LABEL: func.func @fills
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
// PREPARE-LABEL: func.func @loops
// PREPARE: %[[SUM:.*]] = linalg.generic
// PREPARE: %[[COPY:.*]] = linalg.copy ins(%[[SUM]]
// PREPARE: scf.for {{.*}} iter_args(%{{.*}} = %[[COPY]])
// PREPARE: scf.for {{.*}} iter_args(%{{.*}} = %[[SUM]])
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

// FINISH-LABEL: func.func @main(
// FINISH: %[[SLICE:.*]] = memref.subview
// FINISH: %[[DENSE:.*]] = memref.alloc(%arg1)
// FINISH: linalg.generic {{.*}} ins(%[[SLICE]] {{.*}} outs(%[[DENSE]]
// FINISH: attn.kernel @k ins(%[[DENSE]]
// FINISH-NOT: memref.copy
func.func private @k(%a: memref<?x4xf32>, %c: memref<8x8xf32>) attributes {attn.kernel}
func.func @main(%x: memref<8x8xf32>, %n: index, %y: memref<8x8xf32>) attributes {attn.entry} {
  %s = memref.subview %x[0, 0] [%n, 4] [1, 1] : memref<8x8xf32> to memref<?x4xf32, strided<[8, 1]>>
  attn.kernel @k ins(%s : memref<?x4xf32, strided<[8, 1]>>) outs(%y : memref<8x8xf32>)
  memref.copy %x, %y : memref<8x8xf32> to memref<8x8xf32>
  memref.copy %y, %y : memref<8x8xf32> to memref<8x8xf32>
  return
}

// -----

// What has no elements is not reshaped but made; what may have some is.
// PREPARE-LABEL: func.func @empty
// PREPARE-NOT: tensor.collapse_shape %arg0
// PREPARE: %[[NONE:.*]] = tensor.empty(%{{.*}}) : tensor<?x32xf32>
// PREPARE: %[[SOME:.*]] = tensor.collapse_shape %arg1
// PREPARE: return %[[NONE]], %[[SOME]]
// FINISH-LABEL: func.func @empty
func.func @empty(%a: tensor<?x0x32xf32>, %b: tensor<?x1x32xf32>) -> (tensor<?x32xf32>, tensor<?x32xf32>) {
  %c = tensor.collapse_shape %a [[0, 1], [2]] : tensor<?x0x32xf32> into tensor<?x32xf32>
  %d = tensor.collapse_shape %b [[0, 1], [2]] : tensor<?x1x32xf32> into tensor<?x32xf32>
  return %c, %d : tensor<?x32xf32>, tensor<?x32xf32>
}

// -----

// What stands at the end of a tensor is empty: memref.subview refuses such a place once it sees the size behind the cast.
// PREPARE-LABEL: func.func @slices_at_the_end
// PREPARE-SAME: %[[X:[^:]+]]: tensor<2xf32>, %[[Y:[^:]+]]: tensor<?xf32>, %[[N:[^:]+]]: index
// PREPARE: %[[W:.+]] = tensor.cast %[[X]]
// PREPARE: %[[S:.+]] = tensor.empty(%[[N]]) : tensor<?xf32>
// PREPARE: %[[L:.+]] = tensor.extract_slice %[[W]][1] [%[[N]]] [1]
// PREPARE: return %[[S]], %[[W]], %[[L]]
// FINISH-LABEL: func.func @slices_at_the_end
func.func @slices_at_the_end(%x: tensor<2xf32>, %y: tensor<?xf32>, %n: index) -> (tensor<?xf32>, tensor<?xf32>, tensor<?xf32>) {
  %w = tensor.cast %x : tensor<2xf32> to tensor<?xf32>
  %s = tensor.extract_slice %w[2] [%n] [1] : tensor<?xf32> to tensor<?xf32>
  %i = tensor.insert_slice %y into %w[2] [%n] [1] : tensor<?xf32> into tensor<?xf32>
  %l = tensor.extract_slice %w[1] [%n] [1] : tensor<?xf32> to tensor<?xf32>
  return %s, %i, %l : tensor<?xf32>, tensor<?xf32>, tensor<?xf32>
}
