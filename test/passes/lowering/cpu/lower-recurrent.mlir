// RUN: attn-opt %s --attn-lower-recurrent | FileCheck %s
// RUN: attn-opt %s --attn-lower-recurrent --remarks-filter=attn-lower-recurrent \
// RUN:   --remark-format=emitRemark -o /dev/null 2>&1 | FileCheck %s --check-prefix=REMARK
// RUN: attn-opt %s --attn-lower-recurrent=weights=bf16 | FileCheck %s --check-prefix=BF16
// RUN: attn-opt %s --attn-lower-recurrent=weights=int8:8 | FileCheck %s --check-prefix=INT8
// RUN: not attn-opt %s --attn-lower-recurrent=weights=int4 2>&1 | FileCheck %s --check-prefix=WRONG
// WRONG: expects weights in f32, bf16, int8, int8:GROUP or int4:BLOCK, got 'int4'
// REMARK-DAG: remark: [Passed] lstm {{.*}}lstm_f32_forward_sx_b4_h16_v16
// REMARK-DAG: remark: [Missed] rnn {{.*}} Reason="only f32 has a kernel so far"
// REMARK-DAG: remark: [Missed] rnn {{.*}} Reason="its recurrent weights are no constant"
// REMARK-DAG: remark: [Missed] rnn {{.*}} Reason="its directions have different activations"

