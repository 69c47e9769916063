// RUN: attn-opt %s --attn-mark-regions | FileCheck %s
// RUN: attn-opt %s --attn-mark-regions --canonicalize | FileCheck %s --check-prefix=NONE

// A mark behind each kernel, parallel loop, copy and serial loop; a loop of the
// model is none, what is in it is.
func.func private @product(%a: memref<?x8xf32>, %b: memref<2x8x48xbf16>, %c: memref<?x96xf32>) attributes {attn.kernel, attn.product}
func.func private @other(%a: memref<?x8xf32>, %c: memref<?x8xf32>) attributes {attn.kernel}
func.func private @task(%begin: index, %end: index, %x: memref<16xf32>) attributes {attn.task} {
  return
}

// CHECK: module attributes {attn.regions = [
// CHECK-SAME: {entry = "main", name = "start", nodes = []}
// CHECK-SAME: {entry = "main", name = "product", nodes = ["node 'mul' (MatMul)", "node 'add' (Add)"]}
// CHECK-SAME: {entry = "main", name = "other"
// CHECK-SAME: {entry = "main", name = "loop"
// CHECK-SAME: {entry = "main", name = "copy"
// CHECK-SAME: {entry = "main", name = "serial loop"
// CHECK-SAME: {entry = "second", name = "start"
// CHECK-LABEL: func.func @main
// CHECK-DAG: %[[C0:.*]] = arith.constant 0 : index
// CHECK:     attn.mark 0 flops
// CHECK:     attn.kernel @product
// The size of C (rows x 96) times the depth of A times 2.
// CHECK:     memref.dim
// CHECK:     attn.mark 1 flops
// CHECK:     attn.kernel @other
// CHECK:     %[[C77:.*]] = arith.constant 77
// CHECK:     %[[ROWS:.*]] = memref.dim %{{.*}}, %c0
// CHECK:     %[[ONE:.*]] = arith.muli %[[C77]], %[[ROWS]]
// CHECK:     %[[COLUMNS:.*]] = memref.dim %{{.*}}, %c1
// CHECK:     %[[FLOPS:.*]] = arith.muli %[[ONE]], %[[COLUMNS]]
// CHECK:     attn.mark 2 flops(%[[FLOPS]])
// CHECK:     scf.for
// CHECK:       attn.parallel_for
// CHECK:       attn.mark 3 flops
// CHECK:     }
// CHECK-NOT: attn.mark
// CHECK:     memref.copy
// CHECK:     attn.mark 4 flops
// CHECK:     scf.for
// CHECK-NOT: attn.mark
// CHECK:     }
// CHECK:     attn.mark 5 flops
// CHECK-NOT: attn.mark
func.func @main(%a: memref<?x8xf32>, %b: memref<2x8x48xbf16>, %c: memref<?x96xf32>, %d: memref<?x8xf32>, %x: memref<16xf32>) attributes {attn.entry} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c16 = arith.constant 16 : index
  %zero = arith.constant 0.0 : f32
  attn.kernel @product ins(%a, %b : memref<?x8xf32>, memref<2x8x48xbf16>) outs(%c : memref<?x96xf32>) loc(#both)
  attn.kernel @other ins(%a : memref<?x8xf32>) outs(%d : memref<?x8xf32>) {attn.flops = array<i64: 77, 0, 0, 0, 1>}
  scf.for %i = %c0 to %c16 step %c1 {
    attn.parallel_for @task %c16 captures(%x : memref<16xf32>) min_iterations 2
  }
  memref.copy %a, %d : memref<?x8xf32> to memref<?x8xf32>
  scf.for %i = %c0 to %c16 step %c1 {
    memref.store %zero, %x[%i] : memref<16xf32>
  }
  return
}

// A kernel that is no product and does not say how much it computes: as much as the start, nothing.
// CHECK-LABEL: func.func @unknown
// NONE-LABEL: func.func @unknown
// NONE:     attn.mark {{[0-9]+}} flops(%c0)
// NONE:     attn.kernel @other
// NONE:     attn.mark {{[0-9]+}} flops(%c0)
func.func @unknown(%a: memref<?x8xf32>, %d: memref<?x8xf32>) attributes {attn.entry} {
  attn.kernel @other ins(%a : memref<?x8xf32>) outs(%d : memref<?x8xf32>)
  return
}

// No region but the start.
// CHECK-LABEL: func.func @second
// CHECK:     attn.mark {{[0-9]+}}
// CHECK-NOT: attn.mark
func.func @second(%x: memref<16xf32>) attributes {attn.entry} {
  return
}

// No entry: nothing is marked.
// CHECK-LABEL: func.func @helper
// CHECK-NOT: attn.mark
func.func @helper(%a: memref<?x8xf32>, %d: memref<?x8xf32>) {
  memref.copy %a, %d : memref<?x8xf32> to memref<?x8xf32>
  return
}

#file = loc("model.onnx":0:0)
#mul = loc("node 'mul' (MatMul)"(#file))
#add = loc("node 'add' (Add)"(#file))
#both = loc(fused[#mul, #add])
