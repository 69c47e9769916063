// RUN: attn-opt %s --attn-lower-runtime --split-input-file --verify-diagnostics | FileCheck %s

// CHECK: module attributes {attn.messages = ["node 'a' (Add): {0} is bad"]}
// CHECK-LABEL: func.func @main(%arg0: !llvm.ptr, %arg1: !llvm.ptr) -> i32
// What a loop's tasks are told lies on the stack as long as the loop takes.
// CHECK: %[[TOLD:.*]] = llvm.alloca {{.*}} x !llvm.struct
// CHECK: cf.cond_br %{{.*}}, ^[[GO:.*]], ^[[BAD:.*]]
// CHECK: ^[[GO]]:
// CHECK: llvm.icmp "eq"
// CHECK: llvm.intr.lifetime.start %[[TOLD]]
// CHECK: call @main_task
// CHECK-NEXT: llvm.intr.lifetime.end %[[TOLD]]
// CHECK-NEXT: cf.br
// CHECK: llvm.call %{{.*}}(%arg0, %{{.*}}, %[[TOLD]], %{{.*}})
// CHECK-NEXT: llvm.intr.lifetime.end %[[TOLD]]
// CHECK: return %{{.*}} : i32
// CHECK-LABEL: func.func private @main_task(%arg0: !llvm.ptr, %arg1: i64, %arg2: i64)
attn.global @w : tensor<4xf32> = #attn.initializer<"w"> {attn.offset = 64 : i64}
func.func @main(%x: memref<?xf32>) attributes {attn.entry} {
  %c0 = arith.constant 0 : index
  %n = memref.dim %x, %c0 : memref<?xf32>
  %ok = arith.cmpi ne, %n, %c0 : index
  attn.require %ok, "node 'a' (Add): {0} is bad" (%n)
  %y = attn.output 0 (%n) : memref<?xf32>
  %w = attn.weight @w : memref<4xf32>
  attn.parallel_for @main_task %n captures(%y, %w : memref<?xf32>, memref<4xf32>) min_iterations 2
  return
}
func.func private @main_task(%b: index, %e: index, %y: memref<?xf32>, %w: memref<4xf32>) attributes {attn.task} {
  %v = memref.load %w[%b] : memref<4xf32>
  memref.store %v, %y[%b] : memref<?xf32>
  return
}

// -----

// Not between branches: blocks of two may be merged, and then no one place ends.
// CHECK-LABEL: func.func @branches
// CHECK-NOT: lifetime
func.func @branches(%x: memref<?xf32>, %c: memref<i1>) attributes {attn.entry} {
  %c0 = arith.constant 0 : index
  %n = memref.dim %x, %c0 : memref<?xf32>
  %y = attn.output 0 (%n) : memref<?xf32>
  %go = memref.load %c[] : memref<i1>
  cf.cond_br %go, ^then, ^else
^then:
  attn.parallel_for @first_task %n captures(%y : memref<?xf32>) min_iterations 2
  cf.br ^end
^else:
  attn.parallel_for @first_task %n captures(%y : memref<?xf32>) min_iterations 2
  cf.br ^end
^end:
  return
}
func.func private @first_task(%b: index, %e: index, %y: memref<?xf32>) attributes {attn.task} {
  %v = arith.constant 1.0 : f32
  memref.store %v, %y[%b] : memref<?xf32>
  return
}

// -----

// The bit that says whose fault it is: 2^30 + 0.
// CHECK-LABEL: func.func @unsupported
// CHECK: llvm.mlir.constant(1073741824 : i32)
func.func @unsupported(%x: memref<?xf32>) attributes {attn.entry} {
  %c0 = arith.constant 0 : index
  %n = memref.dim %x, %c0 : memref<?xf32>
  %ok = arith.cmpi ne, %n, %c0 : index
  attn.require unsupported %ok, "node 'a' (Add): {0} is beyond us" (%n)
  return
}

// -----

