// RUN: attn-opt %s --pass-pipeline='builtin.module(func.func(attn-expand-views))' | FileCheck %s

// CHECK-LABEL: func.func @views
// CHECK-NOT: memref.subview
// CHECK: %[[OFFSET:.*]] = arith.muli %arg1, %{{.*}} : index
// CHECK: memref.reinterpret_cast %{{.*}} to offset: [%[[OFFSET]]], sizes: [4], strides: [1]
// CHECK-NOT: affine.
func.func @views(%a: memref<8x4xf32>, %i: index, %n: index) -> (memref<4xf32, strided<[1], offset: ?>>, index) {
  %0 = memref.subview %a[%i, 0] [1, 4] [1, 1] : memref<8x4xf32> to memref<4xf32, strided<[1], offset: ?>>
  %1 = affine.min affine_map<()[s0, s1] -> (s0, s1 * 4)>()[%i, %n]
  return %0, %1 : memref<4xf32, strided<[1], offset: ?>>, index
}

// What is neither is left as it is, though it folds.
// CHECK-LABEL: func.func @others
// CHECK: arith.addi
func.func @others(%a: memref<?xf32>) -> f32 {
  %c1 = arith.constant 1 : index
  %0 = arith.addi %c1, %c1 : index
  %1 = memref.load %a[%0] : memref<?xf32>
  return %1 : f32
}
