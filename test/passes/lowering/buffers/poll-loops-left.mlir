// RUN: attn-opt %s -attn-poll-loops -canonicalize -split-input-file | FileCheck %s

// A kernel has something to put back: a marked loop is left, and what stands behind it goes on. Whether the run is to
// end is asked before each piece but the first.
// CHECK: func.func @marked
// CHECK: scf.parallel
// CHECK: call @set
// CHECK: %[[SUM:.+]] = scf.for %[[O:.+]] = %c0 to %[[N:.+]] step %{{.+}} iter_args(%[[T:.+]] = %{{.+}}) -> (f32)
// CHECK: %[[NEXT:.+]] = arith.addi %[[O]], %{{.+}}
// CHECK: %[[END:.+]] = arith.minsi %[[NEXT]], %[[N]]
// CHECK: %[[FIRST:.+]] = arith.cmpi eq, %[[O]], %c0
// CHECK: %[[TO:.+]] = scf.if %[[FIRST]] -> (index) {
// CHECK-NEXT: scf.yield %[[END]]
// CHECK: %[[ENDS:.+]] = attn.is_ending
// CHECK-NEXT: %[[LEAVES:.+]] = arith.select %[[ENDS]], %[[O]], %[[END]]
// CHECK-NEXT: scf.yield %[[LEAVES]]
// CHECK: %[[PART:.+]] = scf.for %[[I:.+]] = %[[O]] to %[[TO]] step %c1 iter_args(%{{.+}} = %[[T]]) -> (f32)
// CHECK-NOT: attn.polls
// CHECK: scf.yield %[[PART]]
// CHECK: call @put_back
// CHECK: memref.store %[[SUM]]
func.func private @set()
func.func private @put_back()
func.func @marked(%x: memref<?xf32>, %y: memref<?xf32>, %rows: index) attributes {attn.kernel} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %n = memref.dim %x, %c0 : memref<?xf32>
  scf.parallel (%r) = (%c0) to (%rows) step (%c1) {
    func.call @set() : () -> ()
    %sum = scf.for %i = %c0 to %n step %c1 iter_args(%t = %zero) -> (f32) {
      %v = memref.load %x[%i] : memref<?xf32>
      %s = arith.addf %t, %v : f32
      scf.yield %s : f32
    } {attn.polls}
    func.call @put_back() : () -> ()
    memref.store %sum, %y[%r] : memref<?xf32>
    scf.reduce
  }
  return
}

// -----

// Near misses: loops beside a marked one, and a marked one that is short.
// CHECK: func.func @others
// CHECK-COUNT-3: scf.for
// CHECK-NOT: scf.for
// CHECK-NOT: attn.is_ending
func.func @others(%x: memref<?xf32>) attributes {attn.kernel} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  %zero = arith.constant 0.0 : f32
  %n = memref.dim %x, %c0 : memref<?xf32>
  scf.for %i = %c0 to %n step %c1 {
    scf.for %j = %c0 to %n step %c1 {
      memref.store %zero, %x[%j] : memref<?xf32>
    }
  }
  scf.for %i = %c0 to %c64 step %c1 {
    memref.store %zero, %x[%i] : memref<?xf32>
  } {attn.polls}
  return
}
