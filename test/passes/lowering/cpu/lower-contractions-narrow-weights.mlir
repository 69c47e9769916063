// RUN: attn-opt %s --attn-lower-contractions=weights=bf16 | FileCheck %s --check-prefixes=CHECK,BF16
// RUN: attn-opt %s --attn-lower-contractions=weights=int8 | FileCheck %s --check-prefixes=CHECK,INT8
// RUN: attn-opt %s --attn-lower-contractions=weights=int8:24 | FileCheck %s --check-prefixes=CHECK,GROUP
// RUN: not attn-opt %s --attn-lower-contractions=weights=int4 2>&1 | FileCheck %s --check-prefix=WRONG

// WRONG: expects weights in f32, bf16, int8, int8:GROUP or int4:BLOCK, got 'int4'

#x = affine_map<(m, n, k) -> (m, k)>
#wt = affine_map<(m, n, k) -> (n, k)>
#w = affine_map<(m, n, k) -> (k, n)>
#y = affine_map<(m, n, k) -> (m, n)>
module attributes {attn.target = #attn.target<triple = "x86_64-unknown-linux-gnu", cpu = "x86-64-v4",
    features = "", isa = "avx512", l1 = 49152, l2 = 1048576>} {
  attn.global @w : tensor<100x65xf32> = #attn.initializer<"w">

  // Two uses of one weight have one packing, a column's scales beside it.
  // CHECK-LABEL: func.func @twice
  // BF16:   %[[P:.*]] = attn.weight @w_tpanels48_bf16 : tensor<3x33x96xbf16>
  // BF16:   attn.kernel @gemm_f32_mx_k65_n100_fma_8x3x16_bf16_shared_next ins(%{{.*}}, %[[P]], %{{.*}} :
  // BF16:   attn.weight @w_tpanels48_bf16
  // INT8:   %[[P:.*]] = attn.weight @w_tpanels48_i8 : tensor<3x65x48xi8>
  // INT8:   %[[S:.*]] = attn.weight @w_tpanels48_i8_scales : tensor<3x1x48xf32>
  // INT8:   attn.kernel @gemm_f32_mx_k65_n100_fma_8x3x16_i8g65_next_c{{[0-9]+}} ins(%{{.*}}, %[[P]], %[[S]], %{{.*}} :
  // INT8:   attn.weight @w_tpanels48_i8 :
  // GROUP:  attn.weight @w_tpanels48_i8_scales : tensor<3x3x48xf32>
  // GROUP:  attn.kernel @gemm_f32_mx_k65_n100_fma_8x3x16_i8g24_next_c
  func.func @twice(%x: tensor<?x65xf32>, %m: index) -> (tensor<?x100xf32>, tensor<?x100xf32>) {
    %zero = arith.constant 0.0 : f32
    %w = attn.weight @w : tensor<100x65xf32>
    %e = tensor.empty(%m) : tensor<?x100xf32>
    %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x100xf32>) -> tensor<?x100xf32>
    %c = linalg.contract indexing_maps = [#x, #wt, #y] ins(%x, %w : tensor<?x65xf32>, tensor<100x65xf32>)
        outs(%z : tensor<?x100xf32>) -> tensor<?x100xf32>
    %t = math.absf %x : tensor<?x65xf32>
    %d = linalg.contract indexing_maps = [#x, #wt, #y] ins(%t, %w : tensor<?x65xf32>, tensor<100x65xf32>)
        outs(%z : tensor<?x100xf32>) -> tensor<?x100xf32>
    return %c, %d : tensor<?x100xf32>, tensor<?x100xf32>
  }

  // What the run computes stays f32.
  // CHECK-LABEL: func.func @activations
  // CHECK:   attn.kernel @gemm_f32_mx_kx_nx_fma_8x3x16_c
  func.func @activations(%x: tensor<?x?xf32>, %w: tensor<?x?xf32>, %m: index, %n: index) -> tensor<?x?xf32> {
    %zero = arith.constant 0.0 : f32
    %e = tensor.empty(%m, %n) : tensor<?x?xf32>
    %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x?xf32>) -> tensor<?x?xf32>
    %c = linalg.contract indexing_maps = [#x, #w, #y] ins(%x, %w : tensor<?x?xf32>, tensor<?x?xf32>)
        outs(%z : tensor<?x?xf32>) -> tensor<?x?xf32>
    return %c : tensor<?x?xf32>
  }
}

// BF16: attn.global @w_tpanels48_bf16 : tensor<3x33x96xbf16> = #attn.narrow_panels<@w, transposed = true, width = 48, group = 0>
// BF16-NOT: attn.global
// INT8: attn.global @w_tpanels48_i8 : tensor<3x65x48xi8> = #attn.narrow_panels<@w, transposed = true, width = 48, group = 65>
// INT8: attn.global @w_tpanels48_i8_scales : tensor<3x1x48xf32> = #attn.panel_scales<@w, transposed = true, width = 48, group = 65>
// INT8-NOT: attn.global
