// RUN: attn-opt %s -split-input-file -verify-diagnostics

// attention C9
func.func @centre_element(%q: tensor<2x4x3x8xf32>, %k: tensor<2x4x5x8xf32>, %v: tensor<2x4x5x6xf32>, %m0: tensor<2xcomplex<f32>>) {
  // expected-error @below {{expects integers, index or floats for the operand of #attn.window<1, 1, centre>, got 'complex<f32>'}}
  %o = attn.attention masked_rows zero mask [#attn.window<1, 1, centre>]
      maps [affine_map<(b, h, i, j, d, e) -> (b, h, i, d)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, j, d)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, j, e)>,
            affine_map<(b, h, i, j, d, e) -> (b)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, i, e)>]
      ins(%q, %k, %v : tensor<2x4x3x8xf32>, tensor<2x4x5x8xf32>, tensor<2x4x5x6xf32>)
      mask_operands(%m0 : tensor<2xcomplex<f32>>) -> tensor<2x4x3x6xf32>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
  return
}

// -----

// attention C9
func.func @length_names(%q: tensor<2x4x3x8xf32>, %k: tensor<2x4x5x8xf32>, %v: tensor<2x4x5x6xf32>, %m0: tensor<2x5xi64>) {
  // expected-error @below {{expects the map of mask operand 0 to name none of j, d, e, got (d0, d1, d2, d3, d4, d5) -> (d0, d3)}}
  %o = attn.attention masked_rows zero mask [#attn.lengths]
      maps [affine_map<(b, h, i, j, d, e) -> (b, h, i, d)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, j, d)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, j, e)>,
            affine_map<(b, h, i, j, d, e) -> (b, j)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, i, e)>]
      ins(%q, %k, %v : tensor<2x4x3x8xf32>, tensor<2x4x5x8xf32>, tensor<2x4x5x6xf32>)
      mask_operands(%m0 : tensor<2x5xi64>) -> tensor<2x4x3x6xf32>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
  return
}

// -----

// attention C10
func.func @offset_range(%q: tensor<2x4x3x8xf32>, %k: tensor<2x4x5x8xf32>, %v: tensor<2x4x5x6xf32>) {
  // expected-error @below {{expects bounds of a mask term in [-2^40, 2^40], got #attn.causal<9223372036854775806>}}
  %o = attn.attention masked_rows zero mask [#attn.causal<9223372036854775806>]
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

// attention C10
func.func @chunks_range(%q: tensor<2x4x3x8xf32>, %k: tensor<2x4x5x8xf32>, %v: tensor<2x4x5x6xf32>) {
  // expected-error @below {{expects bounds of a mask term in [-2^40, 2^40], got #attn.chunks<1024, 1152921504606846976, 0>}}
  %o = attn.attention masked_rows zero mask [#attn.chunks<1024, 1152921504606846976, 0>]
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

// attention C10
func.func @chunks_size(%q: tensor<2x4x3x8xf32>, %k: tensor<2x4x5x8xf32>, %v: tensor<2x4x5x6xf32>) {
  // expected-error @below {{expects chunks of 1 position or more, got 0}}
  %o = attn.attention masked_rows zero mask [#attn.chunks<0, 0, 0>]
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

// attention C10
func.func @chunks_base(%q: tensor<2x4x3x8xf32>, %k: tensor<2x4x5x8xf32>, %v: tensor<2x4x5x6xf32>) {
  // expected-error @below {{expects chunks of the diagonal or of an offset, got centre}}
  %o = attn.attention masked_rows zero mask [#attn.chunks<4, 0, 0, centre>]
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

// attention C10
func.func @block_size(%q: tensor<2x4x3x8xf32>, %k: tensor<2x4x5x8xf32>, %v: tensor<2x4x5x6xf32>, %m0: tensor<4xi64>) {
  // expected-error @below {{expects blocks of a size in [1, 2^40], got #attn.blocks<0, 4>}}
  %o = attn.attention masked_rows zero mask [#attn.blocks<0, 4>]
      maps [affine_map<(b, h, i, j, d, e) -> (b, h, i, d)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, j, d)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, j, e)>,
            affine_map<(b, h, i, j, d, e) -> ()>,
            affine_map<(b, h, i, j, d, e) -> (b, h, i, e)>]
      ins(%q, %k, %v : tensor<2x4x3x8xf32>, tensor<2x4x5x8xf32>, tensor<2x4x5x6xf32>)
      mask_operands(%m0 : tensor<4xi64>) -> tensor<2x4x3x6xf32>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
  return
}

// -----

// attention C11
func.func @no_extra(%q: tensor<2x4x3x8xf32>, %k: tensor<2x4x5x8xf32>, %v: tensor<2x4x5x6xf32>) {
  // expected-error @below {{expects #attn.extra in extras, got 3 : i64}}
  %o:2 = attn.attention masked_rows zero
      maps [affine_map<(b, h, i, j, d, e) -> (b, h, i, d)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, j, d)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, j, e)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, i, e)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, i)>]
      ins(%q, %k, %v : tensor<2x4x3x8xf32>, tensor<2x4x5x8xf32>, tensor<2x4x5x6xf32>) -> tensor<2x4x3x6xf32>
      extras [3] : tensor<2x4x3xf32>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
  return
}

// -----

// attention C11
func.func @extra_count(%q: tensor<2x4x3x8xf32>, %k: tensor<2x4x5x8xf32>, %v: tensor<2x4x5x6xf32>) {
  // expected-error @below {{expects 2 extra results, got 1}}
  %o:2 = attn.attention masked_rows zero
      maps [affine_map<(b, h, i, j, d, e) -> (b, h, i, d)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, j, d)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, j, e)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, i, e)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, i)>]
      ins(%q, %k, %v : tensor<2x4x3x8xf32>, tensor<2x4x5x8xf32>, tensor<2x4x5x6xf32>) -> tensor<2x4x3x6xf32>
      extras [#attn.extra<lse>, #attn.extra<lse>] : tensor<2x4x3xf32>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
  return
}

