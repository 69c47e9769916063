// RUN: attn-opt %s -attn-lower-attention -split-input-file | FileCheck %s

#q = affine_map<(b, h, i, j, d, e) -> (b, i, h, d)>
#k = affine_map<(b, h, i, j, d, e) -> (b, j, h, d)>
#v = affine_map<(b, h, i, j, d, e) -> (b, j, h, e)>
#o = affine_map<(b, h, i, j, d, e) -> (b, i, h, e)>
#id = affine_map<(b, s, n) -> (b, s, n)>
// Slices of rows are read in place, each at its offset.
// CHECK-LABEL: func.func @packed
// CHECK: attn.kernel @[[NAME:attention_f32_d2_e2_[0-9a-f]+]]
// CHECK: func.func @[[NAME]](%{{.*}}: memref<?x3x4x2xf32, strided<[72, 24, 2, 1]>>, %{{.*}}: memref<?x3x4x2xf32, strided<[72, 24, 2, 1], offset: 8>>, %{{.*}}: memref<?x3x4x2xf32, strided<[72, 24, 2, 1], offset: 16>>, %{{.*}}: memref<?x3x4x2xf32>)
func.func @packed(%x: tensor<?x3x24xf32>) -> tensor<?x3x4x2xf32> {
  %c0 = arith.constant 0 : index
  %n = tensor.dim %x, %c0 : tensor<?x3x24xf32>
  %e = tensor.empty(%n) : tensor<?x3x24xf32>
  %p = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel"]} ins(%x : tensor<?x3x24xf32>) outs(%e : tensor<?x3x24xf32>) {
  ^bb0(%a: f32, %b: f32):
    %s = math.exp %a : f32
    linalg.yield %s : f32
  } -> tensor<?x3x24xf32>
  %q0 = tensor.extract_slice %p[0, 0, 0] [%n, 3, 8] [1, 1, 1] : tensor<?x3x24xf32> to tensor<?x3x8xf32>
  %k0 = tensor.extract_slice %p[0, 0, 8] [%n, 3, 8] [1, 1, 1] : tensor<?x3x24xf32> to tensor<?x3x8xf32>
  %v0 = tensor.extract_slice %p[0, 0, 16] [%n, 3, 8] [1, 1, 1] : tensor<?x3x24xf32> to tensor<?x3x8xf32>
  %q = tensor.expand_shape %q0 [[0], [1], [2, 3]] output_shape [%n, 3, 4, 2] : tensor<?x3x8xf32> into tensor<?x3x4x2xf32>
  %k = tensor.expand_shape %k0 [[0], [1], [2, 3]] output_shape [%n, 3, 4, 2] : tensor<?x3x8xf32> into tensor<?x3x4x2xf32>
  %v = tensor.expand_shape %v0 [[0], [1], [2, 3]] output_shape [%n, 3, 4, 2] : tensor<?x3x8xf32> into tensor<?x3x4x2xf32>
  %o = attn.attention masked_rows nan maps [#q, #k, #v, #o]
      ins(%q, %k, %v : tensor<?x3x4x2xf32>, tensor<?x3x4x2xf32>, tensor<?x3x4x2xf32>) -> tensor<?x3x4x2xf32>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
  return %o : tensor<?x3x4x2xf32>
}

// -----

