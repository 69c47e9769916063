// RUN: attn-opt %s --attn-vectorize-linalg --split-input-file | FileCheck %s
#t512 = #attn.target<triple = "x86_64-unknown-linux-gnu", cpu = "x86-64-v4", features = "", isa = "avx512", l1 = 1, l2 = 1>
#sum = affine_map<(i, c, k) -> (i, c)>
#term = affine_map<(i, c, k) -> (i, k)>

module attributes {attn.target = #t512} {
  // Rows of two vectors: both are summed in one loop, and where a term is read and what it weighs is computed once.
  // CHECK-LABEL: func.func @two
  // CHECK-COUNT-2: vector.load
  // CHECK: scf.for {{.*}} iter_args({{.*}}) -> (vector<16xf32>, vector<16xf32>)
  // CHECK-COUNT-2: math.exp {{.*}} : f32
  // CHECK-NOT: math.exp
  // CHECK: scf.yield {{.*}} : vector<16xf32>, vector<16xf32>
  // CHECK-COUNT-2: vector.store
  // CHECK: return
  func.func @two(%p: memref<7x3xi64>, %w: memref<7x3xf32>, %x: memref<50x32xf32>, %y: memref<7x32xf32>) {
    linalg.generic {indexing_maps = [#term, #term, #sum], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%p, %w : memref<7x3xi64>, memref<7x3xf32>) outs(%y : memref<7x32xf32>) {
      ^bb0(%a: i64, %b: f32, %o: f32):
        %c = linalg.index 1 : index
        %at = arith.index_cast %a : i64 to index
        %v = memref.load %x[%at, %c] : memref<50x32xf32>
        %e = math.exp %b : f32
        %f = math.exp %e : f32
        %t = arith.mulf %v, %f : f32
        %s = arith.addf %o, %t : f32
        linalg.yield %s : f32
    }
    return
  }
  // Near misses: five vectors, and a rest. One vector after the other.
  // CHECK-LABEL: func.func @others
  // CHECK-COUNT-2: scf.for {{.*}} iter_args({{.*}}) -> (vector<16xf32>) {
  // CHECK: return
  func.func @others(%p: memref<7x3xi64>, %w: memref<7x3xf32>, %x: memref<50x80xf32>, %y: memref<7x80xf32>, %z: memref<7x33xf32>) {
    linalg.generic {indexing_maps = [#term, #term, #sum], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%p, %w : memref<7x3xi64>, memref<7x3xf32>) outs(%y : memref<7x80xf32>) {
      ^bb0(%a: i64, %b: f32, %o: f32):
        %c = linalg.index 1 : index
        %at = arith.index_cast %a : i64 to index
        %v = memref.load %x[%at, %c] : memref<50x80xf32>
        %e = math.exp %b : f32
        %f = math.exp %e : f32
        %t = arith.mulf %v, %f : f32
        %s = arith.addf %o, %t : f32
        linalg.yield %s : f32
    }
    linalg.generic {indexing_maps = [#term, #term, #sum], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%p, %w : memref<7x3xi64>, memref<7x3xf32>) outs(%z : memref<7x33xf32>) {
      ^bb0(%a: i64, %b: f32, %o: f32):
        %c = linalg.index 1 : index
        %at = arith.index_cast %a : i64 to index
        %v = memref.load %x[%at, %c] : memref<50x80xf32>
        %e = math.exp %b : f32
        %f = math.exp %e : f32
        %t = arith.mulf %v, %f : f32
        %s = arith.addf %o, %t : f32
        linalg.yield %s : f32
    }
    return
  }
}
