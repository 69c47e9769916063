// RUN: attn-opt %s -attn-recognize-attention -attn-prove-masks -split-input-file | FileCheck %s

// Equal quotients of positions are chunks.
#q = affine_map<(b, h, i, j, d, e) -> (i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (j, d)>
#v = affine_map<(b, h, i, j, d, e) -> (j, e)>
#m = affine_map<(b, h, i, j, d, e) -> (j)>
#o = affine_map<(b, h, i, j, d, e) -> (i, e)>
// Positions over 16, one of them from a vector: own chunk and its neighbours.
// CHECK-LABEL: func @neighbours
// CHECK: masked_rows nan mask [#attn.chunks<16, 1, 1>]
// CHECK-NOT: select
func.func @neighbours(%q: tensor<?x4xf32>, %k: tensor<?x4xf32>, %v: tensor<?x4xf32>, %keys: index) -> tensor<?x4xf32> {
  %e = tensor.empty(%keys) : tensor<?xi64>
  %m = linalg.generic {indexing_maps = [affine_map<(a) -> (a)>], iterator_types = ["parallel"]} outs(%e : tensor<?xi64>) {
  ^bb0(%old: i64):
    %at = linalg.index 0 : index
    %at64 = arith.index_cast %at : index to i64
    %c4 = arith.constant 4 : i64
    %x = arith.divsi %at64, %c4 : i64
    %y = arith.divsi %x, %c4 : i64
    linalg.yield %y : i64
  } -> tensor<?xi64>
  %r = attn.attention masked_rows nan maps [#q, #k, #v, #m, #o] ins(%q, %k, %v : tensor<?x4xf32>, tensor<?x4xf32>, tensor<?x4xf32>)
      captures(%m : tensor<?xi64>) -> tensor<?x4xf32> score {
  ^bb0(%s: f32, %c: i64):
    %i = attn.index 2 : index
    %i64 = arith.index_cast %i : index to i64
    %c16 = arith.constant 16 : i64
    %c2 = arith.constant 2 : i64
    %inf = arith.constant 0xFF800000 : f32
    %own = arith.divsi %i64, %c16 : i64
    %difference = arith.subi %own, %c : i64
    %distance = math.absi %difference : i64
    %shown = arith.cmpi slt, %distance, %c2 : i64
    %y = arith.select %shown, %s, %inf : f32
    attn.yield %y : f32
  }
  return %r : tensor<?x4xf32>
}

// -----

#q = affine_map<(b, h, i, j, d, e) -> (i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (j, d)>
#v = affine_map<(b, h, i, j, d, e) -> (j, e)>
#o = affine_map<(b, h, i, j, d, e) -> (i, e)>
// Near misses: other divisors, a shifted position, a divisor that is not known to be positive.
// CHECK-LABEL: func @no_chunks
// CHECK-NOT: attn.chunks
func.func @no_chunks(%q: tensor<?x4xf32>, %k: tensor<?x4xf32>, %v: tensor<?x4xf32>) -> (tensor<?x4xf32>, tensor<?x4xf32>, tensor<?x4xf32>) {
  %r = attn.attention masked_rows nan maps [#q, #k, #v, #o] ins(%q, %k, %v : tensor<?x4xf32>, tensor<?x4xf32>, tensor<?x4xf32>)
      -> tensor<?x4xf32> score {
  ^bb0(%s: f32):
    %i = attn.index 2 : index
    %j = attn.index 3 : index
    %c16 = arith.constant 16 : index
    %c8 = arith.constant 8 : index
    %inf = arith.constant 0xFF800000 : f32
    %a = arith.divui %i, %c16 : index
    %b = arith.divui %j, %c8 : index
    %shown = arith.cmpi eq, %a, %b : index
    %y = arith.select %shown, %s, %inf : f32
    attn.yield %y : f32
  }
  %t = attn.attention masked_rows nan maps [#q, #k, #v, #o] ins(%q, %k, %v : tensor<?x4xf32>, tensor<?x4xf32>, tensor<?x4xf32>)
      -> tensor<?x4xf32> score {
  ^bb0(%s: f32):
    %i = attn.index 2 : index
    %j = attn.index 3 : index
    %c16 = arith.constant 16 : index
    %inf = arith.constant 0xFF800000 : f32
    %later = arith.addi %i, %c16 : index
    %a = arith.divui %later, %c16 : index
    %b = arith.divui %j, %c16 : index
    %shown = arith.cmpi eq, %a, %b : index
    %y = arith.select %shown, %s, %inf : f32
    attn.yield %y : f32
  }
  %u = attn.attention masked_rows nan maps [#q, #k, #v, #o] ins(%q, %k, %v : tensor<?x4xf32>, tensor<?x4xf32>, tensor<?x4xf32>)
      -> tensor<?x4xf32> score {
  ^bb0(%s: f32):
    %i = attn.index 2 : index
    %j = attn.index 3 : index
    %c0 = arith.constant -16 : index
    %inf = arith.constant 0xFF800000 : f32
    %a = arith.divsi %i, %c0 : index
    %b = arith.divsi %j, %c0 : index
    %shown = arith.cmpi eq, %a, %b : index
    %y = arith.select %shown, %s, %inf : f32
    attn.yield %y : f32
  }
  return %r, %t, %u : tensor<?x4xf32>, tensor<?x4xf32>, tensor<?x4xf32>
}

// -----

#q = affine_map<(b, h, i, j, d, e) -> (i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (j, d)>
#v = affine_map<(b, h, i, j, d, e) -> (j, e)>
#m = affine_map<(b, h, i, j, d, e) -> (0, j)>
#o = affine_map<(b, h, i, j, d, e) -> (i, e)>
// The quotient of a key is read through a reshape and a slice of more positions. A slice that begins at the second one
// has the quotients of others.
// CHECK-LABEL: func @chunks_of_a_view
// CHECK: mask [#attn.chunks<8, 0, 0>]
// CHECK-NOT: attn.chunks
func.func @chunks_of_a_view(%q: tensor<?x4xf32>, %k: tensor<?x4xf32>, %v: tensor<?x4xf32>, %keys: index, %all: index)
    -> (tensor<?x4xf32>, tensor<?x4xf32>) {
  %e = tensor.empty(%all) : tensor<?xi64>
  %c8 = arith.constant 8 : i64
  %p = linalg.generic {indexing_maps = [affine_map<(a) -> (a)>], iterator_types = ["parallel"]} outs(%e : tensor<?xi64>) {
  ^bb0(%old: i64):
    %at = linalg.index 0 : index
    %at64 = arith.index_cast %at : index to i64
    %y = arith.divsi %at64, %c8 : i64
    linalg.yield %y : i64
  } -> tensor<?xi64>
  %first = tensor.extract_slice %p[0] [%keys] [1] : tensor<?xi64> to tensor<?xi64>
  %second = tensor.extract_slice %p[1] [%keys] [1] : tensor<?xi64> to tensor<?xi64>
  %m = tensor.expand_shape %first [[0, 1]] output_shape [1, %keys] : tensor<?xi64> into tensor<1x?xi64>
  %n = tensor.expand_shape %second [[0, 1]] output_shape [1, %keys] : tensor<?xi64> into tensor<1x?xi64>
  %r = attn.attention masked_rows nan maps [#q, #k, #v, #m, #o] ins(%q, %k, %v : tensor<?x4xf32>, tensor<?x4xf32>, tensor<?x4xf32>)
      captures(%m : tensor<1x?xi64>) -> tensor<?x4xf32> score {
  ^bb0(%s: f32, %c: i64):
    %i = attn.index 2 : index
    %i64 = arith.index_cast %i : index to i64
    %eight = arith.constant 8 : i64
    %inf = arith.constant 0xFF800000 : f32
    %own = arith.divsi %i64, %eight : i64
    %shown = arith.cmpi eq, %own, %c : i64
    %y = arith.select %shown, %s, %inf : f32
    attn.yield %y : f32
  }
  %t = attn.attention masked_rows nan maps [#q, #k, #v, #m, #o] ins(%q, %k, %v : tensor<?x4xf32>, tensor<?x4xf32>, tensor<?x4xf32>)
      captures(%n : tensor<1x?xi64>) -> tensor<?x4xf32> score {
  ^bb0(%s: f32, %c: i64):
    %i = attn.index 2 : index
    %i64 = arith.index_cast %i : index to i64
    %eight = arith.constant 8 : i64
    %inf = arith.constant 0xFF800000 : f32
    %own = arith.divsi %i64, %eight : i64
    %shown = arith.cmpi eq, %own, %c : i64
    %y = arith.select %shown, %s, %inf : f32
    attn.yield %y : f32
  }
  return %r, %t : tensor<?x4xf32>, tensor<?x4xf32>
}

// -----

#q = affine_map<(b, h, i, j, d, e) -> (i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (j, d)>
#v = affine_map<(b, h, i, j, d, e) -> (j, e)>
#o = affine_map<(b, h, i, j, d, e) -> (i, e)>
// All chunks before, the own one with or without them, and all behind.
// CHECK-LABEL: func @sides
// CHECK: mask [#attn.chunks<8, inf, 0>]
// CHECK: mask [#attn.chunks<8, inf, -1>]
// CHECK: mask [#attn.chunks<8, 0, inf>]
// CHECK: mask [#attn.chunks<8, -1, inf>]
func.func @sides(%q: tensor<?x4xf32>, %k: tensor<?x4xf32>, %v: tensor<?x4xf32>) -> (tensor<?x4xf32>, tensor<?x4xf32>, tensor<?x4xf32>, tensor<?x4xf32>) {
  %r0 = attn.attention masked_rows nan maps [#q, #k, #v, #o] ins(%q, %k, %v : tensor<?x4xf32>, tensor<?x4xf32>, tensor<?x4xf32>)
      -> tensor<?x4xf32> score {
  ^bb0(%s: f32):
    %i = attn.index 2 : index
    %j = attn.index 3 : index
    %c8 = arith.constant 8 : index
    %inf = arith.constant 0xFF800000 : f32
    %own = arith.divui %i, %c8 : index
    %other = arith.divui %j, %c8 : index
    %shown = arith.cmpi sge, %own, %other : index
    %y = arith.select %shown, %s, %inf : f32
    attn.yield %y : f32
  }
  %r1 = attn.attention masked_rows nan maps [#q, #k, #v, #o] ins(%q, %k, %v : tensor<?x4xf32>, tensor<?x4xf32>, tensor<?x4xf32>)
      -> tensor<?x4xf32> score {
  ^bb0(%s: f32):
    %i = attn.index 2 : index
    %j = attn.index 3 : index
    %c8 = arith.constant 8 : index
    %inf = arith.constant 0xFF800000 : f32
    %own = arith.divui %i, %c8 : index
    %other = arith.divui %j, %c8 : index
    %shown = arith.cmpi slt, %other, %own : index
    %y = arith.select %shown, %s, %inf : f32
    attn.yield %y : f32
  }
  %r2 = attn.attention masked_rows nan maps [#q, #k, #v, #o] ins(%q, %k, %v : tensor<?x4xf32>, tensor<?x4xf32>, tensor<?x4xf32>)
      -> tensor<?x4xf32> score {
  ^bb0(%s: f32):
    %i = attn.index 2 : index
    %j = attn.index 3 : index
    %c8 = arith.constant 8 : index
    %inf = arith.constant 0xFF800000 : f32
    %own = arith.divui %i, %c8 : index
    %other = arith.divui %j, %c8 : index
    %shown = arith.cmpi sle, %own, %other : index
    %y = arith.select %shown, %s, %inf : f32
    attn.yield %y : f32
  }
  %r3 = attn.attention masked_rows nan maps [#q, #k, #v, #o] ins(%q, %k, %v : tensor<?x4xf32>, tensor<?x4xf32>, tensor<?x4xf32>)
      -> tensor<?x4xf32> score {
  ^bb0(%s: f32):
    %i = attn.index 2 : index
    %j = attn.index 3 : index
    %c8 = arith.constant 8 : index
    %inf = arith.constant 0xFF800000 : f32
    %own = arith.divui %i, %c8 : index
    %other = arith.divui %j, %c8 : index
    %shown = arith.cmpi sgt, %other, %own : index
    %y = arith.select %shown, %s, %inf : f32
    attn.yield %y : f32
  }
  return %r0, %r1, %r2, %r3 : tensor<?x4xf32>, tensor<?x4xf32>, tensor<?x4xf32>, tensor<?x4xf32>
}

// -----

#q = affine_map<(b, h, i, j, d, e) -> (i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (j, d)>
#v = affine_map<(b, h, i, j, d, e) -> (j, e)>
#o = affine_map<(b, h, i, j, d, e) -> (i, e)>
// Floors of few positions, hidden where the key's chunk is later.
// CHECK-LABEL: func @floors
// CHECK: mask [#attn.chunks<8, inf, 0>]
func.func @floors(%q: tensor<24x4xf32>, %k: tensor<32x4xf32>, %v: tensor<32x4xf32>) -> tensor<24x4xf32> {
  %r = attn.attention masked_rows nan maps [#q, #k, #v, #o] ins(%q, %k, %v : tensor<24x4xf32>, tensor<32x4xf32>, tensor<32x4xf32>)
      -> tensor<24x4xf32> score {
  ^bb0(%s: f32):
    %i = attn.index 2 : index
    %j = attn.index 3 : index
    %eight = arith.constant 8.0 : f32
    %inf = arith.constant 0xFF800000 : f32
    %i64 = arith.index_cast %i : index to i64
    %j64 = arith.index_cast %j : index to i64
    %x = arith.sitofp %i64 : i64 to f32
    %z = arith.sitofp %j64 : i64 to f32
    %a = arith.divf %x, %eight : f32
    %b = arith.divf %z, %eight : f32
    %own = math.floor %a : f32
    %other = math.floor %b : f32
    %hidden = arith.cmpf ogt, %other, %own : f32
    %y = arith.select %hidden, %inf, %s : f32
    attn.yield %y : f32
  }
  return %r : tensor<24x4xf32>
}

// -----

#q = affine_map<(b, h, i, j, d, e) -> (i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (j, d)>
#v = affine_map<(b, h, i, j, d, e) -> (j, e)>
#o = affine_map<(b, h, i, j, d, e) -> (i, e)>
// The floors of quotients of real numbers; a division by 1 changes nothing. Near miss: the quotients themselves.
// CHECK-LABEL: func @chunks_of_reals
// CHECK: mask [#attn.chunks<8, 0, 0>]
// CHECK-NOT: attn.chunks
func.func @chunks_of_reals(%q: tensor<40x4xf32>, %k: tensor<40x4xf32>, %v: tensor<40x4xf32>) -> (tensor<40x4xf32>, tensor<40x4xf32>) {
  %r = attn.attention masked_rows nan maps [#q, #k, #v, #o] ins(%q, %k, %v : tensor<40x4xf32>, tensor<40x4xf32>, tensor<40x4xf32>)
      -> tensor<40x4xf32> score {
  ^bb0(%s: f32):
    %i = attn.index 2 : index
    %j = attn.index 3 : index
    %one = arith.constant 1.0 : f32
    %eight = arith.constant 8.0 : f32
    %inf = arith.constant 0xFF800000 : f32
    %i64 = arith.index_cast %i : index to i64
    %j64 = arith.index_cast %j : index to i64
    %x = arith.sitofp %i64 : i64 to f32
    %y = arith.sitofp %j64 : i64 to f32
    %x1 = arith.divf %x, %one : f32
    %x8 = arith.divf %x1, %eight : f32
    %y8 = arith.divf %y, %eight : f32
    %a = math.floor %x8 : f32
    %b = math.floor %y8 : f32
    %shown = arith.cmpf oeq, %a, %b : f32
    %z = arith.select %shown, %s, %inf : f32
    attn.yield %z : f32
  }
  %t = attn.attention masked_rows nan maps [#q, #k, #v, #o] ins(%q, %k, %v : tensor<40x4xf32>, tensor<40x4xf32>, tensor<40x4xf32>)
      -> tensor<40x4xf32> score {
  ^bb0(%s: f32):
    %i = attn.index 2 : index
    %j = attn.index 3 : index
    %eight = arith.constant 8.0 : f32
    %inf = arith.constant 0xFF800000 : f32
    %i64 = arith.index_cast %i : index to i64
    %j64 = arith.index_cast %j : index to i64
    %x = arith.sitofp %i64 : i64 to f32
    %y = arith.sitofp %j64 : i64 to f32
    %a = arith.divf %x, %eight : f32
    %b = arith.divf %y, %eight : f32
    %shown = arith.cmpf oeq, %a, %b : f32
    %z = arith.select %shown, %s, %inf : f32
    attn.yield %z : f32
  }
  return %r, %t : tensor<40x4xf32>, tensor<40x4xf32>
}
