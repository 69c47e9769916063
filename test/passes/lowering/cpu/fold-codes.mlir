// RUN: attn-opt %s --attn-fold-codes --split-input-file | FileCheck %s

// Codes of 8 bits with a zero point, read again and written once more with the scale that they were read with. The
// bounds are (0 - 3) * 0.1 and (255 - 3) * 0.1; 10 is 0.1's reciprocal.
// CHECK-LABEL: func.func @read_again
// CHECK: ^bb0(%[[X:[^:]*]]: f32,
// CHECK: %[[LOW:.*]] = arith.constant -3.000000e-01 : f32
// CHECK: %[[ABOVE:.*]] = arith.cmpf ogt, %[[X]], %[[LOW]] : f32
// CHECK: %[[FIRST:.*]] = arith.select %[[ABOVE]], %[[X]], %[[LOW]] : f32
// CHECK: %[[HIGH:.*]] = arith.constant {{25.2|2.52}}{{[0-9e+]*}} : f32
// CHECK: %[[BELOW:.*]] = arith.cmpf olt, %[[FIRST]], %[[HIGH]] : f32
// CHECK: %[[WITHIN:.*]] = arith.select %[[BELOW]], %[[FIRST]], %[[HIGH]] : f32
// CHECK: %[[BY:.*]] = arith.constant 1.000000e+01 : f32
// CHECK: %[[PRODUCT:.*]] = arith.mulf %[[WITHIN]], %[[BY]] : f32
// CHECK: %[[LESS:.*]] = arith.negf %[[PRODUCT]] : f32
// CHECK: %[[REST:.*]] = math.fma %[[LESS]], %{{.*}}, %[[WITHIN]] : f32
// CHECK: %[[QUOTIENT:.*]] = math.fma %[[REST]], %[[BY]], %[[PRODUCT]] : f32
// CHECK: %[[ROUND:.*]] = math.roundeven %[[QUOTIENT]] : f32
// An integer has no -0.
// CHECK: %[[NONE:.*]] = arith.constant 0.000000e+00 : f32
// CHECK: %[[CODE:.*]] = arith.addf %[[ROUND]], %[[NONE]] : f32
// CHECK: %[[VALUE:.*]] = arith.mulf %[[CODE]], %{{.*}} : f32
// CHECK-NOT: roundeven
// CHECK: %[[ZERO:.*]] = arith.constant 3.000000e+00 : f32
// CHECK: %[[SHIFTED:.*]] = arith.addf %[[CODE]], %[[ZERO]] : f32
// CHECK: %[[INTEGER:.*]] = arith.fptosi %[[SHIFTED]] : f32 to i32
// CHECK: %[[BYTE:.*]] = arith.trunci %[[INTEGER]] : i32 to i8
// CHECK: linalg.yield %[[VALUE]], %[[BYTE]] : f32, i8
#avx2 = #attn.target<triple = "x86_64-unknown-linux-gnu", cpu = "x86-64-v3", features = "", isa = "avx2", l1 = 32768, l2 = 1048576>
#id = affine_map<(i) -> (i)>
module attributes {attn.target = #avx2} {
func.func @read_again(%x: tensor<?xf32>, %e: tensor<?xf32>, %f: tensor<?xi8>) -> (tensor<?xf32>, tensor<?xi8>) {
  %scale = arith.constant 0.1 : f32
  %zero = arith.constant 3.0 : f32
  %low = arith.constant 0.0 : f32
  %high = arith.constant 255.0 : f32
  %r:2 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]} ins(%x : tensor<?xf32>)
      outs(%e, %f : tensor<?xf32>, tensor<?xi8>) {
    ^bb0(%in: f32, %o: f32, %p: i8):
      %0 = arith.divf %in, %scale : f32
      %1 = math.roundeven %0 : f32
      %2 = arith.addf %1, %zero : f32
      %3 = arith.cmpf ogt, %2, %low : f32
      %4 = arith.cmpf olt, %2, %high : f32
      %5 = arith.select %4, %2, %high : f32
      %6 = arith.select %3, %5, %low : f32
      %7 = arith.fptosi %6 : f32 to i32
      %8 = arith.trunci %7 : i32 to i8
      %9 = arith.uitofp %8 : i8 to f32
      %10 = arith.subf %9, %zero : f32
      %11 = arith.mulf %10, %scale : f32
      %12 = arith.divf %11, %scale : f32
      %13 = math.roundeven %12 : f32
      %14 = arith.addf %13, %zero : f32
      %15 = arith.cmpf ogt, %14, %low : f32
      %16 = arith.cmpf olt, %14, %high : f32
      %17 = arith.select %16, %14, %high : f32
      %18 = arith.select %15, %17, %low : f32
      %19 = arith.fptosi %18 : f32 to i32
      %20 = arith.trunci %19 : i32 to i8
      linalg.yield %11, %20 : f32, i8
  } -> (tensor<?xf32>, tensor<?xi8>)
  return %r#0, %r#1 : tensor<?xf32>, tensor<?xi8>
}
}

// -----

