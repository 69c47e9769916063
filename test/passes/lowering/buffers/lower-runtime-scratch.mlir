// RUN: attn-opt %s --attn-lower-runtime | FileCheck %s

// The entry asks for the most that its kernels need: 256 bytes, and 8192 and a flag's 64 for each thread.
// CHECK-LABEL: func.func @main
// CHECK: %[[TASK:.*]] = llvm.mlir.constant(8256 : i64)
// CHECK: llvm.mul %{{.*}}, %[[TASK]]
// CHECK: %[[CALL:.*]] = llvm.mlir.constant(256 : i64)
// CHECK: %[[BYTES:.*]] = llvm.add %{{.*}}, %[[CALL]]
// CHECK: %[[SCRATCH:.*]] = llvm.call %{{.*}}(%{{.*}}, %[[BYTES]])
// CHECK: llvm.icmp "eq" %[[SCRATCH]]
// CHECK: call @far(%{{.*}}, %[[SCRATCH]], %{{.*}})
// CHECK: call @near(%{{.*}}, %[[SCRATCH]], %{{.*}})
// CHECK: call @none(%{{[a-z0-9]*}}, %{{[a-z0-9]*}})
func.func @main(%x: memref<8xf32>) attributes {attn.entry} {
  %y = attn.output 0 () : memref<8xf32>
  attn.kernel @far ins(%x : memref<8xf32>) outs(%y : memref<8xf32>)
  attn.kernel @near ins() outs(%y : memref<8xf32>)
  attn.kernel @none ins() outs(%y : memref<8xf32>)
  return
}

// CHECK: func.func private @far(!llvm.ptr, !llvm.ptr, !llvm.ptr, !llvm.ptr) -> i32
func.func private @far(memref<8xf32>, memref<8xf32>) attributes {attn.kernel, attn.scratch = array<i64: 128, 4096>}
// CHECK: func.func private @none(!llvm.ptr, !llvm.ptr) -> i32
func.func private @none(memref<8xf32>) attributes {attn.kernel}

// Each of its tasks is told where the loop's part is, how many slots it has, and how long a piece is; all slots are free.
// CHECK-LABEL: func.func @near(
// CHECK-SAME: %{{.*}}: !llvm.ptr, %[[SCRATCH:.*]]: !llvm.ptr, %{{.*}}: !llvm.ptr) -> i32
// CHECK-NOT: memref.alloca
// CHECK: %[[STRUCT:.*]] = llvm.alloca {{.*}} x !llvm.struct<(ptr, ptr, ptr, ptr, i64, i64)>
// CHECK: llvm.intr.lifetime.start %[[STRUCT]]
// CHECK: %[[SLOTS:.*]] = arith.minsi
// CHECK: %[[PIECE:.*]] = arith.ceildivui %{{.*}}, %[[SLOTS]]
// CHECK: %[[PART:.*]] = llvm.getelementptr %[[SCRATCH]][%{{.*}}]
// CHECK: "llvm.intr.memset"(%[[PART]]
// CHECK: llvm.store %[[PART]]
// CHECK: llvm.store %[[SLOTS]]
// CHECK: llvm.store %[[PIECE]]
// CHECK-COUNT-2: llvm.intr.lifetime.end %[[STRUCT]]
func.func @near(%y: memref<8xf32>) attributes {attn.kernel, attn.scratch = array<i64: 256, 8192>} {
  %c8 = arith.constant 8 : index
  %all = memref.alloca() {attn.scratch = 0 : i64} : memref<64xf32>
  attn.parallel_for @near_task %c8 captures(%y, %all : memref<8xf32>, memref<64xf32>) min_iterations 2
  return
}

// CHECK-LABEL: func.func private @near_task_body(
// CHECK-SAME: %{{.*}}: !llvm.ptr, %{{.*}}: i64, %{{.*}}: i64, %{{.*}}: !llvm.ptr {llvm.align = 64 : i64, llvm.noalias}, %{{.*}}: !llvm.ptr {llvm.align = 64 : i64, llvm.noalias})
// CHECK: memref.alloca() : memref<4xf32>
// CHECK-NOT: memref.alloca
// CHECK-LABEL: func.func private @near_task(
// CHECK-SAME: %[[ARG:.*]]: !llvm.ptr, %[[BEGIN:.*]]: i64, %[[END:.*]]: i64)
// CHECK: arith.divui %[[BEGIN]]
// CHECK: ^[[LOOK:.*]](%[[SLOT:.*]]: i64):
// CHECK: %[[WAS:.*]] = llvm.atomicrmw xchg %[[FLAG:.*]], %{{.*}} acquire
// CHECK: cf.cond_br %{{.*}}, ^[[FOUND:.*]], ^[[LOOK]](%{{.*}} : i64)
// CHECK: ^[[FOUND]]:
// CHECK: call @near_task_body(%[[ARG]], %[[BEGIN]], %[[END]], %{{.*}}, %{{.*}})
// CHECK: llvm.atomicrmw xchg %[[FLAG]], %{{.*}} release
func.func private @near_task(%b: index, %e: index, %y: memref<8xf32>, %all: memref<64xf32>) attributes {attn.task} {
  %rows = memref.alloca() {attn.task_scratch = array<i64: 0, 8192>} : memref<1024xf32>
  %more = memref.alloca() {attn.task_scratch = array<i64: 4096, 8192>} : memref<1024xf32>
  %few = memref.alloca() : memref<4xf32>
  %v = memref.load %all[%b] : memref<64xf32>
  memref.store %v, %rows[%b] : memref<1024xf32>
  memref.store %v, %more[%b] : memref<1024xf32>
  memref.store %v, %few[%b] : memref<4xf32>
  memref.store %v, %y[%b] : memref<8xf32>
  return
}
