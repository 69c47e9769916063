// RUN: attn-opt %s -attn-split-elementwise -attn-fuse-elementwise -canonicalize -cse -split-input-file | FileCheck %s

#all = affine_map<(b, h, s, d) -> (b, h, s, d)>
#angle = affine_map<(b, h, s, d) -> (s, d)>
// A rotary embedding of halves, behind a transpose: two loops over halves of the projection.
// CHECK-LABEL: func.func @rotary
// CHECK-SAME: (%[[X:.+]]: tensor<2x?x4x8xf32>, %[[COS:.+]]: tensor<?x8xf32>, %[[SIN:.+]]: tensor<?x8xf32>)
// CHECK-NOT: linalg.transpose
// CHECK-DAG: %[[X0:.+]] = tensor.extract_slice %[[X]][0, 0, 0, 0] [2, %{{.+}}, 4, 4]
// CHECK-DAG: %[[X1:.+]] = tensor.extract_slice %[[X]][0, 0, 0, 4] [2, %{{.+}}, 4, 4]
// CHECK-DAG: %[[C0:.+]] = tensor.extract_slice %[[COS]][0, 0] [%{{.+}}, 4]
// CHECK-DAG: %[[C1:.+]] = tensor.extract_slice %[[COS]][0, 4] [%{{.+}}, 4]
// CHECK-DAG: %[[A:.+]] = linalg.generic {{.*}} ins(%[[X0]], %[[C0]], %[[X1]], %{{.+}} :
// CHECK-DAG: %[[B:.+]] = linalg.generic {{.*}} ins(%[[X1]], %[[C1]], %[[X0]], %{{.+}} :
// CHECK-DAG: %[[P:.+]] = tensor.insert_slice %[[A]] into %{{.+}}[0, 0, 0, 0]
// CHECK: %[[R:.+]] = tensor.insert_slice %[[B]] into %[[P]][0, 0, 0, 4]
// CHECK: return %[[R]]
func.func @rotary(%x: tensor<2x?x4x8xf32>, %cos: tensor<?x8xf32>, %sin: tensor<?x8xf32>) -> tensor<2x4x?x8xf32> {
  %c1 = arith.constant 1 : index
  %s = tensor.dim %x, %c1 : tensor<2x?x4x8xf32>
  %e = tensor.empty(%s) : tensor<2x4x?x8xf32>
  %h = tensor.empty(%s) : tensor<2x4x?x4xf32>
  %t = linalg.transpose ins(%x : tensor<2x?x4x8xf32>) outs(%e : tensor<2x4x?x8xf32>) permutation = [0, 2, 1, 3]
  %x0 = tensor.extract_slice %t[0, 0, 0, 0] [2, 4, %s, 4] [1, 1, 1, 1] : tensor<2x4x?x8xf32> to tensor<2x4x?x4xf32>
  %x1 = tensor.extract_slice %t[0, 0, 0, 4] [2, 4, %s, 4] [1, 1, 1, 1] : tensor<2x4x?x8xf32> to tensor<2x4x?x4xf32>
  %m = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%x1 : tensor<2x4x?x4xf32>) outs(%h : tensor<2x4x?x4xf32>) {
  ^bb0(%a: f32, %o: f32):
    %n = arith.negf %a : f32
    linalg.yield %n : f32
  } -> tensor<2x4x?x4xf32>
  %r0 = tensor.insert_slice %m into %e[0, 0, 0, 0] [2, 4, %s, 4] [1, 1, 1, 1] : tensor<2x4x?x4xf32> into tensor<2x4x?x8xf32>
  %r1 = tensor.insert_slice %x0 into %r0[0, 0, 0, 4] [2, 4, %s, 4] [1, 1, 1, 1] : tensor<2x4x?x4xf32> into tensor<2x4x?x8xf32>
  %y = linalg.generic {indexing_maps = [#all, #angle, #all, #angle, #all], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%t, %cos, %r1, %sin : tensor<2x4x?x8xf32>, tensor<?x8xf32>, tensor<2x4x?x8xf32>, tensor<?x8xf32>) outs(%e : tensor<2x4x?x8xf32>) {
  ^bb0(%a: f32, %c: f32, %b: f32, %d: f32, %o: f32):
    %0 = arith.mulf %a, %c : f32
    %1 = arith.mulf %b, %d : f32
    %2 = arith.addf %0, %1 : f32
    linalg.yield %2 : f32
  } -> tensor<2x4x?x8xf32>
  return %y : tensor<2x4x?x8xf32>
}

