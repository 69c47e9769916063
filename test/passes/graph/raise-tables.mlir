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

// -----

// Positions, as a folded Range, and a table of distances.
// CHECK-LABEL: func.func @positions
// CHECK-NOT: dense<
// CHECK: %[[AT:.+]] = linalg.index 0
// CHECK: arith.index_cast %[[AT]] : index to i64
// CHECK: %[[I:.+]] = linalg.index 0
// CHECK: %[[J:.+]] = linalg.index 1
// CHECK: %[[SUM:.+]] = arith.addi %[[I]], %c7
// CHECK: arith.subi %[[SUM]], %[[J]]
// CHECK: attn.softmax
func.func @positions(%s: tensor<3x3xf32>) -> tensor<3x3xf32> {
  %n = arith.constant dense<[0, 1, 2]> : tensor<3xi64>
  %d = arith.constant dense<[[7, 6, 5], [8, 7, 6], [9, 8, 7]]> : tensor<3x3xi64>
  %e = tensor.empty() : tensor<3x3xf32>
  %x = linalg.generic {indexing_maps = [affine_map<(a, b) -> (a, b)>, affine_map<(a, b) -> (b)>, affine_map<(a, b) -> (a, b)>, affine_map<(a, b) -> (a, b)>],
      iterator_types = ["parallel", "parallel"]}
      ins(%s, %n, %d : tensor<3x3xf32>, tensor<3xi64>, tensor<3x3xi64>) outs(%e : tensor<3x3xf32>) {
  ^bb0(%a: f32, %b: i64, %c: i64, %o: f32):
    %low = arith.constant 0xFF800000 : f32
    %shown = arith.cmpi sle, %b, %c : i64
    %y = arith.select %shown, %a, %low : f32
    linalg.yield %y : f32
  } -> tensor<3x3xf32>
  %p = attn.softmax %x dim 1 : tensor<3x3xf32>
  return %p : tensor<3x3xf32>
}

// -----

// One position is off; steps of two; numbers no position has.
// CHECK-LABEL: func.func @no_positions
// CHECK-DAG: dense<[0, 1, 3]>
// CHECK-DAG: dense<[0, 2, 4]>
// CHECK-DAG: dense<[1099511627776, 1099511627777, 1099511627778]>
// CHECK-NOT: linalg.index
func.func @no_positions(%s: tensor<3x3xf32>) -> tensor<3x3xf32> {
  %n = arith.constant dense<[0, 1, 3]> : tensor<3xi64>
  %m = arith.constant dense<[0, 2, 4]> : tensor<3xi64>
  %f = arith.constant dense<[1099511627776, 1099511627777, 1099511627778]> : tensor<3xi64>
  %e = tensor.empty() : tensor<3x3xf32>
  %x = linalg.generic {indexing_maps = [affine_map<(a, b) -> (a, b)>, affine_map<(a, b) -> (b)>, affine_map<(a, b) -> (b)>, affine_map<(a, b) -> (a)>, affine_map<(a, b) -> (a, b)>],
      iterator_types = ["parallel", "parallel"]}
      ins(%s, %n, %m, %f : tensor<3x3xf32>, tensor<3xi64>, tensor<3xi64>, tensor<3xi64>) outs(%e : tensor<3x3xf32>) {
  ^bb0(%a: f32, %b: i64, %c: i64, %d: i64, %o: f32):
    %low = arith.constant 0xFF800000 : f32
    %sum = arith.addi %b, %c : i64
    %shown = arith.cmpi sle, %sum, %d : i64
    %y = arith.select %shown, %a, %low : f32
    linalg.yield %y : f32
  } -> tensor<3x3xf32>
  %p = attn.softmax %x dim 1 : tensor<3x3xf32>
  return %p : tensor<3x3xf32>
}

// -----

// A triangle stored for each batch and head.
// CHECK-LABEL: func.func @repeated
// CHECK-NOT: dense<
// CHECK: %[[ROW:.+]] = linalg.index 2
// CHECK: %[[COLUMN:.+]] = linalg.index 3
// CHECK: arith.cmpi sle, %[[COLUMN]], %[[ROW]]
func.func @repeated(%s: tensor<2x2x3x3xf32>) -> tensor<2x2x3x3xf32> {
  %m = arith.constant dense<[[[[0.0, -1.0e9, -1.0e9], [0.0, 0.0, -1.0e9], [0.0, 0.0, 0.0]], [[0.0, -1.0e9, -1.0e9], [0.0, 0.0, -1.0e9], [0.0, 0.0, 0.0]]],
    [[[0.0, -1.0e9, -1.0e9], [0.0, 0.0, -1.0e9], [0.0, 0.0, 0.0]], [[0.0, -1.0e9, -1.0e9], [0.0, 0.0, -1.0e9], [0.0, 0.0, 0.0]]]]> : tensor<2x2x3x3xf32>
  %e = tensor.empty() : tensor<2x2x3x3xf32>
  %x = linalg.add ins(%s, %m : tensor<2x2x3x3xf32>, tensor<2x2x3x3xf32>) outs(%e : tensor<2x2x3x3xf32>) -> tensor<2x2x3x3xf32>
  %p = attn.softmax %x dim 3 : tensor<2x2x3x3xf32>
  return %p : tensor<2x2x3x3xf32>
}

