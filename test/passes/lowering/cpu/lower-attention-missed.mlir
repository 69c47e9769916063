// RUN: attn-opt %s --attn-lower-attention --split-input-file | FileCheck %s
// RUN: attn-opt %s --attn-lower-attention --split-input-file --remarks-filter=attn-lower-attention \
// RUN:   --remark-format=emitRemark -o /dev/null 2>&1 | FileCheck %s --check-prefix=REMARK

// Near misses: each keeps its attn.attention, and a remark says why.

#q = affine_map<(b, h, i, j, d, e) -> (b, h, i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (b, h, j, d)>
#v = affine_map<(b, h, i, j, d, e) -> (b, h, j, e)>
#o = affine_map<(b, h, i, j, d, e) -> (b, h, i, e)>
// REMARK: remark: [Missed] attention {{.*}} Reason="only attention on f32, f16 and bf16 has a kernel"
// CHECK-LABEL: func.func @double
// CHECK: attn.attention
func.func @double(%q: tensor<1x2x8x8xf64>) -> tensor<1x2x8x8xf64> {
  %x = attn.attention masked_rows nan maps [#q, #k, #v, #o]
      ins(%q, %q, %q : tensor<1x2x8x8xf64>, tensor<1x2x8x8xf64>, tensor<1x2x8x8xf64>) -> tensor<1x2x8x8xf64>
    score {
    ^bb0(%s: f64):
      attn.yield %s : f64
    }
  return %x : tensor<1x2x8x8xf64>
}

// -----

#q = affine_map<(b, h, i, j, d, e) -> (b, h, i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (b, h, j, d)>
#v = affine_map<(b, h, i, j, d, e) -> (b, h, j, e)>
#o = affine_map<(b, h, i, j, d, e) -> (b, h, i, e)>
// REMARK: remark: [Missed] attention {{.*}} Reason="the key width is dynamic"
// CHECK-LABEL: func.func @dynamic_width
// CHECK: attn.attention
func.func @dynamic_width(%q: tensor<1x2x8x?xf32>, %v: tensor<1x2x8x8xf32>) -> tensor<1x2x8x8xf32> {
  %x = attn.attention masked_rows nan maps [#q, #k, #v, #o]
      ins(%q, %q, %v : tensor<1x2x8x?xf32>, tensor<1x2x8x?xf32>, tensor<1x2x8x8xf32>) -> tensor<1x2x8x8xf32>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
  return %x : tensor<1x2x8x8xf32>
}

// -----

#q = affine_map<(b, h, i, j, d, e) -> (b, h, i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (b, h, j, d)>
#v = affine_map<(b, h, i, j, d, e) -> (b, h, j, e)>
#o = affine_map<(b, h, i, j, d, e) -> (b, h, i, e)>
// REMARK: remark: [Missed] attention {{.*}} Reason="'tensor.from_elements' does not map over the elements of a vector"
// CHECK-LABEL: func.func @tensor_in_region
// CHECK: attn.attention
func.func @tensor_in_region(%q: tensor<1x2x8x8xf32>) -> tensor<1x2x8x8xf32> {
  %x = attn.attention masked_rows nan maps [#q, #k, #v, #o]
      ins(%q, %q, %q : tensor<1x2x8x8xf32>, tensor<1x2x8x8xf32>, tensor<1x2x8x8xf32>) -> tensor<1x2x8x8xf32>
    score {
    ^bb0(%s: f32):
      %t = tensor.from_elements %s : tensor<1xf32>
      %zero = arith.constant 0 : index
      %y = tensor.extract %t[%zero] : tensor<1xf32>
      attn.yield %y : f32
    }
  return %x : tensor<1x2x8x8xf32>
}
