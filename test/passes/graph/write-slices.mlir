// RUN: attn-opt %s -attn-write-slices -canonicalize -cse -split-input-file | FileCheck %s

// From place 2 on, as far as there is an update: that all of them are places is checked in the run.
// CHECK-LABEL: func.func @open
// CHECK-SAME: %[[X:[^:]+]]: tensor<?xf32>, %[[U:[^:]+]]: tensor<?xf32>, %[[M:[^:]+]]: index, %[[N:[^:]+]]: index
// CHECK: %[[LAST:.+]] = arith.addi
// CHECK: %[[IN:.+]] = arith.cmpi slt, %[[LAST]], %[[N]]
// CHECK: attn.require %{{.+}}, "node 'put' (ScatterND): an index is out of range: {0} in a dimension of size {1}"(%[[LAST]], %[[N]])
// CHECK: %[[P:.+]] = tensor.extract_slice %[[U]][0] [%[[M]]] [1]
// CHECK: %[[Y:.+]] = tensor.insert_slice %[[P]] into %[[X]][2] [%[[M]]] [1]
// CHECK: return %[[Y]]
func.func @open(%x: tensor<?xf32>, %u: tensor<?xf32>, %m: index, %n: index) -> tensor<?xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %e = tensor.empty(%m) : tensor<?xi64>
  %p = linalg.generic {indexing_maps = [affine_map<(a) -> (a)>], iterator_types = ["parallel"]} outs(%e : tensor<?xi64>) {
  ^bb0(%o: i64):
    %i = linalg.index 0 : index
    %s = arith.addi %i, %c2 : index
    %v = arith.index_cast %s : index to i64
    linalg.yield %v : i64
  } -> tensor<?xi64>
  %y = scf.for %i = %c0 to %m step %c1 iter_args(%t = %x) -> (tensor<?xf32>) {
    %a = tensor.extract %p[%i] : tensor<?xi64>
    %b = arith.index_cast %a : i64 to index
    %to = attn.check_index %b, %n, "node 'put' (ScatterND)" : index
    %v = tensor.extract %u[%i] : tensor<?xf32>
    %w = tensor.insert %v into %t[%to] : tensor<?xf32>
    scf.yield %w : tensor<?xf32>
  }
  return %y : tensor<?xf32>
}

// -----

// Every other place; the last three, from the end; from where only the run knows on.
// CHECK-LABEL: func.func @stored
// CHECK-SAME: %[[X:[^:]+]]: tensor<4x9xf32>, %[[U:[^:]+]]: tensor<4x4xf32>
// CHECK: %[[Y:.+]] = tensor.insert_slice %[[U]] into %[[X]][0, 1] [4, 4] [1, 2]
// CHECK: return %[[Y]]
func.func @stored(%x: tensor<4x9xf32>, %u: tensor<4x4xf32>) -> tensor<4x9xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %c9 = arith.constant 9 : index
  %p = arith.constant dense<[1, 3, 5, 7]> : tensor<4xi64>
  %y = scf.for %i = %c0 to %c4 step %c1 iter_args(%s = %x) -> (tensor<4x9xf32>) {
    %z = scf.for %j = %c0 to %c4 step %c1 iter_args(%t = %s) -> (tensor<4x9xf32>) {
      %a = tensor.extract %p[%j] : tensor<4xi64>
      %b = arith.index_cast %a : i64 to index
      %to = attn.check_index %b, %c9, "put" : index
      %v = tensor.extract %u[%i, %j] : tensor<4x4xf32>
      %w = tensor.insert %v into %t[%i, %to] : tensor<4x9xf32>
      scf.yield %w : tensor<4x9xf32>
    }
    scf.yield %z : tensor<4x9xf32>
  }
  return %y : tensor<4x9xf32>
}
// CHECK-LABEL: func.func @from_the_end
// CHECK: tensor.insert_slice %{{.+}} into %{{.+}}[6] [3] [1]
func.func @from_the_end(%x: tensor<9xf32>, %u: tensor<3xf32>) -> tensor<9xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %c9 = arith.constant 9 : index
  %p = arith.constant dense<[-3, -2, -1]> : tensor<3xi64>
  %y = scf.for %i = %c0 to %c3 step %c1 iter_args(%t = %x) -> (tensor<9xf32>) {
    %a = tensor.extract %p[%i] : tensor<3xi64>
    %b = arith.index_cast %a : i64 to index
    %to = attn.check_index %b, %c9, "put" : index
    %v = tensor.extract %u[%i] : tensor<3xf32>
    %w = tensor.insert %v into %t[%to] : tensor<9xf32>
    scf.yield %w : tensor<9xf32>
  }
  return %y : tensor<9xf32>
}
// CHECK-LABEL: func.func @late
// CHECK-SAME: %[[X:[^:]+]]: tensor<9xf32>, %[[U:[^:]+]]: tensor<3xf32>, %[[AT:[^:]+]]: index
// CHECK: attn.require
// CHECK: tensor.insert_slice %[[U]] into %[[X]][%[[AT]]] [3] [1]
func.func @late(%x: tensor<9xf32>, %u: tensor<3xf32>, %at: index) -> tensor<9xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %c9 = arith.constant 9 : index
  %all = arith.constant dense<[0, 1, 2, 3, 4, 5, 6, 7, 8]> : tensor<9xi64>
  %p = tensor.extract_slice %all[%at] [3] [1] : tensor<9xi64> to tensor<3xi64>
  %y = scf.for %i = %c0 to %c3 step %c1 iter_args(%t = %x) -> (tensor<9xf32>) {
    %a = tensor.extract %p[%i] : tensor<3xi64>
    %b = arith.index_cast %a : i64 to index
    %to = attn.check_index %b, %c9, "put" : index
    %v = tensor.extract %u[%i] : tensor<3xf32>
    %w = tensor.insert %v into %t[%to] : tensor<9xf32>
    scf.yield %w : tensor<9xf32>
  }
  return %y : tensor<9xf32>
}