// -----

// The last head of the last batch hides one key more.
// CHECK-LABEL: func.func @last_differs
// CHECK: dense<{{\[\[}}
// CHECK-NOT: linalg.index
func.func @last_differs(%s: tensor<2x2x3x3xf32>) -> tensor<2x2x3x3xf32> {
  %m = arith.constant dense<[[[[0.0, -1.0e9, -1.0e9], [0.0, 0.0, -1.0e9], [0.0, 0.0, 0.0]], [[0.0, -1.0e9, -1.0e9], [0.0, 0.0, -1.0e9], [0.0, 0.0, 0.0]]],
    [[[0.0, -1.0e9, -1.0e9], [0.0, 0.0, -1.0e9], [0.0, 0.0, 0.0]], [[0.0, -1.0e9, -1.0e9], [0.0, 0.0, -1.0e9], [0.0, 0.0, -1.0e9]]]]> : tensor<2x2x3x3xf32>
  %e = tensor.empty() : tensor<2x2x3x3xf32>
  %x = linalg.add ins(%s, %m : tensor<2x2x3x3xf32>, tensor<2x2x3x3xf32>) outs(%e : tensor<2x2x3x3xf32>) -> tensor<2x2x3x3xf32>
  %p = attn.softmax %x dim 3 : tensor<2x2x3x3xf32>
  return %p : tensor<2x2x3x3xf32>
}

// -----

// Positions as floats.
// CHECK-LABEL: func.func @float_positions
// CHECK-NOT: dense<
// CHECK: %[[J:.+]] = linalg.index 0
// CHECK: arith.sitofp
func.func @float_positions(%s: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %m = arith.constant dense<[1.0, 2.0, 3.0, 4.0]> : tensor<4xf32>
  %e = tensor.empty() : tensor<2x4xf32>
  %x = linalg.generic {indexing_maps = [affine_map<(a, b) -> (a, b)>, affine_map<(a, b) -> (b)>, affine_map<(a, b) -> (a, b)>],
      iterator_types = ["parallel", "parallel"]} ins(%s, %m : tensor<2x4xf32>, tensor<4xf32>) outs(%e : tensor<2x4xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %y = arith.addf %a, %b : f32
    linalg.yield %y : f32
  } -> tensor<2x4xf32>
  %p = attn.softmax %x dim 1 : tensor<2x4xf32>
  return %p : tensor<2x4xf32>
}

// -----

// Not whole.
// CHECK-LABEL: func.func @float_halves
// CHECK: dense<
// CHECK-NOT: linalg.index
func.func @float_halves(%s: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %m = arith.constant dense<[0.5, 1.5, 2.5, 3.5]> : tensor<4xf32>
  %e = tensor.empty() : tensor<2x4xf32>
  %x = linalg.generic {indexing_maps = [affine_map<(a, b) -> (a, b)>, affine_map<(a, b) -> (b)>, affine_map<(a, b) -> (a, b)>],
      iterator_types = ["parallel", "parallel"]} ins(%s, %m : tensor<2x4xf32>, tensor<4xf32>) outs(%e : tensor<2x4xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %y = arith.addf %a, %b : f32
    linalg.yield %y : f32
  } -> tensor<2x4xf32>
  %p = attn.softmax %x dim 1 : tensor<2x4xf32>
  return %p : tensor<2x4xf32>
}

// -----

// A zero that has a sign.
// CHECK-LABEL: func.func @float_negative_zero
// CHECK: dense<
// CHECK-NOT: linalg.index
func.func @float_negative_zero(%s: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %m = arith.constant dense<[-1.0, -0.0, 1.0, 2.0]> : tensor<4xf32>
  %e = tensor.empty() : tensor<2x4xf32>
  %x = linalg.generic {indexing_maps = [affine_map<(a, b) -> (a, b)>, affine_map<(a, b) -> (b)>, affine_map<(a, b) -> (a, b)>],
      iterator_types = ["parallel", "parallel"]} ins(%s, %m : tensor<2x4xf32>, tensor<4xf32>) outs(%e : tensor<2x4xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %y = arith.addf %a, %b : f32
    linalg.yield %y : f32
  } -> tensor<2x4xf32>
  %p = attn.softmax %x dim 1 : tensor<2x4xf32>
  return %p : tensor<2x4xf32>
}
