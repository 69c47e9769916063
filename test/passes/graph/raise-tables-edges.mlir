// RUN: attn-opt %s -attn-raise-tables -split-input-file | FileCheck %s
// RUN: attn-opt %s -attn-raise-tables -attn-recognize-attention -attn-prove-masks -attn-list-blocks -canonicalize -cse -split-input-file | FileCheck %s --check-prefix=LISTS

// A matrix of zeros with ones at edges: bytes, of which attn-list-blocks makes lists.
#id = affine_map<(i, j) -> (i, j)>
#ij = affine_map<(i, j, e) -> (i, j)>
#je = affine_map<(i, j, e) -> (j, e)>
#ie = affine_map<(i, j, e) -> (i, e)>
// CHECK-LABEL: func @edges
// CHECK: %[[NONE:.+]] = linalg.fill ins(%{{.+}} : i8) outs(%{{.+}} : tensor<?x?xi8>)
// CHECK: %[[BYTES:.+]] = scf.for %[[E:.+]] = %{{.+}} to %arg3 {{.+}} iter_args(%[[T:.+]] = %[[NONE]])
// CHECK:   tensor.insert %c1_i8 into %[[T]]
// CHECK: linalg.generic {{.+}} ins(%[[BYTES]] : tensor<?x?xi8>)
// CHECK:   arith.select
// LISTS-LABEL: func @edges
// LISTS-NOT: tensor<?x?xi8>
// LISTS: %[[LISTS:.+]]:3 = scf.for {{.+}} -> (index, tensor<?xi64>, tensor<?xi64>
// LISTS: attn.attention kind given masked_rows uniform mask [#attn.blocks<1, 1>]
// LISTS-SAME: mask_operands(%{{.+}} : tensor<?x?xi32>)
func.func @edges(%s: tensor<?x?xf32>, %v: tensor<?x8xf32>, %edges: tensor<2x?xi64>, %count: index, %n: index) -> tensor<?x8xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %one = arith.constant 1.0 : f32
  %empty = tensor.empty(%n, %n) : tensor<?x?xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x?xf32>) -> tensor<?x?xf32>
  %table = scf.for %e = %c0 to %count step %c1 iter_args(%t = %zeros) -> tensor<?x?xf32> {
    %a = tensor.extract %edges[%c0, %e] : tensor<2x?xi64>
    %i = arith.index_cast %a : i64 to index
    %row = attn.check_index %i, %n, "table" : index
    %b = tensor.extract %edges[%c1, %e] : tensor<2x?xi64>
    %j = arith.index_cast %b : i64 to index
    %column = attn.check_index %j, %n, "table" : index
    %next = tensor.insert %one into %t[%row, %column] : tensor<?x?xf32>
    scf.yield %next : tensor<?x?xf32>
  }
  %out = tensor.empty(%n, %n) : tensor<?x?xf32>
  %x = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%s, %table : tensor<?x?xf32>, tensor<?x?xf32>) outs(%out : tensor<?x?xf32>) {
  ^bb0(%score: f32, %entry: f32, %old: f32):
    %nought = arith.constant 0.0 : f32
    %low = arith.constant -9.0e15 : f32
    %shown = arith.cmpf ogt, %entry, %nought : f32
    %y = arith.select %shown, %score, %low : f32
    linalg.yield %y : f32
  } -> tensor<?x?xf32>
  %p = attn.softmax %x dim 1 : tensor<?x?xf32>
  %sums = tensor.empty(%n) : tensor<?x8xf32>
  %start = linalg.fill ins(%zero : f32) outs(%sums : tensor<?x8xf32>) -> tensor<?x8xf32>
  %r = linalg.contract indexing_maps = [#ij, #je, #ie] ins(%p, %v : tensor<?x?xf32>, tensor<?x8xf32>)
      outs(%start : tensor<?x8xf32>) -> tensor<?x8xf32>
  return %r : tensor<?x8xf32>
}

// -----

