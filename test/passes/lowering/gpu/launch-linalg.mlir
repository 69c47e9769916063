// RUN: attn-opt %s --split-input-file --attn-launch-linalg | FileCheck %s

// A point a thread; the sum of a row stays in a register.
// CHECK-LABEL: func.func @rows
// CHECK: gpu.launch blocks
// CHECK: %[[SUM:.*]] = scf.for {{.*}} iter_args(%[[A:.*]] = %{{.*}}) -> (f32)
// CHECK: arith.addf
// CHECK: memref.store %[[SUM]]
// CHECK: attn.kernel_name = "reduction"
func.func @rows(%x: memref<?x8xf32>, %y: memref<?xf32>) attributes {attn.entry = "rows"} {
  linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>],
                  iterator_types = ["parallel", "reduction"]} ins(%x : memref<?x8xf32>) outs(%y : memref<?xf32>) {
  ^bb0(%a: f32, %s: f32):
    %t = arith.addf %a, %s : f32
    linalg.yield %t : f32
  }
  return
}

// -----

// A bad index sets the run's error.
// CHECK: attn.messages = ["node 'g' (Gather): an index is out of range: {0} in a dimension of size {1}"]
// CHECK-LABEL: func.func @twice
// CHECK: attn.device_error
// CHECK-COUNT-3: gpu.launch blocks
// CHECK: %[[CLAIMS:.*]] = memref.atomic_rmw addi %{{.*}} : (i64, memref<4xi64>) -> i64
// CHECK: arith.cmpi eq, %[[CLAIMS]]
// CHECK-COUNT-3: memref.store %{{.*}} : memref<4xi64>
func.func @twice(%x: memref<4xf32>, %y: memref<4xf32>, %n: memref<1xindex>) attributes {attn.entry = "twice"} {
  %c0 = arith.constant 0 : index
  %c4 = arith.constant 4 : index
  %k = memref.load %n[%c0] : memref<1xindex>
  linalg.copy ins(%x : memref<4xf32>) outs(%y : memref<4xf32>)
  linalg.copy ins(%y : memref<4xf32>) outs(%x : memref<4xf32>)
  linalg.generic {indexing_maps = [affine_map<(i) -> (i)>], iterator_types = ["parallel"]} outs(%y : memref<4xf32>) {
  ^bb0(%o: f32):
    %i = attn.check_index %k, %c4, "node 'g' (Gather)" : index
    %v = memref.load %x[%i] : memref<4xf32>
    linalg.yield %v : f32
  }
  return
}

// -----

// A remainder of floats has no instruction: multiples of the divisor are subtracted, in f32 for f16.
// CHECK-LABEL: func.func @remainder
// CHECK: arith.extf %{{.*}} : f16 to f32
// CHECK: scf.if
// CHECK-COUNT-2: scf.while
// CHECK: arith.truncf %{{.*}} : f32 to f16
// CHECK-NOT: arith.remf
func.func @remainder(%x: memref<?xf16>, %y: memref<?xf16>) attributes {attn.entry = "main"} {
  linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
    ins(%x : memref<?xf16>) outs(%y : memref<?xf16>) {
  ^bb0(%a: f16, %o: f16):
    %r = arith.remf %a, %o : f16
    linalg.yield %r : f16
  }
  return
}

// -----

