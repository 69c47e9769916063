// RUN: attn-opt %s --attn-raise-products --canonicalize --cse --mlir-print-local-scope | FileCheck %s
// RUN: attn-opt %s --attn-raise-products --remarks-filter=attn-raise-products --remark-format=emitRemark \
// RUN:   -o /dev/null 2>&1 | FileCheck %s --check-prefix=REMARK

attn.global @w : tensor<8x6xi8> = #attn.initializer<"w">
attn.global @t : tensor<6x8xi8> = #attn.initializer<"t">
attn.global @deep : tensor<40000x6xi8> = #attn.initializer<"deep">

// MatMulInteger: an unsigned activation with a zero point, a signed weight without.
// CHECK-LABEL: @dynamic
// CHECK-SAME: %[[X:[^:]*]]: tensor<?x3x8xi8>, %[[Z:[^:]*]]: tensor<i8>
// CHECK: %[[W:.*]] = attn.weight @w
// CHECK: %[[S:.*]] = attn.integer_product %[[X]] zero %[[Z]] by %[[W]] : tensor<?x3x8xi8> zero tensor<i8> by tensor<8x6xi8> -> tensor<?x3x6xi32>
// CHECK-NEXT: return %[[S]]
func.func @dynamic(%x: tensor<?x3x8xi8>, %z: tensor<i8>, %zeros: tensor<?x3x6xi32>, %e: tensor<?x3x8xi32>,
                   %f: tensor<8x6xi32>) -> tensor<?x3x6xi32> {
  %c0 = arith.constant 0 : i32
  %w = attn.weight @w : tensor<8x6xi8>
  %a = linalg.generic {indexing_maps = [affine_map<(i, j, k) -> (i, j, k)>, affine_map<(i, j, k) -> ()>, affine_map<(i, j, k) -> (i, j, k)>],
                       iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%x, %z : tensor<?x3x8xi8>, tensor<i8>) outs(%e : tensor<?x3x8xi32>) {
    ^bb0(%p: i8, %q: i8, %out: i32):
      %0 = arith.extui %p : i8 to i32
      %1 = arith.extui %q : i8 to i32
      %2 = arith.subi %0, %1 : i32
      linalg.yield %2 : i32
  } -> tensor<?x3x8xi32>
  %b = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      ins(%w : tensor<8x6xi8>) outs(%f : tensor<8x6xi32>) {
    ^bb0(%p: i8, %out: i32):
      %0 = arith.extsi %p : i8 to i32
      linalg.yield %0 : i32
  } -> tensor<8x6xi32>
  %init = linalg.fill ins(%c0 : i32) outs(%zeros : tensor<?x3x6xi32>) -> tensor<?x3x6xi32>
  %s = linalg.contract indexing_maps = [affine_map<(i, j, n, k) -> (i, j, k)>, affine_map<(i, j, n, k) -> (k, n)>, affine_map<(i, j, n, k) -> (i, j, n)>]
      ins(%a, %b : tensor<?x3x8xi32>, tensor<8x6xi32>) outs(%init : tensor<?x3x6xi32>) -> tensor<?x3x6xi32>
  return %s : tensor<?x3x6xi32>
}

