// RUN: attn-opt %s -attn-lower-search | FileCheck %s

// The kernels, what a run asks for, and results as long as the longest.

// CHECK-LABEL: func.func @greedy
// CHECK: attn.require {{.*}} "ctc search: the scores have {0} items, the numbers of frames are {1}"
// CHECK: attn.require {{.*}} "ctc search: the scores have {0} labels, the blank is {1}"
// CHECK: attn.kernel @ctc_greedy_b1_3
// CHECK: attn.kernel @ctc_length_b1
// CHECK: attn.require {{.*}} "ctc search: the number of frames of item {0} is less than 0, or more than the {1} of its scores"
// CHECK: attn.require {{.*}} "ctc search: item {0} has a frame with a NaN or +inf, or nothing but -inf"
// CHECK: tensor.extract_slice {{.*}} : tensor<?x1x?xi64> to tensor<?x?xi64>
func.func @greedy(%x: tensor<?x?x9xf32>, %n: tensor<?xi64>) -> tensor<?x?xi64> {
  %a, %b, %c = attn.ctc_search %x frames %n {blank = 3 : i64}
      : tensor<?x?x9xf32>, tensor<?xi64> -> tensor<?x?xi64>, tensor<?xi64>, tensor<?xf32>
  return %a : tensor<?x?xi64>
}

// No two tensors of scratch have one type: nobody reads them, and they would become one buffer.
// CHECK-LABEL: func.func @beam
// CHECK: attn.kernel @ctc_beam_w5_b2_0_t ins({{.*}}) outs({{.*}} : tensor<?x2x?xi64>, tensor<?x2xi64>, tensor<?x2xf32>, tensor<?x2xi64>, tensor<?x?x4xi64>, tensor<?x2x5x2xi64>, tensor<?x2x5x3xf64>)
func.func @beam(%x: tensor<?x?x9xf32>, %n: tensor<?xi64>) -> tensor<?x2x?xi64> {
  %a, %b, %c = attn.ctc_search %x frames %n {blank = 0 : i64, width = 5 : i64, n_best = 2 : i64, time_major}
      : tensor<?x?x9xf32>, tensor<?xi64> -> tensor<?x2x?xi64>, tensor<?x2xi64>, tensor<?x2xf32>
  return %a : tensor<?x2x?xi64>
}
