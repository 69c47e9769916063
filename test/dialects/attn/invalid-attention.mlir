// RUN: attn-opt %s -split-input-file -verify-diagnostics

// attention C2
func.func @short_list_map(%q: tensor<2x4x3x8xf32>, %k: tensor<2x4x5x8xf32>, %v: tensor<2x4x5x6xf32>, %m0: tensor<i64>) {
  // expected-error @below {{expects mask operand 0 to have a last dimension of its own, got 'tensor<i64>'}}
  %o = attn.attention masked_rows zero mask [#attn.blocks<2, 2>]
      maps [affine_map<(b, h, i, j, d, e) -> (b, h, i, d)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, j, d)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, j, e)>,
            affine_map<(b, h, i, j, d, e) -> ()>,
            affine_map<(b, h, i, j, d, e) -> (b, h, i, e)>]
      ins(%q, %k, %v : tensor<2x4x3x8xf32>, tensor<2x4x5x8xf32>, tensor<2x4x5x6xf32>)
      mask_operands(%m0 : tensor<i64>) -> tensor<2x4x3x6xf32>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
  return
}

// -----

// attention C3
func.func @blocks_of_queries(%q: tensor<2x4x3x8xf32>, %k: tensor<2x4x5x8xf32>, %v: tensor<2x4x5x6xf32>, %m0: tensor<3x4xi64>) {
  // expected-error @below {{expects the map of mask operand 0 to name i floordiv 2, got (d0, d1, d2, d3, d4, d5) -> (d2)}}
  %o = attn.attention masked_rows zero mask [#attn.blocks<2, 2>]
      maps [affine_map<(b, h, i, j, d, e) -> (b, h, i, d)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, j, d)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, j, e)>,
            affine_map<(b, h, i, j, d, e) -> (i)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, i, e)>]
      ins(%q, %k, %v : tensor<2x4x3x8xf32>, tensor<2x4x5x8xf32>, tensor<2x4x5x6xf32>)
      mask_operands(%m0 : tensor<3x4xi64>) -> tensor<2x4x3x6xf32>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
  return
}

// -----

// attention C3
func.func @blocks_elsewhere(%q: tensor<2x4x3x8xf32>, %k: tensor<2x4x5x8xf32>, %v: tensor<2x4x5x6xf32>, %m0: tensor<2xi64>) {
  // expected-error @below {{expects each result of the map of mask operand 0 to be a dimension, h floordiv c with c > 1 or 0, got d2 floordiv 2}}
  %o = attn.attention masked_rows zero mask [#attn.lengths]
      maps [affine_map<(b, h, i, j, d, e) -> (b, h, i, d)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, j, d)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, j, e)>,
            affine_map<(b, h, i, j, d, e) -> (i floordiv 2)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, i, e)>]
      ins(%q, %k, %v : tensor<2x4x3x8xf32>, tensor<2x4x5x8xf32>, tensor<2x4x5x6xf32>)
      mask_operands(%m0 : tensor<2xi64>) -> tensor<2x4x3x6xf32>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
  return
}

// -----

// attention C4
func.func @given_names(%q: tensor<2x4x3x8xf32>, %v: tensor<2x4x5x6xf32>) {
  // expected-error @below {{expects the map of query to name j and none of d, e, got (d0, d1, d2, d3, d4, d5) -> (d0, d1, d2, d4)}}
  %o = attn.attention kind given masked_rows zero
      maps [affine_map<(b, h, i, j, d, e) -> (b, h, i, d)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, j, e)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, i, e)>]
      ins(%q, %v : tensor<2x4x3x8xf32>, tensor<2x4x5x6xf32>) -> tensor<2x4x3x6xf32>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
  return
}

// -----

// attention C4
func.func @alignment_names(%q: tensor<2x4x3x8xf32>, %k: tensor<2x4x5x8xf32>, %v: tensor<2x4x5x6xf32>, %a: tensor<2x8xf32>) {
  // expected-error @below {{expects the map of alignment to name d and none of b, i, j, e, got (d0, d1, d2, d3, d4, d5) -> (d0, d4)}}
  %o = attn.attention kind additive masked_rows zero
      maps [affine_map<(b, h, i, j, d, e) -> (b, h, i, d)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, j, d)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, j, e)>,
            affine_map<(b, h, i, j, d, e) -> (b, d)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, i, e)>]
      ins(%q, %k, %v, %a : tensor<2x4x3x8xf32>, tensor<2x4x5x8xf32>, tensor<2x4x5x6xf32>, tensor<2x8xf32>) -> tensor<2x4x3x6xf32>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
  return
}