// A run that another form of the entry does, which says how it went.
// CHECK: module attributes {attn.messages = []}
// CHECK-LABEL: func.func @served(%arg0: !llvm.ptr, %arg1: !llvm.ptr) -> i32
// CHECK: %[[DONE:.*]] = call @form(%arg0, %arg1) : (!llvm.ptr, !llvm.ptr) -> i32
// CHECK-NEXT: return %[[DONE]]
func.func @served(%x: memref<?xf32>) attributes {attn.entry} {
  %c0 = arith.constant 0 : index
  %n = memref.dim %x, %c0 : memref<?xf32>
  %ok = arith.cmpi ne, %n, %c0 : index
  attn.require unsupported %ok, "node 'a' (Add): {0} is beyond us" (%n) {attn.otherwise = @form}
  return
}
func.func @form(%x: memref<?xf32>) attributes {attn.entry, attn.broadcast_form = @served} {
  return
}

// -----

// An index out of range: whoever finds no message yet has the index and the size.
// CHECK: module attributes {attn.messages = ["node 'g' (Gather): an index is out of range: {0} in a dimension of size {1}"]}
// CHECK-LABEL: func.func private @checked_task
// CHECK: %[[I:.*]] = {{.*}}load
// CHECK: arith.cmpi slt, %[[I]]
// CHECK: arith.cmpi ult, %{{.*}}, %[[N:.*]] : index
// CHECK: %[[SEEN:.*]] = llvm.cmpxchg %{{.*}}, %{{.*}}, %{{.*}} monotonic monotonic : !llvm.ptr, i32
// CHECK: %[[FIRST:.*]] = llvm.extractvalue %[[SEEN]][1]
// CHECK: cf.cond_br %[[FIRST]], ^[[SET:.*]], ^[[GO:.*]]
// CHECK: ^[[SET]]:
// CHECK-COUNT-2: llvm.store %{{.*}} : i64, !llvm.ptr
// CHECK: cf.br ^[[GO]]
func.func private @checked_task(%b: index, %e: index, %at: memref<?xindex>, %y: memref<?xf32>) attributes {attn.task} {
  %n = arith.constant 5 : index
  %i = memref.load %at[%b] : memref<?xindex>
  %k = attn.check_index %i, %n, "node 'g' (Gather)" : index
  %v = memref.load %y[%k] : memref<?xf32>
  memref.store %v, %y[%b] : memref<?xf32>
  return
}

// -----

// Without a negative one that counts from the end.
// CHECK-LABEL: func.func private @nonnegative_task
// CHECK-NOT: arith.cmpi slt
// CHECK: arith.cmpi ult
// CHECK: llvm.cmpxchg
func.func private @nonnegative_task(%b: index, %e: index, %at: memref<?xindex>, %y: memref<?xf32>) attributes {attn.task} {
  %n = arith.constant 5 : index
  %i = memref.load %at[%b] : memref<?xindex>
  %k = attn.check_index nonnegative %i, %n, "node 'g' (Gather)" : index
  %v = memref.load %y[%k] : memref<?xf32>
  memref.store %v, %y[%b] : memref<?xf32>
  return
}

// -----

attn.global @w : tensor<4xf32> = #attn.initializer<"w">
func.func @unplaced() attributes {attn.entry} {
  // expected-error @below {{expects 'w' to have the attribute attn.offset}}
  %w = attn.weight @w : memref<4xf32>
  return
}

// -----

func.func private @task(%b: index, %e: index) attributes {attn.task} {
  %true = arith.constant true
  // expected-error @below {{cannot stand in a parallel loop}}
  attn.require %true, "no"
  return
}

// -----

// CHECK-LABEL: func.func private @chooses
// CHECK: %[[AT:.*]] = llvm.getelementptr %arg0
// CHECK: %[[FLAG:.*]] = llvm.load %[[AT]] invariant : !llvm.ptr -> i32
// CHECK: arith.cmpi ne, %[[FLAG]]
func.func private @chooses(%n: memref<?xi1>) attributes {attn.kernel} {
  %c0 = arith.constant 0 : index
  %yes = attn.has_tiles : i1
  memref.store %yes, %n[%c0] : memref<?xi1>
  return
}

// -----

