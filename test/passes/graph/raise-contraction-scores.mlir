// RUN: attn-opt %s -attn-raise-contraction -canonicalize -cse -split-input-file | FileCheck %s

#id = affine_map<(b, i, j) -> (b, i, j)>
#key = affine_map<(b, i, j) -> (j)>
#q = affine_map<(b, i, j, d) -> (b, i, d)>
#k = affine_map<(b, i, j, d) -> (b, j, d)>
#g = affine_map<(b, i, j, d) -> (j, d)>
#s = affine_map<(b, i, j, d) -> (b, i, j)>
// Keys that all blocks share, and those of a block, each with a factor and a mask of its own: the scores of one tensor.
// CHECK-LABEL: func.func @global_and_local
// CHECK-SAME: %[[Q:[^:]+]]: tensor<3x4x8xf32>, %[[G:[^:]+]]: tensor<2x8xf32>, %[[K:[^:]+]]: tensor<3x5x8xf32>, %[[V:[^:]+]]: tensor<3x7x8xf32>, %[[M:[^:]+]]: tensor<2xf32>, %[[N:[^:]+]]: tensor<5xf32>
// CHECK: %[[GS:.+]] = linalg.generic {{.*}} ins(%[[G]] : tensor<2x8xf32>) outs(%{{.+}} : tensor<3x2x8xf32>)
// CHECK: %[[A:.+]] = tensor.insert_slice %[[GS]] into %{{.+}}[0, 0, 0] [3, 2, 8]
// CHECK: %[[B:.+]] = tensor.insert_slice %[[K]] into %[[A]][0, 2, 0] [3, 5, 8]
// CHECK: %[[P:.+]] = linalg.contract {{.*}} ins(%[[Q]], %[[B]] : tensor<3x4x8xf32>, tensor<3x7x8xf32>)
// CHECK: %[[X:.+]] = tensor.insert_slice %[[M]] into %{{.+}}[0] [2]
// CHECK: %[[Y:.+]] = tensor.insert_slice %[[N]] into %[[X]][2] [5]
// CHECK: %[[S:.+]] = linalg.generic {{.*}} ins(%[[P]], %[[Y]] : tensor<3x4x7xf32>, tensor<7xf32>)
// CHECK: attn.softmax %[[S]] dim 2
func.func @global_and_local(%query: tensor<3x4x8xf32>, %global: tensor<2x8xf32>, %local: tensor<3x5x8xf32>,
                            %values: tensor<3x7x8xf32>, %m: tensor<2xf32>, %n: tensor<5xf32>) -> tensor<3x4x8xf32> {
  %zero = arith.constant 0.0 : f32
  %half = arith.constant 0.5 : f32
  %e2 = tensor.empty() : tensor<3x4x2xf32>
  %e5 = tensor.empty() : tensor<3x4x5xf32>
  %e7 = tensor.empty() : tensor<3x4x7xf32>
  %e8 = tensor.empty() : tensor<3x4x8xf32>
  %f2 = linalg.fill ins(%zero : f32) outs(%e2 : tensor<3x4x2xf32>) -> tensor<3x4x2xf32>
  %f5 = linalg.fill ins(%zero : f32) outs(%e5 : tensor<3x4x5xf32>) -> tensor<3x4x5xf32>
  %f8 = linalg.fill ins(%zero : f32) outs(%e8 : tensor<3x4x8xf32>) -> tensor<3x4x8xf32>
  %p1 = linalg.contract indexing_maps = [#q, #g, #s] ins(%query, %global : tensor<3x4x8xf32>, tensor<2x8xf32>)
      outs(%f2 : tensor<3x4x2xf32>) -> tensor<3x4x2xf32>
  %p2 = linalg.contract indexing_maps = [#q, #k, #s] ins(%query, %local : tensor<3x4x8xf32>, tensor<3x5x8xf32>)
      outs(%f5 : tensor<3x4x5xf32>) -> tensor<3x4x5xf32>
  %s1 = linalg.generic {indexing_maps = [#id, #key, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%p1, %m : tensor<3x4x2xf32>, tensor<2xf32>) outs(%e2 : tensor<3x4x2xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %r = arith.mulf %x, %half : f32
    %t = arith.addf %r, %y : f32
    linalg.yield %t : f32
  } -> tensor<3x4x2xf32>
  %s2 = linalg.generic {indexing_maps = [#id, #key, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%p2, %n : tensor<3x4x5xf32>, tensor<5xf32>) outs(%e5 : tensor<3x4x5xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %r = arith.mulf %x, %half : f32
    %t = arith.addf %r, %y : f32
    linalg.yield %t : f32
  } -> tensor<3x4x5xf32>
  %a = tensor.insert_slice %s1 into %e7[0, 0, 0] [3, 4, 2] [1, 1, 1] : tensor<3x4x2xf32> into tensor<3x4x7xf32>
  %c = tensor.insert_slice %s2 into %a[0, 0, 2] [3, 4, 5] [1, 1, 1] : tensor<3x4x5xf32> into tensor<3x4x7xf32>
  %w = attn.softmax %c dim 2 : tensor<3x4x7xf32>
  %y = linalg.contract indexing_maps = [affine_map<(b, i, e, j) -> (b, i, j)>, affine_map<(b, i, e, j) -> (b, j, e)>,
                                        affine_map<(b, i, e, j) -> (b, i, e)>]
      ins(%w, %values : tensor<3x4x7xf32>, tensor<3x7x8xf32>) outs(%f8 : tensor<3x4x8xf32>) -> tensor<3x4x8xf32>
  return %y : tensor<3x4x8xf32>
}

// -----

#id = affine_map<(i, j) -> (i, j)>
#q = affine_map<(i, j, d) -> (i, d)>
#k = affine_map<(i, j, d) -> (j, d)>
#t = affine_map<(i, j, d) -> (d, j)>
#s = affine_map<(i, j, d) -> (i, j)>
#v = affine_map<(i, e, j) -> (j, e)>
#w = affine_map<(i, e, j) -> (i, j)>
#o = affine_map<(i, e, j) -> (i, e)>
// Keys that are slices of one tensor, side by side, stay where they are; so do transposed ones. What is done to all
// scores stays behind the product.
// CHECK-LABEL: func.func @slices
// CHECK-SAME: %[[Q:[^:]+]]: tensor<4x8xf32>, %[[K:[^:]+]]: tensor<9x8xf32>
// CHECK-NOT: insert_slice
// CHECK: %[[KS:.+]] = tensor.extract_slice %[[K]][1, 0] [7, 8]
// CHECK: %[[P:.+]] = linalg.contract {{.*}} ins(%[[Q]], %[[KS]] : tensor<4x8xf32>, tensor<7x8xf32>)
// CHECK: %[[N:.+]] = linalg.generic {{.*}} ins(%[[P]] : tensor<4x7xf32>)
// CHECK: attn.softmax %[[N]]
func.func @slices(%query: tensor<4x8xf32>, %keys: tensor<9x8xf32>, %values: tensor<7x8xf32>) -> tensor<4x8xf32> {
  %zero = arith.constant 0.0 : f32
  %e2 = tensor.empty() : tensor<4x2xf32>
  %e5 = tensor.empty() : tensor<4x5xf32>
  %e7 = tensor.empty() : tensor<4x7xf32>
  %e8 = tensor.empty() : tensor<4x8xf32>
  %et = tensor.empty() : tensor<8x5xf32>
  %f2 = linalg.fill ins(%zero : f32) outs(%e2 : tensor<4x2xf32>) -> tensor<4x2xf32>
  %f5 = linalg.fill ins(%zero : f32) outs(%e5 : tensor<4x5xf32>) -> tensor<4x5xf32>
  %f8 = linalg.fill ins(%zero : f32) outs(%e8 : tensor<4x8xf32>) -> tensor<4x8xf32>
  %k1 = tensor.extract_slice %keys[1, 0] [2, 8] [1, 1] : tensor<9x8xf32> to tensor<2x8xf32>
  %k2 = tensor.extract_slice %keys[3, 0] [5, 8] [1, 1] : tensor<9x8xf32> to tensor<5x8xf32>
  %kt = linalg.transpose ins(%k2 : tensor<5x8xf32>) outs(%et : tensor<8x5xf32>) permutation = [1, 0]
  %p1 = linalg.contract indexing_maps = [#q, #k, #s] ins(%query, %k1 : tensor<4x8xf32>, tensor<2x8xf32>)
      outs(%f2 : tensor<4x2xf32>) -> tensor<4x2xf32>
  %p2 = linalg.contract indexing_maps = [#q, #t, #s] ins(%query, %kt : tensor<4x8xf32>, tensor<8x5xf32>)
      outs(%f5 : tensor<4x5xf32>) -> tensor<4x5xf32>
  %a = tensor.insert_slice %p2 into %e7[0, 2] [4, 5] [1, 1] : tensor<4x5xf32> into tensor<4x7xf32>
  %c = tensor.insert_slice %p1 into %a[0, 0] [4, 2] [1, 1] : tensor<4x2xf32> into tensor<4x7xf32>
  %n = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%c : tensor<4x7xf32>) outs(%e7 : tensor<4x7xf32>) {
  ^bb0(%x: f32, %o: f32):
    %r = math.tanh %x : f32
    linalg.yield %r : f32
  } -> tensor<4x7xf32>
  %w = attn.softmax %n dim 1 : tensor<4x7xf32>
  %y = linalg.contract indexing_maps = [#w, #v, #o] ins(%w, %values : tensor<4x7xf32>, tensor<7x8xf32>)
      outs(%f8 : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}

// -----

#id = affine_map<(i, j) -> (i, j)>
#q = affine_map<(i, j, d) -> (i, d)>
#k = affine_map<(i, j, d) -> (j, d)>
#s = affine_map<(i, j, d) -> (i, j)>
#v = affine_map<(i, e, j) -> (j, e)>
#w = affine_map<(i, e, j) -> (i, j)>
#o = affine_map<(i, e, j) -> (i, e)>
// Other queries.
// CHECK-LABEL: func.func @other_queries
// CHECK-COUNT-2: tensor<4x8xf32>, tensor<3x8xf32>) outs
// CHECK: attn.softmax %{{.*}}slice
func.func @other_queries(%x: tensor<4x8xf32>, %y: tensor<4x8xf32>, %k1: tensor<3x8xf32>, %k2: tensor<3x8xf32>,
                         %values: tensor<6x8xf32>) -> tensor<4x8xf32> {
  %zero = arith.constant 0.0 : f32
  %e3 = tensor.empty() : tensor<4x3xf32>
  %e6 = tensor.empty() : tensor<4x6xf32>
  %e8 = tensor.empty() : tensor<4x8xf32>
  %f3 = linalg.fill ins(%zero : f32) outs(%e3 : tensor<4x3xf32>) -> tensor<4x3xf32>
  %f8 = linalg.fill ins(%zero : f32) outs(%e8 : tensor<4x8xf32>) -> tensor<4x8xf32>
  %p1 = linalg.contract indexing_maps = [#q, #k, #s] ins(%x, %k1 : tensor<4x8xf32>, tensor<3x8xf32>)
      outs(%f3 : tensor<4x3xf32>) -> tensor<4x3xf32>
  %p2 = linalg.contract indexing_maps = [#q, #k, #s] ins(%y, %k2 : tensor<4x8xf32>, tensor<3x8xf32>)
      outs(%f3 : tensor<4x3xf32>) -> tensor<4x3xf32>
  %a = tensor.insert_slice %p1 into %e6[0, 0] [4, 3] [1, 1] : tensor<4x3xf32> into tensor<4x6xf32>
  %c = tensor.insert_slice %p2 into %a[0, 3] [4, 3] [1, 1] : tensor<4x3xf32> into tensor<4x6xf32>
  %w = attn.softmax %c dim 1 : tensor<4x6xf32>
  %r = linalg.contract indexing_maps = [#w, #v, #o] ins(%w, %values : tensor<4x6xf32>, tensor<6x8xf32>)
      outs(%f8 : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %r : tensor<4x8xf32>
}

// -----

#id = affine_map<(i, j) -> (i, j)>
#q = affine_map<(i, j, d) -> (i, d)>
#k = affine_map<(i, j, d) -> (j, d)>
#s = affine_map<(i, j, d) -> (i, j)>
#v = affine_map<(i, e, j) -> (j, e)>
#w = affine_map<(i, e, j) -> (i, j)>
#o = affine_map<(i, e, j) -> (i, e)>
// Another factor for each part, and parts that do not lie side by side.
// CHECK-LABEL: func.func @other_factor
// CHECK-COUNT-2: tensor<4x8xf32>, tensor<3x8xf32>) outs
// CHECK: attn.softmax %{{.*}}slice
func.func @other_factor(%x: tensor<4x8xf32>, %k1: tensor<3x8xf32>, %k2: tensor<3x8xf32>,
                        %values: tensor<6x8xf32>) -> tensor<4x8xf32> {
  %zero = arith.constant 0.0 : f32
  %half = arith.constant 0.5 : f32
  %quarter = arith.constant 0.25 : f32
  %e3 = tensor.empty() : tensor<4x3xf32>
  %e6 = tensor.empty() : tensor<4x6xf32>
  %e8 = tensor.empty() : tensor<4x8xf32>
  %f3 = linalg.fill ins(%zero : f32) outs(%e3 : tensor<4x3xf32>) -> tensor<4x3xf32>
  %f8 = linalg.fill ins(%zero : f32) outs(%e8 : tensor<4x8xf32>) -> tensor<4x8xf32>
  %p1 = linalg.contract indexing_maps = [#q, #k, #s] ins(%x, %k1 : tensor<4x8xf32>, tensor<3x8xf32>)
      outs(%f3 : tensor<4x3xf32>) -> tensor<4x3xf32>
  %p2 = linalg.contract indexing_maps = [#q, #k, #s] ins(%x, %k2 : tensor<4x8xf32>, tensor<3x8xf32>)
      outs(%f3 : tensor<4x3xf32>) -> tensor<4x3xf32>
  %s1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%p1 : tensor<4x3xf32>) outs(%e3 : tensor<4x3xf32>) {
  ^bb0(%p: f32, %o: f32):
    %r = arith.mulf %p, %half : f32
    linalg.yield %r : f32
  } -> tensor<4x3xf32>
  %s2 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%p2 : tensor<4x3xf32>) outs(%e3 : tensor<4x3xf32>) {
  ^bb0(%p: f32, %o: f32):
    %r = arith.mulf %p, %quarter : f32
    linalg.yield %r : f32
  } -> tensor<4x3xf32>
  %a = tensor.insert_slice %s1 into %e6[0, 0] [4, 3] [1, 1] : tensor<4x3xf32> into tensor<4x6xf32>
  %c = tensor.insert_slice %s2 into %a[0, 3] [4, 3] [1, 1] : tensor<4x3xf32> into tensor<4x6xf32>
  %w = attn.softmax %c dim 1 : tensor<4x6xf32>
  %r = linalg.contract indexing_maps = [#w, #v, #o] ins(%w, %values : tensor<4x6xf32>, tensor<6x8xf32>)
      outs(%f8 : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %r : tensor<4x8xf32>
}

// CHECK-LABEL: func.func @overlapping
// CHECK-COUNT-2: tensor<4x8xf32>, tensor<3x8xf32>) outs
// CHECK: attn.softmax %{{.*}}slice
func.func @overlapping(%x: tensor<4x8xf32>, %k1: tensor<3x8xf32>, %k2: tensor<3x8xf32>,
                       %values: tensor<5x8xf32>) -> tensor<4x8xf32> {
  %zero = arith.constant 0.0 : f32
  %e3 = tensor.empty() : tensor<4x3xf32>
  %e5 = tensor.empty() : tensor<4x5xf32>
  %e8 = tensor.empty() : tensor<4x8xf32>
  %f3 = linalg.fill ins(%zero : f32) outs(%e3 : tensor<4x3xf32>) -> tensor<4x3xf32>
  %f8 = linalg.fill ins(%zero : f32) outs(%e8 : tensor<4x8xf32>) -> tensor<4x8xf32>
  %p1 = linalg.contract indexing_maps = [#q, #k, #s] ins(%x, %k1 : tensor<4x8xf32>, tensor<3x8xf32>)
      outs(%f3 : tensor<4x3xf32>) -> tensor<4x3xf32>
  %p2 = linalg.contract indexing_maps = [#q, #k, #s] ins(%x, %k2 : tensor<4x8xf32>, tensor<3x8xf32>)
      outs(%f3 : tensor<4x3xf32>) -> tensor<4x3xf32>
  %a = tensor.insert_slice %p1 into %e5[0, 0] [4, 3] [1, 1] : tensor<4x3xf32> into tensor<4x5xf32>
  %c = tensor.insert_slice %p2 into %a[0, 2] [4, 3] [1, 1] : tensor<4x3xf32> into tensor<4x5xf32>
  %w = attn.softmax %c dim 1 : tensor<4x5xf32>
  %r = linalg.contract indexing_maps = [#w, #v, #o] ins(%w, %values : tensor<4x5xf32>, tensor<5x8xf32>)
      outs(%f8 : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %r : tensor<4x8xf32>
}

// -----

#q = affine_map<(h, w, j, d) -> (h, w, d)>
#row = affine_map<(h, w, j, d) -> (h, j, d)>
#column = affine_map<(h, w, j, d) -> (w, j, d)>
#s = affine_map<(h, w, j, d) -> (h, w, j)>
// A pixel's row and its column: each would get keys of its own.
// CHECK-LABEL: func.func @criss_cross
// CHECK-COUNT-2: tensor<5x4x8xf32>, tensor<{{.}}x3x8xf32>) outs
// CHECK: attn.softmax %{{.*}}slice
func.func @criss_cross(%x: tensor<5x4x8xf32>, %rows: tensor<5x3x8xf32>, %columns: tensor<4x3x8xf32>,
                       %values: tensor<6x8xf32>) -> tensor<5x4x8xf32> {
  %zero = arith.constant 0.0 : f32
  %e3 = tensor.empty() : tensor<5x4x3xf32>
  %e6 = tensor.empty() : tensor<5x4x6xf32>
  %e8 = tensor.empty() : tensor<5x4x8xf32>
  %f3 = linalg.fill ins(%zero : f32) outs(%e3 : tensor<5x4x3xf32>) -> tensor<5x4x3xf32>
  %f8 = linalg.fill ins(%zero : f32) outs(%e8 : tensor<5x4x8xf32>) -> tensor<5x4x8xf32>
  %p1 = linalg.contract indexing_maps = [#q, #row, #s] ins(%x, %rows : tensor<5x4x8xf32>, tensor<5x3x8xf32>)
      outs(%f3 : tensor<5x4x3xf32>) -> tensor<5x4x3xf32>
  %p2 = linalg.contract indexing_maps = [#q, #column, #s] ins(%x, %columns : tensor<5x4x8xf32>, tensor<4x3x8xf32>)
      outs(%f3 : tensor<5x4x3xf32>) -> tensor<5x4x3xf32>
  %a = tensor.insert_slice %p1 into %e6[0, 0, 0] [5, 4, 3] [1, 1, 1] : tensor<5x4x3xf32> into tensor<5x4x6xf32>
  %c = tensor.insert_slice %p2 into %a[0, 0, 3] [5, 4, 3] [1, 1, 1] : tensor<5x4x3xf32> into tensor<5x4x6xf32>
  %w = attn.softmax %c dim 2 : tensor<5x4x6xf32>
  %r = linalg.contract indexing_maps = [affine_map<(h, w, e, j) -> (h, w, j)>, affine_map<(h, w, e, j) -> (j, e)>,
                                        affine_map<(h, w, e, j) -> (h, w, e)>]
      ins(%w, %values : tensor<5x4x6xf32>, tensor<6x8xf32>) outs(%f8 : tensor<5x4x8xf32>) -> tensor<5x4x8xf32>
  return %r : tensor<5x4x8xf32>
}