// -----

#row = affine_map<(a, b) -> (a)>
#column = affine_map<(a, b) -> (b)>
#id = affine_map<(a, b) -> (a, b)>
// Index tuples, as exporters join them: the first one goes along the second loop.
// CHECK-LABEL: func.func @tuples
// CHECK-SAME: %[[X:[^:]+]]: tensor<5x4x8xi8>, %[[U:[^:]+]]: tensor<2x3x8xi8>
// CHECK: %[[T:.+]] = linalg.transpose ins(%[[U]] : tensor<2x3x8xi8>) outs({{.+}}) permutation = [1, 0, 2]
// CHECK: %[[Y:.+]] = tensor.insert_slice %{{.+}} into %[[X]][2, 1, 0] [3, 2, 8] [1, 1, 1]
// CHECK: return %[[Y]]
func.func @tuples(%x: tensor<5x4x8xi8>, %u: tensor<2x3x8xi8>) -> tensor<5x4x8xi8> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c3 = arith.constant 3 : index
  %c4 = arith.constant 4 : index
  %c5 = arith.constant 5 : index
  %c8 = arith.constant 8 : index
  %zero = arith.constant 0 : i8
  %rows = arith.constant dense<[2, 3, 4]> : tensor<3xi64>
  %columns = arith.constant dense<[1, 2]> : tensor<2xi64>
  %e = tensor.empty() : tensor<2x3xi64>
  %p = linalg.generic {indexing_maps = [#column, #id], iterator_types = ["parallel", "parallel"]}
      ins(%rows : tensor<3xi64>) outs(%e : tensor<2x3xi64>) {
  ^bb0(%a: i64, %o: i64):
    linalg.yield %a : i64
  } -> tensor<2x3xi64>
  %q = linalg.generic {indexing_maps = [#row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%columns : tensor<2xi64>) outs(%e : tensor<2x3xi64>) {
  ^bb0(%a: i64, %o: i64):
    linalg.yield %a : i64
  } -> tensor<2x3xi64>
  %te = tensor.empty() : tensor<2x3x2xi64>
  %pz = tensor.expand_shape %p [[0], [1, 2]] output_shape [2, 3, 1] : tensor<2x3xi64> into tensor<2x3x1xi64>
  %ta = tensor.insert_slice %pz into %te[0, 0, 0] [2, 3, 1] [1, 1, 1] : tensor<2x3x1xi64> into tensor<2x3x2xi64>
  %px = tensor.expand_shape %q [[0], [1, 2]] output_shape [2, 3, 1] : tensor<2x3xi64> into tensor<2x3x1xi64>
  %tuples = tensor.insert_slice %px into %ta[0, 0, 1] [2, 3, 1] [1, 1, 1] : tensor<2x3x1xi64> into tensor<2x3x2xi64>
  %y = scf.for %i = %c0 to %c2 step %c1 iter_args(%r = %x) -> (tensor<5x4x8xi8>) {
    %z = scf.for %j = %c0 to %c3 step %c1 iter_args(%s = %r) -> (tensor<5x4x8xi8>) {
      %k = scf.for %l = %c0 to %c8 step %c1 iter_args(%t = %s) -> (tensor<5x4x8xi8>) {
        %a = tensor.extract %tuples[%i, %j, %c0] : tensor<2x3x2xi64>
        %b = arith.index_cast %a : i64 to index
        %first = attn.check_index %b, %c5, "put" : index
        %c = tensor.extract %tuples[%i, %j, %c1] : tensor<2x3x2xi64>
        %d = arith.index_cast %c : i64 to index
        %second = attn.check_index %d, %c4, "put" : index
        %v = tensor.extract %u[%i, %j, %l] : tensor<2x3x8xi8>
        %bit = arith.cmpi ne, %v, %zero : i8
        %byte = arith.extui %bit : i1 to i8
        %w = tensor.insert %byte into %t[%first, %second, %l] : tensor<5x4x8xi8>
        scf.yield %w : tensor<5x4x8xi8>
      }
      scf.yield %k : tensor<5x4x8xi8>
    }
    scf.yield %z : tensor<5x4x8xi8>
  }
  return %y : tensor<5x4x8xi8>
}

// -----

// Near misses: a place twice, one beyond the end, places on both sides of 0, backwards, along a diagonal.
// CHECK-LABEL: func.func @twice
// CHECK-NOT: tensor.insert_slice
// CHECK: return
func.func @twice(%x: tensor<9xf32>, %u: tensor<2x3xf32>) -> tensor<9xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c3 = arith.constant 3 : index
  %y = scf.for %i = %c0 to %c2 step %c1 iter_args(%s = %x) -> (tensor<9xf32>) {
    %z = scf.for %j = %c0 to %c3 step %c1 iter_args(%t = %s) -> (tensor<9xf32>) {
      %v = tensor.extract %u[%i, %j] : tensor<2x3xf32>
      %w = tensor.insert %v into %t[%j] : tensor<9xf32>
      scf.yield %w : tensor<9xf32>
    }
    scf.yield %z : tensor<9xf32>
  }
  return %y : tensor<9xf32>
}
// CHECK-LABEL: func.func @tables
// CHECK-COUNT-4: attn.check_index
// CHECK-NOT: tensor.insert_slice
// CHECK: return
func.func @tables(%x: tensor<9xf32>, %u: tensor<3xf32>) -> tensor<9xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %c9 = arith.constant 9 : index
  %beyond = arith.constant dense<[7, 8, 9]> : tensor<3xi64>
  %around = arith.constant dense<[-1, 0, 1]> : tensor<3xi64>
  %back = arith.constant dense<[2, 1, 0]> : tensor<3xi64>
  %uneven = arith.constant dense<[0, 1, 3]> : tensor<3xi64>
  %y0 = scf.for %i = %c0 to %c3 step %c1 iter_args(%t = %x) -> (tensor<9xf32>) {
    %a = tensor.extract %beyond[%i] : tensor<3xi64>
    %b = arith.index_cast %a : i64 to index
    %to = attn.check_index %b, %c9, "put" : index
    %v = tensor.extract %u[%i] : tensor<3xf32>
    %w = tensor.insert %v into %t[%to] : tensor<9xf32>
    scf.yield %w : tensor<9xf32>
  }
  %y1 = scf.for %i = %c0 to %c3 step %c1 iter_args(%t = %y0) -> (tensor<9xf32>) {
    %a = tensor.extract %around[%i] : tensor<3xi64>
    %b = arith.index_cast %a : i64 to index
    %to = attn.check_index %b, %c9, "put" : index
    %v = tensor.extract %u[%i] : tensor<3xf32>
    %w = tensor.insert %v into %t[%to] : tensor<9xf32>
    scf.yield %w : tensor<9xf32>
  }
  %y2 = scf.for %i = %c0 to %c3 step %c1 iter_args(%t = %y1) -> (tensor<9xf32>) {
    %a = tensor.extract %back[%i] : tensor<3xi64>
    %b = arith.index_cast %a : i64 to index
    %to = attn.check_index %b, %c9, "put" : index
    %v = tensor.extract %u[%i] : tensor<3xf32>
    %w = tensor.insert %v into %t[%to] : tensor<9xf32>
    scf.yield %w : tensor<9xf32>
  }
  %y3 = scf.for %i = %c0 to %c3 step %c1 iter_args(%t = %y2) -> (tensor<9xf32>) {
    %a = tensor.extract %uneven[%i] : tensor<3xi64>
    %b = arith.index_cast %a : i64 to index
    %to = attn.check_index %b, %c9, "put" : index
    %v = tensor.extract %u[%i] : tensor<3xf32>
    %w = tensor.insert %v into %t[%to] : tensor<9xf32>
    scf.yield %w : tensor<9xf32>
  }
  return %y3 : tensor<9xf32>
}
// CHECK-LABEL: func.func @diagonal
// CHECK-NOT: tensor.insert_slice
// CHECK: return
func.func @diagonal(%x: tensor<3x3xf32>, %u: tensor<3xf32>) -> tensor<3x3xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %y = scf.for %i = %c0 to %c3 step %c1 iter_args(%t = %x) -> (tensor<3x3xf32>) {
    %v = tensor.extract %u[%i] : tensor<3xf32>
    %w = tensor.insert %v into %t[%i, %i] : tensor<3x3xf32>
    scf.yield %w : tensor<3x3xf32>
  }
  return %y : tensor<3x3xf32>
}
// What is put is added, or made of what the tensor holds.
// CHECK-LABEL: func.func @added
// CHECK-NOT: tensor.insert_slice
// CHECK: return
func.func @added(%x: tensor<3xf32>, %u: tensor<3xf32>) -> tensor<3xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %y = scf.for %i = %c0 to %c3 step %c1 iter_args(%t = %x) -> (tensor<3xf32>) {
    %v = tensor.extract %u[%i] : tensor<3xf32>
    %o = tensor.extract %t[%i] : tensor<3xf32>
    %s = arith.addf %o, %v : f32
    %w = tensor.insert %s into %t[%i] : tensor<3xf32>
    scf.yield %w : tensor<3xf32>
  }
  return %y : tensor<3xf32>
}

