// RUN: attn-opt %s --attn-lower-contractions=precision=bf16x3 | FileCheck %s --check-prefixes=CHECK,X3
// RUN: attn-opt %s --attn-lower-contractions=precision=bf16x6 | FileCheck %s --check-prefixes=CHECK,X6
// RUN: sed 's/+avx512bf16/+amx-tile,+amx-bf16,+avx512bf16/' %s | attn-opt --attn-lower-contractions=precision=bf16x3 \
// RUN:   | FileCheck %s --check-prefix=TILES
// RUN: sed 's/+avx512bf16/+amx-tile,+amx-bf16,+avx512bf16/' %s | attn-opt --attn-lower-contractions=precision=bf16 \
// RUN:   | FileCheck %s --check-prefix=BF16
// RUN: sed s/+avx512bf16/+amx-tile,+amx-bf16/ %s | attn-opt --attn-lower-contractions=precision=bf16x3 \
// RUN:   | FileCheck %s --check-prefix=NONE
// RUN: not attn-opt %s "--attn-lower-contractions=precision=bf16x3 weights=int8" 2>&1 | FileCheck %s --check-prefix=WRONG

// WRONG: expects weights in f32 with precision bf16x3, got 'int8'

#x = affine_map<(b, s, n, k) -> (b, s, k)>
#w = affine_map<(b, s, n, k) -> (k, n)>
#y = affine_map<(b, s, n, k) -> (b, s, n)>
module attributes {attn.target = #attn.target<triple = "x86_64-unknown-linux-gnu", cpu = "x86-64-v4",
    features = "+avx512bf16", isa = "avx512", l1 = 49152, l2 = 1048576>} {
  attn.global @w : tensor<70x100xf32> = #attn.initializer<"w">
  attn.global @odd : tensor<63x48xf32> = #attn.initializer<"odd">

  // Each part is what rounding to those before leaves.
  // CHECK-LABEL: func.func @parts
  // CHECK-SAME:    %[[X:.*]]: tensor<?x?x70xf32>
  // CHECK:         %[[H:.*]] = linalg.generic {{.*}} ins(%[[X]] : tensor<?x?x70xf32>) outs(%{{.*}} : tensor<?x?x70xbf16>)
  // CHECK:         %[[L:.*]] = linalg.generic {{.*}} ins(%[[X]], %[[H]] : tensor<?x?x70xf32>, tensor<?x?x70xbf16>)
  // CHECK:           %[[E:.*]] = arith.extf
  // CHECK:           %[[R:.*]] = arith.subf %{{.*}}, %[[E]]
  // CHECK:           arith.truncf %[[R]]
  // X3-NOT:        linalg.generic
  // X6:            linalg.generic {{.*}} ins(%[[X]], %[[H]], %[[L]] :
  // X6-COUNT-2:      arith.subf
  // X3:            attn.kernel @gemm_f32_mx_k70_n100_fma_8x3x16_bf16dotx3_next_c{{[0-9]+}} ins(%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} : tensor<?x70xbf16>, tensor<3x35x192xbf16>, tensor<?x70xbf16>, tensor<?x?x?xbf16>)
  // X6:            attn.kernel @gemm_f32_mx_k70_n100_fma_8x3x16_bf16dotx6_next_c{{[0-9]+}} ins({{.*}} : tensor<?x70xbf16>, tensor<3x35x288xbf16>, tensor<?x70xbf16>, tensor<?x70xbf16>, tensor<?x?x?xbf16>)
  // TILES-LABEL: func.func @parts
  // TILES:         attn.kernel @gemm_f32_mx_k70_n100_fma_8x2x16_bf16dotx3_d32_amx{{[0-9]+}}_next_c{{[0-9]+}} ins({{.*}} : tensor<?x70xbf16>, tensor<4x48x128xbf16>, tensor<?x70xbf16>,
  // BF16-LABEL:  func.func @parts
  // BF16:          attn.kernel @gemm_f32_mx_k70_n100_fma_12x2x16_bf16dot_d32_amx{{[0-9]+}}_next_c{{[0-9]+}} ins({{.*}} : tensor<?x70xbf16>, tensor<4x48x64xbf16>, tensor<?x?x?xbf16>)
  // NONE-LABEL:  func.func @parts
  // NONE-NOT:      bf16
  // NONE:          attn.kernel @gemm_f32_mx_k70_n100_fma_6x4x16_next_c
  func.func @parts(%x: tensor<?x?x70xf32>, %b: index, %s: index) -> tensor<?x?x100xf32> {
    %zero = arith.constant 0.0 : f32
    %w = attn.weight @w : tensor<70x100xf32>
    %e = tensor.empty(%b, %s) : tensor<?x?x100xf32>
    %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x?x100xf32>) -> tensor<?x?x100xf32>
    %c = linalg.contract indexing_maps = [#x, #w, #y] ins(%x, %w : tensor<?x?x70xf32>, tensor<70x100xf32>)
        outs(%z : tensor<?x?x100xf32>) -> tensor<?x?x100xf32>
    return %c : tensor<?x?x100xf32>
  }

  // An odd K has no last pair, and the product stays one of f32.
  // CHECK-LABEL: func.func @odd_sum
  // CHECK-NOT:     arith.truncf
  // CHECK:         attn.kernel @gemm_f32_mx_k63_n48_fma_8x3x16_next_c
  func.func @odd_sum(%x: tensor<?x?x63xf32>, %b: index, %s: index) -> tensor<?x?x48xf32> {
    %zero = arith.constant 0.0 : f32
    %w = attn.weight @odd : tensor<63x48xf32>
    %e = tensor.empty(%b, %s) : tensor<?x?x48xf32>
    %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x?x48xf32>) -> tensor<?x?x48xf32>
    %c = linalg.contract indexing_maps = [#x, #w, #y] ins(%x, %w : tensor<?x?x63xf32>, tensor<63x48xf32>)
        outs(%z : tensor<?x?x48xf32>) -> tensor<?x?x48xf32>
    return %c : tensor<?x?x48xf32>
  }
}

// X3: attn.global @{{.*}} : tensor<3x35x192xbf16> = #attn.narrow_panels<@w, transposed = false, width = 48, group = 0 parts 2>
// X6: attn.global @{{.*}} : tensor<3x35x288xbf16> = #attn.narrow_panels<@w, transposed = false, width = 48, group = 0 parts 3>
// TILES: attn.global @{{.*}} : tensor<4x48x128xbf16> = #attn.narrow_panels<@w, transposed = false, width = 32, group = 0 depth 32 parts 2>
// BF16: attn.global @{{.*}} : tensor<4x48x64xbf16> = #attn.narrow_panels<@w, transposed = false, width = 32, group = 0 depth 32>
