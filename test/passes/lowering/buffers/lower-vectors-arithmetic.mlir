// RUN: attn-opt %s --pass-pipeline='builtin.module(func.func(attn-lower-vectors))' | FileCheck %s
// RUN: attn-opt %s --pass-pipeline='builtin.module(convert-to-llvm)' > %t.upstream
// RUN: attn-opt %s --pass-pipeline='builtin.module(func.func(attn-lower-vectors),convert-to-llvm)' > %t.ours

// What is made of an op is what convert-to-llvm makes of it.
// RUN: grep -o 'llvm\.[a-z_.]*' %t.upstream | sort > %t.words
// RUN: grep -o 'llvm\.[a-z_.]*' %t.ours | sort | diff %t.words -

// CHECK-LABEL: func.func @floats(
// CHECK-SAME: %[[X:.*]]: vector<16xf32>, %[[Y:.*]]: vector<16xf32>, %[[S:.*]]: f32
// CHECK: %[[SUM:.*]] = llvm.fadd %[[X]], %[[Y]] {fastmathFlags = #llvm.fastmath<contract>} : vector<16xf32>
// CHECK: %[[FIRST:.*]] = llvm.insertelement %[[S]], %{{.*}}[%{{.*}} : i32] : vector<16xf32>
// CHECK: %[[ALL:.*]] = llvm.shufflevector %[[FIRST]], %{{.*}} [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
// CHECK: %[[MORE:.*]] = llvm.intr.fmuladd(%[[SUM]], %[[ALL]], %[[Y]])
// CHECK: %[[IS:.*]] = llvm.fcmp "olt" %[[MORE]], %[[X]]
// CHECK: %[[BOTH:.*]] = llvm.and %[[IS]], %{{.*}} : vector<16xi1>
// CHECK: %[[ONE:.*]] = llvm.select %[[BOTH]], %[[MORE]], %[[X]]
// CHECK: llvm.shufflevector %[[ONE]], %[[Y]] [0, 16,
func.func @floats(%x: vector<16xf32>, %y: vector<16xf32>, %s: f32, %m: vector<16xi1>) -> vector<16xf32> {
  %0 = arith.addf %x, %y fastmath<contract> : vector<16xf32>
  %1 = vector.broadcast %s : f32 to vector<16xf32>
  %2 = vector.fma %0, %1, %y : vector<16xf32>
  %3 = arith.cmpf olt, %2, %x : vector<16xf32>
  %4 = arith.andi %3, %m : vector<16xi1>
  %5 = arith.select %4, %2, %x : vector<16xi1>, vector<16xf32>
  %6 = vector.shuffle %5, %y [0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23] : vector<16xf32>, vector<16xf32>
  return %6 : vector<16xf32>
}

// CHECK-LABEL: func.func @integers(
// CHECK: llvm.mlir.constant(dense<3> : vector<4xi32>)
// CHECK: llvm.mul %{{.*}}, %{{.*}} overflow<nsw> : vector<4xi32>
// CHECK: llvm.icmp "ugt"
// CHECK: llvm.bitcast %{{.*}} : vector<4xi32> to vector<4xf32>
func.func @integers(%x: vector<4xi32>) -> (vector<4xi1>, vector<4xf32>) {
  %c = arith.constant dense<3> : vector<4xi32>
  %0 = arith.muli %x, %c overflow<nsw> : vector<4xi32>
  %1 = arith.cmpi ugt, %0, %x : vector<4xi32>
  %2 = vector.bitcast %0 : vector<4xi32> to vector<4xf32>
  return %1, %2 : vector<4xi1>, vector<4xf32>
}

// Indices become words, and vectors of rows several vectors: not here.
// CHECK-LABEL: func.func @left(
// CHECK: arith.addi %{{.*}} : index
// CHECK: arith.cmpi slt, %{{.*}} : index
// CHECK: arith.addf %{{.*}} : vector<2x4xf32>
// CHECK: vector.shuffle
func.func @left(%i: index, %n: index, %x: vector<2x4xf32>, %y: vector<4xf32>, %z: vector<2xf32>)
    -> (i1, vector<2x4xf32>, vector<2xf32>) {
  %0 = arith.addi %i, %n : index
  %1 = arith.cmpi slt, %0, %n : index
  %2 = arith.addf %x, %x : vector<2x4xf32>
  %3 = vector.shuffle %y, %z [0, 4] : vector<4xf32>, vector<2xf32>
  return %1, %2, %3 : i1, vector<2x4xf32>, vector<2xf32>
}
