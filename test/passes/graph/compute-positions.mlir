// RUN: attn-opt %s -attn-compute-positions -canonicalize -cse -split-input-file | FileCheck %s

#row = affine_map<(a, b) -> (b)>
#id = affine_map<(a, b) -> (a, b)>
// Positions of one sequence differ from the one before by 1: none starts a new one, and the number of the sequence, a
// running sum, is 0 everywhere. The first piece of the concatenation has min(1, n) elements.
// CHECK-LABEL: func.func @packed
// CHECK: %[[ZERO:.+]] = arith.constant 0 : i64
// CHECK-NOT: scf.for
// CHECK: linalg.yield %[[ZERO]]
// CHECK-NOT: scf.for
// CHECK: return
func.func @packed(%b: index, %n: index) -> tensor<2x?xi64> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant dense<0> : tensor<2x1xi64>
  %e = tensor.empty(%n) : tensor<2x?xi64>
  %p = linalg.generic {indexing_maps = [#id], iterator_types = ["parallel", "parallel"]} outs(%e : tensor<2x?xi64>) {
  ^bb0(%o: i64):
    %i = linalg.index 1 : index
    %y = arith.index_cast %i : index to i64
    linalg.yield %y : i64
  } -> tensor<2x?xi64>
  %m = arith.minsi %n, %c1 : index
  %head = tensor.extract_slice %p[0, 0] [2, %m] [1, 1] : tensor<2x?xi64> to tensor<2x?xi64>
  %he = tensor.empty(%m) : tensor<2x?xi64>
  %before = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%head : tensor<2x?xi64>) outs(%he : tensor<2x?xi64>) {
  ^bb0(%x: i64, %o: i64):
    %one = arith.constant 1 : i64
    %y = arith.subi %x, %one : i64
    linalg.yield %y : i64
  } -> tensor<2x?xi64>
  %l = arith.addi %m, %n : index
  %ce = tensor.empty(%l) : tensor<2x?xi64>
  %ca = tensor.insert_slice %before into %ce[0, 0] [2, %m] [1, 1] : tensor<2x?xi64> into tensor<2x?xi64>
  %cat = tensor.insert_slice %p into %ca[0, %m] [2, %n] [1, 1] : tensor<2x?xi64> into tensor<2x?xi64>
  %from = arith.minsi %l, %c1 : index
  %last = tensor.extract_slice %cat[0, 0] [2, %n] [1, 1] : tensor<2x?xi64> to tensor<2x?xi64>
  %next = tensor.extract_slice %cat[0, %from] [2, %n] [1, 1] : tensor<2x?xi64> to tensor<2x?xi64>
  %starts = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%next, %last : tensor<2x?xi64>, tensor<2x?xi64>) outs(%e : tensor<2x?xi64>) {
  ^bb0(%x: i64, %y: i64, %o: i64):
    %one = arith.constant 1 : i64
    %d = arith.subi %x, %y : i64
    %differs = arith.cmpi ne, %d, %one : i64
    %r = arith.extui %differs : i1 to i64
    linalg.yield %r : i64
  } -> tensor<2x?xi64>
  %sum:2 = scf.for %i = %c0 to %n step %c1 iter_args(%carried = %zero, %all = %e) -> (tensor<2x1xi64>, tensor<2x?xi64>) {
    %s = tensor.extract_slice %starts[0, %i] [2, 1] [1, 1] : tensor<2x?xi64> to tensor<2x1xi64>
    %t = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%s : tensor<2x1xi64>) outs(%carried : tensor<2x1xi64>) {
    ^bb0(%x: i64, %o: i64):
      %y = arith.addi %o, %x : i64
      linalg.yield %y : i64
    } -> tensor<2x1xi64>
    %u = tensor.insert_slice %t into %all[0, %i] [2, 1] [1, 1] : tensor<2x1xi64> into tensor<2x?xi64>
    scf.yield %t, %u : tensor<2x1xi64>, tensor<2x?xi64>
  }
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%sum#1 : tensor<2x?xi64>) outs(%e : tensor<2x?xi64>) {
  ^bb0(%x: i64, %o: i64):
    linalg.yield %x : i64
  } -> tensor<2x?xi64>
  return %r : tensor<2x?xi64>
}