// -----

// attention C11
func.func @extra_element(%q: tensor<2x4x3x8xf32>, %k: tensor<2x4x5x8xf32>, %v: tensor<2x4x5x6xf32>) {
  // expected-error @below {{expects integers or index for #attn.extra<weights, argmax>, got 'f32'}}
  %o:2 = attn.attention masked_rows zero
      maps [affine_map<(b, h, i, j, d, e) -> (b, h, i, d)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, j, d)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, j, e)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, i, e)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, i)>]
      ins(%q, %k, %v : tensor<2x4x3x8xf32>, tensor<2x4x5x8xf32>, tensor<2x4x5x6xf32>) -> tensor<2x4x3x6xf32>
      extras [#attn.extra<weights, argmax>] : tensor<2x4x3xf32>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
  return
}

// -----

// attention C11
func.func @extra_names(%q: tensor<2x4x3x8xf32>, %k: tensor<2x4x5x8xf32>, %v: tensor<2x4x5x6xf32>) {
  // expected-error @below {{expects the map of extra result 0 to name b, h, i and none of j, d, e, got (d0, d1, d2, d3, d4, d5) -> (d0, d1)}}
  %o:2 = attn.attention masked_rows zero
      maps [affine_map<(b, h, i, j, d, e) -> (b, h, i, d)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, j, d)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, j, e)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, i, e)>,
            affine_map<(b, h, i, j, d, e) -> (b, h)>]
      ins(%q, %k, %v : tensor<2x4x3x8xf32>, tensor<2x4x5x8xf32>, tensor<2x4x5x6xf32>) -> tensor<2x4x3x6xf32>
      extras [#attn.extra<weights, entropy>] : tensor<2x4xf32>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
  return
}

// -----

// attention C11
func.func @lse_of_sum(%q: tensor<2x4x3x8xf32>, %k: tensor<2x4x5x8xf32>, %v: tensor<2x4x5x6xf32>) {
  // expected-error @below {{expects a softmax and no reduction for lse, got sum and none}}
  %o:2 = attn.attention normalizer sum masked_rows zero
      maps [affine_map<(b, h, i, j, d, e) -> (b, h, i, d)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, j, d)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, j, e)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, i, e)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, i)>]
      ins(%q, %k, %v : tensor<2x4x3x8xf32>, tensor<2x4x5x8xf32>, tensor<2x4x5x6xf32>) -> tensor<2x4x3x6xf32>
      extras [#attn.extra<lse>] : tensor<2x4x3xf32>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
  return
}

