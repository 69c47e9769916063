// RUN: attn-opt %s -attn-recognize-attention -cse -split-input-file | FileCheck %s

#ij = affine_map<(i, j) -> (i, j)>
// A mask cut from a table has the size of the scores where the run gets on: the check moves up, and what follows reads
// the size by one name.
// CHECK-LABEL: func.func @cut_table
// CHECK-SAME: %[[X:[^:]+]]: tensor<?x8xf32>
// CHECK: %[[N:.+]] = tensor.dim %[[X]]
// CHECK: %[[CUT:.+]] = arith.minsi %[[N]]
// CHECK: %[[EQUAL:.+]] = arith.cmpi eq, %[[CUT]], %[[N]]
// CHECK: attn.require %[[EQUAL]], "{{.+}}"(%[[CUT]], %[[N]])
// CHECK: tensor.extract_slice %{{.+}}[0, 0] [%[[N]], 8]
func.func @cut_table(%x: tensor<?x8xf32>, %table: tensor<20x8xf32>) -> tensor<?x8xf32> {
  %c0 = arith.constant 0 : index
  %c20 = arith.constant 20 : index
  %n = tensor.dim %x, %c0 : tensor<?x8xf32>
  %cut = arith.minsi %n, %c20 : index
  %mask = tensor.extract_slice %table[0, 0] [%cut, 8] [1, 1] : tensor<20x8xf32> to tensor<?x8xf32>
  %equal = arith.cmpi eq, %cut, %n : index
  attn.require %equal, "sizes {0} and {1} do not broadcast"(%cut, %n)
  %e = tensor.empty(%cut) : tensor<?x8xf32>
  %sum = linalg.generic {indexing_maps = [#ij, #ij, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%x, %mask : tensor<?x8xf32>, tensor<?x8xf32>) outs(%e : tensor<?x8xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %t = arith.addf %a, %b : f32
    linalg.yield %t : f32
  } -> tensor<?x8xf32>
  return %sum : tensor<?x8xf32>
}

// -----

// Another comparison says nothing, and what stands before a check that cannot move keeps its own size.
// CHECK-LABEL: func.func @at_most
// CHECK: %[[CUT:.+]] = arith.minsi
// CHECK: attn.require
// CHECK: tensor.empty(%[[CUT]])
func.func @at_most(%x: tensor<?x8xf32>, %m: index) -> tensor<?x8xf32> {
  %c0 = arith.constant 0 : index
  %n = tensor.dim %x, %c0 : tensor<?x8xf32>
  %cut = arith.minsi %n, %m : index
  %fits = arith.cmpi sle, %cut, %n : index
  attn.require %fits, "{0} is above {1}"(%cut, %n)
  %e = tensor.empty(%cut) : tensor<?x8xf32>
  return %e : tensor<?x8xf32>
}

// -----

// Checks that move to one place keep their order.
// CHECK-LABEL: func.func @order
// CHECK: %[[P:.+]] = arith.addi
// CHECK: attn.require %{{.+}}, "first {0} {1}"
// CHECK: attn.require %{{.+}}, "second {0} {1}"
// CHECK: arith.muli
func.func @order(%n: index, %m: index, %k: index, %l: index) -> index {
  %p = arith.addi %n, %m : index
  %q = arith.muli %n, %m : index
  %a = arith.cmpi eq, %p, %k : index
  attn.require %a, "first {0} {1}"(%p, %k)
  %b = arith.cmpi eq, %p, %l : index
  attn.require %b, "second {0} {1}"(%p, %l)
  return %q : index
}

// -----

// What a run cannot do is told before what is wrong with it.
// CHECK-LABEL: func.func @in_this_run
// CHECK: attn.require unsupported %{{.+}}, "sizes {0} and {1} broadcast in this run only; n"
// CHECK: attn.require unsupported %{{.+}}, "sizes {0} and {1} broadcast in this run only; m"
// CHECK: attn.require %{{.+}}, "sizes {0} and {1} do not broadcast"
func.func @in_this_run(%x: tensor<?xf32>, %y: tensor<?xf32>) -> (tensor<?xf32>, tensor<?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %n = tensor.dim %x, %c0 : tensor<?xf32>
  %m = tensor.dim %y, %c0 : tensor<?xf32>
  %e = tensor.empty(%n) : tensor<?xf32>
  %f = tensor.empty(%m) : tensor<?xf32>
  %same = arith.cmpi eq, %n, %m : index
  %many = arith.cmpi ne, %n, %c1 : index
  %either = arith.ori %same, %many : i1
  attn.require unsupported %either, "sizes {0} and {1} broadcast in this run only; n"(%n, %m)
  %more = arith.cmpi ne, %m, %c1 : index
  %known = arith.ori %same, %more : i1
  attn.require unsupported %known, "sizes {0} and {1} broadcast in this run only; m"(%n, %m)
  attn.require %same, "sizes {0} and {1} do not broadcast"(%n, %m)
  return %e, %f : tensor<?xf32>, tensor<?xf32>
}

// -----

#ij = affine_map<(i, j) -> (i, j)>
// In the body of a loop, checks of sizes that are known outside stand in front: types may say there what they check.
// CHECK-LABEL: func.func @body
// CHECK: scf.for
// CHECK-NEXT: attn.require %{{.+}}, "first {0}"
// CHECK-NEXT: attn.require %{{.+}}, "second {0}"
// CHECK: tensor.cast
func.func @body(%x: tensor<?x?xf32>) -> tensor<3x4xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %c4 = arith.constant 4 : index
  %n = tensor.dim %x, %c0 : tensor<?x?xf32>
  %m = tensor.dim %x, %c1 : tensor<?x?xf32>
  %a = arith.cmpi eq, %n, %c3 : index
  %b = arith.cmpi eq, %m, %c4 : index
  %init = tensor.empty() : tensor<3x4xf32>
  %y = scf.for %i = %c0 to %n step %c1 iter_args(%old = %init) -> (tensor<3x4xf32>) {
    %cast = tensor.cast %x : tensor<?x?xf32> to tensor<3x4xf32>
    attn.require %a, "first {0}"(%n)
    attn.require %b, "second {0}"(%m)
    %new = linalg.generic {indexing_maps = [#ij, #ij], iterator_types = ["parallel", "parallel"]}
        ins(%cast : tensor<3x4xf32>) outs(%old : tensor<3x4xf32>) {
    ^bb0(%e: f32, %o: f32):
      %s = arith.addf %e, %o : f32
      linalg.yield %s : f32
    } -> tensor<3x4xf32>
    scf.yield %new : tensor<3x4xf32>
  }
  return %y : tensor<3x4xf32>
}
