// RUN: attn-opt %s --attn-expand-half-floats | FileCheck %s
// RUN: sed 's/isa = "portable"/isa = "avx2"/' %s | attn-opt --attn-expand-half-floats | FileCheck %s --check-prefix=AVX2

module attributes {attn.target = #attn.target<triple = "", cpu = "", features = "", isa = "portable", l1 = 49152, l2 = 1048576>} {

// f64 goes by way of f32, rounded to odd, so that the second rounding meets no tie that the first one made.
// AVX2-LABEL: func.func @double_to_half
// AVX2-NOT: arith.truncf {{.*}} : f64 to f16
// AVX2: arith.truncf {{.*}} : f64 to f32
// AVX2: arith.cmpf une
// AVX2: arith.ori
// AVX2: arith.truncf {{.*}} : f32 to f16
func.func @double_to_half(%x: f64) -> f16 {
  %y = arith.truncf %x : f64 to f16
  return %y : f16
}

// The sum is computed in f32. Without an instruction the conversions are integer arithmetic; AVX2 has F16C.
// CHECK-LABEL: func.func @half(
// CHECK-NOT: arith.extf
// CHECK: arith.addf {{.*}} : f32
// CHECK-NOT: arith.truncf
// CHECK: arith.shrui
// AVX2-LABEL: func.func @half(
// AVX2: arith.extf {{.*}} : f16 to f32
// AVX2: arith.addf {{.*}} : f32
// AVX2: arith.truncf {{.*}} : f32 to f16
func.func @half(%x: f16) -> f16 {
  %y = arith.addf %x, %x : f16
  return %y : f16
}

// No target has an instruction that widens bf16: its bits are shifted.
// AVX2-LABEL: func.func @brain
// AVX2-NOT: arith.extf
// AVX2: arith.shli
// AVX2: arith.mulf {{.*}} : vector<8xf32>
// AVX2-NOT: arith.truncf {{.*}}vector
func.func @brain(%x: vector<8xbf16>) -> vector<8xbf16> {
  %y = arith.mulf %x, %x : vector<8xbf16>
  return %y : vector<8xbf16>
}

// Near miss: what has no half stays as it is.
// CHECK-LABEL: func.func @single
// CHECK-NEXT: %[[Y:.*]] = arith.truncf %{{.*}} : f64 to f32
// CHECK-NEXT: %[[Z:.*]] = arith.addf %[[Y]], %[[Y]] : f32
// CHECK-NEXT: return %[[Z]]
func.func @single(%x: f64) -> f32 {
  %y = arith.truncf %x : f64 to f32
  %z = arith.addf %y, %y : f32
  return %z : f32
}
}