// -----

// attention C11
func.func @top_size(%q: tensor<2x4x3x8xf32>, %k: tensor<2x4x5x8xf32>, %v: tensor<2x4x5x6xf32>) {
  // expected-error @below {{expects at most as many as there are keys (5) for #attn.extra<weights, topk_values>, got 7}}
  %o:2 = attn.attention masked_rows zero
      maps [affine_map<(b, h, i, j, d, e) -> (b, h, i, d)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, j, d)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, j, e)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, i, e)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, i)>]
      ins(%q, %k, %v : tensor<2x4x3x8xf32>, tensor<2x4x5x8xf32>, tensor<2x4x5x6xf32>) -> tensor<2x4x3x6xf32>
      extras [#attn.extra<weights, topk_values>] : tensor<2x4x3x7xf32>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
  return
}

// -----

// attention C11
func.func @top_dynamic(%q: tensor<2x4x3x8xf32>, %k: tensor<2x4x5x8xf32>, %v: tensor<2x4x5x6xf32>) {
  // expected-error @below {{expects a positive static last dimension for #attn.extra<weights, topk_values>, got 'tensor<2x4x3x?xf32>'}}
  %o:2 = attn.attention masked_rows zero
      maps [affine_map<(b, h, i, j, d, e) -> (b, h, i, d)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, j, d)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, j, e)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, i, e)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, i)>]
      ins(%q, %k, %v : tensor<2x4x3x8xf32>, tensor<2x4x5x8xf32>, tensor<2x4x5x6xf32>) -> tensor<2x4x3x6xf32>
      extras [#attn.extra<weights, topk_values>] : tensor<2x4x3x?xf32>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
  return
}

// -----

// attention C12
func.func @masked_region(%q: tensor<2x4x3x8xf32>, %k: tensor<2x4x5x8xf32>, %v: tensor<2x4x5x6xf32>) {
  // expected-error @below {{expects no masked region with masked_rows nan, got one}}
  %o = attn.attention masked_rows nan
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
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
  return
}

// -----

// attention C12
func.func @policy_of_none(%q: tensor<2x4x3x8xf32>, %k: tensor<2x4x5x8xf32>, %v: tensor<2x4x5x6xf32>) {
  // expected-error @below {{expects masked_rows zero without normalizer, got uniform}}
  %o = attn.attention normalizer none masked_rows uniform
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

// attention C13
func.func @softmax_type(%q: tensor<2x4x3x8xf32>, %k: tensor<2x4x5x8xf32>, %v: tensor<2x4x5x6xf32>) {
  // expected-error @below {{expects softmax_type to be a float type, got 'i32'}}
  %o = attn.attention masked_rows zero softmax_type i32
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

// attention C13
func.func @softmax_type_of_sum(%q: tensor<2x4x3x8xf32>, %k: tensor<2x4x5x8xf32>, %v: tensor<2x4x5x6xf32>) {
  // expected-error @below {{expects no softmax_type with normalizer sum, got 'f64'}}
  %o = attn.attention normalizer sum masked_rows zero softmax_type f64
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

// attention C14
func.func @axes_not_parts(%q: tensor<2x4x3x8xf32>, %k: tensor<2x4x5x8xf32>, %v: tensor<2x4x5x6xf32>) {
  // expected-error @below {{expects parts of dimensions 0 to 3 with positive sizes in axes, got 7}}
  %o = attn.attention masked_rows zero
      maps [affine_map<(b, h, i, j, d, e) -> (b, h, i, d)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, j, d)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, j, e)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, i, e)>]
      ins(%q, %k, %v : tensor<2x4x3x8xf32>, tensor<2x4x5x8xf32>, tensor<2x4x5x6xf32>) -> tensor<2x4x3x6xf32>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    } {axes = [7]}
  return
}

// -----

