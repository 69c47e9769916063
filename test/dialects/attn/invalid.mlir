// RUN: attn-opt %s -split-input-file -verify-diagnostics

// One case a constraint of dialects/attn/*.td, each labelled.

#q = affine_map<(b, h, i, j, d, e) -> (b, h, i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (b, h, j, d)>
#v = affine_map<(b, h, i, j, d, e) -> (b, h, j, e)>
#o = affine_map<(b, h, i, j, d, e) -> (b, h, i, e)>
// attention C1
func.func @element_type(%q: tensor<2x4x3x8xf32>, %k: tensor<2x4x5x8xf16>, %v: tensor<2x4x5x6xf32>) {
  // expected-error @below {{expects query, key, value and result to have one float element type, got 'f32' for query and 'f16' for key}}
  %o = attn.attention masked_rows nan maps [#q, #k, #v, #o]
      ins(%q, %k, %v : tensor<2x4x3x8xf32>, tensor<2x4x5x8xf16>, tensor<2x4x5x6xf32>) -> tensor<2x4x3x6xf32>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
  return
}

// -----

#q = affine_map<(b, h, i, j, d, e) -> (b, h, i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (b, h, j, d)>
#o = affine_map<(b, h, i, j, d, e) -> (b, h, i, e)>
// attention C2
func.func @number_of_maps(%q: tensor<2x4x3x8xf32>, %k: tensor<2x4x5x8xf32>, %v: tensor<2x4x5x6xf32>) {
  // expected-error @below {{expects 4 maps, one an operand and a result, got 3}}
  %o = attn.attention masked_rows nan maps [#q, #k, #o]
      ins(%q, %k, %v : tensor<2x4x3x8xf32>, tensor<2x4x5x8xf32>, tensor<2x4x5x6xf32>) -> tensor<2x4x3x6xf32>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
  return
}

// -----

#q = affine_map<(b, h, i, j, d, e) -> (b, i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (b, h, j, d)>
#v = affine_map<(b, h, i, j, d, e) -> (b, h, j, e)>
#o = affine_map<(b, h, i, j, d, e) -> (b, h, i, e)>
// attention C2
func.func @rank_of_map(%q: tensor<2x4x3x8xf32>, %k: tensor<2x4x5x8xf32>, %v: tensor<2x4x5x6xf32>) {
  // expected-error @below {{expects the map of query to have 6 dimensions, no symbols and 4 results, got (d0, d1, d2, d3, d4, d5) -> (d0, d2, d4)}}
  %o = attn.attention masked_rows nan maps [#q, #k, #v, #o]
      ins(%q, %k, %v : tensor<2x4x3x8xf32>, tensor<2x4x5x8xf32>, tensor<2x4x5x6xf32>) -> tensor<2x4x3x6xf32>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
  return
}

// -----

#q = affine_map<(b, h, i, j, d, e) -> (b, h, i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (b, h, j + 1, d)>
#v = affine_map<(b, h, i, j, d, e) -> (b, h, j, e)>
#o = affine_map<(b, h, i, j, d, e) -> (b, h, i, e)>
// attention C3
func.func @map_result(%q: tensor<2x4x3x8xf32>, %k: tensor<2x4x5x8xf32>, %v: tensor<2x4x5x6xf32>) {
  // expected-error @below {{expects each result of the map of key to be a dimension, h floordiv c with c > 1 or 0, got d3 + 1}}
  %o = attn.attention masked_rows nan maps [#q, #k, #v, #o]
      ins(%q, %k, %v : tensor<2x4x3x8xf32>, tensor<2x4x5x8xf32>, tensor<2x4x5x6xf32>) -> tensor<2x4x3x6xf32>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
  return
}

// -----

#q = affine_map<(b, h, i, j, d, e) -> (b, h, i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (b floordiv 2, h, j, d)>
#v = affine_map<(b, h, i, j, d, e) -> (b, h, j, e)>
#o = affine_map<(b, h, i, j, d, e) -> (b, h, i, e)>
// attention C3: only heads come in groups
func.func @grouped_batch(%q: tensor<2x4x3x8xf32>, %k: tensor<1x4x5x8xf32>, %v: tensor<2x4x5x6xf32>) {
  // expected-error @below {{expects each result of the map of key to be a dimension, h floordiv c with c > 1 or 0, got d0 floordiv 2}}
  %o = attn.attention masked_rows nan maps [#q, #k, #v, #o]
      ins(%q, %k, %v : tensor<2x4x3x8xf32>, tensor<1x4x5x8xf32>, tensor<2x4x5x6xf32>) -> tensor<2x4x3x6xf32>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
  return
}

// -----

#q = affine_map<(b, h, i, j, d, e) -> (b, b, i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (b, h, j, d)>
#v = affine_map<(b, h, i, j, d, e) -> (b, h, j, e)>
#o = affine_map<(b, h, i, j, d, e) -> (b, h, i, e)>
// attention C3
func.func @diagonal(%q: tensor<2x2x3x8xf32>, %k: tensor<2x4x5x8xf32>, %v: tensor<2x4x5x6xf32>) {
  // expected-error @below {{expects the map of query to name b at most once, got (d0, d1, d2, d3, d4, d5) -> (d0, d0, d2, d4)}}
  %o = attn.attention masked_rows nan maps [#q, #k, #v, #o]
      ins(%q, %k, %v : tensor<2x2x3x8xf32>, tensor<2x4x5x8xf32>, tensor<2x4x5x6xf32>) -> tensor<2x4x3x6xf32>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
  return
}

// -----

#q = affine_map<(b, h, i, j, d, e) -> (b, h, i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (b, h, j, d)>
#v = affine_map<(b, h, i, j, d, e) -> (b, h, j, e)>
#o = affine_map<(b, h, i, j, d, e) -> (b, h floordiv 2, i, e)>
// attention C3
func.func @grouped_result(%q: tensor<2x4x3x8xf32>, %k: tensor<2x4x5x8xf32>, %v: tensor<2x4x5x6xf32>) {
  // expected-error @below {{expects no floordiv in the map of the result, got (d0, d1, d2, d3, d4, d5) -> (d0, d1 floordiv 2, d2, d5)}}
  %o = attn.attention masked_rows nan maps [#q, #k, #v, #o]
      ins(%q, %k, %v : tensor<2x4x3x8xf32>, tensor<2x4x5x8xf32>, tensor<2x4x5x6xf32>) -> tensor<2x2x3x6xf32>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
  return
}

// -----

#q = affine_map<(b, h, i, j, d, e) -> (b, h, j, d)>
#k = affine_map<(b, h, i, j, d, e) -> (b, h, j, d)>
#v = affine_map<(b, h, i, j, d, e) -> (b, h, j, e)>
#o = affine_map<(b, h, i, j, d, e) -> (b, h, i, e)>
// attention C4
func.func @query_names(%q: tensor<2x4x5x8xf32>, %k: tensor<2x4x5x8xf32>, %v: tensor<2x4x5x6xf32>) {
  // expected-error @below {{expects the map of query to name i, d and none of j, e, got (d0, d1, d2, d3, d4, d5) -> (d0, d1, d3, d4)}}
  %o = attn.attention masked_rows nan maps [#q, #k, #v, #o]
      ins(%q, %k, %v : tensor<2x4x5x8xf32>, tensor<2x4x5x8xf32>, tensor<2x4x5x6xf32>) -> tensor<2x4x3x6xf32>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
  return
}

// -----

#q = affine_map<(b, h, i, j, d, e) -> (b, h, i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (b, h, j, d)>
#v = affine_map<(b, h, i, j, d, e) -> (b, h, j, e)>
#m = affine_map<(b, h, i, j, d, e) -> (d)>
#o = affine_map<(b, h, i, j, d, e) -> (b, h, i, e)>
// attention C4
func.func @capture_names(%q: tensor<2x4x3x8xf32>, %k: tensor<2x4x5x8xf32>, %v: tensor<2x4x5x6xf32>, %m: tensor<8xf32>) {
  // expected-error @below {{expects the map of capture 0 to name none of d, e, got (d0, d1, d2, d3, d4, d5) -> (d4)}}
  %o = attn.attention masked_rows nan maps [#q, #k, #v, #m, #o]
      ins(%q, %k, %v : tensor<2x4x3x8xf32>, tensor<2x4x5x8xf32>, tensor<2x4x5x6xf32>) captures(%m : tensor<8xf32>)
      -> tensor<2x4x3x6xf32>
    score {
    ^bb0(%s: f32, %x: f32):
      attn.yield %s : f32
    }
  return
}

// -----

#q = affine_map<(b, h, i, j, d, e) -> (b, h, i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (b, h, j, d)>
#v = affine_map<(b, h, i, j, d, e) -> (b, h, j, e)>
#o = affine_map<(b, h, i, j, d, e) -> (b, i, e)>
// attention C4
func.func @result_without_heads(%q: tensor<2x4x3x8xf32>, %k: tensor<2x4x5x8xf32>, %v: tensor<2x4x5x6xf32>) {
  // expected-error @below {{expects the result to name h exactly when an operand does, got an operand that names it and the result's map (d0, d1, d2, d3, d4, d5) -> (d0, d2, d5)}}
  %o = attn.attention masked_rows nan maps [#q, #k, #v, #o]
      ins(%q, %k, %v : tensor<2x4x3x8xf32>, tensor<2x4x5x8xf32>, tensor<2x4x5x6xf32>) -> tensor<2x3x6xf32>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
  return
}

// -----

#q = affine_map<(b, h, i, j, d, e) -> (b, h, i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (b, h, j, d)>
#v = affine_map<(b, h, i, j, d, e) -> (b, h, j, e)>
#o = affine_map<(b, h, i, j, d, e) -> (b, h, i, e)>
// attention C5
func.func @sizes(%q: tensor<2x4x3x8xf32>, %k: tensor<2x4x5x8xf32>, %v: tensor<2x4x7x6xf32>) {
  // expected-error @below {{expects one size of j, got 5 by key and 7 by value}}
  %o = attn.attention masked_rows nan maps [#q, #k, #v, #o]
      ins(%q, %k, %v : tensor<2x4x3x8xf32>, tensor<2x4x5x8xf32>, tensor<2x4x7x6xf32>) -> tensor<2x4x3x6xf32>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
  return
}

// -----

#q = affine_map<(b, h, i, j, d, e) -> (b, h, i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (b, h floordiv 3, j, d)>
#v = affine_map<(b, h, i, j, d, e) -> (b, h, j, e)>
#o = affine_map<(b, h, i, j, d, e) -> (b, h, i, e)>
// attention C5
func.func @grouped_sizes(%q: tensor<2x4x3x8xf32>, %k: tensor<2x2x5x8xf32>, %v: tensor<2x4x5x6xf32>) {
  // expected-error @below {{expects one size of h, got 4 by query and 6 by key}}
  %o = attn.attention masked_rows nan maps [#q, #k, #v, #o]
      ins(%q, %k, %v : tensor<2x4x3x8xf32>, tensor<2x2x5x8xf32>, tensor<2x4x5x6xf32>) -> tensor<2x4x3x6xf32>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
  return
}

// -----

#q = affine_map<(b, h, i, j, d, e) -> (b, 0, i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (b, h, j, d)>
#v = affine_map<(b, h, i, j, d, e) -> (b, h, j, e)>
#o = affine_map<(b, h, i, j, d, e) -> (b, h, i, e)>
// attention C5
func.func @unit_size(%q: tensor<2x4x3x8xf32>, %k: tensor<2x4x5x8xf32>, %v: tensor<2x4x5x6xf32>) {
  // expected-error @below {{expects size 1 where the map of query is the constant 0, got 4 in dimension 1}}
  %o = attn.attention masked_rows nan maps [#q, #k, #v, #o]
      ins(%q, %k, %v : tensor<2x4x3x8xf32>, tensor<2x4x5x8xf32>, tensor<2x4x5x6xf32>) -> tensor<2x4x3x6xf32>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
  return
}

// -----

#q = affine_map<(b, h, i, j, d, e) -> (b, h, i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (b, h, j, d)>
#v = affine_map<(b, h, i, j, d, e) -> (b, h, j, e)>
#m = affine_map<(b, h, i, j, d, e) -> (b, j)>
#o = affine_map<(b, h, i, j, d, e) -> (b, h, i, e)>
// attention C6
func.func @region_arguments(%q: tensor<2x4x3x8xf32>, %k: tensor<2x4x5x8xf32>, %v: tensor<2x4x5x6xf32>, %m: tensor<2x5xi8>) {
  // expected-error @below {{expects the score region to take 'f32', 'i8', got 'f32', 'f32'}}
  %o = attn.attention masked_rows nan maps [#q, #k, #v, #m, #o]
      ins(%q, %k, %v : tensor<2x4x3x8xf32>, tensor<2x4x5x8xf32>, tensor<2x4x5x6xf32>) captures(%m : tensor<2x5xi8>)
      -> tensor<2x4x3x6xf32>
    score {
    ^bb0(%s: f32, %x: f32):
      attn.yield %s : f32
    }
  return
}

// -----

#q = affine_map<(b, h, i, j, d, e) -> (b, h, i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (b, h, j, d)>
#v = affine_map<(b, h, i, j, d, e) -> (b, h, j, e)>
#o = affine_map<(b, h, i, j, d, e) -> (b, h, i, e)>
// attention C6
func.func @region_yield(%q: tensor<2x4x3x8xf32>, %k: tensor<2x4x5x8xf32>, %v: tensor<2x4x5x6xf32>) {
  // expected-error @below {{expects the weight region to end in an attn.yield of f32, got f64}}
  %o = attn.attention masked_rows nan maps [#q, #k, #v, #o]
      ins(%q, %k, %v : tensor<2x4x3x8xf32>, tensor<2x4x5x8xf32>, tensor<2x4x5x6xf32>) -> tensor<2x4x3x6xf32>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    } weight {
    ^bb0(%w: f32):
      %x = arith.extf %w : f32 to f64
      attn.yield %x : f64
    }
  return
}

// -----

// softmax C1
func.func @softmax_dim(%x: tensor<2x3xf32>) {
  // expected-error @below {{expects dim in [0, 2), got 2}}
  %y = attn.softmax %x dim 2 : tensor<2x3xf32>
  return
}

// -----

// softmax C2
func.func @softmax_type(%x: tensor<2x3xi32>) {
  // expected-error @below {{expects a float element type, got 'i32'}}
  %y = attn.softmax %x dim 1 : tensor<2x3xi32>
  return
}

// -----

// layer_norm C1
func.func @layer_norm_axis(%x: tensor<2x3xf32>, %s: tensor<3xf32>) {
  // expected-error @below {{expects axis in [0, 2), got 2}}
  %y = attn.layer_norm %x, %s axis 2 epsilon 1.0e-5 : tensor<2x3xf32>, tensor<3xf32>
  return
}

// -----

// layer_norm C2
func.func @layer_norm_scale(%x: tensor<2x3xf32>, %s: tensor<4xf32>) {
  // expected-error @below {{expects scale and bias to have the shape of the normalised dimensions, got 'tensor<4xf32>' for 'tensor<2x3xf32>' from dimension 1}}
  %y = attn.layer_norm %x, %s axis 1 epsilon 1.0e-5 : tensor<2x3xf32>, tensor<4xf32>
  return
}

// -----

// layer_norm C3
func.func @layer_norm_type(%x: tensor<2x3xf32>, %s: tensor<3xf64>) {
  // expected-error @below {{expects input, scale and bias to have one float element type, got 'f32' and 'f64'}}
  %y = attn.layer_norm %x, %s axis 1 epsilon 1.0e-5 : tensor<2x3xf32>, tensor<3xf64>
  return
}

// -----

// global C1
// expected-error @below {{expects a weight expression, got "w"}}
attn.global @w : tensor<2xf32> = "w"

// -----

// global C2
// expected-error @below {{expects a tensor type of static shape, got 'tensor<?xf32>'}}
attn.global @w : tensor<?xf32> = #attn.initializer<"w">

// -----

attn.global @w : tensor<2xf32> = #attn.initializer<"w">
// weight C1
func.func @weight_type() {
  // expected-error @below {{expects the type of 'w' ('tensor<2xf32>'), got 'tensor<3xf32>'}}
  %w = attn.weight @w : tensor<3xf32>
  return
}

// -----

// kernel C1
func.func private @f(memref<2xf32>)
func.func @kernel_callee(%x: tensor<2xf32>) {
  // expected-error @below {{expects 'f' to name a func.func with the attribute attn.kernel}}
  %y = attn.kernel @f ins() outs(%x : tensor<2xf32>) -> tensor<2xf32>
  return
}

// -----

// kernel C2
func.func private @f(memref<2xf32>) attributes {attn.kernel}
func.func @kernel_results(%x: tensor<2xf32>) {
  // expected-error @below {{expects one result a tensor in outs (1), of its type, got 0 results}}
  attn.kernel @f ins() outs(%x : tensor<2xf32>)
  return
}

// -----

// kernel C3
func.func private @f(memref<2xf32>, memref<2xf32>) attributes {attn.kernel}
func.func @kernel_elementwise(%x: tensor<2xf32>) {
  // expected-error @below {{expects elementwise to hold positions in ins, [0, 1), got 1}}
  %y = attn.kernel @f ins(%x : tensor<2xf32>) outs(%x : tensor<2xf32>) elementwise [1] -> tensor<2xf32>
  return
}

// -----

// rnn C1: integers
func.func @recurrent(%x: tensor<5x4x8xi32>, %w: tensor<1x16x8xi32>, %r: tensor<1x16x16xi32>) {
  // expected-error @+1 {{expects a float element type}}
  %y, %h = attn.rnn forward [#attn.activation<tanh>] ins(%x, %w, %r : tensor<5x4x8xi32>, tensor<1x16x8xi32>, tensor<1x16x16xi32>) -> tensor<5x1x4x16xi32>, tensor<1x4x16xi32>
  return
}

// -----

// rnn C1: two element types
func.func @recurrent(%x: tensor<5x4x8xf32>, %w: tensor<1x16x8xf64>, %r: tensor<1x16x16xf32>) {
  // expected-error @+1 {{expects weight of 'f32' as the input, got 'f64'}}
  %y, %h = attn.rnn forward [#attn.activation<tanh>] ins(%x, %w, %r : tensor<5x4x8xf32>, tensor<1x16x8xf64>, tensor<1x16x16xf32>) -> tensor<5x1x4x16xf32>, tensor<1x4x16xf32>
  return
}

// -----

// rnn C2: rank
func.func @recurrent(%x: tensor<5x4x8xf32>, %w: tensor<16x8xf32>, %r: tensor<1x16x16xf32>) {
  // expected-error @+1 {{expects weight of rank 3}}
  %y, %h = attn.rnn forward [#attn.activation<tanh>] ins(%x, %w, %r : tensor<5x4x8xf32>, tensor<16x8xf32>, tensor<1x16x16xf32>) -> tensor<5x1x4x16xf32>, tensor<1x4x16xf32>
  return
}

// -----

// rnn C2: dynamic units
func.func @recurrent(%x: tensor<5x4x8xf32>, %w: tensor<1x16x8xf32>, %r: tensor<1x16x?xf32>) {
  // expected-error @+1 {{expects a static number of units}}
  %y, %h = attn.rnn forward [#attn.activation<tanh>] ins(%x, %w, %r : tensor<5x4x8xf32>, tensor<1x16x8xf32>, tensor<1x16x?xf32>) -> tensor<5x1x4x16xf32>, tensor<1x4x16xf32>
  return
}

// -----

// rnn C2: two directions, one weight
func.func @recurrent(%x: tensor<5x4x8xf32>, %w: tensor<1x16x8xf32>, %r: tensor<2x16x16xf32>) {
  // expected-error @+1 {{expects weight of type 'tensor<2x16x8xf32>'}}
  %y, %h = attn.rnn bidirectional [#attn.activation<tanh>, #attn.activation<tanh>] ins(%x, %w, %r : tensor<5x4x8xf32>, tensor<1x16x8xf32>, tensor<2x16x16xf32>) -> tensor<5x2x4x16xf32>, tensor<2x4x16xf32>
  return
}

// -----

// rnn C2: batch_first sequence
func.func @recurrent(%x: tensor<5x4x8xf32>, %w: tensor<1x16x8xf32>, %r: tensor<1x16x16xf32>) {
  // expected-error @+1 {{expects the sequence of type 'tensor<5x4x1x16xf32>'}}
  %y, %h = attn.rnn forward [#attn.activation<tanh>] batch_first ins(%x, %w, %r : tensor<5x4x8xf32>, tensor<1x16x8xf32>, tensor<1x16x16xf32>) -> tensor<4x5x1x16xf32>, tensor<5x1x16xf32>
  return
}

// -----

// rnn: neither two nor three inputs
func.func @recurrent(%x: tensor<5x4x16xf32>) {
  // expected-error @+1 {{expects an input, a weight if there is one, a recurrence and their types}}
  %y, %h = attn.rnn forward [#attn.activation<tanh>] ins(%x : tensor<5x4x16xf32>) -> tensor<5x1x4x16xf32>, tensor<1x4x16xf32>
  return
}

// -----

// rnn C2: columns of a projected input
func.func @recurrent(%x: tensor<5x4x8xf32>, %r: tensor<1x16x16xf32>) {
  // expected-error @+1 {{expects input of type 'tensor<5x4x16xf32>'}}
  %y, %h = attn.rnn forward [#attn.activation<tanh>] ins(%x, %r : tensor<5x4x8xf32>, tensor<1x16x16xf32>) -> tensor<5x1x4x16xf32>, tensor<1x4x16xf32>
  return
}

// -----

// rnn C2: dynamic columns of a projected input
func.func @recurrent(%x: tensor<5x4x?xf32>, %r: tensor<1x16x16xf32>) {
  // expected-error @+1 {{expects a static number of columns of a projected input}}
  %y, %h = attn.rnn forward [#attn.activation<tanh>] ins(%x, %r : tensor<5x4x?xf32>, tensor<1x16x16xf32>) -> tensor<5x1x4x16xf32>, tensor<1x4x16xf32>
  return
}

// -----

// gru C2: bias
func.func @recurrent(%x: tensor<5x4x8xf32>, %w: tensor<1x48x8xf32>, %r: tensor<1x48x16xf32>, %b: tensor<1x48xf32>) {
  // expected-error @+1 {{expects bias of type 'tensor<1x96xf32>'}}
  %y, %h = attn.gru forward [#attn.activation<tanh>, #attn.activation<tanh>] ins(%x, %w, %r : tensor<5x4x8xf32>, tensor<1x48x8xf32>, tensor<1x48x16xf32>) bias(%b : tensor<1x48xf32>) -> tensor<5x1x4x16xf32>, tensor<1x4x16xf32>
  return
}

// -----

// lstm C2: peephole
func.func @recurrent(%x: tensor<5x4x8xf32>, %w: tensor<1x64x8xf32>, %r: tensor<1x64x16xf32>, %p: tensor<1x64xf32>) {
  // expected-error @+1 {{expects peephole of type 'tensor<1x48xf32>'}}
  %y, %h, %c = attn.lstm forward [#attn.activation<tanh>, #attn.activation<tanh>, #attn.activation<tanh>] ins(%x, %w, %r : tensor<5x4x8xf32>, tensor<1x64x8xf32>, tensor<1x64x16xf32>) peephole(%p : tensor<1x64xf32>) -> tensor<5x1x4x16xf32>, tensor<1x4x16xf32>, tensor<1x4x16xf32>
  return
}

// -----

// rnn C3: lengths of i64
func.func @recurrent(%x: tensor<5x4x8xf32>, %w: tensor<1x16x8xf32>, %r: tensor<1x16x16xf32>, %n: tensor<4xi64>) {
  // expected-error @+1 {{expects lengths of i32}}
  %y, %h = attn.rnn forward [#attn.activation<tanh>] ins(%x, %w, %r : tensor<5x4x8xf32>, tensor<1x16x8xf32>, tensor<1x16x16xf32>) lengths(%n : tensor<4xi64>) -> tensor<5x1x4x16xf32>, tensor<1x4x16xf32>
  return
}

// -----

// gru C4
func.func @recurrent(%x: tensor<5x4x8xf32>, %w: tensor<1x48x8xf32>, %r: tensor<1x48x16xf32>) {
  // expected-error @+1 {{expects 2 activations, got 1}}
  %y, %h = attn.gru forward [#attn.activation<tanh>] ins(%x, %w, %r : tensor<5x4x8xf32>, tensor<1x48x8xf32>, tensor<1x48x16xf32>) -> tensor<5x1x4x16xf32>, tensor<1x4x16xf32>
  return
}

// -----

// rnn C5
func.func @recurrent(%x: tensor<5x4x8xf32>, %w: tensor<1x16x8xf32>, %r: tensor<1x16x16xf32>) {
  // expected-error @+1 {{expects clip to be greater than 0}}
  %y, %h = attn.rnn forward [#attn.activation<tanh>] clip -1.0 ins(%x, %w, %r : tensor<5x4x8xf32>, tensor<1x16x8xf32>, tensor<1x16x16xf32>) -> tensor<5x1x4x16xf32>, tensor<1x4x16xf32>
  return
}

// -----

// grow C1
func.func @grow_static(%x: tensor<2x?xf32>, %n: index) {
  // expected-error @below {{expects dim to be a dynamic dimension of 'tensor<2x?xf32>', got 0}}
  %y = attn.grow %x to %n dim 0 : tensor<2x?xf32>
  return
}

// -----

// grow C1
func.func @grow_beyond(%x: tensor<2x?xf32>, %n: index) {
  // expected-error @below {{expects dim to be a dynamic dimension of 'tensor<2x?xf32>', got 2}}
  %y = attn.grow %x to %n dim 2 : tensor<2x?xf32>
  return
}

// -----

// grow C2
func.func @grow_view(%x: memref<2x?xf32, strided<[?, 1]>>, %n: index) {
  // expected-error @below {{expects a dense buffer, got 'memref<2x?xf32, strided<[?, 1]>>'}}
  %y = attn.grow %x to %n dim 1 : memref<2x?xf32, strided<[?, 1]>>
  return
}

// -----

// map_tiles C1
func.func @tiles_of_floats(%x: memref<4x8xf32>) {
  // expected-error @below {{expects 2 to 5 dimensions of 16-bit elements, the last one dense, got 'memref<4x8xf32>'}}
  %map = attn.map_tiles %x tile [8, 64] : memref<4x8xf32>
  return
}

// -----

// map_tiles C1
func.func @tiles_of_a_column(%x: memref<4x8xbf16, strided<[16, 2]>>) {
  // expected-error @below {{expects 2 to 5 dimensions of 16-bit elements, the last one dense, got}}
  %map = attn.map_tiles %x tile [8, 64] : memref<4x8xbf16, strided<[16, 2]>>
  return
}

// -----

// map_tiles C2
func.func @too_many_rows(%x: memref<4x8xbf16>) {
  // expected-error @below {{expects tiles of 1 to 256 elements along each of 2 dimensions, 64 along the last, got [257, 64]}}
  %map = attn.map_tiles %x tile [257, 64] : memref<4x8xbf16>
  return
}

// -----

// map_tiles C2
func.func @short_rows(%x: memref<4x8xbf16>) {
  // expected-error @below {{expects tiles of 1 to 256 elements along each of 2 dimensions, 64 along the last, got [8, 32]}}
  %map = attn.map_tiles %x tile [8, 32] : memref<4x8xbf16>
  return
}

// -----

// product C1
func.func @product_of_doubles(%x: memref<4x4xf32>, %w: memref<4x4xf64>, %n: index) {
  // expected-error @below {{expects buffers of f32, got 'memref<4x4xf64>'}}
  %done = attn.product %x, %w, %x sizes(%n, %n, %n, %n) {activation = 0 : i32, precision = 0 : i32, scale = 1.0 : f32}
      : memref<4x4xf32>, memref<4x4xf64>, memref<4x4xf32>
  return
}

// -----

// product C1
func.func @product_of_other_factors(%x: memref<4x4xf32>, %w: memref<4x4xf16>, %n: index) {
  // expected-error @below {{expects buffers of f32, got 'memref<4x4xf16>'}}
  %done = attn.product %x, %w, %x sizes(%n, %n, %n, %n) {activation = 0 : i32, narrow, precision = 2 : i32, scale = 1.0 : f32}
      : memref<4x4xf32>, memref<4x4xf16>, memref<4x4xf32>
  return
}

// -----

// product C1
func.func @product_of_a_narrow_result(%x: memref<4x4xf32>, %y: memref<4x4xbf16>, %n: index) {
  // expected-error @below {{expects buffers of f32, got 'memref<4x4xbf16>'}}
  %done = attn.product %x, %x, %y sizes(%n, %n, %n, %n) {activation = 0 : i32, precision = 2 : i32, scale = 1.0 : f32}
      : memref<4x4xf32>, memref<4x4xf32>, memref<4x4xbf16>
  return
}

// -----

// product C2
func.func @product_of_narrow_tf32(%x: memref<4x4xf32>, %n: index) {
  // expected-error @below {{expects factors in 16 bits with precision 2 or 3, got 1}}
  %done = attn.product %x, %x, %x sizes(%n, %n, %n, %n) {activation = 0 : i32, narrow, precision = 1 : i32, scale = 1.0 : f32}
      : memref<4x4xf32>, memref<4x4xf32>, memref<4x4xf32>
  return
}

// -----

// product C3
func.func @product_of_two_results(%x: memref<4x4xf16>, %c: memref<4xf32>, %n: index) {
  // expected-error @below {{expects bias and addend in the type of the result, 'f16', got 'memref<4xf32>'}}
  %done = attn.product %x, %x, %x bias(%c : memref<4xf32>) sizes(%n, %n, %n, %n)
      {activation = 0 : i32, narrow, precision = 3 : i32, scale = 1.0 : f32} : memref<4x4xf16>, memref<4x4xf16>, memref<4x4xf16>
  return
}

// -----

// download C1, as upload and product
func.func @download_strided(%x: memref<4xf32, strided<[2]>>) {
  // expected-error @below {{expects dense buffers, got 'memref<4xf32, strided<[2]>>'}}
  attn.download %x to %x : memref<4xf32, strided<[2]>>
  return
}

// -----

// end_loop C1
func.func @loop_word(%x: memref<4xi64>) {
  attn.begin_loop
  // expected-error @below {{expects a buffer that has a word 4, got 'memref<4xi64>'}}
  attn.end_loop %x[4] : memref<4xi64>
  return
}

// -----

// end_loop C1
func.func @loop_strided(%x: memref<4xi64, strided<[2]>>) {
  attn.begin_loop
  // expected-error @below {{expects dense buffers, got 'memref<4xi64, strided<[2]>>'}}
  attn.end_loop %x[0] : memref<4xi64, strided<[2]>>
  return
}

// -----

// end_loop C2
func.func @loop_ends_twice(%x: memref<4xi64>) {
  attn.begin_loop
  attn.end_loop %x[0] : memref<4xi64>
  // expected-error @below {{expects 'attn.begin_loop' in front of it}}
  attn.end_loop %x[0] : memref<4xi64>
  return
}
