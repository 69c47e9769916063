// RUN: attn-opt %s --attn-move-loops --split-input-file | FileCheck %s
// RUN: attn-opt %s --attn-move-loops --split-input-file --remarks-filter=attn-move-loops \
// RUN:   --remark-format=emitRemark -o /dev/null 2>&1 | FileCheck %s --check-prefix=REMARK

// The step's number is a word that kernels load; one launch makes one of what is fetched, and the next ones.
// CHECK-LABEL: func.func @goes
// CHECK: %[[STATE:.*]] = memref.view %{{.*}} to memref<5xi64>
// CHECK: %[[COPY:.*]] = memref.alloca() : memref<5xi64>
// CHECK: scf.while (%[[I:.*]] = %{{.*}}, %{{.*}} = %{{.*}})
// CHECK: gpu.launch
// CHECK-COUNT-2: memref.store %{{.*}}, %[[STATE]]
// CHECK: attn.begin_loop
// CHECK: gpu.launch
// CHECK: memref.load %[[STATE]]
// CHECK: memref.subview
// CHECK: gpu.launch
// CHECK: memref.load %{{.*}} : memref<i8>
// CHECK-NOT: attn.fetch
// CHECK-COUNT-5: memref.store %{{.*}}, %[[STATE]]
// CHECK: attn.end_loop %[[STATE]][4] : memref<5xi64>
// CHECK: attn.download %[[STATE]] to %[[COPY]]
// CHECK: scf.yield
// REMARK: remark: [Passed] loop
// REMARK-SAME: goes on without the host
func.func @goes(%x: memref<8x4xf32>, %flag: memref<i8>, %n: index) attributes {attn.entry} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %true = arith.constant true
  %zero = arith.constant 0 : i8
  %f = arith.constant 1.0 : f32
  %r:1 = scf.while (%i = %c0, %go = %true) : (index, i1) -> (index) {
    %less = arith.cmpi slt, %i, %n : index
    %both = arith.andi %go, %less : i1
    scf.condition(%both) %i : index
  } do {
  ^bb0(%i: index):
    %row = memref.subview %x[%i, 0] [1, 4] [1, 1] : memref<8x4xf32> to memref<4xf32, strided<[1], offset: ?>>
    gpu.launch blocks(%a, %b, %c) in (%d = %c1, %e = %c1, %g = %c1) threads(%h, %j, %k) in (%l = %c1, %m = %c1, %o = %c1) {
      memref.store %f, %row[%a] : memref<4xf32, strided<[1], offset: ?>>
      gpu.terminator
    }
    %word = attn.fetch %flag[] : memref<i8> -> i8
    %go = arith.cmpi ne, %word, %zero : i8
    %next = arith.addi %i, %c1 : index
    scf.yield %next, %go : index, i1
  }
  return
}

// -----

// A launch whose size is the step's number has as many blocks as the last step wants; the others do nothing. Memory
// is as large as the last step needs.
// CHECK-LABEL: func.func @size
// CHECK: ^bb0(%[[I:.*]]: index):
// CHECK: %[[MORE:.*]] = arith.muli
// CHECK-NEXT: %[[MOST:.*]] = arith.addi %[[I]], %[[MORE]]
// CHECK-NEXT: arith.muli %[[I]], %c4
// CHECK-NEXT: %[[BYTES:.*]] = arith.muli %[[MOST]], %c4
// CHECK: attn.begin_loop
// CHECK: attn.workspace %[[BYTES]] : memref<?xi8>
// CHECK: gpu.launch blocks(%[[BLOCK:.*]], %{{.*}}, %{{.*}}) in (%{{.*}} = %[[MOST]], {{.*}}) threads
// CHECK: %[[NOW:.*]] = memref.load
// CHECK: %[[COUNT:.*]] = arith.index_cast %[[NOW]] : i64 to index
// CHECK: %[[IN:.*]] = arith.cmpi ult, %[[BLOCK]], %[[COUNT]]
// CHECK: scf.if %[[IN]] {
// CHECK: memref.store
// REMARK: remark: [Passed] loop
func.func @size(%x: memref<8xf32>, %flag: memref<i8>) attributes {attn.entry} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %true = arith.constant true
  %zero = arith.constant 0 : i8
  %f = arith.constant 1.0 : f32
  %r:1 = scf.while (%i = %c1, %go = %true) : (index, i1) -> (index) {
    scf.condition(%go) %i : index
  } do {
  ^bb0(%i: index):
    %bytes = arith.muli %i, %c4 : index
    %memory = attn.workspace %bytes : memref<?xi8>
    %view = memref.view %memory[%c0][%i] : memref<?xi8> to memref<?xf32>
    gpu.launch blocks(%a, %b, %c) in (%d = %i, %e = %c1, %g = %c1) threads(%h, %j, %k) in (%l = %c1, %m = %c1, %o = %c1) {
      memref.store %f, %view[%a] : memref<?xf32>
      gpu.terminator
    }
    %word = attn.fetch %flag[] : memref<i8> -> i8
    %go = arith.cmpi ne, %word, %zero : i8
    %next = arith.addi %i, %c1 : index
    scf.yield %next, %go : index, i1
  }
  return
}

