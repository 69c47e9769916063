// RUN: attn-opt %s -attn-raise-tables -canonicalize -split-input-file | FileCheck %s

// A triangle, behind a softmax.
// CHECK-LABEL: func.func @triangle
// CHECK-NOT: dense<
// CHECK: %[[M:.+]] = linalg.generic
// CHECK: arith.cmpi sle
// CHECK: arith.select
// CHECK: arith.addf
func.func @triangle(%s: tensor<2x4x4xf32>) -> tensor<2x4x4xf32> {
  %m = arith.constant dense<[[[0.0, -1.0e9, -1.0e9, -1.0e9], [0.0, 0.0, -1.0e9, -1.0e9], [0.0, 0.0, 0.0, -1.0e9], [0.0, 0.0, 0.0, 0.0]]]> : tensor<1x4x4xf32>
  %e = tensor.empty() : tensor<2x4x4xf32>
  %x = linalg.generic {indexing_maps = [affine_map<(a, b, c) -> (a, b, c)>, affine_map<(a, b, c) -> (0, b, c)>, affine_map<(a, b, c) -> (a, b, c)>],
      iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%s, %m : tensor<2x4x4xf32>, tensor<1x4x4xf32>) outs(%e : tensor<2x4x4xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %y = arith.addf %a, %b : f32
    linalg.yield %y : f32
  } -> tensor<2x4x4xf32>
  %p = attn.softmax %x dim 2 : tensor<2x4x4xf32>
  return %p : tensor<2x4x4xf32>
}

// -----

// One entry is off: left as it is.
// CHECK-LABEL: func.func @off
// CHECK: dense<{{\[\[}}
// CHECK-NOT: linalg.index
func.func @off(%s: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %m = arith.constant dense<[[0.0, -1.0e9, -1.0e9, -1.0e9], [0.0, 0.0, -1.0e9, -1.0e9], [0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]]> : tensor<4x4xf32>
  %e = tensor.empty() : tensor<4x4xf32>
  %x = linalg.add ins(%s, %m : tensor<4x4xf32>, tensor<4x4xf32>) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %p = attn.softmax %x dim 1 : tensor<4x4xf32>
  return %p : tensor<4x4xf32>
}

// -----

// Three values, and one that no softmax reads.
// CHECK-LABEL: func.func @other
// CHECK: dense<{{\[\[}}
// CHECK: dense<{{\[\[}}
// CHECK-NOT: linalg.index
func.func @other(%s: tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<2x3xf32>) {
  %m = arith.constant dense<[[0.0, -1.0e9, -1.0e9], [0.0, 0.0, -2.0e9]]> : tensor<2x3xf32>
  %n = arith.constant dense<[[0.0, -1.0e9, -1.0e9], [0.0, 0.0, -1.0e9]]> : tensor<2x3xf32>
  %e = tensor.empty() : tensor<2x3xf32>
  %x = linalg.add ins(%s, %m : tensor<2x3xf32>, tensor<2x3xf32>) outs(%e : tensor<2x3xf32>) -> tensor<2x3xf32>
  %p = attn.softmax %x dim 1 : tensor<2x3xf32>
  %y = linalg.add ins(%s, %n : tensor<2x3xf32>, tensor<2x3xf32>) outs(%e : tensor<2x3xf32>) -> tensor<2x3xf32>
  return %p, %y : tensor<2x3xf32>, tensor<2x3xf32>
}

// -----

// A slice of a stored triangle, as GPT-2 has one: computed from where it starts.
// CHECK-LABEL: func.func @slice
// CHECK-SAME: %[[AT:[^:]+]]: index
// CHECK: linalg.generic
// CHECK: linalg.index 0
// CHECK: arith.addi %{{.+}}, %[[AT]]
// CHECK: arith.cmpi sle
// CHECK: attn.softmax
func.func @slice(%s: tensor<?x?xf32>, %at: index, %rows: index, %columns: index) -> tensor<?x?xf32> {
  %m = arith.constant dense<[[[1, 0, 0], [1, 1, 0], [1, 1, 1]]]> : tensor<1x3x3xi8>
  %cut = tensor.extract_slice %m[0, %at, 0] [1, %rows, %columns] [1, 1, 1] : tensor<1x3x3xi8> to tensor<?x?xi8>
  %e = tensor.empty(%rows, %columns) : tensor<?x?xf32>
  %x = linalg.generic {indexing_maps = [affine_map<(a, b) -> (a, b)>, affine_map<(a, b) -> (a, b)>, affine_map<(a, b) -> (a, b)>],
      iterator_types = ["parallel", "parallel"]}
      ins(%s, %cut : tensor<?x?xf32>, tensor<?x?xi8>) outs(%e : tensor<?x?xf32>) {
  ^bb0(%a: f32, %b: i8, %o: f32):
    %zero = arith.constant 0 : i8
    %low = arith.constant 0xFF800000 : f32
    %c = arith.cmpi ne, %b, %zero : i8
    %y = arith.select %c, %a, %low : f32
    linalg.yield %y : f32
  } -> tensor<?x?xf32>
  %p = attn.softmax %x dim 1 : tensor<?x?xf32>
  return %p : tensor<?x?xf32>
}