// A kernel whose code is another object's: the declaration gets the run in front, like the kernel there, and of each
// buffer its address and its size.
// CHECK-LABEL: func.func @calls
// CHECK: %{{.*}} = call @elsewhere(%arg0, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}) : (!llvm.ptr, !llvm.ptr, i64, !llvm.ptr, i64) -> i32
// CHECK: func.func private @elsewhere(!llvm.ptr, !llvm.ptr, i64, !llvm.ptr, i64) -> i32 attributes {attn.kernel}
// CHECK: func.func private @stranger(memref<?xf32>)
func.func @calls(%x: memref<?xf32>, %y: memref<?xf32>) attributes {attn.entry} {
  attn.kernel @elsewhere ins(%x : memref<?xf32>) outs(%y : memref<?xf32>)
  return
}
func.func private @elsewhere(memref<?xf32>, memref<?xf32>) attributes {attn.kernel}
func.func private @stranger(memref<?xf32>)

// -----

// What the type of a buffer leaves open is handed over: its sizes, its offset, its strides. Those of a dense one are
// made of its sizes.
// CHECK-LABEL: func.func private @strided
// CHECK-SAME: (%[[CONTEXT:.*]]: !llvm.ptr, %[[X:.*]]: !llvm.ptr, %[[ROWS:.*]]: i64, %[[OFFSET:.*]]: i64, %[[STRIDE:.*]]: i64, %[[Y:.*]]: !llvm.ptr, %[[N:.*]]: i64, %[[M:.*]]: i64) -> i32
// CHECK: llvm.insertvalue %[[X]], %{{.*}}[1]
// CHECK: %[[FOUR:.*]] = llvm.mlir.constant(4 : i64)
// CHECK: llvm.insertvalue %[[OFFSET]], %{{.*}}[2]
// CHECK: llvm.insertvalue %[[ROWS]], %{{.*}}[3, 0]
// CHECK: llvm.insertvalue %[[STRIDE]], %{{.*}}[4, 0]
// CHECK: llvm.insertvalue %[[FOUR]], %{{.*}}[3, 1]
// CHECK: llvm.insertvalue %[[M]], %{{.*}}[3, 1]
// CHECK: llvm.insertvalue %{{.*}}, %{{.*}}[4, 1]
// CHECK: %[[ROW:.*]] = llvm.mul %{{.*}}, %[[M]]
// CHECK: llvm.insertvalue %[[ROW]], %{{.*}}[4, 0]
// CHECK-LABEL: func.func @hands_over
// CHECK: %[[D:.*]] = builtin.unrealized_conversion_cast %{{.*}} : memref<?x4xf32, strided<[?, 1], offset: ?>>
// CHECK: %[[AT:.*]] = llvm.extractvalue %[[D]][1]
// CHECK: %[[SIZE:.*]] = llvm.extractvalue %[[D]][3, 0]
// CHECK: %[[BEGIN:.*]] = llvm.extractvalue %[[D]][2]
// CHECK: %[[STEP:.*]] = llvm.extractvalue %[[D]][4, 0]
// CHECK: call @strided(%{{.*}}, %[[AT]], %[[SIZE]], %[[BEGIN]], %[[STEP]], %{{.*}}, %{{.*}}, %{{.*}})
func.func private @strided(%x: memref<?x4xf32, strided<[?, 1], offset: ?>>, %y: memref<?x?xf32>) attributes {attn.kernel} {
  %c0 = arith.constant 0 : index
  %v = memref.load %x[%c0, %c0] : memref<?x4xf32, strided<[?, 1], offset: ?>>
  memref.store %v, %y[%c0, %c0] : memref<?x?xf32>
  return
}
func.func @hands_over(%x: memref<?x?xf32>, %n: memref<index>, %y: memref<?x?xf32>) attributes {attn.entry} {
  %at = memref.load %n[] : memref<index>
  %part = memref.subview %x[%at, %at] [%at, 4] [1, 1] : memref<?x?xf32> to memref<?x4xf32, strided<[?, 1], offset: ?>>
  attn.kernel @strided ins(%part : memref<?x4xf32, strided<[?, 1], offset: ?>>) outs(%y : memref<?x?xf32>)
  return
}

// -----

// A value that LLVM has no form for.
func.func @formless(%x: memref<4xf32>) attributes {attn.entry} {
  %none = builtin.unrealized_conversion_cast to none
  // expected-error @below {{cannot hand over a value of type 'none'}}
  attn.kernel @takes_none ins(%none : none) outs(%x : memref<4xf32>)
  return
}
func.func private @takes_none(none, memref<4xf32>) attributes {attn.kernel}
