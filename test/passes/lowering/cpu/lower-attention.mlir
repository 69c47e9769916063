// RUN: attn-opt %s --attn-lower-attention | FileCheck %s
// RUN: attn-opt %s --attn-lower-attention --remarks-filter=attn-lower-attention \
// RUN:   --remark-format=emitRemark -o /dev/null 2>&1 | FileCheck %s --check-prefix=REMARK

#q = affine_map<(b, h, i, j, d, e) -> (b, i, h, d)>
#k = affine_map<(b, h, i, j, d, e) -> (b, j, h, d)>
#v = affine_map<(b, h, i, j, d, e) -> (b, j, h, e)>
#m = affine_map<(b, h, i, j, d, e) -> (b, j)>
#o = affine_map<(b, h, i, j, d, e) -> (b, i, h, e)>

// REMARK-COUNT-2: remark: [Passed] attention {{.*}}attention_f32_d32_e32_
// Two equal attentions, one of them with its constant outside: one kernel.
// CHECK-LABEL: func.func @equal
// CHECK-SAME: %[[Q:.*]]: tensor<?x?x12x32xf32>, %[[K:.*]]: tensor<?x?x12x32xf32>, %[[V:.*]]: tensor<?x?x12x32xf32>, %[[M:.*]]: tensor<?x?xf32>
// CHECK-DAG: %[[B:.*]] = tensor.dim
// CHECK-DAG: %[[I:.*]] = tensor.dim %[[Q]], %c1
// CHECK: %[[E:.*]] = tensor.empty(%{{.*}}, %[[I]]) : tensor<?x?x12x32xf32>
// CHECK: %[[X:.*]] = attn.kernel @[[NAME:attention_f32_d32_e32_[0-9a-f]*]] ins(%[[Q]], %[[K]], %[[V]], %[[M]] :
// CHECK-SAME: outs(%[[E]] :
// CHECK: attn.kernel @[[NAME]] ins(%[[X]], %[[K]], %[[V]], %[[M]] :
// CHECK-NOT: attn.attention
func.func @equal(%q: tensor<?x?x12x32xf32>, %k: tensor<?x?x12x32xf32>, %v: tensor<?x?x12x32xf32>, %mask: tensor<?x?xf32>)
    -> tensor<?x?x12x32xf32> {
  %x = attn.attention masked_rows nan maps [#q, #k, #v, #m, #o]
      ins(%q, %k, %v : tensor<?x?x12x32xf32>, tensor<?x?x12x32xf32>, tensor<?x?x12x32xf32>)
      captures(%mask : tensor<?x?xf32>) -> tensor<?x?x12x32xf32>
    score {
    ^bb0(%s: f32, %m: f32):
      %c = arith.constant 0.125 : f32
      %t = arith.mulf %s, %c : f32
      %y = arith.addf %t, %m : f32
      attn.yield %y : f32
    }
  %y = attn.attention masked_rows nan maps [#q, #k, #v, #m, #o]
      ins(%x, %k, %v : tensor<?x?x12x32xf32>, tensor<?x?x12x32xf32>, tensor<?x?x12x32xf32>)
      captures(%mask : tensor<?x?xf32>) -> tensor<?x?x12x32xf32>
    score {
    ^bb0(%score: f32, %captured: f32):
      %c = arith.constant 0.125 : f32
      %t = arith.mulf %score, %c : f32
      %z = arith.addf %t, %captured : f32
      attn.yield %z : f32
    }
  return %y : tensor<?x?x12x32xf32>
}

// Another constant: another kernel.
// CHECK-LABEL: func.func @other
// CHECK-NOT: attn.kernel @[[NAME]]
// CHECK: attn.kernel @attention_f32_d32_e32_
func.func @other(%q: tensor<?x?x12x32xf32>, %k: tensor<?x?x12x32xf32>, %v: tensor<?x?x12x32xf32>, %mask: tensor<?x?xf32>)
    -> tensor<?x?x12x32xf32> {
  %x = attn.attention masked_rows nan maps [#q, #k, #v, #m, #o]
      ins(%q, %k, %v : tensor<?x?x12x32xf32>, tensor<?x?x12x32xf32>, tensor<?x?x12x32xf32>)
      captures(%mask : tensor<?x?xf32>) -> tensor<?x?x12x32xf32>
    score {
    ^bb0(%s: f32, %m: f32):
      %c = arith.constant 0.25 : f32
      %t = arith.mulf %s, %c : f32
      %y = arith.addf %t, %m : f32
      attn.yield %y : f32
    }
  return %x : tensor<?x?x12x32xf32>
}

// CHECK: func.func @[[NAME]](%{{.*}}: memref<?x?x12x32xf32>, %{{.*}}: memref<?x?x12x32xf32>, %{{.*}}: memref<?x?x12x32xf32>, %{{.*}}: memref<?x?xf32>, %{{.*}}: memref<?x?x12x32xf32>) attributes {attn.kernel}
// CHECK: scf.parallel
// CHECK: func.func @attention_f32_d32_e32_
// CHECK-NOT: func.func
