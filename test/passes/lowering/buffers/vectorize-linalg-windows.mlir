// RUN: attn-opt %s --attn-vectorize-linalg --split-input-file | FileCheck %s
#t512 = #attn.target<triple = "x86_64-unknown-linux-gnu", cpu = "x86-64-v4", features = "", isa = "avx512", l1 = 1, l2 = 1>
#out = affine_map<(c, h, w, i, j) -> (c, h, w)>
#window = affine_map<(c, h, w, i, j) -> (c, h + i, w + j)>
#taps = affine_map<(c, h, w, i, j) -> (c, i, j)>

module attributes {attn.target = #t512} {
  // A window that slides over rows: four at once, from what the fill before it wrote. The terms in the direction of rows
  // stand one after the other, so that a weight is read once for four rows.
  // CHECK-LABEL: func.func @slides
  // CHECK-NOT: linalg.fill
  // CHECK-COUNT-4: vector.broadcast %cst : f32 to vector<16xf32>
  // CHECK: scf.for {{.*}} iter_args({{.*}}) -> (vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>)
  // CHECK: memref.load %arg1
  // CHECK-COUNT-4: vector.maskedload %arg0
  // CHECK: memref.load %arg1
  // CHECK-COUNT-4: vector.maskedload %arg0
  // CHECK: scf.yield
  // CHECK-COUNT-4: vector.maskedstore %arg2
  // The rest of the rows, one by one.
  // CHECK: scf.for
  // CHECK: vector.maskedstore %arg2
  // CHECK-NOT: vector.maskedstore
  // CHECK: return
  func.func @slides(%x: memref<64x70x33xf32>, %w: memref<64x2x3xf32>, %y: memref<64x69x31xf32>) {
    %zero = arith.constant 0.0 : f32
    linalg.fill ins(%zero : f32) outs(%y : memref<64x69x31xf32>)
    linalg.generic {indexing_maps = [#window, #taps, #out], iterator_types = ["parallel", "parallel", "parallel", "reduction", "reduction"]}
        ins(%x, %w : memref<64x70x33xf32>, memref<64x2x3xf32>) outs(%y : memref<64x69x31xf32>) {
      ^bb0(%a: f32, %b: f32, %o: f32):
        %p = arith.mulf %a, %b : f32
        %s = arith.addf %o, %p : f32
        linalg.yield %s : f32
    }
    return
  }
}

// -----

#t512 = #attn.target<triple = "x86_64-unknown-linux-gnu", cpu = "x86-64-v4", features = "", isa = "avx512", l1 = 1, l2 = 1>
#every = affine_map<(i) -> (i)>
#by2 = affine_map<(i) -> (i * 2)>
#by3 = affine_map<(i) -> (i * 3)>
#by5 = affine_map<(i) -> (i * 5)>

module attributes {attn.target = #t512} {
  // Every second element: the second vector ends with the last element that is needed.
  // CHECK-LABEL: func.func @second
  // CHECK: %[[LOW:.*]] = vector.load {{.*}} vector<16xf32>
  // CHECK: arith.addi %{{.*}}, %c15
  // CHECK: %[[HIGH:.*]] = vector.load {{.*}} vector<16xf32>
  // CHECK: vector.shuffle %[[LOW]], %[[HIGH]] [0, 2, 4, 6, 8, 10, 12, 14, 17, 19, 21, 23, 25, 27, 29, 31]
  // CHECK-NOT: vector.gather
  // CHECK: return
  func.func @second(%x: memref<63xf32>, %y: memref<32xf32>) {
    linalg.generic {indexing_maps = [#by2, #every], iterator_types = ["parallel"]} ins(%x : memref<63xf32>) outs(%y : memref<32xf32>) {
      ^bb0(%a: f32, %o: f32):
        linalg.yield %a : f32
    }
    return
  }
  // Of a rest, what is behind its last element is masked off.
  // CHECK-LABEL: func.func @third
  // CHECK-COUNT-3: vector.maskedload
  // CHECK-NOT: vector.gather
  // CHECK: return
  func.func @third(%x: memref<?xf32>, %y: memref<?xf32>) {
    linalg.generic {indexing_maps = [#by3, #every], iterator_types = ["parallel"]} ins(%x : memref<?xf32>) outs(%y : memref<?xf32>) {
      ^bb0(%a: f32, %o: f32):
        linalg.yield %a : f32
    }
    return
  }
  // Columns of two, of a buffer whose rows are two elements: the same.
  // CHECK-LABEL: func.func @column
  // CHECK-COUNT-2: vector.load
  // CHECK: vector.shuffle
  // CHECK: return
  func.func @column(%x: memref<32xf32, strided<[2], offset: ?>>, %y: memref<32xf32>) {
    linalg.generic {indexing_maps = [#every, #every], iterator_types = ["parallel"]}
        ins(%x : memref<32xf32, strided<[2], offset: ?>>) outs(%y : memref<32xf32>) {
      ^bb0(%a: f32, %o: f32):
        linalg.yield %a : f32
    }
    return
  }
  // Near misses: elements that lie far apart, and who knows how far.
  // CHECK-LABEL: func.func @far
  // CHECK-COUNT-2: vector.gather
  // CHECK: return
  func.func @far(%x: memref<156xf32>, %y: memref<32xf32>, %z: memref<32xf32, strided<[?], offset: ?>>) {
    linalg.generic {indexing_maps = [#by5, #every, #every], iterator_types = ["parallel"]}
        ins(%x, %z : memref<156xf32>, memref<32xf32, strided<[?], offset: ?>>) outs(%y : memref<32xf32>) {
      ^bb0(%a: f32, %b: f32, %o: f32):
        %e = math.exp %a : f32
        %f = math.exp %b : f32
        %s = arith.addf %e, %f : f32
        linalg.yield %s : f32
    }
    return
  }
}

// -----

#t512 = #attn.target<triple = "x86_64-unknown-linux-gnu", cpu = "x86-64-v4", features = "", isa = "avx512", l1 = 1, l2 = 1>
#row = affine_map<(i, k) -> (i)>
#all = affine_map<(i, k) -> (i, k)>

module attributes {attn.target = #t512} {
  // A near miss of a start: something between may read what was filled.
  // CHECK-LABEL: func.func @read
  // CHECK: memref.copy
  // CHECK: memref.load %arg1
  // CHECK: return
  func.func @read(%x: memref<4x16xf32>, %y: memref<4xf32>, %z: memref<4xf32>) {
    %zero = arith.constant 0.0 : f32
    linalg.fill ins(%zero : f32) outs(%y : memref<4xf32>)
    memref.copy %y, %z : memref<4xf32> to memref<4xf32>
    linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "reduction"]}
        ins(%x : memref<4x16xf32>) outs(%y : memref<4xf32>) {
      ^bb0(%a: f32, %o: f32):
        %s = arith.addf %o, %a : f32
        linalg.yield %s : f32
    }
    return
  }
}
