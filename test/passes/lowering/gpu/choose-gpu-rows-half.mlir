// RUN: attn-opt %s --attn-choose-gpu-rows | FileCheck %s
// RUN: attn-opt %s --attn-choose-gpu-rows --remarks-filter=attn-choose-gpu-rows \
// RUN:   --remark-format=emitRemark -o /dev/null 2>&1 | FileCheck %s --check-prefix=REMARK

// Rows are computed in f32 and rounded once; near miss: f64.
// CHECK-LABEL: func.func @rows
// CHECK: attn.kernel @gpu_layer_norm_bf16_nx20_a1_s20_b20_eps
// CHECK: attn.kernel @gpu_log_softmax_bf16_nx20_v
// CHECK: attn.softmax
// CHECK: func.func @gpu_layer_norm_bf16
// CHECK: arith.extf %{{.*}} : bf16 to f32
// CHECK: math.sqrt %{{.*}} : f32
// CHECK: arith.truncf %{{.*}} : vector<4xf32> to vector<4xbf16>
// REMARK: remark: [Missed] rows {{.*}} Reason="only f32, f16 and bf16 have a kernel so far"
func.func @rows(%x: tensor<?x20xbf16>, %s: tensor<20xbf16>, %z: tensor<?x20xf64>) -> (tensor<?x20xbf16>, tensor<?x20xf64>) {
  %n = attn.layer_norm %x, %s, %s axis 1 epsilon 1.0e-05 : tensor<?x20xbf16>, tensor<20xbf16>, tensor<20xbf16>
  %y = attn.softmax %n dim 1 log : tensor<?x20xbf16>
  %d = attn.softmax %z dim 1 : tensor<?x20xf64>
  return %y, %d : tensor<?x20xbf16>, tensor<?x20xf64>
}
