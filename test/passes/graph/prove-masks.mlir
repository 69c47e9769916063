// RUN: attn-opt %s -attn-recognize-attention -attn-prove-masks -split-input-file | FileCheck %s
// RUN: attn-opt %s -attn-recognize-attention -attn-prove-masks=exact=true -split-input-file | FileCheck %s --check-prefix=EXACT

// What is proved becomes terms of the mask and leaves the region.

#q = affine_map<(b, h, i, j, d, e) -> (i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (j, d)>
#v = affine_map<(b, h, i, j, d, e) -> (j, e)>
#o = affine_map<(b, h, i, j, d, e) -> (i, e)>
// Hidden where i < j or j <= i - 4.
// CHECK-LABEL: func @window
// CHECK: masked_rows nan mask [#attn.causal<0>, #attn.window<3, inf>]
// CHECK-NOT: select
// CHECK: attn.yield %[[S:.*]] : f32
func.func @window(%q: tensor<?x4xf32>, %k: tensor<?x4xf32>, %v: tensor<?x4xf32>) -> tensor<?x4xf32> {
  %r = attn.attention masked_rows nan maps [#q, #k, #v, #o] ins(%q, %k, %v : tensor<?x4xf32>, tensor<?x4xf32>, tensor<?x4xf32>)
      -> tensor<?x4xf32> score {
  ^bb0(%s: f32):
    %i = attn.index 2 : index
    %j = attn.index 3 : index
    %c4 = arith.constant 4 : index
    %inf = arith.constant 0xFF800000 : f32
    %after = arith.cmpi slt, %i, %j : index
    %first = arith.subi %i, %c4 : index
    %before = arith.cmpi sle, %j, %first : index
    %hidden = arith.ori %after, %before : i1
    %y = arith.select %hidden, %inf, %s : f32
    attn.yield %y : f32
  }
  return %r : tensor<?x4xf32>
}

// -----

#q = affine_map<(b, h, i, j, d, e) -> (b, i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (b, j, d)>
#v = affine_map<(b, h, i, j, d, e) -> (b, j, e)>
#n = affine_map<(b, h, i, j, d, e) -> (b)>
#o = affine_map<(b, h, i, j, d, e) -> (b, i, e)>
// j < n + 1: the operand is computed, where n + 1 may not wrap; the capture goes.
// CHECK-LABEL: func @lengths
// CHECK: %[[N:.*]] = linalg.generic
// CHECK: arith.maxsi
// CHECK: arith.minsi
// CHECK: arith.addi
// CHECK: attn.attention masked_rows nan mask [#attn.lengths]
// CHECK-NOT: captures
// CHECK-SAME: mask_operands(%[[N]] : tensor<2xi64>)
func.func @lengths(%q: tensor<2x5x4xf32>, %k: tensor<2x5x4xf32>, %v: tensor<2x5x4xf32>, %n: tensor<2xi64>) -> tensor<2x5x4xf32> {
  %r = attn.attention masked_rows nan maps [#q, #k, #v, #n, #o]
      ins(%q, %k, %v : tensor<2x5x4xf32>, tensor<2x5x4xf32>, tensor<2x5x4xf32>) captures(%n : tensor<2xi64>)
      -> tensor<2x5x4xf32> score {
  ^bb0(%s: f32, %len: i64):
    %j = attn.index 3 : index
    %c1 = arith.constant 1 : i64
    %inf = arith.constant 0xFF800000 : f32
    %zero = arith.constant 0.0 : f32
    %j64 = arith.index_cast %j : index to i64
    %last = arith.addi %len, %c1 : i64
    %early = arith.cmpi slt, %j64, %last : i64
    %bias = arith.select %early, %zero, %inf : f32
    %y = arith.addf %s, %bias : f32
    attn.yield %y : f32
  }
  return %r : tensor<2x5x4xf32>
}

// -----

#q = affine_map<(b, h, i, j, d, e) -> (i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (j, d)>
#v = affine_map<(b, h, i, j, d, e) -> (j, e)>
#o = affine_map<(b, h, i, j, d, e) -> (i, e)>
// Every row sees key 0, so -1e4 is as good as -inf if scores are small.
// CHECK: assumes = ["|score| < 2.50e+03, a quarter of the mask's -1.00e+04"]
// CHECK-LABEL: func @finite_causal
// CHECK: masked_rows nan mask [#attn.causal<0>]
// CHECK-NOT: masked {
// EXACT-NOT: assumes
// EXACT-LABEL: func @finite_causal
// EXACT-NOT: mask [
// EXACT: arith.select
func.func @finite_causal(%q: tensor<5x4xf32>, %k: tensor<5x4xf32>, %v: tensor<5x4xf32>) -> tensor<5x4xf32> {
  %r = attn.attention masked_rows nan maps [#q, #k, #v, #o] ins(%q, %k, %v : tensor<5x4xf32>, tensor<5x4xf32>, tensor<5x4xf32>)
      -> tensor<5x4xf32> score {
  ^bb0(%s: f32):
    %i = attn.index 2 : index
    %j = attn.index 3 : index
    %low = arith.constant -1.0e+04 : f32
    %shown = arith.cmpi sle, %j, %i : index
    %y = arith.select %shown, %s, %low : f32
    attn.yield %y : f32
  }
  return %r : tensor<5x4xf32>
}

// -----

#q = affine_map<(b, h, i, j, d, e) -> (i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (j, d)>
#v = affine_map<(b, h, i, j, d, e) -> (j, e)>
#m = affine_map<(b, h, i, j, d, e) -> (j)>
#o = affine_map<(b, h, i, j, d, e) -> (i, e)>
// A row may see no key: then all take part, with what the graph gives them.
// CHECK-LABEL: func @finite_padding
// CHECK: masked_rows finite mask [#attn.causal<0>, #attn.dense]
// CHECK-SAME: captures(%[[M:.*]] : tensor<5xi8>) mask_operands(%[[M]] : tensor<5xi8>)
// CHECK: score {
// CHECK-NEXT: ^bb0(%[[S:.*]]: f32, %{{.*}}: i8):
// CHECK-NEXT: attn.yield %[[S]] : f32
// CHECK: masked {
// CHECK: %[[BIAS:.*]] = arith.select
// CHECK: arith.addf %{{.*}}, %[[BIAS]] : f32
func.func @finite_padding(%q: tensor<5x4xf32>, %k: tensor<5x4xf32>, %v: tensor<5x4xf32>, %m: tensor<5xi8>) -> tensor<5x4xf32> {
  %r = attn.attention masked_rows nan maps [#q, #k, #v, #m, #o] ins(%q, %k, %v : tensor<5x4xf32>, tensor<5x4xf32>, tensor<5x4xf32>)
      captures(%m : tensor<5xi8>) -> tensor<5x4xf32> score {
  ^bb0(%s: f32, %x: i8):
    %i = attn.index 2 : index
    %j = attn.index 3 : index
    %c0 = arith.constant 0 : i8
    %low = arith.constant -3.40282347E+38 : f32
    %zero = arith.constant 0.0 : f32
    %below = arith.cmpi sle, %j, %i : index
    %stored = arith.cmpi ne, %x, %c0 : i8
    %shown = arith.andi %below, %stored : i1
    %bias = arith.select %shown, %zero, %low : f32
    %y = arith.addf %s, %bias : f32
    attn.yield %y : f32
  }
  return %r : tensor<5x4xf32>
}

// -----

#q = affine_map<(b, h, i, j, d, e) -> (i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (j, d)>
#v = affine_map<(b, h, i, j, d, e) -> (j, e)>
#m = affine_map<(b, h, i, j, d, e) -> (j)>
#o = affine_map<(b, h, i, j, d, e) -> (i, e)>
// No row is without a finite score: the guard has nothing to make zero.
// CHECK-LABEL: func @finite_with_guard
// CHECK: masked_rows finite mask [#attn.causal<0>, #attn.dense]
// CHECK: masked {
func.func @finite_with_guard(%q: tensor<5x4xf32>, %k: tensor<5x4xf32>, %v: tensor<5x4xf32>, %m: tensor<5xi8>) -> tensor<5x4xf32> {
  %r = attn.attention masked_rows zero maps [#q, #k, #v, #m, #o] ins(%q, %k, %v : tensor<5x4xf32>, tensor<5x4xf32>, tensor<5x4xf32>)
      captures(%m : tensor<5xi8>) -> tensor<5x4xf32> score {
  ^bb0(%s: f32, %x: i8):
    %i = attn.index 2 : index
    %j = attn.index 3 : index
    %c0 = arith.constant 0 : i8
    %low = arith.constant -3.40282347E+38 : f32
    %zero = arith.constant 0.0 : f32
    %below = arith.cmpi sle, %j, %i : index
    %stored = arith.cmpi ne, %x, %c0 : i8
    %shown = arith.andi %below, %stored : i1
    %bias = arith.select %shown, %zero, %low : f32
    %y = arith.addf %s, %bias : f32
    attn.yield %y : f32
  }
  return %r : tensor<5x4xf32>
}

// -----

#q = affine_map<(b, h, i, j, d, e) -> (i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (j, d)>
#v = affine_map<(b, h, i, j, d, e) -> (j, e)>
#m = affine_map<(b, h, i, j, d, e) -> (j)>
#o = affine_map<(b, h, i, j, d, e) -> (i, e)>
// The sum of two masks is -inf, and rows where both hide all keys are zero: the masks stay arithmetic. Where the second
// one replaces what the first one made, all is finite.
// CHECK-LABEL: func @twice_with_guard
// CHECK: masked_rows zero maps
// CHECK-LABEL: func @replaced_with_guard
// CHECK: masked_rows finite mask [#attn.causal<0>, #attn.dense]
func.func @twice_with_guard(%q: tensor<5x4xf32>, %k: tensor<5x4xf32>, %v: tensor<5x4xf32>, %m: tensor<5xi8>) -> tensor<5x4xf32> {
  %r = attn.attention masked_rows zero maps [#q, #k, #v, #m, #o] ins(%q, %k, %v : tensor<5x4xf32>, tensor<5x4xf32>, tensor<5x4xf32>)
      captures(%m : tensor<5xi8>) -> tensor<5x4xf32> score {
  ^bb0(%s: f32, %x: i8):
    %i = attn.index 2 : index
    %j = attn.index 3 : index
    %c0 = arith.constant 0 : i8
    %low = arith.constant -3.40282347E+38 : f32
    %zero = arith.constant 0.0 : f32
    %below = arith.cmpi sle, %j, %i : index
    %stored = arith.cmpi ne, %x, %c0 : i8
    %bias = arith.select %stored, %zero, %low : f32
    %z = arith.addf %s, %bias : f32
    %more = arith.select %below, %zero, %low : f32
    %y = arith.addf %z, %more : f32
    attn.yield %y : f32
  }
  return %r : tensor<5x4xf32>
}
func.func @replaced_with_guard(%q: tensor<5x4xf32>, %k: tensor<5x4xf32>, %v: tensor<5x4xf32>, %m: tensor<5xi8>) -> tensor<5x4xf32> {
  %r = attn.attention masked_rows zero maps [#q, #k, #v, #m, #o] ins(%q, %k, %v : tensor<5x4xf32>, tensor<5x4xf32>, tensor<5x4xf32>)
      captures(%m : tensor<5xi8>) -> tensor<5x4xf32> score {
  ^bb0(%s: f32, %x: i8):
    %i = attn.index 2 : index
    %j = attn.index 3 : index
    %c0 = arith.constant 0 : i8
    %low = arith.constant -3.40282347E+38 : f32
    %zero = arith.constant 0.0 : f32
    %below = arith.cmpi sle, %j, %i : index
    %stored = arith.cmpi ne, %x, %c0 : i8
    %bias = arith.select %stored, %zero, %low : f32
    %z = arith.addf %s, %bias : f32
    %y = arith.select %below, %z, %low : f32
    attn.yield %y : f32
  }
  return %r : tensor<5x4xf32>
}

// -----

#q = affine_map<(b, h, i, j, d, e) -> (i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (j, d)>
#v = affine_map<(b, h, i, j, d, e) -> (j, e)>
#m = affine_map<(b, h, i, j, d, e) -> (j)>
#o = affine_map<(b, h, i, j, d, e) -> (i, e)>
// Rows may have none here, and are zero then: the finite constant stays a number.
// CHECK-LABEL: func @infinite_with_guard
// CHECK: masked_rows zero mask [#attn.causal<0>] maps
// CHECK: arith.select
func.func @infinite_with_guard(%q: tensor<5x4xf32>, %k: tensor<5x4xf32>, %v: tensor<5x4xf32>, %m: tensor<5xi8>) -> tensor<5x4xf32> {
  %r = attn.attention masked_rows zero maps [#q, #k, #v, #m, #o] ins(%q, %k, %v : tensor<5x4xf32>, tensor<5x4xf32>, tensor<5x4xf32>)
      captures(%m : tensor<5xi8>) -> tensor<5x4xf32> score {
  ^bb0(%s: f32, %x: i8):
    %i = attn.index 2 : index
    %j = attn.index 3 : index
    %c0 = arith.constant 0 : i8
    %low = arith.constant -3.40282347E+38 : f32
    %inf = arith.constant 0xFF800000 : f32
    %zero = arith.constant 0.0 : f32
    %below = arith.cmpi sle, %j, %i : index
    %stored = arith.cmpi ne, %x, %c0 : i8
    %bias = arith.select %stored, %zero, %low : f32
    %z = arith.addf %s, %bias : f32
    %y = arith.select %below, %z, %inf : f32
    attn.yield %y : f32
  }
  return %r : tensor<5x4xf32>
}

// -----

#q = affine_map<(b, h, i, j, d, e) -> (i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (j, d)>
#v = affine_map<(b, h, i, j, d, e) -> (j, e)>
#m = affine_map<(b, h, i, j, d, e) -> (j)>
#o = affine_map<(b, h, i, j, d, e) -> (i, e)>
// A float mask may hide what the causal one shows: nothing is claimed.
// CHECK-LABEL: func @finite_beside_floats
// CHECK-NOT: mask [
// CHECK: arith.select
func.func @finite_beside_floats(%q: tensor<5x4xf32>, %k: tensor<5x4xf32>, %v: tensor<5x4xf32>, %m: tensor<5xf32>) -> tensor<5x4xf32> {
  %r = attn.attention masked_rows nan maps [#q, #k, #v, #m, #o] ins(%q, %k, %v : tensor<5x4xf32>, tensor<5x4xf32>, tensor<5x4xf32>)
      captures(%m : tensor<5xf32>) -> tensor<5x4xf32> score {
  ^bb0(%s: f32, %x: f32):
    %i = attn.index 2 : index
    %j = attn.index 3 : index
    %low = arith.constant -3.40282347E+38 : f32
    %below = arith.cmpi sle, %j, %i : index
    %z = arith.addf %s, %x : f32
    %y = arith.select %below, %z, %low : f32
    attn.yield %y : f32
  }
  return %r : tensor<5x4xf32>
}

// -----

#q = affine_map<(b, h, i, j, d, e) -> (i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (j, d)>
#v = affine_map<(b, h, i, j, d, e) -> (j, e)>
#m = affine_map<(b, h, i, j, d, e) -> (i)>
#t = affine_map<(b, h, i, j, d, e) -> ()>
#o = affine_map<(b, h, i, j, d, e) -> (i, e)>
// A float mask of whole queries brings what they see down to the constant, and so does a flag for all.
// CHECK-LABEL: func @finite_beside_rows
// CHECK-NOT: mask [
// CHECK: arith.select
// CHECK-NOT: mask [
// CHECK: arith.select
// A temperature does not.
// CHECK: mask [#attn.causal<0>]
func.func @finite_beside_rows(%q: tensor<5x4xf32>, %k: tensor<5x4xf32>, %v: tensor<5x4xf32>, %m: tensor<5xf32>, %t: tensor<f32>) -> (tensor<5x4xf32>, tensor<5x4xf32>, tensor<5x4xf32>) {
  %rows = attn.attention masked_rows nan maps [#q, #k, #v, #m, #o] ins(%q, %k, %v : tensor<5x4xf32>, tensor<5x4xf32>, tensor<5x4xf32>)
      captures(%m : tensor<5xf32>) -> tensor<5x4xf32> score {
  ^bb0(%s: f32, %x: f32):
    %i = attn.index 2 : index
    %j = attn.index 3 : index
    %low = arith.constant -3.40282347E+38 : f32
    %below = arith.cmpi sle, %j, %i : index
    %z = arith.addf %s, %x : f32
    %y = arith.select %below, %z, %low : f32
    attn.yield %y : f32
  }
  %flag = attn.attention masked_rows nan maps [#q, #k, #v, #t, #o] ins(%q, %k, %v : tensor<5x4xf32>, tensor<5x4xf32>, tensor<5x4xf32>)
      captures(%t : tensor<f32>) -> tensor<5x4xf32> score {
  ^bb0(%s: f32, %x: f32):
    %i = attn.index 2 : index
    %j = attn.index 3 : index
    %low = arith.constant -1.0E+9 : f32
    %below = arith.cmpi sle, %j, %i : index
    %z = arith.addf %s, %x : f32
    %y = arith.select %below, %z, %low : f32
    attn.yield %y : f32
  }
  %scaled = attn.attention masked_rows nan maps [#q, #k, #v, #t, #o] ins(%q, %k, %v : tensor<5x4xf32>, tensor<5x4xf32>, tensor<5x4xf32>)
      captures(%t : tensor<f32>) -> tensor<5x4xf32> score {
  ^bb0(%s: f32, %x: f32):
    %i = attn.index 2 : index
    %j = attn.index 3 : index
    %low = arith.constant -1.0E+9 : f32
    %below = arith.cmpi sle, %j, %i : index
    %z = arith.divf %s, %x : f32
    %y = arith.select %below, %z, %low : f32
    attn.yield %y : f32
  }
  return %rows, %flag, %scaled : tensor<5x4xf32>, tensor<5x4xf32>, tensor<5x4xf32>
}

// -----

#q = affine_map<(b, h, i, j, d, e) -> (i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (j, d)>
#v = affine_map<(b, h, i, j, d, e) -> (j, e)>
#o = affine_map<(b, h, i, j, d, e) -> (i, e)>
// -100 hides nothing for certain; a weight region that makes something of 0 sees hidden keys.
// CHECK-LABEL: func @shallow
// CHECK-NOT: mask [
// CHECK: return
func.func @shallow(%q: tensor<5x4xf32>, %k: tensor<5x4xf32>, %v: tensor<5x4xf32>) -> (tensor<5x4xf32>, tensor<5x4xf32>) {
  %r = attn.attention masked_rows nan maps [#q, #k, #v, #o] ins(%q, %k, %v : tensor<5x4xf32>, tensor<5x4xf32>, tensor<5x4xf32>)
      -> tensor<5x4xf32> score {
  ^bb0(%s: f32):
    %i = attn.index 2 : index
    %j = attn.index 3 : index
    %low = arith.constant -1.0e+02 : f32
    %shown = arith.cmpi sle, %j, %i : index
    %y = arith.select %shown, %s, %low : f32
    attn.yield %y : f32
  }
  %t = attn.attention masked_rows nan maps [#q, #k, #v, #o] ins(%q, %k, %v : tensor<5x4xf32>, tensor<5x4xf32>, tensor<5x4xf32>)
      -> tensor<5x4xf32> score {
  ^bb0(%s: f32):
    %i = attn.index 2 : index
    %j = attn.index 3 : index
    %inf = arith.constant 0xFF800000 : f32
    %shown = arith.cmpi sle, %j, %i : index
    %y = arith.select %shown, %s, %inf : f32
    attn.yield %y : f32
  } weight {
  ^bb0(%w: f32):
    %one = arith.constant 1.0 : f32
    %x = arith.addf %w, %one : f32
    attn.yield %x : f32
  }
  return %r, %t : tensor<5x4xf32>, tensor<5x4xf32>
}

// -----

#q = affine_map<(b, h, i, j, d, e) -> (i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (j, d)>
#v = affine_map<(b, h, i, j, d, e) -> (j, e)>
#o = affine_map<(b, h, i, j, d, e) -> (i, e)>
// (s + mask) / 8 * 0.5: the mask is as far as its sixteenth.
// CHECK: assumes = ["|score| < 1.56e+07, a quarter of the mask's -6.25e+07"]
// CHECK-LABEL: func @scaled
// CHECK: masked_rows nan mask [#attn.causal<0>]
func.func @scaled(%q: tensor<5x4xf32>, %k: tensor<5x4xf32>, %v: tensor<5x4xf32>) -> tensor<5x4xf32> {
  %r = attn.attention masked_rows nan maps [#q, #k, #v, #o] ins(%q, %k, %v : tensor<5x4xf32>, tensor<5x4xf32>, tensor<5x4xf32>)
      -> tensor<5x4xf32> score {
  ^bb0(%s: f32):
    %i = attn.index 2 : index
    %j = attn.index 3 : index
    %low = arith.constant -1.0e+09 : f32
    %zero = arith.constant 0.0 : f32
    %eight = arith.constant 8.0 : f32
    %half = arith.constant 0.5 : f32
    %shown = arith.cmpi sle, %j, %i : index
    %bias = arith.select %shown, %zero, %low : f32
    %x = arith.addf %s, %bias : f32
    %y = arith.divf %x, %eight : f32
    %z = arith.mulf %half, %y : f32
    attn.yield %z : f32
  }
  return %r : tensor<5x4xf32>
}

// -----

#q = affine_map<(b, h, i, j, d, e) -> (i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (j, d)>
#v = affine_map<(b, h, i, j, d, e) -> (j, e)>
#o = affine_map<(b, h, i, j, d, e) -> (i, e)>
// An eighth of -1e4 is no mask; what is scaled beyond f32 or below 0 is none, either.
// CHECK-LABEL: func @scaled_away
// CHECK-NOT: mask [
// CHECK: return
func.func @scaled_away(%q: tensor<5x4xf32>, %k: tensor<5x4xf32>, %v: tensor<5x4xf32>) -> (tensor<5x4xf32>, tensor<5x4xf32>, tensor<5x4xf32>) {
  %r = attn.attention masked_rows nan maps [#q, #k, #v, #o] ins(%q, %k, %v : tensor<5x4xf32>, tensor<5x4xf32>, tensor<5x4xf32>)
      -> tensor<5x4xf32> score {
  ^bb0(%s: f32):
    %i = attn.index 2 : index
    %j = attn.index 3 : index
    %low = arith.constant -1.0e+04 : f32
    %eight = arith.constant 8.0 : f32
    %shown = arith.cmpi sle, %j, %i : index
    %x = arith.select %shown, %s, %low : f32
    %y = arith.divf %x, %eight : f32
    attn.yield %y : f32
  }
  %t = attn.attention masked_rows nan maps [#q, #k, #v, #o] ins(%q, %k, %v : tensor<5x4xf32>, tensor<5x4xf32>, tensor<5x4xf32>)
      -> tensor<5x4xf32> score {
  ^bb0(%s: f32):
    %i = attn.index 2 : index
    %j = attn.index 3 : index
    %low = arith.constant -3.40282347E+38 : f32
    %eight = arith.constant 8.0 : f32
    %shown = arith.cmpi sle, %j, %i : index
    %x = arith.select %shown, %s, %low : f32
    %y = arith.mulf %x, %eight : f32
    attn.yield %y : f32
  }
  %u = attn.attention masked_rows nan maps [#q, #k, #v, #o] ins(%q, %k, %v : tensor<5x4xf32>, tensor<5x4xf32>, tensor<5x4xf32>)
      -> tensor<5x4xf32> score {
  ^bb0(%s: f32):
    %i = attn.index 2 : index
    %j = attn.index 3 : index
    %low = arith.constant 0xFF800000 : f32
    %eight = arith.constant -8.0 : f32
    %shown = arith.cmpi sle, %j, %i : index
    %x = arith.select %shown, %s, %low : f32
    %y = arith.divf %x, %eight : f32
    attn.yield %y : f32
  }
  return %r, %t, %u : tensor<5x4xf32>, tensor<5x4xf32>, tensor<5x4xf32>
}

// -----

#q = affine_map<(b, h, i, j, d, e) -> (i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (j, d)>
#v = affine_map<(b, h, i, j, d, e) -> (j, e)>
#m = affine_map<(b, h, i, j, d, e) -> (j)>
#o = affine_map<(b, h, i, j, d, e) -> (i, e)>
// A bias for keys of stored numbers below a quarter of the mask, and one of integers of a run, cannot hide keys.
// CHECK-LABEL: func @finite_with_bias
// CHECK: masked_rows nan mask [#attn.causal<0>]
func.func @finite_with_bias(%q: tensor<3x4xf32>, %k: tensor<3x4xf32>, %v: tensor<3x4xf32>, %n: tensor<3xi64>) -> tensor<3x4xf32> {
  %slopes = arith.constant dense<[0.5, -2400.0, 1.0]> : tensor<3xf32>
  %e = tensor.empty() : tensor<3xf32>
  %places = linalg.generic {indexing_maps = [affine_map<(a) -> (a)>, affine_map<(a) -> (a)>], iterator_types = ["parallel"]}
      ins(%n : tensor<3xi64>) outs(%e : tensor<3xf32>) {
  ^bb0(%a: i64, %o: f32):
    %c2 = arith.constant 2 : i64
    %twice = arith.muli %a, %c2 : i64
    %y = arith.sitofp %twice : i64 to f32
    linalg.yield %y : f32
  } -> tensor<3xf32>
  %r = attn.attention masked_rows nan maps [#q, #k, #v, #m, #m, #o] ins(%q, %k, %v : tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x4xf32>)
      captures(%slopes, %places : tensor<3xf32>, tensor<3xf32>) -> tensor<3x4xf32> score {
  ^bb0(%s: f32, %x: f32, %p: f32):
    %i = attn.index 2 : index
    %j = attn.index 3 : index
    %low = arith.constant -1.0e+04 : f32
    %t = arith.addf %s, %x : f32
    %u = arith.addf %t, %p : f32
    %shown = arith.cmpi sle, %j, %i : index
    %y = arith.select %shown, %u, %low : f32
    attn.yield %y : f32
  }
  return %r : tensor<3x4xf32>
}

// -----

#q = affine_map<(b, h, i, j, d, e) -> (i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (j, d)>
#v = affine_map<(b, h, i, j, d, e) -> (j, e)>
#m = affine_map<(b, h, i, j, d, e) -> (j)>
#o = affine_map<(b, h, i, j, d, e) -> (i, e)>
// Biases that may be masks, or bring back what is masked: stored, given, and (1 - n) * -5e3 * 3.
// CHECK-LABEL: func @finite_with_masks
// CHECK-NOT: mask [
// CHECK: return
func.func @finite_with_masks(%q: tensor<3x4xf32>, %k: tensor<3x4xf32>, %v: tensor<3x4xf32>, %n: tensor<3xi64>, %given: tensor<3xf32>) -> (tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x4xf32>) {
  %slopes = arith.constant dense<[0.5, 2600.0, 1.0]> : tensor<3xf32>
  %e = tensor.empty() : tensor<3xf32>
  %made = linalg.generic {indexing_maps = [affine_map<(a) -> (a)>, affine_map<(a) -> (a)>], iterator_types = ["parallel"]}
      ins(%n : tensor<3xi64>) outs(%e : tensor<3xf32>) {
  ^bb0(%a: i64, %o: f32):
    %c1 = arith.constant 1 : i64
    %low = arith.constant -5.0e3 : f32
    %more = arith.constant 3.0 : f32
    %none = arith.subi %c1, %a : i64
    %f = arith.sitofp %none : i64 to f32
    %x = arith.mulf %f, %low : f32
    %y = arith.mulf %x, %more : f32
    linalg.yield %y : f32
  } -> tensor<3xf32>
  %r = attn.attention masked_rows nan maps [#q, #k, #v, #m, #o] ins(%q, %k, %v : tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x4xf32>)
      captures(%slopes : tensor<3xf32>) -> tensor<3x4xf32> score {
  ^bb0(%s: f32, %x: f32):
    %i = attn.index 2 : index
    %j = attn.index 3 : index
    %low = arith.constant -1.0e+04 : f32
    %t = arith.addf %s, %x : f32
    %shown = arith.cmpi sle, %j, %i : index
    %y = arith.select %shown, %t, %low : f32
    attn.yield %y : f32
  }
  %r2 = attn.attention masked_rows nan maps [#q, #k, #v, #m, #o] ins(%q, %k, %v : tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x4xf32>)
      captures(%given : tensor<3xf32>) -> tensor<3x4xf32> score {
  ^bb0(%s: f32, %x: f32):
    %i = attn.index 2 : index
    %j = attn.index 3 : index
    %low = arith.constant -1.0e+04 : f32
    %t = arith.addf %s, %x : f32
    %shown = arith.cmpi sle, %j, %i : index
    %y = arith.select %shown, %t, %low : f32
    attn.yield %y : f32
  }
  %r3 = attn.attention masked_rows nan maps [#q, #k, #v, #m, #o] ins(%q, %k, %v : tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x4xf32>)
      captures(%made : tensor<3xf32>) -> tensor<3x4xf32> score {
  ^bb0(%s: f32, %x: f32):
    %i = attn.index 2 : index
    %j = attn.index 3 : index
    %low = arith.constant -1.0e+04 : f32
    %t = arith.addf %s, %x : f32
    %shown = arith.cmpi sle, %j, %i : index
    %y = arith.select %shown, %t, %low : f32
    attn.yield %y : f32
  }
  return %r, %r2, %r3 : tensor<3x4xf32>, tensor<3x4xf32>, tensor<3x4xf32>
}

// -----

#q = affine_map<(b, h, i, j, d, e) -> (i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (j, d)>
#v = affine_map<(b, h, i, j, d, e) -> (j, e)>
#o = affine_map<(b, h, i, j, d, e) -> (i, e)>
// What is hidden by -1e4 gets 9000 again: at -1000 it may be above what is visible. 2000 leaves it where no score is.
// CHECK-LABEL: func.func @brought_back
// CHECK-NOT: mask [
// CHECK: return
func.func @brought_back(%q: tensor<5x4xf32>, %k: tensor<5x4xf32>, %v: tensor<5x4xf32>) -> tensor<5x4xf32> {
  %r = attn.attention masked_rows nan maps [#q, #k, #v, #o] ins(%q, %k, %v : tensor<5x4xf32>, tensor<5x4xf32>, tensor<5x4xf32>)
      -> tensor<5x4xf32> score {
  ^bb0(%s: f32):
    %i = attn.index 2 : index
    %j = attn.index 3 : index
    %low = arith.constant -1.0e4 : f32
    %more = arith.constant 9.0e3 : f32
    %none = arith.constant 0.0 : f32
    %below = arith.cmpi sle, %j, %i : index
    %x = arith.select %below, %s, %low : f32
    %bias = arith.select %below, %none, %more : f32
    %y = arith.addf %x, %bias : f32
    attn.yield %y : f32
  }
  return %r : tensor<5x4xf32>
}
// CHECK-LABEL: func.func @stays_below
// CHECK: mask [#attn.causal<0>]
func.func @stays_below(%q: tensor<5x4xf32>, %k: tensor<5x4xf32>, %v: tensor<5x4xf32>) -> tensor<5x4xf32> {
  %r = attn.attention masked_rows nan maps [#q, #k, #v, #o] ins(%q, %k, %v : tensor<5x4xf32>, tensor<5x4xf32>, tensor<5x4xf32>)
      -> tensor<5x4xf32> score {
  ^bb0(%s: f32):
    %i = attn.index 2 : index
    %j = attn.index 3 : index
    %low = arith.constant -1.0e4 : f32
    %more = arith.constant 2.0e3 : f32
    %none = arith.constant 0.0 : f32
    %below = arith.cmpi sle, %j, %i : index
    %x = arith.select %below, %s, %low : f32
    %bias = arith.select %below, %none, %more : f32
    %y = arith.addf %x, %bias : f32
    attn.yield %y : f32
  }
  return %r : tensor<5x4xf32>
}

// -----

#q = affine_map<(b, h, i, j, d, e) -> (b, i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (b, j, d)>
#v = affine_map<(b, h, i, j, d, e) -> (b, j, e)>
#n = affine_map<(b, h, i, j, d, e) -> (b)>
#o = affine_map<(b, h, i, j, d, e) -> (b, i, e)>
// j < n as floats (of tf.sequence_mask by tf2onnx): n is rounded up, and NaN hides all keys.
// CHECK-LABEL: func @float_lengths
// CHECK: %[[N:.+]] = linalg.generic
// CHECK: math.ceil
// CHECK: arith.cmpf ogt
// CHECK: arith.cmpf olt
// CHECK: arith.fptosi
// CHECK: attn.attention masked_rows nan mask [#attn.lengths] {{.*}}mask_operands(%[[N]] : tensor<2xi64>)
// CHECK-NOT: select
func.func @float_lengths(%q: tensor<2x5x4xf32>, %k: tensor<2x5x4xf32>, %v: tensor<2x5x4xf32>, %n: tensor<2xf32>) -> tensor<2x5x4xf32> {
  %r = attn.attention masked_rows nan maps [#q, #k, #v, #n, #o]
      ins(%q, %k, %v : tensor<2x5x4xf32>, tensor<2x5x4xf32>, tensor<2x5x4xf32>) captures(%n : tensor<2xf32>) -> tensor<2x5x4xf32> score {
  ^bb0(%s: f32, %n0: f32):
    %j = attn.index 3 : index
    %inf = arith.constant 0xFF800000 : f32
    %j1 = arith.index_cast %j : index to i32
    %place = arith.sitofp %j1 : i32 to f32
    %c = arith.cmpf olt, %place, %n0 : f32
    %y = arith.select %c, %s, %inf : f32
    attn.yield %y : f32
  }
  return %r : tensor<2x5x4xf32>
}

// -----

#q = affine_map<(b, h, i, j, d, e) -> (b, i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (b, j, d)>
#v = affine_map<(b, h, i, j, d, e) -> (b, j, e)>
#n = affine_map<(b, h, i, j, d, e) -> (b)>
#o = affine_map<(b, h, i, j, d, e) -> (b, i, e)>
// Hidden where j > n: n is rounded down, and NaN shows all keys.
// CHECK-LABEL: func @float_lengths_unless
// CHECK: math.floor
// CHECK: arith.cmpf olt
// CHECK: arith.cmpf ogt
// CHECK: mask [#attn.lengths]
func.func @float_lengths_unless(%q: tensor<2x5x4xf32>, %k: tensor<2x5x4xf32>, %v: tensor<2x5x4xf32>, %n: tensor<2xf32>) -> tensor<2x5x4xf32> {
  %r = attn.attention masked_rows nan maps [#q, #k, #v, #n, #o]
      ins(%q, %k, %v : tensor<2x5x4xf32>, tensor<2x5x4xf32>, tensor<2x5x4xf32>) captures(%n : tensor<2xf32>) -> tensor<2x5x4xf32> score {
  ^bb0(%s: f32, %n0: f32):
    %j = attn.index 3 : index
    %inf = arith.constant 0xFF800000 : f32
    %j1 = arith.index_cast %j : index to i32
    %place = arith.sitofp %j1 : i32 to f32
    %c = arith.cmpf ogt, %place, %n0 : f32
    %y = arith.select %c, %inf, %s : f32
    attn.yield %y : f32
  }
  return %r : tensor<2x5x4xf32>
}

// -----

#q = affine_map<(b, h, i, j, d, e) -> (b, i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (b, j, d)>
#v = affine_map<(b, h, i, j, d, e) -> (b, j, e)>
#n = affine_map<(b, h, i, j, d, e) -> (b)>
#o = affine_map<(b, h, i, j, d, e) -> (b, i, e)>
// Hidden where j <= n: the keys in front, which is no length.
// CHECK-LABEL: func @float_starts
// CHECK: attn.attention masked_rows nan maps
// CHECK: select
func.func @float_starts(%q: tensor<2x5x4xf32>, %k: tensor<2x5x4xf32>, %v: tensor<2x5x4xf32>, %n: tensor<2xf32>) -> tensor<2x5x4xf32> {
  %r = attn.attention masked_rows nan maps [#q, #k, #v, #n, #o]
      ins(%q, %k, %v : tensor<2x5x4xf32>, tensor<2x5x4xf32>, tensor<2x5x4xf32>) captures(%n : tensor<2xf32>) -> tensor<2x5x4xf32> score {
  ^bb0(%s: f32, %n0: f32):
    %j = attn.index 3 : index
    %inf = arith.constant 0xFF800000 : f32
    %j1 = arith.index_cast %j : index to i32
    %place = arith.sitofp %j1 : i32 to f32
    %c = arith.cmpf ole, %place, %n0 : f32
    %y = arith.select %c, %inf, %s : f32
    attn.yield %y : f32
  }
  return %r : tensor<2x5x4xf32>
}

// -----

#q = affine_map<(b, h, i, j, d, e) -> (i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (j, d)>
#v = affine_map<(b, h, i, j, d, e) -> (j, e)>
#o = affine_map<(b, h, i, j, d, e) -> (i, e)>
// Weights as codes that are read again: a hidden key's 0 stays 0 (first). Not where the code of NaN is another one, with
// which hidden keys count in rows that see none (second), nor where another zero point is read (third).
// CHECK-LABEL: func @codes_of_weights
// CHECK: attn.attention masked_rows nan mask [#attn.causal<0>]
// CHECK: attn.attention masked_rows nan maps
// CHECK: attn.attention masked_rows nan maps
func.func @codes_of_weights(%q: tensor<5x4xf32>, %k: tensor<5x4xf32>, %v: tensor<5x4xf32>)
    -> (tensor<5x4xf32>, tensor<5x4xf32>, tensor<5x4xf32>) {
  %first = attn.attention masked_rows nan maps [#q, #k, #v, #o] ins(%q, %k, %v : tensor<5x4xf32>, tensor<5x4xf32>, tensor<5x4xf32>)
      -> tensor<5x4xf32> score {
  ^bb0(%s: f32):
    %i = attn.index 2 : index
    %j = attn.index 3 : index
    %inf = arith.constant 0xFF800000 : f32
    %shown = arith.cmpi sle, %j, %i : index
    %y = arith.select %shown, %s, %inf : f32
    attn.yield %y : f32
  } weight {
  ^bb0(%w: f32):
    %scale = arith.constant 0.004 : f32
    %zero = arith.constant -128.0 : f32
    %read = arith.constant -128.0 : f32
    %low = arith.constant -128.0 : f32
    %high = arith.constant 127.0 : f32
    %x = arith.divf %w, %scale : f32
    %n = math.roundeven %x : f32
    %z = arith.addf %n, %zero : f32
    %above = arith.cmpf ogt, %z, %low : f32
    %below = arith.cmpf olt, %z, %high : f32
    %most = arith.select %below, %z, %high : f32
    %code = arith.select %above, %most, %low : f32
    %c = arith.fptosi %code : f32 to i32
    %t = arith.trunci %c : i32 to i8
    %u = arith.sitofp %t : i8 to f32
    %d = arith.subf %u, %read : f32
    %m = arith.mulf %d, %scale : f32
    attn.yield %m : f32
  }
  %second = attn.attention masked_rows nan maps [#q, #k, #v, #o] ins(%q, %k, %v : tensor<5x4xf32>, tensor<5x4xf32>, tensor<5x4xf32>)
      -> tensor<5x4xf32> score {
  ^bb0(%s: f32):
    %i = attn.index 2 : index
    %j = attn.index 3 : index
    %inf = arith.constant 0xFF800000 : f32
    %shown = arith.cmpi sle, %j, %i : index
    %y = arith.select %shown, %s, %inf : f32
    attn.yield %y : f32
  } weight {
  ^bb0(%w: f32):
    %scale = arith.constant 0.004 : f32
    %zero = arith.constant 3.0 : f32
    %read = arith.constant 3.0 : f32
    %low = arith.constant -128.0 : f32
    %high = arith.constant 127.0 : f32
    %x = arith.divf %w, %scale : f32
    %n = math.roundeven %x : f32
    %z = arith.addf %n, %zero : f32
    %above = arith.cmpf ogt, %z, %low : f32
    %below = arith.cmpf olt, %z, %high : f32
    %most = arith.select %below, %z, %high : f32
    %code = arith.select %above, %most, %low : f32
    %c = arith.fptosi %code : f32 to i32
    %t = arith.trunci %c : i32 to i8
    %u = arith.sitofp %t : i8 to f32
    %d = arith.subf %u, %read : f32
    %m = arith.mulf %d, %scale : f32
    attn.yield %m : f32
  }
  %third = attn.attention masked_rows nan maps [#q, #k, #v, #o] ins(%q, %k, %v : tensor<5x4xf32>, tensor<5x4xf32>, tensor<5x4xf32>)
      -> tensor<5x4xf32> score {
  ^bb0(%s: f32):
    %i = attn.index 2 : index
    %j = attn.index 3 : index
    %inf = arith.constant 0xFF800000 : f32
    %shown = arith.cmpi sle, %j, %i : index
    %y = arith.select %shown, %s, %inf : f32
    attn.yield %y : f32
  } weight {
  ^bb0(%w: f32):
    %scale = arith.constant 0.004 : f32
    %zero = arith.constant -128.0 : f32
    %read = arith.constant -127.0 : f32
    %low = arith.constant -128.0 : f32
    %high = arith.constant 127.0 : f32
    %x = arith.divf %w, %scale : f32
    %n = math.roundeven %x : f32
    %z = arith.addf %n, %zero : f32
    %above = arith.cmpf ogt, %z, %low : f32
    %below = arith.cmpf olt, %z, %high : f32
    %most = arith.select %below, %z, %high : f32
    %code = arith.select %above, %most, %low : f32
    %c = arith.fptosi %code : f32 to i32
    %t = arith.trunci %c : i32 to i8
    %u = arith.sitofp %t : i8 to f32
    %d = arith.subf %u, %read : f32
    %m = arith.mulf %d, %scale : f32
    attn.yield %m : f32
  }
  return %first, %second, %third : tensor<5x4xf32>, tensor<5x4xf32>, tensor<5x4xf32>
}
