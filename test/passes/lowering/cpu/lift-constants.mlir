// RUN: attn-opt %s --attn-lift-constants --split-input-file | FileCheck %s

#id = affine_map<(i) -> (i)>

// What differs becomes an operand, once for both places of one constant; what all share stays.
// CHECK-LABEL: func.func @scales
// CHECK: %[[A:.*]] = arith.constant dense<1.000000e-01> : tensor<f32>
// CHECK: linalg.generic {{.*}} ins(%arg0, %[[A]] : tensor<?xf32>, tensor<f32>) outs(%arg1
// CHECK-NEXT: ^bb0(%[[X:.*]]: f32, %[[S:.*]]: f32, %{{.*}}: f32):
// CHECK-NEXT: %[[Q:.*]] = arith.divf %[[X]], %[[S]]
// CHECK-NEXT: %[[Z:.*]] = arith.addf %[[Q]], %[[SHARED:.*]] : f32
// CHECK-NEXT: arith.mulf %[[Z]], %[[S]]
// CHECK: %[[B:.*]] = arith.constant dense<2.000000e-01> : tensor<f32>
// CHECK: linalg.generic {{.*}} ins(%arg0, %[[B]] : tensor<?xf32>, tensor<f32>)
func.func @scales(%x: tensor<?xf32>, %e: tensor<?xf32>) -> (tensor<?xf32>, tensor<?xf32>) {
  %a = arith.constant 0.1 : f32
  %b = arith.constant 0.2 : f32
  %c = arith.constant 3.0 : f32
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : tensor<?xf32>) outs(%e : tensor<?xf32>) {
    ^bb0(%in: f32, %out: f32):
      %q = arith.divf %in, %a : f32
      %z = arith.addf %q, %c : f32
      %m = arith.mulf %z, %a : f32
      linalg.yield %m : f32
  } -> tensor<?xf32>
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : tensor<?xf32>) outs(%e : tensor<?xf32>) {
    ^bb0(%in: f32, %out: f32):
      %q = arith.divf %in, %b : f32
      %z = arith.addf %q, %c : f32
      %m = arith.mulf %z, %b : f32
      linalg.yield %m : f32
  } -> tensor<?xf32>
  return %0, %1 : tensor<?xf32>, tensor<?xf32>
}

// -----

#id = affine_map<(i) -> (i)>

// Near misses: another operation, another type, and a constant that both have.
// CHECK-LABEL: func.func @others
// CHECK-NOT: tensor<f32>
// CHECK: return
func.func @others(%x: tensor<?xf32>, %y: tensor<4xf32>, %e: tensor<?xf32>, %f: tensor<4xf32>)
    -> (tensor<?xf32>, tensor<?xf32>, tensor<4xf32>, tensor<?xf32>) {
  %a = arith.constant 0.1 : f32
  %b = arith.constant 0.2 : f32
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : tensor<?xf32>) outs(%e : tensor<?xf32>) {
    ^bb0(%in: f32, %out: f32):
      %m = arith.mulf %in, %a : f32
      linalg.yield %m : f32
  } -> tensor<?xf32>
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : tensor<?xf32>) outs(%e : tensor<?xf32>) {
    ^bb0(%in: f32, %out: f32):
      %m = arith.addf %in, %b : f32
      linalg.yield %m : f32
  } -> tensor<?xf32>
  %2 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%y : tensor<4xf32>) outs(%f : tensor<4xf32>) {
    ^bb0(%in: f32, %out: f32):
      %m = arith.mulf %in, %b : f32
      linalg.yield %m : f32
  } -> tensor<4xf32>
  %3 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%0 : tensor<?xf32>) outs(%e : tensor<?xf32>) {
    ^bb0(%in: f32, %out: f32):
      %m = arith.mulf %in, %a : f32
      linalg.yield %m : f32
  } -> tensor<?xf32>
  return %0, %1, %2, %3 : tensor<?xf32>, tensor<?xf32>, tensor<4xf32>, tensor<?xf32>
}

// -----

#q = affine_map<(b, h, i, j, d, e) -> (b, h, i, d)>
#k = affine_map<(b, h, i, j, d, e) -> (b, h, j, d)>
#v = affine_map<(b, h, i, j, d, e) -> (b, h, j, e)>
#o = affine_map<(b, h, i, j, d, e) -> (b, h, i, e)>