// A product of f32 and weights in 16 bits by a library: it is asked first, and the factor rounded only where it will make it.
// CHECK-LABEL: func.func @rounded
// CHECK: %[[ASKED:.*]] = attn.product %[[SCRATCH:.*]], %[[W:.*]], %[[Y:.*]] sizes({{.*}}ask, narrow, precision = 3 : i32
// CHECK: %[[MADE:.*]] = scf.if %[[ASKED]] -> (i1) {
// CHECK: gpu.launch blocks
// CHECK: vector.store %{{.*}}, %[[SCRATCH]]
// CHECK: attn.kernel_name = "rounding"
// CHECK: %[[DONE:.*]] = attn.product %[[SCRATCH]], %[[W]], %[[Y]] sizes({{.*}}0 : i32, narrow, precision = 3 : i32
// CHECK: scf.yield %[[DONE]]
// CHECK: } else {
// CHECK-NEXT: %[[NO:.*]] = arith.constant false
// CHECK-NEXT: scf.yield %[[NO]]
// CHECK: scf.if %[[MADE]] {
// CHECK-NEXT: } else {
// CHECK: gpu.launch blocks
func.func @kernel(%x: memref<?x64xf32>, %w: memref<64x48xf16>, %y: memref<?x48xf32>, %s: memref<?xf32>) attributes {attn.kernel,
    attn.library_product = {activation = 0 : i32, batch = array<i64>, columns = array<i64: 1, 1>, narrow, precision = 3 : i32,
                            result = 2 : i64, rounded = 0 : i64, rows = array<i64: 0, 0>, scale = 1.0 : f32, sums = array<i64: 0, 1>}} {
  %c1 = arith.constant 1 : index
  gpu.launch blocks(%i, %j, %k) in (%a = %c1, %b = %c1, %c = %c1) threads(%l, %m, %n) in (%d = %c1, %e = %c1, %f = %c1) {
    gpu.terminator
  }
  return
}
func.func @rounded(%x: memref<?x64xf32>, %w: memref<64x48xf16>, %y: memref<?x48xf32>, %s: memref<?xf32>) attributes {attn.entry = "main"} {
  attn.kernel @kernel ins(%x, %w : memref<?x64xf32>, memref<64x48xf16>) outs(%y, %s : memref<?x48xf32>, memref<?xf32>)
  return
}

// -----

// Where a library made a part of the epilogue, another launch does the rest; otherwise the kernel does all of it.
// CHECK-LABEL: func.func @with_rest
// CHECK: %[[DONE:.*]] = attn.product %{{.*}}, %{{.*}}, %[[Y:.*]] sizes(
// CHECK: scf.if %[[DONE]] {
// CHECK: gpu.launch blocks
// CHECK: %[[V:.*]] = memref.load %[[Y]]
// CHECK: math.erf %[[V]] : f32
// CHECK: memref.store %{{.*}}, %[[Y]]
// CHECK: attn.kernel_name = "elementwise"
// CHECK: } else {
// CHECK: gpu.launch blocks
// CHECK-NOT: math.erf
// CHECK: attn.kernel_name = "kernel"
func.func @kernel(%x: memref<8x64xf32>, %w: memref<64x48xf32>, %y: memref<8x48xf32>) attributes {attn.kernel,
    attn.library_product = {activation = 0 : i32, batch = array<i64>, columns = array<i64: 1, 1>, precision = 2 : i32, rest = @rest,
                            result = 2 : i64, rows = array<i64: 0, 0>, scale = 1.0 : f32, sums = array<i64: 0, 1>}} {
  %c1 = arith.constant 1 : index
  gpu.launch blocks(%i, %j, %k) in (%a = %c1, %b = %c1, %c = %c1) threads(%l, %m, %n) in (%d = %c1, %e = %c1, %f = %c1) {
    gpu.terminator
  }
  return
}
func.func @rest(%y: memref<8x48xf32>) attributes {attn.kernel} {
  linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]} outs(%y : memref<8x48xf32>) {
  ^bb0(%o: f32):
    %0 = math.erf %o : f32
    linalg.yield %0 : f32
  }
  return
}
func.func @with_rest(%x: memref<8x64xf32>, %w: memref<64x48xf32>, %y: memref<8x48xf32>) attributes {attn.entry = "main"} {
  attn.kernel @kernel ins(%x, %w : memref<8x64xf32>, memref<64x48xf32>) outs(%y : memref<8x48xf32>)
  return
}

// -----

