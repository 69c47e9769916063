// RUN: attn-opt %s --attn-choose-gpu-rows | FileCheck %s
// RUN: attn-opt %s --attn-choose-gpu-rows --remarks-filter=attn-choose-gpu-rows \
// RUN:   --remark-format=emitRemark -o /dev/null 2>&1 | FileCheck %s --check-prefix=REMARK
// REMARK-DAG: remark: [Missed] rnn {{.*}} Reason="only f32 has a kernel so far"
// REMARK-DAG: remark: [Missed] rnn {{.*}} Reason="its directions have different activations"

module attributes {attn.target = #attn.target<triple = "", cpu = "", features = "", isa = "avx512", l1 = 49152, l2 = 1048576>} {

// The input of all steps in one contraction; weights that an input gives, too.
// CHECK-LABEL: func.func @lstm
// CHECK: linalg.contract {{.*}} outs(%{{.*}} : tensor<?x?x1x80xf32>)
// CHECK: attn.kernel @gpu_lstm_f32_forward_sx_bx_h20_{{.*}} -> tensor<?x1x?x20xf32>, tensor<1x?x20xf32>, tensor<1x?x20xf32>, tensor<3x1x?x20xf32>, tensor<1x?xi64>
func.func @lstm(%x: tensor<?x?x8xf32>, %w: tensor<1x80x8xf32>, %r: tensor<1x80x20xf32>) -> tensor<1x?x20xf32> {
  %y, %h, %c = attn.lstm forward [#attn.activation<sigmoid>, #attn.activation<tanh>, #attn.activation<tanh>]
      ins(%x, %w, %r : tensor<?x?x8xf32>, tensor<1x80x8xf32>, tensor<1x80x20xf32>)
      -> tensor<?x1x?x20xf32>, tensor<1x?x20xf32>, tensor<1x?x20xf32>
  return %c : tensor<1x?x20xf32>
}

// A reset before the product: what it gives goes from block to block even in a single step, that is, there are rows for it.
// CHECK-LABEL: func.func @gru_step
// CHECK: attn.kernel @gpu_gru_f32_forward_s1_b4_h18_{{.*}} -> tensor<1x1x4x18xf32>, tensor<1x4x18xf32>, tensor<4x1x4x20xf32>, tensor<1x4xi64>
func.func @gru_step(%x: tensor<1x4x8xf32>, %w: tensor<1x54x8xf32>, %r: tensor<1x54x18xf32>) -> tensor<1x4x18xf32> {
  %y, %h = attn.gru forward [#attn.activation<sigmoid>, #attn.activation<tanh>]
      ins(%x, %w, %r : tensor<1x4x8xf32>, tensor<1x54x8xf32>, tensor<1x54x18xf32>)
      -> tensor<1x1x4x18xf32>, tensor<1x4x18xf32>
  return %h : tensor<1x4x18xf32>
}

// CHECK-LABEL: func.func @rnn_step
// CHECK: attn.kernel @gpu_rnn_f32_forward_s1_b4_h18_
func.func @rnn_step(%x: tensor<1x4x8xf32>, %w: tensor<1x18x8xf32>, %r: tensor<1x18x18xf32>) -> tensor<1x4x18xf32> {
  %y, %h = attn.rnn forward [#attn.activation<tanh>]
      ins(%x, %w, %r : tensor<1x4x8xf32>, tensor<1x18x8xf32>, tensor<1x18x18xf32>) -> tensor<1x1x4x18xf32>, tensor<1x4x18xf32>
  return %h : tensor<1x4x18xf32>
}

// CHECK-LABEL: func.func @half
// CHECK: attn.rnn
func.func @half(%x: tensor<5x4x8xf16>, %w: tensor<1x18x8xf16>, %r: tensor<1x18x18xf16>) -> tensor<1x4x18xf16> {
  %y, %h = attn.rnn forward [#attn.activation<tanh>]
      ins(%x, %w, %r : tensor<5x4x8xf16>, tensor<1x18x8xf16>, tensor<1x18x18xf16>) -> tensor<5x1x4x18xf16>, tensor<1x4x18xf16>
  return %h : tensor<1x4x18xf16>
}

// CHECK-LABEL: func.func @functions
// CHECK: attn.rnn
func.func @functions(%x: tensor<5x4x8xf32>, %w: tensor<2x18x8xf32>, %r: tensor<2x18x18xf32>) -> tensor<2x4x18xf32> {
  %y, %h = attn.rnn bidirectional [#attn.activation<tanh>, #attn.activation<relu>]
      ins(%x, %w, %r : tensor<5x4x8xf32>, tensor<2x18x8xf32>, tensor<2x18x18xf32>) -> tensor<5x2x4x18xf32>, tensor<2x4x18xf32>
  return %h : tensor<2x4x18xf32>
}

// A launch that sets the states up, then one whose blocks wait for each other: with the weights in shared memory, or not.
// CHECK-LABEL: func.func @gpu_lstm
// CHECK: gpu.launch
// CHECK-NOT: attn.cooperative
// CHECK: attn.device_limits
// CHECK: scf.if
// CHECK: dynamic_shared_memory_size
// CHECK: gpu.dynamic_shared_memory
// CHECK: llvm.fence syncscope("device") release
// CHECK: llvm.atomicrmw add {{.*}} syncscope("device") monotonic
// CHECK: llvm.load {{.*}} atomic syncscope("device") acquire
// CHECK: } {attn.cooperative}
// CHECK: } else {
// CHECK: gpu.launch
// CHECK-NOT: gpu.dynamic_shared_memory
// CHECK: } {attn.cooperative}
// CHECK-LABEL: func.func @gpu_gru
// CHECK: llvm.atomicrmw
// CHECK-NOT: llvm.atomicrmw
// CHECK: } {attn.cooperative}

// Blocks that do a single step and a single sweep need not wait.
// CHECK-LABEL: func.func @gpu_rnn
// CHECK-NOT: attn.cooperative
}