// -----

// Rows to places that are data: each as a slice.
// CHECK-LABEL: func.func @rows
// CHECK-SAME: %[[X:[^:]+]]: tensor<?x8x?xf32>, %[[U:[^:]+]]: tensor<?x8x?xf32>, %[[P:[^:]+]]: tensor<?xi64>
// CHECK: scf.for %[[I:.+]] = {{.*}} iter_args(%[[T:.+]] = %[[X]])
// CHECK-NOT: scf.for
// CHECK: %[[TO:.+]] = attn.check_index
// CHECK: %[[R:.+]] = tensor.extract_slice %[[U]][%[[I]], 0, 0] [1, 8, %{{.+}}] [1, 1, 1] : tensor<?x8x?xf32> to tensor<8x?xf32>
// CHECK: tensor.insert_slice %[[R]] into %[[T]][%[[TO]], 0, 0] [1, 8, %{{.+}}] [1, 1, 1]
// CHECK: return
func.func @rows(%x: tensor<?x8x?xf32>, %u: tensor<?x8x?xf32>, %p: tensor<?xi64>, %m: index, %n: index, %k: index)
    -> tensor<?x8x?xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  %y = scf.for %i = %c0 to %m step %c1 iter_args(%r = %x) -> (tensor<?x8x?xf32>) {
    %z = scf.for %j = %c0 to %c8 step %c1 iter_args(%s = %r) -> (tensor<?x8x?xf32>) {
      %q = scf.for %l = %c0 to %k step %c1 iter_args(%t = %s) -> (tensor<?x8x?xf32>) {
        %a = tensor.extract %p[%i] : tensor<?xi64>
        %b = arith.index_cast %a : i64 to index
        %to = attn.check_index %b, %n, "put" : index
        %v = tensor.extract %u[%i, %j, %l] : tensor<?x8x?xf32>
        %w = tensor.insert %v into %t[%to, %j, %l] : tensor<?x8x?xf32>
        scf.yield %w : tensor<?x8x?xf32>
      }
      scf.yield %q : tensor<?x8x?xf32>
    }
    scf.yield %z : tensor<?x8x?xf32>
  }
  return %y : tensor<?x8x?xf32>
}