// -----

// attention C5
func.func @number_of_blocks(%q: tensor<2x4x3x8xf32>, %k: tensor<2x4x5x8xf32>, %v: tensor<2x4x5x6xf32>, %m0: tensor<3x4xi64>) {
  // expected-error @below {{expects 2 blocks of queries for 3 queries, got 3 by mask operand 0}}
  %o = attn.attention masked_rows zero mask [#attn.blocks<2, 2>]
      maps [affine_map<(b, h, i, j, d, e) -> (b, h, i, d)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, j, d)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, j, e)>,
            affine_map<(b, h, i, j, d, e) -> (i floordiv 2)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, i, e)>]
      ins(%q, %k, %v : tensor<2x4x3x8xf32>, tensor<2x4x5x8xf32>, tensor<2x4x5x6xf32>)
      mask_operands(%m0 : tensor<3x4xi64>) -> tensor<2x4x3x6xf32>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
  return
}

// -----

// attention C5
func.func @rows_of_nobody(%q: tensor<2x4x8xf32>, %k: tensor<2x4x5x8xf32>, %v: tensor<2x4x5x6xf32>, %a: tensor<8xf32>) {
  // expected-error @below {{expects a static size of i, which no operand names, got 'tensor<2x4x?x6xf32>' for result}}
  %o = attn.attention kind additive masked_rows zero
      maps [affine_map<(b, h, i, j, d, e) -> (b, h, d)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, j, d)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, j, e)>,
            affine_map<(b, h, i, j, d, e) -> (d)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, i, e)>]
      ins(%q, %k, %v, %a : tensor<2x4x8xf32>, tensor<2x4x5x8xf32>, tensor<2x4x5x6xf32>, tensor<8xf32>) -> tensor<2x4x?x6xf32>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
  return
}

// -----

// attention C6
func.func @activation_index(%q: tensor<2x4x3x8xf32>, %k: tensor<2x4x5x8xf32>, %v: tensor<2x4x5x6xf32>, %a: tensor<8xf32>) {
  // expected-error @below {{expects no attn.index in the activation region, got one}}
  %o = attn.attention kind additive masked_rows zero
      maps [affine_map<(b, h, i, j, d, e) -> (b, h, i, d)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, j, d)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, j, e)>,
            affine_map<(b, h, i, j, d, e) -> (d)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, i, e)>]
      ins(%q, %k, %v, %a : tensor<2x4x3x8xf32>, tensor<2x4x5x8xf32>, tensor<2x4x5x6xf32>, tensor<8xf32>) -> tensor<2x4x3x6xf32>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
    activation {
    ^bb0(%s: f32):
      %i = attn.index 2 : index
      attn.yield %s : f32
    }
  return
}

// -----

// attention C6
func.func @masked_arguments(%q: tensor<2x4x3x8xf32>, %k: tensor<2x4x5x8xf32>, %v: tensor<2x4x5x6xf32>) {
  // expected-error @below {{expects the masked region to take 'f32', got 'f64'}}
  %o = attn.attention masked_rows finite
      maps [affine_map<(b, h, i, j, d, e) -> (b, h, i, d)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, j, d)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, j, e)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, i, e)>]
      ins(%q, %k, %v : tensor<2x4x3x8xf32>, tensor<2x4x5x8xf32>, tensor<2x4x5x6xf32>) -> tensor<2x4x3x6xf32>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
    masked {
    ^bb0(%s: f64):
      attn.yield %s : f64
    }
  return
}

// -----

// attention C7
func.func @no_key(%q: tensor<2x4x3x8xf32>, %v: tensor<2x4x5x6xf32>) {
  // expected-error @below {{expects a key with kind dot, got none}}
  %o = attn.attention masked_rows zero
      maps [affine_map<(b, h, i, j, d, e) -> (b, h, i, d)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, j, e)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, i, e)>]
      ins(%q, %v : tensor<2x4x3x8xf32>, tensor<2x4x5x6xf32>) -> tensor<2x4x3x6xf32>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
  return
}

// -----

