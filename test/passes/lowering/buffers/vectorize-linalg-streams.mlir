// RUN: attn-opt %s --attn-vectorize-linalg | FileCheck %s
#t512 = #attn.target<triple = "x86_64-unknown-linux-gnu", cpu = "x86-64-v4", features = "", isa = "avx512", l1 = 1, l2 = 1048576>
#id = affine_map<(i, j, k) -> (i, j, k)>

module attributes {attn.target = #t512} {
  // A cache that goes back to the caller, and that nothing here reads: positions and their elements are one long row, cut
  // into pieces, whose vectors are aligned and pass the caches by. A fence ends each piece.
  // CHECK-LABEL: func.func @cache
  // CHECK: scf.parallel
  // CHECK-NOT: scf.parallel
  // CHECK: scf.for
  // CHECK: vector.load {{.*}} vector<16xf32>
  // CHECK: vector.store %{{[0-9]+}}, %{{.*}}] : memref<12x32768xf16>
  // CHECK: vector.store {{.*}} {alignment = 64 : i64, nontemporal = true} : memref<12x32768xf32, strided<[32832, 1]>>
  // CHECK: }
  // CHECK-NEXT: llvm.fence seq_cst
  // CHECK-NEXT: scf.reduce
  func.func @cache(%past: memref<12x512x64xf32>, %half: memref<12x512x64xf16>) attributes {attn.entry} {
    %y = attn.output 0 () : memref<12x513x64xf32>
    %part = memref.subview %y[0, 0, 0] [12, 512, 64] [1, 1, 1] : memref<12x513x64xf32> to memref<12x512x64xf32, strided<[32832, 64, 1]>>
    linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel", "parallel"]}
        ins(%past : memref<12x512x64xf32>) outs(%half, %part : memref<12x512x64xf16>, memref<12x512x64xf32, strided<[32832, 64, 1]>>) {
    ^bb0(%in: f32, %h: f16, %out: f32):
      %t = arith.truncf %in : f32 to f16
      %w = arith.extf %t : f16 to f32
      linalg.yield %t, %w : f16, f32
    }
    return
  }
  // What is read afterwards should be in the caches.
  // CHECK-LABEL: func.func @read
  // CHECK-NOT: nontemporal
  // CHECK-NOT: llvm.fence
  func.func @read(%past: memref<12x512x64xf32>, %z: memref<12x513x64xf32>) attributes {attn.entry} {
    %y = attn.output 0 () : memref<12x513x64xf32>
    %part = memref.subview %y[0, 0, 0] [12, 512, 64] [1, 1, 1] : memref<12x513x64xf32> to memref<12x512x64xf32, strided<[32832, 64, 1]>>
    linalg.copy ins(%past : memref<12x512x64xf32>) outs(%part : memref<12x512x64xf32, strided<[32832, 64, 1]>>)
    linalg.exp ins(%y : memref<12x513x64xf32>) outs(%z : memref<12x513x64xf32>)
    return
  }
  // So should what fits.
  // CHECK-LABEL: func.func @fits
  // CHECK-NOT: nontemporal
  func.func @fits(%past: memref<2x512x64xf32>) attributes {attn.entry} {
    %y = attn.output 0 () : memref<2x513x64xf32>
    %part = memref.subview %y[0, 0, 0] [2, 512, 64] [1, 1, 1] : memref<2x513x64xf32> to memref<2x512x64xf32, strided<[32832, 64, 1]>>
    linalg.copy ins(%past : memref<2x512x64xf32>) outs(%part : memref<2x512x64xf32, strided<[32832, 64, 1]>>)
    return
  }
  // Vectors that are not aligned to their size cannot: here the second row of 8 elements.
  // CHECK-LABEL: func.func @unaligned
  // CHECK-NOT: nontemporal
  func.func @unaligned(%past: memref<12x512x72xf32>) attributes {attn.entry} {
    %y = attn.output 0 () : memref<12x513x72xf32>
    %part = memref.subview %y[0, 1, 0] [12, 512, 72] [1, 1, 1] : memref<12x513x72xf32> to memref<12x512x72xf32, strided<[36936, 72, 1], offset: 72>>
    linalg.copy ins(%past : memref<12x512x72xf32>) outs(%part : memref<12x512x72xf32, strided<[36936, 72, 1], offset: 72>>)
    return
  }
  // Rows that stand apart stay short, and a fence after each would cost more than it saves.
  // CHECK-LABEL: func.func @short
  // CHECK-NOT: nontemporal
  func.func @short(%past: memref<12x512x64xf32>) attributes {attn.entry} {
    %y = attn.output 0 () : memref<12x512x128xf32>
    %part = memref.subview %y[0, 0, 0] [12, 512, 64] [1, 1, 1] : memref<12x512x128xf32> to memref<12x512x64xf32, strided<[65536, 128, 1]>>
    linalg.copy ins(%past : memref<12x512x64xf32>) outs(%part : memref<12x512x64xf32, strided<[65536, 128, 1]>>)
    return
  }
}
