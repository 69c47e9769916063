// RUN: attn-opt %s --attn-lower-contractions --split-input-file | FileCheck %s

// The windows of a convolution, 3 x 3 by steps of 2: the kernel reads them where they are.
#window = affine_map<(n, y, x, c, u, v) -> (n, c, y * 2 + u, x * 2 + v)>
#id = affine_map<(n, y, x, c, u, v) -> (n, y, x, c, u, v)>
#a = affine_map<(n, p, o, k) -> (n, p, k)>
#w = affine_map<(n, p, o, k) -> (o, k)>
#y = affine_map<(n, p, o, k) -> (n, p, o)>
module attributes {attn.target = #attn.target<triple = "x86_64-unknown-linux-gnu", cpu = "x86-64-v4",
    features = "", isa = "avx512", l1 = 49152, l2 = 1048576>} {
  attn.global @w : tensor<16x27xf32> = #attn.initializer<"w">

  // CHECK-LABEL: func.func @overlap
  // CHECK-SAME:    %[[X:.*]]: tensor<1x3x9x11xf32>
  // CHECK:       %[[P:.*]] = tensor.pad
  // CHECK:       %[[ROWS:.*]] = linalg.generic {{.*}} outs(%{{.*}} : tensor<1x5x6xi64>)
  // CHECK:         linalg.index 0
  // CHECK:         %[[Y:.*]] = linalg.index 1
  // CHECK:         arith.muli %[[Y]], %[[TWOROWS:.*]] : index
  // CHECK:       %[[ROWSAT:.*]] = tensor.collapse_shape %[[ROWS]]
  // CHECK:       %[[DEPTH:.*]] = linalg.generic {{.*}} outs(%{{.*}} : tensor<3x3x3xi64>)
  // CHECK:       %[[DEPTHAT:.*]] = tensor.collapse_shape %[[DEPTH]]
  // CHECK:       attn.kernel @gemm_f32_m30_k27_n16_fma_8x3x16_gather_next
  // CHECK-SAME:    ins(%[[ROWSAT]], %{{.*}}, %[[DEPTHAT]], %{{.*}}, %{{.*}} : tensor<30xi64>, {{.*}}, tensor<27xi64>, tensor<?xf32>, {{.*}})
  func.func @overlap(%x: tensor<1x3x9x11xf32>) -> tensor<1x30x16xf32> {
    %zero = arith.constant 0.0 : f32
    %w = attn.weight @w : tensor<16x27xf32>
    %p = tensor.pad %x low[0, 0, 1, 1] high[0, 0, 1, 1] {
    ^bb0(%i: index, %j: index, %k: index, %l: index):
      tensor.yield %zero : f32
    } : tensor<1x3x9x11xf32> to tensor<1x3x11x13xf32>
    %e = tensor.empty() : tensor<1x5x6x3x3x3xf32>
    %copy = linalg.generic {indexing_maps = [#window, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel", "parallel"]}
        ins(%p : tensor<1x3x11x13xf32>) outs(%e : tensor<1x5x6x3x3x3xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<1x5x6x3x3x3xf32>
    %rows = tensor.collapse_shape %copy [[0], [1, 2], [3, 4, 5]] : tensor<1x5x6x3x3x3xf32> into tensor<1x30x27xf32>
    %f = tensor.empty() : tensor<1x30x16xf32>
    %z = linalg.fill ins(%zero : f32) outs(%f : tensor<1x30x16xf32>) -> tensor<1x30x16xf32>
    %c = linalg.contract indexing_maps = [#a, #w, #y] ins(%rows, %w : tensor<1x30x27xf32>, tensor<16x27xf32>) outs(%z : tensor<1x30x16xf32>) -> tensor<1x30x16xf32>
    return %c : tensor<1x30x16xf32>
  }
}

// -----

// Groups of channels: as many products, whose rows lie one below the other.
#window = affine_map<(n, y, x, g, u, v, c) -> (n, y + u, x + v, g, c)>
#id = affine_map<(n, y, x, g, u, v, c) -> (n, y, x, g, u, v, c)>
#a = affine_map<(n, p, g, o, k) -> (n, p, g, k)>
#w = affine_map<(n, p, g, o, k) -> (g, o, k)>
#y = affine_map<(n, p, g, o, k) -> (n, p, g, o)>
module attributes {attn.target = #attn.target<triple = "x86_64-unknown-linux-gnu", cpu = "x86-64-v4",
    features = "", isa = "avx512", l1 = 49152, l2 = 1048576>} {
  attn.global @w : tensor<4x16x72xf32> = #attn.initializer<"w">

  // CHECK-LABEL: func.func @groups
  // CHECK-NOT:   linalg.transpose
  // CHECK:       %[[ROWS:.*]] = linalg.generic {{.*}} outs(%{{.*}} : tensor<4x1x5x6xi64>)
  // CHECK:       %[[ROWSAT:.*]] = tensor.collapse_shape %[[ROWS]]
  // CHECK:       linalg.generic {{.*}} outs(%{{.*}} : tensor<3x3x8xi64>)
  // CHECK:       attn.kernel @gemm_f32_batch_mx_k72_n16_fma_8x3x16_gather
  func.func @groups(%x: tensor<1x7x8x4x8xf32>) -> tensor<1x30x4x16xf32> {
    %zero = arith.constant 0.0 : f32
    %w = attn.weight @w : tensor<4x16x72xf32>
    %e = tensor.empty() : tensor<1x5x6x4x3x3x8xf32>
    %copy = linalg.generic {indexing_maps = [#window, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel", "parallel", "parallel"]}
        ins(%x : tensor<1x7x8x4x8xf32>) outs(%e : tensor<1x5x6x4x3x3x8xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<1x5x6x4x3x3x8xf32>
    %rows = tensor.collapse_shape %copy [[0], [1, 2], [3], [4, 5, 6]] : tensor<1x5x6x4x3x3x8xf32> into tensor<1x30x4x72xf32>
    %f = tensor.empty() : tensor<1x30x4x16xf32>
    %z = linalg.fill ins(%zero : f32) outs(%f : tensor<1x30x4x16xf32>) -> tensor<1x30x4x16xf32>
    %c = linalg.contract indexing_maps = [#a, #w, #y] ins(%rows, %w : tensor<1x30x4x72xf32>, tensor<4x16x72xf32>) outs(%z : tensor<1x30x4x16xf32>) -> tensor<1x30x4x16xf32>
    return %c : tensor<1x30x4x16xf32>
  }
}

// -----

// Near misses: windows side by side are copied once each, another op reads the copy, and a copy that computes.
#beside = affine_map<(n, y, x, c, u, v) -> (n, c, y * 3 + u, x * 3 + v)>
#window = affine_map<(n, y, x, c, u, v) -> (n, c, y * 2 + u, x * 2 + v)>
#id = affine_map<(n, y, x, c, u, v) -> (n, y, x, c, u, v)>
#a = affine_map<(n, p, o, k) -> (n, p, k)>
#w = affine_map<(n, p, o, k) -> (o, k)>
#y = affine_map<(n, p, o, k) -> (n, p, o)>
module attributes {attn.target = #attn.target<triple = "x86_64-unknown-linux-gnu", cpu = "x86-64-v4",
    features = "", isa = "avx512", l1 = 49152, l2 = 1048576>} {
  attn.global @w : tensor<16x27xf32> = #attn.initializer<"w">

  // CHECK-LABEL: func.func @misses
  // CHECK-NOT:   gather
  func.func @misses(%x: tensor<1x3x16x19xf32>, %small: tensor<1x3x11x13xf32>) -> (tensor<1x30x16xf32>, tensor<1x30x16xf32>, tensor<1x30x27xf32>, tensor<1x30x16xf32>) {
    %zero = arith.constant 0.0 : f32
    %w = attn.weight @w : tensor<16x27xf32>
    %big = linalg.transpose ins(%x : tensor<1x3x16x19xf32>) outs(%x : tensor<1x3x16x19xf32>) permutation = [0, 1, 2, 3]
    %p = linalg.transpose ins(%small : tensor<1x3x11x13xf32>) outs(%small : tensor<1x3x11x13xf32>) permutation = [0, 1, 2, 3]
    %e = tensor.empty() : tensor<1x5x6x3x3x3xf32>
    %f = tensor.empty() : tensor<1x30x16xf32>
    %z = linalg.fill ins(%zero : f32) outs(%f : tensor<1x30x16xf32>) -> tensor<1x30x16xf32>
    %copy = linalg.generic {indexing_maps = [#beside, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel", "parallel"]}
        ins(%big : tensor<1x3x16x19xf32>) outs(%e : tensor<1x5x6x3x3x3xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<1x5x6x3x3x3xf32>
    %rows = tensor.collapse_shape %copy [[0], [1, 2], [3, 4, 5]] : tensor<1x5x6x3x3x3xf32> into tensor<1x30x27xf32>
    %c = linalg.contract indexing_maps = [#a, #w, #y] ins(%rows, %w : tensor<1x30x27xf32>, tensor<16x27xf32>) outs(%z : tensor<1x30x16xf32>) -> tensor<1x30x16xf32>
    %copy1 = linalg.generic {indexing_maps = [#window, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel", "parallel"]}
        ins(%p : tensor<1x3x11x13xf32>) outs(%e : tensor<1x5x6x3x3x3xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<1x5x6x3x3x3xf32>
    %rows1 = tensor.collapse_shape %copy1 [[0], [1, 2], [3, 4, 5]] : tensor<1x5x6x3x3x3xf32> into tensor<1x30x27xf32>
    %c1 = linalg.contract indexing_maps = [#a, #w, #y] ins(%rows1, %w : tensor<1x30x27xf32>, tensor<16x27xf32>) outs(%z : tensor<1x30x16xf32>) -> tensor<1x30x16xf32>
    %copy2 = linalg.generic {indexing_maps = [#window, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel", "parallel"]}
        ins(%p : tensor<1x3x11x13xf32>) outs(%e : tensor<1x5x6x3x3x3xf32>) {
    ^bb0(%in: f32, %out: f32):
      %m = arith.maximumf %in, %zero : f32
      linalg.yield %m : f32
    } -> tensor<1x5x6x3x3x3xf32>
    %rows2 = tensor.collapse_shape %copy2 [[0], [1, 2], [3, 4, 5]] : tensor<1x5x6x3x3x3xf32> into tensor<1x30x27xf32>
    %c2 = linalg.contract indexing_maps = [#a, #w, #y] ins(%rows2, %w : tensor<1x30x27xf32>, tensor<16x27xf32>) outs(%z : tensor<1x30x16xf32>) -> tensor<1x30x16xf32>
    return %c, %c1, %rows1, %c2 : tensor<1x30x16xf32>, tensor<1x30x16xf32>, tensor<1x30x27xf32>, tensor<1x30x16xf32>
  }
}

// -----

// The run alone knows how deep windows are.
#window = affine_map<(n, y, u, v) -> (n, y + u, v)>
#id = affine_map<(n, y, u, v) -> (n, y, u, v)>
#a = affine_map<(n, p, o, k) -> (n, p, k)>
#w = affine_map<(n, p, o, k) -> (k, o)>
#y = affine_map<(n, p, o, k) -> (n, p, o)>
module attributes {attn.target = #attn.target<triple = "x86_64-unknown-linux-gnu", cpu = "x86-64-v4",
    features = "", isa = "avx512", l1 = 49152, l2 = 1048576>} {
  // CHECK-LABEL: func.func @open
  // CHECK-NOT:   gather
  // CHECK:       attn.kernel @gemm_f32_m30_kx_n32
  // CHECK-NOT:   gather
  func.func @open(%x: tensor<1x40x3xf32>, %w: tensor<?x32xf32>, %n: index) -> tensor<1x30x32xf32> {
    %zero = arith.constant 0.0 : f32
    %p = linalg.transpose ins(%x : tensor<1x40x3xf32>) outs(%x : tensor<1x40x3xf32>) permutation = [0, 1, 2]
    %e = tensor.empty(%n) : tensor<1x30x?x3xf32>
    %copy = linalg.generic {indexing_maps = [#window, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
        ins(%p : tensor<1x40x3xf32>) outs(%e : tensor<1x30x?x3xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<1x30x?x3xf32>
    %rows = tensor.collapse_shape %copy [[0], [1], [2, 3]] : tensor<1x30x?x3xf32> into tensor<1x30x?xf32>
    %f = tensor.empty() : tensor<1x30x32xf32>
    %z = linalg.fill ins(%zero : f32) outs(%f : tensor<1x30x32xf32>) -> tensor<1x30x32xf32>
    %c = linalg.contract indexing_maps = [#a, #w, #y] ins(%rows, %w : tensor<1x30x?xf32>, tensor<?x32xf32>) outs(%z : tensor<1x30x32xf32>) -> tensor<1x30x32xf32>
    return %c : tensor<1x30x32xf32>
  }
}
