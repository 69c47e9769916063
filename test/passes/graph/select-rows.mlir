// RUN: attn-opt %s -attn-select-rows -split-input-file | FileCheck %s

#p = affine_map<(i, e, j) -> (i, j)>
#v = affine_map<(i, e, j) -> (j, e)>
#o = affine_map<(i, e, j) -> (i, e)>
#i = affine_map<(i, j) -> (i)>
#ij = affine_map<(i, j) -> (i, j)>
// CHECK-LABEL: func.func @one_hot
// CHECK: %[[Y:.+]] = linalg.generic {{.*}} ins(%arg0 : tensor<?xi64>) outs(%{{.+}} : tensor<?x8xf32>)
// CHECK: arith.cmpi ult
// CHECK: tensor.extract %arg1[%{{.+}}, %{{.+}}] : tensor<56x8xf32>
// CHECK: arith.select
// CHECK: return %[[Y]]
func.func @one_hot(%at: tensor<?xi64>, %v: tensor<56x8xf32>, %n: index) -> tensor<?x8xf32> {
  %zero = arith.constant 0.0 : f32
  %one = arith.constant 1.0 : f32
  %e = tensor.empty(%n) : tensor<?x56xf32>
  %h = linalg.generic {indexing_maps = [#i, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%at : tensor<?xi64>) outs(%e : tensor<?x56xf32>) {
  ^bb0(%a: i64, %x: f32):
    %j = linalg.index 1 : index
    %b = arith.index_cast %a : i64 to index
    %c = arith.cmpi eq, %j, %b : index
    %y = arith.select %c, %one, %zero : f32
    linalg.yield %y : f32
  } -> tensor<?x56xf32>
  %eo = tensor.empty(%n) : tensor<?x8xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<?x8xf32>) -> tensor<?x8xf32>
  %o = linalg.contract indexing_maps = [#p, #v, #o] ins(%h, %v : tensor<?x56xf32>, tensor<56x8xf32>)
      outs(%fo : tensor<?x8xf32>) -> tensor<?x8xf32>
  return %o : tensor<?x8xf32>
}

// -----

#p = affine_map<(i, e, j) -> (i, j)>
#v = affine_map<(i, e, j) -> (j, e)>
#o = affine_map<(i, e, j) -> (i, e)>
#i = affine_map<(i, j) -> (i)>
#ij = affine_map<(i, j) -> (i, j)>
// There may be no row to read; and ones up to a position are not one.
// CHECK-LABEL: func.func @unknown_number
// CHECK: linalg.contract
func.func @unknown_number(%at: tensor<4xi64>, %v: tensor<?x8xf32>, %n: index) -> tensor<4x8xf32> {
  %zero = arith.constant 0.0 : f32
  %one = arith.constant 1.0 : f32
  %e = tensor.empty(%n) : tensor<4x?xf32>
  %h = linalg.generic {indexing_maps = [#i, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%at : tensor<4xi64>) outs(%e : tensor<4x?xf32>) {
  ^bb0(%a: i64, %x: f32):
    %j = linalg.index 1 : index
    %b = arith.index_cast %a : i64 to index
    %c = arith.cmpi eq, %j, %b : index
    %y = arith.select %c, %one, %zero : f32
    linalg.yield %y : f32
  } -> tensor<4x?xf32>
  %eo = tensor.empty() : tensor<4x8xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<4x8xf32>) -> tensor<4x8xf32>
  %o = linalg.contract indexing_maps = [#p, #v, #o] ins(%h, %v : tensor<4x?xf32>, tensor<?x8xf32>)
      outs(%fo : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %o : tensor<4x8xf32>
}
// CHECK-LABEL: func.func @up_to
// CHECK: linalg.contract
func.func @up_to(%at: tensor<4xi64>, %v: tensor<56x8xf32>) -> tensor<4x8xf32> {
  %zero = arith.constant 0.0 : f32
  %one = arith.constant 1.0 : f32
  %e = tensor.empty() : tensor<4x56xf32>
  %h = linalg.generic {indexing_maps = [#i, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%at : tensor<4xi64>) outs(%e : tensor<4x56xf32>) {
  ^bb0(%a: i64, %x: f32):
    %j = linalg.index 1 : index
    %b = arith.index_cast %a : i64 to index
    %c = arith.cmpi sle, %j, %b : index
    %y = arith.select %c, %one, %zero : f32
    linalg.yield %y : f32
  } -> tensor<4x56xf32>
  %eo = tensor.empty() : tensor<4x8xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<4x8xf32>) -> tensor<4x8xf32>
  %o = linalg.contract indexing_maps = [#p, #v, #o] ins(%h, %v : tensor<4x56xf32>, tensor<56x8xf32>)
      outs(%fo : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %o : tensor<4x8xf32>
}
