// RUN: attn-opt %s -attn-lower-contractions -split-input-file | FileCheck %s
// RUN: attn-opt %s -attn-lower-contractions=weights=int8 -split-input-file | FileCheck --check-prefix=INT8 %s

// A weight that is f16 widened is packed as it is stored.
#avx512 = #attn.target<triple = "x86_64-unknown-linux-gnu", cpu = "x86-64-v4", features = "", isa = "avx512", l1 = 32768, l2 = 1048576>
// CHECK-LABEL: func.func @half
// CHECK-DAG: attn.global @w_f32_panels64_f16 : tensor<2x64x64xf16> = #attn.pack_panels<@w, transposed = false, width = 64>
// CHECK-DAG: func.func private @gemm_f32_mx_k64_n100_fma_6x4x16_f16_shared_next(
// INT8-LABEL: func.func @half
// INT8: attn.global @{{.+}} : tensor<3x64x48xi8> = #attn.narrow_panels<@w_f32
module attributes {attn.target = #avx512} {
  attn.global @w : tensor<64x100xf16> = #attn.initializer<"w">
  attn.global @w_f32 : tensor<64x100xf32> = #attn.reshape<@w>
  func.func @half(%a: tensor<?x64xf32>, %m: index) -> tensor<?x100xf32> {
    %w = attn.weight @w_f32 : tensor<64x100xf32>
    %zero = arith.constant 0.0 : f32
    %e = tensor.empty(%m) : tensor<?x100xf32>
    %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x100xf32>) -> tensor<?x100xf32>
    %c = linalg.matmul ins(%a, %w : tensor<?x64xf32>, tensor<64x100xf32>) outs(%z : tensor<?x100xf32>) -> tensor<?x100xf32>
    return %c : tensor<?x100xf32>
  }
}

// -----

// Transposed, side by side and in slices: the same expression of what is stored. bf16 comes in pairs.
#avx512 = #attn.target<triple = "x86_64-unknown-linux-gnu", cpu = "x86-64-v4", features = "", isa = "avx512", l1 = 32768, l2 = 1048576>
// CHECK-LABEL: func.func @views
// CHECK-DAG: attn.global @[[X:.+]] : tensor<48x48xf16> = #attn.slice<@x, dim 0 at 0 size 48>
// CHECK-DAG: attn.global @[[T:.+]] : tensor<48x48xf16> = #attn.transpose<@y, [1, 0]>
// CHECK-DAG: attn.global @[[XP:.+]] : tensor<1x48x48xf16> = #attn.pack_panels<@[[X]], transposed = false, width = 48>
// CHECK-DAG: attn.global @[[TP:.+]] : tensor<1x48x48xf16> = #attn.pack_panels<@[[T]], transposed = false, width = 48>
// CHECK-DAG: attn.global @{{.+}} : tensor<2x48x48xf16> = #attn.concat<[@[[XP]], @[[TP]]], dim 0>
// CHECK-DAG: tensor<2x24x96xbf16> = #attn.narrow_panels<@b_f32, transposed = false, width = 48, group = 0>
module attributes {attn.target = #avx512} {
  attn.global @x : tensor<96x48xf16> = #attn.initializer<"x">
  attn.global @y : tensor<48x48xf16> = #attn.initializer<"y">
  attn.global @b : tensor<48x96xbf16> = #attn.initializer<"b">
  attn.global @x_f32 : tensor<96x48xf32> = #attn.reshape<@x>
  attn.global @y_f32 : tensor<48x48xf32> = #attn.reshape<@y>
  attn.global @b_f32 : tensor<48x96xf32> = #attn.reshape<@b>
  attn.global @xs : tensor<48x48xf32> = #attn.slice<@x_f32, dim 0 at 0 size 48>
  attn.global @yt : tensor<48x48xf32> = #attn.transpose<@y_f32, [1, 0]>
  attn.global @both : tensor<48x96xf32> = #attn.concat<[@xs, @yt], dim 1>
  func.func @views(%a: tensor<?x48xf32>, %m: index) -> (tensor<?x96xf32>, tensor<?x96xf32>) {
    %w = attn.weight @both : tensor<48x96xf32>
    %b = attn.weight @b_f32 : tensor<48x96xf32>
    %zero = arith.constant 0.0 : f32
    %e = tensor.empty(%m) : tensor<?x96xf32>
    %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x96xf32>) -> tensor<?x96xf32>
    %c = linalg.matmul ins(%a, %w : tensor<?x48xf32>, tensor<48x96xf32>) outs(%z : tensor<?x96xf32>) -> tensor<?x96xf32>
    %d = linalg.matmul ins(%a, %b : tensor<?x48xf32>, tensor<48x96xf32>) outs(%z : tensor<?x96xf32>) -> tensor<?x96xf32>
    return %c, %d : tensor<?x96xf32>, tensor<?x96xf32>
  }
}

