// RUN: attn-opt %s --attn-interpret --entry=layout --input=2x3xf32=1,2,3,4,5,6 | FileCheck %s --check-prefix=LAYOUT
// RUN: attn-opt %s --attn-interpret --entry=loops --input=4xf32=1,2,3,4 | FileCheck %s --check-prefix=LOOPS
// RUN: attn-opt %s --attn-interpret --entry=norms --input=2x2xf32=1,3,0,0 | FileCheck %s --check-prefix=NORMS
// RUN: attn-opt %s --attn-interpret --entry=overflow --input=1xf32=-3.0e38 | FileCheck %s --check-prefix=OVERFLOW
// RUN: attn-opt %s --attn-interpret --entry=integers --input=3xi32=-7,7,2147483647 | FileCheck %s --check-prefix=INTEGERS
// RUN: not attn-opt %s --attn-interpret --entry=gather --input=2xi64=0,9 2>&1 | FileCheck %s --check-prefix=RANGE
// RUN: not attn-opt %s --attn-interpret --entry=unknown 2>&1 | FileCheck %s --check-prefix=UNKNOWN
// RUN: not attn-opt %s --attn-interpret --entry=gather --input=3xi64=0,1,2 2>&1 | FileCheck %s --check-prefix=SHAPE
// RUN: not attn-opt %s --attn-interpret --entry=gather 2>&1 | FileCheck %s --check-prefix=COUNT
// RUN: not attn-opt %s --attn-interpret --entry=nobody 2>&1 | FileCheck %s --check-prefix=NOBODY
// RUN: not attn-opt %s --attn-interpret -canonicalize 2>&1 | FileCheck %s --check-prefix=FLAG
// RUN: env PYTHONDONTWRITEBYTECODE=1 %python %S/Inputs/attention_numeric.py

// LAYOUT: result 0: 3x2xf64 = 1 4 2 5 3 6
// LAYOUT: result 1: 6xf64 = 1 2 3 4 5 6
// LAYOUT: result 2: 2x2xf64 = 2 3 5 6
// LAYOUT: result 3: 4x3xf64 = 1 2 3 4 5 6 1 2 3 4 5 6
func.func @layout(%x: tensor<2x3xf32>) -> (tensor<3x2xf32>, tensor<?xf32>, tensor<2x2xf32>, tensor<4x3xf32>) {
  %e = tensor.empty() : tensor<3x2xf32>
  %t = linalg.transpose ins(%x : tensor<2x3xf32>) outs(%e : tensor<3x2xf32>) permutation = [1, 0]
  %c = tensor.collapse_shape %x [[0, 1]] : tensor<2x3xf32> into tensor<6xf32>
  %d = tensor.cast %c : tensor<6xf32> to tensor<?xf32>
  %s = tensor.extract_slice %x[0, 1] [2, 2] [1, 1] : tensor<2x3xf32> to tensor<2x2xf32>
  %k = tensor.concat dim(0) %x, %x : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<4x3xf32>
  return %t, %d, %s, %k : tensor<3x2xf32>, tensor<?xf32>, tensor<2x2xf32>, tensor<4x3xf32>
}

// LOOPS: result 0: f64 = 10
// LOOPS: result 1: i64 = 8
func.func @loops(%x: tensor<4xf32>) -> (f32, index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c5 = arith.constant 5 : index
  %n = tensor.dim %x, %c0 : tensor<4xf32>
  %z = arith.constant 0.0 : f32
  %sum = scf.for %i = %c0 to %n step %c1 iter_args(%s = %z) -> f32 {
    %e = tensor.extract %x[%i] : tensor<4xf32>
    %t = arith.addf %s, %e : f32
    scf.yield %t : f32
  }
  %power = scf.while (%p = %c1) : (index) -> index {
    %more = arith.cmpi slt, %p, %c5 : index
    scf.condition(%more) %p : index
  } do {
  ^bb0(%p: index):
    %q = arith.addi %p, %p : index
    scf.yield %q : index
  }
  return %sum, %power : f32, index
}

// NORMS: result 0: 2x2xf64 = 0.119202922 0.880797078 0.5 0.5
// NORMS: result 1: 2x2xf64 = -0.999995 0.999995 0 0
func.func @norms(%x: tensor<2x2xf32>) -> (tensor<2x2xf32>, tensor<2x2xf32>) {
  %s = attn.softmax %x dim 1 : tensor<2x2xf32>
  %one = arith.constant dense<1.0> : tensor<2xf32>
  %l = attn.layer_norm %x, %one axis 1 epsilon 1.0e-5 : tensor<2x2xf32>, tensor<2xf32>
  return %s, %l : tensor<2x2xf32>, tensor<2x2xf32>
}

// A sum that leaves f32 is infinite, as in the graph.
// OVERFLOW: result 0: 1xf64 = -inf
func.func @overflow(%x: tensor<1xf32>) -> tensor<1xf32> {
  %y = linalg.add ins(%x, %x : tensor<1xf32>, tensor<1xf32>) outs(%x : tensor<1xf32>) -> tensor<1xf32>
  return %y : tensor<1xf32>
}

// INTEGERS: result 0: 3xi64 = -4 3 1073741823
// INTEGERS: result 1: 3xi64 = -14 14 -2
func.func @integers(%x: tensor<3xi32>) -> (tensor<3xi32>, tensor<3xi32>) {
  %r:2 = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
                         iterator_types = ["parallel"]}
      ins(%x : tensor<3xi32>) outs(%x, %x : tensor<3xi32>, tensor<3xi32>) {
  ^bb0(%a: i32, %o: i32, %p: i32):
    %c2 = arith.constant 2 : i32
    %h = arith.floordivsi %a, %c2 : i32
    %d = arith.addi %a, %a : i32
    linalg.yield %h, %d : i32, i32
  } -> (tensor<3xi32>, tensor<3xi32>)
  return %r#0, %r#1 : tensor<3xi32>, tensor<3xi32>
}

// RANGE: error: index 9 is out of range [0, 4)
// SHAPE: error: input 0 has shape 3, expected tensor<2xi64>
// COUNT: error: @gather takes 1 inputs, got 0
func.func @gather(%i: tensor<2xi64>) -> tensor<2xindex> {
  %e = tensor.empty() : tensor<2xindex>
  %c4 = arith.constant 4 : index
  %r = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%i : tensor<2xi64>) outs(%e : tensor<2xindex>) {
  ^bb0(%a: i64, %o: index):
    %n = arith.index_cast %a : i64 to index
    %k = attn.check_index %n, %c4, "node 'g' (Gather)" : index
    linalg.yield %k : index
  } -> tensor<2xindex>
  return %r : tensor<2xindex>
}

// UNKNOWN: error: the interpreter has no rule for 'complex.constant'
func.func @unknown() -> complex<f32> {
  %c = complex.constant [1.0 : f32, 2.0 : f32] : complex<f32>
  return %c : complex<f32>
}

// NOBODY: error: the file has no function 'nobody'
// FLAG: error: '-canonicalize' does not go with --attn-interpret
