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

// What is required behind the last part is in nobody's way.
// CHECK-LABEL: func.func @required_later
// CHECK: linalg.fill {{.*}}outs(%[[FIRST:.*]] :
// CHECK: %[[SECOND:.*]] = tensor.extract_slice {{.*}}[4] [4] [1]
// CHECK: linalg.exp {{.*}}outs(%[[SECOND]] :
// CHECK: attn.require
func.func @required_later(%x: tensor<4xf32>, %ok: i1, %n: index) -> tensor<8xf32> {
  %c = arith.constant 1.0 : f32
  %e = tensor.empty() : tensor<4xf32>
  %a = linalg.exp ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  %f = tensor.empty() : tensor<4xf32>
  %b = linalg.fill ins(%c : f32) outs(%f : tensor<4xf32>) -> tensor<4xf32>
  %whole = tensor.empty() : tensor<8xf32>
  %one = tensor.insert_slice %b into %whole[0] [4] [1] : tensor<4xf32> into tensor<8xf32>
  %two = tensor.insert_slice %a into %one[4] [4] [1] : tensor<4xf32> into tensor<8xf32>
  attn.require %ok, "a dimension has size {0}"(%n)
  return %two : tensor<8xf32>
}

// The zeros that are summed onto are an output, too: they are made in its buffer, not in the sum's.
// CHECK-LABEL: func.func @shared
// CHECK: %[[ZEROS:.*]] = bufferization.to_tensor %arg2
// CHECK: linalg.fill {{.*}}outs(%[[ZEROS]] :
// CHECK-NOT: to_tensor %arg1
func.func @shared(%x: tensor<?x1xi64>, %sum: memref<1xi64>, %zeros: memref<1xi64>) {
  %c = arith.constant 0 : i64
  %e = tensor.empty() : tensor<1xi64>
  %f = linalg.fill ins(%c : i64) outs(%e : tensor<1xi64>) -> tensor<1xi64>
  %r = linalg.reduce ins(%x : tensor<?x1xi64>) outs(%f : tensor<1xi64>) dimensions = [0]
    (%in: i64, %out: i64) {
      %s = arith.addi %in, %out : i64
      linalg.yield %s : i64
    }
  bufferization.materialize_in_destination %r in restrict writable %sum : (tensor<1xi64>, memref<1xi64>) -> ()
  bufferization.materialize_in_destination %f in restrict writable %zeros : (tensor<1xi64>, memref<1xi64>) -> ()
  return
}

// Nothing else reads the zeros: the sum is made in its place.
// CHECK-LABEL: func.func @alone
// CHECK: %[[SUM:.*]] = bufferization.to_tensor
// CHECK: linalg.fill {{.*}}outs(%[[SUM]] :
func.func @alone(%x: tensor<?x1xi64>, %sum: memref<1xi64>) {
  %c = arith.constant 0 : i64
  %e = tensor.empty() : tensor<1xi64>
  %f = linalg.fill ins(%c : i64) outs(%e : tensor<1xi64>) -> tensor<1xi64>
  %r = linalg.reduce ins(%x : tensor<?x1xi64>) outs(%f : tensor<1xi64>) dimensions = [0]
    (%in: i64, %out: i64) {
      %s = arith.addi %in, %out : i64
      linalg.yield %s : i64
    }
  bufferization.materialize_in_destination %r in restrict writable %sum : (tensor<1xi64>, memref<1xi64>) -> ()
  return
}

// What is stacked is computed in its place, too, through the reshape that adds the dimension.
// CHECK-LABEL: func.func @stacked
// CHECK: %[[PART:.*]] = tensor.extract_slice {{.*}}[0, 1, 0] [4, 1, 3] [1, 1, 1] : tensor<4x2x3xf32> to tensor<4x3xf32>
// CHECK: linalg.exp {{.*}}outs(%[[PART]] :
// CHECK-NOT: tensor.expand_shape
// CHECK: return
func.func @stacked(%x: tensor<4x3xf32>, %whole: tensor<4x2x3xf32>) -> tensor<4x2x3xf32> {
  %e = tensor.empty() : tensor<4x3xf32>
  %a = linalg.exp ins(%x : tensor<4x3xf32>) outs(%e : tensor<4x3xf32>) -> tensor<4x3xf32>
  %one = tensor.expand_shape %a [[0], [1, 2]] output_shape [4, 1, 3] : tensor<4x3xf32> into tensor<4x1x3xf32>
  %two = tensor.insert_slice %one into %whole[0, 1, 0] [4, 1, 3] [1, 1, 1] : tensor<4x1x3xf32> into tensor<4x2x3xf32>
  return %two : tensor<4x2x3xf32>
}

