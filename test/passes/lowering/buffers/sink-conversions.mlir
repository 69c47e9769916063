// RUN: attn-opt %s --attn-sink-conversions | FileCheck %s

// A cache that the exporter rounds at the front is rounded where it is appended to; one that the other result reads stays
// behind it.
// CHECK-LABEL: func.func @cache
// CHECK: %[[QUERY:.*]] = linalg.exp
// CHECK: linalg.generic {{.*}} ins(%arg0 : tensor<4x8xf32>)
// CHECK: arith.truncf
// CHECK: tensor.insert_slice
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @cache(%past: tensor<4x8xf32>, %new: tensor<4x1xf32>) -> (tensor<4x1xf32>, tensor<4x9xf16>) {
  %e = tensor.empty() : tensor<4x8xf16>
  %rounded = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%past : tensor<4x8xf32>) outs(%e : tensor<4x8xf16>) {
  ^bb0(%in: f32, %out: f16):
    %t = arith.truncf %in : f32 to f16
    linalg.yield %t : f16
  } -> tensor<4x8xf16>
  %q = tensor.empty() : tensor<4x1xf32>
  %query = linalg.exp ins(%new : tensor<4x1xf32>) outs(%q : tensor<4x1xf32>) -> tensor<4x1xf32>
  %whole = tensor.empty() : tensor<4x9xf16>
  %both = tensor.insert_slice %rounded into %whole[0, 0] [4, 8] [1, 1] : tensor<4x8xf16> into tensor<4x9xf16>
  return %query, %both : tensor<4x1xf32>, tensor<4x9xf16>
}

// Two results, one of which a region reads: in front of the loop, not in it.
// CHECK-LABEL: func.func @region
// CHECK: linalg.exp
// CHECK-NEXT: linalg.generic
// CHECK: scf.for
func.func @region(%past: tensor<4x8xf32>, %new: tensor<4x1xf32>, %n: index)
    -> (tensor<4x1xf32>, tensor<4x8xf32>, tensor<4x8xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %q = tensor.empty() : tensor<4x1xf32>
  %e = tensor.empty() : tensor<4x8xf32>
  %f = tensor.empty() : tensor<4x8xf32>
  %made:2 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%past : tensor<4x8xf32>) outs(%e, %f : tensor<4x8xf32>, tensor<4x8xf32>) {
  ^bb0(%in: f32, %out: f32, %other: f32):
    %t = arith.addf %in, %in : f32
    linalg.yield %in, %t : f32, f32
  } -> (tensor<4x8xf32>, tensor<4x8xf32>)
  %query = linalg.exp ins(%new : tensor<4x1xf32>) outs(%q : tensor<4x1xf32>) -> tensor<4x1xf32>
  %end = scf.for %i = %c0 to %n step %c1 iter_args(%state = %made#1) -> tensor<4x8xf32> {
    %sum = linalg.add ins(%made#0, %state : tensor<4x8xf32>, tensor<4x8xf32>) outs(%state : tensor<4x8xf32>) -> tensor<4x8xf32>
    scf.yield %sum : tensor<4x8xf32>
  }
  return %query, %end, %made#0 : tensor<4x1xf32>, tensor<4x8xf32>, tensor<4x8xf32>
}

// A state is read before it is overwritten, and before anything else writes to its tensor.
// CHECK-LABEL: func.func @state
// CHECK: linalg.generic {{.*}} ins(%{{.*}} : tensor<4x8xf32>)
// CHECK: linalg.exp
// CHECK: bufferization.materialize_in_destination
func.func @state(%memory: memref<4x8xf32>, %new: tensor<4x8xf32>) -> tensor<4x8xf16> {
  %given = bufferization.to_tensor %memory restrict writable : memref<4x8xf32> to tensor<4x8xf32>
  %e = tensor.empty() : tensor<4x8xf16>
  %rounded = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%given : tensor<4x8xf32>) outs(%e : tensor<4x8xf16>) {
  ^bb0(%in: f32, %out: f16):
    %t = arith.truncf %in : f32 to f16
    linalg.yield %t : f16
  } -> tensor<4x8xf16>
  %q = tensor.empty() : tensor<4x8xf32>
  %next = linalg.exp ins(%new : tensor<4x8xf32>) outs(%q : tensor<4x8xf32>) -> tensor<4x8xf32>
  bufferization.materialize_in_destination %next in restrict writable %memory : (tensor<4x8xf32>, memref<4x8xf32>) -> ()
  return %rounded : tensor<4x8xf16>
}

