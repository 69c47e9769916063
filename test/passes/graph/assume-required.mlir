// RUN: attn-opt %s --attn-assume-required | FileCheck %s

// The cast says what the check behind it makes sure of: the check comes first, and the size is the constant then.
// CHECK-LABEL: func.func @behind
// CHECK:       %[[SAME:.*]] = arith.cmpi eq
// CHECK-NEXT:  attn.require %[[SAME]], "expected {0}"
// CHECK:       tensor.cast
// CHECK:       tensor.empty(%c3)
func.func @behind(%x: tensor<?xf32>) -> (tensor<3xf32>, tensor<?xf32>) {
  %c0 = arith.constant 0 : index
  %c3 = arith.constant 3 : index
  %n = tensor.dim %x, %c0 : tensor<?xf32>
  %cast = tensor.cast %x : tensor<?xf32> to tensor<3xf32>
  %same = arith.cmpi eq, %n, %c3 : index
  attn.require %same, "expected {0}"(%n)
  %e = tensor.empty(%n) : tensor<?xf32>
  return %cast, %e : tensor<3xf32>, tensor<?xf32>
}

// Near miss: what is at most a size is not it.
// CHECK-LABEL: func.func @less
// CHECK:       tensor.cast
// CHECK:       attn.require
// CHECK:       tensor.empty(%dim)
func.func @less(%x: tensor<?xf32>) -> (tensor<3xf32>, tensor<?xf32>) {
  %c0 = arith.constant 0 : index
  %c3 = arith.constant 3 : index
  %n = tensor.dim %x, %c0 : tensor<?xf32>
  %cast = tensor.cast %x : tensor<?xf32> to tensor<3xf32>
  %less = arith.cmpi sle, %n, %c3 : index
  attn.require %less, "at most {0}"(%n)
  %e = tensor.empty(%n) : tensor<?xf32>
  return %cast, %e : tensor<3xf32>, tensor<?xf32>
}
