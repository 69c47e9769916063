// RUN: attn-opt %s -attn-finalize-entries | FileCheck %s

// A dimension of an input that a nested region asks for is the one of the front, and leaves nothing behind that
// reads the input as a tensor.

// CHECK-LABEL: func.func @main
// CHECK-SAME: %[[X:.*]]: memref<?xf32>
// CHECK: %[[N:.*]] = memref.dim %[[X]], %{{.*}}
// CHECK: scf.if
// CHECK-NOT: tensor.dim %[[X]]
// CHECK: scf.yield %[[N]]
func.func @main(%x: tensor<?xf32>, %c: tensor<i1>) -> tensor<1xi64> attributes {attn.entry} {
  %c0 = arith.constant 0 : index
  %b = tensor.extract %c[] : tensor<i1>
  %n = scf.if %b -> index {
    %d = tensor.dim %x, %c0 : tensor<?xf32>
    scf.yield %d : index
  } else {
    scf.yield %c0 : index
  }
  %i = arith.index_cast %n : index to i64
  %r = tensor.from_elements %i : tensor<1xi64>
  return %r : tensor<1xi64>
}
