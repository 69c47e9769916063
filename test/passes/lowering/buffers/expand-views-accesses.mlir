// RUN: attn-opt %s --pass-pipeline='builtin.module(func.func(attn-expand-views))' | FileCheck %s

// Two rows: one address in the loop, the other row at a constant distance.
// CHECK-LABEL: func.func @rows(
// CHECK-SAME: %[[A:.*]]: memref<?x32xf32>, %[[ROW:.*]]: index,
// CHECK: %[[DESCRIPTOR:.*]] = builtin.unrealized_conversion_cast %[[A]]
// CHECK: %[[DATA:.*]] = llvm.extractvalue %[[DESCRIPTOR]][1]
// CHECK: scf.for %[[K:[a-z0-9]+]] =
// CHECK: %[[OFFSET:.*]] = arith.muli %{{.*}}, %{{.*}} : i64
// CHECK: %[[AT_ROW:.*]] = llvm.getelementptr %[[DATA]][%[[OFFSET]]] : (!llvm.ptr, i64) -> !llvm.ptr, f32
// CHECK: %[[STEP:.*]] = arith.index_cast %[[K]] : index to i64
// CHECK: %[[AT:.*]] = llvm.getelementptr %[[AT_ROW]][%[[STEP]]]
// CHECK-NEXT: llvm.load %[[AT]] : !llvm.ptr -> f32
// CHECK-NEXT: %[[NEXT:.*]] = llvm.getelementptr %[[AT]][32]
// CHECK-NEXT: llvm.load %[[NEXT]] : !llvm.ptr -> f32
// CHECK-NOT: memref.load
func.func @rows(%a: memref<?x32xf32>, %row: index, %n: index) -> f32 {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %other = arith.addi %row, %c1 : index
  %sum = scf.for %k = %c0 to %n step %c1 iter_args(%s = %zero) -> f32 {
    %x = memref.load %a[%row, %k] : memref<?x32xf32>
    %y = memref.load %a[%other, %k] : memref<?x32xf32>
    %product = arith.mulf %x, %y : f32
    %next = arith.addf %s, %product : f32
    scf.yield %next : f32
  }
  return %sum : f32
}

// A distance between rows that only the run knows.
// CHECK-LABEL: func.func @strides(
// CHECK-DAG: %[[FIRST:.*]] = llvm.extractvalue %[[DESCRIPTOR:.*]][2]
// CHECK-DAG: %[[STRIDE:.*]] = llvm.extractvalue %[[DESCRIPTOR]][4, 0]
// CHECK-DAG: %[[DATA:.*]] = llvm.extractvalue %[[DESCRIPTOR]][1]
// CHECK: %[[BEGIN:.*]] = llvm.getelementptr %[[DATA]][%[[FIRST]]]
// CHECK: %[[TO_ROW:.*]] = arith.muli %{{.*}}, %[[STRIDE]] : i64
// CHECK: %[[AT_ROW:.*]] = llvm.getelementptr %[[BEGIN]][%[[TO_ROW]]]
// CHECK: %[[TO_NEXT:.*]] = arith.muli %{{.*}}, %[[STRIDE]] : i64
// CHECK: %[[AT_NEXT:.*]] = llvm.getelementptr %[[AT_ROW]][%[[TO_NEXT]]]
// CHECK: llvm.store %{{.*}}, %[[AT_NEXT]] {alignment = 2 : i64} : vector<8xf16>, !llvm.ptr
func.func @strides(%a: memref<?x8xf16, strided<[?, 1], offset: ?>>, %row: index, %x: vector<8xf16>) {
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %other = arith.addi %row, %c2 : index
  vector.store %x, %a[%other, %c0] : memref<?x8xf16, strided<[?, 1], offset: ?>>, vector<8xf16>
  return
}

// Masks, prefetches, and views at the beginning of a buffer.
// CHECK-LABEL: func.func @others(
// CHECK: %[[DATA:.*]] = llvm.extractvalue %{{.*}}[1]
// CHECK: %[[AT:.*]] = llvm.getelementptr %[[DATA]][16] : (!llvm.ptr) -> !llvm.ptr, i32
// CHECK: llvm.intr.masked.load %[[AT]], %{{.*}} {alignment = 4 : i32} : (!llvm.ptr, vector<4xi1>, vector<4xi32>)
// CHECK: llvm.intr.masked.store %{{.*}}, %[[DATA]], %{{.*}} {alignment = 4 : i32}
// CHECK: "llvm.intr.prefetch"(%[[AT]]) <{cache = 1 : i32, hint = 2 : i32, rw = 0 : i32}>
func.func @others(%a: memref<4x16xi32>, %mask: vector<4xi1>, %x: vector<4xi32>) -> vector<4xi32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %flat = memref.reinterpret_cast %a to offset: [0], sizes: [64], strides: [1] : memref<4x16xi32> to memref<64xi32>
  %0 = vector.maskedload %a[%c1, %c0], %mask, %x : memref<4x16xi32>, vector<4xi1>, vector<4xi32> into vector<4xi32>
  vector.maskedstore %flat[%c0], %mask, %0 : memref<64xi32>, vector<4xi1>, vector<4xi32>
  memref.prefetch %a[%c1, %c0], read, locality<2>, data : memref<4x16xi32>
  return %0 : vector<4xi32>
}

// CHECK-LABEL: func.func @left(
// CHECK: memref.load
// CHECK: memref.load
// CHECK: vector.load
func.func @left(%a: memref<4xf32, 3>, %b: memref<4xindex>, %c: memref<4x4xf32>) -> (f32, index, vector<2x4xf32>) {
  %c0 = arith.constant 0 : index
  %0 = memref.load %a[%c0] : memref<4xf32, 3>
  %1 = memref.load %b[%c0] : memref<4xindex>
  %2 = vector.load %c[%c0, %c0] : memref<4x4xf32>, vector<2x4xf32>
  return %0, %1, %2 : f32, index, vector<2x4xf32>
}