// -----

#id = affine_map<(a, b) -> (a, b)>
// Two pieces that do not go on: 0, 1, ... behind 0. What is compared with the place is not known.
// CHECK-LABEL: func.func @restart
// CHECK: tensor.insert_slice
// CHECK: linalg.generic
// CHECK: arith.cmpi eq
func.func @restart(%n: index) -> tensor<2x?xi8> {
  %c1 = arith.constant 1 : index
  %first = arith.constant dense<0> : tensor<2x1xi64>
  %e = tensor.empty(%n) : tensor<2x?xi64>
  %p = linalg.generic {indexing_maps = [#id], iterator_types = ["parallel", "parallel"]} outs(%e : tensor<2x?xi64>) {
  ^bb0(%o: i64):
    %i = linalg.index 1 : index
    %y = arith.index_cast %i : index to i64
    linalg.yield %y : i64
  } -> tensor<2x?xi64>
  %l = arith.addi %n, %c1 : index
  %ce = tensor.empty(%l) : tensor<2x?xi64>
  %ca = tensor.insert_slice %first into %ce[0, 0] [2, 1] [1, 1] : tensor<2x1xi64> into tensor<2x?xi64>
  %cat = tensor.insert_slice %p into %ca[0, 1] [2, %n] [1, 1] : tensor<2x?xi64> into tensor<2x?xi64>
  %re = tensor.empty(%l) : tensor<2x?xi8>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%cat : tensor<2x?xi64>) outs(%re : tensor<2x?xi8>) {
  ^bb0(%x: i64, %o: i8):
    %i = linalg.index 1 : index
    %y = arith.index_cast %i : index to i64
    %same = arith.cmpi eq, %x, %y : i64
    %t = arith.extui %same : i1 to i8
    linalg.yield %t : i8
  } -> tensor<2x?xi8>
  return %r : tensor<2x?xi8>
}

// -----

