// RUN: attn-opt %s -attn-split-concat -split-input-file | FileCheck %s

#rep = affine_map<(b, j, k) -> (b, k)>
#id = affine_map<(b, j, k) -> (b, j, k)>
#x = affine_map<(b, j, a, k) -> (b, j, k)>
#w = affine_map<(b, j, a, k) -> (k, a)>
#o = affine_map<(b, j, a, k) -> (b, j, a)>
// W [s; h] with s repeated for every key: two products, the first for s as it is; slices of a weight are weights.
// CHECK-DAG: attn.global @w : tensor<24x8xf32>
// CHECK-DAG: attn.global @[[W1:.+]] : tensor<16x8xf32> = #attn.slice<@w, dim 0 at 0 size 16>
// CHECK-DAG: attn.global @[[W2:.+]] : tensor<8x8xf32> = #attn.slice<@w, dim 0 at 16 size 8>
// CHECK-LABEL: func.func @repeated_part
// CHECK-SAME: %[[S:[^:]+]]: tensor<2x16xf32>, %[[H:[^:]+]]: tensor<2x5x8xf32>
// CHECK-DAG: %[[A:.+]] = linalg.contract {{.*}} ins(%[[S]], %{{.+}} : tensor<2x16xf32>, tensor<16x8xf32>) {{.*}} -> tensor<2x8xf32>
// CHECK-DAG: %[[B:.+]] = linalg.contract {{.*}} ins(%[[H]], %{{.+}} : tensor<2x5x8xf32>, tensor<8x8xf32>) {{.*}} -> tensor<2x5x8xf32>
// CHECK: %[[SUM:.+]] = linalg.generic {{.*}} ins(%[[B]], %[[A]] : tensor<2x5x8xf32>, tensor<2x8xf32>)
// CHECK: return %[[SUM]]
attn.global @w : tensor<24x8xf32> = #attn.initializer<"w">
func.func @repeated_part(%s: tensor<2x16xf32>, %h: tensor<2x5x8xf32>) -> tensor<2x5x8xf32> {
  %zero = arith.constant 0.0 : f32
  %er = tensor.empty() : tensor<2x5x16xf32>
  %r = linalg.generic {indexing_maps = [#rep, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%s : tensor<2x16xf32>) outs(%er : tensor<2x5x16xf32>) {
  ^bb0(%e: f32, %y: f32):
    linalg.yield %e : f32
  } -> tensor<2x5x16xf32>
  %ec = tensor.empty() : tensor<2x5x24xf32>
  %c1 = tensor.insert_slice %r into %ec[0, 0, 0] [2, 5, 16] [1, 1, 1] : tensor<2x5x16xf32> into tensor<2x5x24xf32>
  %c = tensor.insert_slice %h into %c1[0, 0, 16] [2, 5, 8] [1, 1, 1] : tensor<2x5x8xf32> into tensor<2x5x24xf32>
  %w = attn.weight @w : tensor<24x8xf32>
  %eo = tensor.empty() : tensor<2x5x8xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<2x5x8xf32>) -> tensor<2x5x8xf32>
  %o = linalg.contract indexing_maps = [#x, #w, #o] ins(%c, %w : tensor<2x5x24xf32>, tensor<24x8xf32>)
      outs(%fo : tensor<2x5x8xf32>) -> tensor<2x5x8xf32>
  return %o : tensor<2x5x8xf32>
}

// -----

#rep = affine_map<(b, j, k) -> (b, k)>
#id = affine_map<(b, j, k) -> (b, j, k)>
#x = affine_map<(b, j, a, k) -> (b, j, k)>
#w = affine_map<(b, j, a, k) -> (k, a)>
#o = affine_map<(b, j, a, k) -> (b, j, a)>
// Likewise where the concatenation is the right operand.
// CHECK-LABEL: func.func @repeated_part_on_the_right
// CHECK-SAME: %[[S:[^:]+]]: tensor<2x16xf32>, %[[H:[^:]+]]: tensor<2x5x8xf32>
// CHECK-DAG: linalg.contract {{.*}} ins(%{{.+}}, %[[S]] : tensor<16x8xf32>, tensor<2x16xf32>) {{.*}} -> tensor<2x8xf32>
// CHECK-DAG: linalg.contract {{.*}} ins(%{{.+}}, %[[H]] : tensor<8x8xf32>, tensor<2x5x8xf32>) {{.*}} -> tensor<2x5x8xf32>
attn.global @w : tensor<24x8xf32> = #attn.initializer<"w">
func.func @repeated_part_on_the_right(%s: tensor<2x16xf32>, %h: tensor<2x5x8xf32>) -> tensor<2x5x8xf32> {
  %zero = arith.constant 0.0 : f32
  %er = tensor.empty() : tensor<2x5x16xf32>
  %r = linalg.generic {indexing_maps = [#rep, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%s : tensor<2x16xf32>) outs(%er : tensor<2x5x16xf32>) {
  ^bb0(%e: f32, %y: f32):
    linalg.yield %e : f32
  } -> tensor<2x5x16xf32>
  %ec = tensor.empty() : tensor<2x5x24xf32>
  %c1 = tensor.insert_slice %r into %ec[0, 0, 0] [2, 5, 16] [1, 1, 1] : tensor<2x5x16xf32> into tensor<2x5x24xf32>
  %c = tensor.insert_slice %h into %c1[0, 0, 16] [2, 5, 8] [1, 1, 1] : tensor<2x5x8xf32> into tensor<2x5x24xf32>
  %w = attn.weight @w : tensor<24x8xf32>
  %eo = tensor.empty() : tensor<2x5x8xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<2x5x8xf32>) -> tensor<2x5x8xf32>
  %o = linalg.contract indexing_maps = [#w, #x, #o] ins(%w, %c : tensor<24x8xf32>, tensor<2x5x24xf32>)
      outs(%fo : tensor<2x5x8xf32>) -> tensor<2x5x8xf32>
  return %o : tensor<2x5x8xf32>
}

// -----

#x = affine_map<(b, a, k) -> (b, k)>
#w = affine_map<(b, a, k) -> (k, a)>
#o = affine_map<(b, a, k) -> (b, a)>
// No part is repeated: one product is better than two.
// CHECK-LABEL: func.func @nothing_repeated
// CHECK-COUNT-1: linalg.contract
// CHECK-NOT: linalg.contract
func.func @nothing_repeated(%s: tensor<2x16xf32>, %h: tensor<2x8xf32>, %w: tensor<24x8xf32>) -> tensor<2x8xf32> {
  %zero = arith.constant 0.0 : f32
  %ec = tensor.empty() : tensor<2x24xf32>
  %c1 = tensor.insert_slice %s into %ec[0, 0] [2, 16] [1, 1] : tensor<2x16xf32> into tensor<2x24xf32>
  %c = tensor.insert_slice %h into %c1[0, 16] [2, 8] [1, 1] : tensor<2x8xf32> into tensor<2x24xf32>
  %eo = tensor.empty() : tensor<2x8xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<2x8xf32>) -> tensor<2x8xf32>
  %o = linalg.contract indexing_maps = [#x, #w, #o] ins(%c, %w : tensor<2x24xf32>, tensor<24x8xf32>)
      outs(%fo : tensor<2x8xf32>) -> tensor<2x8xf32>
  return %o : tensor<2x8xf32>
}

// -----

#a = affine_map<(b, i, j, d) -> (b, i, d)>
#b = affine_map<(b, i, j, d) -> (b, j, d)>
#p = affine_map<(b, i, j, d) -> (b, i, j, d)>
#x = affine_map<(b, i, j, a, d) -> (b, i, j, d)>
#w = affine_map<(b, i, j, a, d) -> (d, a)>
#o = affine_map<(b, i, j, a, d) -> (b, i, j, a)>
// A vector times a product of a query and a key: the vector is multiplied with one of them.
// CHECK-LABEL: func.func @three_factors
// CHECK-SAME: %[[A:[^:]+]]: tensor<2x5x8xf32>, %[[B:[^:]+]]: tensor<2x7x8xf32>, %[[W:[^:]+]]: tensor<8x1xf32>
// CHECK: %[[Q:.+]] = linalg.generic {{.*}} ins(%[[A]], %[[W]] : tensor<2x5x8xf32>, tensor<8x1xf32>) outs(%{{.+}} : tensor<2x5x8x1xf32>)
// CHECK: linalg.contract {{.*}} ins(%[[Q]], %[[B]] : tensor<2x5x8x1xf32>, tensor<2x7x8xf32>) {{.*}} -> tensor<2x5x7x1xf32>
func.func @three_factors(%a: tensor<2x5x8xf32>, %b: tensor<2x7x8xf32>, %w: tensor<8x1xf32>) -> tensor<2x5x7x1xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<2x5x7x8xf32>
  %x = linalg.generic {indexing_maps = [#a, #b, #p], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%a, %b : tensor<2x5x8xf32>, tensor<2x7x8xf32>) outs(%e : tensor<2x5x7x8xf32>) {
  ^bb0(%l: f32, %r: f32, %y: f32):
    %m = arith.mulf %l, %r : f32
    linalg.yield %m : f32
  } -> tensor<2x5x7x8xf32>
  %eo = tensor.empty() : tensor<2x5x7x1xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<2x5x7x1xf32>) -> tensor<2x5x7x1xf32>
  %o = linalg.contract indexing_maps = [#x, #w, #o] ins(%x, %w : tensor<2x5x7x8xf32>, tensor<8x1xf32>)
      outs(%fo : tensor<2x5x7x1xf32>) -> tensor<2x5x7x1xf32>
  return %o : tensor<2x5x7x1xf32>
}

// -----

#a = affine_map<(b, i, j, d) -> (b, i, d)>
#b = affine_map<(b, i, j, d) -> (b, j, d)>
#p = affine_map<(b, i, j, d) -> (b, i, j, d)>
#x = affine_map<(b, i, j, a, d) -> (b, i, j, d)>
#w = affine_map<(b, i, j, a, d) -> (d, a)>
#o = affine_map<(b, i, j, a, d) -> (b, i, j, a)>
// Likewise where that product is the right operand.
// CHECK-LABEL: func.func @three_factors_on_the_right
// CHECK-SAME: %[[A:[^:]+]]: tensor<2x5x8xf32>, %[[B:[^:]+]]: tensor<2x7x8xf32>, %[[W:[^:]+]]: tensor<8x1xf32>
// CHECK: %[[Q:.+]] = linalg.generic {{.*}} ins(%[[A]], %[[W]] : tensor<2x5x8xf32>, tensor<8x1xf32>) outs(%{{.+}} : tensor<2x5x8x1xf32>)
// CHECK: linalg.contract {{.*}} ins(%[[Q]], %[[B]] : tensor<2x5x8x1xf32>, tensor<2x7x8xf32>) {{.*}} -> tensor<2x5x7x1xf32>
func.func @three_factors_on_the_right(%a: tensor<2x5x8xf32>, %b: tensor<2x7x8xf32>, %w: tensor<8x1xf32>) -> tensor<2x5x7x1xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<2x5x7x8xf32>
  %x = linalg.generic {indexing_maps = [#a, #b, #p], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%a, %b : tensor<2x5x8xf32>, tensor<2x7x8xf32>) outs(%e : tensor<2x5x7x8xf32>) {
  ^bb0(%l: f32, %r: f32, %y: f32):
    %m = arith.mulf %l, %r : f32
    linalg.yield %m : f32
  } -> tensor<2x5x7x8xf32>
  %eo = tensor.empty() : tensor<2x5x7x1xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<2x5x7x1xf32>) -> tensor<2x5x7x1xf32>
  %o = linalg.contract indexing_maps = [#w, #x, #o] ins(%w, %x : tensor<8x1xf32>, tensor<2x5x7x8xf32>)
      outs(%fo : tensor<2x5x7x1xf32>) -> tensor<2x5x7x1xf32>
  return %o : tensor<2x5x7x1xf32>
}

// -----

#a = affine_map<(b, i, j, d) -> (b, i, d)>
#b = affine_map<(b, i, j, d) -> (b, j, d)>
#p = affine_map<(b, i, j, d) -> (b, i, j, d)>
#x = affine_map<(b, i, j, a, d) -> (b, i, j, d)>
#w = affine_map<(b, i, j, a, d) -> (d, a)>
#o = affine_map<(b, i, j, a, d) -> (b, i, j, a)>
// In f16 a query times the vector may be infinite where no product of the graph is.
// CHECK-LABEL: func.func @half
// CHECK: linalg.contract {{.*}} ins(%{{.+}}, %{{.+}} : tensor<2x5x7x8xf16>, tensor<8x1xf16>)
func.func @half(%a: tensor<2x5x8xf16>, %b: tensor<2x7x8xf16>, %w: tensor<8x1xf16>) -> tensor<2x5x7x1xf16> {
  %zero = arith.constant 0.0 : f16
  %e = tensor.empty() : tensor<2x5x7x8xf16>
  %x = linalg.generic {indexing_maps = [#a, #b, #p], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%a, %b : tensor<2x5x8xf16>, tensor<2x7x8xf16>) outs(%e : tensor<2x5x7x8xf16>) {
  ^bb0(%l: f16, %r: f16, %y: f16):
    %m = arith.mulf %l, %r : f16
    linalg.yield %m : f16
  } -> tensor<2x5x7x8xf16>
  %eo = tensor.empty() : tensor<2x5x7x1xf16>
  %fo = linalg.fill ins(%zero : f16) outs(%eo : tensor<2x5x7x1xf16>) -> tensor<2x5x7x1xf16>
  %o = linalg.contract indexing_maps = [#x, #w, #o] ins(%x, %w : tensor<2x5x7x8xf16>, tensor<8x1xf16>)
      outs(%fo : tensor<2x5x7x1xf16>) -> tensor<2x5x7x1xf16>
  return %o : tensor<2x5x7x1xf16>
}

// -----

#a = affine_map<(b, i, j, d) -> (b, i, d)>
#b = affine_map<(b, i, j, d) -> (b, j, d)>
#p = affine_map<(b, i, j, d) -> (b, i, j, d)>
#x = affine_map<(b, i, j, a, d) -> (b, i, j, d)>
#w = affine_map<(b, i, j, a, d) -> (d, a)>
#o = affine_map<(b, i, j, a, d) -> (b, i, j, a)>
// A matrix has more columns than one: the product is made once for all.
// CHECK-LABEL: func.func @matrix
// CHECK: linalg.contract {{.*}} ins(%{{.+}}, %{{.+}} : tensor<2x5x7x8xf32>, tensor<8x3xf32>)
func.func @matrix(%a: tensor<2x5x8xf32>, %b: tensor<2x7x8xf32>, %w: tensor<8x3xf32>) -> tensor<2x5x7x3xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<2x5x7x8xf32>
  %x = linalg.generic {indexing_maps = [#a, #b, #p], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%a, %b : tensor<2x5x8xf32>, tensor<2x7x8xf32>) outs(%e : tensor<2x5x7x8xf32>) {
  ^bb0(%l: f32, %r: f32, %y: f32):
    %m = arith.mulf %l, %r : f32
    linalg.yield %m : f32
  } -> tensor<2x5x7x8xf32>
  %eo = tensor.empty() : tensor<2x5x7x3xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<2x5x7x3xf32>) -> tensor<2x5x7x3xf32>
  %o = linalg.contract indexing_maps = [#x, #w, #o] ins(%x, %w : tensor<2x5x7x8xf32>, tensor<8x3xf32>)
      outs(%fo : tensor<2x5x7x3xf32>) -> tensor<2x5x7x3xf32>
  return %o : tensor<2x5x7x3xf32>
}

// -----

#a = affine_map<(b, i, j, d) -> (b, i, j, d)>
#b = affine_map<(b, i, j, d) -> (b, j, d)>
#p = affine_map<(b, i, j, d) -> (b, i, j, d)>
#x = affine_map<(b, i, j, a, d) -> (b, i, j, d)>
#w = affine_map<(b, i, j, a, d) -> (d, a)>
#o = affine_map<(b, i, j, a, d) -> (b, i, j, a)>
// A factor has an element for each pair: nothing gets smaller.
// CHECK-LABEL: func.func @own_pairs
// CHECK: linalg.contract {{.*}} ins(%{{.+}}, %{{.+}} : tensor<2x5x7x8xf32>, tensor<8x1xf32>)
func.func @own_pairs(%a: tensor<2x5x7x8xf32>, %b: tensor<2x7x8xf32>, %w: tensor<8x1xf32>) -> tensor<2x5x7x1xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<2x5x7x8xf32>
  %x = linalg.generic {indexing_maps = [#a, #b, #p], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%a, %b : tensor<2x5x7x8xf32>, tensor<2x7x8xf32>) outs(%e : tensor<2x5x7x8xf32>) {
  ^bb0(%l: f32, %r: f32, %y: f32):
    %m = arith.mulf %l, %r : f32
    linalg.yield %m : f32
  } -> tensor<2x5x7x8xf32>
  %eo = tensor.empty() : tensor<2x5x7x1xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<2x5x7x1xf32>) -> tensor<2x5x7x1xf32>
  %o = linalg.contract indexing_maps = [#x, #w, #o] ins(%x, %w : tensor<2x5x7x8xf32>, tensor<8x1xf32>)
      outs(%fo : tensor<2x5x7x1xf32>) -> tensor<2x5x7x1xf32>
  return %o : tensor<2x5x7x1xf32>
}

// -----

#a = affine_map<(b, i, j, d) -> (b, i, d)>
#b = affine_map<(b, i, j, d) -> (b, i, d)>
#p = affine_map<(b, i, j, d) -> (b, i, j, d)>
#x = affine_map<(b, i, j, a, d) -> (b, i, j, d)>
#w = affine_map<(b, i, j, a, d) -> (d, a)>
#o = affine_map<(b, i, j, a, d) -> (b, i, j, a)>
// Both are repeated along j, whose size the product alone has.
// CHECK-LABEL: func.func @repeated_both
// CHECK: linalg.contract {{.*}} ins(%{{.+}}, %{{.+}} : tensor<2x5x7x8xf32>, tensor<8x1xf32>)
func.func @repeated_both(%a: tensor<2x5x8xf32>, %b: tensor<2x5x8xf32>, %w: tensor<8x1xf32>) -> tensor<2x5x7x1xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<2x5x7x8xf32>
  %x = linalg.generic {indexing_maps = [#a, #b, #p], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%a, %b : tensor<2x5x8xf32>, tensor<2x5x8xf32>) outs(%e : tensor<2x5x7x8xf32>) {
  ^bb0(%l: f32, %r: f32, %y: f32):
    %m = arith.mulf %l, %r : f32
    linalg.yield %m : f32
  } -> tensor<2x5x7x8xf32>
  %eo = tensor.empty() : tensor<2x5x7x1xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<2x5x7x1xf32>) -> tensor<2x5x7x1xf32>
  %o = linalg.contract indexing_maps = [#x, #w, #o] ins(%x, %w : tensor<2x5x7x8xf32>, tensor<8x1xf32>)
      outs(%fo : tensor<2x5x7x1xf32>) -> tensor<2x5x7x1xf32>
  return %o : tensor<2x5x7x1xf32>
}

// -----

#rep = affine_map<(b, g, k, e) -> (b, k, e)>
#id = affine_map<(b, g, k, e) -> (b, g, k, e)>
#x = affine_map<(b, g, i, e, k) -> (b, g, i, k)>
#v = affine_map<(b, g, i, e, k) -> (b, g, k, e)>
#o = affine_map<(b, g, i, e, k) -> (b, g, i, e)>
// A softmax weighs the keys of a block and some that are repeated for each: one weighted sum, which is an attention.
// CHECK-LABEL: func.func @weights
// CHECK: %[[P:.+]] = attn.softmax
// CHECK: linalg.contract {{.*}} ins(%[[P]], %{{.+}} : tensor<2x3x4x6xf32>, tensor<2x3x6x8xf32>)
// CHECK-NOT: linalg.contract
func.func @weights(%s: tensor<2x3x4x6xf32>, %own: tensor<2x3x4x8xf32>, %all: tensor<2x2x8xf32>) -> tensor<2x3x4x8xf32> {
  %zero = arith.constant 0.0 : f32
  %p = attn.softmax %s dim 3 : tensor<2x3x4x6xf32>
  %er = tensor.empty() : tensor<2x3x2x8xf32>
  %r = linalg.generic {indexing_maps = [#rep, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%all : tensor<2x2x8xf32>) outs(%er : tensor<2x3x2x8xf32>) {
  ^bb0(%e: f32, %y: f32):
    linalg.yield %e : f32
  } -> tensor<2x3x2x8xf32>
  %ec = tensor.empty() : tensor<2x3x6x8xf32>
  %c1 = tensor.insert_slice %own into %ec[0, 0, 0, 0] [2, 3, 4, 8] [1, 1, 1, 1] : tensor<2x3x4x8xf32> into tensor<2x3x6x8xf32>
  %c = tensor.insert_slice %r into %c1[0, 0, 4, 0] [2, 3, 2, 8] [1, 1, 1, 1] : tensor<2x3x2x8xf32> into tensor<2x3x6x8xf32>
  %eo = tensor.empty() : tensor<2x3x4x8xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<2x3x4x8xf32>) -> tensor<2x3x4x8xf32>
  %o = linalg.contract indexing_maps = [#x, #v, #o] ins(%p, %c : tensor<2x3x4x6xf32>, tensor<2x3x6x8xf32>)
      outs(%fo : tensor<2x3x4x8xf32>) -> tensor<2x3x4x8xf32>
  return %o : tensor<2x3x4x8xf32>
}
