// RUN: attn-opt %s -attn-open-masks -attn-prove-masks -canonicalize -cse -split-input-file | FileCheck %s

#q = affine_map<(b, h, i, j, d, e) -> (b, i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (b, j, d)>
#v = affine_map<(b, h, i, j, d, e) -> (b, j, e)>
#m = affine_map<(b, h, i, j, d, e) -> (b, i, j)>
#o = affine_map<(b, h, i, j, d, e) -> (b, i, e)>
// A stored mask that is: j <= i, and a stored one for the keys.
// CHECK-LABEL: func.func @causal_and_padding
// CHECK-SAME: %[[P:[^:]+]]: tensor<2x?xi8>
// CHECK: attn.attention masked_rows zero mask [#attn.causal<0>, #attn.dense]
// CHECK-SAME: mask_operands(%[[P]] : tensor<2x?xi8>)
func.func @causal_and_padding(%q: tensor<2x?x8xf32>, %k: tensor<2x?x8xf32>, %v: tensor<2x?x8xf32>, %p: tensor<2x?xi8>,
                              %n: index, %l: index) -> tensor<2x?x8xf32> {
  %e = tensor.empty(%n, %l) : tensor<2x?x?xi8>
  %m = linalg.generic {indexing_maps = [affine_map<(a, b, c) -> (a, c)>, affine_map<(a, b, c) -> (a, b, c)>],
      iterator_types = ["parallel", "parallel", "parallel"]} ins(%p : tensor<2x?xi8>) outs(%e : tensor<2x?x?xi8>) {
  ^bb0(%x: i8, %o: i8):
    %zero = arith.constant 0 : i8
    %i = linalg.index 1 : index
    %j = linalg.index 2 : index
    %below = arith.cmpi sle, %j, %i : index
    %kept = arith.cmpi ne, %x, %zero : i8
    %both = arith.andi %below, %kept : i1
    %y = arith.extui %both : i1 to i8
    linalg.yield %y : i8
  } -> tensor<2x?x?xi8>
  %r = attn.attention masked_rows zero mask [#attn.dense] maps [#q, #k, #v, #m, #o]
      ins(%q, %k, %v : tensor<2x?x8xf32>, tensor<2x?x8xf32>, tensor<2x?x8xf32>) mask_operands(%m : tensor<2x?x?xi8>)
      -> tensor<2x?x8xf32> score {
  ^bb0(%s: f32):
    attn.yield %s : f32
  }
  return %r : tensor<2x?x8xf32>
}

// -----

#q = affine_map<(b, h, i, j, d, e) -> (b, i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (b, j, d)>
#v = affine_map<(b, h, i, j, d, e) -> (b, j, e)>
#m = affine_map<(b, h, i, j, d, e) -> (b, i, j)>
#o = affine_map<(b, h, i, j, d, e) -> (b, i, e)>
// i * j <= 9 is no term: the mask stays stored.
// CHECK-LABEL: func.func @product
// CHECK: attn.attention masked_rows zero mask [#attn.dense]
// CHECK-NOT: attn.index
func.func @product(%q: tensor<2x?x8xf32>, %k: tensor<2x?x8xf32>, %v: tensor<2x?x8xf32>, %n: index, %l: index) -> tensor<2x?x8xf32> {
  %e = tensor.empty(%n, %l) : tensor<2x?x?xi8>
  %m = linalg.generic {indexing_maps = [affine_map<(a, b, c) -> (a, b, c)>],
      iterator_types = ["parallel", "parallel", "parallel"]} outs(%e : tensor<2x?x?xi8>) {
  ^bb0(%o: i8):
    %c9 = arith.constant 9 : index
    %i = linalg.index 1 : index
    %j = linalg.index 2 : index
    %p = arith.muli %i, %j : index
    %below = arith.cmpi sle, %p, %c9 : index
    %y = arith.extui %below : i1 to i8
    linalg.yield %y : i8
  } -> tensor<2x?x?xi8>
  %r = attn.attention masked_rows zero mask [#attn.dense] maps [#q, #k, #v, #m, #o]
      ins(%q, %k, %v : tensor<2x?x8xf32>, tensor<2x?x8xf32>, tensor<2x?x8xf32>) mask_operands(%m : tensor<2x?x?xi8>)
      -> tensor<2x?x8xf32> score {
  ^bb0(%s: f32):
    attn.yield %s : f32
  }
  return %r : tensor<2x?x8xf32>
}