#id = affine_map<(a, b) -> (a, b)>
#pair = affine_map<(a, b, c) -> (a, b, c)>
// A gather by (batch, position), the indices joined in the last dimension: the element is the one of the place. A
// check of an index whose size is another one than the loop's may fail, and stays.
// CHECK-LABEL: func.func @gathered
// CHECK-SAME: %[[B:[^:]+]]: index, %[[N:[^:]+]]: index, %[[M:[^:]+]]: index
// CHECK: %[[Y:.+]] = linalg.generic
// CHECK-SAME: outs(
// CHECK-NOT: tensor.extract
// CHECK: linalg.index 1
// CHECK: attn.check_index %{{.+}}, %[[M]], "other"
// CHECK: return %[[Y]],
func.func @gathered(%b: index, %n: index, %m: index) -> (tensor<?x?xi64>, tensor<?x?xi64>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %e = tensor.empty(%b, %n) : tensor<?x?xi64>
  %rows = linalg.generic {indexing_maps = [#id], iterator_types = ["parallel", "parallel"]} outs(%e : tensor<?x?xi64>) {
  ^bb0(%o: i64):
    %i = linalg.index 0 : index
    %y = arith.index_cast %i : index to i64
    linalg.yield %y : i64
  } -> tensor<?x?xi64>
  %p = linalg.generic {indexing_maps = [#id], iterator_types = ["parallel", "parallel"]} outs(%e : tensor<?x?xi64>) {
  ^bb0(%o: i64):
    %i = linalg.index 1 : index
    %y = arith.index_cast %i : index to i64
    linalg.yield %y : i64
  } -> tensor<?x?xi64>
  %r1 = tensor.expand_shape %rows [[0], [1, 2]] output_shape [%b, %n, 1] : tensor<?x?xi64> into tensor<?x?x1xi64>
  %p1 = tensor.expand_shape %p [[0], [1, 2]] output_shape [%b, %n, 1] : tensor<?x?xi64> into tensor<?x?x1xi64>
  %ie = tensor.empty(%b, %n) : tensor<?x?x2xi64>
  %i0 = tensor.insert_slice %r1 into %ie[0, 0, 0] [%b, %n, 1] [1, 1, 1] : tensor<?x?x1xi64> into tensor<?x?x2xi64>
  %ij = tensor.insert_slice %p1 into %i0[0, 0, 1] [%b, %n, 1] [1, 1, 1] : tensor<?x?x1xi64> into tensor<?x?x2xi64>
  %y = linalg.generic {indexing_maps = [#id], iterator_types = ["parallel", "parallel"]} outs(%e : tensor<?x?xi64>) {
  ^bb0(%o: i64):
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %x = tensor.extract %ij[%i, %j, %c0] : tensor<?x?x2xi64>
    %xi = arith.index_cast %x : i64 to index
    %row = attn.check_index %xi, %b, "row" : index
    %z = tensor.extract %ij[%i, %j, %c1] : tensor<?x?x2xi64>
    %zi = arith.index_cast %z : i64 to index
    %column = attn.check_index %zi, %n, "column" : index
    %g = tensor.extract %p[%row, %column] : tensor<?x?xi64>
    linalg.yield %g : i64
  } -> tensor<?x?xi64>
  %w = linalg.generic {indexing_maps = [#id], iterator_types = ["parallel", "parallel"]} outs(%e : tensor<?x?xi64>) {
  ^bb0(%o: i64):
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %column = attn.check_index %j, %m, "other" : index
    %g = tensor.extract %p[%i, %column] : tensor<?x?xi64>
    linalg.yield %g : i64
  } -> tensor<?x?xi64>
  return %y, %w : tensor<?x?xi64>, tensor<?x?xi64>
}

// -----

#id = affine_map<(a) -> (a)>
// A running sum of bytes wraps at 128.
// CHECK-LABEL: func.func @sum_of_bytes
// CHECK: scf.yield
// CHECK: %[[R:.+]] = linalg.generic {{.*}}ins(
// CHECK: return %[[R]]
func.func @sum_of_bytes(%n: index) -> tensor<?xi64> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %one = arith.constant 1 : i8
  %zero = arith.constant dense<0> : tensor<1xi8>
  %e = tensor.empty(%n) : tensor<?xi8>
  %ones = linalg.fill ins(%one : i8) outs(%e : tensor<?xi8>) -> tensor<?xi8>
  %sum:2 = scf.for %i = %c0 to %n step %c1 iter_args(%carried = %zero, %all = %e) -> (tensor<1xi8>, tensor<?xi8>) {
    %s = tensor.extract_slice %ones[%i] [1] [1] : tensor<?xi8> to tensor<1xi8>
    %t = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%s : tensor<1xi8>) outs(%carried : tensor<1xi8>) {
    ^bb0(%x: i8, %o: i8):
      %y = arith.addi %o, %x : i8
      linalg.yield %y : i8
    } -> tensor<1xi8>
    %u = tensor.insert_slice %t into %all[%i] [1] [1] : tensor<1xi8> into tensor<?xi8>
    scf.yield %t, %u : tensor<1xi8>, tensor<?xi8>
  }
  %f = tensor.empty(%n) : tensor<?xi64>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%sum#1 : tensor<?xi8>) outs(%f : tensor<?xi64>) {
    ^bb0(%x: i8, %o: i64):
      %y = arith.extsi %x : i8 to i64
      linalg.yield %y : i64
  } -> tensor<?xi64>
  return %r : tensor<?xi64>
}

// -----

#id2 = affine_map<(a, b) -> (a, b)>
// Rows that no sum is stored to keep what the loop was given, and so do columns behind its end.
// CHECK-LABEL: func.func @sum_of_a_part
// CHECK: scf.yield
// CHECK: %[[R:.+]] = linalg.generic {{.*}}ins(
// CHECK: return %[[R]]
func.func @sum_of_a_part(%n: index, %init: tensor<4x?xi64>) -> tensor<4x?xi64> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %one = arith.constant 1 : i64
  %zero = arith.constant dense<0> : tensor<2x1xi64>
  %e = tensor.empty(%n) : tensor<4x?xi64>
  %ones = linalg.fill ins(%one : i64) outs(%e : tensor<4x?xi64>) -> tensor<4x?xi64>
  %sum:2 = scf.for %i = %c0 to %c3 step %c1 iter_args(%carried = %zero, %all = %init) -> (tensor<2x1xi64>, tensor<4x?xi64>) {
    %s = tensor.extract_slice %ones[0, %i] [2, 1] [1, 1] : tensor<4x?xi64> to tensor<2x1xi64>
    %t = linalg.generic {indexing_maps = [#id2, #id2], iterator_types = ["parallel", "parallel"]} ins(%s : tensor<2x1xi64>) outs(%carried : tensor<2x1xi64>) {
    ^bb0(%x: i64, %o: i64):
      %y = arith.addi %o, %x : i64
      linalg.yield %y : i64
    } -> tensor<2x1xi64>
    %u = tensor.insert_slice %t into %all[0, %i] [2, 1] [1, 1] : tensor<2x1xi64> into tensor<4x?xi64>
    scf.yield %t, %u : tensor<2x1xi64>, tensor<4x?xi64>
  }
  %r = linalg.generic {indexing_maps = [#id2, #id2], iterator_types = ["parallel", "parallel"]} ins(%sum#1 : tensor<4x?xi64>) outs(%e : tensor<4x?xi64>) {
    ^bb0(%x: i64, %o: i64):
      %y = arith.addi %x, %x : i64
      linalg.yield %y : i64
  } -> tensor<4x?xi64>
  return %r : tensor<4x?xi64>
}

// -----

#id = affine_map<(a) -> (a)>
// The side that is not chosen has an index that may be out of range: that is an error of the graph all the same.
// CHECK-LABEL: func.func @check_on_the_other_side
// CHECK: attn.check_index
// CHECK: arith.select
func.func @check_on_the_other_side(%n: index, %m: index) -> tensor<?xi64> {
  %e = tensor.empty(%n) : tensor<?xi64>
  %f = tensor.empty(%m) : tensor<?xi64>
  %p = linalg.generic {indexing_maps = [#id], iterator_types = ["parallel"]} outs(%f : tensor<?xi64>) {
  ^bb0(%o: i64):
    %i = linalg.index 0 : index
    %y = arith.index_cast %i : index to i64
    linalg.yield %y : i64
  } -> tensor<?xi64>
  %r = linalg.generic {indexing_maps = [#id], iterator_types = ["parallel"]} outs(%e : tensor<?xi64>) {
  ^bb0(%o: i64):
    %zero = arith.constant 0 : i64
    %i = linalg.index 0 : index
    %x = arith.index_cast %i : index to i64
    %isNegative = arith.cmpi slt, %x, %zero : i64
    %at = attn.check_index %i, %m, "place" : index
    %g = tensor.extract %p[%at] : tensor<?xi64>
    %y = arith.select %isNegative, %g, %zero : i64
    linalg.yield %y : i64
  } -> tensor<?xi64>
  return %r : tensor<?xi64>
}

// -----

#id = affine_map<(a, b) -> (a, b)>
// Running sums of ones along a row, read without an operation in between: places from 1 on. The ones stay a fill.
// CHECK-LABEL: func.func @sum_of_ones
// CHECK-SAME: %[[N:.+]]: index
// CHECK-NOT: scf.for
// CHECK: %[[PLACES:.+]] = linalg.generic
// CHECK: %[[COLUMN:.+]] = linalg.index 1
// CHECK: %[[PLACE:.+]] = arith.addi %[[COLUMN]], %c1
// CHECK: arith.index_cast %[[PLACE]] : index to i32
// CHECK: return %[[PLACES]], %{{.+}} : tensor<?x?xi32>
func.func @sum_of_ones(%n: index) -> (tensor<?x?xi32>, tensor<?x?xi32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %one = arith.constant 1 : i32
  %none = arith.constant 0 : i32
  %e = tensor.empty(%n, %n) : tensor<?x?xi32>
  %ones = linalg.fill ins(%one : i32) outs(%e : tensor<?x?xi32>) -> tensor<?x?xi32>
  %ze = tensor.empty(%n) : tensor<?x1xi32>
  %zero = linalg.fill ins(%none : i32) outs(%ze : tensor<?x1xi32>) -> tensor<?x1xi32>
  %sum:2 = scf.for %i = %c0 to %n step %c1 iter_args(%carried = %zero, %all = %e) -> (tensor<?x1xi32>, tensor<?x?xi32>) {
    %s = tensor.extract_slice %ones[0, %i] [%n, 1] [1, 1] : tensor<?x?xi32> to tensor<?x1xi32>
    %t = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%s : tensor<?x1xi32>) outs(%carried : tensor<?x1xi32>) {
    ^bb0(%x: i32, %o: i32):
      %y = arith.addi %o, %x : i32
      linalg.yield %y : i32
    } -> tensor<?x1xi32>
    %u = tensor.insert_slice %t into %all[0, %i] [%n, 1] [1, 1] : tensor<?x1xi32> into tensor<?x?xi32>
    scf.yield %t, %u : tensor<?x1xi32>, tensor<?x?xi32>
  }
  return %sum#1, %ones : tensor<?x?xi32>, tensor<?x?xi32>
}

// -----

// Of elements that a run brings it is no place.
// CHECK-LABEL: func.func @sum_of_an_input
// CHECK: %[[SUM:.+]]:2 = scf.for
// CHECK: return %[[SUM]]#1
func.func @sum_of_an_input(%x: tensor<?xi32>) -> tensor<?xi32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %n = tensor.dim %x, %c0 : tensor<?xi32>
  %zero = arith.constant dense<0> : tensor<1xi32>
  %e = tensor.empty(%n) : tensor<?xi32>
  %sum:2 = scf.for %i = %c0 to %n step %c1 iter_args(%carried = %zero, %all = %e) -> (tensor<1xi32>, tensor<?xi32>) {
    %s = tensor.extract_slice %x[%i] [1] [1] : tensor<?xi32> to tensor<1xi32>
    %t = linalg.generic {indexing_maps = [affine_map<(a) -> (a)>, affine_map<(a) -> (a)>], iterator_types = ["parallel"]}
        ins(%s : tensor<1xi32>) outs(%carried : tensor<1xi32>) {
    ^bb0(%y: i32, %o: i32):
      %z = arith.addi %o, %y : i32
      linalg.yield %z : i32
    } -> tensor<1xi32>
    %u = tensor.insert_slice %t into %all[%i] [1] [1] : tensor<1xi32> into tensor<?xi32>
    scf.yield %t, %u : tensor<1xi32>, tensor<?xi32>
  }
  return %sum#1 : tensor<?xi32>
}

// -----

#id = affine_map<(a, b) -> (a, b)>
#one = affine_map<(a) -> (a)>
// Places in a matrix by their number, of which quotient and remainder by its width are row and column (a band of
// tf2onnx): the exclusive running sum of ones is the number.
// CHECK-LABEL: func.func @diagonals
// CHECK-NOT: scf.for
// CHECK: linalg.generic
// CHECK-NOT: arith.divsi
// CHECK: %[[ROW:.+]] = linalg.index 0
// CHECK: %[[COLUMN:.+]] = linalg.index 1
// CHECK: arith.subi %[[COLUMN]], %[[ROW]]
// CHECK: return
func.func @diagonals(%m: index, %n: index, %k: index) -> tensor<?x?xi64> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %none = arith.constant 0 : i64
  %unit = arith.constant 1 : i64
  %minus = arith.constant -1 : i64
  %zero = arith.constant dense<0> : tensor<1xi64>
  %size = arith.muli %m, %n : index
  %e = tensor.empty(%size) : tensor<?xi64>
  %ones = linalg.fill ins(%unit : i64) outs(%e : tensor<?xi64>) -> tensor<?xi64>
  %sum:2 = scf.for %i = %c0 to %size step %c1 iter_args(%carried = %zero, %all = %e) -> (tensor<1xi64>, tensor<?xi64>) {
    %s = tensor.extract_slice %ones[%i] [1] [1] : tensor<?xi64> to tensor<1xi64>
    %u = tensor.insert_slice %carried into %all[%i] [1] [1] : tensor<1xi64> into tensor<?xi64>
    %t = linalg.generic {indexing_maps = [#one, #one], iterator_types = ["parallel"]}
        ins(%s : tensor<1xi64>) outs(%carried : tensor<1xi64>) {
    ^bb0(%x: i64, %o: i64):
      %y = arith.addi %o, %x : i64
      linalg.yield %y : i64
    } -> tensor<1xi64>
    scf.yield %t, %u : tensor<1xi64>, tensor<?xi64>
  }
  %places = tensor.expand_shape %sum#1 [[0, 1]] output_shape [%m, %n] : tensor<?xi64> into tensor<?x?xi64>
  %w = arith.index_cast %n : index to i64
  %r = tensor.empty(%m, %n) : tensor<?x?xi64>
  %d = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%places : tensor<?x?xi64>) outs(%r : tensor<?x?xi64>) {
  ^bb0(%x: i64, %o: i64):
    %nought = arith.cmpi eq, %w, %none : i64
    %negative = arith.cmpi eq, %w, %minus : i64
    %either = arith.ori %nought, %negative : i1
    %safe = arith.select %either, %unit, %w : i64
    %q = arith.divsi %x, %safe : i64
    %row = arith.select %nought, %none, %q : i64
    %start = arith.muli %row, %w : i64
    %column = arith.subi %x, %start : i64
    %below = arith.cmpi slt, %column, %none : i64
    %other = arith.cmpi ne, %column, %none : i64
    %wraps = arith.andi %other, %below : i1
    %added = arith.addi %column, %w : i64
    %rest = arith.select %wraps, %added, %column : i64
    %y = arith.subi %rest, %row : i64
    linalg.yield %y : i64
  } -> tensor<?x?xi64>
  return %d : tensor<?x?xi64>
}

// -----

#id = affine_map<(a, b) -> (a, b)>
#one = affine_map<(a) -> (a)>
// The quotient by another size is no row.
// CHECK-LABEL: func.func @other_width
// CHECK: arith.divsi
// CHECK: return
func.func @other_width(%m: index, %n: index, %k: index) -> tensor<?x?xi64> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %none = arith.constant 0 : i64
  %unit = arith.constant 1 : i64
  %minus = arith.constant -1 : i64
  %zero = arith.constant dense<0> : tensor<1xi64>
  %size = arith.muli %m, %n : index
  %e = tensor.empty(%size) : tensor<?xi64>
  %ones = linalg.fill ins(%unit : i64) outs(%e : tensor<?xi64>) -> tensor<?xi64>
  %sum:2 = scf.for %i = %c0 to %size step %c1 iter_args(%carried = %zero, %all = %e) -> (tensor<1xi64>, tensor<?xi64>) {
    %s = tensor.extract_slice %ones[%i] [1] [1] : tensor<?xi64> to tensor<1xi64>
    %u = tensor.insert_slice %carried into %all[%i] [1] [1] : tensor<1xi64> into tensor<?xi64>
    %t = linalg.generic {indexing_maps = [#one, #one], iterator_types = ["parallel"]}
        ins(%s : tensor<1xi64>) outs(%carried : tensor<1xi64>) {
    ^bb0(%x: i64, %o: i64):
      %y = arith.addi %o, %x : i64
      linalg.yield %y : i64
    } -> tensor<1xi64>
    scf.yield %t, %u : tensor<1xi64>, tensor<?xi64>
  }
  %places = tensor.expand_shape %sum#1 [[0, 1]] output_shape [%m, %n] : tensor<?xi64> into tensor<?x?xi64>
  %w = arith.index_cast %k : index to i64
  %r = tensor.empty(%m, %n) : tensor<?x?xi64>
  %d = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%places : tensor<?x?xi64>) outs(%r : tensor<?x?xi64>) {
  ^bb0(%x: i64, %o: i64):
    %nought = arith.cmpi eq, %w, %none : i64
    %negative = arith.cmpi eq, %w, %minus : i64
    %either = arith.ori %nought, %negative : i1
    %safe = arith.select %either, %unit, %w : i64
    %q = arith.divsi %x, %safe : i64
    %row = arith.select %nought, %none, %q : i64
    %start = arith.muli %row, %w : i64
    %column = arith.subi %x, %start : i64
    %below = arith.cmpi slt, %column, %none : i64
    %other = arith.cmpi ne, %column, %none : i64
    %wraps = arith.andi %other, %below : i1
    %added = arith.addi %column, %w : i64
    %rest = arith.select %wraps, %added, %column : i64
    %y = arith.subi %rest, %row : i64
    linalg.yield %y : i64
  } -> tensor<?x?xi64>
  return %d : tensor<?x?xi64>
}

// -----

#id = affine_map<(a) -> (a)>
// Every other position, from the second one on, is 2 i + 1.
// CHECK-LABEL: func.func @every_other
// CHECK-NOT: tensor.extract_slice
// CHECK: %[[I:.+]] = linalg.index 0
// CHECK: %[[TWICE:.+]] = arith.muli %[[I]], %c2
// CHECK: %[[Y:.+]] = arith.addi %[[TWICE]], %c1
// CHECK: arith.index_cast %[[Y]] : index to i64
// CHECK: return
func.func @every_other(%n: index, %half: index) -> tensor<?xi64> {
  %zero = arith.constant 0 : i64
  %e = tensor.empty(%n) : tensor<?xi64>
  %p = linalg.generic {indexing_maps = [#id], iterator_types = ["parallel"]} outs(%e : tensor<?xi64>) {
  ^bb0(%o: i64):
    %i = linalg.index 0 : index
    %y = arith.index_cast %i : index to i64
    linalg.yield %y : i64
  } -> tensor<?xi64>
  %s = tensor.extract_slice %p[1] [%half] [2] : tensor<?xi64> to tensor<?xi64>
  %he = tensor.empty(%half) : tensor<?xi64>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
      ins(%s : tensor<?xi64>) outs(%he : tensor<?xi64>) {
  ^bb0(%x: i64, %o: i64):
    %y = arith.addi %x, %zero : i64
    linalg.yield %y : i64
  } -> tensor<?xi64>
  return %r : tensor<?xi64>
}

// -----

#id = affine_map<(a) -> (a)>
// A slice that begins where the run says is not known by its place.
// CHECK-LABEL: func.func @from_somewhere
// CHECK: tensor.extract_slice
// CHECK: return
func.func @from_somewhere(%n: index, %half: index, %from: index) -> tensor<?xi64> {
  %one = arith.constant 1 : i64
  %e = tensor.empty(%n) : tensor<?xi64>
  %p = linalg.generic {indexing_maps = [#id], iterator_types = ["parallel"]} outs(%e : tensor<?xi64>) {
  ^bb0(%o: i64):
    %i = linalg.index 0 : index
    %y = arith.index_cast %i : index to i64
    linalg.yield %y : i64
  } -> tensor<?xi64>
  %s = tensor.extract_slice %p[%from] [%half] [1] : tensor<?xi64> to tensor<?xi64>
  %he = tensor.empty(%half) : tensor<?xi64>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
      ins(%s : tensor<?xi64>) outs(%he : tensor<?xi64>) {
  ^bb0(%x: i64, %o: i64):
    %y = arith.addi %x, %one : i64
    linalg.yield %y : i64
  } -> tensor<?xi64>
  return %r : tensor<?xi64>
}

// -----

#id = affine_map<(a) -> (a)>
// A running sum whose step depends on the sum: -1 from 0 on, but 5 below. No step is the same at each place.
// CHECK-LABEL: func.func @step_by_the_sum
// CHECK: %[[SUM:.+]]:2 = scf.for
// CHECK: return %[[SUM]]#1
func.func @step_by_the_sum(%n: index) -> tensor<?xi64> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %minus = arith.constant -1 : i64
  %five = arith.constant 5 : i64
  %zero = arith.constant dense<0> : tensor<1xi64>
  %e = tensor.empty(%n) : tensor<?xi64>
  %sum:2 = scf.for %i = %c0 to %n step %c1 iter_args(%carried = %zero, %all = %e) -> (tensor<1xi64>, tensor<?xi64>) {
    %t = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
        ins(%carried : tensor<1xi64>) outs(%carried : tensor<1xi64>) {
    ^bb0(%x: i64, %o: i64):
      %above = arith.cmpi sgt, %x, %minus : i64
      %step = arith.select %above, %minus, %five : i64
      %y = arith.addi %x, %step : i64
      linalg.yield %y : i64
    } -> tensor<1xi64>
    %u = tensor.insert_slice %t into %all[%i] [1] [1] : tensor<1xi64> into tensor<?xi64>
    scf.yield %t, %u : tensor<1xi64>, tensor<?xi64>
  }
  return %sum#1 : tensor<?xi64>
}

// -----

#a = affine_map<(a, b) -> (a)>
#b = affine_map<(a, b) -> (b)>
#id = affine_map<(a, b) -> (a, b)>
// Chunks that overlap, read from a flat tensor: 64 a + b is less than 384 everywhere. With one chunk more it is not.
// CHECK-LABEL: func.func @chunks
// CHECK: %[[Y:.+]] = linalg.generic {{.+}} ins(
// CHECK-NOT: attn.check_index
// CHECK: linalg.generic {{.+}} ins(
// CHECK: attn.check_index %{{.+}}, %{{.+}}, "more"
// CHECK: return %[[Y]],
func.func @chunks(%x: tensor<384xf32>) -> (tensor<5x128xf32>, tensor<6x128xf32>) {
  %c384 = arith.constant 384 : index
  %from = arith.constant dense<[0, 64, 128, 192, 256]> : tensor<5xi64>
  %more = arith.constant dense<[0, 64, 128, 192, 256, 320]> : tensor<6xi64>
  %ce = tensor.empty() : tensor<128xi64>
  %columns = linalg.generic {indexing_maps = [affine_map<(a) -> (a)>], iterator_types = ["parallel"]}
      outs(%ce : tensor<128xi64>) {
  ^bb0(%o: i64):
    %i = linalg.index 0 : index
    %v = arith.index_cast %i : index to i64
    linalg.yield %v : i64
  } -> tensor<128xi64>
  %ye = tensor.empty() : tensor<5x128xf32>
  %y = linalg.generic {indexing_maps = [#a, #b, #id], iterator_types = ["parallel", "parallel"]}
      ins(%from, %columns : tensor<5xi64>, tensor<128xi64>) outs(%ye : tensor<5x128xf32>) {
  ^bb0(%p: i64, %q: i64, %o: f32):
    %s = arith.addi %p, %q : i64
    %t = arith.index_cast %s : i64 to index
    %at = attn.check_index %t, %c384, "chunks" : index
    %v = tensor.extract %x[%at] : tensor<384xf32>
    linalg.yield %v : f32
  } -> tensor<5x128xf32>
  %ze = tensor.empty() : tensor<6x128xf32>
  %z = linalg.generic {indexing_maps = [#a, #b, #id], iterator_types = ["parallel", "parallel"]}
      ins(%more, %columns : tensor<6xi64>, tensor<128xi64>) outs(%ze : tensor<6x128xf32>) {
  ^bb0(%p: i64, %q: i64, %o: f32):
    %s = arith.addi %p, %q : i64
    %t = arith.index_cast %s : i64 to index
    %at = attn.check_index %t, %c384, "more" : index
    %v = tensor.extract %x[%at] : tensor<384xf32>
    linalg.yield %v : f32
  } -> tensor<6x128xf32>
  return %y, %z : tensor<5x128xf32>, tensor<6x128xf32>
}