// Dequantised on both sides, in several ops: a signed activation with a scale, a weight N x K by a transpose, a scale a
// column.
// CHECK-LABEL: @dequantised
// CHECK-SAME: %[[X:[^:]*]]: tensor<4x8xi8>, %[[SA:[^:]*]]: tensor<f32>, %[[SW:[^:]*]]: tensor<6xf32>
// CHECK: %[[Z:.*]] = arith.constant dense<-128> : tensor<i8>
// CHECK: %[[U:.*]] = linalg.generic {{.*}} ins(%[[X]] : tensor<4x8xi8>)
// CHECK: arith.xori
// CHECK: %[[S:.*]] = attn.integer_product %[[U]] zero %[[Z]] by %{{.*}} transposed : tensor<4x8xi8> zero tensor<i8> by tensor<6x8xi8> -> tensor<4x6xi32>
// CHECK: linalg.generic {{.*}}affine_map<(d0, d1) -> ()>, affine_map<(d0, d1) -> (d1)>{{.*}} ins(%[[S]], %[[SA]], %[[SW]] :
// CHECK: %[[F:.*]] = arith.sitofp
// CHECK: %[[M:.*]] = arith.mulf %{{.*}}, %{{.*}} : f32
// CHECK: arith.mulf %[[F]], %[[M]] : f32
func.func @dequantised(%x: tensor<4x8xi8>, %sa: tensor<f32>, %sw: tensor<6xf32>, %e: tensor<4x8xf32>, %f: tensor<6x8xf32>,
                       %g: tensor<8x6xf32>, %zeros: tensor<4x6xf32>) -> tensor<4x6xf32> {
  %c0 = arith.constant 0.0 : f32
  %w = attn.weight @t : tensor<6x8xi8>
  %a = linalg.generic {indexing_maps = [affine_map<(i, k) -> (i, k)>, affine_map<(i, k) -> ()>, affine_map<(i, k) -> (i, k)>], iterator_types = ["parallel", "parallel"]}
      ins(%x, %sa : tensor<4x8xi8>, tensor<f32>) outs(%e : tensor<4x8xf32>) {
    ^bb0(%p: i8, %s: f32, %out: f32):
      %0 = arith.sitofp %p : i8 to f32
      %1 = arith.mulf %0, %s : f32
      linalg.yield %1 : f32
  } -> tensor<4x8xf32>
  %wide = linalg.generic {indexing_maps = [affine_map<(i, k) -> (i, k)>, affine_map<(i, k) -> (i, k)>], iterator_types = ["parallel", "parallel"]}
      ins(%w : tensor<6x8xi8>) outs(%f : tensor<6x8xf32>) {
    ^bb0(%p: i8, %out: f32):
      %0 = arith.sitofp %p : i8 to f32
      linalg.yield %0 : f32
  } -> tensor<6x8xf32>
  %scaled = linalg.generic {indexing_maps = [affine_map<(i, k) -> (i, k)>, affine_map<(i, k) -> (i)>, affine_map<(i, k) -> (i, k)>], iterator_types = ["parallel", "parallel"]}
      ins(%wide, %sw : tensor<6x8xf32>, tensor<6xf32>) outs(%f : tensor<6x8xf32>) {
    ^bb0(%p: f32, %s: f32, %out: f32):
      %0 = arith.mulf %p, %s : f32
      linalg.yield %0 : f32
  } -> tensor<6x8xf32>
  %b = linalg.transpose ins(%scaled : tensor<6x8xf32>) outs(%g : tensor<8x6xf32>) permutation = [1, 0]
  %init = linalg.fill ins(%c0 : f32) outs(%zeros : tensor<4x6xf32>) -> tensor<4x6xf32>
  %s = linalg.matmul ins(%a, %b : tensor<4x8xf32>, tensor<8x6xf32>) outs(%init : tensor<4x6xf32>) -> tensor<4x6xf32>
  return %s : tensor<4x6xf32>
}

