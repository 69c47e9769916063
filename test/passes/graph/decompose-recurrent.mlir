// Numbers: test/e2e/recurrent. Here: one contraction of the whole input, and a
// loop over the steps whose states are updated where they lie.
// RUN: attn-opt %s --attn-decompose | FileCheck %s
// RUN: attn-opt %s --attn-decompose --canonicalize --cse --attn-finalize-entries --canonicalize --cse \
// RUN:   --attn-prepare-buffers --eliminate-empty-tensors \
// RUN:   '--one-shot-bufferize=bufferize-function-boundaries function-boundary-type-conversion=identity-layout-map' \
// RUN:   --cse --canonicalize | FileCheck %s --check-prefix=BUFFERS

// CHECK-LABEL: func.func @main
// CHECK: linalg.contract {{.*}} outs(%{{.*}} : tensor<?x4x64xf64>)
// CHECK: scf.for %[[N:[a-z0-9]+]] = %{{.*}} to %[[STEPS:[a-z0-9_]+]] step
// CHECK:   %[[LAST:.*]] = arith.subi %[[STEPS]], %{{.*}} : index
// CHECK:   %[[T:.*]] = arith.subi %[[LAST]], %[[N]] : index
// CHECK:   tensor.extract_slice %{{.*}}[%[[T]], 0, 0] [1, 4, 64]
// CHECK:   linalg.contract {{.*}} outs(%{{.*}} : tensor<4x64xf64>)
// CHECK:   arith.cmpi slt, %[[T]], %{{.*}}
// CHECK:   tensor.insert_slice
// CHECK:   scf.yield
// CHECK-NOT: attn.lstm

// A step allocates its product (from the workspace of the run) and copies nothing.
// BUFFERS: scf.for
// BUFFERS: memref.alloc
// BUFFERS-NOT: memref.alloc
// BUFFERS-NOT: memref.copy
// BUFFERS: memref.subview %{{.*}}[%{{.*}}, 0, 0, 0] [1, 1, 4, 16]
// BUFFERS-NOT: memref.alloc
// BUFFERS-NOT: memref.copy
// BUFFERS: linalg.yield
func.func @main(%x: tensor<?x4x8xf64>, %w: tensor<1x64x8xf64>, %r: tensor<1x64x16xf64>, %b: tensor<1x128xf64>,
                %n: tensor<4xi32>) -> tensor<?x1x4x16xf64> attributes {attn.entry} {
  %y, %h, %c = attn.lstm reverse [#attn.activation<sigmoid>, #attn.activation<tanh>, #attn.activation<tanh>]
      ins(%x, %w, %r : tensor<?x4x8xf64>, tensor<1x64x8xf64>, tensor<1x64x16xf64>) bias(%b : tensor<1x128xf64>)
      lengths(%n : tensor<4xi32>) -> tensor<?x1x4x16xf64>, tensor<1x4x16xf64>, tensor<1x4x16xf64>
  return %y : tensor<?x1x4x16xf64>
}

// Of what is projected of two directions each has its columns; a mirrored gate lets the candidate in.
// CHECK-LABEL: func.func @projected
// CHECK: tensor.extract_slice %{{.*}}[0, 0, 0] {{.*}} : tensor<?x4x96xf32> to tensor<?x4x48xf32>
// CHECK: math.tanh
// CHECK: %[[REST:.*]] = arith.subf %{{.*}}, %[[Z:.*]] : f32
// CHECK: arith.mulf %[[Z]], %[[N:.*]] : f32
// CHECK: arith.mulf %[[REST]], %{{.*}} : f32
// CHECK: tensor.extract_slice %{{.*}}[0, 0, 48] {{.*}} : tensor<?x4x96xf32> to tensor<?x4x48xf32>
func.func @projected(%x: tensor<?x4x96xf32>, %r: tensor<2x48x16xf32>) -> tensor<?x2x4x16xf32> {
  %y, %h = attn.gru bidirectional [#attn.activation<sigmoid>, #attn.activation<tanh>, #attn.activation<sigmoid>, #attn.activation<tanh>]
      mirrored ins(%x, %r : tensor<?x4x96xf32>, tensor<2x48x16xf32>) -> tensor<?x2x4x16xf32>, tensor<2x4x16xf32>
  return %y : tensor<?x2x4x16xf32>
}

// Each direction begins with its own state.
// CHECK-LABEL: func.func @begun
// CHECK: tensor.extract_slice %arg2[0, 0, 0] [1, 4, 16] [1, 1, 1] : tensor<2x4x16xf32> to tensor<4x16xf32>
// CHECK: tensor.extract_slice %arg2[1, 0, 0] [1, 4, 16] [1, 1, 1] : tensor<2x4x16xf32> to tensor<4x16xf32>
func.func @begun(%x: tensor<?x4x96xf32>, %r: tensor<2x48x16xf32>, %h0: tensor<2x4x16xf32>) -> tensor<?x2x4x16xf32> {
  %y, %h = attn.gru bidirectional [#attn.activation<sigmoid>, #attn.activation<tanh>, #attn.activation<sigmoid>, #attn.activation<tanh>]
      ins(%x, %r : tensor<?x4x96xf32>, tensor<2x48x16xf32>) initial_h(%h0 : tensor<2x4x16xf32>) -> tensor<?x2x4x16xf32>, tensor<2x4x16xf32>
  return %y : tensor<?x2x4x16xf32>
}