// -----

// A loop over a dimension of size 1 is none: the update's middle dimension is read at 0.
// CHECK-LABEL: func.func @unit
// CHECK-SAME: %[[X:[^:]+]]: tensor<9x1x8xf32>, %[[U:[^:]+]]: tensor<4x1x8xf32>
// CHECK: %[[P:.+]] = tensor.extract_slice %[[U]][0, 0, 0] [4, 1, 8] [1, 1, 1] : tensor<4x1x8xf32> to tensor<4x8xf32>
// CHECK: %[[Y:.+]] = tensor.insert_slice %[[P]] into %[[X]][2, 0, 0] [4, 1, 8] [1, 1, 1]
// CHECK: return %[[Y]]
func.func @unit(%x: tensor<9x1x8xf32>, %u: tensor<4x1x8xf32>) -> tensor<9x1x8xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %c8 = arith.constant 8 : index
  %c9 = arith.constant 9 : index
  %p = arith.constant dense<[2, 3, 4, 5]> : tensor<4xi64>
  %y = scf.for %i = %c0 to %c4 step %c1 iter_args(%t = %x) -> (tensor<9x1x8xf32>) {
    %q = scf.for %j = %c0 to %c8 step %c1 iter_args(%r = %t) -> (tensor<9x1x8xf32>) {
      %a = tensor.extract %p[%i] : tensor<4xi64>
      %b = arith.index_cast %a : i64 to index
      %to = attn.check_index %b, %c9, "node 'put' (ScatterND)" : index
      %v = tensor.extract %u[%i, %c0, %j] : tensor<4x1x8xf32>
      %w = tensor.insert %v into %r[%to, %c0, %j] : tensor<9x1x8xf32>
      scf.yield %w : tensor<9x1x8xf32>
    }
    scf.yield %q : tensor<9x1x8xf32>
  }
  return %y : tensor<9x1x8xf32>
}

