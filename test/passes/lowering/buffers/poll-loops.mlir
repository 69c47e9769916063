// RUN: attn-opt %s -attn-poll-loops -canonicalize -split-input-file | FileCheck %s

// A loop of 6 operations looks every 43690 iterations; what it carries goes through its pieces.
// CHECK-LABEL: func.func @serial
// CHECK: %[[SUM:.+]] = scf.for %[[O:.+]] = %c0 to %[[N:.+]] step %c{{[0-9]+}} iter_args(%[[T:.+]] = %{{.+}}) -> (f32)
// CHECK: %[[NEXT:.+]] = arith.addi %[[O]], %c
// CHECK: %[[END:.+]] = arith.minsi %[[NEXT]], %[[N]]
// CHECK: %[[PART:.+]] = scf.for %[[I:.+]] = %[[O]] to %[[END]] step %c1 iter_args(%{{.+}} = %[[T]]) -> (f32)
// CHECK: %[[MORE:.+]] = arith.cmpi slt, %[[END]], %[[N]]
// CHECK: scf.if %[[MORE]] {
// CHECK-NEXT: attn.poll
// CHECK: scf.yield %[[PART]]
// CHECK: memref.store %[[SUM]]
func.func @serial(%x: memref<?xf32>, %y: memref<f32>) attributes {attn.entry} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %n = memref.dim %x, %c0 : memref<?xf32>
  %sum = scf.for %i = %c0 to %n step %c1 iter_args(%t = %zero) -> (f32) {
    %v = memref.load %x[%i] : memref<?xf32>
    %s = arith.addf %t, %v : f32
    scf.yield %s : f32
  }
  memref.store %sum, %y[] : memref<f32>
  return
}

// -----

// A constant step stands further in than the place from which on all sizes are known.
// CHECK-LABEL: func.func @inner_step
// CHECK: %[[PIECE:.+]] = arith.divsi
// CHECK-NEXT: %[[STEP:.+]] = arith.muli %[[PIECE]], %c3
// CHECK: scf.if
// CHECK: scf.for %{{.+}} = %c0 to %{{.+}} step %[[STEP]] {
// CHECK: attn.poll
func.func @inner_step(%x: memref<?xf32>, %flag: i1) attributes {attn.entry} {
  %c0 = arith.constant 0 : index
  %n = memref.dim %x, %c0 : memref<?xf32>
  scf.if %flag {
    %c3 = arith.constant 3 : index
    %zero = arith.constant 0.0 : f32
    scf.for %i = %c0 to %n step %c3 {
      scf.for %j = %c0 to %n step %c3 {
        memref.store %zero, %x[%j] : memref<?xf32>
      }
    }
  }
  return
}

// -----

// Loops that end soon, and kernels that do not ask for it, stay as they are.
// CHECK-LABEL: func.func @short
// CHECK-NOT: attn.poll
// CHECK-LABEL: func.func @tile
// CHECK-NOT: attn.poll
func.func @short(%x: memref<64x32xf32>) attributes {attn.entry} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  %c32 = arith.constant 32 : index
  %zero = arith.constant 0.0 : f32
  scf.for %i = %c0 to %c64 step %c1 {
    scf.for %j = %c0 to %c32 step %c1 {
      memref.store %zero, %x[%i, %j] : memref<64x32xf32>
    }
  }
  return
}
func.func @tile(%x: memref<?xf32>) attributes {attn.kernel} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %n = memref.dim %x, %c0 : memref<?xf32>
  scf.for %i = %c0 to %n step %c1 {
    memref.store %zero, %x[%i] : memref<?xf32>
  }
  return
}

// -----

// How many rows make a piece depends on their length: it is divided by once, in front of both loops, and a row that is
// itself too long looks in the middle.
// CHECK-LABEL: func.func @rows
// CHECK: arith.divsi
// CHECK-NOT: arith.divsi
// CHECK: scf.for
// CHECK: scf.for
// CHECK-NOT: arith.div
// CHECK: scf.for
// CHECK: scf.for
// CHECK: attn.poll
// CHECK: attn.poll
func.func @rows(%x: memref<?x?xf32>) attributes {attn.kernel, attn.polls} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %n = memref.dim %x, %c0 : memref<?x?xf32>
  %m = memref.dim %x, %c1 : memref<?x?xf32>
  scf.for %i = %c0 to %n step %c1 {
    scf.for %j = %c0 to %m step %c1 {
      memref.store %zero, %x[%i, %j] : memref<?x?xf32>
    }
  }
  return
}