// -----

// What no counter bounds keeps a loop on the host: a launch of as many blocks as a number that was fetched says.
// CHECK-LABEL: func.func @fetched_size
// CHECK-NOT: attn.begin_loop
// REMARK: remark: [Missed] loop
// REMARK-SAME: a launch in it has a size that depends on the step
func.func @fetched_size(%x: memref<8xf32>, %flag: memref<i64>) attributes {attn.entry} {
  %c1 = arith.constant 1 : index
  %true = arith.constant true
  %zero = arith.constant 0 : i64
  %f = arith.constant 1.0 : f32
  scf.while (%go = %true) : (i1) -> () {
    scf.condition(%go)
  } do {
    %word = attn.fetch %flag[] : memref<i64> -> i64
    %n = arith.index_cast %word : i64 to index
    gpu.launch blocks(%a, %b, %c) in (%d = %n, %e = %c1, %g = %c1) threads(%h, %j, %k) in (%l = %c1, %m = %c1, %o = %c1) {
      memref.store %f, %x[%a] : memref<8xf32>
      gpu.terminator
    }
    %go = arith.cmpi ne, %word, %zero : i64
    scf.yield %go : i1
  }
  return
}

// -----

// What holds in the first step and stays true is looked at once, by the host; other requirements in each step, on the
// device: what comes behind one that does not hold does nothing, and the host says which one it was.
// CHECK-LABEL: func.func @requires
// CHECK: attn.require %{{.*}}, "the same"
// CHECK: attn.begin_loop
// CHECK: gpu.launch
// CHECK: memref.store %{{.*}}, %[[STATE:.*]][%{{.*}}] : memref<8xi64>
// CHECK: scf.if
// CHECK: memref.store %{{.*}}, %[[STATE]]
// CHECK: memref.store %{{.*}}, %[[STATE]]
// CHECK: gpu.launch
// CHECK: %[[BROKEN:.*]] = memref.load %[[STATE]]
// CHECK: %[[HOLDS:.*]] = arith.cmpi eq, %[[BROKEN]]
// CHECK: scf.if %[[HOLDS]]
// CHECK: attn.end_loop %[[STATE]][7]
// CHECK: attn.download
// CHECK: arith.cmpi ne
// CHECK: attn.require %{{.*}}, "a flag {0}"(%{{.*}})
// REMARK: remark: [Passed] loop
func.func @requires(%x: memref<8xf32>, %n: index, %flag: memref<i64>) attributes {attn.entry} {
  %c1 = arith.constant 1 : index
  %true = arith.constant true
  %zero = arith.constant 0 : i64
  %f = arith.constant 1.0 : f32
  scf.while (%i = %c1, %j = %n, %go = %true) : (index, index, i1) -> (index, index) {
    scf.condition(%go) %i, %j : index, index
  } do {
  ^bb0(%i: index, %j: index):
    %same = arith.cmpi eq, %i, %j : index
    attn.require %same, "the same"()
    %word = attn.fetch %flag[] : memref<i64> -> i64
    %good = arith.cmpi sge, %word, %zero : i64
    %number = arith.index_cast %word : i64 to index
    attn.require %good, "a flag {0}"(%number)
    gpu.launch blocks(%a, %b, %c) in (%d = %c1, %e = %c1, %g = %c1) threads(%h, %t, %k) in (%l = %c1, %m = %c1, %o = %c1) {
      memref.store %f, %x[%a] : memref<8xf32>
      gpu.terminator
    }
    %go = arith.cmpi ne, %word, %zero : i64
    %nextI = arith.addi %i, %c1 : index
    %nextJ = arith.addi %j, %c1 : index
    scf.yield %nextI, %nextJ, %go : index, index, i1
  }
  return
}

