// RUN: attn-opt %s -attn-lower-gpu-search | FileCheck %s

// Kernels are launches, and the host hears of no token in the loop.

func.func @step(%t: tensor<?xi64>, %m: tensor<9x9xf32>) -> tensor<?x9xf32> {
  %c0 = arith.constant 0 : index
  %n = tensor.dim %t, %c0 : tensor<?xi64>
  %l = tensor.empty(%n) : tensor<?x9xf32>
  return %l : tensor<?x9xf32>
}

// CHECK-LABEL: func.func @greedy
// CHECK: scf.while
// CHECK: attn.kernel @search_rows_w1_b1_2
// CHECK: attn.kernel @search_greedy_w1_b1_2
// CHECK-NOT: attn.tell
// CHECK: return
func.func @greedy(%f: tensor<?xi64>, %max: index, %m: tensor<9x9xf32>)
    -> (tensor<?x?xi64>, tensor<?xi64>, tensor<?xf32>) {
  %a, %b, %c = attn.search "greedy" @step from %f max %max (%m : tensor<9x9xf32>)
      {sources = array<i64: -1, -2>, batch_dims = array<i64: 0, -1>, grow_dims = array<i64: -1, -1>,
       logits_result = 0 : i64, eos = array<i64: 2>} : tensor<?xi64> -> tensor<?x?xi64>, tensor<?xi64>, tensor<?xf32>
  return %a, %b, %c : tensor<?x?xi64>, tensor<?xi64>, tensor<?xf32>
}

// The best label of each frame is found by the kernel for rows.
// CHECK-LABEL: func.func @labels
// CHECK: attn.kernel @ctc_frames
// CHECK: attn.kernel @ctc_greedy_b1_3
func.func @labels(%x: tensor<?x?x9xf32>, %n: tensor<?xi64>) -> tensor<?x?xi64> {
  %a, %b, %c = attn.ctc_search %x frames %n {blank = 3 : i64}
      : tensor<?x?x9xf32>, tensor<?xi64> -> tensor<?x?xi64>, tensor<?xi64>, tensor<?xf32>
  return %a : tensor<?x?xi64>
}

// A beam is one kernel, whose thread for an item has no vectors.
// CHECK-LABEL: func.func @beam
// CHECK-NOT: @ctc_frames
// CHECK: attn.kernel @ctc_beam_w5_b2_0_t
func.func @beam(%x: tensor<?x?x9xf32>, %n: tensor<?xi64>) -> tensor<?x2x?xi64> {
  %a, %b, %c = attn.ctc_search %x frames %n {blank = 0 : i64, width = 5 : i64, n_best = 2 : i64, time_major}
      : tensor<?x?x9xf32>, tensor<?xi64> -> tensor<?x2x?xi64>, tensor<?x2xi64>, tensor<?x2xf32>
  return %a : tensor<?x2x?xi64>
}

// A block's threads sweep a row, each by eight scores at a time.
// CHECK-DAG: func.func {{.*}}@search_rows_w1_b1_2
// CHECK-NOT: vector.
// CHECK: gpu.launch
// CHECK-SAME: = %c1024
// CHECK: scf.for %{{.*}} step %c8192