// -----

// A row of a parallel region looks, too: the region's task.
// CHECK-LABEL: func.func @region
// CHECK: scf.parallel
// CHECK: scf.for
// CHECK: scf.for
// CHECK: attn.poll
func.func @region(%x: memref<?x?xf32>) attributes {attn.entry} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %n = memref.dim %x, %c0 : memref<?x?xf32>
  %m = memref.dim %x, %c1 : memref<?x?xf32>
  scf.parallel (%i) = (%c0) to (%n) step (%c1) {
    scf.for %j = %c0 to %m step %c1 {
      memref.store %zero, %x[%i, %j] : memref<?x?xf32>
    }
    scf.reduce
  }
  return
}

// -----

// A share of a loop that is known to be short does not look, even where only the run knows all of the loop; a long
// share does, and a loop whose end has to do with another place.
// CHECK-LABEL: func.func @shares
// CHECK: scf.parallel
// CHECK-NOT: attn.poll
// CHECK: memref.store {{.+}}, %arg0
// CHECK-NOT: attn.poll
// CHECK: scf.parallel
// CHECK: memref.store {{.+}}, %arg0
// CHECK: attn.poll
// CHECK: scf.parallel
// CHECK: memref.store {{.+}}, %arg0
// CHECK: attn.poll
func.func @shares(%x: memref<?xf32>, %shares: index) attributes {attn.entry} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c1024 = arith.constant 1024 : index
  %c1000000 = arith.constant 1000000 : index
  %zero = arith.constant 0.0 : f32
  %n = memref.dim %x, %c0 : memref<?xf32>
  scf.parallel (%i) = (%c0) to (%shares) step (%c1) {
    %first = arith.muli %i, %c1024 : index
    %next = arith.addi %first, %c1024 : index
    %end = arith.minui %next, %n : index
    scf.for %j = %first to %end step %c1 {
      memref.store %zero, %x[%j] : memref<?xf32>
    }
    scf.reduce
  }
  scf.parallel (%i) = (%c0) to (%shares) step (%c1) {
    %first = arith.muli %i, %c1000000 : index
    %next = arith.addi %first, %c1000000 : index
    %end = arith.minui %next, %n : index
    scf.for %j = %first to %end step %c1 {
      memref.store %zero, %x[%j] : memref<?xf32>
    }
    scf.reduce
  }
  scf.parallel (%i) = (%c0) to (%shares) step (%c1) {
    %first = arith.muli %i, %c1024 : index
    %next = arith.addi %first, %c1024 : index
    %end = arith.minui %next, %n : index
    scf.for %j = %i to %end step %c1 {
      memref.store %zero, %x[%j] : memref<?xf32>
    }
    scf.reduce
  }
  return
}

// -----

// A loop around long shares that do not look counts all of each: one share is 200000 operations, and the loop looks
// behind every one.
// CHECK-LABEL: func.func @around_shares
// CHECK: scf.for %[[I:.+]] = %c0 to %{{.+}} step %c1 {
// CHECK: memref.store
// CHECK: attn.poll
func.func @around_shares(%x: memref<?xf32>, %shares: index) attributes {attn.entry} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c100000 = arith.constant 100000 : index
  %zero = arith.constant 0.0 : f32
  %n = memref.dim %x, %c0 : memref<?xf32>
  scf.for %i = %c0 to %shares step %c1 {
    %first = arith.muli %i, %c100000 : index
    %next = arith.addi %first, %c100000 : index
    %end = arith.minui %next, %n : index
    scf.for %j = %first to %end step %c1 {
      memref.store %zero, %x[%j] : memref<?xf32>
    }
  }
  return
}
