// RUN: attn-opt %s --attn-separate-host | FileCheck %s

// What the host reads is fetched; what it writes is written by a launch of one thread.
// CHECK-LABEL: func.func @main
// CHECK-SAME: %[[N:.*]]: memref<1xindex>, %[[Y:.*]]: memref<8xf32>
// CHECK: %[[AT:.*]] = attn.fetch %[[N]]
// CHECK: gpu.launch blocks
// CHECK: memref.store %{{.*}}, %[[Y]][%[[AT]]]
// CHECK: gpu.terminator
func.func @main(%n: memref<1xindex>, %y: memref<8xf32>) attributes {attn.entry = "main"} {
  %c0 = arith.constant 0 : index
  %one = arith.constant 1.0 : f32
  %at = memref.load %n[%c0] : memref<1xindex>
  memref.store %one, %y[%at] : memref<8xf32>
  return
}

// Near misses: a table of constants and memory of its own stack are where the host is, and what stands in a launch runs
// on the device.
// CHECK-LABEL: func.func @on_host
// CHECK-NOT: attn.fetch
// CHECK: memref.load %{{.*}} : memref<2xindex>
// CHECK-NEXT: memref.store %{{.*}} : memref<2xindex>
// CHECK: gpu.launch
// CHECK-NEXT: memref.load
// CHECK-NEXT: memref.store
// CHECK-NEXT: gpu.terminator
// CHECK-NOT: gpu.launch
memref.global "private" constant @table : memref<2xindex> = dense<[1, 2]>
func.func @on_host(%x: memref<8xf32>, %y: memref<8xf32>) attributes {attn.entry = "on_host"} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %t = memref.get_global @table : memref<2xindex>
  %own = memref.alloca() : memref<2xindex>
  %v = memref.load %t[%c1] : memref<2xindex>
  memref.store %v, %own[%c0] : memref<2xindex>
  gpu.launch blocks(%a, %b, %c) in (%ga = %c1, %gb = %c1, %gc = %c1) threads(%i, %j, %k) in (%ti = %c1, %tj = %c1, %tk = %c1) {
    %w = memref.load %x[%i] : memref<8xf32>
    memref.store %w, %y[%i] : memref<8xf32>
    gpu.terminator
  }
  return
}
