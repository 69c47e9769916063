// RUN: attn-opt %s --pass-pipeline='builtin.module(func.func(attn-lower-vectors))' | FileCheck %s

// A transfer of two dimensions is a loop over its rows.
// CHECK-LABEL: func.func @rows
// CHECK: scf.for
// CHECK: vector.load %arg0
// CHECK-NOT: vector.transfer_read
func.func @rows(%a: memref<8x16xf32>) -> vector<8x16xf32> {
  %c0 = arith.constant 0 : index
  %none = arith.constant 0.0 : f32
  %0 = vector.transfer_read %a[%c0, %c0], %none {in_bounds = [true, true]} : memref<8x16xf32>, vector<8x16xf32>
  return %0 : vector<8x16xf32>
}

// CHECK-LABEL: func.func @masks
// CHECK: arith.constant dense<[0, 1, 2, 3]> : vector<4xindex>
// CHECK: llvm.icmp "sgt"
// CHECK-NOT: vector.create_mask
func.func @masks(%n: index) -> (vector<4xindex>, vector<4xi1>) {
  %0 = vector.step : vector<4xindex>
  %1 = vector.create_mask %n : vector<4xi1>
  return %0, %1 : vector<4xindex>, vector<4xi1>
}

// A product of two dimensions is one for each row, as one of a single dimension; what stands beside it is left.
// CHECK-LABEL: func.func @products
// CHECK-COUNT-2: llvm.intr.fmuladd({{.*}} : (vector<4xf32>, vector<4xf32>, vector<4xf32>) -> vector<4xf32>
// CHECK: arith.addi
// CHECK: vector.load
// CHECK: llvm.intr.fmuladd({{.*}} -> vector<4xf32>
func.func @products(%a: vector<2x4xf32>, %b: memref<?xf32>) -> (vector<2x4xf32>, vector<4xf32>) {
  %0 = vector.fma %a, %a, %a : vector<2x4xf32>
  %c1 = arith.constant 1 : index
  %1 = arith.addi %c1, %c1 : index
  %2 = vector.load %b[%1] : memref<?xf32>, vector<4xf32>
  %3 = vector.fma %2, %2, %2 : vector<4xf32>
  return %0, %3 : vector<2x4xf32>, vector<4xf32>
}
