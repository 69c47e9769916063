// RUN: attn-opt %s --attn-plan-memory --split-input-file --verify-diagnostics

func.func @kernel(%y: memref<4xf32>) attributes {attn.kernel} {
  // expected-error @+1 {{expects to stand in an entry, not in a kernel}}
  %a = memref.alloc() : memref<4xf32>
  linalg.exp ins(%a : memref<4xf32>) outs(%y : memref<4xf32>)
  return
}

// -----

func.func private @helper(%y: memref<4xf32>) {
  %c16 = arith.constant 16 : index
  // expected-error @+1 {{expects to stand in an entry, not in a kernel}}
  %a = attn.workspace %c16 : memref<?xi8>
  return
}

// -----

func.func @entry(%y: memref<4xf32>, %n: index) attributes {attn.entry} {
  scf.parallel (%i) = (%n) to (%n) step (%n) {
    // expected-error @+1 {{expects no allocation inside a parallel loop}}
    %a = memref.alloc() : memref<4xf32>
    memref.copy %a, %y : memref<4xf32> to memref<4xf32>
  }
  return
}
