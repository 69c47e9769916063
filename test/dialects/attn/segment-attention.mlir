// RUN: attn-opt %s | attn-opt | FileCheck %s
// RUN: attn-opt %s --attn-decompose | FileCheck %s --check-prefix=LOOPS
// RUN: attn-opt %s --attn-interpret --entry=main | FileCheck %s --check-prefix=NUMBERS
// RUN: attn-opt %s --attn-decompose | attn-opt --attn-interpret --entry=main | FileCheck %s --check-prefix=NUMBERS

// CHECK: attn.segment_attention %{{.*}}, %{{.*}} by %{{.*}}, %{{.*}} rows %{{.*}} : tensor<4x1xf64>, tensor<2x1x2xf64>
// CHECK: attn.segment_attention %{{.*}}, %{{.*}} by %{{.*}}, %{{.*}} epsilon 5.000000e-01 floor 1.09{{.*}} : tensor<4x1xf64>
// LOOPS-NOT: attn.segment_attention
// LOOPS-COUNT-6: scf.for

// Node 0 has the edges 2 and 0, of scores log 3 and 0, node 1 has none, node 2 has edge 1 twice and 3.
// NUMBERS: result 0: 3x1x2xf64 = 7 8 0 0 3.66666667 4.66666667
// Each edge has its own values. Half is added to the sum 1 + 1/3 of node 0, whose maximum is the floor, and to the sum
// 3 * 1/3 of node 2, since the floor is log 3 above it: (3 + 1/3) / (11/6) and 2 / 1.5.
// NUMBERS: result 1: 3x1x1xf64 = 1.81818182 0 1.33333333
// Scores of -inf are below the floor, too: weights are 0 where something is added to their sum. Edge 3 has all of node 2.
// NUMBERS: result 2: 3x1x1xf64 = 0 0 1.33333333
func.func @main() -> (tensor<3x1x2xf64>, tensor<3x1x1xf64>, tensor<3x1x1xf64>) {
  %s = arith.constant dense<[[0.0], [0.0], [1.0986122886681098], [0.0]]> : tensor<4x1xf64>
  %v = arith.constant dense<[[[1.0, 2.0]], [[9.0, 10.0]]]> : tensor<2x1x2xf64>
  %order = arith.constant dense<[2, 0, 1, 3, 1]> : tensor<5xi64>
  %ends = arith.constant dense<[2, 2, 5]> : tensor<3xi64>
  %rows = arith.constant dense<[0, 0, 1, 1]> : tensor<4xi64>
  %y = attn.segment_attention %s, %v by %order, %ends rows %rows
      : tensor<4x1xf64>, tensor<2x1x2xf64>, tensor<5xi64>, tensor<3xi64>, tensor<4xi64> -> tensor<3x1x2xf64>
  %w = arith.constant dense<[[[1.0]], [[2.0]], [[3.0]], [[2.0]]]> : tensor<4x1x1xf64>
  %z = attn.segment_attention %s, %w by %order, %ends epsilon 0.5 floor 1.0986122886681098
      : tensor<4x1xf64>, tensor<4x1x1xf64>, tensor<5xi64>, tensor<3xi64> -> tensor<3x1x1xf64>
  %hidden = arith.constant dense<[[0xFFF0000000000000], [0xFFF0000000000000], [0xFFF0000000000000], [0.0]]> : tensor<4x1xf64>
  %x = attn.segment_attention %hidden, %w by %order, %ends epsilon 0.5 floor -1.0
      : tensor<4x1xf64>, tensor<4x1x1xf64>, tensor<5xi64>, tensor<3xi64> -> tensor<3x1x1xf64>
  return %y, %z, %x : tensor<3x1x2xf64>, tensor<3x1x1xf64>, tensor<3x1x1xf64>
}
