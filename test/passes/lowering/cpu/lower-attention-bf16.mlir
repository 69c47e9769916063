// RUN: attn-opt %s "--pass-pipeline=builtin.module(attn-lower-attention{precision=bf16},attn-lower-contractions{precision=bf16},canonicalize,cse)" | FileCheck %s
// RUN: attn-opt %s "--pass-pipeline=builtin.module(attn-lower-attention,attn-lower-contractions,canonicalize,cse)" | FileCheck %s --check-prefix=WIDE
// RUN: sed s/+avx512bf16// %s | attn-opt "--pass-pipeline=builtin.module(attn-lower-attention{precision=bf16},attn-lower-contractions{precision=bf16},canonicalize,cse)" | FileCheck %s --check-prefix=WIDE

#q = affine_map<(b, h, i, j, d, e) -> (i, h, d)>
#k = affine_map<(b, h, i, j, d, e) -> (j, h, d)>
#v = affine_map<(b, h, i, j, d, e) -> (j, h, e)>
#o = affine_map<(b, h, i, j, d, e) -> (i, h, e)>
module attributes {attn.target = #attn.target<triple = "x86_64-unknown-linux-gnu", cpu = "x86-64-v4",
    features = "+avx512bf16", isa = "avx512", l1 = 49152, l2 = 1048576>} {
  attn.global @w : tensor<64x64xf32> = #attn.initializer<"w">

  // The projections write bf16, the attention reads and writes it, the last
  // product reads it: no conversion of a tensor is left but that of the input.
  // WIDE-NOT: attention_bf16
  // CHECK-LABEL: func.func @block(
  // CHECK:       linalg.generic
  // CHECK:         arith.truncf
  // CHECK-NOT:   linalg.generic
  // CHECK:       %[[P:.*]] = attn.kernel @gemm_{{.*}}_bf16dot_to16
  // CHECK-NOT:   linalg.generic
  // CHECK:       %[[V:.*]] = tensor.expand_shape %[[P]]
  // CHECK:       %[[A:.*]] = attn.kernel @attention_bf16_d32_e32_{{[0-9a-f]+}} ins(%[[V]], %[[V]], %[[V]] :
  // CHECK-SAME:    -> tensor<40x2x32xbf16>
  // CHECK-NOT:   linalg.generic
  // CHECK:       %[[C:.*]] = tensor.collapse_shape %[[A]]
  // CHECK:       attn.kernel @gemm_{{.*}}_bf16dot{{[^ ]*}} ins(%[[C]],
  // CHECK-NOT:   linalg.generic
  // CHECK:       return
  func.func @block(%x: tensor<40x64xf32>) -> tensor<40x64xf32> {
    %zero = arith.constant 0.0 : f32
    %w = attn.weight @w : tensor<64x64xf32>
    %e = tensor.empty() : tensor<40x64xf32>
    %z = linalg.fill ins(%zero : f32) outs(%e : tensor<40x64xf32>) -> tensor<40x64xf32>
    %p = linalg.matmul ins(%x, %w : tensor<40x64xf32>, tensor<64x64xf32>) outs(%z : tensor<40x64xf32>) -> tensor<40x64xf32>
    %h = tensor.expand_shape %p [[0], [1, 2]] output_shape [40, 2, 32] : tensor<40x64xf32> into tensor<40x2x32xf32>
    %a = attn.attention masked_rows nan maps [#q, #k, #v, #o]
        ins(%h, %h, %h : tensor<40x2x32xf32>, tensor<40x2x32xf32>, tensor<40x2x32xf32>) -> tensor<40x2x32xf32> score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
    %c = tensor.collapse_shape %a [[0], [1, 2]] : tensor<40x2x32xf32> into tensor<40x64xf32>
    %y = linalg.matmul ins(%c, %w : tensor<40x64xf32>, tensor<64x64xf32>) outs(%z : tensor<40x64xf32>) -> tensor<40x64xf32>
    return %y : tensor<40x64xf32>
  }

  // Another reader wants the projection in f32: it is rounded once beside it.
  // CHECK-LABEL: func.func @read_twice(
  // CHECK:       attn.kernel @gemm_{{[^ ]*}}_bf16dot_next ins
  // CHECK:       arith.truncf
  // CHECK:       attn.kernel @attention_bf16_d32_e32
  // CHECK:       arith.extf
  // CHECK:       return
  func.func @read_twice(%x: tensor<40x64xf32>) -> (tensor<40x2x32xf32>, tensor<40x64xf32>) {
    %zero = arith.constant 0.0 : f32
    %w = attn.weight @w : tensor<64x64xf32>
    %e = tensor.empty() : tensor<40x64xf32>
    %z = linalg.fill ins(%zero : f32) outs(%e : tensor<40x64xf32>) -> tensor<40x64xf32>
    %p = linalg.matmul ins(%x, %w : tensor<40x64xf32>, tensor<64x64xf32>) outs(%z : tensor<40x64xf32>) -> tensor<40x64xf32>
    %h = tensor.expand_shape %p [[0], [1, 2]] output_shape [40, 2, 32] : tensor<40x64xf32> into tensor<40x2x32xf32>
    %a = attn.attention masked_rows nan maps [#q, #k, #v, #o]
        ins(%h, %h, %h : tensor<40x2x32xf32>, tensor<40x2x32xf32>, tensor<40x2x32xf32>) -> tensor<40x2x32xf32> score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
    return %a, %p : tensor<40x2x32xf32>, tensor<40x64xf32>
  }

  // A cache that comes from outside is read as it is.
  // CHECK-LABEL: func.func @given_keys(
  // CHECK:       attn.kernel @attention_f32_d32_e32
  func.func @given_keys(%x: tensor<40x2x32xf32>, %keys: tensor<90x2x32xf32>) -> tensor<40x2x32xf32> {
    %e = tensor.empty() : tensor<40x2x32xf32>
    %q = linalg.exp ins(%x : tensor<40x2x32xf32>) outs(%e : tensor<40x2x32xf32>) -> tensor<40x2x32xf32>
    %a = attn.attention masked_rows nan maps [#q, #k, #v, #o]
        ins(%q, %keys, %keys : tensor<40x2x32xf32>, tensor<90x2x32xf32>, tensor<90x2x32xf32>) -> tensor<40x2x32xf32> score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
    return %a : tensor<40x2x32xf32>
  }

  // Few queries go one by one; an odd width has no last pair.
  // CHECK-LABEL: func.func @few(
  // CHECK:       attn.kernel @attention_f32_d32_e32
  func.func @few(%x: tensor<4x2x32xf32>) -> tensor<4x2x32xf32> {
    %e = tensor.empty() : tensor<4x2x32xf32>
    %q = linalg.exp ins(%x : tensor<4x2x32xf32>) outs(%e : tensor<4x2x32xf32>) -> tensor<4x2x32xf32>
    %a = attn.attention masked_rows nan maps [#q, #k, #v, #o]
        ins(%q, %q, %q : tensor<4x2x32xf32>, tensor<4x2x32xf32>, tensor<4x2x32xf32>) -> tensor<4x2x32xf32> score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
    return %a : tensor<4x2x32xf32>
  }
  // CHECK-LABEL: func.func @odd(
  // CHECK:       attn.kernel @attention_f32_d31_e31
  func.func @odd(%x: tensor<40x2x31xf32>) -> tensor<40x2x31xf32> {
    %e = tensor.empty() : tensor<40x2x31xf32>
    %q = linalg.exp ins(%x : tensor<40x2x31xf32>) outs(%e : tensor<40x2x31xf32>) -> tensor<40x2x31xf32>
    %a = attn.attention masked_rows nan maps [#q, #k, #v, #o]
        ins(%q, %q, %q : tensor<40x2x31xf32>, tensor<40x2x31xf32>, tensor<40x2x31xf32>) -> tensor<40x2x31xf32> score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
    return %a : tensor<40x2x31xf32>
  }
}
