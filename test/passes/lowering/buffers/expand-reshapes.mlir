// RUN: attn-opt %s --pass-pipeline='builtin.module(func.func(attn-expand-reshapes),expand-strided-metadata)' \
// RUN: | FileCheck %s --implicit-check-not=expand_shape

// CHECK-LABEL: func.func @contiguous
// CHECK: reinterpret_cast %{{.*}} to offset: [0], sizes: [%arg1, %arg2], strides: [%arg2, 1]
func.func @contiguous(%a: memref<?xf32>, %m: index, %n: index) -> memref<?x?xf32> {
  %0 = memref.expand_shape %a [[0, 1]] output_shape [%m, %n] : memref<?xf32> into memref<?x?xf32>
  return %0 : memref<?x?xf32>
}

// A row of a view as a matrix of one row, both sizes known to the run alone: upstream's pattern crashes on it.
// CHECK-LABEL: func.func @row
// CHECK: %base_buffer, %[[OFFSET:[a-z]+]], %{{[a-z]+}}:2, %[[STRIDES:[a-z]+]]:2 = memref.extract_strided_metadata
// CHECK: reinterpret_cast %{{.*}} to offset: [%[[OFFSET]]], sizes: [1, %arg1], strides: [%[[STRIDES]]#0, 1]
!view = memref<1x?xi64, strided<[?, 1], offset: ?>>
!three = memref<1x?x?xi64, strided<[?, ?, 1], offset: ?>>
!one = memref<1x1x?xi64, strided<[?, ?, 1], offset: ?>>
func.func @row(%a: !view, %n: index) -> memref<1x?xi64, strided<[?, ?], offset: ?>> {
  %c1 = arith.constant 1 : index
  %0 = memref.expand_shape %a [[0], [1, 2]] output_shape [1, %c1, %n] : !view into !three
  %1 = memref.cast %0 : !three to !one
  %2 = memref.collapse_shape %1 [[0], [1, 2]] : !one into memref<1x?xi64, strided<[?, ?], offset: ?>>
  return %2 : memref<1x?xi64, strided<[?, ?], offset: ?>>
}

// Every other column: a group's innermost stride is its dimension's.
// CHECK-LABEL: func.func @columns
// CHECK: %[[OUTER:.*]] = affine.apply {{.*}}()[%arg2]
// CHECK: reinterpret_cast %{{.*}} to offset: [3], sizes: [4, %arg1, %arg2], strides: [%{{.*}}, %[[OUTER]], 2]
func.func @columns(%a: memref<4x?xf32, strided<[?, 2], offset: 3>>, %m: index, %n: index)
    -> memref<4x?x?xf32, strided<[?, ?, 2], offset: 3>> {
  %0 = memref.expand_shape %a [[0], [1, 2]] output_shape [4, %m, %n]
      : memref<4x?xf32, strided<[?, 2], offset: 3>> into memref<4x?x?xf32, strided<[?, ?, 2], offset: 3>>
  return %0 : memref<4x?x?xf32, strided<[?, ?, 2], offset: 3>>
}

// One element anywhere in a buffer.
// CHECK-LABEL: func.func @scalar
// CHECK: %base_buffer, %[[OFFSET:[a-z]+]] = memref.extract_strided_metadata
// CHECK: reinterpret_cast %{{.*}} to offset: [%[[OFFSET]]], sizes: [1, 1], strides: [1, 1]
func.func @scalar(%a: memref<f32, strided<[], offset: ?>>) -> memref<1x1xf32, strided<[1, 1], offset: ?>> {
  %0 = memref.expand_shape %a [] output_shape [1, 1]
      : memref<f32, strided<[], offset: ?>> into memref<1x1xf32, strided<[1, 1], offset: ?>>
  return %0 : memref<1x1xf32, strided<[1, 1], offset: ?>>
}
