// RUN: attn-opt %s -attn-prove-masks -split-input-file | FileCheck %s

#q = affine_map<(b, h, i, j, d, e) -> (i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (j, d)>
#v = affine_map<(b, h, i, j, d, e) -> (j, e)>
#n = affine_map<(b, h, i, j, d, e) -> ()>
#o = affine_map<(b, h, i, j, d, e) -> (i, e)>
// n keys in front of a window: j < n, or i + n - 2 <= j <= i + n + 2.
// CHECK-LABEL: func @front
// CHECK: attn.attention masked_rows nan mask [#attn.window<0, inf, offset>, #attn.causal<?>, #attn.prefix<?>]
// CHECK-NOT: arith.select
// CHECK: attn.yield
func.func @front(%q: tensor<?x4xf32>, %k: tensor<?x4xf32>, %v: tensor<?x4xf32>, %n: tensor<i64>) -> tensor<?x4xf32> {
  %r = attn.attention masked_rows nan maps [#q, #k, #v, #n, #o] ins(%q, %k, %v : tensor<?x4xf32>, tensor<?x4xf32>, tensor<?x4xf32>)
      captures(%n : tensor<i64>) -> tensor<?x4xf32> score {
  ^bb0(%s: f32, %count: i64):
    %i = attn.index 2 : index
    %j = attn.index 3 : index
    %c2 = arith.constant 2 : index
    %cm2 = arith.constant -2 : index
    %inf = arith.constant 0xFF800000 : f32
    %front = arith.index_cast %count : i64 to index
    %l = arith.addi %i, %cm2 : index
    %least = arith.addi %l, %front : index
    %g = arith.addi %i, %c2 : index
    %greatest = arith.addi %g, %front : index
    %from = arith.cmpi sge, %j, %least : index
    %to = arith.cmpi sle, %j, %greatest : index
    %near = arith.andi %from, %to : i1
    %is = arith.cmpi slt, %j, %front : index
    %sees = arith.ori %near, %is : i1
    %y = arith.select %sees, %s, %inf : f32
    attn.yield %y : f32
  }
  return %r : tensor<?x4xf32>
}

// -----

#q = affine_map<(b, h, i, j, d, e) -> (i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (j, d)>
#v = affine_map<(b, h, i, j, d, e) -> (j, e)>
#o = affine_map<(b, h, i, j, d, e) -> (i, e)>
// Of what hides all keys alike beside a window nothing is said: a prefix does not widen it.
// CHECK-LABEL: func @strict
// CHECK: attn.attention masked_rows nan maps
// CHECK: arith.select
func.func @strict(%q: tensor<?x4xf32>, %k: tensor<?x4xf32>, %v: tensor<?x4xf32>) -> tensor<?x4xf32> {
  %r = attn.attention masked_rows nan maps [#q, #k, #v, #o] ins(%q, %k, %v : tensor<?x4xf32>, tensor<?x4xf32>, tensor<?x4xf32>)
      -> tensor<?x4xf32> score {
  ^bb0(%s: f32):
    %i = attn.index 2 : index
    %j = attn.index 3 : index
    %c3 = arith.constant 3 : index
    %c9 = arith.constant 9 : index
    %inf = arith.constant 0xFF800000 : f32
    %causal = arith.cmpi sle, %j, %i : index
    %early = arith.cmpi slt, %j, %c9 : index
    %both = arith.andi %causal, %early : i1
    %is = arith.cmpi slt, %j, %c3 : index
    %sees = arith.ori %both, %is : i1
    %y = arith.select %sees, %s, %inf : f32
    attn.yield %y : f32
  }
  return %r : tensor<?x4xf32>
}
