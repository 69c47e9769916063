// RUN: attn-opt %s --attn-prepare-buffers | FileCheck %s

// 33 parts, in any order, become one concatenation in the order of their places.
// CHECK-LABEL: func.func @many(
// CHECK-NOT: tensor.insert_slice
// CHECK: tensor.concat dim(0) %arg0, %arg0, %arg1, %arg0, %arg0,
// CHECK-NOT: tensor.insert_slice
// CHECK: return
func.func @many(%a: tensor<2x?xf32>, %b: tensor<2x?xf32>, %n: index) -> tensor<66x?xf32> {
  %0 = tensor.empty(%n) : tensor<66x?xf32>
  %1 = tensor.insert_slice %a into %0[0, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<66x?xf32>
  %2 = tensor.insert_slice %b into %1[4, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<66x?xf32>
  %3 = tensor.insert_slice %a into %2[2, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<66x?xf32>
  %4 = tensor.insert_slice %a into %3[6, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<66x?xf32>
  %5 = tensor.insert_slice %a into %4[8, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<66x?xf32>
  %6 = tensor.insert_slice %a into %5[10, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<66x?xf32>
  %7 = tensor.insert_slice %a into %6[12, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<66x?xf32>
  %8 = tensor.insert_slice %a into %7[14, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<66x?xf32>
  %9 = tensor.insert_slice %a into %8[16, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<66x?xf32>
  %10 = tensor.insert_slice %a into %9[18, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<66x?xf32>
  %11 = tensor.insert_slice %a into %10[20, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<66x?xf32>
  %12 = tensor.insert_slice %a into %11[22, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<66x?xf32>
  %13 = tensor.insert_slice %a into %12[24, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<66x?xf32>
  %14 = tensor.insert_slice %a into %13[26, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<66x?xf32>
  %15 = tensor.insert_slice %a into %14[28, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<66x?xf32>
  %16 = tensor.insert_slice %a into %15[30, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<66x?xf32>
  %17 = tensor.insert_slice %a into %16[32, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<66x?xf32>
  %18 = tensor.insert_slice %a into %17[34, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<66x?xf32>
  %19 = tensor.insert_slice %a into %18[36, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<66x?xf32>
  %20 = tensor.insert_slice %a into %19[38, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<66x?xf32>
  %21 = tensor.insert_slice %a into %20[40, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<66x?xf32>
  %22 = tensor.insert_slice %a into %21[42, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<66x?xf32>
  %23 = tensor.insert_slice %a into %22[44, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<66x?xf32>
  %24 = tensor.insert_slice %a into %23[46, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<66x?xf32>
  %25 = tensor.insert_slice %a into %24[48, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<66x?xf32>
  %26 = tensor.insert_slice %a into %25[50, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<66x?xf32>
  %27 = tensor.insert_slice %a into %26[52, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<66x?xf32>
  %28 = tensor.insert_slice %a into %27[54, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<66x?xf32>
  %29 = tensor.insert_slice %a into %28[56, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<66x?xf32>
  %30 = tensor.insert_slice %a into %29[58, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<66x?xf32>
  %31 = tensor.insert_slice %a into %30[60, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<66x?xf32>
  %32 = tensor.insert_slice %a into %31[62, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<66x?xf32>
  %33 = tensor.insert_slice %a into %32[64, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<66x?xf32>
  return %33 : tensor<66x?xf32>
}

// Near misses. 32 parts are computed in their places.
// CHECK-LABEL: func.func @few(
// CHECK-NOT: tensor.concat
// CHECK-COUNT-32: tensor.insert_slice
// CHECK: return
func.func @few(%a: tensor<2x?xf32>, %b: tensor<2x?xf32>, %n: index) -> tensor<64x?xf32> {
  %0 = tensor.empty(%n) : tensor<64x?xf32>
  %1 = tensor.insert_slice %a into %0[0, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<64x?xf32>
  %2 = tensor.insert_slice %b into %1[2, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<64x?xf32>
  %3 = tensor.insert_slice %a into %2[4, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<64x?xf32>
  %4 = tensor.insert_slice %a into %3[6, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<64x?xf32>
  %5 = tensor.insert_slice %a into %4[8, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<64x?xf32>
  %6 = tensor.insert_slice %a into %5[10, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<64x?xf32>
  %7 = tensor.insert_slice %a into %6[12, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<64x?xf32>
  %8 = tensor.insert_slice %a into %7[14, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<64x?xf32>
  %9 = tensor.insert_slice %a into %8[16, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<64x?xf32>
  %10 = tensor.insert_slice %a into %9[18, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<64x?xf32>
  %11 = tensor.insert_slice %a into %10[20, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<64x?xf32>
  %12 = tensor.insert_slice %a into %11[22, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<64x?xf32>
  %13 = tensor.insert_slice %a into %12[24, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<64x?xf32>
  %14 = tensor.insert_slice %a into %13[26, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<64x?xf32>
  %15 = tensor.insert_slice %a into %14[28, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<64x?xf32>
  %16 = tensor.insert_slice %a into %15[30, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<64x?xf32>
  %17 = tensor.insert_slice %a into %16[32, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<64x?xf32>
  %18 = tensor.insert_slice %a into %17[34, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<64x?xf32>
  %19 = tensor.insert_slice %a into %18[36, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<64x?xf32>
  %20 = tensor.insert_slice %a into %19[38, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<64x?xf32>
  %21 = tensor.insert_slice %a into %20[40, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<64x?xf32>
  %22 = tensor.insert_slice %a into %21[42, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<64x?xf32>
  %23 = tensor.insert_slice %a into %22[44, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<64x?xf32>
  %24 = tensor.insert_slice %a into %23[46, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<64x?xf32>
  %25 = tensor.insert_slice %a into %24[48, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<64x?xf32>
  %26 = tensor.insert_slice %a into %25[50, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<64x?xf32>
  %27 = tensor.insert_slice %a into %26[52, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<64x?xf32>
  %28 = tensor.insert_slice %a into %27[54, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<64x?xf32>
  %29 = tensor.insert_slice %a into %28[56, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<64x?xf32>
  %30 = tensor.insert_slice %a into %29[58, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<64x?xf32>
  %31 = tensor.insert_slice %a into %30[60, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<64x?xf32>
  %32 = tensor.insert_slice %a into %31[62, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<64x?xf32>
  return %32 : tensor<64x?xf32>
}

// One part overwrites another, and rows stay as they are.
// CHECK-LABEL: func.func @gap(
// CHECK-NOT: tensor.concat
// CHECK-COUNT-33: tensor.insert_slice
// CHECK: return
func.func @gap(%a: tensor<2x?xf32>, %b: tensor<2x?xf32>, %n: index) -> tensor<66x?xf32> {
  %0 = tensor.empty(%n) : tensor<66x?xf32>
  %1 = tensor.insert_slice %a into %0[0, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<66x?xf32>
  %2 = tensor.insert_slice %b into %1[0, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<66x?xf32>
  %3 = tensor.insert_slice %a into %2[4, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<66x?xf32>
  %4 = tensor.insert_slice %a into %3[6, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<66x?xf32>
  %5 = tensor.insert_slice %a into %4[8, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<66x?xf32>
  %6 = tensor.insert_slice %a into %5[10, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<66x?xf32>
  %7 = tensor.insert_slice %a into %6[12, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<66x?xf32>
  %8 = tensor.insert_slice %a into %7[14, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<66x?xf32>
  %9 = tensor.insert_slice %a into %8[16, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<66x?xf32>
  %10 = tensor.insert_slice %a into %9[18, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<66x?xf32>
  %11 = tensor.insert_slice %a into %10[20, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<66x?xf32>
  %12 = tensor.insert_slice %a into %11[22, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<66x?xf32>
  %13 = tensor.insert_slice %a into %12[24, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<66x?xf32>
  %14 = tensor.insert_slice %a into %13[26, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<66x?xf32>
  %15 = tensor.insert_slice %a into %14[28, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<66x?xf32>
  %16 = tensor.insert_slice %a into %15[30, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<66x?xf32>
  %17 = tensor.insert_slice %a into %16[32, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<66x?xf32>
  %18 = tensor.insert_slice %a into %17[34, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<66x?xf32>
  %19 = tensor.insert_slice %a into %18[36, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<66x?xf32>
  %20 = tensor.insert_slice %a into %19[38, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<66x?xf32>
  %21 = tensor.insert_slice %a into %20[40, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<66x?xf32>
  %22 = tensor.insert_slice %a into %21[42, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<66x?xf32>
  %23 = tensor.insert_slice %a into %22[44, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<66x?xf32>
  %24 = tensor.insert_slice %a into %23[46, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<66x?xf32>
  %25 = tensor.insert_slice %a into %24[48, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<66x?xf32>
  %26 = tensor.insert_slice %a into %25[50, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<66x?xf32>
  %27 = tensor.insert_slice %a into %26[52, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<66x?xf32>
  %28 = tensor.insert_slice %a into %27[54, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<66x?xf32>
  %29 = tensor.insert_slice %a into %28[56, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<66x?xf32>
  %30 = tensor.insert_slice %a into %29[58, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<66x?xf32>
  %31 = tensor.insert_slice %a into %30[60, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<66x?xf32>
  %32 = tensor.insert_slice %a into %31[62, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<66x?xf32>
  %33 = tensor.insert_slice %a into %32[64, 0] [2, %n] [1, 1] : tensor<2x?xf32> into tensor<66x?xf32>
  return %33 : tensor<66x?xf32>
}