// Past an op that writes to memory nothing moves, of another input either.
// CHECK-LABEL: func.func @write
// CHECK: linalg.generic {{.*}} ins(%{{.*}} : tensor<4x8xf32>)
// CHECK: bufferization.materialize_in_destination
// CHECK: return
func.func @write(%memory: memref<4x8xf32>, %given: memref<4x8xf32>, %new: tensor<4x8xf32>) -> tensor<4x8xf16> {
  %x = bufferization.to_tensor %given restrict : memref<4x8xf32> to tensor<4x8xf32>
  %e = tensor.empty() : tensor<4x8xf16>
  %rounded = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<4x8xf32>) outs(%e : tensor<4x8xf16>) {
  ^bb0(%in: f32, %out: f16):
    %t = arith.truncf %in : f32 to f16
    linalg.yield %t : f16
  } -> tensor<4x8xf16>
  bufferization.materialize_in_destination %new in restrict writable %memory : (tensor<4x8xf32>, memref<4x8xf32>) -> ()
  return %rounded : tensor<4x8xf16>
}

// What the run computes stays where it is: below, its operand would live longer.
// CHECK-LABEL: func.func @computed
// CHECK: linalg.exp
// CHECK-NEXT: linalg.generic
// CHECK: linalg.exp
func.func @computed(%x: tensor<4x8xf32>, %new: tensor<4x1xf32>) -> (tensor<4x1xf32>, tensor<4x8xf16>) {
  %t = tensor.empty() : tensor<4x8xf32>
  %e = tensor.empty() : tensor<4x8xf16>
  %q = tensor.empty() : tensor<4x1xf32>
  %made = linalg.exp ins(%x : tensor<4x8xf32>) outs(%t : tensor<4x8xf32>) -> tensor<4x8xf32>
  %rounded = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%made : tensor<4x8xf32>) outs(%e : tensor<4x8xf16>) {
  ^bb0(%in: f32, %out: f16):
    %r = arith.truncf %in : f32 to f16
    linalg.yield %r : f16
  } -> tensor<4x8xf16>
  %query = linalg.exp ins(%new : tensor<4x1xf32>) outs(%q : tensor<4x1xf32>) -> tensor<4x1xf32>
  return %query, %rounded : tensor<4x1xf32>, tensor<4x8xf16>
}

// So does what reads a table in its body.
// CHECK-LABEL: func.func @lookup
// CHECK: linalg.generic
// CHECK: linalg.exp
func.func @lookup(%x: tensor<4x8xf32>, %new: tensor<4x1xf32>) -> (tensor<4x1xf32>, tensor<4x8xf32>) {
  %t = tensor.empty() : tensor<4x8xf32>
  %q = tensor.empty() : tensor<4x1xf32>
  %made = linalg.generic {indexing_maps = [#id], iterator_types = ["parallel", "parallel"]} outs(%t : tensor<4x8xf32>) {
  ^bb0(%out: f32):
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %v = tensor.extract %x[%i, %j] : tensor<4x8xf32>
    linalg.yield %v : f32
  } -> tensor<4x8xf32>
  %query = linalg.exp ins(%new : tensor<4x1xf32>) outs(%q : tensor<4x1xf32>) -> tensor<4x1xf32>
  return %query, %made : tensor<4x1xf32>, tensor<4x8xf32>
}
