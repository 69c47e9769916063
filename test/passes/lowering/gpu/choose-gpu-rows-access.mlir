// RUN: attn-opt %s --split-input-file --attn-choose-gpu-rows | FileCheck %s

// A row is read once, in accesses of 16 bytes, and so are scale and bias, before anything waits.
// CHECK-LABEL: func.func @gpu_layer_norm
// CHECK: gpu.launch
// CHECK-COUNT-3: vector.load %{{.*}} {alignment = 16 : i64} : memref<?xbf16>, vector<8xbf16>
// CHECK-NOT: load
// CHECK-COUNT-5: gpu.shuffle xor
// CHECK: gpu.barrier
// CHECK-NOT: vector.load
// CHECK: vector.store %{{.*}} {alignment = 16 : i64} : memref<?xbf16>, vector<8xbf16>
// CHECK-NOT: vector.store
func.func @row(%x: tensor<?x768xbf16>, %s: tensor<768xbf16>) -> tensor<?x768xbf16> {
  %n = attn.layer_norm %x, %s, %s axis 1 epsilon 1.0e-05 : tensor<?x768xbf16>, tensor<768xbf16>, tensor<768xbf16>
  return %n : tensor<?x768xbf16>
}

// -----

// Threads without a group read another one, without a branch, and write nothing.
// CHECK-LABEL: func.func @gpu_softmax
// CHECK: scf.if
// CHECK: %[[INSIDE:.*]] = arith.cmpi slt, %[[AT:.*]], %{{.*}} : index
// CHECK: arith.select %[[INSIDE]], %[[AT]], %{{.*}} : index
// CHECK: vector.load %{{.*}} {alignment = 8 : i64} : memref<?xf32>, vector<2xf32>
// CHECK: gpu.shuffle xor
// CHECK: scf.if %[[INSIDE]]
// CHECK: vector.store %{{.*}} {alignment = 8 : i64} : memref<?xf32>, vector<2xf32>
func.func @tail(%x: tensor<?x58xf32>) -> tensor<?x58xf32> {
  %y = attn.softmax %x dim 1 : tensor<?x58xf32>
  return %y : tensor<?x58xf32>
}

// -----

// Threads ask whether a row fits; near miss: one that is too long is read in rounds.
// CHECK-LABEL: func.func @gpu_softmax
// CHECK: gpu.launch
// CHECK: scf.if
// CHECK-NOT: scf.for
// CHECK: vector.load %{{.*}} {alignment = 16 : i64}
// CHECK: } else {
// CHECK-COUNT-3: scf.for
// CHECK-NOT: gpu.launch
// CHECK-LABEL: func.func @gpu_softmax_f32_2x16388
// CHECK: gpu.launch
// CHECK: scf.for
// CHECK: vector.load %{{.*}} {alignment = 16 : i64}
func.func @open(%x: tensor<2x?xf32>, %z: tensor<2x16388xf32>) -> (tensor<2x?xf32>, tensor<2x16388xf32>) {
  %y = attn.softmax %x dim 1 : tensor<2x?xf32>
  %w = attn.softmax %z dim 1 : tensor<2x16388xf32>
  return %y, %w : tensor<2x?xf32>, tensor<2x16388xf32>
}