// An attention's constants become captures, and none stays behind unused, of which a kernel's name would tell.
// CHECK-LABEL: func.func @attentions
// CHECK: %[[A:.*]] = arith.constant dense<1.000000e-01> : tensor<f32>
// CHECK: attn.attention {{.*}} captures(%[[A]] : tensor<f32>)
// CHECK-NEXT: ^bb0(%[[S:.*]]: f32, %[[C:.*]]: f32):
// CHECK-NEXT: math.tanh
// CHECK-NEXT: arith.mulf %{{.*}}, %[[C]]
// CHECK: %[[B:.*]] = arith.constant dense<2.000000e-01> : tensor<f32>
// CHECK: attn.attention {{.*}} captures(%[[B]] : tensor<f32>)
func.func @attentions(%q: tensor<2x4x5x8xf32>, %k: tensor<2x4x6x8xf32>) -> (tensor<2x4x5x8xf32>, tensor<2x4x5x8xf32>) {
  %0 = attn.attention masked_rows nan maps [#q, #k, #v, #o]
      ins(%q, %k, %k : tensor<2x4x5x8xf32>, tensor<2x4x6x8xf32>, tensor<2x4x6x8xf32>) -> tensor<2x4x5x8xf32> score {
    ^bb0(%s: f32):
      %c = arith.constant 0.1 : f32
      %t = math.tanh %s : f32
      %m = arith.mulf %t, %c : f32
      attn.yield %m : f32
  }
  %1 = attn.attention masked_rows nan maps [#q, #k, #v, #o]
      ins(%q, %k, %k : tensor<2x4x5x8xf32>, tensor<2x4x6x8xf32>, tensor<2x4x6x8xf32>) -> tensor<2x4x5x8xf32> score {
    ^bb0(%s: f32):
      %c = arith.constant 0.2 : f32
      %t = math.tanh %s : f32
      %m = arith.mulf %t, %c : f32
      attn.yield %m : f32
  }
  return %0, %1 : tensor<2x4x5x8xf32>, tensor<2x4x5x8xf32>
}

// An activation takes no captures: what differs there stays, and what differs in the scores is lifted where the
// activations agree.
#a = affine_map<(b, h, i, j, d, e) -> (h, d)>
// CHECK-LABEL: func.func @activations
// CHECK: attn.attention kind additive
// CHECK-NOT: captures
// CHECK: arith.constant 1.000000e-01 : f32
// CHECK: attn.attention kind additive
// CHECK-NOT: captures
// CHECK: arith.constant 2.000000e-01 : f32
// CHECK: %[[C:.*]] = arith.constant dense<3.000000e+00> : tensor<f32>
// CHECK: attn.attention kind additive {{.*}} captures(%[[C]] : tensor<f32>)
// CHECK: ^bb0(%[[S:.*]]: f32, %[[THREE:.*]]: f32):
// CHECK: arith.addf %{{.*}}, %[[THREE]]
// CHECK: activation {
// CHECK: arith.constant 3.000000e-01 : f32
// CHECK: %[[D:.*]] = arith.constant dense<4.000000e+00> : tensor<f32>
// CHECK: attn.attention kind additive {{.*}} captures(%[[D]] : tensor<f32>)
// CHECK: activation {
// CHECK: arith.constant 3.000000e-01 : f32
func.func @activations(%q: tensor<2x4x5x8xf32>, %k: tensor<2x4x6x8xf32>, %l: tensor<4x8xf32>)
    -> (tensor<2x4x5x8xf32>, tensor<2x4x5x8xf32>, tensor<2x4x5x8xf32>, tensor<2x4x5x8xf32>) {
  %0 = attn.attention kind additive masked_rows nan maps [#q, #k, #v, #a, #o]
      ins(%q, %k, %k, %l : tensor<2x4x5x8xf32>, tensor<2x4x6x8xf32>, tensor<2x4x6x8xf32>, tensor<4x8xf32>)
      -> tensor<2x4x5x8xf32> score {
    ^bb0(%s: f32):
      %t = math.tanh %s : f32
      attn.yield %t : f32
  } activation {
    ^bb0(%x: f32):
      %c = arith.constant 0.1 : f32
      %y = arith.mulf %x, %c : f32
      %m = arith.maximumf %x, %y : f32
      attn.yield %m : f32
  }
  %1 = attn.attention kind additive masked_rows nan maps [#q, #k, #v, #a, #o]
      ins(%q, %k, %k, %l : tensor<2x4x5x8xf32>, tensor<2x4x6x8xf32>, tensor<2x4x6x8xf32>, tensor<4x8xf32>)
      -> tensor<2x4x5x8xf32> score {
    ^bb0(%s: f32):
      %t = math.tanh %s : f32
      attn.yield %t : f32
  } activation {
    ^bb0(%x: f32):
      %c = arith.constant 0.2 : f32
      %y = arith.mulf %x, %c : f32
      %m = arith.maximumf %x, %y : f32
      attn.yield %m : f32
  }
  %2 = attn.attention kind additive masked_rows nan maps [#q, #k, #v, #a, #o]
      ins(%q, %k, %k, %l : tensor<2x4x5x8xf32>, tensor<2x4x6x8xf32>, tensor<2x4x6x8xf32>, tensor<4x8xf32>)
      -> tensor<2x4x5x8xf32> score {
    ^bb0(%s: f32):
      %c = arith.constant 3.0 : f32
      %t = arith.addf %s, %c : f32
      attn.yield %t : f32
  } activation {
    ^bb0(%x: f32):
      %c = arith.constant 0.3 : f32
      %y = arith.mulf %x, %c : f32
      %m = arith.maximumf %x, %y : f32
      attn.yield %m : f32
  }
  %3 = attn.attention kind additive masked_rows nan maps [#q, #k, #v, #a, #o]
      ins(%q, %k, %k, %l : tensor<2x4x5x8xf32>, tensor<2x4x6x8xf32>, tensor<2x4x6x8xf32>, tensor<4x8xf32>)
      -> tensor<2x4x5x8xf32> score {
    ^bb0(%s: f32):
      %c = arith.constant 4.0 : f32
      %t = arith.addf %s, %c : f32
      attn.yield %t : f32
  } activation {
    ^bb0(%x: f32):
      %c = arith.constant 0.3 : f32
      %y = arith.mulf %x, %c : f32
      %m = arith.maximumf %x, %y : f32
      attn.yield %m : f32
  }
  return %0, %1, %2, %3 : tensor<2x4x5x8xf32>, tensor<2x4x5x8xf32>, tensor<2x4x5x8xf32>, tensor<2x4x5x8xf32>
}

// Products times a constant: the kernels have it in the queries.
// CHECK-LABEL: func.func @plain
// CHECK-NOT: captures
// CHECK: return
func.func @plain(%q: tensor<2x4x5x8xf32>, %k: tensor<2x4x6x8xf32>) -> (tensor<2x4x5x8xf32>, tensor<2x4x5x8xf32>) {
  %0 = attn.attention masked_rows nan maps [#q, #k, #v, #o]
      ins(%q, %k, %k : tensor<2x4x5x8xf32>, tensor<2x4x6x8xf32>, tensor<2x4x6x8xf32>) -> tensor<2x4x5x8xf32> score {
    ^bb0(%s: f32):
      %c = arith.constant 0.1 : f32
      %m = arith.mulf %s, %c : f32
      attn.yield %m : f32
  }
  %1 = attn.attention masked_rows nan maps [#q, #k, #v, #o]
      ins(%q, %k, %k : tensor<2x4x5x8xf32>, tensor<2x4x6x8xf32>, tensor<2x4x6x8xf32>) -> tensor<2x4x5x8xf32> score {
    ^bb0(%s: f32):
      %c = arith.constant 0.2 : f32
      %m = arith.mulf %s, %c : f32
      attn.yield %m : f32
  }
  return %0, %1 : tensor<2x4x5x8xf32>, tensor<2x4x5x8xf32>
}

// -----

#id = affine_map<(i) -> (i)>

// Scales in f64 and zero points; an integer of another type stays, and tells the two apart.
// CHECK-LABEL: func.func @points
// CHECK-DAG: %[[SCALE:.*]] = arith.constant dense<2.500000e-01> : tensor<f64>
// CHECK-DAG: %[[POINT:.*]] = arith.constant dense<-7> : tensor<i32>
// CHECK: linalg.generic {{.*}} ins(%arg0, %[[POINT]], %[[SCALE]] : tensor<?xi32>, tensor<i32>, tensor<f64>)
// CHECK: linalg.generic {{.*}} ins(%arg0, %{{.*}}, %{{.*}} : tensor<?xi32>, tensor<i32>, tensor<f64>)
// CHECK: linalg.generic {{.*}} ins(%arg0 : tensor<?xi32>)
// CHECK: return
func.func @points(%x: tensor<?xi32>, %e: tensor<?xf64>) -> (tensor<?xf64>, tensor<?xf64>, tensor<?xf64>) {
  %a = arith.constant 0.25 : f64
  %b = arith.constant 0.5 : f64
  %p = arith.constant -7 : i32
  %q = arith.constant 9 : i32
  %r = arith.constant 9 : i64
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : tensor<?xi32>) outs(%e : tensor<?xf64>) {
    ^bb0(%in: i32, %out: f64):
      %n = arith.subi %in, %p : i32
      %f = arith.sitofp %n : i32 to f64
      %m = arith.mulf %f, %a : f64
      linalg.yield %m : f64
  } -> tensor<?xf64>
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : tensor<?xi32>) outs(%e : tensor<?xf64>) {
    ^bb0(%in: i32, %out: f64):
      %n = arith.subi %in, %q : i32
      %f = arith.sitofp %n : i32 to f64
      %m = arith.mulf %f, %b : f64
      linalg.yield %m : f64
  } -> tensor<?xf64>
  %2 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : tensor<?xi32>) outs(%e : tensor<?xf64>) {
    ^bb0(%in: i32, %out: f64):
      %w = arith.extsi %in : i32 to i64
      %n = arith.subi %w, %r : i64
      %f = arith.sitofp %n : i64 to f64
      %m = arith.mulf %f, %b : f64
      linalg.yield %m : f64
  } -> tensor<?xf64>
  return %0, %1, %2 : tensor<?xf64>, tensor<?xf64>, tensor<?xf64>
}
