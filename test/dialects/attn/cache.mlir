// RUN: attn-opt %s | attn-opt | FileCheck %s

// CHECK-LABEL: func.func @append
// CHECK: attn.kv_append %{{.*}} to %{{.*}} dim 2 state 0 : tensor<?x12x1x64xf32>, tensor<?x12x?x64xf32> -> tensor<?x12x?x64xf32>
// CHECK: attn.kv_append %{{.*}} to %{{.*}} dim 0 : tensor<2x4xf16>, tensor<3x4xf16> -> tensor<5x4xf16>
func.func @append(%key: tensor<?x12x1x64xf32>, %past: tensor<?x12x?x64xf32>, %row: tensor<2x4xf16>, %rows: tensor<3x4xf16>)
    -> (tensor<?x12x?x64xf32>, tensor<5x4xf16>) {
  %present = attn.kv_append %key to %past dim 2 state 0 : tensor<?x12x1x64xf32>, tensor<?x12x?x64xf32> -> tensor<?x12x?x64xf32>
  %all = attn.kv_append %row to %rows dim 0 : tensor<2x4xf16>, tensor<3x4xf16> -> tensor<5x4xf16>
  return %present, %all : tensor<?x12x?x64xf32>, tensor<5x4xf16>
}

// CHECK-LABEL: func.func @open
// CHECK: attn.kv_open %{{.*}} state 1 : tensor<?x12x64x64xf32>
func.func @open(%past: tensor<?x12x64x64xf32>) -> tensor<?x12x64x64xf32> {
  %0 = attn.kv_open %past state 1 : tensor<?x12x64x64xf32>
  return %0 : tensor<?x12x64x64xf32>
}

// CHECK-LABEL: func.func @fixed
// CHECK: attn.cache 1(%{{.*}}) : memref<?x12x64x64xf32>
func.func @fixed(%batch: index) -> memref<?x12x64x64xf32> {
  %room = attn.cache 1 (%batch) : memref<?x12x64x64xf32>
  return %room : memref<?x12x64x64xf32>
}

// CHECK-LABEL: func.func @room
// CHECK: attn.cache 1 dim 2(%{{.*}}, %{{.*}}) : memref<?x12x?x64xf32>
func.func @room(%batch: index, %total: index) -> memref<?x12x?x64xf32> {
  %room = attn.cache 1 dim 2 (%batch, %total) : memref<?x12x?x64xf32>
  return %room : memref<?x12x?x64xf32>
}

// CHECK-LABEL: func.func @bytes
// CHECK: attn.narrow_rows %{{.*}} : tensor<?x12x1x64xf32> -> tensor<?x12x1x68xi8>
// CHECK: attn.widen_rows %{{.*}} : tensor<?x12x1x68xi8> -> tensor<?x12x1x64xf32>
// CHECK: attn.widen_rows %{{.*}} : tensor<?x12x1x68xi8> -> tensor<?x12x1x64xf16>
// CHECK: attn.narrow_rows %{{.*}} : tensor<?x12x1x64xf32> -> tensor<?x12x1x68xf8E4M3FN>
// CHECK: attn.widen_rows %{{.*}} : tensor<?x12x1x68xf8E4M3FN> -> tensor<?x12x1x64xf32>
func.func @bytes(%key: tensor<?x12x1x64xf32>) -> tensor<?x12x1x64xf32> {
  %bytes = attn.narrow_rows %key : tensor<?x12x1x64xf32> -> tensor<?x12x1x68xi8>
  %wide = attn.widen_rows %bytes : tensor<?x12x1x68xi8> -> tensor<?x12x1x64xf32>
  %halves = attn.widen_rows %bytes : tensor<?x12x1x68xi8> -> tensor<?x12x1x64xf16>
  %float8 = attn.narrow_rows %key : tensor<?x12x1x64xf32> -> tensor<?x12x1x68xf8E4M3FN>
  %wide8 = attn.widen_rows %float8 : tensor<?x12x1x68xf8E4M3FN> -> tensor<?x12x1x64xf32>
  return %wide : tensor<?x12x1x64xf32>
}
