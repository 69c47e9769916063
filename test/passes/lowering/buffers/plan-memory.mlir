// RUN: attn-opt %s --attn-plan-memory --canonicalize --split-input-file | FileCheck %s

// Three buffers of one life after the other and one size: two places.
// CHECK-LABEL: func.func @chain
// CHECK: %[[BYTES:.*]] = arith.constant 8192 : index
// CHECK: %[[ARENA:.*]] = attn.workspace %[[BYTES]]
// CHECK-COUNT-3: memref.view %[[ARENA]]
// CHECK-NOT: memref.alloc
func.func @chain(%x: memref<1024xf32>, %y: memref<1024xf32>) attributes {attn.entry} {
  %a = memref.alloc() : memref<1024xf32>
  %b = memref.alloc() : memref<1024xf32>
  %c = memref.alloc() : memref<1024xf32>
  linalg.exp ins(%x : memref<1024xf32>) outs(%a : memref<1024xf32>)
  linalg.exp ins(%a : memref<1024xf32>) outs(%b : memref<1024xf32>)
  linalg.exp ins(%b : memref<1024xf32>) outs(%c : memref<1024xf32>)
  linalg.exp ins(%c : memref<1024xf32>) outs(%y : memref<1024xf32>)
  return
}

// -----

// Buffers alive at once have a place each.
// CHECK-LABEL: func.func @both
// CHECK: %[[BYTES:.*]] = arith.constant 12288 : index
// CHECK: attn.workspace %[[BYTES]]
func.func @both(%x: memref<1024xf32>, %y: memref<1024xf32>) attributes {attn.entry} {
  %a = memref.alloc() : memref<1024xf32>
  %b = memref.alloc() : memref<1024xf32>
  %c = memref.alloc() : memref<1024xf32>
  linalg.exp ins(%x : memref<1024xf32>) outs(%a : memref<1024xf32>)
  linalg.exp ins(%x : memref<1024xf32>) outs(%b : memref<1024xf32>)
  linalg.add ins(%a, %b : memref<1024xf32>, memref<1024xf32>) outs(%c : memref<1024xf32>)
  linalg.exp ins(%c : memref<1024xf32>) outs(%y : memref<1024xf32>)
  return
}

// -----

// A size that a value read from memory decides: its own request, after the read.
// CHECK-LABEL: func.func @late
// CHECK: attn.workspace
// CHECK: memref.load
// CHECK: attn.workspace
func.func @late(%x: memref<4xi64>, %y: memref<1xi64>) attributes {attn.entry} {
  %c0 = arith.constant 0 : index
  %a = memref.alloc() : memref<4xi64>
  linalg.add ins(%x, %x : memref<4xi64>, memref<4xi64>) outs(%a : memref<4xi64>)
  %v = memref.load %a[%c0] : memref<4xi64>
  %n = arith.index_cast %v : i64 to index
  %b = memref.alloc(%n) : memref<?xi64>
  linalg.fill ins(%v : i64) outs(%b : memref<?xi64>)
  %r = memref.load %b[%c0] : memref<?xi64>
  memref.store %r, %y[%c0] : memref<1xi64>
  return
}

// -----

// A kernel's scratch on the stack is its own.
// CHECK-LABEL: func.func @kernel
// CHECK: memref.alloca
func.func @kernel(%y: memref<4xf32>) attributes {attn.kernel} {
  %a = memref.alloca() : memref<4xf32>
  linalg.exp ins(%a : memref<4xf32>) outs(%y : memref<4xf32>)
  return
}

// -----

// A buffer that may be chosen lives as long as the choice: two places.
// CHECK-LABEL: func.func @chosen
// CHECK: %[[BYTES:.*]] = arith.constant 512 : index
// CHECK: attn.workspace %[[BYTES]]
// CHECK: return
func.func @chosen(%c: i1, %x: memref<64xf32>, %y: memref<64xf32>, %z: memref<64xf32>) attributes {attn.entry} {
  %a = memref.alloc() : memref<64xf32>
  linalg.exp ins(%x : memref<64xf32>) outs(%a : memref<64xf32>)
  %s = arith.select %c, %a, %x : memref<64xf32>
  %b = memref.alloc() : memref<64xf32>
  linalg.exp ins(%x : memref<64xf32>) outs(%b : memref<64xf32>)
  linalg.copy ins(%s : memref<64xf32>) outs(%y : memref<64xf32>)
  linalg.copy ins(%b : memref<64xf32>) outs(%z : memref<64xf32>)
  return
}

