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

// -----

#p = affine_map<(i, e, j) -> (i, j)>
#v = affine_map<(i, e, j) -> (j, e)>
#o = affine_map<(i, e, j) -> (i, e)>
#i = affine_map<(i, j) -> (i)>
#ij = affine_map<(i, j) -> (i, j)>
#j = affine_map<(i, j) -> (j)>
// Bytes that count to 199 are read without a sign.
// CHECK-LABEL: func.func @bytes
// CHECK: arith.index_castui {{.*}} : i8 to index
// CHECK: tensor.extract
func.func @bytes(%at: tensor<?xi8>, %v: tensor<200x8xf32>, %n: index) -> tensor<?x8xf32> {
  %table = arith.constant dense<[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63, 64, 65, 66, 67, 68, 69, 70, 71, 72, 73, 74, 75, 76, 77, 78, 79, 80, 81, 82, 83, 84, 85, 86, 87, 88, 89, 90, 91, 92, 93, 94, 95, 96, 97, 98, 99, 100, 101, 102, 103, 104, 105, 106, 107, 108, 109, 110, 111, 112, 113, 114, 115, 116, 117, 118, 119, 120, 121, 122, 123, 124, 125, 126, 127, -128, -127, -126, -125, -124, -123, -122, -121, -120, -119, -118, -117, -116, -115, -114, -113, -112, -111, -110, -109, -108, -107, -106, -105, -104, -103, -102, -101, -100, -99, -98, -97, -96, -95, -94, -93, -92, -91, -90, -89, -88, -87, -86, -85, -84, -83, -82, -81, -80, -79, -78, -77, -76, -75, -74, -73, -72, -71, -70, -69, -68, -67, -66, -65, -64, -63, -62, -61, -60, -59, -58, -57]> : tensor<200xi8>
  %zero = arith.constant 0.0 : f32
  %one = arith.constant 1.0 : f32
  %e = tensor.empty(%n) : tensor<?x200xf32>
  %h = linalg.generic {indexing_maps = [#i, #j, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%at, %table : tensor<?xi8>, tensor<200xi8>) outs(%e : tensor<?x200xf32>) {
  ^bb0(%a: i8, %t: i8, %x: f32):
    %c = arith.cmpi eq, %t, %a : i8
    %y = arith.select %c, %one, %zero : f32
    linalg.yield %y : f32
  } -> tensor<?x200xf32>
  %eo = tensor.empty(%n) : tensor<?x8xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<?x8xf32>) -> tensor<?x8xf32>
  %o = linalg.contract indexing_maps = [#p, #v, #o] ins(%h, %v : tensor<?x200xf32>, tensor<200x8xf32>)
      outs(%fo : tensor<?x8xf32>) -> tensor<?x8xf32>
  return %o : tensor<?x8xf32>
}
// Near miss: places that a byte with a sign does not hold.
// CHECK-LABEL: func.func @wrapped
// CHECK: linalg.contract
func.func @wrapped(%at: tensor<?xi8>, %v: tensor<200x8xf32>, %n: index) -> tensor<?x8xf32> {
  %zero = arith.constant 0.0 : f32
  %one = arith.constant 1.0 : f32
  %e = tensor.empty(%n) : tensor<?x200xf32>
  %h = linalg.generic {indexing_maps = [#i, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%at : tensor<?xi8>) outs(%e : tensor<?x200xf32>) {
  ^bb0(%a: i8, %x: f32):
    %j = linalg.index 1 : index
    %b = arith.index_cast %j : index to i8
    %c = arith.cmpi eq, %b, %a : i8
    %y = arith.select %c, %one, %zero : f32
    linalg.yield %y : f32
  } -> tensor<?x200xf32>
  %eo = tensor.empty(%n) : tensor<?x8xf32>
  %fo = linalg.fill ins(%zero : f32) outs(%eo : tensor<?x8xf32>) -> tensor<?x8xf32>
  %o = linalg.contract indexing_maps = [#p, #v, #o] ins(%h, %v : tensor<?x200xf32>, tensor<200x8xf32>)
      outs(%fo : tensor<?x8xf32>) -> tensor<?x8xf32>
  return %o : tensor<?x8xf32>
}
