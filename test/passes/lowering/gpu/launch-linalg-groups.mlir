// RUN: attn-opt %s --split-input-file --attn-launch-linalg | FileCheck %s

#id = affine_map<(i, j) -> (i, j)>

// A cache with a row more, and something else that does not need it: one launch, in which each op has blocks of its own.
// Where a part of a result begins and ends at multiples of 16 bytes it is written so.
// CHECK-LABEL: func.func @apart
// CHECK: %[[ALL:.*]] = arith.addi
// CHECK: gpu.launch
// CHECK: scf.if
// CHECK: vector.store %{{.*}} {alignment = 16 : i64} : memref<1024x64xf16, strided<[64, 1]>>, vector<8xf16>
// CHECK: } else {
// CHECK: scf.if
// CHECK: memref.store %{{.*}} : memref<1x64xf16, strided<[64, 1], offset: 65536>>
// CHECK: } else {
// CHECK: arith.negf
// CHECK: attn.kernel_name = "elementwise"
// CHECK-NOT: gpu.launch
func.func @apart(%x: memref<1024x64xf16>, %row: memref<1x64xf16>, %z: memref<?x3xf32>) attributes {attn.entry = "apart"} {
  %y = attn.output 0() : memref<1025x64xf16>
  %n = arith.constant 3 : index
  %w = memref.alloc(%n) : memref<?x3xf32>
  %front = memref.subview %y[0, 0] [1024, 64] [1, 1] : memref<1025x64xf16> to memref<1024x64xf16, strided<[64, 1]>>
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : memref<1024x64xf16>) outs(%front : memref<1024x64xf16, strided<[64, 1]>>) {
  ^bb0(%a: f16, %o: f16):
    linalg.yield %a : f16
  }
  %behind = memref.subview %y[1024, 0] [1, 64] [1, 1] : memref<1025x64xf16> to memref<1x64xf16, strided<[64, 1], offset: 65536>>
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%row : memref<1x64xf16>) outs(%behind : memref<1x64xf16, strided<[64, 1], offset: 65536>>) {
  ^bb0(%a: f16, %o: f16):
    linalg.yield %a : f16
  }
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%z : memref<?x3xf32>) outs(%w : memref<?x3xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.negf %a : f32
    linalg.yield %0 : f32
  }
  return
}

// -----

#id = affine_map<(i) -> (i)>

// Near misses. What reads a result waits for it, and so does what writes to memory that is read, in an arena or by a view.
// CHECK-LABEL: func.func @needed
// CHECK-COUNT-2: gpu.launch
// CHECK-NOT: gpu.launch
func.func @needed(%x: memref<40xf32>) attributes {attn.entry = "needed"} {
  %y = attn.output 0() : memref<40xf32>
  %z = attn.output 1() : memref<40xf32>
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : memref<40xf32>) outs(%y : memref<40xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.negf %a : f32
    linalg.yield %0 : f32
  }
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%y : memref<40xf32>) outs(%z : memref<40xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = math.exp %a : f32
    linalg.yield %0 : f32
  }
  return
}

// CHECK-LABEL: func.func @arena
// CHECK-COUNT-2: gpu.launch
// CHECK-NOT: gpu.launch
func.func @arena(%x: memref<40xf32>) attributes {attn.entry = "arena"} {
  %c0 = arith.constant 0 : index
  %c128 = arith.constant 128 : index
  %c160 = arith.constant 160 : index
  %c640 = arith.constant 640 : index
  %y = attn.output 0() : memref<40xf32>
  %memory = attn.workspace %c640 : memref<?xi8>
  %first = memref.view %memory[%c0][] : memref<?xi8> to memref<40xf32>
  %beside = memref.view %memory[%c160][] : memref<?xi8> to memref<40xf32>
  %across = memref.view %memory[%c128][] : memref<?xi8> to memref<40xf32>
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%first : memref<40xf32>) outs(%y : memref<40xf32>) {
  ^bb0(%a: f32, %o: f32):
    linalg.yield %a : f32
  }
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : memref<40xf32>) outs(%beside : memref<40xf32>) {
  ^bb0(%a: f32, %o: f32):
    linalg.yield %a : f32
  }
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : memref<40xf32>) outs(%across : memref<40xf32>) {
  ^bb0(%a: f32, %o: f32):
    linalg.yield %a : f32
  }
  return
}

// An effect between, and a body that reads other memory.
// CHECK-LABEL: func.func @between
// CHECK-COUNT-3: gpu.launch
// CHECK-NOT: gpu.launch
func.func @between(%x: memref<40xf32>, %n: memref<1xindex>) -> index attributes {attn.entry = "between"} {
  %c0 = arith.constant 0 : index
  %y = attn.output 0() : memref<40xf32>
  %z = attn.output 1() : memref<40xf32>
  %w = attn.output 2() : memref<40xf32>
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : memref<40xf32>) outs(%y : memref<40xf32>) {
  ^bb0(%a: f32, %o: f32):
    linalg.yield %a : f32
  }
  %k = memref.load %n[%c0] : memref<1xindex>
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : memref<40xf32>) outs(%z : memref<40xf32>) {
  ^bb0(%a: f32, %o: f32):
    linalg.yield %a : f32
  }
  linalg.generic {indexing_maps = [#id], iterator_types = ["parallel"]} outs(%w : memref<40xf32>) {
  ^bb0(%o: f32):
    %v = memref.load %y[%c0] : memref<40xf32>
    linalg.yield %v : f32
  }
  return %k : index
}
