// RUN: attn-opt %s --attn-expand-doubles | FileCheck %s

// x = n log 2 + r, a polynomial in r, and 2^n in two factors, whose product may be subnormal.
// CHECK-LABEL: func.func @exponential
// CHECK-NOT: math.exp
// CHECK: %[[N:.*]] = math.fma %{{.*}}, %{{.*}}, %{{.*}} : f64
// CHECK: arith.bitcast %[[N]] : f64 to i64
// CHECK: arith.shli
// CHECK: arith.shli
// CHECK-NOT: math.exp
// CHECK: return
func.func @exponential(%x: f64) -> f64 {
  %y = math.exp %x : f64
  return %y : f64
}

// A large angle goes another way, with 2 / pi in as many bits as it takes.
// CHECK-LABEL: func.func @angle
// CHECK: scf.if
// CHECK: else
// CHECK: arith.mului_extended
// CHECK-NOT: math.sin
// CHECK: return
func.func @angle(%x: f64) -> f64 {
  %y = math.sin %x : f64
  return %y : f64
}

// CHECK-LABEL: func.func @power
// CHECK-NOT: math.powf
// CHECK: math.roundeven
// CHECK: return
func.func @power(%x: f64, %y: f64) -> f64 {
  %z = math.powf %x, %y : f64
  return %z : f64
}

// Of a narrower angle only f64 keeps what is behind the point.
// CHECK-LABEL: func.func @narrow_angles
// CHECK: vector.extract
// CHECK: arith.extf %{{.*}} : f32 to f64
// CHECK: scf.if
// CHECK: arith.truncf %{{.*}} : f64 to f32
// CHECK: vector.insert
// CHECK-NOT: math.cos
// CHECK: return
func.func @narrow_angles(%x: vector<2xf32>) -> vector<2xf32> {
  %y = math.cos %x : vector<2xf32>
  return %y : vector<2xf32>
}

// A power of f32 as exp and log would be off by many units, and no number for negative bases.
// CHECK-LABEL: func.func @narrow_power
// CHECK-COUNT-2: arith.extf %{{.*}} : f32 to f64
// CHECK: math.roundeven %{{.*}} : f64
// CHECK: arith.truncf %{{.*}} : f64 to f32
func.func @narrow_power(%x: f32, %y: f32) -> f32 {
  %z = math.powf %x, %y : f32
  return %z : f32
}

// Other functions of f32 have code of their own, instructions stay, and so does what nothing is known of.
// CHECK-LABEL: func.func @stays
// CHECK: math.exp %{{.*}} : f32
// CHECK: math.sqrt %{{.*}} : f64
// CHECK: math.cbrt %{{.*}} : f64
func.func @stays(%x: f32, %y: f64) -> (f32, f64, f64) {
  %a = math.exp %x : f32
  %b = math.sqrt %y : f64
  %c = math.cbrt %y : f64
  return %a, %b, %c : f32, f64, f64
}
