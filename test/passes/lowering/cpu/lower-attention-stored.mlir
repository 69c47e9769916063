// RUN: attn-opt %s -attn-lower-attention | FileCheck %s

// Keys and values that are widened from 16 bits are read as they are stored, through a view too; what is computed in
// f32 is read so.
#avx512 = #attn.target<triple = "x86_64-unknown-linux-gnu", cpu = "x86-64-v4", features = "", isa = "avx512", l1 = 32768, l2 = 1048576>
#q = affine_map<(b, h, i, j, d, e) -> (b, h, i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (b, h, j, d)>
#v = affine_map<(b, h, i, j, d, e) -> (b, h, j, e)>
#o = affine_map<(b, h, i, j, d, e) -> (b, h, i, e)>
#id = affine_map<(a, b, c) -> (a, b, c)>
// CHECK-LABEL: func.func @cache
// CHECK-SAME: %[[Q:.+]]: tensor<1x2x1x64xf32>, %[[K:.+]]: tensor<2x?x64xf16>, %[[V:.+]]: tensor<1x2x?x64xf32>
// CHECK: %[[VIEW:.+]] = tensor.expand_shape %[[K]] {{.*}} : tensor<2x?x64xf16> into tensor<1x2x?x64xf16>
// CHECK: attn.kernel @attention_{{.*}} ins(%[[Q]], %[[VIEW]], %[[V]] : tensor<1x2x1x64xf32>, tensor<1x2x?x64xf16>, tensor<1x2x?x64xf32>)
module attributes {attn.target = #avx512} {
  func.func @cache(%q: tensor<1x2x1x64xf32>, %k: tensor<2x?x64xf16>, %v: tensor<1x2x?x64xf32>, %n: index) -> tensor<1x2x1x64xf32> {
    %e = tensor.empty(%n) : tensor<2x?x64xf32>
    %wide = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel"]}
        ins(%k : tensor<2x?x64xf16>) outs(%e : tensor<2x?x64xf32>) {
    ^bb0(%a: f16, %o: f32):
      %x = arith.extf %a : f16 to f32
      linalg.yield %x : f32
    } -> tensor<2x?x64xf32>
    %view = tensor.expand_shape %wide [[0, 1], [2], [3]] output_shape [1, 2, %n, 64] : tensor<2x?x64xf32> into tensor<1x2x?x64xf32>
    %r = attn.attention masked_rows nan maps [#q, #k, #v, #o]
        ins(%q, %view, %v : tensor<1x2x1x64xf32>, tensor<1x2x?x64xf32>, tensor<1x2x?x64xf32>) -> tensor<1x2x1x64xf32>
      score {
      ^bb0(%s: f32):
        attn.yield %s : f32
      }
    return %r : tensor<1x2x1x64xf32>
  }
}