// Counts of edges, of which is asked whether there are any; the rows of the matrix are one vector.
#id = affine_map<(i, j) -> (i, j)>
// CHECK-LABEL: func @counts
// CHECK: scf.for {{.+}} -> (tensor<?x?xi8>)
// CHECK:   arith.divui
// CHECK:   arith.remui
// LISTS-LABEL: func @counts
func.func @counts(%s: tensor<?x?xf32>, %places: tensor<?xindex>, %count: index, %n: index, %n2: index) -> tensor<?x?xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %one = arith.constant 1.0 : f32
  %empty = tensor.empty(%n2) : tensor<?xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%empty : tensor<?xf32>) -> tensor<?xf32>
  %flat = scf.for %e = %c0 to %count step %c1 iter_args(%t = %zeros) -> tensor<?xf32> {
    %p = tensor.extract %places[%e] : tensor<?xindex>
    %place = attn.check_index %p, %n2, "table" : index
    %old = tensor.extract %t[%place] : tensor<?xf32>
    %more = arith.addf %old, %one : f32
    %next = tensor.insert %more into %t[%place] : tensor<?xf32>
    scf.yield %next : tensor<?xf32>
  }
  %table = tensor.expand_shape %flat [[0, 1]] output_shape [%n, %n] : tensor<?xf32> into tensor<?x?xf32>
  %out = tensor.empty(%n, %n) : tensor<?x?xf32>
  %x = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%s, %table : tensor<?x?xf32>, tensor<?x?xf32>) outs(%out : tensor<?x?xf32>) {
  ^bb0(%score: f32, %entry: f32, %old: f32):
    %low = arith.constant 0xFF800000 : f32
    %nought = arith.constant 0.0 : f32
    %none = arith.cmpf ole, %entry, %nought : f32
    %less = arith.cmpf ult, %entry, %one : f32
    %equal = arith.cmpf oeq, %entry, %nought : f32
    %fewer = arith.andi %none, %less : i1
    %hidden = arith.andi %fewer, %equal : i1
    %y = arith.select %hidden, %low, %score : f32
    linalg.yield %y : f32
  } -> tensor<?x?xf32>
  %y = attn.softmax %x dim 1 : tensor<?x?xf32>
  return %y : tensor<?x?xf32>
}

// -----

// Of whole numbers. Near misses: whether there are several edges, and whether there is just one.
#id = affine_map<(i, j) -> (i, j)>
// CHECK-LABEL: func @whole_counts
// CHECK: scf.for {{.+}} -> (tensor<?x?xi8>)
// CHECK-LABEL: func @several
// CHECK-NOT: i8
// CHECK-LABEL: func @exactly_one
// CHECK-NOT: i8
// LISTS-LABEL: func @whole_counts
func.func @whole_counts(%s: tensor<?x?xf32>, %places: tensor<?xindex>, %count: index, %n: index, %n2: index) -> tensor<?x?xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0 : i64
  %one = arith.constant 1 : i64
  %empty = tensor.empty(%n2) : tensor<?xi64>
  %zeros = linalg.fill ins(%zero : i64) outs(%empty : tensor<?xi64>) -> tensor<?xi64>
  %flat = scf.for %e = %c0 to %count step %c1 iter_args(%t = %zeros) -> tensor<?xi64> {
    %p = tensor.extract %places[%e] : tensor<?xindex>
    %place = attn.check_index %p, %n2, "table" : index
    %old = tensor.extract %t[%place] : tensor<?xi64>
    %more = arith.addi %old, %one : i64
    %next = tensor.insert %more into %t[%place] : tensor<?xi64>
    scf.yield %next : tensor<?xi64>
  }
  %table = tensor.expand_shape %flat [[0, 1]] output_shape [%n, %n] : tensor<?xi64> into tensor<?x?xi64>
  %out = tensor.empty(%n, %n) : tensor<?x?xf32>
  %x = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%s, %table : tensor<?x?xf32>, tensor<?x?xi64>) outs(%out : tensor<?x?xf32>) {
  ^bb0(%score: f32, %entry: i64, %old: f32):
    %low = arith.constant 0xFF800000 : f32
    %nought = arith.constant 0 : i64
    %none = arith.cmpi sle, %entry, %nought : i64
    %less = arith.cmpi ult, %entry, %one : i64
    %equal = arith.cmpi eq, %entry, %nought : i64
    %fewer = arith.andi %none, %less : i1
    %hidden = arith.andi %fewer, %equal : i1
    %y = arith.select %hidden, %low, %score : f32
    linalg.yield %y : f32
  } -> tensor<?x?xf32>
  %y = attn.softmax %x dim 1 : tensor<?x?xf32>
  return %y : tensor<?x?xf32>
}