// -----

// f32 and f16 side by side are f32; without F16C widening in registers would cost more than it saves.
#portable = #attn.target<triple = "x86_64-unknown-linux-gnu", cpu = "x86-64", features = "", isa = "portable", l1 = 32768, l2 = 1048576>
// CHECK-LABEL: func.func @portable
// CHECK: tensor<{{.+}}xf32> = #attn.pack_panels<@w_f32
module attributes {attn.target = #portable} {
  attn.global @w : tensor<64x100xf16> = #attn.initializer<"w">
  attn.global @w_f32 : tensor<64x100xf32> = #attn.reshape<@w>
  func.func @portable(%a: tensor<?x64xf32>, %m: index) -> tensor<?x100xf32> {
    %w = attn.weight @w_f32 : tensor<64x100xf32>
    %zero = arith.constant 0.0 : f32
    %e = tensor.empty(%m) : tensor<?x100xf32>
    %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x100xf32>) -> tensor<?x100xf32>
    %c = linalg.matmul ins(%a, %w : tensor<?x64xf32>, tensor<64x100xf32>) outs(%z : tensor<?x100xf32>) -> tensor<?x100xf32>
    return %c : tensor<?x100xf32>
  }
}

// -----

// On tiles of bf16 (AMX) rows of f32 are three of them, which the kernel writes for itself by blocks of 32 rows; few rows
// have none.
#amx = #attn.target<triple = "x86_64-unknown-linux-gnu", cpu = "x86-64-v4", features = "+amx-bf16,+amx-tile,+avx512bf16,-prefer-256-bit", isa = "avx512", l1 = 49152, l2 = 2097152>
// CHECK-LABEL: func.func @tiles
// CHECK: %[[BLOCKS:.*]] = arith.ceildivui
// CHECK: tensor.empty(%[[BLOCKS]]) : tensor<?x6144xbf16>
// CHECK: attn.kernel @gemm_f32_mx_k64_n100_fma_6x4x16_f16_amx16_next ins({{.*}}) outs({{.*}} : tensor<?x6144xbf16>, tensor<?x100xf32>)
// CHECK: attn.kernel @gemm_f32_m15_k64_n100_fma_6x4x16_f16_shared_next ins({{.*}}) outs({{[^,]*}} : tensor<15x100xf32>)
module attributes {attn.target = #amx} {
  attn.global @w : tensor<64x100xf16> = #attn.initializer<"w">
  attn.global @w_f32 : tensor<64x100xf32> = #attn.reshape<@w>
  func.func @tiles(%a: tensor<?x64xf32>, %b: tensor<15x64xf32>, %m: index) -> (tensor<?x100xf32>, tensor<15x100xf32>) {
    %w = attn.weight @w_f32 : tensor<64x100xf32>
    %zero = arith.constant 0.0 : f32
    %e = tensor.empty(%m) : tensor<?x100xf32>
    %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x100xf32>) -> tensor<?x100xf32>
    %c = linalg.matmul ins(%a, %w : tensor<?x64xf32>, tensor<64x100xf32>) outs(%z : tensor<?x100xf32>) -> tensor<?x100xf32>
    %f = tensor.empty() : tensor<15x100xf32>
    %y = linalg.fill ins(%zero : f32) outs(%f : tensor<15x100xf32>) -> tensor<15x100xf32>
    %d = linalg.matmul ins(%b, %w : tensor<15x64xf32>, tensor<64x100xf32>) outs(%y : tensor<15x100xf32>) -> tensor<15x100xf32>
    return %c, %d : tensor<?x100xf32>, tensor<15x100xf32>
  }
}
