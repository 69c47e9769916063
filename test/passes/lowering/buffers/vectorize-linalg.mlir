// RUN: attn-opt %s --attn-vectorize-linalg --split-input-file | FileCheck %s
#t512 = #attn.target<triple = "x86_64-unknown-linux-gnu", cpu = "x86-64-v4", features = "", isa = "avx512", l1 = 1, l2 = 1>
#id = affine_map<(i, j) -> (i, j)>
#tr = affine_map<(i, j) -> (j, i)>
#row = affine_map<(i, j) -> (i)>

module attributes {attn.target = #t512} {
  // Rows that need no telling apart are one loop, in parallel pieces.
  // CHECK-LABEL: func.func @flat
  // CHECK: scf.parallel
  // CHECK: vector.create_mask {{.*}} : vector<16xi1>
  // CHECK: vector.maskedload
  // CHECK: vector.maskedstore
  func.func @flat(%x: memref<?x?xf32>, %y: memref<?x?xf32>) {
    linalg.exp ins(%x : memref<?x?xf32>) outs(%y : memref<?x?xf32>)
    return
  }
  // Small and of known size: no parallel loop, no mask.
  // CHECK-LABEL: func.func @small
  // CHECK-NOT: scf.parallel
  // CHECK-NOT: mask
  // CHECK: vector.load {{.*}} vector<16xf32>
  func.func @small(%x: memref<64xf32>, %y: memref<64xf32>) {
    linalg.exp ins(%x : memref<64xf32>) outs(%y : memref<64xf32>)
    return
  }
  // Row sums: lanes accumulate in registers, one reduction a row.
  // CHECK-LABEL: func.func @sums
  // CHECK: scf.for {{.*}} iter_args({{.*}}) -> (vector<16xf32>)
  // CHECK: vector.reduction <add>
  func.func @sums(%x: memref<?x64xf32>, %y: memref<?xf32>) {
    linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
        ins(%x : memref<?x64xf32>) outs(%y : memref<?xf32>) {
      ^bb0(%a: f32, %o: f32):
        %s = arith.addf %a, %o : f32
        linalg.yield %s : f32
    }
    return
  }
  // Integer division could trap in a lane that does not count: a scalar tail.
  // CHECK-LABEL: func.func @division
  // CHECK-NOT: mask
  // CHECK: arith.divsi {{.*}} : vector<16xi32>
  // CHECK: arith.divsi {{.*}} : i32
  func.func @division(%x: memref<?xi32>, %y: memref<?xi32>) {
    linalg.div ins(%x, %x : memref<?xi32>, memref<?xi32>) outs(%y : memref<?xi32>)
    return
  }

  // Rows without lanes, as no vector checks indices: one iteration has a row, and finds where that is by divisions.
  // CHECK-LABEL: func.func @rows
  // CHECK: scf.parallel
  // CHECK: arith.remui
  // CHECK: scf.for
  // CHECK-NOT: arith.remui
  // CHECK: attn.check_index
  // CHECK-NOT: vector
  // CHECK: return
  func.func @rows(%p: memref<?x?xi64>, %x: memref<?x?x512xf32>, %y: memref<?x?x?xf32>) {
    linalg.generic {indexing_maps = [affine_map<(h, i, j) -> (i, j)>, affine_map<(h, i, j) -> (h, i, j)>],
                    iterator_types = ["parallel", "parallel", "parallel"]}
        ins(%p : memref<?x?xi64>) outs(%y : memref<?x?x?xf32>) {
      ^bb0(%at: i64, %o: f32):
        %size = arith.constant 512 : index
        %h = linalg.index 0 : index
        %i = linalg.index 1 : index
        %index = arith.index_cast %at : i64 to index
        %k = attn.check_index %index, %size, "node" : index
        %v = memref.load %x[%h, %i, %k] : memref<?x?x512xf32>
        linalg.yield %v : f32
    }
    return
  }
  // What is computed with regions may depend on any index: nothing of it goes before the loop of a row.
  // CHECK-LABEL: func.func @regions
  // CHECK: scf.parallel
  // CHECK: scf.for
  // CHECK: scf.if
  // CHECK: math.exp
  // CHECK: memref.store
  // CHECK: return
  func.func @regions(%y: memref<?x?xf32>) {
    %one = arith.constant 1.0 : f32
    %two = arith.constant 2.0 : f32
    linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
        outs(%y : memref<?x?xf32>) {
      ^bb0(%o: f32):
        %j = linalg.index 1 : index
        %true = arith.constant true
        %v = scf.if %true -> f32 {
          %k = arith.index_cast %j : index to i32
          %f = arith.sitofp %k : i32 to f32
          scf.yield %f : f32
        } else {
          scf.yield %two : f32
        }
        %e = math.exp %v : f32
        linalg.yield %e : f32
    }
    return
  }
}

// -----

// Without masks: whole vectors, then a scalar loop.
// CHECK-LABEL: func.func @portable
// CHECK-NOT: mask
// CHECK: vector.load {{.*}} vector<4xf32>
// CHECK: memref.load
func.func @portable(%x: memref<?xf32>, %y: memref<?xf32>) {
  linalg.exp ins(%x : memref<?xf32>) outs(%y : memref<?xf32>)
  return
}