// -----

#all = affine_map<(s, d) -> (s, d)>
// The concatenation is read twice.
// CHECK-LABEL: func.func @read_twice
// CHECK: tensor.insert_slice
// CHECK: %[[R:.+]] = tensor.insert_slice
// CHECK: linalg.generic {{.*}} ins(%[[R]] : tensor<3x8xf32>)
func.func @read_twice(%x: tensor<3x8xf32>) -> (tensor<3x8xf32>, tensor<3x8xf32>) {
  %e = tensor.empty() : tensor<3x8xf32>
  %x0 = tensor.extract_slice %x[0, 0] [3, 4] [1, 1] : tensor<3x8xf32> to tensor<3x4xf32>
  %x1 = tensor.extract_slice %x[0, 4] [3, 4] [1, 1] : tensor<3x8xf32> to tensor<3x4xf32>
  %r0 = tensor.insert_slice %x1 into %e[0, 0] [3, 4] [1, 1] : tensor<3x4xf32> into tensor<3x8xf32>
  %r1 = tensor.insert_slice %x0 into %r0[0, 4] [3, 4] [1, 1] : tensor<3x4xf32> into tensor<3x8xf32>
  %y = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]} ins(%r1 : tensor<3x8xf32>) outs(%e : tensor<3x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %n = math.exp %a : f32
    linalg.yield %n : f32
  } -> tensor<3x8xf32>
  return %r1, %y : tensor<3x8xf32>, tensor<3x8xf32>
}

// -----

#all = affine_map<(s, d) -> (s, d)>
// CHECK-LABEL: func.func @by_position
// CHECK: tensor.insert_slice
// CHECK: %[[R:.+]] = tensor.insert_slice
// CHECK: linalg.generic {{.*}} ins(%[[R]] : tensor<3x8xf32>)
func.func @by_position(%x: tensor<3x8xf32>) -> tensor<3x8xf32> {
  %e = tensor.empty() : tensor<3x8xf32>
  %x0 = tensor.extract_slice %x[0, 0] [3, 4] [1, 1] : tensor<3x8xf32> to tensor<3x4xf32>
  %x1 = tensor.extract_slice %x[0, 4] [3, 4] [1, 1] : tensor<3x8xf32> to tensor<3x4xf32>
  %r0 = tensor.insert_slice %x1 into %e[0, 0] [3, 4] [1, 1] : tensor<3x4xf32> into tensor<3x8xf32>
  %r1 = tensor.insert_slice %x0 into %r0[0, 4] [3, 4] [1, 1] : tensor<3x4xf32> into tensor<3x8xf32>
  %y = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]} ins(%r1 : tensor<3x8xf32>) outs(%e : tensor<3x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %i = linalg.index 1 : index
    %n = arith.index_cast %i : index to i32
    %f = arith.sitofp %n : i32 to f32
    %p = arith.addf %a, %f : f32
    linalg.yield %p : f32
  } -> tensor<3x8xf32>
  return %y : tensor<3x8xf32>
}

// -----

#all = affine_map<(s, d) -> (s, d)>
// Half of the concatenation is never written: not all of it.
// CHECK-LABEL: func.func @with_a_gap
// CHECK: tensor.insert_slice
// CHECK: %[[R:.+]] = tensor.insert_slice
// CHECK: linalg.generic {{.*}} ins(%[[R]] : tensor<3x8xf32>)
func.func @with_a_gap(%x: tensor<3x8xf32>) -> tensor<3x8xf32> {
  %e = tensor.empty() : tensor<3x8xf32>
  %x0 = tensor.extract_slice %x[0, 0] [3, 4] [1, 1] : tensor<3x8xf32> to tensor<3x4xf32>
  %x1 = tensor.extract_slice %x[0, 4] [3, 3] [1, 1] : tensor<3x8xf32> to tensor<3x3xf32>
  %r0 = tensor.insert_slice %x1 into %e[0, 0] [3, 3] [1, 1] : tensor<3x3xf32> into tensor<3x8xf32>
  %r1 = tensor.insert_slice %x0 into %r0[0, 4] [3, 4] [1, 1] : tensor<3x4xf32> into tensor<3x8xf32>
  %y = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]} ins(%r1 : tensor<3x8xf32>) outs(%e : tensor<3x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %n = arith.negf %a : f32
    linalg.yield %n : f32
  } -> tensor<3x8xf32>
  return %y : tensor<3x8xf32>
}
