// RUN: attn-opt %s --attn-lower-segments | FileCheck %s
// RUN: attn-opt %s --attn-lower-segments --remarks-filter=attn-lower-segments \
// RUN:   --remark-format=emitRemark -o /dev/null 2>&1 | FileCheck %s --check-prefix=REMARK

// One kernel serves both calls: equal specs have one name.
// CHECK-LABEL: func.func @rows
// CHECK-SAME: %[[S:.*]]: tensor<?x8xf32>, %[[V:.*]]: tensor<?x8x8xf32>, %[[O:.*]]: tensor<?xi64>, %[[N:.*]]: tensor<?xi64>
// CHECK: %[[D:.*]] = tensor.dim %[[N]], %c0
// CHECK: %[[E:.*]] = tensor.empty(%[[D]]) : tensor<?x8x8xf32>
// CHECK: %[[A:.*]] = attn.kernel @[[K:segment_attention_f32_rows_nx8xnx8x8xnxnxnxnx8x8_v4]] ins(%[[S]], %[[V]], %[[O]], %[[N]], %[[O]] : {{.*}}) outs(%[[E]] : tensor<?x8x8xf32>)
// CHECK: attn.kernel @[[K]] ins(%[[S]], %[[A]], {{.*}})
// REMARK: remark: [Passed] segments {{.*}}segment_attention_f32_rows_nx8xnx8x8xnxnxnxnx8x8_v4
func.func @rows(%s: tensor<?x8xf32>, %v: tensor<?x8x8xf32>, %order: tensor<?xi64>, %ends: tensor<?xi64>)
    -> tensor<?x8x8xf32> {
  %a = attn.segment_attention %s, %v by %order, %ends rows %order
      : tensor<?x8xf32>, tensor<?x8x8xf32>, tensor<?xi64>, tensor<?xi64>, tensor<?xi64> -> tensor<?x8x8xf32>
  %b = attn.segment_attention %s, %a by %order, %ends rows %order
      : tensor<?x8xf32>, tensor<?x8x8xf32>, tensor<?xi64>, tensor<?xi64>, tensor<?xi64> -> tensor<?x8x8xf32>
  return %b : tensor<?x8x8xf32>
}

// What is added to the sums is in the name.
// CHECK-LABEL: func.func @epsilon
// CHECK: attn.kernel @segment_attention_f32_nx1xnx1x8xnxnxnx1x8_v4_e3f000000_f0 ins
func.func @epsilon(%s: tensor<?x1xf32>, %v: tensor<?x1x8xf32>, %l: tensor<?xi64>) -> tensor<?x1x8xf32> {
  %a = attn.segment_attention %s, %v by %l, %l epsilon 0.5 floor 0.0
      : tensor<?x1xf32>, tensor<?x1x8xf32>, tensor<?xi64>, tensor<?xi64> -> tensor<?x1x8xf32>
  return %a : tensor<?x1x8xf32>
}

// CHECK-LABEL: func.func @doubles
// CHECK: attn.segment_attention
// REMARK: remark: [Missed] segments {{.*}}its scores are not f32
func.func @doubles(%s: tensor<?x1xf64>, %v: tensor<?x1x8xf64>, %l: tensor<?xi64>) -> tensor<?x1x8xf64> {
  %a = attn.segment_attention %s, %v by %l, %l
      : tensor<?x1xf64>, tensor<?x1x8xf64>, tensor<?xi64>, tensor<?xi64> -> tensor<?x1x8xf64>
  return %a : tensor<?x1x8xf64>
}

// CHECK-LABEL: func.func @open
// CHECK: attn.segment_attention
// REMARK: remark: [Missed] segments {{.*}}the number of its heads or their width is open
func.func @open(%s: tensor<?x?xf32>, %v: tensor<?x?x8xf32>, %l: tensor<?xi64>) -> tensor<?x?x8xf32> {
  %a = attn.segment_attention %s, %v by %l, %l
      : tensor<?x?xf32>, tensor<?x?x8xf32>, tensor<?xi64>, tensor<?xi64> -> tensor<?x?x8xf32>
  return %a : tensor<?x?x8xf32>
}

// CHECK-LABEL: func.func @wide
// CHECK: attn.segment_attention
// REMARK: remark: [Missed] segments {{.*}}a row of its result is longer than 512 registers
func.func @wide(%s: tensor<?x8xf32>, %v: tensor<?x8x1024xf32>, %l: tensor<?xi64>) -> tensor<?x8x1024xf32> {
  %a = attn.segment_attention %s, %v by %l, %l
      : tensor<?x8xf32>, tensor<?x8x1024xf32>, tensor<?xi64>, tensor<?xi64> -> tensor<?x8x1024xf32>
  return %a : tensor<?x8x1024xf32>
}
