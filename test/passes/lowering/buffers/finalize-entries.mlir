// RUN: attn-opt %s --attn-finalize-entries --split-input-file | FileCheck %s

// Dimensions of one name are one value; the output is asked for before the work.
// CHECK-LABEL: func.func @named(%arg0: memref<?x4xf32>, %arg1: memref<?x4xf32>)
// CHECK-SAME: attn.inputs = [{dims = ["n", ""], dtype = "float32", name = "a", shape = array<i64: -1, 4>}
// CHECK: %[[N:.*]] = memref.dim %arg0
// CHECK-NOT: memref.dim
// CHECK: %[[OUT:.*]] = attn.output 0(%[[N]]) : memref<?x4xf32>
// CHECK: linalg.add
// CHECK: bufferization.materialize_in_destination %{{.*}} in restrict writable %[[OUT]]
func.func @named(%a: tensor<?x4xf32> {attn.name = "a", attn.dims = ["n", ""]},
                 %b: tensor<?x4xf32> {attn.name = "b", attn.dims = ["n", ""]}) -> tensor<?x4xf32> attributes {attn.entry} {
  %c0 = arith.constant 0 : index
  %n = tensor.dim %b, %c0 : tensor<?x4xf32>
  %e = tensor.empty(%n) : tensor<?x4xf32>
  %s = linalg.add ins(%a, %b : tensor<?x4xf32>, tensor<?x4xf32>) outs(%e : tensor<?x4xf32>) -> tensor<?x4xf32>
  return %s : tensor<?x4xf32>
}

// -----

// Without names each argument keeps its own sizes.
// CHECK-LABEL: func.func @unnamed
// CHECK-COUNT-2: memref.dim
func.func @unnamed(%a: tensor<?xf32>, %b: tensor<?xf32>) -> (tensor<?xf32>, tensor<?xf32>) attributes {attn.entry} {
  return %a, %b : tensor<?xf32>, tensor<?xf32>
}

// -----

// A reshape before the return moves to the buffer.
// CHECK-LABEL: func.func @reshaped
// CHECK: %[[OUT:.*]] = attn.output 0(%{{.*}}) : memref<?x2x3xf32>
// CHECK: %[[FLAT:.*]] = memref.collapse_shape %[[OUT]] {{\[}}[0], [1, 2]] : memref<?x2x3xf32> into memref<?x6xf32>
// CHECK: materialize_in_destination %{{.*}} in restrict writable %[[FLAT]]
func.func @reshaped(%a: tensor<?x6xf32>) -> tensor<?x2x3xf32> attributes {attn.entry} {
  %c0 = arith.constant 0 : index
  %n = tensor.dim %a, %c0 : tensor<?x6xf32>
  %e = tensor.empty(%n) : tensor<?x6xf32>
  %s = linalg.exp ins(%a : tensor<?x6xf32>) outs(%e : tensor<?x6xf32>) -> tensor<?x6xf32>
  %r = tensor.expand_shape %s [[0], [1, 2]] output_shape [%n, 2, 3] : tensor<?x6xf32> into tensor<?x2x3xf32>
  return %r : tensor<?x2x3xf32>
}

// -----

// Requirements on the inputs come first.
// CHECK-LABEL: func.func @required
// CHECK: attn.require
// CHECK: attn.output
// CHECK: linalg.exp
func.func @required(%a: tensor<?xf32>) -> tensor<?xf32> attributes {attn.entry} {
  %c0 = arith.constant 0 : index
  %n = tensor.dim %a, %c0 : tensor<?xf32>
  %e = tensor.empty(%n) : tensor<?xf32>
  %s = linalg.exp ins(%a : tensor<?xf32>) outs(%e : tensor<?xf32>) -> tensor<?xf32>
  %ok = arith.cmpi ne, %n, %c0 : index
  attn.require %ok, "node 'e' (Exp): size {0} is empty" (%n)
  return %s : tensor<?xf32>
}

// -----

// Not an entry: left alone.
// CHECK-LABEL: func.func @other(%arg0: tensor<4xf32>) -> tensor<4xf32>
func.func @other(%a: tensor<4xf32>) -> tensor<4xf32> {
  return %a : tensor<4xf32>
}

// -----

// Another form does a run that has not begun; behind a value that is computed there is none any more.
// CHECK-LABEL: func.func @served
// CHECK: attn.require unsupported {{.*}} {attn.otherwise = @form}
// CHECK: attn.output
// CHECK: attn.require unsupported %{{.*}}, "late"
// CHECK-NOT: otherwise
func.func @served(%a: tensor<?xf32>) -> tensor<?xf32> attributes {attn.entry} {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %n = tensor.dim %a, %c0 : tensor<?xf32>
  %e = tensor.empty(%n) : tensor<?xf32>
  %s = linalg.exp ins(%a : tensor<?xf32>) outs(%e : tensor<?xf32>) -> tensor<?xf32>
  %v = tensor.extract %s[%c0] : tensor<?xf32>
  %late = arith.cmpf ogt, %v, %zero : f32
  attn.require unsupported %late, "late" {attn.otherwise = @form}
  %ok = arith.cmpi ne, %n, %c0 : index
  attn.require unsupported %ok, "node 'e' (Exp): size {0} is empty" (%n) {attn.otherwise = @form}
  return %s : tensor<?xf32>
}

// -----

// What another form can do is asked before what ends the run, and what computes sizes for it goes in front, too.
// CHECK-LABEL: func.func @asked_first
// CHECK: attn.require unsupported %{{.*}}, "n or 1"{{.*}}{attn.otherwise = @form}
// CHECK: attn.require %{{.*}}, "n is k"
func.func @asked_first(%a: tensor<?xf32>, %b: tensor<?xf32>) -> tensor<?xf32> attributes {attn.entry} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %n = tensor.dim %a, %c0 : tensor<?xf32>
  %k = tensor.dim %b, %c0 : tensor<?xf32>
  %same = arith.cmpi eq, %n, %k : index
  attn.require %same, "n is k" (%n, %k)
  %longer = arith.cmpi ne, %n, %c1 : index
  attn.require unsupported %longer, "n or 1" (%n) {attn.otherwise = @form}
  return %a : tensor<?xf32>
}
