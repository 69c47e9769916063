// RUN: attn-opt %s --attn-lower-contractions=precision=bf16 | FileCheck %s --check-prefixes=CHECK,DOT
// RUN: sed s/+avx512bf16// %s | attn-opt --attn-lower-contractions=precision=bf16 | FileCheck %s --check-prefixes=CHECK,WIDEN
// RUN: attn-opt %s "--attn-lower-contractions=precision=bf16 weights=int8" | FileCheck %s --check-prefix=INT8
// RUN: not attn-opt %s --attn-lower-contractions=precision=f16 2>&1 | FileCheck %s --check-prefix=WRONG

// WRONG: expects precision f32, bf16, bf16x3 or bf16x6, got 'f16'

#x = affine_map<(b, s, n, k) -> (b, s, k)>
#w = affine_map<(b, s, n, k) -> (k, n)>
#y = affine_map<(b, s, n, k) -> (b, s, n)>
module attributes {attn.target = #attn.target<triple = "x86_64-unknown-linux-gnu", cpu = "x86-64-v4",
    features = "+avx512bf16", isa = "avx512", l1 = 49152, l2 = 1048576>} {
  attn.global @w : tensor<64x100xf32> = #attn.initializer<"w">
  attn.global @v : tensor<64x48xf32> = #attn.initializer<"v">
  attn.global @odd : tensor<63x48xf32> = #attn.initializer<"odd">

  // The activation is rounded once for both, where the processor multiplies
  // pairs; elsewhere the weights alone are bf16.
  // CHECK-LABEL: func.func @two
  // CHECK-SAME:    %[[X:.*]]: tensor<?x?x64xf32>
  // DOT:           %[[H:.*]] = linalg.generic {{.*}} ins(%[[X]] : tensor<?x?x64xf32>) outs(%{{.*}} : tensor<?x?x64xbf16>)
  // DOT:             arith.truncf
  // DOT-NOT:       linalg.generic
  // DOT:           %[[A:.*]] = tensor.collapse_shape %[[H]] {{\[}}[0, 1], [2]] : tensor<?x?x64xbf16> into tensor<?x64xbf16>
  // DOT:           attn.kernel @gemm_f32_mx_k64_n100_fma_6x4x16_bf16dot_next_c{{[0-9]+}} ins(%[[A]], %{{.*}} : tensor<?x64xbf16>, tensor<2x32x128xbf16>, tensor<?x?x?xbf16>)
  // DOT:           attn.kernel @gemm_f32_mx_k64_n48_fma_8x3x16_bf16dot_next_c{{[0-9]+}}
  // WIDEN-NOT:     linalg.generic
  // WIDEN:         attn.kernel @gemm_f32_mx_k64_n100_fma_8x3x16_bf16_shared_next
  // WIDEN:         attn.kernel @gemm_f32_mx_k64_n48_fma_8x3x16_bf16_shared_next
  // INT8-LABEL:  func.func @two
  // INT8-NOT:      linalg.generic
  // INT8:          attn.kernel @gemm_f32_mx_k64_n100_fma_8x3x16_i8g64_next_c
  func.func @two(%x: tensor<?x?x64xf32>, %b: index, %s: index) -> (tensor<?x?x100xf32>, tensor<?x?x48xf32>) {
    %zero = arith.constant 0.0 : f32
    %w = attn.weight @w : tensor<64x100xf32>
    %v = attn.weight @v : tensor<64x48xf32>
    %e = tensor.empty(%b, %s) : tensor<?x?x100xf32>
    %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x?x100xf32>) -> tensor<?x?x100xf32>
    %c = linalg.contract indexing_maps = [#x, #w, #y] ins(%x, %w : tensor<?x?x64xf32>, tensor<64x100xf32>)
        outs(%z : tensor<?x?x100xf32>) -> tensor<?x?x100xf32>
    %f = tensor.empty(%b, %s) : tensor<?x?x48xf32>
    %y = linalg.fill ins(%zero : f32) outs(%f : tensor<?x?x48xf32>) -> tensor<?x?x48xf32>
    %d = linalg.contract indexing_maps = [#x, #w, #y] ins(%x, %v : tensor<?x?x64xf32>, tensor<64x48xf32>)
        outs(%y : tensor<?x?x48xf32>) -> tensor<?x?x48xf32>
    return %c, %d : tensor<?x?x100xf32>, tensor<?x?x48xf32>
  }

  // An odd K has no last pair: the weights alone are bf16.
  // CHECK-LABEL: func.func @odd_sum
  // CHECK-NOT:     arith.truncf
  // CHECK:         attn.kernel @gemm_f32_mx_k63_n48_fma_8x3x16_bf16_shared_next
  func.func @odd_sum(%x: tensor<?x?x63xf32>, %b: index, %s: index) -> tensor<?x?x48xf32> {
    %zero = arith.constant 0.0 : f32
    %w = attn.weight @odd : tensor<63x48xf32>
    %e = tensor.empty(%b, %s) : tensor<?x?x48xf32>
    %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x?x48xf32>) -> tensor<?x?x48xf32>
    %c = linalg.contract indexing_maps = [#x, #w, #y] ins(%x, %w : tensor<?x?x63xf32>, tensor<63x48xf32>)
        outs(%z : tensor<?x?x48xf32>) -> tensor<?x?x48xf32>
    return %c : tensor<?x?x48xf32>
  }

  // What only such a product reads is stored in bf16; a second reader of
  // another kind wants f32.
  // CHECK-LABEL: func.func @chain(
  // DOT:           %[[H:.*]] = attn.kernel @gemm_f32_m8_k64_n64_fma_6x4x16_bf16dot_to16_next ins({{.*}}) outs(%{{.*}} : tensor<8x64xbf16>) -> tensor<8x64xbf16>
  // DOT:           attn.kernel @gemm_f32_m8_k64_n64_fma_6x4x16_bf16dot_next ins(%[[H]], %{{.*}}) outs(%{{.*}} : tensor<8x64xf32>) -> tensor<8x64xf32>
  // CHECK-LABEL: func.func @chain_with_reader(
  // DOT-NOT:       attn.kernel {{.*}}to16
  // DOT:           attn.kernel @gemm_f32_m8_k64_n64_fma_6x4x16_bf16dot_next ins
  // DOT:           attn.kernel @gemm_f32_m8_k64_n64_fma_6x4x16_bf16dot_next ins
  attn.global @s : tensor<64x64xf32> = #attn.initializer<"s">
  func.func @chain(%x: tensor<8x64xf32>) -> tensor<8x64xf32> {
    %zero = arith.constant 0.0 : f32
    %s = attn.weight @s : tensor<64x64xf32>
    %e = tensor.empty() : tensor<8x64xf32>
    %z = linalg.fill ins(%zero : f32) outs(%e : tensor<8x64xf32>) -> tensor<8x64xf32>
    %c = linalg.matmul ins(%x, %s : tensor<8x64xf32>, tensor<64x64xf32>) outs(%z : tensor<8x64xf32>) -> tensor<8x64xf32>
    %d = linalg.matmul ins(%c, %s : tensor<8x64xf32>, tensor<64x64xf32>) outs(%z : tensor<8x64xf32>) -> tensor<8x64xf32>
    return %d : tensor<8x64xf32>
  }
  func.func @chain_with_reader(%x: tensor<8x64xf32>) -> (tensor<8x64xf32>, tensor<8x64xf32>) {
    %zero = arith.constant 0.0 : f32
    %s = attn.weight @s : tensor<64x64xf32>
    %e = tensor.empty() : tensor<8x64xf32>
    %z = linalg.fill ins(%zero : f32) outs(%e : tensor<8x64xf32>) -> tensor<8x64xf32>
    %c = linalg.matmul ins(%x, %s : tensor<8x64xf32>, tensor<64x64xf32>) outs(%z : tensor<8x64xf32>) -> tensor<8x64xf32>
    %d = linalg.matmul ins(%c, %s : tensor<8x64xf32>, tensor<64x64xf32>) outs(%z : tensor<8x64xf32>) -> tensor<8x64xf32>
    return %c, %d : tensor<8x64xf32>, tensor<8x64xf32>
  }
}
