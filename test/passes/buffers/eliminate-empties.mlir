// RUN: attn-opt %s --attn-eliminate-empties | FileCheck %s

// Both parts of a concatenation are computed in their places.
// CHECK-LABEL: func.func @parts
// CHECK: %[[FIRST:.*]] = tensor.extract_slice {{.*}}[0] [4] [1]
// CHECK: linalg.fill {{.*}}outs(%[[FIRST]] :
// CHECK: %[[SECOND:.*]] = tensor.extract_slice {{.*}}[4] [4] [1]
// CHECK: linalg.exp {{.*}}outs(%[[SECOND]] :
func.func @parts(%x: tensor<4xf32>) -> tensor<8xf32> {
  %c = arith.constant 1.0 : f32
  %e = tensor.empty() : tensor<4xf32>
  %a = linalg.exp ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  %f = tensor.empty() : tensor<4xf32>
  %b = linalg.fill ins(%c : f32) outs(%f : tensor<4xf32>) -> tensor<4xf32>
  %whole = tensor.empty() : tensor<8xf32>
  %one = tensor.insert_slice %b into %whole[0] [4] [1] : tensor<4xf32> into tensor<8xf32>
  %two = tensor.insert_slice %a into %one[4] [4] [1] : tensor<4xf32> into tensor<8xf32>
  return %two : tensor<8xf32>
}

// The size of the second part is required to be one after the first part is written: nothing of it moves in front.
// CHECK-LABEL: func.func @required
// CHECK: tensor.empty() : tensor<4xf32>
// CHECK: linalg.exp
// CHECK-NOT: linalg.fill
// CHECK: attn.require
// CHECK: linalg.fill
func.func @required(%x: tensor<4xf32>, %n: index) -> tensor<?xf32> {
  %c = arith.constant 1.0 : f32
  %zero = arith.constant 0 : index
  %four = arith.constant 4 : index
  %e = tensor.empty() : tensor<4xf32>
  %a = linalg.exp ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  %ok = arith.cmpi sge, %n, %zero : index
  attn.require %ok, "a dimension has size {0}"(%n)
  %f = tensor.empty(%n) : tensor<?xf32>
  %b = linalg.fill ins(%c : f32) outs(%f : tensor<?xf32>) -> tensor<?xf32>
  %size = arith.addi %n, %four : index
  %whole = tensor.empty(%size) : tensor<?xf32>
  %one = tensor.insert_slice %b into %whole[0] [%n] [1] : tensor<?xf32> into tensor<?xf32>
  %two = tensor.insert_slice %a into %one[%n] [4] [1] : tensor<4xf32> into tensor<?xf32>
  return %two : tensor<?xf32>
}
