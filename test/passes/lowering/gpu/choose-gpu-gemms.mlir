// RUN: attn-opt %s --split-input-file --attn-choose-gpu-gemms | FileCheck %s

// A bias and a relu join the product; the tile is loaded by asynchronous copies.
// CHECK-LABEL: func.func @linear
// CHECK: attn.kernel @gpu_gemm_f32_b1_mx_k64_n48_{{[0-9a-f]+}} ins(%{{.*}}, %{{.*}}, %{{.*}} : tensor<?x64xf32>, tensor<64x48xf32>, tensor<48xf32>)
// CHECK-NOT: linalg
// CHECK-LABEL: func.func @gpu_gemm_f32_b1_mx_k64_n48_{{[0-9a-f]+}}(%{{.*}}: memref<?x64xf32>, %{{.*}}: memref<64x48xf32>, %{{.*}}: memref<48xf32>, %{{.*}}: memref<?x48xf32>) attributes {attn.kernel, attn.library_product = {activation = 1 : i32, {{.*}}bias = 2 : i64,
// Up to eight rows have a launch of their own.
// CHECK: scf.if
// CHECK: gpu.launch
// CHECK: gpu.shuffle xor
// CHECK: else
// CHECK: gpu.launch
// CHECK-SAME: workgroup(
// CHECK: nvvm.cp.async.shared.global {{.*}}, 16, cache = cg
// CHECK: nvvm.cp.async.commit.group
// CHECK: scf.for
// CHECK: nvvm.cp.async.wait.group 1
// CHECK: gpu.barrier
// CHECK: math.fma
// CHECK: gpu.barrier
// CHECK: arith.maximumf
func.func @linear(%x: tensor<?x64xf32>, %w: tensor<64x48xf32>, %c: tensor<48xf32>) -> tensor<?x48xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %m = tensor.dim %x, %c0 : tensor<?x64xf32>
  %e = tensor.empty(%m) : tensor<?x48xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x48xf32>) -> tensor<?x48xf32>
  %p = linalg.contract indexing_maps = [affine_map<(i, j, k) -> (i, k)>, affine_map<(i, j, k) -> (k, j)>, affine_map<(i, j, k) -> (i, j)>]
    ins(%x, %w : tensor<?x64xf32>, tensor<64x48xf32>) outs(%f : tensor<?x48xf32>) -> tensor<?x48xf32>
  %y = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
    ins(%p, %c : tensor<?x48xf32>, tensor<48xf32>) outs(%e : tensor<?x48xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %s = arith.addf %a, %b : f32
    %r = arith.maximumf %s, %zero : f32
    linalg.yield %r : f32
  } -> tensor<?x48xf32>
  return %y : tensor<?x48xf32>
}

// -----

// A vector times a matrix is made by lines, and never by a library; near miss: a product that starts from something.
// CHECK-LABEL: func.func @vector
// CHECK: attn.kernel @gpu_gemm_f32_b1_m1_k64_n48_{{[0-9a-f]+}}
// CHECK: linalg.contract
// CHECK-LABEL: func.func @gpu_gemm_
// CHECK-SAME: attributes {attn.kernel} {
// CHECK: gpu.launch
// CHECK-NOT: cp.async
// CHECK: vector.load {{.*}} {alignment = 16 : i64} : memref<?xf32>, vector<4xf32>
// CHECK: gpu.shuffle xor
// CHECK: gpu.barrier
// CHECK-NOT: gpu.launch
func.func @vector(%x: tensor<1x64xf32>, %z: tensor<8x64xf32>, %w: tensor<64x48xf32>, %acc: tensor<8x48xf32>) -> (tensor<1x48xf32>, tensor<8x48xf32>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<1x48xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<1x48xf32>) -> tensor<1x48xf32>
  %p = linalg.contract indexing_maps = [affine_map<(i, j, k) -> (i, k)>, affine_map<(i, j, k) -> (k, j)>, affine_map<(i, j, k) -> (i, j)>]
    ins(%x, %w : tensor<1x64xf32>, tensor<64x48xf32>) outs(%f : tensor<1x48xf32>) -> tensor<1x48xf32>
  %q = linalg.contract indexing_maps = [affine_map<(i, j, k) -> (i, k)>, affine_map<(i, j, k) -> (k, j)>, affine_map<(i, j, k) -> (i, j)>]
    ins(%z, %w : tensor<8x64xf32>, tensor<64x48xf32>) outs(%acc : tensor<8x48xf32>) -> tensor<8x48xf32>
  return %p, %q : tensor<1x48xf32>, tensor<8x48xf32>
}

// -----

// Equal products are one kernel. Near misses: the same sizes with another op behind, and with a factor that lies otherwise.
// CHECK-LABEL: func.func @equal
// CHECK: attn.kernel @[[PLAIN:gpu_gemm_f32_b1_m64_k64_n64_[0-9a-f]+]] ins(
// CHECK: attn.kernel @[[PLAIN]] ins(
// CHECK-NOT: attn.kernel @[[PLAIN]]
// CHECK: attn.kernel @[[NEGATED:gpu_gemm_f32_b1_m64_k64_n64_[0-9a-f]+]] ins(
// CHECK-NOT: attn.kernel @[[NEGATED]]
// CHECK: attn.kernel @[[TURNED:gpu_gemm_f32_b1_m64_k64_n64_[0-9a-f]+]] ins(
// CHECK: func.func @[[PLAIN]](
// CHECK-NOT: func.func @[[PLAIN]](
// CHECK: func.func @[[NEGATED]](
// CHECK: func.func @[[TURNED]](
#left = affine_map<(i, j, k) -> (i, k)>
#right = affine_map<(i, j, k) -> (k, j)>
#turned = affine_map<(i, j, k) -> (j, k)>
#result = affine_map<(i, j, k) -> (i, j)>
#same = affine_map<(i, j) -> (i, j)>
func.func @equal(%x: tensor<64x64xf32>, %y: tensor<64x64xf32>) -> (tensor<64x64xf32>, tensor<64x64xf32>, tensor<64x64xf32>, tensor<64x64xf32>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<64x64xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<64x64xf32>) -> tensor<64x64xf32>
  %p = linalg.contract indexing_maps = [#left, #right, #result] ins(%x, %y : tensor<64x64xf32>, tensor<64x64xf32>) outs(%f : tensor<64x64xf32>) -> tensor<64x64xf32>
  %q = linalg.contract indexing_maps = [#left, #right, #result] ins(%y, %x : tensor<64x64xf32>, tensor<64x64xf32>) outs(%f : tensor<64x64xf32>) -> tensor<64x64xf32>
  %r = linalg.contract indexing_maps = [#left, #right, #result] ins(%x, %x : tensor<64x64xf32>, tensor<64x64xf32>) outs(%f : tensor<64x64xf32>) -> tensor<64x64xf32>
  %s = linalg.generic {indexing_maps = [#same, #same], iterator_types = ["parallel", "parallel"]} ins(%r : tensor<64x64xf32>) outs(%e : tensor<64x64xf32>) {
  ^bb0(%a: f32, %o: f32):
    %n = arith.negf %a : f32
    linalg.yield %n : f32
  } -> tensor<64x64xf32>
  %t = linalg.contract indexing_maps = [#left, #turned, #result] ins(%x, %y : tensor<64x64xf32>, tensor<64x64xf32>) outs(%f : tensor<64x64xf32>) -> tensor<64x64xf32>
  return %p, %q, %s, %t : tensor<64x64xf32>, tensor<64x64xf32>, tensor<64x64xf32>, tensor<64x64xf32>
}
