// RUN: attn-opt %s --attn-approximate-math | FileCheck %s
// RUN: attn-opt %s --attn-approximate-math | FileCheck %s --check-prefix=SHORT

// CHECK-LABEL: func.func @polynomial
// CHECK-NOT: math.exp
// CHECK-NOT: call
// CHECK: math.fma {{.*}} : vector<16xf32>
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