// attention C14
func.func @axes_size(%q: tensor<2x4x3x8xf32>, %k: tensor<2x4x5x8xf32>, %v: tensor<2x4x5x6xf32>) {
  // expected-error @below {{expects parts of dimensions 0 to 3 with positive sizes in axes, got #attn.axis_part<batch of 0, 0>}}
  %o = attn.attention masked_rows zero
      maps [affine_map<(b, h, i, j, d, e) -> (b, h, i, d)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, j, d)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, j, e)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, i, e)>]
      ins(%q, %k, %v : tensor<2x4x3x8xf32>, tensor<2x4x5x8xf32>, tensor<2x4x5x6xf32>) -> tensor<2x4x3x6xf32>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    } {axes = [#attn.axis_part<batch of 0, 0>]}
  return
}

// -----

// attention C14
func.func @axes_order(%q: tensor<2x4x3x8xf32>, %k: tensor<2x4x5x8xf32>, %v: tensor<2x4x5x6xf32>) {
  // expected-error @below {{expects axes in the order batch, head, query, key}}
  %o = attn.attention masked_rows zero
      maps [affine_map<(b, h, i, j, d, e) -> (b, h, i, d)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, j, d)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, j, e)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, i, e)>]
      ins(%q, %k, %v : tensor<2x4x3x8xf32>, tensor<2x4x5x8xf32>, tensor<2x4x5x6xf32>) -> tensor<2x4x3x6xf32>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    } {axes = [#attn.axis_part<head of 1, 4>, #attn.axis_part<batch of 0, 2>, #attn.axis_part<query of 2, 3>, #attn.axis_part<key of 3, 5>]}
  return
}

// -----

// attention C14
func.func @axes_missing(%q: tensor<2x4x3x8xf32>, %k: tensor<2x4x5x8xf32>, %v: tensor<2x4x5x6xf32>) {
  // expected-error @below {{expects parts of b, h, i, j in axes, got b, h, i}}
  %o = attn.attention masked_rows zero
      maps [affine_map<(b, h, i, j, d, e) -> (b, h, i, d)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, j, d)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, j, e)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, i, e)>]
      ins(%q, %k, %v : tensor<2x4x3x8xf32>, tensor<2x4x5x8xf32>, tensor<2x4x5x6xf32>) -> tensor<2x4x3x6xf32>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    } {axes = [#attn.axis_part<batch of 0, 2>, #attn.axis_part<head of 1, 4>, #attn.axis_part<query of 2, 3>]}
  return
}

// -----

// attention C14
func.func @axes_whole(%q: tensor<2x4x3x8xf32>, %k: tensor<2x4x5x8xf32>, %v: tensor<2x4x5x6xf32>) {
  // expected-error @below {{expects parts of h that make up its size, one open, in axes}}
  %o = attn.attention masked_rows zero
      maps [affine_map<(b, h, i, j, d, e) -> (b, h, i, d)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, j, d)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, j, e)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, i, e)>]
      ins(%q, %k, %v : tensor<2x4x3x8xf32>, tensor<2x4x5x8xf32>, tensor<2x4x5x6xf32>) -> tensor<2x4x3x6xf32>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    } {axes = [#attn.axis_part<batch of 0, 2>, #attn.axis_part<head of 1, 3>, #attn.axis_part<query of 2, 3>, #attn.axis_part<key of 3, 5>]}
  return
}

// -----

// attention C14
func.func @axes_open(%q: tensor<2x4x3x8xf32>, %k: tensor<2x4x5x8xf32>, %v: tensor<2x4x5x6xf32>) {
  // expected-error @below {{expects parts of h that make up its size, one open, in axes}}
  %o = attn.attention masked_rows zero
      maps [affine_map<(b, h, i, j, d, e) -> (b, h, i, d)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, j, d)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, j, e)>,
            affine_map<(b, h, i, j, d, e) -> (b, h, i, e)>]
      ins(%q, %k, %v : tensor<2x4x3x8xf32>, tensor<2x4x5x8xf32>, tensor<2x4x5x6xf32>) -> tensor<2x4x3x6xf32>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    } {axes = [#attn.axis_part<batch of 0, 2>, #attn.axis_part<head of 1, ?>, #attn.axis_part<head of 2, 3>, #attn.axis_part<query of 1, ?>, #attn.axis_part<key of 3, 5>]}
  return
}

// -----

// attention C7
func.func @alignment_of_distance(%q: tensor<2x4x3x8xf32>, %k: tensor<2x4x5x8xf32>, %v: tensor<2x4x5x6xf32>, %a: tensor<8xf32>) {
  // expected-error @below {{expects no alignment with kind distance, got one}}
  %o = attn.attention kind distance masked_rows zero
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
  return
}
