// RUN: attn-opt %s --split-input-file --attn-move-to-host=allow=true | FileCheck %s
// RUN: not attn-opt %s --split-input-file --attn-move-to-host 2>&1 | FileCheck %s --check-prefix=REFUSED

// REFUSED: cannot run on the GPU: no code for the function 'cbrt' of f64; --allow-host-ops runs it on the CPU
// REFUSED-NOT: cannot run
// REFUSED: cannot run on the GPU: no code for the function 'erfc' of f64

// A function of f64, on a view of a buffer: all of the buffer is copied, and what is read alone does not come back.
// CHECK-LABEL: func.func @wave
// CHECK-SAME: %[[X:.*]]: memref<?x8xf64>, %[[Y:.*]]: memref<?xf64>
// CHECK: attn.host_workspace
// CHECK: attn.download %[[X]] to %[[A:.*]] : memref<?x8xf64>
// CHECK: attn.host_workspace
// CHECK: attn.download %[[Y]] to %[[B:.*]] : memref<?xf64>
// CHECK: attn.kernel @on_host ins(%{{.*}}, %[[A]] : index, memref<?x8xf64>) outs(%[[B]] : memref<?xf64>) {attn.on_host = "node 'w' (Cbrt)"}
// CHECK-NEXT: attn.upload %[[B]] to %[[Y]]
// CHECK-NOT: attn.upload
// CHECK: linalg.copy
// CHECK: func.func private @on_host(%{{.*}}: index, %[[A:.*]]: memref<?x8xf64>, %[[B:.*]]: memref<?xf64>) attributes {attn.kernel, attn.on_host
// CHECK: %[[V:.*]] = memref.subview %[[A]]
// CHECK: linalg.generic {{.*}} ins(%[[V]]
// CHECK: math.cbrt
func.func @wave(%x: memref<?x8xf64>, %y: memref<?xf64>, %n: index) attributes {attn.entry = "wave"} {
  %view = memref.subview %x[0, 0] [%n, 1] [1, 1] : memref<?x8xf64> to memref<?xf64, strided<[8]>>
  linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%view : memref<?xf64, strided<[8]>>) outs(%y : memref<?xf64>) {
  ^bb0(%a: f64, %o: f64):
    %s = math.cbrt %a : f64
    linalg.yield %s : f64
  } loc(#node)
  linalg.copy ins(%y : memref<?xf64>) outs(%y : memref<?xf64>)
  return
}
#node = loc("node 'w' (Cbrt)")

// -----

// f32 has code, and so have those of f64 that are instructions or become some.
// CHECK-LABEL: func.func @stays
// CHECK-NOT: attn.kernel
// CHECK: math.sin
// CHECK: math.sqrt
// CHECK: math.exp
func.func @stays(%x: memref<4xf32>, %y: memref<4xf64>) attributes {attn.entry = "stays"} {
  linalg.generic {indexing_maps = [affine_map<(i) -> (i)>], iterator_types = ["parallel"]} outs(%x : memref<4xf32>) {
  ^bb0(%o: f32):
    %s = math.sin %o : f32
    linalg.yield %s : f32
  }
  linalg.generic {indexing_maps = [affine_map<(i) -> (i)>], iterator_types = ["parallel"]} outs(%y : memref<4xf64>) {
  ^bb0(%o: f64):
    %r = math.sqrt %o : f64
    %s = math.exp %r : f64
    linalg.yield %s : f64
  }
  return
}

// -----

// What the op reads beside its operands goes along, numbers and tables of constants, too.
memref.global "private" constant @table : memref<2xf32> = dense<[1.0, 2.0]>
// CHECK-LABEL: func.func @products
// CHECK-SAME: %[[X:.*]]: memref<4xf32>, %[[N:.*]]: f32
// CHECK: attn.kernel @on_host ins(%[[N]] : f32) outs(
// CHECK: func.func private @on_host(%[[N:.*]]: f32, %
// CHECK: memref.get_global @table
// CHECK: math.erfc
func.func @products(%x: memref<4xf32>, %n: f32) attributes {attn.entry = "products"} {
  %table = memref.get_global @table : memref<2xf32>
  %c1 = arith.constant 1 : index
  linalg.generic {indexing_maps = [affine_map<(i) -> (i)>], iterator_types = ["parallel"]} outs(%x : memref<4xf32>) {
  ^bb0(%o: f32):
    %t = memref.load %table[%c1] : memref<2xf32>
    %w = arith.extf %o : f32 to f64
    %e = math.erfc %w : f64
    %v = arith.truncf %e : f64 to f32
    %r = arith.mulf %v, %n : f32
    %s = arith.addf %r, %t : f32
    linalg.yield %s : f32
  }
  return
}