// -----

// Another buffer each step.
// CHECK-LABEL: func.func @turns
// CHECK-NOT: attn.begin_loop
// REMARK: remark: [Missed] loop
// REMARK-SAME: a step hands another buffer to the next one than it had
func.func @turns(%x: memref<8xf32>, %y: memref<8xf32>, %flag: memref<i8>) attributes {attn.entry} {
  %true = arith.constant true
  %zero = arith.constant 0 : i8
  %r:2 = scf.while (%p = %x, %q = %y, %go = %true) : (memref<8xf32>, memref<8xf32>, i1) -> (memref<8xf32>, memref<8xf32>) {
    scf.condition(%go) %p, %q : memref<8xf32>, memref<8xf32>
  } do {
  ^bb0(%p: memref<8xf32>, %q: memref<8xf32>):
    %word = attn.fetch %flag[] : memref<i8> -> i8
    %go = arith.cmpi ne, %word, %zero : i8
    scf.yield %q, %p, %go : memref<8xf32>, memref<8xf32>, i1
  }
  return
}

// -----

// A requirement in a branch, a fetched float, an op of the host, a branch.
// REMARK: remark: [Missed] loop
// REMARK-SAME: a requirement in a branch depends on the step
// REMARK: remark: [Missed] loop
// REMARK-SAME: it reads a number from the device that is no integer
// REMARK: remark: [Missed] loop
// REMARK-SAME: it has an op that the host carries out, 'attn.download'
// REMARK: remark: [Missed] loop
// REMARK-SAME: a branch or loop in it depends on the step
// CHECK-NOT: attn.begin_loop
func.func @others(%x: memref<f32>, %host: memref<f32>, %flag: memref<i8>, %some: i1) attributes {attn.entry} {
  %true = arith.constant true
  %zero = arith.constant 0 : i8
  %half = arith.constant 0.5 : f32
  scf.while (%go = %true) : (i1) -> () {
    scf.condition(%go)
  } do {
    %word = attn.fetch %flag[] : memref<i8> -> i8
    %go = arith.cmpi ne, %word, %zero : i8
    scf.if %some {
      attn.require %go, "a flag"()
    }
    scf.yield %go : i1
  }
  scf.while (%go = %true) : (i1) -> () {
    scf.condition(%go)
  } do {
    %word = attn.fetch %x[] : memref<f32> -> f32
    %go = arith.cmpf olt, %word, %half : f32
    scf.yield %go : i1
  }
  scf.while (%go = %true) : (i1) -> () {
    scf.condition(%go)
  } do {
    attn.download %x to %host : memref<f32>
    %word = attn.fetch %flag[] : memref<i8> -> i8
    %go = arith.cmpi ne, %word, %zero : i8
    scf.yield %go : i1
  }
  scf.while (%go = %true) : (i1) -> () {
    scf.condition(%go)
  } do {
    %word = attn.fetch %flag[] : memref<i8> -> i8
    %go = arith.cmpi ne, %word, %zero : i8
    scf.if %go {
      attn.poll
    }
    scf.yield %go : i1
  }
  // A loop that does not fetch is none of these.
  scf.while (%go = %true) : (i1) -> () {
    scf.condition(%go)
  } do {
    scf.yield %true : i1
  }
  return
}
// REMARK-NOT: remark:
