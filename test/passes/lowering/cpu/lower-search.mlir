// RUN: attn-opt %s -attn-lower-search | FileCheck %s --implicit-check-not=attn.trace
// RUN: attn-opt %s -attn-lower-search=traces | FileCheck %s --check-prefix=TRACE

// A greedy search: what depends on constants alone stands before the loop, the step in it; the state that grows is
// appended to in place.

func.func @step(%t: tensor<?xi64>, %h: tensor<?x?x4xf32>, %m: tensor<?x1x4xf32>) -> (tensor<?x9xf32>, tensor<?x?x4xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %n = tensor.dim %t, %c0 : tensor<?xi64>
  %p = tensor.dim %h, %c1 : tensor<?x?x4xf32>
  %more = arith.addi %p, %c1 : index
  %e = tensor.empty(%n) : tensor<?x1x4xf32>
  %k = linalg.exp ins(%m : tensor<?x1x4xf32>) outs(%e : tensor<?x1x4xf32>) -> tensor<?x1x4xf32>
  %all = tensor.empty(%n, %more) : tensor<?x?x4xf32>
  %i = tensor.insert_slice %h into %all[0, 0, 0] [%n, %p, 4] [1, 1, 1] : tensor<?x?x4xf32> into tensor<?x?x4xf32>
  %j = tensor.insert_slice %k into %i[0, %p, 0] [%n, 1, 4] [1, 1, 1] : tensor<?x1x4xf32> into tensor<?x?x4xf32>
  %l = tensor.empty(%n) : tensor<?x9xf32>
  return %l, %j : tensor<?x9xf32>, tensor<?x?x4xf32>
}

// CHECK-LABEL: func.func @greedy
// CHECK: attn.require {{.*}} "search: a state has {0} rows, the tokens have {1}"
// CHECK: linalg.exp
// CHECK: scf.while
// CHECK: attn.poll
// CHECK-NOT: linalg.exp
// CHECK: %[[ROOM:.*]] = attn.grow %{{.*}} dim 1
// CHECK-NEXT: tensor.insert_slice %{{.*}} into %[[ROOM]]
// CHECK-NOT: linalg.exp
// CHECK: attn.kernel @search_rows_w1_b1_2
// CHECK: attn.kernel @search_greedy_w1_b1_2 {{.*}} elementwise [3, 4, 5, 6]
// CHECK: attn.require {{.*}} "search: in step {0} the scores of item {1} have a NaN or +inf, or nothing but -inf; a mask
// CHECK: attn.kernel @search_length_w1_b1_2
// For attn-expose-attention: the rows in which tokens were chosen, behind the loop.
// TRACE-LABEL: func.func @greedy
// TRACE: %[[LOOP:.*]]:{{[0-9]+}} = scf.while
// TRACE: attn.trace %{{.*}} of %{{.*}} in %[[LOOP]]#1 : tensor<?x?xi64>
func.func @greedy(%f: tensor<?xi64>, %max: index, %h: tensor<?x?x4xf32>, %m: tensor<?x1x4xf32>)
    -> (tensor<?x?xi64>, tensor<?xi64>, tensor<?xf32>) {
  %a, %b, %c = attn.search "greedy" @step from %f max %max (%h, %m : tensor<?x?x4xf32>, tensor<?x1x4xf32>)
      {sources = array<i64: -1, 1, -2>, batch_dims = array<i64: 0, 0, 0>, grow_dims = array<i64: -1, 1, -1>,
       logits_result = 0 : i64, eos = array<i64: 2>} : tensor<?xi64> -> tensor<?x?xi64>, tensor<?xi64>, tensor<?xf32>
  return %a, %b, %c : tensor<?x?xi64>, tensor<?xi64>, tensor<?xf32>
}

// A beam appends likewise and moves in place what rows do not share with their parents. In the end it follows
// parents back.
// CHECK-LABEL: func.func @beam
// CHECK: scf.while
// CHECK: %[[ROOM:.*]] = attn.grow
// CHECK: %[[FULL:.*]] = tensor.insert_slice %{{.*}} into %[[ROOM]]
// CHECK: %[[CHOSEN:.*]]:8 = attn.kernel @search_beam_w3_b2_2
// CHECK-NOT: tensor<?x?x4xf32>
// CHECK: attn.kernel @search_move_w3_r0_g1_n_n_4_f32 ins(%[[CHOSEN]]#4, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %[[FULL]] :
// CHECK-SAME: outs(%[[FULL]] : tensor<?x?x4xf32>) elementwise [5]
// CHECK: attn.kernel @search_trace_w3_b2_2
// TRACE-LABEL: func.func @beam
// TRACE: %[[LOOP:.*]]:{{[0-9]+}} = scf.while
// TRACE: %[[TRACE:.*]]:3 = attn.kernel @search_trace_w3_b2_2
// TRACE: attn.trace %[[TRACE]]#1 of %{{.*}} in %[[LOOP]]#1 : tensor<?x2x?xi64>
func.func @beam(%f: tensor<?xi64>, %max: index, %h: tensor<?x?x4xf32>, %m: tensor<?x1x4xf32>)
    -> (tensor<?x2x?xi64>, tensor<?x2xi64>, tensor<?x2xf32>) {
  %a, %b, %c = attn.search "beam" @step from %f max %max (%h, %m : tensor<?x?x4xf32>, tensor<?x1x4xf32>)
      {sources = array<i64: -1, 1, -2>, batch_dims = array<i64: 0, 0, 0>, grow_dims = array<i64: -1, 1, -1>,
       logits_result = 0 : i64, eos = array<i64: 2>, width = 3 : i64, n_best = 2 : i64}
      : tensor<?xi64> -> tensor<?x2x?xi64>, tensor<?x2xi64>, tensor<?x2xf32>
  return %a, %b, %c : tensor<?x2x?xi64>, tensor<?x2xi64>, tensor<?x2xf32>
}

// Near miss: a state that the step makes anew is gathered.

func.func @anew(%t: tensor<?xi64>, %h: tensor<?x?x4xf32>) -> (tensor<?x9xf32>, tensor<?x?x4xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %n = tensor.dim %t, %c0 : tensor<?xi64>
  %p = tensor.dim %h, %c1 : tensor<?x?x4xf32>
  %more = arith.addi %p, %c1 : index
  %all = tensor.empty(%n, %more) : tensor<?x?x4xf32>
  %x = arith.constant 1.0 : f32
  %j = linalg.fill ins(%x : f32) outs(%all : tensor<?x?x4xf32>) -> tensor<?x?x4xf32>
  %l = tensor.empty(%n) : tensor<?x9xf32>
  return %l, %j : tensor<?x9xf32>, tensor<?x?x4xf32>
}

// CHECK-LABEL: func.func @beam_anew
// CHECK: attn.kernel @search_beam
// CHECK-NOT: search_move
// CHECK: linalg.generic {{.*}} ins(%{{.*}} : tensor<?xi64>) outs(%{{.*}} : tensor<?x?x4xf32>)
func.func @beam_anew(%f: tensor<?xi64>, %max: index, %h: tensor<?x?x4xf32>)
    -> (tensor<?x2x?xi64>, tensor<?x2xi64>, tensor<?x2xf32>) {
  %a, %b, %c = attn.search "beam" @anew from %f max %max (%h : tensor<?x?x4xf32>)
      {sources = array<i64: -1, 1>, batch_dims = array<i64: 0, 0>, grow_dims = array<i64: -1, 1>,
       logits_result = 0 : i64, eos = array<i64: 2>, width = 3 : i64, n_best = 2 : i64}
      : tensor<?xi64> -> tensor<?x2x?xi64>, tensor<?x2xi64>, tensor<?x2xf32>
  return %a, %b, %c : tensor<?x2x?xi64>, tensor<?x2xi64>, tensor<?x2xf32>
}

// Positions may come before rows.

func.func @time_major(%t: tensor<?xi64>, %h: tensor<?x?x4xf32>) -> (tensor<?x9xf32>, tensor<?x?x4xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %n = tensor.dim %t, %c0 : tensor<?xi64>
  %p = tensor.dim %h, %c0 : tensor<?x?x4xf32>
  %more = arith.addi %p, %c1 : index
  %k = tensor.empty(%n) : tensor<1x?x4xf32>
  %all = tensor.empty(%more, %n) : tensor<?x?x4xf32>
  %i = tensor.insert_slice %h into %all[0, 0, 0] [%p, %n, 4] [1, 1, 1] : tensor<?x?x4xf32> into tensor<?x?x4xf32>
  %j = tensor.insert_slice %k into %i[%p, 0, 0] [1, %n, 4] [1, 1, 1] : tensor<1x?x4xf32> into tensor<?x?x4xf32>
  %l = tensor.empty(%n) : tensor<?x9xf32>
  return %l, %j : tensor<?x9xf32>, tensor<?x?x4xf32>
}

// CHECK-LABEL: func.func @beam_time_major
// CHECK: scf.while
// CHECK: %[[ROOM:.*]] = attn.grow {{.*}} dim 0 : tensor<?x?x4xf32>
// CHECK: %[[FULL:.*]] = tensor.insert_slice %{{.*}} into %[[ROOM]]
// CHECK: attn.kernel @search_beam
// CHECK-NOT: outs(%{{.*}} : tensor<?x?x4xf32>)
// CHECK: attn.kernel @search_move_w3_r1_g0_n_n_4_f32 ins({{.*}}, %[[FULL]] :
// CHECK-SAME: outs(%[[FULL]] : tensor<?x?x4xf32>) elementwise [5]
func.func @beam_time_major(%f: tensor<?xi64>, %max: index, %h: tensor<?x?x4xf32>)
    -> (tensor<?x2x?xi64>, tensor<?x2xi64>, tensor<?x2xf32>) {
  %a, %b, %c = attn.search "beam" @time_major from %f max %max (%h : tensor<?x?x4xf32>)
      {sources = array<i64: -1, 1>, batch_dims = array<i64: 0, 1>, grow_dims = array<i64: -1, 0>,
       logits_result = 0 : i64, eos = array<i64: 2>, width = 3 : i64, n_best = 2 : i64}
      : tensor<?xi64> -> tensor<?x2x?xi64>, tensor<?x2xi64>, tensor<?x2xf32>
  return %a, %b, %c : tensor<?x2x?xi64>, tensor<?x2xi64>, tensor<?x2xf32>
}