// Not where a dimension of size 1 could be taken for the one that was added.
// CHECK-LABEL: func.func @stacked_unit
// CHECK: tensor.expand_shape
// CHECK: return
func.func @stacked_unit(%x: tensor<1x4x3xf32>, %whole: tensor<1x4x2x3xf32>) -> tensor<1x4x2x3xf32> {
  %e = tensor.empty() : tensor<1x4x3xf32>
  %a = linalg.exp ins(%x : tensor<1x4x3xf32>) outs(%e : tensor<1x4x3xf32>) -> tensor<1x4x3xf32>
  %one = tensor.expand_shape %a [[0], [1], [2, 3]] output_shape [1, 4, 1, 3] : tensor<1x4x3xf32> into tensor<1x4x1x3xf32>
  %two = tensor.insert_slice %one into %whole[0, 0, 1, 0] [1, 4, 1, 3] [1, 1, 1, 1] : tensor<1x4x1x3xf32> into tensor<1x4x2x3xf32>
  return %two : tensor<1x4x2x3xf32>
}

// Keys and values are appended to tensors of their own, though both were one: each part is computed in its place.
// CHECK-LABEL: func.func @two_concatenations
// CHECK: %[[KEYS:.*]] = tensor.extract_slice %[[OWN:.*]][0] [4] [1]
// CHECK: linalg.exp {{.*}}outs(%[[KEYS]] :
// CHECK: %[[VALUES:.*]] = tensor.extract_slice %[[OTHER:.*]][0] [4] [1]
// CHECK: linalg.exp {{.*}}outs(%[[VALUES]] :
// CHECK: tensor.insert_slice {{.*}} into %[[OWN]][0]
// CHECK: tensor.insert_slice {{.*}} into %[[OTHER]][0]
func.func @two_concatenations(%k: tensor<4xf32>, %v: tensor<4xf32>, %n: tensor<1xf32>) -> (tensor<5xf32>, tensor<5xf32>) {
  %e = tensor.empty() : tensor<4xf32>
  %a = linalg.exp ins(%k : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  %b = linalg.exp ins(%v : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  %whole = tensor.empty() : tensor<5xf32>
  %keys = tensor.insert_slice %a into %whole[0] [4] [1] : tensor<4xf32> into tensor<5xf32>
  %all_keys = tensor.insert_slice %n into %keys[4] [1] [1] : tensor<1xf32> into tensor<5xf32>
  %values = tensor.insert_slice %b into %whole[0] [4] [1] : tensor<4xf32> into tensor<5xf32>
  %all_values = tensor.insert_slice %n into %values[4] [1] [1] : tensor<1xf32> into tensor<5xf32>
  return %all_keys, %all_values : tensor<5xf32>, tensor<5xf32>
}

// Parts of an output are computed in the output's buffer.
// CHECK-LABEL: func.func @parts_of_output
// CHECK: %[[OUT:.*]] = bufferization.to_tensor %arg2
// CHECK: %[[FIRST:.*]] = tensor.extract_slice %[[OUT]][0] [4] [1]
// CHECK: linalg.exp {{.*}}outs(%[[FIRST]] :
func.func @parts_of_output(%x: tensor<4xf32>, %n: tensor<1xf32>, %out: memref<5xf32>) {
  %e = tensor.empty() : tensor<4xf32>
  %a = linalg.exp ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  %whole = tensor.empty() : tensor<5xf32>
  %one = tensor.insert_slice %a into %whole[0] [4] [1] : tensor<4xf32> into tensor<5xf32>
  %two = tensor.insert_slice %n into %one[4] [1] [1] : tensor<1xf32> into tensor<5xf32>
  bufferization.materialize_in_destination %two in restrict writable %out : (tensor<5xf32>, memref<5xf32>) -> ()
  return
}

// Two outputs, one of which may be the other: what is returned as it is goes to its own output. In the first one's buffer
// the branch would write over it before it is read. Both began in one tensor.
// CHECK-LABEL: func.func @one_may_be_the_other
// CHECK: %[[SECOND:.*]] = bufferization.to_tensor %arg4
// CHECK-NOT: bufferization.to_tensor
// CHECK: linalg.exp {{.*}}outs(%[[SECOND]] :
// CHECK: linalg.log {{.*}}outs(%{{[0-9]+}} :
// CHECK-NOT: bufferization.to_tensor
// CHECK: return
func.func @one_may_be_the_other(%x: tensor<4xf32>, %z: tensor<4xf32>, %c: i1, %first: memref<4xf32>, %second: memref<4xf32>) {
  %e = tensor.empty() : tensor<4xf32>
  %y = linalg.exp ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  %q = scf.if %c -> (tensor<4xf32>) {
    %t = linalg.log ins(%z : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
    scf.yield %t : tensor<4xf32>
  } else {
    scf.yield %y : tensor<4xf32>
  }
  bufferization.materialize_in_destination %q in restrict writable %first : (tensor<4xf32>, memref<4xf32>) -> ()
  bufferization.materialize_in_destination %y in restrict writable %second : (tensor<4xf32>, memref<4xf32>) -> ()
  return
}
