// RUN: attn-opt %s -attn-raise-softmax -canonicalize -split-input-file | FileCheck %s
// RUN: attn-opt %s -attn-raise-softmax=exact -canonicalize -split-input-file | FileCheck %s --check-prefix=EXACT

// What a mask leaves of a softmax, divided by its sum: a softmax of the scores that the mask shows.

#ij = affine_map<(i, j) -> (i, j)>
#i = affine_map<(i, j) -> (i)>
#j = affine_map<(i, j) -> (j)>
#r = affine_map<(i) -> (i)>
// w m, m a byte that became a number; 0 for rows without a key.
// CHECK-LABEL: func.func @guarded
// CHECK-SAME: %[[S:[^:]+]]: tensor<5x7xf32>, %[[M:[^:]+]]: tensor<7xi8>
// CHECK: %[[N:.+]] = linalg.generic {{.*}} ins(%[[M]]
// CHECK: %[[X:.+]] = linalg.generic {{.*}} ins(%[[S]], %[[N]]
// CHECK: %[[SHOWN:.+]] = arith.cmpf une
// CHECK: arith.select %[[SHOWN]], %{{.+}}, %cst{{.*}} : f32
// CHECK: %[[P:.+]] = attn.softmax %[[X]] dim 1 {attn.assumes = "|score| < 40{{.*}}"}
// CHECK: linalg.generic {{.*}} ins(%[[P]]
// CHECK: arith.cmpf uno
// CHECK-NOT: arith.divf
// EXACT-LABEL: func.func @guarded
// EXACT: attn.softmax %arg0 dim 1 : tensor
// EXACT: arith.divf
func.func @guarded(%s: tensor<5x7xf32>, %m: tensor<7xi8>) -> tensor<5x7xf32> {
  %zero = arith.constant 0.0 : f32
  %one = arith.constant 1.0 : f32
  %no = arith.constant 0 : i8
  %e = tensor.empty() : tensor<5x7xf32>
  %ej = tensor.empty() : tensor<7xf32>
  %er = tensor.empty() : tensor<5xf32>
  %eb = tensor.empty() : tensor<5xi8>
  %fr = linalg.fill ins(%zero : f32) outs(%er : tensor<5xf32>) -> tensor<5xf32>
  %w = attn.softmax %s dim 1 : tensor<5x7xf32>
  %n = linalg.generic {indexing_maps = [#r, #r], iterator_types = ["parallel"]}
      ins(%m : tensor<7xi8>) outs(%ej : tensor<7xf32>) {
  ^bb0(%b: i8, %out: f32):
    %c = arith.cmpi ne, %b, %no : i8
    %r = arith.uitofp %c : i1 to f32
    linalg.yield %r : f32
  } -> tensor<7xf32>
  %x = linalg.generic {indexing_maps = [#ij, #j, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%w, %n : tensor<5x7xf32>, tensor<7xf32>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %r = arith.mulf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<5x7xf32>
  %t = linalg.generic {indexing_maps = [#ij, #i], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<5x7xf32>) outs(%fr : tensor<5xf32>) {
  ^bb0(%b: f32, %a: f32):
    %r = arith.addf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %any = linalg.generic {indexing_maps = [#r, #r], iterator_types = ["parallel"]}
      ins(%t : tensor<5xf32>) outs(%eb : tensor<5xi8>) {
  ^bb0(%a: f32, %out: i8):
    %c = arith.cmpf ogt, %a, %zero : f32
    %r = arith.extui %c : i1 to i8
    linalg.yield %r : i8
  } -> tensor<5xi8>
  %u = linalg.generic {indexing_maps = [#r, #r, #r], iterator_types = ["parallel"]}
      ins(%any, %t : tensor<5xi8>, tensor<5xf32>) outs(%er : tensor<5xf32>) {
  ^bb0(%b: i8, %a: f32, %out: f32):
    %c = arith.cmpi ne, %b, %no : i8
    %r = arith.select %c, %a, %one : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %p = linalg.generic {indexing_maps = [#ij, #i, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%x, %u : tensor<5x7xf32>, tensor<5xf32>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %r = arith.divf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<5x7xf32>
  %g = linalg.generic {indexing_maps = [#i, #ij, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%any, %p : tensor<5xi8>, tensor<5x7xf32>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%b: i8, %a: f32, %out: f32):
    %c = arith.cmpi ne, %b, %no : i8
    %r = arith.select %c, %a, %zero : f32
    linalg.yield %r : f32
  } -> tensor<5x7xf32>
  return %g : tensor<5x7xf32>
}

// -----

#ij = affine_map<(i, j) -> (i, j)>
#i = affine_map<(i, j) -> (i)>
#j = affine_map<(i, j) -> (j)>
#r = affine_map<(i) -> (i)>
// m ? w : 0, over its sum as it is: rows without a key are NaN. Near misses: a sum over queries, and weights times
// numbers of any size.
// CHECK-LABEL: func.func @chosen
// CHECK: %[[P:.+]] = attn.softmax %{{.+}} dim 1 {attn.assumes
// CHECK-NOT: arith.cmpf uno
// CHECK: return %[[P]]
// CHECK-LABEL: func.func @over_queries
// CHECK: attn.softmax %arg0 dim 1 : tensor
// CHECK: arith.divf
// CHECK-LABEL: func.func @any_size
// CHECK: attn.softmax %arg0 dim 1 : tensor
// CHECK: arith.divf
func.func @chosen(%s: tensor<5x7xf32>, %m: tensor<5x7xi8>) -> tensor<5x7xf32> {
  %zero = arith.constant 0.0 : f32
  %no = arith.constant 0 : i8
  %e = tensor.empty() : tensor<5x7xf32>
  %er = tensor.empty() : tensor<5xf32>
  %fr = linalg.fill ins(%zero : f32) outs(%er : tensor<5xf32>) -> tensor<5xf32>
  %w = attn.softmax %s dim 1 : tensor<5x7xf32>
  %x = linalg.generic {indexing_maps = [#ij, #ij, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%m, %w : tensor<5x7xi8>, tensor<5x7xf32>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%b: i8, %a: f32, %out: f32):
    %c = arith.cmpi ne, %b, %no : i8
    %r = arith.select %c, %a, %zero : f32
    linalg.yield %r : f32
  } -> tensor<5x7xf32>
  %t = linalg.generic {indexing_maps = [#ij, #i], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<5x7xf32>) outs(%fr : tensor<5xf32>) {
  ^bb0(%b: f32, %a: f32):
    %r = arith.addf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %p = linalg.generic {indexing_maps = [#ij, #i, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%x, %t : tensor<5x7xf32>, tensor<5xf32>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %r = arith.divf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<5x7xf32>
  return %p : tensor<5x7xf32>
}
func.func @over_queries(%s: tensor<7x7xf32>, %m: tensor<7x7xi8>) -> tensor<7x7xf32> {
  %zero = arith.constant 0.0 : f32
  %no = arith.constant 0 : i8
  %e = tensor.empty() : tensor<7x7xf32>
  %er = tensor.empty() : tensor<7xf32>
  %fr = linalg.fill ins(%zero : f32) outs(%er : tensor<7xf32>) -> tensor<7xf32>
  %w = attn.softmax %s dim 1 : tensor<7x7xf32>
  %x = linalg.generic {indexing_maps = [#ij, #ij, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%m, %w : tensor<7x7xi8>, tensor<7x7xf32>) outs(%e : tensor<7x7xf32>) {
  ^bb0(%b: i8, %a: f32, %out: f32):
    %c = arith.cmpi ne, %b, %no : i8
    %r = arith.select %c, %a, %zero : f32
    linalg.yield %r : f32
  } -> tensor<7x7xf32>
  %t = linalg.generic {indexing_maps = [#ij, #j], iterator_types = ["reduction", "parallel"]}
      ins(%x : tensor<7x7xf32>) outs(%fr : tensor<7xf32>) {
  ^bb0(%b: f32, %a: f32):
    %r = arith.addf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<7xf32>
  %p = linalg.generic {indexing_maps = [#ij, #j, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%x, %t : tensor<7x7xf32>, tensor<7xf32>) outs(%e : tensor<7x7xf32>) {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %r = arith.divf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<7x7xf32>
  return %p : tensor<7x7xf32>
}
func.func @any_size(%s: tensor<5x7xf32>, %m: tensor<7xf32>) -> tensor<5x7xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<5x7xf32>
  %er = tensor.empty() : tensor<5xf32>
  %fr = linalg.fill ins(%zero : f32) outs(%er : tensor<5xf32>) -> tensor<5xf32>
  %w = attn.softmax %s dim 1 : tensor<5x7xf32>
  %x = linalg.generic {indexing_maps = [#ij, #j, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%w, %m : tensor<5x7xf32>, tensor<7xf32>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %r = arith.mulf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<5x7xf32>
  %t = linalg.generic {indexing_maps = [#ij, #i], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<5x7xf32>) outs(%fr : tensor<5xf32>) {
  ^bb0(%b: f32, %a: f32):
    %r = arith.addf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %p = linalg.generic {indexing_maps = [#ij, #i, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%x, %t : tensor<5x7xf32>, tensor<5xf32>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %r = arith.divf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<5x7xf32>
  return %p : tensor<5x7xf32>
}

// -----

#ij = affine_map<(i, j) -> (i, j)>
#i = affine_map<(i, j) -> (i)>
// Near misses: the mask says what is hidden, and shows what is one number of several.
// CHECK-LABEL: func.func @hidden
// CHECK: attn.softmax %arg0 dim 1 : tensor
// CHECK: arith.divf
// CHECK-LABEL: func.func @numbered
// CHECK: attn.softmax %arg0 dim 1 : tensor
// CHECK: arith.divf
func.func @hidden(%s: tensor<5x7xf32>, %m: tensor<5x7xi8>) -> tensor<5x7xf32> {
  %zero = arith.constant 0.0 : f32
  %no = arith.constant 0 : i8
  %e = tensor.empty() : tensor<5x7xf32>
  %er = tensor.empty() : tensor<5xf32>
  %fr = linalg.fill ins(%zero : f32) outs(%er : tensor<5xf32>) -> tensor<5xf32>
  %w = attn.softmax %s dim 1 : tensor<5x7xf32>
  %x = linalg.generic {indexing_maps = [#ij, #ij, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%m, %w : tensor<5x7xi8>, tensor<5x7xf32>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%b: i8, %a: f32, %out: f32):
    %c = arith.cmpi eq, %b, %no : i8
    %r = arith.select %c, %a, %zero : f32
    linalg.yield %r : f32
  } -> tensor<5x7xf32>
  %t = linalg.generic {indexing_maps = [#ij, #i], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<5x7xf32>) outs(%fr : tensor<5xf32>) {
  ^bb0(%b: f32, %a: f32):
    %r = arith.addf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %p = linalg.generic {indexing_maps = [#ij, #i, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%x, %t : tensor<5x7xf32>, tensor<5xf32>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %r = arith.divf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<5x7xf32>
  return %p : tensor<5x7xf32>
}

func.func @numbered(%s: tensor<5x7xf32>, %m: tensor<5x7xi8>) -> tensor<5x7xf32> {
  %zero = arith.constant 0.0 : f32
  %no = arith.constant 3 : i8
  %e = tensor.empty() : tensor<5x7xf32>
  %er = tensor.empty() : tensor<5xf32>
  %fr = linalg.fill ins(%zero : f32) outs(%er : tensor<5xf32>) -> tensor<5xf32>
  %w = attn.softmax %s dim 1 : tensor<5x7xf32>
  %x = linalg.generic {indexing_maps = [#ij, #ij, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%m, %w : tensor<5x7xi8>, tensor<5x7xf32>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%b: i8, %a: f32, %out: f32):
    %c = arith.cmpi ne, %b, %no : i8
    %r = arith.select %c, %a, %zero : f32
    linalg.yield %r : f32
  } -> tensor<5x7xf32>
  %t = linalg.generic {indexing_maps = [#ij, #i], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<5x7xf32>) outs(%fr : tensor<5xf32>) {
  ^bb0(%b: f32, %a: f32):
    %r = arith.addf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %p = linalg.generic {indexing_maps = [#ij, #i, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%x, %t : tensor<5x7xf32>, tensor<5xf32>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %r = arith.divf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<5x7xf32>
  return %p : tensor<5x7xf32>
}
