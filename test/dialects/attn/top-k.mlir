// RUN: attn-opt %s | attn-opt | FileCheck %s
// RUN: attn-opt %s --attn-decompose | FileCheck %s --check-prefix=LINALG
// RUN: attn-opt %s --attn-lower-normalization | FileCheck %s --check-prefix=KERNEL

// CHECK: attn.top_k %{{.*}}, %{{.*}} dim 1 : tensor<?x?xf32> -> tensor<?x?xf32>, tensor<?x?xi64>
// CHECK: attn.top_k %{{.*}}, %{{.*}} dim 0 smallest unsigned : tensor<5x?xi8> -> tensor<2x?xi8>, tensor<2x?xi64>
// LINALG-NOT: attn.top_k
// LINALG-COUNT-3: iterator_types = ["parallel", "parallel", "reduction"]
// KERNEL: attn.kernel @top_nxnxi64_s_nxnxf32_v4 ins(%{{.*}} : tensor<?x?xf32>)
// KERNEL: linalg.transpose ins(%{{.*}} : tensor<5x?xi8>) outs(%{{.*}} : tensor<?x5xi8>)
// KERNEL: attn.kernel @top_nx2xi64_least_u_nx5xi8_v4 ins(%{{.*}} : tensor<?x5xi8>)
// KERNEL-COUNT-2: linalg.transpose
func.func @top(%x: tensor<?x?xf32>, %y: tensor<5x?xi8>, %k: index)
    -> (tensor<?x?xf32>, tensor<?x?xi64>, tensor<2x?xi8>, tensor<2x?xi64>) {
  %two = arith.constant 2 : index
  %a, %b = attn.top_k %x, %k dim 1 : tensor<?x?xf32> -> tensor<?x?xf32>, tensor<?x?xi64>
  %c, %d = attn.top_k %y, %two dim 0 smallest unsigned : tensor<5x?xi8> -> tensor<2x?xi8>, tensor<2x?xi64>
  return %a, %b, %c, %d : tensor<?x?xf32>, tensor<?x?xi64>, tensor<2x?xi8>, tensor<2x?xi64>
}