#q = affine_map<(b, h, i, j, d, e) -> (b, i, h, d)>
#k = affine_map<(b, h, i, j, d, e) -> (b, j, h, d)>
#v = affine_map<(b, h, i, j, d, e) -> (b, j, h, e)>
#o = affine_map<(b, h, i, j, d, e) -> (b, i, h, e)>
#id = affine_map<(b, s, n) -> (b, s, n)>
// What is sliced is a result, too, and its buffer is not the kernel's to know.
// CHECK-LABEL: func.func @result
// CHECK: attn.kernel @[[NAME:attention_f32_d2_e2_[0-9a-f]+]]
// CHECK: func.func @[[NAME]](%{{.*}}: memref<?x3x4x2xf32>, %{{.*}}: memref<?x3x4x2xf32>, %{{.*}}: memref<?x3x4x2xf32>, %{{.*}}: memref<?x3x4x2xf32>)
func.func @result(%x: tensor<?x3x24xf32>) -> (tensor<?x3x4x2xf32>, tensor<?x3x24xf32>) {
  %c0 = arith.constant 0 : index
  %n = tensor.dim %x, %c0 : tensor<?x3x24xf32>
  %e = tensor.empty(%n) : tensor<?x3x24xf32>
  %p = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel"]} ins(%x : tensor<?x3x24xf32>) outs(%e : tensor<?x3x24xf32>) {
  ^bb0(%a: f32, %b: f32):
    %s = math.exp %a : f32
    linalg.yield %s : f32
  } -> tensor<?x3x24xf32>
  %q0 = tensor.extract_slice %p[0, 0, 0] [%n, 3, 8] [1, 1, 1] : tensor<?x3x24xf32> to tensor<?x3x8xf32>
  %k0 = tensor.extract_slice %p[0, 0, 8] [%n, 3, 8] [1, 1, 1] : tensor<?x3x24xf32> to tensor<?x3x8xf32>
  %v0 = tensor.extract_slice %p[0, 0, 16] [%n, 3, 8] [1, 1, 1] : tensor<?x3x24xf32> to tensor<?x3x8xf32>
  %q = tensor.expand_shape %q0 [[0], [1], [2, 3]] output_shape [%n, 3, 4, 2] : tensor<?x3x8xf32> into tensor<?x3x4x2xf32>
  %k = tensor.expand_shape %k0 [[0], [1], [2, 3]] output_shape [%n, 3, 4, 2] : tensor<?x3x8xf32> into tensor<?x3x4x2xf32>
  %v = tensor.expand_shape %v0 [[0], [1], [2, 3]] output_shape [%n, 3, 4, 2] : tensor<?x3x8xf32> into tensor<?x3x4x2xf32>
  %o = attn.attention masked_rows nan maps [#q, #k, #v, #o]
      ins(%q, %k, %v : tensor<?x3x4x2xf32>, tensor<?x3x4x2xf32>, tensor<?x3x4x2xf32>) -> tensor<?x3x4x2xf32>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
  return %o, %p : tensor<?x3x4x2xf32>, tensor<?x3x24xf32>
}

// -----

#q = affine_map<(b, h, i, j, d, e) -> (b, i, h, d)>
#k = affine_map<(b, h, i, j, d, e) -> (b, j, h, d)>
#v = affine_map<(b, h, i, j, d, e) -> (b, j, h, e)>
#o = affine_map<(b, h, i, j, d, e) -> (b, i, h, e)>
#id = affine_map<(b, s, n) -> (b, s, n)>
// Every second column: the query is copied.
// CHECK-LABEL: func.func @every_second
// CHECK: attn.kernel @[[NAME:attention_f32_d2_e2_[0-9a-f]+]]
// CHECK: func.func @[[NAME]](%{{.*}}: memref<?x3x4x2xf32>, %{{.*}}: memref<?x3x4x2xf32, strided<[72, 24, 2, 1], offset: 8>>,
func.func @every_second(%x: tensor<?x3x24xf32>) -> tensor<?x3x4x2xf32> {
  %c0 = arith.constant 0 : index
  %n = tensor.dim %x, %c0 : tensor<?x3x24xf32>
  %e = tensor.empty(%n) : tensor<?x3x24xf32>
  %p = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel"]} ins(%x : tensor<?x3x24xf32>) outs(%e : tensor<?x3x24xf32>) {
  ^bb0(%a: f32, %b: f32):
    %s = math.exp %a : f32
    linalg.yield %s : f32
  } -> tensor<?x3x24xf32>
  %q0 = tensor.extract_slice %p[0, 0, 0] [%n, 3, 8] [1, 1, 2] : tensor<?x3x24xf32> to tensor<?x3x8xf32>
  %k0 = tensor.extract_slice %p[0, 0, 8] [%n, 3, 8] [1, 1, 1] : tensor<?x3x24xf32> to tensor<?x3x8xf32>
  %v0 = tensor.extract_slice %p[0, 0, 16] [%n, 3, 8] [1, 1, 1] : tensor<?x3x24xf32> to tensor<?x3x8xf32>
  %q = tensor.expand_shape %q0 [[0], [1], [2, 3]] output_shape [%n, 3, 4, 2] : tensor<?x3x8xf32> into tensor<?x3x4x2xf32>
  %k = tensor.expand_shape %k0 [[0], [1], [2, 3]] output_shape [%n, 3, 4, 2] : tensor<?x3x8xf32> into tensor<?x3x4x2xf32>
  %v = tensor.expand_shape %v0 [[0], [1], [2, 3]] output_shape [%n, 3, 4, 2] : tensor<?x3x8xf32> into tensor<?x3x4x2xf32>
  %o = attn.attention masked_rows nan maps [#q, #k, #v, #o]
      ins(%q, %k, %v : tensor<?x3x4x2xf32>, tensor<?x3x4x2xf32>, tensor<?x3x4x2xf32>) -> tensor<?x3x4x2xf32>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
  return %o : tensor<?x3x4x2xf32>
}