// -----

// A view that is made early is no use: the second buffer takes the place of the first.
// CHECK-LABEL: func.func @views
// CHECK: %[[BYTES:.*]] = arith.constant 4096 : index
// CHECK: attn.workspace %[[BYTES]]
func.func @views(%x: memref<1024xf32>, %y: memref<1024xf32>, %z: memref<2x512xf32>) attributes {attn.entry} {
  %a = memref.alloc() : memref<1024xf32>
  %b = memref.alloc() : memref<1024xf32>
  %late = memref.expand_shape %b [[0, 1]] output_shape [2, 512] : memref<1024xf32> into memref<2x512xf32>
  linalg.exp ins(%x : memref<1024xf32>) outs(%a : memref<1024xf32>)
  linalg.exp ins(%a : memref<1024xf32>) outs(%y : memref<1024xf32>)
  linalg.exp ins(%z : memref<2x512xf32>) outs(%late : memref<2x512xf32>)
  linalg.exp ins(%late : memref<2x512xf32>) outs(%z : memref<2x512xf32>)
  return
}

// -----

// What is written through a view lives as long as the whole is read.
// CHECK-LABEL: func.func @written
// CHECK: %[[BYTES:.*]] = arith.constant 8192 : index
// CHECK: attn.workspace %[[BYTES]]
func.func @written(%x: memref<1024xf32>, %y: memref<1024xf32>, %z: memref<2x512xf32>) attributes {attn.entry} {
  %a = memref.alloc() : memref<1024xf32>
  %b = memref.alloc() : memref<1024xf32>
  %late = memref.expand_shape %b [[0, 1]] output_shape [2, 512] : memref<1024xf32> into memref<2x512xf32>
  linalg.exp ins(%x : memref<1024xf32>) outs(%a : memref<1024xf32>)
  linalg.exp ins(%z : memref<2x512xf32>) outs(%late : memref<2x512xf32>)
  linalg.exp ins(%a : memref<1024xf32>) outs(%y : memref<1024xf32>)
  linalg.exp ins(%b : memref<1024xf32>) outs(%y : memref<1024xf32>)
  return
}

// -----

// A size that a branch computes may be negative where the run does not take it; sizes of inputs are not.
// CHECK-LABEL: func.func @branch
// CHECK: %[[N:.*]] = memref.dim
// CHECK: %[[LESS:.*]] = arith.subi %[[N]]
// CHECK: arith.maxsi %[[LESS]], %{{.*}} : index
// CHECK-NOT: arith.maxsi
// CHECK: attn.workspace
func.func @branch(%x: memref<?xf32>, %y: memref<?xf32>, %c: i1) attributes {attn.entry} {
  %zero = arith.constant 0 : index
  %seven = arith.constant 7 : index
  %n = memref.dim %x, %zero : memref<?xf32>
  %less = arith.subi %n, %seven : index
  %whole = memref.alloc(%n) : memref<?xf32>
  linalg.exp ins(%x : memref<?xf32>) outs(%whole : memref<?xf32>)
  scf.if %c {
    %part = memref.alloc(%less) : memref<?xf32>
    %slice = memref.subview %whole[0] [%less] [1] : memref<?xf32> to memref<?xf32, strided<[1]>>
    linalg.exp ins(%slice : memref<?xf32, strided<[1]>>) outs(%part : memref<?xf32>)
    linalg.exp ins(%part : memref<?xf32>) outs(%slice : memref<?xf32, strided<[1]>>)
  }
  linalg.exp ins(%whole : memref<?xf32>) outs(%y : memref<?xf32>)
  return
}
