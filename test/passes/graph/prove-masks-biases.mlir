// RUN: attn-opt %s -attn-recognize-attention -attn-prove-masks -split-input-file | FileCheck %s

#q = affine_map<(i, j, d) -> (i, d)>
#k = affine_map<(i, j, d) -> (j, d)>
#s = affine_map<(i, j, d) -> (i, j)>
#w = affine_map<(i, e, j) -> (i, j)>
#v = affine_map<(i, e, j) -> (j, e)>
#o = affine_map<(i, e, j) -> (i, e)>
#id = affine_map<(i, j) -> (i, j)>
#kd = affine_map<(j, d) -> (j, d)>
#d = affine_map<(j, d) -> (d)>
#j = affine_map<(j, d) -> (j)>
#jj = affine_map<(i, j) -> (j)>
// A product of the keys is taken to be no mask, and a temperature of a run only scales.
// CHECK: assumes = ["|score| < 2.50e+03, a quarter of the mask's -1.00e+04"]
// CHECK-LABEL: func @products
// CHECK: %[[T:.*]] = tensor.from_elements %{{.*}} : tensor<f32>
// CHECK: mask [#attn.causal<0>]
// CHECK-SAME: captures(%{{.*}}, %[[T]] : tensor<7xf32>, tensor<f32>)
// CHECK-NOT: select
func.func @products(%q: tensor<5x8xf32>, %k: tensor<7x8xf32>, %v: tensor<7x4xf32>, %u: tensor<8xf32>, %t: f32) -> tensor<5x4xf32> {
  %zero = arith.constant 0.0 : f32
  %es = tensor.empty() : tensor<5x7xf32>
  %fs = linalg.fill ins(%zero : f32) outs(%es : tensor<5x7xf32>) -> tensor<5x7xf32>
  %eb = tensor.empty() : tensor<7xf32>
  %fb = linalg.fill ins(%zero : f32) outs(%eb : tensor<7xf32>) -> tensor<7xf32>
  %eo = tensor.empty() : tensor<5x4xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<5x4xf32>) -> tensor<5x4xf32>
  %b = linalg.contract indexing_maps = [#kd, #d, #j] ins(%k, %u : tensor<7x8xf32>, tensor<8xf32>) outs(%fb : tensor<7xf32>) -> tensor<7xf32>
  %s = linalg.contract indexing_maps = [#q, #k, #s] ins(%q, %k : tensor<5x8xf32>, tensor<7x8xf32>) outs(%fs : tensor<5x7xf32>) -> tensor<5x7xf32>
  %temperature = linalg.fill ins(%t : f32) outs(%es : tensor<5x7xf32>) -> tensor<5x7xf32>
  %z = linalg.generic {indexing_maps = [#id, #jj, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%s, %b, %temperature : tensor<5x7xf32>, tensor<7xf32>, tensor<5x7xf32>) outs(%es : tensor<5x7xf32>) {
  ^bb0(%a: f32, %c: f32, %x: f32, %out: f32):
    %i = linalg.index 0 : index
    %jx = linalg.index 1 : index
    %low = arith.constant -1.0e+04 : f32
    %y0 = arith.mulf %a, %x : f32
    %y = arith.addf %y0, %c : f32
    %shown = arith.cmpi sle, %jx, %i : index
    %m = arith.select %shown, %y, %low : f32
    linalg.yield %m : f32
  } -> tensor<5x7xf32>
  %p = attn.softmax %z dim 1 : tensor<5x7xf32>
  %r = linalg.contract indexing_maps = [#w, #v, #o] ins(%p, %v : tensor<5x7xf32>, tensor<7x4xf32>) outs(%fo : tensor<5x4xf32>) -> tensor<5x4xf32>
  return %r : tensor<5x4xf32>
}

// -----

#q = affine_map<(b, h, i, j, d, e) -> (i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (j, d)>
#v = affine_map<(b, h, i, j, d, e) -> (j, e)>
#m = affine_map<(b, h, i, j, d, e) -> (j)>
#o = affine_map<(b, h, i, j, d, e) -> (i, e)>
#id = affine_map<(a) -> (a)>
// Places that a loop counts are as large as what it counts. Near miss: a loop of floats that a run gives.
// CHECK-LABEL: func @counted
// CHECK: mask [#attn.causal<0>]
// CHECK-LABEL: func @summed
// CHECK-NOT: mask [
// CHECK: return
func.func @counted(%q: tensor<3x4xf32>, %k: tensor<3x4xf32>, %v: tensor<3x4xf32>, %seen: tensor<3xi64>) -> tensor<3x4xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %none = arith.constant 0 : i64
  %empty = tensor.empty() : tensor<3xi64>
  %counts, %end = scf.for %n = %c0 to %c3 step %c1 iter_args(%t = %empty, %before = %none) -> (tensor<3xi64>, i64) {
    %one = tensor.extract %seen[%n] : tensor<3xi64>
    %count = arith.addi %before, %one : i64
    %next = tensor.insert %count into %t[%n] : tensor<3xi64>
    scf.yield %next, %count : tensor<3xi64>, i64
  }
  %e = tensor.empty() : tensor<3xf32>
  %places = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%counts : tensor<3xi64>) outs(%e : tensor<3xf32>) {
  ^bb0(%a: i64, %x: f32):
    %y = arith.sitofp %a : i64 to f32
    linalg.yield %y : f32
  } -> tensor<3xf32>
  %r = attn.attention masked_rows nan maps [#q, #k, #v, #m, #o] ins(%q, %k, %v : tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x4xf32>)
      captures(%places : tensor<3xf32>) -> tensor<3x4xf32> score {
  ^bb0(%s: f32, %x: f32):
    %i = attn.index 2 : index
    %j = attn.index 3 : index
    %low = arith.constant -1.0e+04 : f32
    %t = arith.addf %s, %x : f32
    %shown = arith.cmpi sle, %j, %i : index
    %y = arith.select %shown, %t, %low : f32
    attn.yield %y : f32
  }
  return %r : tensor<3x4xf32>
}

func.func @summed(%q: tensor<3x4xf32>, %k: tensor<3x4xf32>, %v: tensor<3x4xf32>, %seen: tensor<3xf32>) -> tensor<3x4xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %none = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<3xf32>
  %counts, %end = scf.for %n = %c0 to %c3 step %c1 iter_args(%t = %empty, %before = %none) -> (tensor<3xf32>, f32) {
    %one = tensor.extract %seen[%n] : tensor<3xf32>
    %count = arith.addf %before, %one : f32
    %next = tensor.insert %count into %t[%n] : tensor<3xf32>
    scf.yield %next, %count : tensor<3xf32>, f32
  }
  %r = attn.attention masked_rows nan maps [#q, #k, #v, #m, #o] ins(%q, %k, %v : tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x4xf32>)
      captures(%counts : tensor<3xf32>) -> tensor<3x4xf32> score {
  ^bb0(%s: f32, %x: f32):
    %i = attn.index 2 : index
    %j = attn.index 3 : index
    %low = arith.constant -1.0e+04 : f32
    %t = arith.addf %s, %x : f32
    %shown = arith.cmpi sle, %j, %i : index
    %y = arith.select %shown, %t, %low : f32
    attn.yield %y : f32
  }
  return %r : tensor<3x4xf32>
}
