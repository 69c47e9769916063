// RUN: attn-opt %s -attn-raise-contraction -canonicalize -cse -split-input-file | FileCheck %s

#id = affine_map<(h, i, j) -> (h, i, j)>
#head = affine_map<(h, i, j) -> (h)>
#row = affine_map<(h, i, j) -> (h, i)>
#w = affine_map<(h, i, e, j) -> (h, i, j)>
#v = affine_map<(h, i, e, j) -> (h, j, e)>
#o = affine_map<(h, i, e, j) -> (h, i, e)>
// Two softmaxes mixed by a gate per head and divided by their sum (ConViT): the sum is that of the gates, and each softmax
// weighs the values by itself.
// CHECK-LABEL: func.func @mixture
// CHECK-SAME: %[[A:[^:]+]]: tensor<2xf32>, %[[B:[^:]+]]: tensor<2xf32>
// CHECK: %[[X:.+]] = attn.softmax
// CHECK: %[[Y:.+]] = attn.softmax
// CHECK: %[[SUM:.+]] = linalg.generic {{.*}} ins(%[[A]], %[[B]] : tensor<2xf32>, tensor<2xf32>) outs(%{{.+}} : tensor<2x5xf32>)
// CHECK: arith.addf
// CHECK: linalg.generic {{.*}} ins(%{{.+}}, %[[SUM]] : tensor<2x5x7xf32>, tensor<2x5xf32>)
// CHECK: arith.divf
// CHECK: linalg.contract
// CHECK: linalg.generic {{.*}} ins(%{{.+}}, %[[SUM]] : tensor<2x5x7xf32>, tensor<2x5xf32>)
// CHECK: arith.divf
// CHECK: linalg.contract
// CHECK: linalg.generic
// CHECK: arith.addf
func.func @mixture(%a: tensor<2xf32>, %b: tensor<2xf32>, %s: tensor<2x5x7xf32>, %t: tensor<2x5x7xf32>, %v: tensor<2x7x3xf32>)
    -> tensor<2x5x3xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<2x5x7xf32>
  %x = attn.softmax %s dim 2 : tensor<2x5x7xf32>
  %y = attn.softmax %t dim 2 : tensor<2x5x7xf32>
  %ax = linalg.generic {indexing_maps = [#head, #id, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%a, %x : tensor<2xf32>, tensor<2x5x7xf32>) outs(%e : tensor<2x5x7xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %r = arith.mulf %p, %q : f32
    linalg.yield %r : f32
  } -> tensor<2x5x7xf32>
  %by = linalg.generic {indexing_maps = [#head, #id, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%b, %y : tensor<2xf32>, tensor<2x5x7xf32>) outs(%e : tensor<2x5x7xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %r = arith.mulf %p, %q : f32
    linalg.yield %r : f32
  } -> tensor<2x5x7xf32>
  %m = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%ax, %by : tensor<2x5x7xf32>, tensor<2x5x7xf32>) outs(%e : tensor<2x5x7xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %r = arith.addf %p, %q : f32
    linalg.yield %r : f32
  } -> tensor<2x5x7xf32>
  %es = tensor.empty() : tensor<2x5xf32>
  %fs = linalg.fill ins(%zero : f32) outs(%es : tensor<2x5xf32>) -> tensor<2x5xf32>
  %sum = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%m : tensor<2x5x7xf32>) outs(%fs : tensor<2x5xf32>) {
  ^bb0(%p: f32, %o: f32):
    %r = arith.addf %o, %p : f32
    linalg.yield %r : f32
  } -> tensor<2x5xf32>
  %d = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%m, %sum : tensor<2x5x7xf32>, tensor<2x5xf32>) outs(%e : tensor<2x5x7xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %r = arith.divf %p, %q : f32
    linalg.yield %r : f32
  } -> tensor<2x5x7xf32>
  %eo = tensor.empty() : tensor<2x5x3xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<2x5x3xf32>) -> tensor<2x5x3xf32>
  %out = linalg.contract indexing_maps = [#w, #v, #o] ins(%d, %v : tensor<2x5x7xf32>, tensor<2x7x3xf32>)
      outs(%fo : tensor<2x5x3xf32>) -> tensor<2x5x3xf32>
  return %out : tensor<2x5x3xf32>
}

// -----

#id = affine_map<(h, i, j) -> (h, i, j)>
#key = affine_map<(h, i, j) -> (j)>
#row = affine_map<(h, i, j) -> (h, i)>
// Factors per key, and a number that is added to each weight: their sums are computed.
// CHECK-LABEL: func.func @per_key
// CHECK: linalg.generic {{.*}} iterator_types = ["parallel", "parallel", "reduction"]
func.func @per_key(%a: tensor<7xf32>, %s: tensor<2x5x7xf32>) -> tensor<2x5x7xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<2x5x7xf32>
  %x = attn.softmax %s dim 2 : tensor<2x5x7xf32>
  %m = linalg.generic {indexing_maps = [#key, #id, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%a, %x : tensor<7xf32>, tensor<2x5x7xf32>) outs(%e : tensor<2x5x7xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %r = arith.mulf %p, %q : f32
    linalg.yield %r : f32
  } -> tensor<2x5x7xf32>
  %es = tensor.empty() : tensor<2x5xf32>
  %fs = linalg.fill ins(%zero : f32) outs(%es : tensor<2x5xf32>) -> tensor<2x5xf32>
  %sum = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%m : tensor<2x5x7xf32>) outs(%fs : tensor<2x5xf32>) {
  ^bb0(%p: f32, %o: f32):
    %r = arith.addf %o, %p : f32
    linalg.yield %r : f32
  } -> tensor<2x5xf32>
  %d = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%m, %sum : tensor<2x5x7xf32>, tensor<2x5xf32>) outs(%e : tensor<2x5x7xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %r = arith.divf %p, %q : f32
    linalg.yield %r : f32
  } -> tensor<2x5x7xf32>
  return %d : tensor<2x5x7xf32>
}

// -----

#id = affine_map<(h, i, j) -> (h, i, j)>
#head = affine_map<(h, i, j) -> (h)>
#row = affine_map<(h, i, j) -> (h, i)>
// CHECK-LABEL: func.func @plus
// CHECK: linalg.generic {{.*}} iterator_types = ["parallel", "parallel", "reduction"]
func.func @plus(%a: tensor<2xf32>, %s: tensor<2x5x7xf32>) -> tensor<2x5x7xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<2x5x7xf32>
  %x = attn.softmax %s dim 2 : tensor<2x5x7xf32>
  %m = linalg.generic {indexing_maps = [#head, #id, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%a, %x : tensor<2xf32>, tensor<2x5x7xf32>) outs(%e : tensor<2x5x7xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %r = arith.addf %p, %q : f32
    linalg.yield %r : f32
  } -> tensor<2x5x7xf32>
  %es = tensor.empty() : tensor<2x5xf32>
  %fs = linalg.fill ins(%zero : f32) outs(%es : tensor<2x5xf32>) -> tensor<2x5xf32>
  %sum = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%m : tensor<2x5x7xf32>) outs(%fs : tensor<2x5xf32>) {
  ^bb0(%p: f32, %o: f32):
    %r = arith.addf %o, %p : f32
    linalg.yield %r : f32
  } -> tensor<2x5xf32>
  %d = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%m, %sum : tensor<2x5x7xf32>, tensor<2x5xf32>) outs(%e : tensor<2x5x7xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %r = arith.divf %p, %q : f32
    linalg.yield %r : f32
  } -> tensor<2x5x7xf32>
  return %d : tensor<2x5x7xf32>
}