// Where there are many elements a thread has as many as 16 bytes hold, side by side; a row's number is read once, and what
// lies otherwise element by element.
// CHECK-LABEL: func.func @wide
// CHECK: gpu.launch {{.*}} threads(
// CHECK: arith.muli %{{.*}}, %[[W:.*]] : index
// CHECK: %[[X:.*]] = vector.load %{{.*}} {alignment = 16 : i64} : memref<?x512xf16>, vector<8xf16>
// CHECK: vector.extract %[[X]][0] : f16 from vector<8xf16>
// CHECK: memref.load %{{.*}} : memref<512x?xf16>
// CHECK: vector.extract %[[X]][7] : f16 from vector<8xf16>
// CHECK: %[[Y:.*]] = vector.from_elements {{.*}} : vector<8xf16>
// CHECK: vector.store %[[Y]], %{{.*}} {alignment = 16 : i64} : memref<?x512xf16>, vector<8xf16>
func.func @wide(%x: memref<?x512xf16>, %t: memref<512x?xf16>, %r: memref<?xf16>, %y: memref<?x512xf16>) attributes {attn.entry = "wide"} {
  linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j, i)>, affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i, j)>],
                  iterator_types = ["parallel", "parallel"]}
      ins(%x, %t, %r : memref<?x512xf16>, memref<512x?xf16>, memref<?xf16>) outs(%y : memref<?x512xf16>) {
  ^bb0(%a: f16, %b: f16, %c: f16, %o: f16):
    %0 = arith.addf %a, %b : f16
    %1 = arith.mulf %0, %c : f16
    linalg.yield %1 : f16
  }
  return
}

// -----

// Rows that are no multiple of 16 bytes do not begin at one.
// CHECK-LABEL: func.func @odd
// CHECK-NOT: vector.load
// CHECK: memref.load
func.func @odd(%x: memref<?x509xf32>, %y: memref<?x509xf32>) attributes {attn.entry = "odd"} {
  linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      ins(%x : memref<?x509xf32>) outs(%y : memref<?x509xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.negf %a : f32
    linalg.yield %0 : f32
  }
  return
}

// -----

// Rows of a larger buffer that begin and end at multiples of 16 bytes, too.
// CHECK-LABEL: func.func @part
// CHECK: vector.load %{{.*}} {alignment = 16 : i64} : memref<512x64xf16>, vector<8xf16>
// CHECK: vector.store %{{.*}} {alignment = 16 : i64} : memref<512x64xf16, strided<[72, 1], offset: 8>>, vector<8xf16>
func.func @part(%x: memref<512x64xf16>, %y: memref<512x72xf16>) attributes {attn.entry = "part"} {
  %part = memref.subview %y[0, 8] [512, 64] [1, 1] : memref<512x72xf16> to memref<512x64xf16, strided<[72, 1], offset: 8>>
  linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      ins(%x : memref<512x64xf16>) outs(%part : memref<512x64xf16, strided<[72, 1], offset: 8>>) {
  ^bb0(%a: f16, %o: f16):
    linalg.yield %a : f16
  }
  return
}

// -----

// Near misses: such rows that begin between them.
// CHECK-LABEL: func.func @offset
// CHECK-NOT: vector.
// CHECK-LABEL: func.func @stride
// CHECK-NOT: vector.
func.func @offset(%x: memref<512x64xf16>, %y: memref<512x72xf16>) attributes {attn.entry = "offset"} {
  %part = memref.subview %y[0, 4] [512, 64] [1, 1] : memref<512x72xf16> to memref<512x64xf16, strided<[72, 1], offset: 4>>
  linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      ins(%x : memref<512x64xf16>) outs(%part : memref<512x64xf16, strided<[72, 1], offset: 4>>) {
  ^bb0(%a: f16, %o: f16):
    linalg.yield %a : f16
  }
  return
}
func.func @stride(%x: memref<512x64xf16>, %y: memref<512x68xf16>) attributes {attn.entry = "stride"} {
  %part = memref.subview %y[0, 0] [512, 64] [1, 1] : memref<512x68xf16> to memref<512x64xf16, strided<[68, 1]>>
  linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      ins(%x : memref<512x64xf16>) outs(%part : memref<512x64xf16, strided<[68, 1]>>) {
  ^bb0(%a: f16, %o: f16):
    linalg.yield %a : f16
  }
  return
}