func.func @several(%s: tensor<?x?xf32>, %places: tensor<?xindex>, %count: index, %n: index, %n2: index) -> tensor<?x?xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0 : i64
  %one = arith.constant 1 : i64
  %empty = tensor.empty(%n2) : tensor<?xi64>
  %zeros = linalg.fill ins(%zero : i64) outs(%empty : tensor<?xi64>) -> tensor<?xi64>
  %flat = scf.for %e = %c0 to %count step %c1 iter_args(%t = %zeros) -> tensor<?xi64> {
    %p = tensor.extract %places[%e] : tensor<?xindex>
    %place = attn.check_index %p, %n2, "table" : index
    %old = tensor.extract %t[%place] : tensor<?xi64>
    %more = arith.addi %old, %one : i64
    %next = tensor.insert %more into %t[%place] : tensor<?xi64>
    scf.yield %next : tensor<?xi64>
  }
  %table = tensor.expand_shape %flat [[0, 1]] output_shape [%n, %n] : tensor<?xi64> into tensor<?x?xi64>
  %out = tensor.empty(%n, %n) : tensor<?x?xf32>
  %x = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%s, %table : tensor<?x?xf32>, tensor<?x?xi64>) outs(%out : tensor<?x?xf32>) {
  ^bb0(%score: f32, %entry: i64, %old: f32):
    %low = arith.constant 0xFF800000 : f32
    %nought = arith.constant 1 : i64
    %hidden = arith.cmpi sle, %entry, %nought : i64
    %y = arith.select %hidden, %low, %score : f32
    linalg.yield %y : f32
  } -> tensor<?x?xf32>
  %y = attn.softmax %x dim 1 : tensor<?x?xf32>
  return %y : tensor<?x?xf32>
}

func.func @exactly_one(%s: tensor<?x?xf32>, %places: tensor<?xindex>, %count: index, %n: index, %n2: index) -> tensor<?x?xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0 : i64
  %one = arith.constant 1 : i64
  %empty = tensor.empty(%n2) : tensor<?xi64>
  %zeros = linalg.fill ins(%zero : i64) outs(%empty : tensor<?xi64>) -> tensor<?xi64>
  %flat = scf.for %e = %c0 to %count step %c1 iter_args(%t = %zeros) -> tensor<?xi64> {
    %p = tensor.extract %places[%e] : tensor<?xindex>
    %place = attn.check_index %p, %n2, "table" : index
    %old = tensor.extract %t[%place] : tensor<?xi64>
    %more = arith.addi %old, %one : i64
    %next = tensor.insert %more into %t[%place] : tensor<?xi64>
    scf.yield %next : tensor<?xi64>
  }
  %table = tensor.expand_shape %flat [[0, 1]] output_shape [%n, %n] : tensor<?xi64> into tensor<?x?xi64>
  %out = tensor.empty(%n, %n) : tensor<?x?xf32>
  %x = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%s, %table : tensor<?x?xf32>, tensor<?x?xi64>) outs(%out : tensor<?x?xf32>) {
  ^bb0(%score: f32, %entry: i64, %old: f32):
    %low = arith.constant 0xFF800000 : f32
    %hidden = arith.cmpi ne, %entry, %one : i64
    %y = arith.select %hidden, %low, %score : f32
    linalg.yield %y : f32
  } -> tensor<?x?xf32>
  %y = attn.softmax %x dim 1 : tensor<?x?xf32>
  return %y : tensor<?x?xf32>
}

