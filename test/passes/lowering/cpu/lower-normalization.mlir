// RUN: attn-opt %s --attn-lower-normalization | FileCheck %s
// RUN: attn-opt %s --attn-lower-normalization --remarks-filter=attn-lower-normalization \
// RUN:   --remark-format=emitRemark -o /dev/null 2>&1 | FileCheck %s --check-prefix=REMARK

// CHECK-LABEL: func.func @softmax
// CHECK-SAME: %[[X:.*]]: tensor<?x12x?xf32>
// CHECK-DAG: %[[M:.*]] = tensor.dim %[[X]], %c0
// CHECK-DAG: %[[N:.*]] = tensor.dim %[[X]], %c2
// CHECK: %[[E:.*]] = tensor.empty(%[[M]], %[[N]]) : tensor<?x12x?xf32>
// CHECK: attn.kernel @softmax_f32_nx12xn_v4 ins(%[[X]] : tensor<?x12x?xf32>) outs(%[[E]] : tensor<?x12x?xf32>) elementwise [0]
// CHECK: attn.kernel @log_softmax_f32_nx12xn_v4
// CHECK: attn.kernel @softmax_f32_nx12xn_v4
// REMARK: remark: [Passed] softmax {{.*}}softmax_f32_nx12xn_v4
func.func @softmax(%x: tensor<?x12x?xf32>) -> tensor<?x12x?xf32> {
  %a = attn.softmax %x dim 2 : tensor<?x12x?xf32>
  %b = attn.softmax %a dim 2 log : tensor<?x12x?xf32>
  %c = attn.softmax %b dim 2 : tensor<?x12x?xf32>
  return %c : tensor<?x12x?xf32>
}

// Over another dimension than the last one.
// CHECK-LABEL: func.func @columns
// CHECK: attn.kernel @softmax_f32_nx12xn_d1_v4 ins(%{{.*}} : tensor<?x12x?xf32>) outs(%{{.*}}) elementwise [0]
// CHECK: attn.kernel @log_softmax_f32_nx12xn_d0_v4
func.func @columns(%x: tensor<?x12x?xf32>) -> tensor<?x12x?xf32> {
  %a = attn.softmax %x dim 1 : tensor<?x12x?xf32>
  %b = attn.softmax %a dim 0 log : tensor<?x12x?xf32>
  return %b : tensor<?x12x?xf32>
}

// CHECK-LABEL: func.func @layer_norm
// CHECK: attn.kernel @layer_norm_f32_nx4x8_a1_s4x8_nobias_eps{{[0-9a-f]*}}_v4 ins(%{{.*}}, %{{.*}} : tensor<?x4x8xf32>, tensor<4x8xf32>)
// CHECK: attn.kernel @layer_norm_f32_nx4x8_a2_s8_b8_eps{{[0-9a-f]*}}_v4 ins(%{{.*}}, %{{.*}}, %{{.*}} : tensor<?x4x8xf32>, tensor<8xf32>, tensor<8xf32>) outs(%{{.*}} : tensor<?x4x8xf32>) elementwise [0]
func.func @layer_norm(%x: tensor<?x4x8xf32>, %s: tensor<4x8xf32>, %t: tensor<8xf32>) -> tensor<?x4x8xf32> {
  %a = attn.layer_norm %x, %s axis 1 epsilon 1.0e-5 : tensor<?x4x8xf32>, tensor<4x8xf32>
  %b = attn.layer_norm %a, %t, %t axis 2 epsilon 1.0e-12 : tensor<?x4x8xf32>, tensor<8xf32>, tensor<8xf32>
  return %b : tensor<?x4x8xf32>
}

// Near misses.
// CHECK-LABEL: func.func @missed
// CHECK: attn.softmax
// CHECK: attn.softmax
// CHECK: attn.softmax
// CHECK: attn.layer_norm
// REMARK: remark: [Missed] softmax {{.*}}Reason="its columns do not fill half a register"
// REMARK: remark: [Missed] softmax {{.*}}Reason="only f32 has a kernel so far"
// REMARK: remark: [Missed] softmax {{.*}}Reason="only f32 has a kernel so far"
// REMARK: remark: [Missed] layer_norm {{.*}}Reason="only f32 has a kernel so far"
func.func @missed(%x: tensor<3x1xf32>, %y: tensor<3x4xf64>, %s: tensor<4xf64>)
    -> (tensor<3x1xf32>, tensor<3x4xf64>, tensor<3x4xf64>, tensor<3x4xf64>) {
  %few = attn.softmax %x dim 0 : tensor<3x1xf32>
  %a = attn.softmax %y dim 0 : tensor<3x4xf64>
  %b = attn.softmax %y dim 1 : tensor<3x4xf64>
  %c = attn.layer_norm %y, %s axis 1 epsilon 1.0e-5 : tensor<3x4xf64>, tensor<4xf64>
  return %few, %a, %b, %c : tensor<3x1xf32>, tensor<3x4xf64>, tensor<3x4xf64>, tensor<3x4xf64>
}

// The kernel takes the last dimension; without a kernel nothing is transposed for it.
// CHECK-LABEL: func.func @top
// CHECK: linalg.transpose
// CHECK: attn.kernel @top_5x2xi64_s_5x7xf32_v4
// CHECK: linalg.transpose
// CHECK: linalg.transpose
// CHECK-NOT: linalg.transpose
// CHECK: attn.top_k {{.*}} dim 0
// CHECK-NOT: linalg.transpose
// CHECK: return
// REMARK: remark: [Missed] top_k {{.*}}Reason="its element type has no kernel"
func.func @top(%x: tensor<7x5xf32>, %y: tensor<7x5xi1>) -> (tensor<2x5xi64>, tensor<2x5xi64>) {
  %two = arith.constant 2 : index
  %a, %b = attn.top_k %x, %two dim 0 : tensor<7x5xf32> -> tensor<2x5xf32>, tensor<2x5xi64>
  %c, %d = attn.top_k %y, %two dim 0 : tensor<7x5xi1> -> tensor<2x5xi1>, tensor<2x5xi64>
  return %b, %d : tensor<2x5xi64>, tensor<2x5xi64>
}
// CHECK-DAG: func.func @softmax_f32_nx12xn_v4
// CHECK-DAG: func.func @log_softmax_f32_nx12xn_v4
// CHECK-DAG: func.func @layer_norm_f32_nx4x8_a2