module attributes {attn.target = #attn.target<triple = "", cpu = "", features = "", isa = "avx512", l1 = 49152, l2 = 1048576>} {

attn.global @r : tensor<1x64x16xf32> = #attn.initializer<"r">
attn.global @r3 : tensor<2x16x16xf32> = #attn.initializer<"r3">
attn.global @r2 : tensor<2x60x20xf32> = #attn.initializer<"r2">

// The input of all steps in one contraction; the gates of 16 units side by side.
// CHECK-LABEL: func.func @lstm
// CHECK: linalg.contract {{.*}} outs(%{{.*}} : tensor<?x4x1x64xf32>)
// CHECK: attn.weight @[[GATES:.*]] : tensor<1x16x64xf32>
// Narrow gates side by side: pairs of rows interleaved in bf16, scales of 8 rows in int8.
// BF16-LABEL: func.func @lstm
// BF16: attn.weight @{{.*}} : tensor<1x8x128xbf16>
// BF16: attn.kernel @lstm_f32_bf16_forward_sx_b4_h16_v16_
// INT8-LABEL: func.func @lstm
// INT8: attn.weight @{{.*}} : tensor<1x16x64xi8>
// INT8: attn.weight @{{.*}} : tensor<1x2x64xf32>
// INT8: attn.kernel @lstm_f32_i8g8_forward_sx_b4_h16_v16_
// CHECK: attn.kernel @lstm_f32_forward_sx_b4_h16_v16_{{.*}} -> tensor<?x1x4x16xf32>, tensor<1x4x16xf32>, tensor<1x4x16xf32>, tensor<3x1x4x64xf32>
func.func @lstm(%x: tensor<?x4x8xf32>, %w: tensor<1x64x8xf32>) -> tensor<1x4x16xf32> {
  %r = attn.weight @r : tensor<1x64x16xf32>
  %y, %h, %c = attn.lstm forward [#attn.activation<sigmoid>, #attn.activation<tanh>, #attn.activation<tanh>]
      ins(%x, %w, %r : tensor<?x4x8xf32>, tensor<1x64x8xf32>, tensor<1x64x16xf32>)
      -> tensor<?x1x4x16xf32>, tensor<1x4x16xf32>, tensor<1x4x16xf32>
  return %c : tensor<1x4x16xf32>
}

// A reset before the product takes two sweeps over the weights.
// CHECK-LABEL: func.func @gru
// CHECK: attn.weight @{{.*}} : tensor<2x20x64xf32>
// CHECK: attn.weight @{{.*}} : tensor<2x20x64xf32>
// CHECK: attn.kernel @gru_f32_bidirectional_sx_bx_h20_v16_
func.func @gru(%x: tensor<?x?x8xf32>, %w: tensor<2x60x8xf32>, %b: tensor<2x120xf32>, %n: tensor<?xi32>) -> tensor<?x2x?x20xf32> {
  %r = attn.weight @r2 : tensor<2x60x20xf32>
  %y, %h = attn.gru bidirectional [#attn.activation<sigmoid>, #attn.activation<tanh>, #attn.activation<sigmoid>, #attn.activation<tanh>]
      ins(%x, %w, %r : tensor<?x?x8xf32>, tensor<2x60x8xf32>, tensor<2x60x20xf32>) bias(%b : tensor<2x120xf32>)
      lengths(%n : tensor<?xi32>) -> tensor<?x2x?x20xf32>, tensor<2x?x20xf32>
  return %y : tensor<?x2x?x20xf32>
}

// What is projected has no contraction; small weights are packed in the IR, each gate of 3 units in a vector.
// CHECK-LABEL: func.func @projected
// CHECK-NOT: linalg.contract
// CHECK-DAG: %[[X:.*]] = tensor.expand_shape %{{.*}} {{\[}}[0], [1], [2, 3]] output_shape {{.*}} tensor<2x?x9xf32> into tensor<2x?x1x9xf32>
// CHECK-DAG: %[[ZR:.*]] = arith.constant dense<{{.*}}> : tensor<1x3x64xf32>
// CHECK: attn.kernel @gru_f32_forward_s2_bx_h3_v16_{{.*}} ins(%[[X]], %[[ZR]], {{.*}} : tensor<2x?x1x9xf32>, tensor<1x3x64xf32>, tensor<1x3x64xf32>)
func.func @projected(%x: tensor<2x?x9xf32>) -> tensor<1x?x3xf32> {
  %r = arith.constant dense<0.5> : tensor<1x9x3xf32>
  %y, %h = attn.gru forward [#attn.activation<sigmoid>, #attn.activation<tanh>] mirrored
      ins(%x, %r : tensor<2x?x9xf32>, tensor<1x9x3xf32>) -> tensor<2x1x?x3xf32>, tensor<1x?x3xf32>
  return %h : tensor<1x?x3xf32>
}

// CHECK-LABEL: func.func @rnn
// CHECK: attn.rnn
func.func @rnn(%x: tensor<5x1x8xf32>, %w: tensor<1x16x8xf32>, %r: tensor<1x16x16xf32>) -> tensor<1x1x16xf32> {
  %y, %h = attn.rnn reverse [#attn.activation<relu>]
      ins(%x, %w, %r : tensor<5x1x8xf32>, tensor<1x16x8xf32>, tensor<1x16x16xf32>)
      -> tensor<5x1x1x16xf32>, tensor<1x1x16xf32>
  return %h : tensor<1x1x16xf32>
}

// CHECK-LABEL: func.func @half
// CHECK: attn.rnn
func.func @half(%x: tensor<5x1x8xf16>, %w: tensor<1x16x8xf16>, %r: tensor<1x16x16xf16>) -> tensor<1x1x16xf16> {
  %y, %h = attn.rnn reverse [#attn.activation<relu>]
      ins(%x, %w, %r : tensor<5x1x8xf16>, tensor<1x16x8xf16>, tensor<1x16x16xf16>)
      -> tensor<5x1x1x16xf16>, tensor<1x1x16xf16>
  return %h : tensor<1x1x16xf16>
}

// CHECK-LABEL: func.func @two_functions
// CHECK: attn.rnn
func.func @two_functions(%x: tensor<5x1x8xf32>, %w: tensor<2x16x8xf32>) -> tensor<2x1x16xf32> {
  %r = attn.weight @r3 : tensor<2x16x16xf32>
  %y, %h = attn.rnn bidirectional [#attn.activation<relu>, #attn.activation<tanh>]
      ins(%x, %w, %r : tensor<5x1x8xf32>, tensor<2x16x8xf32>, tensor<2x16x16xf32>)
      -> tensor<5x2x1x16xf32>, tensor<2x1x16xf32>
  return %h : tensor<2x1x16xf32>
}

}

// CHECK-DAG: attn.global @{{.*}} : tensor<1x16x16xf32> = #attn.pack_panels<@{{.*}}, transposed = true, width = 16>
// CHECK-DAG: attn.global @[[GATES]] : tensor<1x16x64xf32> = #attn.concat<[{{.*}}], dim 2>

// BF16-DAG: attn.global @{{.*}} : tensor<1x8x32xbf16> = #attn.narrow_panels<@{{.*}}, transposed = true, width = 16, group = 0>
// INT8-DAG: attn.global @{{.*}} : tensor<1x2x16xf32> = #attn.panel_scales<@{{.*}}, transposed = true, width = 16, group = 8>