// -----

// Near misses: counts that are added, numbers that a run gives, two numbers, a place that the table says, a base of
// more than one number.
#id = affine_map<(i, j) -> (i, j)>
// CHECK-LABEL: func @others
// CHECK-NOT: i8
// LISTS-LABEL: func @others
func.func @others(%s: tensor<?x?xf32>, %places: tensor<?xindex>, %data: tensor<?xf32>, %count: index, %n: index)
    -> (tensor<?x?xf32>, tensor<?x?xf32>, tensor<?x?xf32>, tensor<?x?xf32>, tensor<?x?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %one = arith.constant 1.0 : f32
  %two = arith.constant 2.0 : f32
  %empty = tensor.empty(%n, %n) : tensor<?x?xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x?xf32>) -> tensor<?x?xf32>
  %added = scf.for %e = %c0 to %count step %c1 iter_args(%t = %zeros) -> tensor<?x?xf32> {
    %p = tensor.extract %places[%e] : tensor<?xindex>
    %old = tensor.extract %t[%e, %p] : tensor<?x?xf32>
    %more = arith.addf %old, %one : f32
    %next = tensor.insert %more into %t[%e, %p] : tensor<?x?xf32>
    scf.yield %next : tensor<?x?xf32>
  }
  %sum = linalg.add ins(%s, %added : tensor<?x?xf32>, tensor<?x?xf32>) outs(%empty : tensor<?x?xf32>) -> tensor<?x?xf32>
  %0 = attn.softmax %sum dim 1 : tensor<?x?xf32>
  %given = scf.for %e = %c0 to %count step %c1 iter_args(%t = %zeros) -> tensor<?x?xf32> {
    %p = tensor.extract %places[%e] : tensor<?xindex>
    %number = tensor.extract %data[%e] : tensor<?xf32>
    %next = tensor.insert %number into %t[%e, %p] : tensor<?x?xf32>
    scf.yield %next : tensor<?x?xf32>
  }
  %1 = attn.softmax %given dim 1 : tensor<?x?xf32>
  %first = scf.for %e = %c0 to %count step %c1 iter_args(%t = %zeros) -> tensor<?x?xf32> {
    %p = tensor.extract %places[%e] : tensor<?xindex>
    %next = tensor.insert %one into %t[%e, %p] : tensor<?x?xf32>
    scf.yield %next : tensor<?x?xf32>
  }
  %both = scf.for %e = %c0 to %count step %c1 iter_args(%t = %first) -> tensor<?x?xf32> {
    %p = tensor.extract %places[%e] : tensor<?xindex>
    %next = tensor.insert %two into %t[%p, %e] : tensor<?x?xf32>
    scf.yield %next : tensor<?x?xf32>
  }
  %2 = attn.softmax %both dim 1 : tensor<?x?xf32>
  %chased = scf.for %e = %c0 to %count step %c1 iter_args(%t = %zeros) -> tensor<?x?xf32> {
    %link = tensor.extract %t[%e, %c0] : tensor<?x?xf32>
    %bits = arith.bitcast %link : f32 to i32
    %p = arith.index_cast %bits : i32 to index
    %next = tensor.insert %one into %t[%e, %p] : tensor<?x?xf32>
    scf.yield %next : tensor<?x?xf32>
  }
  %3 = attn.softmax %chased dim 1 : tensor<?x?xf32>
  %onto = scf.for %e = %c0 to %count step %c1 iter_args(%t = %s) -> tensor<?x?xf32> {
    %p = tensor.extract %places[%e] : tensor<?xindex>
    %next = tensor.insert %one into %t[%e, %p] : tensor<?x?xf32>
    scf.yield %next : tensor<?x?xf32>
  }
  %4 = attn.softmax %onto dim 1 : tensor<?x?xf32>
  return %0, %1, %2, %3, %4 : tensor<?x?xf32>, tensor<?x?xf32>, tensor<?x?xf32>, tensor<?x?xf32>, tensor<?x?xf32>
}