// attention C7
func.func @no_alignment(%q: tensor<2x4x3x8xf32>, %k: tensor<2x4x5x8xf32>, %v: tensor<2x4x5x6xf32>) {
  // expected-error @below {{expects an alignment with kind additive, got none}}
  %o = attn.attention kind additive masked_rows zero
      maps [affine_map<(b, h, i, j, d, e) -> (b, h, i, d)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, j, d)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, j, e)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, i, e)>]
      ins(%q, %k, %v : tensor<2x4x3x8xf32>, tensor<2x4x5x8xf32>, tensor<2x4x5x6xf32>) -> tensor<2x4x3x6xf32>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
  return
}

// -----

// attention C7
func.func @activation_of_dot(%q: tensor<2x4x3x8xf32>, %k: tensor<2x4x5x8xf32>, %v: tensor<2x4x5x6xf32>) {
  // expected-error @below {{expects no activation region with kind dot, got one}}
  %o = attn.attention masked_rows zero
      maps [affine_map<(b, h, i, j, d, e) -> (b, h, i, d)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, j, d)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, j, e)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, i, e)>]
      ins(%q, %k, %v : tensor<2x4x3x8xf32>, tensor<2x4x5x8xf32>, tensor<2x4x5x6xf32>) -> tensor<2x4x3x6xf32>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
    activation {
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
  return
}

// -----

// attention C8
func.func @no_mask_term(%q: tensor<2x4x3x8xf32>, %k: tensor<2x4x5x8xf32>, %v: tensor<2x4x5x6xf32>) {
  // expected-error @below {{expects mask terms in mask, got "causal"}}
  %o = attn.attention masked_rows zero mask ["causal"]
      maps [affine_map<(b, h, i, j, d, e) -> (b, h, i, d)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, j, d)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, j, e)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, i, e)>]
      ins(%q, %k, %v : tensor<2x4x3x8xf32>, tensor<2x4x5x8xf32>, tensor<2x4x5x6xf32>) -> tensor<2x4x3x6xf32>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
  return
}

// -----

// attention C8
func.func @mask_operands(%q: tensor<2x4x3x8xf32>, %k: tensor<2x4x5x8xf32>, %v: tensor<2x4x5x6xf32>) {
  // expected-error @below {{expects 1 mask operands for the terms that take one, got 0}}
  %o = attn.attention masked_rows zero mask [#attn.causal<0>, #attn.lengths]
      maps [affine_map<(b, h, i, j, d, e) -> (b, h, i, d)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, j, d)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, j, e)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, i, e)>]
      ins(%q, %k, %v : tensor<2x4x3x8xf32>, tensor<2x4x5x8xf32>, tensor<2x4x5x6xf32>) -> tensor<2x4x3x6xf32>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
  return
}

// -----

// attention C9
func.func @length_element(%q: tensor<2x4x3x8xf32>, %k: tensor<2x4x5x8xf32>, %v: tensor<2x4x5x6xf32>, %m0: tensor<2xf32>) {
  // expected-error @below {{expects integers or index for the operand of #attn.lengths, got 'f32'}}
  %o = attn.attention masked_rows zero mask [#attn.lengths]
      maps [affine_map<(b, h, i, j, d, e) -> (b, h, i, d)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, j, d)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, j, e)>,
            affine_map<(b, h, i, j, d, e) -> (b)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, i, e)>]
      ins(%q, %k, %v : tensor<2x4x3x8xf32>, tensor<2x4x5x8xf32>, tensor<2x4x5x6xf32>)
      mask_operands(%m0 : tensor<2xf32>) -> tensor<2x4x3x6xf32>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
  return
}

// -----

// attention C9
func.func @dense_element(%q: tensor<2x4x3x8xf32>, %k: tensor<2x4x5x8xf32>, %v: tensor<2x4x5x6xf32>, %m0: tensor<2x5xf32>) {
  // expected-error @below {{expects integers for the operand of #attn.dense, got 'f32'}}
  %o = attn.attention masked_rows zero mask [#attn.dense]
      maps [affine_map<(b, h, i, j, d, e) -> (b, h, i, d)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, j, d)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, j, e)>,
            affine_map<(b, h, i, j, d, e) -> (b, j)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, i, e)>]
      ins(%q, %k, %v : tensor<2x4x3x8xf32>, tensor<2x4x5x8xf32>, tensor<2x4x5x6xf32>)
      mask_operands(%m0 : tensor<2x5xf32>) -> tensor<2x4x3x6xf32>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
  return
}
