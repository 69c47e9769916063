// RUN: attn-opt %s -attn-verify-canonical -split-input-file -verify-diagnostics
// RUN: attnc %root/test/e2e/models/bert_sdpa_ts17/model.onnx --emit=attn | attn-opt -inline -canonicalize -cse -attn-raise-softmax -attn-raise-contraction -attn-verify-canonical -o /dev/null
// RUN: attnc %root/test/e2e/models/onnx_alibi_decomposed_softmax/model.onnx --emit=attn | attn-opt -inline -canonicalize -cse -attn-raise-softmax -attn-raise-contraction -attn-verify-canonical -o /dev/null

#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>

// Canonical: elementwise ops, a softmax, a plain sum and a division by something else.
func.func @canonical(%x: tensor<2x3xf32>, %y: tensor<2x3xf32>, %n: tensor<2xf32>) -> (tensor<2x3xf32>, tensor<2x3xf32>) {
  %s = attn.softmax %x dim 1 : tensor<2x3xf32>
  %e = tensor.empty() : tensor<2x3xf32>
  %d = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%y, %n : tensor<2x3xf32>, tensor<2xf32>) outs(%e : tensor<2x3xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %q = arith.divf %a, %b : f32
    linalg.yield %q : f32
  } -> tensor<2x3xf32>
  return %s, %d : tensor<2x3xf32>, tensor<2x3xf32>
}

// -----

func.func @matmul(%a: tensor<2x3xf32>, %b: tensor<3x4xf32>, %c: tensor<2x4xf32>) -> tensor<2x4xf32> {
  // expected-error @below {{not in canonical form: a contraction is linalg.contract}}
  %0 = linalg.matmul ins(%a, %b : tensor<2x3xf32>, tensor<3x4xf32>) outs(%c : tensor<2x4xf32>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}

// -----

func.func @sum_of_products(%a: tensor<2x3xf32>, %b: tensor<2x3xf32>, %c: tensor<2xf32>) -> tensor<2xf32> {
  // expected-error @below {{not in canonical form: a contraction is linalg.contract}}
  %0 = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>],
                       iterator_types = ["parallel", "reduction"]}
      ins(%a, %b : tensor<2x3xf32>, tensor<2x3xf32>) outs(%c : tensor<2xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %p = arith.mulf %x, %y : f32
    %s = arith.addf %p, %o : f32
    linalg.yield %s : f32
  } -> tensor<2xf32>
  return %0 : tensor<2xf32>
}

// -----

#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>

func.func @softmax(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<2x3xf32>
  %r = tensor.empty() : tensor<2xf32>
  %z = linalg.fill ins(%zero : f32) outs(%r : tensor<2xf32>) -> tensor<2xf32>
  %exp = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<2x3xf32>) outs(%e : tensor<2x3xf32>) {
  ^bb0(%a: f32, %o: f32):
    %q = math.exp %a : f32
    linalg.yield %q : f32
  } -> tensor<2x3xf32>
  %sum = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%exp : tensor<2x3xf32>) outs(%z : tensor<2xf32>) {
  ^bb0(%a: f32, %o: f32):
    %q = arith.addf %a, %o : f32
    linalg.yield %q : f32
  } -> tensor<2xf32>
  // expected-error @below {{not in canonical form: a softmax is attn.softmax}}
  %d = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%exp, %sum : tensor<2x3xf32>, tensor<2xf32>) outs(%e : tensor<2x3xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %q = arith.divf %a, %b : f32
    linalg.yield %q : f32
  } -> tensor<2x3xf32>
  return %d : tensor<2x3xf32>
}

// -----

func.func @reshape(%x: tensor<2x3xf32>, %s: tensor<1xi32>) -> tensor<6xf32> {
  // expected-error @below {{not in canonical form: a reshape is a tensor.expand_shape or a tensor.collapse_shape}}
  %y = tensor.reshape %x(%s) : (tensor<2x3xf32>, tensor<1xi32>) -> tensor<6xf32>
  return %y : tensor<6xf32>
}

// -----

func.func private @f(tensor<2xf32>) -> tensor<2xf32>
func.func @call(%x: tensor<2xf32>) -> tensor<2xf32> {
  // expected-error @below {{not in canonical form: a call is inlined}}
  %y = func.call @f(%x) : (tensor<2xf32>) -> tensor<2xf32>
  return %y : tensor<2xf32>
}

// -----

func.func @dialect(%x: f32) -> complex<f32> {
  // expected-error @below {{not in canonical form: 'complex.create' is of no dialect that it knows}}
  %y = complex.create %x, %x : complex<f32>
  return %y : complex<f32>
}
