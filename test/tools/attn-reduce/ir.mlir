// Functions, operations and results go while the test finds what it looks for; what is left verifies.
// RUN: attn-reduce %s --test=grep --test-arg=-q --test-arg=math.exp -o %t.mlir | FileCheck %s --check-prefix=SAYS
// SAYS: {{.*}}.mlir: {{[0-9]+}} of {{[0-9]+}} nodes
// RUN: attn-opt %t.mlir | FileCheck %s

// CHECK:      module {
// CHECK-NEXT:   func.func @main(%[[A:.*]]: tensor<4xf32>
// CHECK-NOT:    arith
// CHECK:          math.exp
// CHECK-NOT:    arith
// CHECK:          return
// CHECK-NEXT:   }
// CHECK-NEXT: }
func.func private @helper(%x: f32) -> f32 {
  %0 = arith.negf %x : f32
  return %0 : f32
}
func.func @other(%x: f32) -> f32 {
  %0 = call @helper(%x) : (f32) -> f32
  return %0 : f32
}
func.func @main(%a: tensor<4xf32>, %n: i32) -> (tensor<4xf32>, i32) {
  %f = arith.sitofp %n : i32 to f32
  %s = tensor.splat %f : tensor<4xf32>
  %0 = arith.addf %a, %s : tensor<4xf32>
  %1 = math.exp %0 : tensor<4xf32>
  %2 = arith.mulf %1, %1 : tensor<4xf32>
  %3 = arith.addi %n, %n : i32
  return %2, %3 : tensor<4xf32>, i32
}
