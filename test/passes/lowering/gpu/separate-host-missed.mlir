// RUN: attn-opt %s --attn-separate-host --verify-diagnostics

// What has no kernel is refused, and named.
func.func @main(%x: memref<?xf32>, %n: index) attributes {attn.entry = "main"} {
  // expected-error@+1 {{cannot run on the GPU: 'attn.grow' has no kernel}}
  %y = attn.grow %x to %n dim 0 : memref<?xf32>
  return
}
