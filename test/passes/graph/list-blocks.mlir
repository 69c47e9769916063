// RUN: %python %S/Inputs/block_tables.py %s | attn-opt -attn-list-blocks -split-input-file | FileCheck %s

#q = affine_map<(b, h, i, j, d, e) -> (i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (j, d)>
#v = affine_map<(b, h, i, j, d, e) -> (j, e)>
#m = affine_map<(b, h, i, j, d, e) -> (i, j)>
#o = affine_map<(b, h, i, j, d, e) -> (i, e)>
// Each query sees its block of 32 keys and the one before: eight lists of two blocks.
// CHECK-LABEL: func @blocks
// CHECK: %[[L:.+]] = arith.constant dense<{{\[\[}}0, -1], [0, 1], [1, 2], [2, 3], [3, 4], [4, 5], [5, 6], [6, 7]]> : tensor<8x2xi32>
// CHECK: masked_rows nan mask [#attn.blocks<32, 32>]
// CHECK-SAME: mask_operands(%[[L]] : tensor<8x2xi32>)
func.func @blocks(%q: tensor<256x4xf32>, %k: tensor<256x4xf32>, %v: tensor<256x4xf32>) -> tensor<256x4xf32> {
  %m = arith.constant dense<BLOCKS> : tensor<256x256xi8>
  %r = attn.attention masked_rows nan mask [#attn.dense] maps [#q, #k, #v, #m, #o]
      ins(%q, %k, %v : tensor<256x4xf32>, tensor<256x4xf32>, tensor<256x4xf32>) mask_operands(%m : tensor<256x256xi8>)
      -> tensor<256x4xf32> score {
  ^bb0(%s: f32):
    attn.yield %s : f32
  }
  return %r : tensor<256x4xf32>
}

// -----

#q = affine_map<(b, h, i, j, d, e) -> (i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (j, d)>
#v = affine_map<(b, h, i, j, d, e) -> (j, e)>
#m = affine_map<(b, h, i, j, d, e) -> (i, j)>
#o = affine_map<(b, h, i, j, d, e) -> (i, e)>
// Near miss: every second key is seen, so that no tile is hidden.
// CHECK-LABEL: func @stripes
// CHECK: mask [#attn.dense]
// Near miss: for one more entry, blocks would have one row and one column.
// CHECK: mask [#attn.dense]
// CHECK-NOT: attn.blocks
func.func @stripes(%q: tensor<256x4xf32>, %k: tensor<256x4xf32>, %v: tensor<256x4xf32>) -> (tensor<256x4xf32>, tensor<256x4xf32>) {
  %m = arith.constant dense<STRIPES> : tensor<256x256xi8>
  %n = arith.constant dense<OFF> : tensor<256x256xi8>
  %r = attn.attention masked_rows nan mask [#attn.dense] maps [#q, #k, #v, #m, #o]
      ins(%q, %k, %v : tensor<256x4xf32>, tensor<256x4xf32>, tensor<256x4xf32>) mask_operands(%m : tensor<256x256xi8>)
      -> tensor<256x4xf32> score {
  ^bb0(%s: f32):
    attn.yield %s : f32
  }
  %t = attn.attention masked_rows nan mask [#attn.dense] maps [#q, #k, #v, #m, #o]
      ins(%q, %k, %v : tensor<256x4xf32>, tensor<256x4xf32>, tensor<256x4xf32>) mask_operands(%n : tensor<256x256xi8>)
      -> tensor<256x4xf32> score {
  ^bb0(%s: f32):
    attn.yield %s : f32
  }
  return %r, %t : tensor<256x4xf32>, tensor<256x4xf32>
}