// -----

// One row of a longer dimension is not all of it.
// CHECK-LABEL: func.func @row
// CHECK: scf.for
func.func @row(%x: tensor<9x1x2xf32>, %u: tensor<4x3x2xf32>) -> tensor<9x1x2xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c4 = arith.constant 4 : index
  %c9 = arith.constant 9 : index
  %p = arith.constant dense<[2, 3, 4, 5]> : tensor<4xi64>
  %y = scf.for %i = %c0 to %c4 step %c1 iter_args(%t = %x) -> (tensor<9x1x2xf32>) {
    %q = scf.for %j = %c0 to %c2 step %c1 iter_args(%r = %t) -> (tensor<9x1x2xf32>) {
      %a = tensor.extract %p[%i] : tensor<4xi64>
      %b = arith.index_cast %a : i64 to index
      %to = attn.check_index %b, %c9, "node 'put' (ScatterND)" : index
      %v = tensor.extract %u[%i, %c0, %j] : tensor<4x3x2xf32>
      %w = tensor.insert %v into %r[%to, %c0, %j] : tensor<9x1x2xf32>
      scf.yield %w : tensor<9x1x2xf32>
    }
    scf.yield %q : tensor<9x1x2xf32>
  }
  return %y : tensor<9x1x2xf32>
}

// -----

// One element that is put without a loop, at a place that is known.
// CHECK-LABEL: func.func @element
// CHECK: tensor.insert_slice %{{.+}} into %{{.+}}[0, 3, 1] [1, 1, 1] [1, 1, 1] : tensor<f32> into tensor<1x8x5xf32>
func.func @element(%x: tensor<1x8x5xf32>, %u: tensor<1x1xf32>) -> tensor<1x8x5xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c5 = arith.constant 5 : index
  %c8 = arith.constant 8 : index
  %p = arith.constant dense<[[0, 3, 1]]> : tensor<1x3xi64>
  %b = tensor.extract %p[%c0, %c1] : tensor<1x3xi64>
  %bi = arith.index_cast %b : i64 to index
  %row = attn.check_index %bi, %c8, "node 'put' (ScatterND)" : index
  %c = tensor.extract %p[%c0, %c2] : tensor<1x3xi64>
  %ci = arith.index_cast %c : i64 to index
  %column = attn.check_index %ci, %c5, "node 'put' (ScatterND)" : index
  %v = tensor.extract %u[%c0, %c0] : tensor<1x1xf32>
  %y = tensor.insert %v into %x[%c0, %row, %column] : tensor<1x8x5xf32>
  return %y : tensor<1x8x5xf32>
}

// -----

// A run says where it is put.
// CHECK-LABEL: func.func @element_anywhere
// CHECK-NOT: tensor.insert_slice
// CHECK: tensor.insert %
func.func @element_anywhere(%x: tensor<8xf32>, %u: tensor<1xf32>, %p: tensor<1xi64>) -> tensor<8xf32> {
  %c0 = arith.constant 0 : index
  %c8 = arith.constant 8 : index
  %b = tensor.extract %p[%c0] : tensor<1xi64>
  %bi = arith.index_cast %b : i64 to index
  %row = attn.check_index %bi, %c8, "node 'put' (ScatterND)" : index
  %v = tensor.extract %u[%c0] : tensor<1xf32>
  %y = tensor.insert %v into %x[%row] : tensor<8xf32>
  return %y : tensor<8xf32>
}
