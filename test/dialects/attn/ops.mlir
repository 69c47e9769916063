// RUN: attn-opt %s | attn-opt | FileCheck %s

#q = affine_map<(b, h, i, j, d, e) -> (b, i, h, d)>
#k = affine_map<(b, h, i, j, d, e) -> (b, j, h, d)>
#v = affine_map<(b, h, i, j, d, e) -> (b, j, h, e)>
#m = affine_map<(b, h, i, j, d, e) -> (b, j)>
#o = affine_map<(b, h, i, j, d, e) -> (b, i, h, e)>

// CHECK-LABEL: func.func @attention
// CHECK: attn.attention masked_rows nan maps [{{.*}}] ins(%{{.*}}, %{{.*}}, %{{.*}} : {{.*}}) captures(%{{.*}} : tensor<?x?xf32>) -> tensor<?x?x12x32xf32> score {
func.func @attention(%q: tensor<?x?x12x32xf32>, %k: tensor<?x?x12x32xf32>, %v: tensor<?x?x12x32xf32>,
                     %mask: tensor<?x?xf32>) -> tensor<?x?x12x32xf32> {
  %o = attn.attention masked_rows nan maps [#q, #k, #v, #m, #o]
      ins(%q, %k, %v : tensor<?x?x12x32xf32>, tensor<?x?x12x32xf32>, tensor<?x?x12x32xf32>)
      captures(%mask : tensor<?x?xf32>) -> tensor<?x?x12x32xf32>
    score {
    ^bb0(%s: f32, %m: f32):
      %c = arith.constant 0.176776692 : f32
      %x = arith.mulf %s, %c : f32
      %y = arith.addf %x, %m : f32
      attn.yield %y : f32
    }
  return %o : tensor<?x?x12x32xf32>
}

attn.global @w : tensor<384x96xf32> = #attn.initializer<"encoder.0.w">
// CHECK: attn.global @w_panels : tensor<2x384x48xf32> = #attn.pack_panels<@w, transposed = false, width = 48>
attn.global @w_panels : tensor<2x384x48xf32> = #attn.pack_panels<@w, transposed = false, width = 48>

func.func private @gemm(memref<?x384xf32>, memref<2x384x48xf32>, memref<?x96xf32>) attributes {attn.kernel}

// CHECK-LABEL: func.func @kernel
func.func @kernel(%a: tensor<?x384xf32>, %e: tensor<?x96xf32>) -> tensor<?x96xf32> {
  // CHECK: attn.weight @w_panels : tensor<2x384x48xf32>
  %w = attn.weight @w_panels : tensor<2x384x48xf32>
  // CHECK: attn.kernel @gemm ins(%{{.*}}, %{{.*}} : {{.*}}) outs(%{{.*}} : tensor<?x96xf32>) -> tensor<?x96xf32>
  %c = attn.kernel @gemm ins(%a, %w : tensor<?x384xf32>, tensor<2x384x48xf32>) outs(%e : tensor<?x96xf32>) -> tensor<?x96xf32>
  return %c : tensor<?x96xf32>
}
