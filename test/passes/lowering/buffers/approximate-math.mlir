// RUN: attn-opt %s --attn-approximate-math | FileCheck %s
// RUN: attn-opt %s --attn-approximate-math | FileCheck %s --check-prefix=SHORT

// CHECK-LABEL: func.func @polynomial
// CHECK-NOT: math.exp
// CHECK-NOT: call
// CHECK: vector.fma {{.*}} : vector<16xf32>
// CHECK-LABEL: func.func @hardware
// CHECK: math.sqrt
// CHECK: arith.divf
// CHECK-LABEL: func.func @library
// CHECK: call @erf
// CHECK-LABEL: func.func @error_function
// CHECK-NOT: divf
// CHECK-COUNT-15: math.fma {{.*}} : vector<16xf32>
// CHECK-LABEL: func.func @error_function_in_short
// CHECK-COUNT-11: math.fma
// CHECK-NOT: math.fma
// The highest even and odd powers have each a coefficient of their own.
// SHORT-LABEL: func.func @error_function_in_short
// SHORT-DAG: dense<0.00393453427>
// SHORT-DAG: dense<-0.0095937578>
// CHECK-LABEL: func.func @error_function_of_other_quotients
// CHECK: divf
// CHECK: divf
// Small angles are reduced in f64; where one of a vector is not small, the library does all.
// CHECK-LABEL: func.func @angles
// CHECK: vector.reduction <or>
// CHECK: scf.if
// CHECK: arith.extf {{.*}} : vector<16xf32> to vector<16xf64>
// CHECK: arith.truncf {{.*}} : vector<16xf64> to vector<16xf32>
// CHECK: else
// CHECK: llvm.intr.sin
// CHECK-LABEL: func.func @half_angles
// CHECK: arith.extf
// CHECK: vector.shape_cast %{{.*}} : vector<2x8xf32> to vector<16xf32>
// CHECK: llvm.intr.cos
// CHECK: vector.shape_cast %{{.*}} : vector<16xf32> to vector<2x8xf32>
// CHECK: arith.truncf
// CHECK-LABEL: func.func @tangent
// CHECK: llvm.intr.sin
// CHECK: llvm.intr.cos
// CHECK: arith.divf
// CHECK-LABEL: func.func @angle_in_f64
// CHECK-NEXT: math.sin
// The square of a root neither overflows nor vanishes before the result does.
// CHECK-LABEL: func.func @exponential
// CHECK-NOT: math.exp
// CHECK: %[[FACTOR:.*]] = arith.bitcast %{{.*}} : i32 to f32
// CHECK: %[[ROOT:.*]] = arith.mulf %{{.*}}, %[[FACTOR]]
// CHECK: arith.mulf %[[ROOT]], %[[ROOT]]
// A denormal number is multiplied by 2^25 before its exponent is taken.
// CHECK-LABEL: func.func @logarithm
// CHECK: arith.constant 0x4C000000 : f32
// CHECK: arith.bitcast %{{.*}} : f32 to i32
// CHECK-LABEL: func.func @near_zero
// CHECK: call @expm1
// CHECK: call @log1p
func.func @polynomial(%x: vector<16xf32>) -> vector<16xf32> {
  %y = math.exp %x : vector<16xf32>
  return %y : vector<16xf32>
}
func.func @hardware(%x: f32) -> f32 {
  %y = math.rsqrt %x : f32
  return %y : f32
}
func.func @library(%x: f64) -> f64 {
  %y = math.erf %x : f64
  return %y : f64
}
func.func @error_function(%x: vector<16xf32>) -> vector<16xf32> {
  %root = arith.constant dense<1.41421354> : vector<16xf32>
  %q = arith.divf %x, %root : vector<16xf32>
  %y = math.erf %q : vector<16xf32>
  return %y : vector<16xf32>
}
func.func @error_function_in_short(%x: vector<16xf32>) -> vector<16xf32> {
  %y = math.erf %x fastmath<afn> : vector<16xf32>
  return %y : vector<16xf32>
}
func.func @error_function_of_other_quotients(%x: f32, %d: f32) -> (f32, f32) {
  %tiny = arith.constant 1.0e-40 : f32
  %p = arith.divf %x, %d : f32
  %q = arith.divf %x, %tiny : f32
  %y = math.erf %p : f32
  %z = math.erf %q : f32
  return %y, %z : f32, f32
}
func.func @angles(%x: vector<16xf32>) -> vector<16xf32> {
  %y = math.sin %x : vector<16xf32>
  return %y : vector<16xf32>
}
func.func @half_angles(%x: vector<2x8xf16>) -> vector<2x8xf16> {
  %y = math.cos %x : vector<2x8xf16>
  return %y : vector<2x8xf16>
}
func.func @tangent(%x: f32) -> f32 {
  %y = math.tan %x : f32
  return %y : f32
}
func.func @angle_in_f64(%x: f64) -> f64 {
  %y = math.sin %x : f64
  return %y : f64
}
func.func @exponential(%x: f32) -> f32 {
  %y = math.exp %x : f32
  return %y : f32
}
func.func @logarithm(%x: f32) -> f32 {
  %y = math.log %x : f32
  return %y : f32
}
func.func @near_zero(%x: f64) -> (f64, f64) {
  %y = math.expm1 %x : f64
  %z = math.log1p %x : f64
  return %y, %z : f64, f64
}