// No products of integers, but rows of f32 by a matrix in blocks of one scale: a scale of the activation along the sum, an
// activation that is not quantised, sums that could pass 2^31.
// CHECK-LABEL: @rows
// CHECK-NOT: attn.integer_product
// CHECK-DAG: %[[ONES:.*]] = arith.constant dense<1.000000e+00> : tensor<1x6xf32>
// CHECK-DAG: %[[MANY:.*]] = arith.constant dense<1.000000e+00> : tensor<157x6xf32>
// CHECK-DAG: %[[W:.*]] = attn.weight @w
// CHECK: attn.block_product %{{.*}} by %[[W]] scales %[[ONES]] block 256 bits 8 : tensor<4x8xf32>
// CHECK: attn.block_product %{{.*}} by %[[W]] scales %[[ONES]] block 256 bits 8 : tensor<4x8xf32>
// CHECK: attn.block_product %{{.*}} scales %[[MANY]] block 256 bits 8 : tensor<4x40000xf32>
// REMARK-COUNT-3: remark: {{.*}}of rows by a dequantised weight
func.func @rows(%x: tensor<4x8xi8>, %y: tensor<4x8xf32>, %d: tensor<4x40000xi8>, %sa: tensor<8xf32>, %e: tensor<4x8xf32>,
                  %h: tensor<4x40000xf32>, %f: tensor<8x6xf32>, %g: tensor<40000x6xf32>, %zeros: tensor<4x6xf32>)
    -> (tensor<4x6xf32>, tensor<4x6xf32>, tensor<4x6xf32>) {
  %c0 = arith.constant 0.0 : f32
  %w = attn.weight @w : tensor<8x6xi8>
  %v = attn.weight @deep : tensor<40000x6xi8>
  %a = linalg.generic {indexing_maps = [affine_map<(i, k) -> (i, k)>, affine_map<(i, k) -> (k)>, affine_map<(i, k) -> (i, k)>], iterator_types = ["parallel", "parallel"]}
      ins(%x, %sa : tensor<4x8xi8>, tensor<8xf32>) outs(%e : tensor<4x8xf32>) {
    ^bb0(%p: i8, %s: f32, %out: f32):
      %0 = arith.uitofp %p : i8 to f32
      %1 = arith.mulf %0, %s : f32
      linalg.yield %1 : f32
  } -> tensor<4x8xf32>
  %b = linalg.generic {indexing_maps = [affine_map<(i, k) -> (i, k)>, affine_map<(i, k) -> (i, k)>], iterator_types = ["parallel", "parallel"]}
      ins(%w : tensor<8x6xi8>) outs(%f : tensor<8x6xf32>) {
    ^bb0(%p: i8, %out: f32):
      %0 = arith.sitofp %p : i8 to f32
      linalg.yield %0 : f32
  } -> tensor<8x6xf32>
  %deepA = linalg.generic {indexing_maps = [affine_map<(i, k) -> (i, k)>, affine_map<(i, k) -> (i, k)>], iterator_types = ["parallel", "parallel"]}
      ins(%d : tensor<4x40000xi8>) outs(%h : tensor<4x40000xf32>) {
    ^bb0(%p: i8, %out: f32):
      %0 = arith.uitofp %p : i8 to f32
      linalg.yield %0 : f32
  } -> tensor<4x40000xf32>
  %deepB = linalg.generic {indexing_maps = [affine_map<(i, k) -> (i, k)>, affine_map<(i, k) -> (i, k)>], iterator_types = ["parallel", "parallel"]}
      ins(%v : tensor<40000x6xi8>) outs(%g : tensor<40000x6xf32>) {
    ^bb0(%p: i8, %out: f32):
      %0 = arith.sitofp %p : i8 to f32
      linalg.yield %0 : f32
  } -> tensor<40000x6xf32>
  %init = linalg.fill ins(%c0 : f32) outs(%zeros : tensor<4x6xf32>) -> tensor<4x6xf32>
  %s = linalg.matmul ins(%a, %b : tensor<4x8xf32>, tensor<8x6xf32>) outs(%init : tensor<4x6xf32>) -> tensor<4x6xf32>
  %t = linalg.matmul ins(%y, %b : tensor<4x8xf32>, tensor<8x6xf32>) outs(%init : tensor<4x6xf32>) -> tensor<4x6xf32>
  %u = linalg.matmul ins(%deepA, %deepB : tensor<4x40000xf32>, tensor<40000x6xf32>) outs(%init : tensor<4x6xf32>) -> tensor<4x6xf32>
  return %s, %t, %u : tensor<4x6xf32>, tensor<4x6xf32>, tensor<4x6xf32>
}

// Near miss: rows of an open length.
// CHECK-LABEL: @open_rows
// CHECK-NOT: attn.block_product
// REMARK: remark: {{.*}}the length of its rows is not known
func.func @open_rows(%x: tensor<4x?xf32>, %f: tensor<8x6xf32>, %zeros: tensor<4x6xf32>) -> tensor<4x6xf32> {
  %c0 = arith.constant 0.0 : f32
  %w = attn.weight @w : tensor<8x6xi8>
  %b = linalg.generic {indexing_maps = [affine_map<(i, k) -> (i, k)>, affine_map<(i, k) -> (i, k)>], iterator_types = ["parallel", "parallel"]}
      ins(%w : tensor<8x6xi8>) outs(%f : tensor<8x6xf32>) {
    ^bb0(%p: i8, %out: f32):
      %0 = arith.sitofp %p : i8 to f32
      linalg.yield %0 : f32
  } -> tensor<8x6xf32>
  %init = linalg.fill ins(%c0 : f32) outs(%zeros : tensor<4x6xf32>) -> tensor<4x6xf32>
  %s = linalg.matmul ins(%x, %b : tensor<4x?xf32>, tensor<8x6xf32>) outs(%init : tensor<4x6xf32>) -> tensor<4x6xf32>
  return %s : tensor<4x6xf32>
}

// A scale and a zero point a column, of a weight that is stored N x K: each block has the same.
// CHECK-LABEL: @by_column
// CHECK-SAME: %[[X:[^:]*]]: tensor<?x8xf32>
// CHECK-DAG: %[[S:.*]] = arith.constant dense<{{\[}}[5.000000e-01], [2.500000e-01], [1.000000e+00], [2.000000e+00], [4.000000e+00], [8.000000e+00]]> : tensor<6x1xf32>
// CHECK-DAG: %[[Z:.*]] = arith.constant dense<{{\[}}[-128], [1], [2], [3], [4], [5]]> : tensor<6x1xi8>
// CHECK-DAG: %[[T:.*]] = attn.weight @t
// CHECK: attn.block_product %[[X]] by %[[T]] scales %[[S]] zeros %[[Z]] block 256 bits 8 transposed unsigned
func.func @by_column(%x: tensor<?x8xf32>, %f: tensor<6x8xf32>, %zeros: tensor<?x6xf32>) -> tensor<?x6xf32> {
  %c0 = arith.constant 0.0 : f32
  %w = attn.weight @t : tensor<6x8xi8>
  %scales = arith.constant dense<[0.5, 0.25, 1.0, 2.0, 4.0, 8.0]> : tensor<6xf32>
  %points = arith.constant dense<[-128, 1, 2, 3, 4, 5]> : tensor<6xi8>
  %b = linalg.generic {indexing_maps = [affine_map<(i, k) -> (i, k)>, affine_map<(i, k) -> (i)>, affine_map<(i, k) -> (i)>, affine_map<(i, k) -> (i, k)>], iterator_types = ["parallel", "parallel"]}
      ins(%w, %points, %scales : tensor<6x8xi8>, tensor<6xi8>, tensor<6xf32>) outs(%f : tensor<6x8xf32>) {
    ^bb0(%p: i8, %z: i8, %s: f32, %out: f32):
      %0 = arith.uitofp %p : i8 to f32
      %1 = arith.uitofp %z : i8 to f32
      %2 = arith.subf %0, %1 : f32
      %3 = arith.mulf %2, %s : f32
      linalg.yield %3 : f32
  } -> tensor<6x8xf32>
  %init = linalg.fill ins(%c0 : f32) outs(%zeros : tensor<?x6xf32>) -> tensor<?x6xf32>
  %s = linalg.contract indexing_maps = [affine_map<(i, n, k) -> (i, k)>, affine_map<(i, n, k) -> (n, k)>, affine_map<(i, n, k) -> (i, n)>]
      ins(%x, %b : tensor<?x8xf32>, tensor<6x8xf32>) outs(%init : tensor<?x6xf32>) -> tensor<?x6xf32>
  return %s : tensor<?x6xf32>
}

// Near misses: a scale of the weight along the sum, one that the run has.
// CHECK-LABEL: @missed
// CHECK-NOT: attn.block_product
// REMARK-COUNT-2: remark: {{.*}}a scale is not stored, or goes along the sum
func.func @missed(%x: tensor<4x8xf32>, %given: tensor<6xf32>, %f: tensor<8x6xf32>, %zeros: tensor<4x6xf32>)
    -> (tensor<4x6xf32>, tensor<4x6xf32>) {
  %c0 = arith.constant 0.0 : f32
  %w = attn.weight @w : tensor<8x6xi8>
  %scales = arith.constant dense<[0.5, 0.25, 1.0, 2.0, 4.0, 8.0, 3.0, 5.0]> : tensor<8xf32>
  %a = linalg.generic {indexing_maps = [affine_map<(k, n) -> (k, n)>, affine_map<(k, n) -> (k)>, affine_map<(k, n) -> (k, n)>], iterator_types = ["parallel", "parallel"]}
      ins(%w, %scales : tensor<8x6xi8>, tensor<8xf32>) outs(%f : tensor<8x6xf32>) {
    ^bb0(%p: i8, %s: f32, %out: f32):
      %0 = arith.sitofp %p : i8 to f32
      %1 = arith.mulf %0, %s : f32
      linalg.yield %1 : f32
  } -> tensor<8x6xf32>
  %b = linalg.generic {indexing_maps = [affine_map<(k, n) -> (k, n)>, affine_map<(k, n) -> (n)>, affine_map<(k, n) -> (k, n)>], iterator_types = ["parallel", "parallel"]}
      ins(%w, %given : tensor<8x6xi8>, tensor<6xf32>) outs(%f : tensor<8x6xf32>) {
    ^bb0(%p: i8, %s: f32, %out: f32):
      %0 = arith.sitofp %p : i8 to f32
      %1 = arith.mulf %0, %s : f32
      linalg.yield %1 : f32
  } -> tensor<8x6xf32>
  %init = linalg.fill ins(%c0 : f32) outs(%zeros : tensor<4x6xf32>) -> tensor<4x6xf32>
  %s = linalg.matmul ins(%x, %a : tensor<4x8xf32>, tensor<8x6xf32>) outs(%init : tensor<4x6xf32>) -> tensor<4x6xf32>
  %t = linalg.matmul ins(%x, %b : tensor<4x8xf32>, tensor<8x6xf32>) outs(%init : tensor<4x6xf32>) -> tensor<4x6xf32>
  return %s, %t : tensor<4x6xf32>, tensor<4x6xf32>
}

// Near misses: zero points that no byte is, as they are no integer, or too large; -3 is none of the unsigned bytes that
// it is subtracted from.
// CHECK-LABEL: @other_zeros
// CHECK-NOT: attn.block_product
// CHECK: return
// REMARK-COUNT-2: remark: {{.*}}a zero point is no number of 8 bits
func.func @other_zeros(%x: tensor<4x8xf32>, %f: tensor<8x6xf32>, %zeros: tensor<4x6xf32>)
    -> (tensor<4x6xf32>, tensor<4x6xf32>) {
  %c0 = arith.constant 0.0 : f32
  %half = arith.constant 0.5 : f32
  %far = arith.constant 300.0 : f32
  %w = attn.weight @w : tensor<8x6xi8>
  %a = linalg.generic {indexing_maps = [affine_map<(k, n) -> (k, n)>, affine_map<(k, n) -> (k, n)>], iterator_types = ["parallel", "parallel"]}
      ins(%w : tensor<8x6xi8>) outs(%f : tensor<8x6xf32>) {
    ^bb0(%p: i8, %out: f32):
      %0 = arith.sitofp %p : i8 to f32
      %1 = arith.subf %0, %half : f32
      linalg.yield %1 : f32
  } -> tensor<8x6xf32>
  %b = linalg.generic {indexing_maps = [affine_map<(k, n) -> (k, n)>, affine_map<(k, n) -> (k, n)>], iterator_types = ["parallel", "parallel"]}
      ins(%w : tensor<8x6xi8>) outs(%f : tensor<8x6xf32>) {
    ^bb0(%p: i8, %out: f32):
      %0 = arith.sitofp %p : i8 to f32
      %1 = arith.subf %0, %far : f32
      linalg.yield %1 : f32
  } -> tensor<8x6xf32>
  %init = linalg.fill ins(%c0 : f32) outs(%zeros : tensor<4x6xf32>) -> tensor<4x6xf32>
  %s = linalg.matmul ins(%x, %a : tensor<4x8xf32>, tensor<8x6xf32>) outs(%init : tensor<4x6xf32>) -> tensor<4x6xf32>
  %t = linalg.matmul ins(%x, %b : tensor<4x8xf32>, tensor<8x6xf32>) outs(%init : tensor<4x6xf32>) -> tensor<4x6xf32>
  return %s, %t : tensor<4x6xf32>, tensor<4x6xf32>
}

