// RUN: attn-opt %s -attn-prepare-attention -split-input-file | FileCheck %s

#s = affine_map<(b, h, i, j, d, e) -> (b, h, j)>
#v = affine_map<(b, h, i, j, d, e) -> (h, e, b, j)>
#o = affine_map<(b, h, i, j, d, e) -> (b, i, h, e)>
#id = affine_map<(a, b, c, d) -> (a, b, c, d)>
// Each of 7 queries samples two maps at three places of its own: no sample is stored.
// CHECK: attn.fusion_report = [{form = "given-sampled", fused = true, kernel = false, kernel_reason = "values are computed where they are summed", kernel_symbol = "", node = "node 'a' (MatMul)"}]
// CHECK-LABEL: func.func @sampled
// CHECK-SAME: %[[S:[^:]+]]: tensor<7x2x6xf32>, %[[X:[^:]+]]: tensor<50x16xf32>, %[[P:[^:]+]]: tensor<2x7x3xindex>
// CHECK-NOT: tensor.insert_slice
// CHECK: %[[W:.+]] = attn.softmax %{{.+}} dim 2 : tensor<7x2x6xf32>
// CHECK: %[[Z:.+]] = linalg.fill
// CHECK: %[[W0:.+]] = tensor.extract_slice %[[W]][0, 0, 0] [7, 2, 3] [1, 1, 1]
// CHECK: %[[Y0:.+]] = linalg.generic {{.*}} iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%[[W0]] : tensor<7x2x3xf32>) outs(%[[Z]] : tensor<7x2x16xf32>)
// CHECK: tensor.extract %[[P]]
// CHECK: tensor.extract %[[X]]
// CHECK: %[[W1:.+]] = tensor.extract_slice %[[W]][0, 0, 3] [7, 2, 3] [1, 1, 1]
// CHECK: %[[Y1:.+]] = linalg.generic {{.*}} ins(%[[W1]] : tensor<7x2x3xf32>) outs(%[[Y0]] : tensor<7x2x16xf32>)
// CHECK: %[[Y:.+]] = tensor.expand_shape %[[Y1]] {{.*}} : tensor<7x2x16xf32> into tensor<7x1x2x16xf32>
// CHECK: return %[[Y]]
module attributes {attn.fusion_report = [{fused = true, node = "node 'a' (MatMul)"}]} {
  func.func @sampled(%s: tensor<7x2x6xf32>, %x: tensor<50x16xf32>, %p: tensor<2x7x3xindex>) -> tensor<7x1x2x16xf32> {
    %two = arith.constant 2.0 : f32
    %e = tensor.empty() : tensor<2x7x3x16xf32>
    %g0 = linalg.generic {indexing_maps = [#id], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
        outs(%e : tensor<2x7x3x16xf32>) {
    ^bb0(%out: f32):
      %h = linalg.index 0 : index
      %n = linalg.index 1 : index
      %k = linalg.index 2 : index
      %c = linalg.index 3 : index
      %at = tensor.extract %p[%h, %n, %k] : tensor<2x7x3xindex>
      %t = tensor.extract %x[%at, %c] : tensor<50x16xf32>
      linalg.yield %t : f32
    } -> tensor<2x7x3x16xf32>
    %g1 = linalg.generic {indexing_maps = [#id], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
        outs(%e : tensor<2x7x3x16xf32>) {
    ^bb0(%out: f32):
      %h = linalg.index 0 : index
      %n = linalg.index 1 : index
      %k = linalg.index 2 : index
      %c = linalg.index 3 : index
      %at = tensor.extract %p[%h, %n, %k] : tensor<2x7x3xindex>
      %t = tensor.extract %x[%at, %c] : tensor<50x16xf32>
      %u = arith.mulf %t, %two : f32
      linalg.yield %u : f32
    } -> tensor<2x7x3x16xf32>
    %te = tensor.empty() : tensor<2x16x7x3xf32>
    %t0 = linalg.transpose ins(%g0 : tensor<2x7x3x16xf32>) outs(%te : tensor<2x16x7x3xf32>) permutation = [0, 3, 1, 2]
    %t1 = linalg.transpose ins(%g1 : tensor<2x7x3x16xf32>) outs(%te : tensor<2x16x7x3xf32>) permutation = [0, 3, 1, 2]
    %u0 = tensor.expand_shape %t0 [[0], [1], [2], [3, 4]] output_shape [2, 16, 7, 1, 3] : tensor<2x16x7x3xf32> into tensor<2x16x7x1x3xf32>
    %u1 = tensor.expand_shape %t1 [[0], [1], [2], [3, 4]] output_shape [2, 16, 7, 1, 3] : tensor<2x16x7x3xf32> into tensor<2x16x7x1x3xf32>
    %ve = tensor.empty() : tensor<2x16x7x2x3xf32>
    %v0 = tensor.insert_slice %u0 into %ve[0, 0, 0, 0, 0] [2, 16, 7, 1, 3] [1, 1, 1, 1, 1] : tensor<2x16x7x1x3xf32> into tensor<2x16x7x2x3xf32>
    %v1 = tensor.insert_slice %u1 into %v0[0, 0, 0, 1, 0] [2, 16, 7, 1, 3] [1, 1, 1, 1, 1] : tensor<2x16x7x1x3xf32> into tensor<2x16x7x2x3xf32>
    %v = tensor.collapse_shape %v1 [[0], [1], [2], [3, 4]] : tensor<2x16x7x2x3xf32> into tensor<2x16x7x6xf32>
    %y = attn.attention kind given masked_rows nan maps [#s, #v, #o]
        ins(%s, %v : tensor<7x2x6xf32>, tensor<2x16x7x6xf32>) -> tensor<7x1x2x16xf32>
      score {
      ^bb0(%r: f32):
        attn.yield %r : f32
      } loc("node 'a' (MatMul)")
    return %y : tensor<7x1x2x16xf32>
  }
}

// -----

#s = affine_map<(b, h, i, j, d, e) -> (h, i, j)>
#v = affine_map<(b, h, i, j, d, e) -> (h, j, e)>
#o = affine_map<(b, h, i, j, d, e) -> (h, i, e)>
#id = affine_map<(a, b, c) -> (a, b, c)>
// Near miss: two queries weigh each sample, which would be gathered twice. One query does it.
// CHECK: form = "given", fused = true, node = "node 'b' (MatMul)"
// CHECK: form = "given-sampled", fused = true, {{.*}} node = "node 'c' (MatMul)"
// CHECK-LABEL: func.func @shared
// CHECK: attn.attention
// CHECK-NOT: attn.attention
module attributes {attn.fusion_report = [{fused = true, node = "node 'b' (MatMul)"}, {fused = true, node = "node 'c' (MatMul)"}]} {
  func.func @shared(%s: tensor<7x2x3xf32>, %t: tensor<7x1x3xf32>, %x: tensor<50x16xf32>, %p: tensor<7x3xindex>)
      -> (tensor<7x2x16xf32>, tensor<7x1x16xf32>) {
    %e = tensor.empty() : tensor<7x3x16xf32>
    %v = linalg.generic {indexing_maps = [#id], iterator_types = ["parallel", "parallel", "parallel"]}
        outs(%e : tensor<7x3x16xf32>) {
    ^bb0(%out: f32):
      %n = linalg.index 0 : index
      %k = linalg.index 1 : index
      %c = linalg.index 2 : index
      %at = tensor.extract %p[%n, %k] : tensor<7x3xindex>
      %z = tensor.extract %x[%at, %c] : tensor<50x16xf32>
      linalg.yield %z : f32
    } -> tensor<7x3x16xf32>
    %w = linalg.generic {indexing_maps = [#id], iterator_types = ["parallel", "parallel", "parallel"]}
        outs(%e : tensor<7x3x16xf32>) {
    ^bb0(%out: f32):
      %n = linalg.index 0 : index
      %k = linalg.index 1 : index
      %c = linalg.index 2 : index
      %at = tensor.extract %p[%n, %k] : tensor<7x3xindex>
      %z = tensor.extract %x[%at, %c] : tensor<50x16xf32>
      linalg.yield %z : f32
    } -> tensor<7x3x16xf32>
    %a = attn.attention kind given masked_rows nan maps [#s, #v, #o]
        ins(%s, %v : tensor<7x2x3xf32>, tensor<7x3x16xf32>) -> tensor<7x2x16xf32>
      score {
      ^bb0(%r: f32):
        attn.yield %r : f32
      } loc("node 'b' (MatMul)")
    %b = attn.attention kind given masked_rows nan maps [#s, #v, #o]
        ins(%t, %w : tensor<7x1x3xf32>, tensor<7x3x16xf32>) -> tensor<7x1x16xf32>
      score {
      ^bb0(%r: f32):
        attn.yield %r : f32
      } loc("node 'c' (MatMul)")
    return %a, %b : tensor<7x2x16xf32>, tensor<7x1x16xf32>
  }
}

// -----

#s = affine_map<(b, h, i, j, d, e) -> (0, h, j)>
#v = affine_map<(b, h, i, j, d, e) -> (h, j, e)>
#o = affine_map<(b, h, i, j, d, e) -> (h, i, e)>
#id = affine_map<(a, b, c) -> (a, b, c)>
// Scores of a batch of one are read at its only place.
// CHECK: #[[AT:.+]] = affine_map<(d0, d1) -> (0, d0, d1)>
// CHECK: form = "given-sampled", fused = true, {{.*}} node = "node 'd' (MatMul)"
// CHECK-LABEL: func.func @one
// CHECK: linalg.generic {indexing_maps = [#[[AT]], {{.*}} ins(%{{.+}} : tensor<1x7x3xf32>)
// CHECK-NOT: attn.attention
module attributes {attn.fusion_report = [{fused = true, node = "node 'd' (MatMul)"}]} {
  func.func @one(%s: tensor<1x7x3xf32>, %x: tensor<50x16xf32>, %p: tensor<7x3xindex>) -> tensor<7x1x16xf32> {
    %e = tensor.empty() : tensor<7x3x16xf32>
    %v = linalg.generic {indexing_maps = [#id], iterator_types = ["parallel", "parallel", "parallel"]}
        outs(%e : tensor<7x3x16xf32>) {
    ^bb0(%out: f32):
      %n = linalg.index 0 : index
      %k = linalg.index 1 : index
      %c = linalg.index 2 : index
      %at = tensor.extract %p[%n, %k] : tensor<7x3xindex>
      %z = tensor.extract %x[%at, %c] : tensor<50x16xf32>
      linalg.yield %z : f32
    } -> tensor<7x3x16xf32>
    %y = attn.attention kind given masked_rows nan maps [#s, #v, #o]
        ins(%s, %v : tensor<1x7x3xf32>, tensor<7x3x16xf32>) -> tensor<7x1x16xf32>
      score {
      ^bb0(%r: f32):
        attn.yield %r : f32
      } loc("node 'd' (MatMul)")
    return %y : tensor<7x1x16xf32>
  }
}
