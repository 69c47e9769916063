// RUN: attn-opt %s --attn-move-loops --split-input-file | FileCheck %s
// RUN: attn-opt %s --attn-move-loops --split-input-file --remarks-filter=attn-move-loops \
// RUN:   --remark-format=emitRemark -o /dev/null 2>&1 | FileCheck %s --check-prefix=REMARK

// The step's number is a word that kernels load; what is fetched becomes one; a launch makes the next ones.
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
// CHECK: gpu.launch
// CHECK-NOT: attn.fetch
// CHECK-COUNT-4: memref.store %{{.*}}, %[[STATE]]
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

// What is asked of the host alone keeps a loop there: a launch whose size is the step's number.
// CHECK-LABEL: func.func @size
// CHECK-NOT: attn.begin_loop
// REMARK: remark: [Missed] loop
// REMARK-SAME: a launch in it has a size that depends on the step
func.func @size(%x: memref<8xf32>, %flag: memref<i8>) attributes {attn.entry} {
  %c1 = arith.constant 1 : index
  %true = arith.constant true
  %zero = arith.constant 0 : i8
  %f = arith.constant 1.0 : f32
  %r:1 = scf.while (%i = %c1, %go = %true) : (index, i1) -> (index) {
    scf.condition(%go) %i : index
  } do {
  ^bb0(%i: index):
    gpu.launch blocks(%a, %b, %c) in (%d = %i, %e = %c1, %g = %c1) threads(%h, %j, %k) in (%l = %c1, %m = %c1, %o = %c1) {
      memref.store %f, %x[%a] : memref<8xf32>
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

// A requirement on what was fetched, a fetched float, an op of the host, a branch.
// REMARK: remark: [Missed] loop
// REMARK-SAME: a requirement in it depends on the step
// REMARK: remark: [Missed] loop
// REMARK-SAME: it reads a number from the device that is no integer
// REMARK: remark: [Missed] loop
// REMARK-SAME: it has an op that the host carries out, 'attn.download'
// REMARK: remark: [Missed] loop
// REMARK-SAME: a branch or loop in it depends on the step
// CHECK-NOT: attn.begin_loop
func.func @others(%x: memref<f32>, %host: memref<f32>, %flag: memref<i8>) attributes {attn.entry} {
  %true = arith.constant true
  %zero = arith.constant 0 : i8
  %half = arith.constant 0.5 : f32
  scf.while (%go = %true) : (i1) -> () {
    scf.condition(%go)
  } do {
    %word = attn.fetch %flag[] : memref<i8> -> i8
    %go = arith.cmpi ne, %word, %zero : i8
    attn.require %go, "a flag"()
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