// CHECK-LABEL: @other_sign
// CHECK-NOT: attn.integer_product
// CHECK: return
// REMARK: remark: {{.*}}a zero point is no number of 8 bits
func.func @other_sign(%x: tensor<3x8xi8>, %zeros: tensor<3x6xi32>, %e: tensor<3x8xi32>, %f: tensor<8x6xi32>)
    -> tensor<3x6xi32> {
  %c0 = arith.constant 0 : i32
  %z = arith.constant dense<-3> : tensor<i8>
  %w = attn.weight @w : tensor<8x6xi8>
  %a = linalg.generic {indexing_maps = [affine_map<(i, k) -> (i, k)>, affine_map<(i, k) -> ()>, affine_map<(i, k) -> (i, k)>], iterator_types = ["parallel", "parallel"]}
      ins(%x, %z : tensor<3x8xi8>, tensor<i8>) outs(%e : tensor<3x8xi32>) {
    ^bb0(%p: i8, %q: i8, %out: i32):
      %0 = arith.extui %p : i8 to i32
      %1 = arith.extsi %q : i8 to i32
      %2 = arith.subi %0, %1 : i32
      linalg.yield %2 : i32
  } -> tensor<3x8xi32>
  %b = linalg.generic {indexing_maps = [affine_map<(k, n) -> (k, n)>, affine_map<(k, n) -> (k, n)>], iterator_types = ["parallel", "parallel"]}
      ins(%w : tensor<8x6xi8>) outs(%f : tensor<8x6xi32>) {
    ^bb0(%p: i8, %out: i32):
      %0 = arith.extsi %p : i8 to i32
      linalg.yield %0 : i32
  } -> tensor<8x6xi32>
  %init = linalg.fill ins(%c0 : i32) outs(%zeros : tensor<3x6xi32>) -> tensor<3x6xi32>
  %s = linalg.matmul ins(%a, %b : tensor<3x8xi32>, tensor<8x6xi32>) outs(%init : tensor<3x6xi32>) -> tensor<3x6xi32>
  return %s : tensor<3x6xi32>
}

// Two operands that the run has, a matrix for each head, in other orders of dimensions than the op has them: copies in
// its order, and the sums in that of the result.
// CHECK-LABEL: @pair
// CHECK-SAME: %[[X:[^:]*]]: tensor<?x2x8xi8>, %[[Y:[^:]*]]: tensor<2x6x8xi8>, %[[Z:[^:]*]]: tensor<i8>
// CHECK: %[[ROWS:.*]] = linalg.generic {{.*}}(d0, d1, d2) -> (d1, d0, d2){{.*}} ins(%[[X]] : tensor<?x2x8xi8>) outs(%{{.*}} : tensor<2x?x8xi8>)
// CHECK: %[[S:.*]] = attn.integer_product %[[ROWS]] zero %[[Z]] by %[[Y]] transposed : tensor<2x?x8xi8> zero tensor<i8> by tensor<2x6x8xi8> -> tensor<2x?x6xi32>
// CHECK: linalg.transpose ins(%[[S]] : tensor<2x?x6xi32>) outs(%{{.*}} : tensor<?x2x6xi32>) permutation = [1, 0, 2]
func.func @pair(%x: tensor<?x2x8xi8>, %y: tensor<2x6x8xi8>, %z: tensor<i8>, %e: tensor<?x2x8xi32>, %f: tensor<2x6x8xi32>, %zeros: tensor<?x2x6xi32>)
    -> tensor<?x2x6xi32> {
  %c0 = arith.constant 0 : i32
  %a = linalg.generic {indexing_maps = [affine_map<(i, h, k) -> (i, h, k)>, affine_map<(i, h, k) -> ()>, affine_map<(i, h, k) -> (i, h, k)>], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%x, %z : tensor<?x2x8xi8>, tensor<i8>) outs(%e : tensor<?x2x8xi32>) {
    ^bb0(%p: i8, %zero: i8, %out: i32):
      %0 = arith.extui %p : i8 to i32
      %1 = arith.extui %zero : i8 to i32
      %2 = arith.subi %0, %1 : i32
      linalg.yield %2 : i32
  } -> tensor<?x2x8xi32>
  %b = linalg.generic {indexing_maps = [affine_map<(h, n, k) -> (h, n, k)>, affine_map<(h, n, k) -> (h, n, k)>], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%y : tensor<2x6x8xi8>) outs(%f : tensor<2x6x8xi32>) {
    ^bb0(%p: i8, %out: i32):
      %0 = arith.extsi %p : i8 to i32
      linalg.yield %0 : i32
  } -> tensor<2x6x8xi32>
  %init = linalg.fill ins(%c0 : i32) outs(%zeros : tensor<?x2x6xi32>) -> tensor<?x2x6xi32>
  %s = linalg.contract indexing_maps = [affine_map<(i, h, n, k) -> (i, h, k)>, affine_map<(i, h, n, k) -> (h, n, k)>, affine_map<(i, h, n, k) -> (i, h, n)>]
      ins(%a, %b : tensor<?x2x8xi32>, tensor<2x6x8xi32>) outs(%init : tensor<?x2x6xi32>) -> tensor<?x2x6xi32>
  return %s : tensor<?x2x6xi32>
}

// The same of floats stays: an attention may be made of it, and the f32 kernel.
// CHECK-LABEL: @pair_of_floats
// CHECK-NOT: attn.integer_product
// CHECK: linalg.matmul
func.func @pair_of_floats(%x: tensor<4x8xi8>, %y: tensor<8x6xi8>, %e: tensor<4x8xf32>, %f: tensor<8x6xf32>, %zeros: tensor<4x6xf32>) -> tensor<4x6xf32> {
  %c0 = arith.constant 0.0 : f32
  %a = linalg.generic {indexing_maps = [affine_map<(i, k) -> (i, k)>, affine_map<(i, k) -> (i, k)>], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<4x8xi8>) outs(%e : tensor<4x8xf32>) {
    ^bb0(%p: i8, %out: f32):
      %0 = arith.uitofp %p : i8 to f32
      linalg.yield %0 : f32
  } -> tensor<4x8xf32>
  %b = linalg.generic {indexing_maps = [affine_map<(i, k) -> (i, k)>, affine_map<(i, k) -> (i, k)>], iterator_types = ["parallel", "parallel"]}
      ins(%y : tensor<8x6xi8>) outs(%f : tensor<8x6xf32>) {
    ^bb0(%p: i8, %out: f32):
      %0 = arith.sitofp %p : i8 to f32
      linalg.yield %0 : f32
  } -> tensor<8x6xf32>
  %init = linalg.fill ins(%c0 : f32) outs(%zeros : tensor<4x6xf32>) -> tensor<4x6xf32>
  %s = linalg.matmul ins(%a, %b : tensor<4x8xf32>, tensor<8x6xf32>) outs(%init : tensor<4x6xf32>) -> tensor<4x6xf32>
  return %s : tensor<4x6xf32>
}
