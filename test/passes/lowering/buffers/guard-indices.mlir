// RUN: attn-opt %s --attn-guard-indices --canonicalize --split-input-file | FileCheck %s

// A table that may have no rows, read at ids of which there may be none.
// CHECK-LABEL: func.func @dynamic(
// CHECK-SAME: %[[TABLE:.*]]: tensor<?x4xf32>, %[[IDS:.*]]: tensor<?xi64>
// CHECK: %[[N:.*]] = tensor.dim %[[TABLE]], %c0
// CHECK: %[[POSITIVE:.*]] = arith.cmpi sgt, %[[N]], %c0
// CHECK: %[[HOLDS:.*]] = arith.ori %[[POSITIVE]]
// CHECK: attn.require %[[HOLDS]], "node 'emb' (Gather): an index into a dimension of size {0}"(%[[N]])
// CHECK: linalg.generic
#row = affine_map<(i, j) -> (i)>
#all = affine_map<(i, j) -> (i, j)>
func.func @dynamic(%table: tensor<?x4xf32>, %ids: tensor<?xi64>, %init: tensor<?x4xf32>) -> tensor<?x4xf32>
    attributes {attn.entry} {
  %c0 = arith.constant 0 : index
  %n = tensor.dim %table, %c0 : tensor<?x4xf32>
  %y = linalg.generic {indexing_maps = [#row, #all], iterator_types = ["parallel", "parallel"]}
      ins(%ids : tensor<?xi64>) outs(%init : tensor<?x4xf32>) {
  ^bb0(%id: i64, %o: f32):
    %i = arith.index_cast %id : i64 to index
    %k = attn.check_index %i, %n, "node 'emb' (Gather)" : index
    %j = linalg.index 1 : index
    %v = tensor.extract %table[%k, %j] : tensor<?x4xf32>
    linalg.yield %v : f32
  } -> tensor<?x4xf32>
  return %y : tensor<?x4xf32>
}

// -----

// Known to have rows: nothing to require.
// CHECK-LABEL: func.func @known
// CHECK-NOT: attn.require
#id = affine_map<(i) -> (i)>
func.func @known(%table: tensor<7xf32>, %ids: tensor<?xi64>, %init: tensor<?xf32>) -> tensor<?xf32>
    attributes {attn.entry} {
  %n = arith.constant 7 : index
  %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
      ins(%ids : tensor<?xi64>) outs(%init : tensor<?xf32>) {
  ^bb0(%id: i64, %o: f32):
    %i = arith.index_cast %id : i64 to index
    %k = attn.check_index %i, %n, "node 'emb' (Gather)" : index
    %v = tensor.extract %table[%k] : tensor<7xf32>
    linalg.yield %v : f32
  } -> tensor<?xf32>
  return %y : tensor<?xf32>
}

// -----

// Known to have none, read by three ids: never.
// CHECK-LABEL: func.func @empty
// CHECK: %[[NEVER:.*]] = arith.constant false
// CHECK: attn.require %[[NEVER]]
#id = affine_map<(i) -> (i)>
func.func @empty(%table: tensor<0xf32>, %ids: tensor<3xi64>, %init: tensor<3xf32>) -> tensor<3xf32>
    attributes {attn.entry} {
  %n = arith.constant 0 : index
  %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
      ins(%ids : tensor<3xi64>) outs(%init : tensor<3xf32>) {
  ^bb0(%id: i64, %o: f32):
    %i = arith.index_cast %id : i64 to index
    %k = attn.check_index %i, %n, "node 'emb' (Gather)" : index
    %v = tensor.extract %table[%k] : tensor<0xf32>
    linalg.yield %v : f32
  } -> tensor<3xf32>
  return %y : tensor<3xf32>
}

// -----

// No ids: a table of any size will do.
// CHECK-LABEL: func.func @never
// CHECK: %[[ALWAYS:.*]] = arith.constant true
// CHECK: attn.require %[[ALWAYS]]
#id = affine_map<(i) -> (i)>
func.func @never(%table: tensor<?xf32>, %ids: tensor<0xi64>, %init: tensor<0xf32>) -> tensor<0xf32>
    attributes {attn.entry} {
  %c0 = arith.constant 0 : index
  %n = tensor.dim %table, %c0 : tensor<?xf32>
  %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
      ins(%ids : tensor<0xi64>) outs(%init : tensor<0xf32>) {
  ^bb0(%id: i64, %o: f32):
    %i = arith.index_cast %id : i64 to index
    %k = attn.check_index %i, %n, "node 'emb' (Gather)" : index
    %v = tensor.extract %table[%k] : tensor<?xf32>
    linalg.yield %v : f32
  } -> tensor<0xf32>
  return %y : tensor<0xf32>
}

// -----

// Outside an op that iterates, the check itself is guarded.
// CHECK-LABEL: func.func @scalar
// CHECK: attn.require %{{.*}}, "node 'g' (Gather): an index into a dimension of size {0}"
// CHECK: attn.check_index
func.func @scalar(%table: tensor<?xf32>, %i: index) -> tensor<1xf32> attributes {attn.entry} {
  %c0 = arith.constant 0 : index
  %n = tensor.dim %table, %c0 : tensor<?xf32>
  %k = attn.check_index %i, %n, "node 'g' (Gather)" : index
  %v = tensor.extract %table[%k] : tensor<?xf32>
  %y = tensor.from_elements %v : tensor<1xf32>
  return %y : tensor<1xf32>
}
