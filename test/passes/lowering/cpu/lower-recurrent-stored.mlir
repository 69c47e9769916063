// RUN: attn-opt %s --attn-lower-recurrent | FileCheck %s

// Recurrent weights that are f16 widened: the gates of a panel are slices of what is stored.
module attributes {attn.target = #attn.target<triple = "", cpu = "", features = "", isa = "avx512", l1 = 49152, l2 = 1048576>} {

attn.global @r : tensor<1x64x16xf16> = #attn.initializer<"r">
attn.global @r_f32 : tensor<1x64x16xf32> = #attn.reshape<@r>

// CHECK-LABEL: func.func @lstm
// CHECK: attn.weight @{{.*}} : tensor<1x16x64xf16>
// CHECK: attn.kernel @lstm_f32_f16_forward_sx_b4_h16_v16_
// CHECK-DAG: attn.global @[[GATE:.+]] : tensor<1x16x16xf16> = #attn.slice<@r, dim 1 at 48 size 16>
// CHECK-DAG: attn.global @[[MATRIX:.+]] : tensor<16x16xf16> = #attn.reshape<@[[GATE]]>
// CHECK-DAG: attn.global @{{.+}} : tensor<1x16x16xf16> = #attn.pack_panels<@[[MATRIX]], transposed = true, width = 16>
func.func @lstm(%x: tensor<?x4x8xf32>, %w: tensor<1x64x8xf32>) -> tensor<1x4x16xf32> {
  %r = attn.weight @r_f32 : tensor<1x64x16xf32>
  %y, %h, %c = attn.lstm forward [#attn.activation<sigmoid>, #attn.activation<tanh>, #attn.activation<tanh>]
      ins(%x, %w, %r : tensor<?x4x8xf32>, tensor<1x64x8xf32>, tensor<1x64x16xf32>)
      -> tensor<?x1x4x16xf32>, tensor<1x4x16xf32>, tensor<1x4x16xf32>
  return %c : tensor<1x4x16xf32>
}
}
