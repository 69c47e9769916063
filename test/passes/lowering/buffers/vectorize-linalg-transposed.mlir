// RUN: attn-opt %s --attn-vectorize-linalg --split-input-file | FileCheck %s
#t512 = #attn.target<triple = "x86_64-unknown-linux-gnu", cpu = "x86-64-v4", features = "", isa = "avx512", l1 = 1, l2 = 1>
#in = affine_map<(b, i, j) -> (b, i, j)>
#row = affine_map<(b, i, j) -> (j)>
#out = affine_map<(b, i, j) -> (b, j, i)>

module attributes {attn.target = #t512} {
  // Squares of 16 x 16: rows of the operands are read, computed, transposed by 64 shuffles and written as columns.
  // CHECK-LABEL: func.func @whole
  // CHECK: scf.parallel
  // CHECK: scf.for %{{.*}} step %c16
  // CHECK-NOT: scf.if
  // CHECK-COUNT-16: arith.addf {{.*}} : vector<16xf32>
  // CHECK-COUNT-64: vector.shuffle
  // CHECK-COUNT-16: vector.store
  // CHECK: return
  func.func @whole(%x: memref<64x128x256xf32>, %r: memref<256xf32>, %y: memref<64x256x128xf32>) {
    linalg.generic {indexing_maps = [#in, #row, #out], iterator_types = ["parallel", "parallel", "parallel"]}
        ins(%x, %r : memref<64x128x256xf32>, memref<256xf32>) outs(%y : memref<64x256x128xf32>) {
      ^bb0(%a: f32, %b: f32, %o: f32):
        %s = arith.addf %a, %b : f32
        linalg.yield %s : f32
    }
    return
  }

  // Of open sizes what is left of a square is made point by point.
  // CHECK-LABEL: func.func @open
  // CHECK: scf.if
  // CHECK: vector.shuffle
  // CHECK: } else {
  // CHECK: scf.for
  // CHECK: scf.for
  // CHECK: memref.store
  func.func @open(%x: memref<?x?x?xf32>, %y: memref<?x?x?xf32>) {
    linalg.generic {indexing_maps = [#in, #out], iterator_types = ["parallel", "parallel", "parallel"]}
        ins(%x : memref<?x?x?xf32>) outs(%y : memref<?x?x?xf32>) {
      ^bb0(%a: f32, %o: f32):
        linalg.yield %a : f32
    }
    return
  }

  // Near misses: a dimension shorter than a vector, elements of 16 bits, an operand in each order.
  // CHECK-LABEL: func.func @short
  // CHECK-NOT: vector.shuffle
  func.func @short(%x: memref<64x128x8xf32>, %y: memref<64x8x128xf32>, %h: memref<64x128x256xf16>, %k: memref<64x256x128xf16>,
                   %v: memref<64x128x256xf32>, %w: memref<64x256x128xf32>, %z: memref<64x256x128xf32>) {
    linalg.generic {indexing_maps = [#in, #out], iterator_types = ["parallel", "parallel", "parallel"]}
        ins(%x : memref<64x128x8xf32>) outs(%y : memref<64x8x128xf32>) {
      ^bb0(%a: f32, %o: f32):
        linalg.yield %a : f32
    }
    linalg.generic {indexing_maps = [#in, #out], iterator_types = ["parallel", "parallel", "parallel"]}
        ins(%h : memref<64x128x256xf16>) outs(%k : memref<64x256x128xf16>) {
      ^bb0(%a: f16, %o: f16):
        linalg.yield %a : f16
    }
    linalg.generic {indexing_maps = [#in, #out, #out], iterator_types = ["parallel", "parallel", "parallel"]}
        ins(%v, %w : memref<64x128x256xf32>, memref<64x256x128xf32>) outs(%z : memref<64x256x128xf32>) {
      ^bb0(%a: f32, %b: f32, %o: f32):
        %s = arith.addf %a, %b : f32
        linalg.yield %s : f32
    }
    return
  }

  // Short rows: of the outermost loops enough are tasks, the others are loops.
  // CHECK-LABEL: func.func @patches
  // CHECK: scf.parallel
  // CHECK: arith.remui
  // CHECK-NOT: arith.remui
  // CHECK: scf.for
  // CHECK: scf.for
  // CHECK: vector.maskedstore
  // CHECK: return
  func.func @patches(%x: memref<9x56x58xf32>, %y: memref<56x56x9x3xf32>) {
    linalg.generic {indexing_maps = [affine_map<(i, j, c, k) -> (c, i, j + k)>, affine_map<(i, j, c, k) -> (i, j, c, k)>],
                    iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
        ins(%x : memref<9x56x58xf32>) outs(%y : memref<56x56x9x3xf32>) {
      ^bb0(%a: f32, %o: f32):
        linalg.yield %a : f32
    }
    return
  }
}