// Near misses: codes that are read with another sign or type keep their integer, a scale that the run brings its
// division, and what is rounded otherwise, or has no whole bounds, all of it.
// CHECK-LABEL: func.func @others
// CHECK: arith.sitofp %{{.*}} : i8 to f32
// CHECK: linalg.yield
// CHECK: arith.divf
// CHECK: arith.cmpf ogt
// CHECK: arith.select
// CHECK: arith.select
// CHECK-NEXT: math.roundeven
// CHECK: linalg.yield
// CHECK: math.round %
// CHECK: arith.uitofp
// CHECK: linalg.yield
// CHECK: math.roundeven
// CHECK: arith.cmpf ogt
// CHECK: arith.uitofp
// CHECK: linalg.yield
#avx2 = #attn.target<triple = "x86_64-unknown-linux-gnu", cpu = "x86-64-v3", features = "", isa = "avx2", l1 = 32768, l2 = 1048576>
#id = affine_map<(i) -> (i)>
#s = affine_map<(i) -> ()>
module attributes {attn.target = #avx2} {
func.func @others(%x: tensor<?xf32>, %run: tensor<f32>, %e: tensor<?xf32>)
    -> (tensor<?xf32>, tensor<?xf32>, tensor<?xf32>, tensor<?xf32>) {
  %scale = arith.constant 0.1 : f32
  %low = arith.constant 0.0 : f32
  %high = arith.constant 255.0 : f32
  %half = arith.constant 254.5 : f32
  %signed = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : tensor<?xf32>)
      outs(%e : tensor<?xf32>) {
    ^bb0(%in: f32, %o: f32):
      %0 = arith.divf %in, %scale : f32
      %1 = math.roundeven %0 : f32
      %3 = arith.cmpf ogt, %1, %low : f32
      %4 = arith.cmpf olt, %1, %high : f32
      %5 = arith.select %4, %1, %high : f32
      %6 = arith.select %3, %5, %low : f32
      %7 = arith.fptosi %6 : f32 to i32
      %8 = arith.trunci %7 : i32 to i8
      %9 = arith.sitofp %8 : i8 to f32
      linalg.yield %9 : f32
  } -> tensor<?xf32>
  %divided = linalg.generic {indexing_maps = [#id, #s, #id], iterator_types = ["parallel"]}
      ins(%x, %run : tensor<?xf32>, tensor<f32>) outs(%e : tensor<?xf32>) {
    ^bb0(%in: f32, %by: f32, %o: f32):
      %0 = arith.divf %in, %by : f32
      %1 = math.roundeven %0 : f32
      %3 = arith.cmpf ogt, %1, %low : f32
      %4 = arith.cmpf olt, %1, %high : f32
      %5 = arith.select %4, %1, %high : f32
      %6 = arith.select %3, %5, %low : f32
      %7 = arith.fptosi %6 : f32 to i32
      %8 = arith.trunci %7 : i32 to i8
      %9 = arith.uitofp %8 : i8 to f32
      linalg.yield %9 : f32
  } -> tensor<?xf32>
  %away = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : tensor<?xf32>)
      outs(%e : tensor<?xf32>) {
    ^bb0(%in: f32, %o: f32):
      %1 = math.round %in : f32
      %3 = arith.cmpf ogt, %1, %low : f32
      %4 = arith.cmpf olt, %1, %high : f32
      %5 = arith.select %4, %1, %high : f32
      %6 = arith.select %3, %5, %low : f32
      %7 = arith.fptosi %6 : f32 to i32
      %8 = arith.trunci %7 : i32 to i8
      %9 = arith.uitofp %8 : i8 to f32
      linalg.yield %9 : f32
  } -> tensor<?xf32>
  %halves = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : tensor<?xf32>)
      outs(%e : tensor<?xf32>) {
    ^bb0(%in: f32, %o: f32):
      %1 = math.roundeven %in : f32
      %3 = arith.cmpf ogt, %1, %low : f32
      %4 = arith.cmpf olt, %1, %half : f32
      %5 = arith.select %4, %1, %half : f32
      %6 = arith.select %3, %5, %low : f32
      %7 = arith.fptosi %6 : f32 to i32
      %8 = arith.trunci %7 : i32 to i8
      %9 = arith.uitofp %8 : i8 to f32
      linalg.yield %9 : f32
  } -> tensor<?xf32>
  return %signed, %divided, %away, %halves : tensor<?xf32>, tensor<?xf32>, tensor<?xf32>, tensor<?xf32>
}
}

// -----

// Without fused multiply-adds the division stays; its bounds come first all the same.
// CHECK-LABEL: func.func @portable
// CHECK: arith.divf
// CHECK: arith.cmpf ogt
// CHECK-NOT: fma
// CHECK: math.roundeven
// CHECK-NEXT: linalg.yield
#id = affine_map<(i) -> (i)>
func.func @portable(%x: tensor<?xf32>, %e: tensor<?xf32>) -> tensor<?xf32> {
  %scale = arith.constant 0.1 : f32
  %low = arith.constant 0.0 : f32
  %high = arith.constant 255.0 : f32
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : tensor<?xf32>)
      outs(%e : tensor<?xf32>) {
    ^bb0(%in: f32, %o: f32):
      %0 = arith.divf %in, %scale : f32
      %1 = math.roundeven %0 : f32
      %3 = arith.cmpf ogt, %1, %low : f32
      %4 = arith.cmpf olt, %1, %high : f32
      %5 = arith.select %4, %1, %high : f32
      %6 = arith.select %3, %5, %low : f32
      %7 = arith.fptosi %6 : f32 to i32
      %8 = arith.trunci %7 : i32 to i8
      %9 = arith.uitofp %8 : i8 to f32
      linalg.yield %9 : f32
  } -> tensor<?xf32>
  return %0 : tensor<?xf32>
}
