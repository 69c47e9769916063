// RUN: attn-opt %s --attn-finish-buffers | FileCheck %s

// A kernel gets a dense copy of a view; copies are linalg, and one onto itself goes.
// CHECK-LABEL: func.func @main(
// CHECK: %[[SLICE:.*]] = memref.subview
// CHECK: %[[DENSE:.*]] = memref.alloc(%arg1)
// CHECK: linalg.generic {{.*}} ins(%[[SLICE]] {{.*}} outs(%[[DENSE]]
// CHECK: attn.kernel @k ins(%[[DENSE]]
// CHECK-NOT: memref.copy
func.func private @k(%a: memref<?x4xf32>, %c: memref<8x8xf32>) attributes {attn.kernel}
func.func @main(%x: memref<8x8xf32>, %n: index, %y: memref<8x8xf32>) attributes {attn.entry} {
  %s = memref.subview %x[0, 0] [%n, 4] [1, 1] : memref<8x8xf32> to memref<?x4xf32, strided<[8, 1]>>
  attn.kernel @k ins(%s : memref<?x4xf32, strided<[8, 1]>>) outs(%y : memref<8x8xf32>)
  memref.copy %x, %y : memref<8x8xf32> to memref<8x8xf32>
  memref.copy %y, %y : memref<8x8xf32> to memref<8x8xf32>
  return
}

// Near miss: a view with the strides that the kernel's signature has is passed on.
// CHECK-LABEL: func.func @strided(
// CHECK: %[[VIEW:.*]] = memref.subview
// CHECK-NOT: memref.alloc
// CHECK-NOT: linalg.generic
// CHECK: attn.kernel @takes_strides ins(%[[VIEW]]
func.func private @takes_strides(%a: memref<?x4xf32, strided<[8, 1]>>, %c: memref<8x8xf32>) attributes {attn.kernel}
func.func @strided(%x: memref<8x8xf32>, %n: index, %y: memref<8x8xf32>) attributes {attn.entry} {
  %s = memref.subview %x[0, 0] [%n, 4] [1, 1] : memref<8x8xf32> to memref<?x4xf32, strided<[8, 1]>>
  attn.kernel @takes_strides ins(%s : memref<?x4xf32, strided<[8, 1]>>) outs(%y : memref<8x8xf32>)
  return
}

// A kernel that was chosen for the strides of a slice gets them where the slice has become a buffer of its own, and where
// it lies in another one: what the signature leaves open reaches beyond the rest.
// CHECK-LABEL: func.func @own_buffer(
// CHECK-SAME: %[[X:.*]]: memref<?x4x?x8xf32>, %[[B:.*]]: index, %[[N:.*]]: index
// CHECK: %[[ALL:.*]] = memref.alloc(%{{.*}}) {{.*}}: memref<?xf32>
// CHECK: %[[LIKE:.*]] = memref.reinterpret_cast %[[ALL]] to offset: [8], sizes: [%{{.*}}, 4, %{{.*}}, 8], strides: [%{{.*}}, %{{.*}}, 24, 1]
// CHECK: linalg.generic {{.*}} ins(%[[X]] {{.*}} outs(%[[LIKE]]
// CHECK: attn.kernel @takes_slice ins(%[[LIKE]]
// CHECK: %[[VIEW:.*]] = memref.subview
// CHECK: memref.reinterpret_cast
// CHECK: linalg.generic {{.*}} ins(%[[VIEW]]
// CHECK: attn.kernel @takes_slice
func.func private @takes_slice(%a: memref<?x4x?x8xf32, strided<[?, ?, 24, 1], offset: 8>>, %c: memref<8x8xf32>) attributes {attn.kernel}
func.func @own_buffer(%x: memref<?x4x?x8xf32>, %b: index, %n: index, %y: memref<8x8xf32>, %z: memref<?x4x?x16xf32>) attributes {attn.entry} {
  attn.kernel @takes_slice ins(%x : memref<?x4x?x8xf32>) outs(%y : memref<8x8xf32>)
  %s = memref.subview %z[0, 0, 0, 0] [%b, 4, %n, 8] [1, 1, 1, 1] : memref<?x4x?x16xf32> to memref<?x4x?x8xf32, strided<[?, ?, 16, 1]>>
  attn.kernel @takes_slice ins(%s : memref<?x4x?x8xf32, strided<[?, ?, 16, 1]>>) outs(%y : memref<8x8xf32>)
  return
}

// The size of a view is the one that it was given, through reshapes, too; an argument's is asked for.
// CHECK-LABEL: func.func @sizes(
// CHECK-SAME: %[[X:.*]]: memref<8x8xf32>, %[[Y:.*]]: memref<?xf32>, %[[N:.*]]: index
// CHECK: %[[OWN:.*]] = memref.dim %[[Y]]
// CHECK-NOT: memref.dim
// CHECK: return %[[N]], %[[OWN]]
func.func @sizes(%x: memref<8x8xf32>, %y: memref<?xf32>, %n: index) -> (index, index) {
  %c0 = arith.constant 0 : index
  %s = memref.subview %x[0, 0] [%n, 4] [1, 1] : memref<8x8xf32> to memref<?x4xf32, strided<[8, 1]>>
  %a = memref.dim %s, %c0 : memref<?x4xf32, strided<[8, 1]>>
  %b = memref.dim %y, %c0 : memref<?xf32>
  return %a, %b : index, index
}

// A buffer that grows keeps its other sizes, and asks for the bytes of all of them.
// CHECK-LABEL: func.func @grow(
// CHECK-SAME: %[[X:.*]]: memref<?x3x?xf32>, %[[N:.*]]: index
// CHECK: %[[MORE:.*]] = arith.maxsi %{{.*}}, %[[N]]
// CHECK: %[[BYTES:.*]] = arith.muli %[[MORE]], %{{.*}}
// CHECK: %[[C0:.*]] = arith.constant 0 : index
// CHECK: %[[ROWS:.*]] = memref.dim %[[X]], %[[C0]]
// CHECK: %[[ALL:.*]] = arith.muli %[[BYTES]], %[[ROWS]]
// CHECK: %[[C1:.*]] = arith.constant 1 : index
// CHECK: %[[COLUMNS:.*]] = memref.dim %[[X]], %[[C1]]
// CHECK: arith.muli %[[ALL]], %[[COLUMNS]]
// CHECK: memref.view %{{.*}}[%{{.*}}][%[[ROWS]], %[[MORE]]] : memref<?xi8> to memref<?x3x?xf32>
func.func @grow(%x: memref<?x3x?xf32>, %n: index) -> memref<?x3x?xf32> {
  %y = attn.grow %x to %n dim 2 : memref<?x3x?xf32>
  return %y : memref<?x3x?xf32>
}
