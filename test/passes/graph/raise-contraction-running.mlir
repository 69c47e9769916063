// RUN: attn-opt %s -attn-raise-contraction -canonicalize -cse -split-input-file | FileCheck %s

#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
#one = affine_map<(i) -> (i)>
#q = affine_map<(i, j, d) -> (i, d)>
#k = affine_map<(i, j, d) -> (j, d)>
#s = affine_map<(i, j, d) -> (i, j)>
#w = affine_map<(i, e, j) -> (i, j)>
#v = affine_map<(i, e, j) -> (j, e)>
#o = affine_map<(i, e, j) -> (i, e)>
// Flash attention unrolled by hand: two blocks of keys, and the maximum so far.
// CHECK-LABEL: func.func @running
// CHECK-SAME: %[[Q:[^:]+]]: tensor<5x4xf32>, %[[K:[^:]+]]: tensor<8x4xf32>, %[[V:[^:]+]]: tensor<8x3xf32>
// CHECK: %[[S:.+]] = linalg.contract {{.*}} ins(%[[Q]], %[[K]] : tensor<5x4xf32>, tensor<8x4xf32>)
// CHECK: %[[W:.+]] = attn.softmax %[[S]] dim 1 : tensor<5x8xf32>
// CHECK: %[[Y:.+]] = linalg.contract {{.*}} ins(%[[W]], %[[V]] : tensor<5x8xf32>, tensor<8x3xf32>)
// CHECK: return %[[Y]]
func.func @running(%query: tensor<5x4xf32>, %keys: tensor<8x4xf32>, %values: tensor<8x3xf32>) -> tensor<5x3xf32> {
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %e = tensor.empty() : tensor<5xf32>
  %e3 = tensor.empty() : tensor<5x3xf32>
  %e6 = tensor.empty() : tensor<5x6xf32>
  %e2 = tensor.empty() : tensor<5x2xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<5xf32>) -> tensor<5xf32>
  %l = linalg.fill ins(%low : f32) outs(%e : tensor<5xf32>) -> tensor<5xf32>
  %f3 = linalg.fill ins(%zero : f32) outs(%e3 : tensor<5x3xf32>) -> tensor<5x3xf32>
  %f6 = linalg.fill ins(%zero : f32) outs(%e6 : tensor<5x6xf32>) -> tensor<5x6xf32>
  %f2 = linalg.fill ins(%zero : f32) outs(%e2 : tensor<5x2xf32>) -> tensor<5x2xf32>
  %k1 = tensor.extract_slice %keys[0, 0] [6, 4] [1, 1] : tensor<8x4xf32> to tensor<6x4xf32>
  %k2 = tensor.extract_slice %keys[6, 0] [2, 4] [1, 1] : tensor<8x4xf32> to tensor<2x4xf32>
  %v1 = tensor.extract_slice %values[0, 0] [6, 3] [1, 1] : tensor<8x3xf32> to tensor<6x3xf32>
  %v2 = tensor.extract_slice %values[6, 0] [2, 3] [1, 1] : tensor<8x3xf32> to tensor<2x3xf32>
  %s1 = linalg.contract indexing_maps = [#q, #k, #s] ins(%query, %k1 : tensor<5x4xf32>, tensor<6x4xf32>)
      outs(%f6 : tensor<5x6xf32>) -> tensor<5x6xf32>
  %m1 = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%s1 : tensor<5x6xf32>) outs(%l : tensor<5xf32>) {
  ^bb0(%p: f32, %o: f32):
    %r = arith.maximumf %o, %p : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %p1 = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%s1, %m1 : tensor<5x6xf32>, tensor<5xf32>) outs(%e6 : tensor<5x6xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %r = arith.subf %p, %q : f32
    %x = math.exp %r : f32
    linalg.yield %x : f32
  } -> tensor<5x6xf32>
  %t1 = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%p1 : tensor<5x6xf32>) outs(%f : tensor<5xf32>) {
  ^bb0(%p: f32, %o: f32):
    %r = arith.addf %o, %p : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %y1 = linalg.contract indexing_maps = [#w, #v, #o] ins(%p1, %v1 : tensor<5x6xf32>, tensor<6x3xf32>)
      outs(%f3 : tensor<5x3xf32>) -> tensor<5x3xf32>
  %s2 = linalg.contract indexing_maps = [#q, #k, #s] ins(%query, %k2 : tensor<5x4xf32>, tensor<2x4xf32>)
      outs(%f2 : tensor<5x2xf32>) -> tensor<5x2xf32>
  %h2 = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%s2 : tensor<5x2xf32>) outs(%l : tensor<5xf32>) {
  ^bb0(%p: f32, %o: f32):
    %r = arith.maximumf %o, %p : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %m2 = linalg.generic {indexing_maps = [#one, #one, #one], iterator_types = ["parallel"]}
      ins(%m1, %h2 : tensor<5xf32>, tensor<5xf32>) outs(%e : tensor<5xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %r = arith.maximumf %p, %q : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %p2 = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%s2, %m2 : tensor<5x2xf32>, tensor<5xf32>) outs(%e2 : tensor<5x2xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %r = arith.subf %p, %q : f32
    %x = math.exp %r : f32
    linalg.yield %x : f32
  } -> tensor<5x2xf32>
  %t2 = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%p2 : tensor<5x2xf32>) outs(%f : tensor<5xf32>) {
  ^bb0(%p: f32, %o: f32):
    %r = arith.addf %o, %p : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %y2 = linalg.contract indexing_maps = [#w, #v, #o] ins(%p2, %v2 : tensor<5x2xf32>, tensor<2x3xf32>)
      outs(%f3 : tensor<5x3xf32>) -> tensor<5x3xf32>
  %fade = linalg.generic {indexing_maps = [#one, #one, #one], iterator_types = ["parallel"]}
      ins(%m1, %m2 : tensor<5xf32>, tensor<5xf32>) outs(%e : tensor<5xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %r = arith.subf %p, %q : f32
    %x = math.exp %r : f32
    linalg.yield %x : f32
  } -> tensor<5xf32>
  %t3 = linalg.generic {indexing_maps = [#one, #one, #one], iterator_types = ["parallel"]}
      ins(%t1, %fade : tensor<5xf32>, tensor<5xf32>) outs(%e : tensor<5xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %r = arith.mulf %p, %q : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %t4 = linalg.generic {indexing_maps = [#one, #one, #one], iterator_types = ["parallel"]}
      ins(%t3, %t2 : tensor<5xf32>, tensor<5xf32>) outs(%e : tensor<5xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %r = arith.addf %p, %q : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %y3 = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%y1, %fade : tensor<5x3xf32>, tensor<5xf32>) outs(%e3 : tensor<5x3xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %r = arith.mulf %p, %q : f32
    linalg.yield %r : f32
  } -> tensor<5x3xf32>
  %y4 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%y3, %y2 : tensor<5x3xf32>, tensor<5x3xf32>) outs(%e3 : tensor<5x3xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %r = arith.addf %p, %q : f32
    linalg.yield %r : f32
  } -> tensor<5x3xf32>
  %y = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%y4, %t4 : tensor<5x3xf32>, tensor<5xf32>) outs(%e3 : tensor<5x3xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %r = arith.divf %p, %q : f32
    linalg.yield %r : f32
  } -> tensor<5x3xf32>
  return %y : tensor<5x3xf32>
}

// -----

#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
#one = affine_map<(i) -> (i)>
#q = affine_map<(i, j, d) -> (i, d)>
#k = affine_map<(i, j, d) -> (j, d)>
#s = affine_map<(i, j, d) -> (i, j)>
#w = affine_map<(i, e, j) -> (i, j)>
#v = affine_map<(i, e, j) -> (j, e)>
#o = affine_map<(i, e, j) -> (i, e)>
// The sum of the first block is not faded.
// CHECK-LABEL: func.func @fade
// CHECK-NOT: attn.softmax
// CHECK: return
func.func @fade(%query: tensor<5x4xf32>, %keys: tensor<8x4xf32>, %values: tensor<8x3xf32>) -> tensor<5x3xf32> {
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %e = tensor.empty() : tensor<5xf32>
  %e3 = tensor.empty() : tensor<5x3xf32>
  %e6 = tensor.empty() : tensor<5x6xf32>
  %e2 = tensor.empty() : tensor<5x2xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<5xf32>) -> tensor<5xf32>
  %l = linalg.fill ins(%low : f32) outs(%e : tensor<5xf32>) -> tensor<5xf32>
  %f3 = linalg.fill ins(%zero : f32) outs(%e3 : tensor<5x3xf32>) -> tensor<5x3xf32>
  %f6 = linalg.fill ins(%zero : f32) outs(%e6 : tensor<5x6xf32>) -> tensor<5x6xf32>
  %f2 = linalg.fill ins(%zero : f32) outs(%e2 : tensor<5x2xf32>) -> tensor<5x2xf32>
  %k1 = tensor.extract_slice %keys[0, 0] [6, 4] [1, 1] : tensor<8x4xf32> to tensor<6x4xf32>
  %k2 = tensor.extract_slice %keys[6, 0] [2, 4] [1, 1] : tensor<8x4xf32> to tensor<2x4xf32>
  %v1 = tensor.extract_slice %values[0, 0] [6, 3] [1, 1] : tensor<8x3xf32> to tensor<6x3xf32>
  %v2 = tensor.extract_slice %values[6, 0] [2, 3] [1, 1] : tensor<8x3xf32> to tensor<2x3xf32>
  %s1 = linalg.contract indexing_maps = [#q, #k, #s] ins(%query, %k1 : tensor<5x4xf32>, tensor<6x4xf32>)
      outs(%f6 : tensor<5x6xf32>) -> tensor<5x6xf32>
  %m1 = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%s1 : tensor<5x6xf32>) outs(%l : tensor<5xf32>) {
  ^bb0(%p: f32, %o: f32):
    %r = arith.maximumf %o, %p : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %p1 = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%s1, %m1 : tensor<5x6xf32>, tensor<5xf32>) outs(%e6 : tensor<5x6xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %r = arith.subf %p, %q : f32
    %x = math.exp %r : f32
    linalg.yield %x : f32
  } -> tensor<5x6xf32>
  %t1 = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%p1 : tensor<5x6xf32>) outs(%f : tensor<5xf32>) {
  ^bb0(%p: f32, %o: f32):
    %r = arith.addf %o, %p : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %y1 = linalg.contract indexing_maps = [#w, #v, #o] ins(%p1, %v1 : tensor<5x6xf32>, tensor<6x3xf32>)
      outs(%f3 : tensor<5x3xf32>) -> tensor<5x3xf32>
  %s2 = linalg.contract indexing_maps = [#q, #k, #s] ins(%query, %k2 : tensor<5x4xf32>, tensor<2x4xf32>)
      outs(%f2 : tensor<5x2xf32>) -> tensor<5x2xf32>
  %h2 = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%s2 : tensor<5x2xf32>) outs(%l : tensor<5xf32>) {
  ^bb0(%p: f32, %o: f32):
    %r = arith.maximumf %o, %p : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %m2 = linalg.generic {indexing_maps = [#one, #one, #one], iterator_types = ["parallel"]}
      ins(%m1, %h2 : tensor<5xf32>, tensor<5xf32>) outs(%e : tensor<5xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %r = arith.maximumf %p, %q : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %p2 = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%s2, %m2 : tensor<5x2xf32>, tensor<5xf32>) outs(%e2 : tensor<5x2xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %r = arith.subf %p, %q : f32
    %x = math.exp %r : f32
    linalg.yield %x : f32
  } -> tensor<5x2xf32>
  %t2 = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%p2 : tensor<5x2xf32>) outs(%f : tensor<5xf32>) {
  ^bb0(%p: f32, %o: f32):
    %r = arith.addf %o, %p : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %y2 = linalg.contract indexing_maps = [#w, #v, #o] ins(%p2, %v2 : tensor<5x2xf32>, tensor<2x3xf32>)
      outs(%f3 : tensor<5x3xf32>) -> tensor<5x3xf32>
  %fade = linalg.generic {indexing_maps = [#one, #one, #one], iterator_types = ["parallel"]}
      ins(%m1, %m2 : tensor<5xf32>, tensor<5xf32>) outs(%e : tensor<5xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %r = arith.subf %p, %q : f32
    %x = math.exp %r : f32
    linalg.yield %x : f32
  } -> tensor<5xf32>
  %t4 = linalg.generic {indexing_maps = [#one, #one, #one], iterator_types = ["parallel"]}
      ins(%t1, %t2 : tensor<5xf32>, tensor<5xf32>) outs(%e : tensor<5xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %r = arith.addf %p, %q : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %y3 = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%y1, %fade : tensor<5x3xf32>, tensor<5xf32>) outs(%e3 : tensor<5x3xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %r = arith.mulf %p, %q : f32
    linalg.yield %r : f32
  } -> tensor<5x3xf32>
  %y4 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%y3, %y2 : tensor<5x3xf32>, tensor<5x3xf32>) outs(%e3 : tensor<5x3xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %r = arith.addf %p, %q : f32
    linalg.yield %r : f32
  } -> tensor<5x3xf32>
  %y = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%y4, %t4 : tensor<5x3xf32>, tensor<5xf32>) outs(%e3 : tensor<5x3xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %r = arith.divf %p, %q : f32
    linalg.yield %r : f32
  } -> tensor<5x3xf32>
  return %y : tensor<5x3xf32>
}

// -----

#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
#one = affine_map<(i) -> (i)>
#q = affine_map<(i, j, d) -> (i, d)>
#k = affine_map<(i, j, d) -> (j, d)>
#s = affine_map<(i, j, d) -> (i, j)>
#w = affine_map<(i, e, j) -> (i, j)>
#v = affine_map<(i, e, j) -> (j, e)>
#o = affine_map<(i, e, j) -> (i, e)>
// The second block is measured from a maximum of its own.
// CHECK-LABEL: func.func @maximum
// CHECK-NOT: attn.softmax
// CHECK: return
func.func @maximum(%query: tensor<5x4xf32>, %keys: tensor<8x4xf32>, %values: tensor<8x3xf32>) -> tensor<5x3xf32> {
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %e = tensor.empty() : tensor<5xf32>
  %e3 = tensor.empty() : tensor<5x3xf32>
  %e6 = tensor.empty() : tensor<5x6xf32>
  %e2 = tensor.empty() : tensor<5x2xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<5xf32>) -> tensor<5xf32>
  %l = linalg.fill ins(%low : f32) outs(%e : tensor<5xf32>) -> tensor<5xf32>
  %f3 = linalg.fill ins(%zero : f32) outs(%e3 : tensor<5x3xf32>) -> tensor<5x3xf32>
  %f6 = linalg.fill ins(%zero : f32) outs(%e6 : tensor<5x6xf32>) -> tensor<5x6xf32>
  %f2 = linalg.fill ins(%zero : f32) outs(%e2 : tensor<5x2xf32>) -> tensor<5x2xf32>
  %k1 = tensor.extract_slice %keys[0, 0] [6, 4] [1, 1] : tensor<8x4xf32> to tensor<6x4xf32>
  %k2 = tensor.extract_slice %keys[6, 0] [2, 4] [1, 1] : tensor<8x4xf32> to tensor<2x4xf32>
  %v1 = tensor.extract_slice %values[0, 0] [6, 3] [1, 1] : tensor<8x3xf32> to tensor<6x3xf32>
  %v2 = tensor.extract_slice %values[6, 0] [2, 3] [1, 1] : tensor<8x3xf32> to tensor<2x3xf32>
  %s1 = linalg.contract indexing_maps = [#q, #k, #s] ins(%query, %k1 : tensor<5x4xf32>, tensor<6x4xf32>)
      outs(%f6 : tensor<5x6xf32>) -> tensor<5x6xf32>
  %m1 = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%s1 : tensor<5x6xf32>) outs(%l : tensor<5xf32>) {
  ^bb0(%p: f32, %o: f32):
    %r = arith.maximumf %o, %p : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %p1 = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%s1, %m1 : tensor<5x6xf32>, tensor<5xf32>) outs(%e6 : tensor<5x6xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %r = arith.subf %p, %q : f32
    %x = math.exp %r : f32
    linalg.yield %x : f32
  } -> tensor<5x6xf32>
  %t1 = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%p1 : tensor<5x6xf32>) outs(%f : tensor<5xf32>) {
  ^bb0(%p: f32, %o: f32):
    %r = arith.addf %o, %p : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %y1 = linalg.contract indexing_maps = [#w, #v, #o] ins(%p1, %v1 : tensor<5x6xf32>, tensor<6x3xf32>)
      outs(%f3 : tensor<5x3xf32>) -> tensor<5x3xf32>
  %s2 = linalg.contract indexing_maps = [#q, #k, #s] ins(%query, %k2 : tensor<5x4xf32>, tensor<2x4xf32>)
      outs(%f2 : tensor<5x2xf32>) -> tensor<5x2xf32>
  %h2 = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%s2 : tensor<5x2xf32>) outs(%l : tensor<5xf32>) {
  ^bb0(%p: f32, %o: f32):
    %r = arith.maximumf %o, %p : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %m2 = linalg.generic {indexing_maps = [#one, #one, #one], iterator_types = ["parallel"]}
      ins(%m1, %h2 : tensor<5xf32>, tensor<5xf32>) outs(%e : tensor<5xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %r = arith.maximumf %p, %q : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %p2 = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%s2, %h2 : tensor<5x2xf32>, tensor<5xf32>) outs(%e2 : tensor<5x2xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %r = arith.subf %p, %q : f32
    %x = math.exp %r : f32
    linalg.yield %x : f32
  } -> tensor<5x2xf32>
  %t2 = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%p2 : tensor<5x2xf32>) outs(%f : tensor<5xf32>) {
  ^bb0(%p: f32, %o: f32):
    %r = arith.addf %o, %p : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %y2 = linalg.contract indexing_maps = [#w, #v, #o] ins(%p2, %v2 : tensor<5x2xf32>, tensor<2x3xf32>)
      outs(%f3 : tensor<5x3xf32>) -> tensor<5x3xf32>
  %fade = linalg.generic {indexing_maps = [#one, #one, #one], iterator_types = ["parallel"]}
      ins(%m1, %m2 : tensor<5xf32>, tensor<5xf32>) outs(%e : tensor<5xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %r = arith.subf %p, %q : f32
    %x = math.exp %r : f32
    linalg.yield %x : f32
  } -> tensor<5xf32>
  %t3 = linalg.generic {indexing_maps = [#one, #one, #one], iterator_types = ["parallel"]}
      ins(%t1, %fade : tensor<5xf32>, tensor<5xf32>) outs(%e : tensor<5xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %r = arith.mulf %p, %q : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %t4 = linalg.generic {indexing_maps = [#one, #one, #one], iterator_types = ["parallel"]}
      ins(%t3, %t2 : tensor<5xf32>, tensor<5xf32>) outs(%e : tensor<5xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %r = arith.addf %p, %q : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %y3 = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%y1, %fade : tensor<5x3xf32>, tensor<5xf32>) outs(%e3 : tensor<5x3xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %r = arith.mulf %p, %q : f32
    linalg.yield %r : f32
  } -> tensor<5x3xf32>
  %y4 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%y3, %y2 : tensor<5x3xf32>, tensor<5x3xf32>) outs(%e3 : tensor<5x3xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %r = arith.addf %p, %q : f32
    linalg.yield %r : f32
  } -> tensor<5x3xf32>
  %y = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%y4, %t4 : tensor<5x3xf32>, tensor<5xf32>) outs(%e3 : tensor<5x3xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %r = arith.divf %p, %q : f32
    linalg.yield %r : f32
  } -> tensor<5x3xf32>
  return %y : tensor<5x3xf32>
}

// -----

#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
#one = affine_map<(i) -> (i)>
#q = affine_map<(i, j, d) -> (i, d)>
#k = affine_map<(i, j, d) -> (j, d)>
#s = affine_map<(i, j, d) -> (i, j)>
#w = affine_map<(i, e, j) -> (i, j)>
#v = affine_map<(i, e, j) -> (j, e)>
#o = affine_map<(i, e, j) -> (i, e)>
// The first block stands for the second in the sum.
// CHECK-LABEL: func.func @block
// CHECK-NOT: attn.softmax
// CHECK: return
func.func @block(%query: tensor<5x4xf32>, %keys: tensor<8x4xf32>, %values: tensor<8x3xf32>) -> tensor<5x3xf32> {
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %e = tensor.empty() : tensor<5xf32>
  %e3 = tensor.empty() : tensor<5x3xf32>
  %e6 = tensor.empty() : tensor<5x6xf32>
  %e2 = tensor.empty() : tensor<5x2xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<5xf32>) -> tensor<5xf32>
  %l = linalg.fill ins(%low : f32) outs(%e : tensor<5xf32>) -> tensor<5xf32>
  %f3 = linalg.fill ins(%zero : f32) outs(%e3 : tensor<5x3xf32>) -> tensor<5x3xf32>
  %f6 = linalg.fill ins(%zero : f32) outs(%e6 : tensor<5x6xf32>) -> tensor<5x6xf32>
  %f2 = linalg.fill ins(%zero : f32) outs(%e2 : tensor<5x2xf32>) -> tensor<5x2xf32>
  %k1 = tensor.extract_slice %keys[0, 0] [6, 4] [1, 1] : tensor<8x4xf32> to tensor<6x4xf32>
  %k2 = tensor.extract_slice %keys[6, 0] [2, 4] [1, 1] : tensor<8x4xf32> to tensor<2x4xf32>
  %v1 = tensor.extract_slice %values[0, 0] [6, 3] [1, 1] : tensor<8x3xf32> to tensor<6x3xf32>
  %v2 = tensor.extract_slice %values[6, 0] [2, 3] [1, 1] : tensor<8x3xf32> to tensor<2x3xf32>
  %s1 = linalg.contract indexing_maps = [#q, #k, #s] ins(%query, %k1 : tensor<5x4xf32>, tensor<6x4xf32>)
      outs(%f6 : tensor<5x6xf32>) -> tensor<5x6xf32>
  %m1 = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%s1 : tensor<5x6xf32>) outs(%l : tensor<5xf32>) {
  ^bb0(%p: f32, %o: f32):
    %r = arith.maximumf %o, %p : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %p1 = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%s1, %m1 : tensor<5x6xf32>, tensor<5xf32>) outs(%e6 : tensor<5x6xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %r = arith.subf %p, %q : f32
    %x = math.exp %r : f32
    linalg.yield %x : f32
  } -> tensor<5x6xf32>
  %t1 = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%p1 : tensor<5x6xf32>) outs(%f : tensor<5xf32>) {
  ^bb0(%p: f32, %o: f32):
    %r = arith.addf %o, %p : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %y1 = linalg.contract indexing_maps = [#w, #v, #o] ins(%p1, %v1 : tensor<5x6xf32>, tensor<6x3xf32>)
      outs(%f3 : tensor<5x3xf32>) -> tensor<5x3xf32>
  %s2 = linalg.contract indexing_maps = [#q, #k, #s] ins(%query, %k2 : tensor<5x4xf32>, tensor<2x4xf32>)
      outs(%f2 : tensor<5x2xf32>) -> tensor<5x2xf32>
  %h2 = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%s2 : tensor<5x2xf32>) outs(%l : tensor<5xf32>) {
  ^bb0(%p: f32, %o: f32):
    %r = arith.maximumf %o, %p : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %m2 = linalg.generic {indexing_maps = [#one, #one, #one], iterator_types = ["parallel"]}
      ins(%m1, %h2 : tensor<5xf32>, tensor<5xf32>) outs(%e : tensor<5xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %r = arith.maximumf %p, %q : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %p2 = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%s2, %m2 : tensor<5x2xf32>, tensor<5xf32>) outs(%e2 : tensor<5x2xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %r = arith.subf %p, %q : f32
    %x = math.exp %r : f32
    linalg.yield %x : f32
  } -> tensor<5x2xf32>
  %t2 = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%p2 : tensor<5x2xf32>) outs(%f : tensor<5xf32>) {
  ^bb0(%p: f32, %o: f32):
    %r = arith.addf %o, %p : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %y2 = linalg.contract indexing_maps = [#w, #v, #o] ins(%p2, %v2 : tensor<5x2xf32>, tensor<2x3xf32>)
      outs(%f3 : tensor<5x3xf32>) -> tensor<5x3xf32>
  %fade = linalg.generic {indexing_maps = [#one, #one, #one], iterator_types = ["parallel"]}
      ins(%m1, %m2 : tensor<5xf32>, tensor<5xf32>) outs(%e : tensor<5xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %r = arith.subf %p, %q : f32
    %x = math.exp %r : f32
    linalg.yield %x : f32
  } -> tensor<5xf32>
  %t3 = linalg.generic {indexing_maps = [#one, #one, #one], iterator_types = ["parallel"]}
      ins(%t1, %fade : tensor<5xf32>, tensor<5xf32>) outs(%e : tensor<5xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %r = arith.mulf %p, %q : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %t4 = linalg.generic {indexing_maps = [#one, #one, #one], iterator_types = ["parallel"]}
      ins(%t3, %t1 : tensor<5xf32>, tensor<5xf32>) outs(%e : tensor<5xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %r = arith.addf %p, %q : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %y3 = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%y1, %fade : tensor<5x3xf32>, tensor<5xf32>) outs(%e3 : tensor<5x3xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %r = arith.mulf %p, %q : f32
    linalg.yield %r : f32
  } -> tensor<5x3xf32>
  %y4 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%y3, %y2 : tensor<5x3xf32>, tensor<5x3xf32>) outs(%e3 : tensor<5x3xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %r = arith.addf %p, %q : f32
    linalg.yield %r : f32
  } -> tensor<5x3xf32>
  %y = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%y4, %t4 : tensor<5x3xf32>, tensor<5xf32>) outs(%e3 : tensor<5x3xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %r = arith.divf %p, %q : f32
    linalg.yield %r : f32
  } -> tensor<5x3xf32>
  return %y : tensor<5x3xf32>
}

// -----

#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
#one = affine_map<(i) -> (i)>
#q = affine_map<(i, j, d) -> (i, d)>
#k = affine_map<(i, j, d) -> (j, d)>
#s = affine_map<(i, j, d) -> (i, j)>
#w = affine_map<(i, e, j) -> (i, j)>
#v = affine_map<(i, e, j) -> (j, e)>
#o = affine_map<(i, e, j) -> (i, e)>
#wu = affine_map<(i, j) -> (i, j)>
#u = affine_map<(i, j) -> (j)>
#t = affine_map<(i, j) -> (i)>
// Weights are weighed in their sum.
// CHECK-LABEL: func.func @weighted
// CHECK-NOT: attn.softmax
// CHECK: return
func.func @weighted(%query: tensor<5x4xf32>, %keys: tensor<8x4xf32>, %values: tensor<8x3xf32>,
    %u: tensor<2xf32>) -> tensor<5x3xf32> {
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %e = tensor.empty() : tensor<5xf32>
  %e3 = tensor.empty() : tensor<5x3xf32>
  %e6 = tensor.empty() : tensor<5x6xf32>
  %e2 = tensor.empty() : tensor<5x2xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<5xf32>) -> tensor<5xf32>
  %l = linalg.fill ins(%low : f32) outs(%e : tensor<5xf32>) -> tensor<5xf32>
  %f3 = linalg.fill ins(%zero : f32) outs(%e3 : tensor<5x3xf32>) -> tensor<5x3xf32>
  %f6 = linalg.fill ins(%zero : f32) outs(%e6 : tensor<5x6xf32>) -> tensor<5x6xf32>
  %f2 = linalg.fill ins(%zero : f32) outs(%e2 : tensor<5x2xf32>) -> tensor<5x2xf32>
  %k1 = tensor.extract_slice %keys[0, 0] [6, 4] [1, 1] : tensor<8x4xf32> to tensor<6x4xf32>
  %k2 = tensor.extract_slice %keys[6, 0] [2, 4] [1, 1] : tensor<8x4xf32> to tensor<2x4xf32>
  %v1 = tensor.extract_slice %values[0, 0] [6, 3] [1, 1] : tensor<8x3xf32> to tensor<6x3xf32>
  %v2 = tensor.extract_slice %values[6, 0] [2, 3] [1, 1] : tensor<8x3xf32> to tensor<2x3xf32>
  %s1 = linalg.contract indexing_maps = [#q, #k, #s] ins(%query, %k1 : tensor<5x4xf32>, tensor<6x4xf32>)
      outs(%f6 : tensor<5x6xf32>) -> tensor<5x6xf32>
  %m1 = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%s1 : tensor<5x6xf32>) outs(%l : tensor<5xf32>) {
  ^bb0(%p: f32, %o: f32):
    %r = arith.maximumf %o, %p : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %p1 = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%s1, %m1 : tensor<5x6xf32>, tensor<5xf32>) outs(%e6 : tensor<5x6xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %r = arith.subf %p, %q : f32
    %x = math.exp %r : f32
    linalg.yield %x : f32
  } -> tensor<5x6xf32>
  %t1 = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%p1 : tensor<5x6xf32>) outs(%f : tensor<5xf32>) {
  ^bb0(%p: f32, %o: f32):
    %r = arith.addf %o, %p : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %y1 = linalg.contract indexing_maps = [#w, #v, #o] ins(%p1, %v1 : tensor<5x6xf32>, tensor<6x3xf32>)
      outs(%f3 : tensor<5x3xf32>) -> tensor<5x3xf32>
  %s2 = linalg.contract indexing_maps = [#q, #k, #s] ins(%query, %k2 : tensor<5x4xf32>, tensor<2x4xf32>)
      outs(%f2 : tensor<5x2xf32>) -> tensor<5x2xf32>
  %h2 = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%s2 : tensor<5x2xf32>) outs(%l : tensor<5xf32>) {
  ^bb0(%p: f32, %o: f32):
    %r = arith.maximumf %o, %p : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %m2 = linalg.generic {indexing_maps = [#one, #one, #one], iterator_types = ["parallel"]}
      ins(%m1, %h2 : tensor<5xf32>, tensor<5xf32>) outs(%e : tensor<5xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %r = arith.maximumf %p, %q : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %p2 = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%s2, %m2 : tensor<5x2xf32>, tensor<5xf32>) outs(%e2 : tensor<5x2xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %r = arith.subf %p, %q : f32
    %x = math.exp %r : f32
    linalg.yield %x : f32
  } -> tensor<5x2xf32>
  %t2 = linalg.contract indexing_maps = [#wu, #u, #t] ins(%p2, %u : tensor<5x2xf32>, tensor<2xf32>)
      outs(%f : tensor<5xf32>) -> tensor<5xf32>
  %y2 = linalg.contract indexing_maps = [#w, #v, #o] ins(%p2, %v2 : tensor<5x2xf32>, tensor<2x3xf32>)
      outs(%f3 : tensor<5x3xf32>) -> tensor<5x3xf32>
  %fade = linalg.generic {indexing_maps = [#one, #one, #one], iterator_types = ["parallel"]}
      ins(%m1, %m2 : tensor<5xf32>, tensor<5xf32>) outs(%e : tensor<5xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %r = arith.subf %p, %q : f32
    %x = math.exp %r : f32
    linalg.yield %x : f32
  } -> tensor<5xf32>
  %t3 = linalg.generic {indexing_maps = [#one, #one, #one], iterator_types = ["parallel"]}
      ins(%t1, %fade : tensor<5xf32>, tensor<5xf32>) outs(%e : tensor<5xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %r = arith.mulf %p, %q : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %t4 = linalg.generic {indexing_maps = [#one, #one, #one], iterator_types = ["parallel"]}
      ins(%t3, %t2 : tensor<5xf32>, tensor<5xf32>) outs(%e : tensor<5xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %r = arith.addf %p, %q : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %y3 = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%y1, %fade : tensor<5x3xf32>, tensor<5xf32>) outs(%e3 : tensor<5x3xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %r = arith.mulf %p, %q : f32
    linalg.yield %r : f32
  } -> tensor<5x3xf32>
  %y4 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%y3, %y2 : tensor<5x3xf32>, tensor<5x3xf32>) outs(%e3 : tensor<5x3xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %r = arith.addf %p, %q : f32
    linalg.yield %r : f32
  } -> tensor<5x3xf32>
  %y = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%y4, %t4 : tensor<5x3xf32>, tensor<5xf32>) outs(%e3 : tensor<5x3xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %r = arith.divf %p, %q : f32
    linalg.yield %r : f32
  } -> tensor<5x3xf32>
  return %y : tensor<5x3xf32>
}

// -----

#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
#one = affine_map<(i) -> (i)>
#q = affine_map<(i, j, d) -> (i, d)>
#k = affine_map<(i, j, d) -> (j, d)>
#s = affine_map<(i, j, d) -> (i, j)>
#w = affine_map<(i, e, j) -> (i, j)>
#v = affine_map<(i, e, j) -> (j, e)>
#o = affine_map<(i, e, j) -> (i, e)>
// The sum is over the first key of the block alone.
// CHECK-LABEL: func.func @part
// CHECK-NOT: attn.softmax
// CHECK: return
func.func @part(%query: tensor<5x4xf32>, %keys: tensor<8x4xf32>, %values: tensor<8x3xf32>) -> tensor<5x3xf32> {
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %e = tensor.empty() : tensor<5xf32>
  %e3 = tensor.empty() : tensor<5x3xf32>
  %e6 = tensor.empty() : tensor<5x6xf32>
  %e2 = tensor.empty() : tensor<5x2xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<5xf32>) -> tensor<5xf32>
  %l = linalg.fill ins(%low : f32) outs(%e : tensor<5xf32>) -> tensor<5xf32>
  %f3 = linalg.fill ins(%zero : f32) outs(%e3 : tensor<5x3xf32>) -> tensor<5x3xf32>
  %f6 = linalg.fill ins(%zero : f32) outs(%e6 : tensor<5x6xf32>) -> tensor<5x6xf32>
  %f2 = linalg.fill ins(%zero : f32) outs(%e2 : tensor<5x2xf32>) -> tensor<5x2xf32>
  %k1 = tensor.extract_slice %keys[0, 0] [6, 4] [1, 1] : tensor<8x4xf32> to tensor<6x4xf32>
  %k2 = tensor.extract_slice %keys[6, 0] [2, 4] [1, 1] : tensor<8x4xf32> to tensor<2x4xf32>
  %v1 = tensor.extract_slice %values[0, 0] [6, 3] [1, 1] : tensor<8x3xf32> to tensor<6x3xf32>
  %v2 = tensor.extract_slice %values[6, 0] [2, 3] [1, 1] : tensor<8x3xf32> to tensor<2x3xf32>
  %s1 = linalg.contract indexing_maps = [#q, #k, #s] ins(%query, %k1 : tensor<5x4xf32>, tensor<6x4xf32>)
      outs(%f6 : tensor<5x6xf32>) -> tensor<5x6xf32>
  %m1 = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%s1 : tensor<5x6xf32>) outs(%l : tensor<5xf32>) {
  ^bb0(%p: f32, %o: f32):
    %r = arith.maximumf %o, %p : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %p1 = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%s1, %m1 : tensor<5x6xf32>, tensor<5xf32>) outs(%e6 : tensor<5x6xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %r = arith.subf %p, %q : f32
    %x = math.exp %r : f32
    linalg.yield %x : f32
  } -> tensor<5x6xf32>
  %t1 = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%p1 : tensor<5x6xf32>) outs(%f : tensor<5xf32>) {
  ^bb0(%p: f32, %o: f32):
    %r = arith.addf %o, %p : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %y1 = linalg.contract indexing_maps = [#w, #v, #o] ins(%p1, %v1 : tensor<5x6xf32>, tensor<6x3xf32>)
      outs(%f3 : tensor<5x3xf32>) -> tensor<5x3xf32>
  %s2 = linalg.contract indexing_maps = [#q, #k, #s] ins(%query, %k2 : tensor<5x4xf32>, tensor<2x4xf32>)
      outs(%f2 : tensor<5x2xf32>) -> tensor<5x2xf32>
  %h2 = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%s2 : tensor<5x2xf32>) outs(%l : tensor<5xf32>) {
  ^bb0(%p: f32, %o: f32):
    %r = arith.maximumf %o, %p : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %m2 = linalg.generic {indexing_maps = [#one, #one, #one], iterator_types = ["parallel"]}
      ins(%m1, %h2 : tensor<5xf32>, tensor<5xf32>) outs(%e : tensor<5xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %r = arith.maximumf %p, %q : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %p2 = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%s2, %m2 : tensor<5x2xf32>, tensor<5xf32>) outs(%e2 : tensor<5x2xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %r = arith.subf %p, %q : f32
    %x = math.exp %r : f32
    linalg.yield %x : f32
  } -> tensor<5x2xf32>
  %c2 = tensor.extract_slice %p2[0, 0] [5, 1] [1, 1] : tensor<5x2xf32> to tensor<5x1xf32>
  %t2 = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%c2 : tensor<5x1xf32>) outs(%f : tensor<5xf32>) {
  ^bb0(%p: f32, %o: f32):
    %r = arith.addf %o, %p : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %y2 = linalg.contract indexing_maps = [#w, #v, #o] ins(%p2, %v2 : tensor<5x2xf32>, tensor<2x3xf32>)
      outs(%f3 : tensor<5x3xf32>) -> tensor<5x3xf32>
  %fade = linalg.generic {indexing_maps = [#one, #one, #one], iterator_types = ["parallel"]}
      ins(%m1, %m2 : tensor<5xf32>, tensor<5xf32>) outs(%e : tensor<5xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %r = arith.subf %p, %q : f32
    %x = math.exp %r : f32
    linalg.yield %x : f32
  } -> tensor<5xf32>
  %t3 = linalg.generic {indexing_maps = [#one, #one, #one], iterator_types = ["parallel"]}
      ins(%t1, %fade : tensor<5xf32>, tensor<5xf32>) outs(%e : tensor<5xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %r = arith.mulf %p, %q : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %t4 = linalg.generic {indexing_maps = [#one, #one, #one], iterator_types = ["parallel"]}
      ins(%t3, %t2 : tensor<5xf32>, tensor<5xf32>) outs(%e : tensor<5xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %r = arith.addf %p, %q : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %y3 = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%y1, %fade : tensor<5x3xf32>, tensor<5xf32>) outs(%e3 : tensor<5x3xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %r = arith.mulf %p, %q : f32
    linalg.yield %r : f32
  } -> tensor<5x3xf32>
  %y4 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%y3, %y2 : tensor<5x3xf32>, tensor<5x3xf32>) outs(%e3 : tensor<5x3xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %r = arith.addf %p, %q : f32
    linalg.yield %r : f32
  } -> tensor<5x3xf32>
  %y = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%y4, %t4 : tensor<5x3xf32>, tensor<5xf32>) outs(%e3 : tensor<5x3xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %r = arith.divf %p, %q : f32
    linalg.yield %r : f32
  } -> tensor<5x3xf32>
  return %y : tensor<5x3xf32>
}

// -----

#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
#one = affine_map<(i) -> (i)>
#q = affine_map<(i, j, d) -> (i, d)>
#k = affine_map<(i, j, d) -> (j, d)>
#s = affine_map<(i, j, d) -> (i, j)>
#w = affine_map<(i, e, j) -> (i, j)>
#v = affine_map<(i, e, j) -> (j, e)>
#o = affine_map<(i, e, j) -> (i, e)>
// The first rows of the result are divided.
// CHECK-LABEL: func.func @rows
// CHECK-NOT: attn.softmax
// CHECK: return
func.func @rows(%query: tensor<5x4xf32>, %keys: tensor<8x4xf32>, %values: tensor<8x3xf32>) -> tensor<3x3xf32> {
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %e = tensor.empty() : tensor<5xf32>
  %e3 = tensor.empty() : tensor<5x3xf32>
  %e6 = tensor.empty() : tensor<5x6xf32>
  %e2 = tensor.empty() : tensor<5x2xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<5xf32>) -> tensor<5xf32>
  %l = linalg.fill ins(%low : f32) outs(%e : tensor<5xf32>) -> tensor<5xf32>
  %f3 = linalg.fill ins(%zero : f32) outs(%e3 : tensor<5x3xf32>) -> tensor<5x3xf32>
  %f6 = linalg.fill ins(%zero : f32) outs(%e6 : tensor<5x6xf32>) -> tensor<5x6xf32>
  %f2 = linalg.fill ins(%zero : f32) outs(%e2 : tensor<5x2xf32>) -> tensor<5x2xf32>
  %k1 = tensor.extract_slice %keys[0, 0] [6, 4] [1, 1] : tensor<8x4xf32> to tensor<6x4xf32>
  %k2 = tensor.extract_slice %keys[6, 0] [2, 4] [1, 1] : tensor<8x4xf32> to tensor<2x4xf32>
  %v1 = tensor.extract_slice %values[0, 0] [6, 3] [1, 1] : tensor<8x3xf32> to tensor<6x3xf32>
  %v2 = tensor.extract_slice %values[6, 0] [2, 3] [1, 1] : tensor<8x3xf32> to tensor<2x3xf32>
  %s1 = linalg.contract indexing_maps = [#q, #k, #s] ins(%query, %k1 : tensor<5x4xf32>, tensor<6x4xf32>)
      outs(%f6 : tensor<5x6xf32>) -> tensor<5x6xf32>
  %m1 = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%s1 : tensor<5x6xf32>) outs(%l : tensor<5xf32>) {
  ^bb0(%p: f32, %o: f32):
    %r = arith.maximumf %o, %p : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %p1 = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%s1, %m1 : tensor<5x6xf32>, tensor<5xf32>) outs(%e6 : tensor<5x6xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %r = arith.subf %p, %q : f32
    %x = math.exp %r : f32
    linalg.yield %x : f32
  } -> tensor<5x6xf32>
  %t1 = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%p1 : tensor<5x6xf32>) outs(%f : tensor<5xf32>) {
  ^bb0(%p: f32, %o: f32):
    %r = arith.addf %o, %p : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %y1 = linalg.contract indexing_maps = [#w, #v, #o] ins(%p1, %v1 : tensor<5x6xf32>, tensor<6x3xf32>)
      outs(%f3 : tensor<5x3xf32>) -> tensor<5x3xf32>
  %s2 = linalg.contract indexing_maps = [#q, #k, #s] ins(%query, %k2 : tensor<5x4xf32>, tensor<2x4xf32>)
      outs(%f2 : tensor<5x2xf32>) -> tensor<5x2xf32>
  %h2 = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%s2 : tensor<5x2xf32>) outs(%l : tensor<5xf32>) {
  ^bb0(%p: f32, %o: f32):
    %r = arith.maximumf %o, %p : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %m2 = linalg.generic {indexing_maps = [#one, #one, #one], iterator_types = ["parallel"]}
      ins(%m1, %h2 : tensor<5xf32>, tensor<5xf32>) outs(%e : tensor<5xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %r = arith.maximumf %p, %q : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %p2 = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%s2, %m2 : tensor<5x2xf32>, tensor<5xf32>) outs(%e2 : tensor<5x2xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %r = arith.subf %p, %q : f32
    %x = math.exp %r : f32
    linalg.yield %x : f32
  } -> tensor<5x2xf32>
  %t2 = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%p2 : tensor<5x2xf32>) outs(%f : tensor<5xf32>) {
  ^bb0(%p: f32, %o: f32):
    %r = arith.addf %o, %p : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %y2 = linalg.contract indexing_maps = [#w, #v, #o] ins(%p2, %v2 : tensor<5x2xf32>, tensor<2x3xf32>)
      outs(%f3 : tensor<5x3xf32>) -> tensor<5x3xf32>
  %fade = linalg.generic {indexing_maps = [#one, #one, #one], iterator_types = ["parallel"]}
      ins(%m1, %m2 : tensor<5xf32>, tensor<5xf32>) outs(%e : tensor<5xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %r = arith.subf %p, %q : f32
    %x = math.exp %r : f32
    linalg.yield %x : f32
  } -> tensor<5xf32>
  %t3 = linalg.generic {indexing_maps = [#one, #one, #one], iterator_types = ["parallel"]}
      ins(%t1, %fade : tensor<5xf32>, tensor<5xf32>) outs(%e : tensor<5xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %r = arith.mulf %p, %q : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %t4 = linalg.generic {indexing_maps = [#one, #one, #one], iterator_types = ["parallel"]}
      ins(%t3, %t2 : tensor<5xf32>, tensor<5xf32>) outs(%e : tensor<5xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %r = arith.addf %p, %q : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %y3 = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%y1, %fade : tensor<5x3xf32>, tensor<5xf32>) outs(%e3 : tensor<5x3xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %r = arith.mulf %p, %q : f32
    linalg.yield %r : f32
  } -> tensor<5x3xf32>
  %y4 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%y3, %y2 : tensor<5x3xf32>, tensor<5x3xf32>) outs(%e3 : tensor<5x3xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %r = arith.addf %p, %q : f32
    linalg.yield %r : f32
  } -> tensor<5x3xf32>
  %c4 = tensor.extract_slice %y4[0, 0] [3, 3] [1, 1] : tensor<5x3xf32> to tensor<3x3xf32>
  %d4 = tensor.extract_slice %t4[0] [3] [1] : tensor<5xf32> to tensor<3xf32>
  %ec = tensor.empty() : tensor<3x3xf32>
  %y = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%c4, %d4 : tensor<3x3xf32>, tensor<3xf32>) outs(%ec : tensor<3x3xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %r = arith.divf %p, %q : f32
    linalg.yield %r : f32
  } -> tensor<3x3xf32>
  return %y : tensor<3x3xf32>
}

// -----

#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
#one = affine_map<(i) -> (i)>
#w = affine_map<(i, e, j) -> (i, j)>
#v = affine_map<(i, e, j) -> (j, e)>
#o = affine_map<(i, e, j) -> (i, e)>
// Any number of its row is subtracted from a score.
// CHECK-LABEL: func.func @shift
// CHECK: attn.softmax %{{.+}} dim 1 : tensor<5x8xf32>
// CHECK: return
func.func @shift(%s1: tensor<5x6xf32>, %s2: tensor<5x2xf32>, %m: tensor<5xf32>, %v1: tensor<6x3xf32>, %v2: tensor<2x3xf32>)
    -> tensor<5x3xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<5xf32>
  %e3 = tensor.empty() : tensor<5x3xf32>
  %e6 = tensor.empty() : tensor<5x6xf32>
  %e2 = tensor.empty() : tensor<5x2xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<5xf32>) -> tensor<5xf32>
  %f3 = linalg.fill ins(%zero : f32) outs(%e3 : tensor<5x3xf32>) -> tensor<5x3xf32>
  %p1 = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%s1, %m : tensor<5x6xf32>, tensor<5xf32>) outs(%e6 : tensor<5x6xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %r = arith.subf %p, %q : f32
    %x = math.exp %r : f32
    linalg.yield %x : f32
  } -> tensor<5x6xf32>
  %p2 = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%s2, %m : tensor<5x2xf32>, tensor<5xf32>) outs(%e2 : tensor<5x2xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %r = arith.subf %p, %q : f32
    %x = math.exp %r : f32
    linalg.yield %x : f32
  } -> tensor<5x2xf32>
  %t1 = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%p1 : tensor<5x6xf32>) outs(%f : tensor<5xf32>) {
  ^bb0(%p: f32, %o: f32):
    %r = arith.addf %o, %p : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %t2 = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%p2 : tensor<5x2xf32>) outs(%f : tensor<5xf32>) {
  ^bb0(%p: f32, %o: f32):
    %r = arith.addf %o, %p : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %y1 = linalg.contract indexing_maps = [#w, #v, #o] ins(%p1, %v1 : tensor<5x6xf32>, tensor<6x3xf32>)
      outs(%f3 : tensor<5x3xf32>) -> tensor<5x3xf32>
  %y2 = linalg.contract indexing_maps = [#w, #v, #o] ins(%p2, %v2 : tensor<5x2xf32>, tensor<2x3xf32>)
      outs(%f3 : tensor<5x3xf32>) -> tensor<5x3xf32>
  %t = linalg.generic {indexing_maps = [#one, #one, #one], iterator_types = ["parallel"]}
      ins(%t1, %t2 : tensor<5xf32>, tensor<5xf32>) outs(%e : tensor<5xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %r = arith.addf %p, %q : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %y = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%y1, %y2 : tensor<5x3xf32>, tensor<5x3xf32>) outs(%e3 : tensor<5x3xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %r = arith.addf %p, %q : f32
    linalg.yield %r : f32
  } -> tensor<5x3xf32>
  %d = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%y, %t : tensor<5x3xf32>, tensor<5xf32>) outs(%e3 : tensor<5x3xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %r = arith.divf %p, %q : f32
    linalg.yield %r : f32
  } -> tensor<5x3xf32>
  %g = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%d : tensor<5x3xf32>) outs(%e3 : tensor<5x3xf32>) {
  ^bb0(%p: f32, %o: f32):
    %r = arith.negf %p : f32
    linalg.yield %r : f32
  } -> tensor<5x3xf32>
  return %g : tensor<5x3xf32>
}

// -----

#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
#one = affine_map<(i) -> (i)>
#w = affine_map<(i, e, j) -> (i, j)>
#v = affine_map<(i, e, j) -> (j, e)>
#o = affine_map<(i, e, j) -> (i, e)>
// Its exponentials may overflow, and the graph replaces those rows.
// CHECK-LABEL: func.func @guarded
// CHECK-NOT: attn.softmax
// CHECK: return
func.func @guarded(%s1: tensor<5x6xf32>, %s2: tensor<5x2xf32>, %m: tensor<5xf32>, %v1: tensor<6x3xf32>, %v2: tensor<2x3xf32>)
    -> tensor<5x3xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<5xf32>
  %e3 = tensor.empty() : tensor<5x3xf32>
  %e6 = tensor.empty() : tensor<5x6xf32>
  %e2 = tensor.empty() : tensor<5x2xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<5xf32>) -> tensor<5xf32>
  %f3 = linalg.fill ins(%zero : f32) outs(%e3 : tensor<5x3xf32>) -> tensor<5x3xf32>
  %p1 = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%s1, %m : tensor<5x6xf32>, tensor<5xf32>) outs(%e6 : tensor<5x6xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %r = arith.subf %p, %q : f32
    %x = math.exp %r : f32
    linalg.yield %x : f32
  } -> tensor<5x6xf32>
  %p2 = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%s2, %m : tensor<5x2xf32>, tensor<5xf32>) outs(%e2 : tensor<5x2xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %r = arith.subf %p, %q : f32
    %x = math.exp %r : f32
    linalg.yield %x : f32
  } -> tensor<5x2xf32>
  %t1 = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%p1 : tensor<5x6xf32>) outs(%f : tensor<5xf32>) {
  ^bb0(%p: f32, %o: f32):
    %r = arith.addf %o, %p : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %t2 = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%p2 : tensor<5x2xf32>) outs(%f : tensor<5xf32>) {
  ^bb0(%p: f32, %o: f32):
    %r = arith.addf %o, %p : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %y1 = linalg.contract indexing_maps = [#w, #v, #o] ins(%p1, %v1 : tensor<5x6xf32>, tensor<6x3xf32>)
      outs(%f3 : tensor<5x3xf32>) -> tensor<5x3xf32>
  %y2 = linalg.contract indexing_maps = [#w, #v, #o] ins(%p2, %v2 : tensor<5x2xf32>, tensor<2x3xf32>)
      outs(%f3 : tensor<5x3xf32>) -> tensor<5x3xf32>
  %t = linalg.generic {indexing_maps = [#one, #one, #one], iterator_types = ["parallel"]}
      ins(%t1, %t2 : tensor<5xf32>, tensor<5xf32>) outs(%e : tensor<5xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %r = arith.addf %p, %q : f32
    linalg.yield %r : f32
  } -> tensor<5xf32>
  %y = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%y1, %y2 : tensor<5x3xf32>, tensor<5x3xf32>) outs(%e3 : tensor<5x3xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %r = arith.addf %p, %q : f32
    linalg.yield %r : f32
  } -> tensor<5x3xf32>
  %d = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%y, %t : tensor<5x3xf32>, tensor<5xf32>) outs(%e3 : tensor<5x3xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %r = arith.divf %p, %q : f32
    linalg.yield %r : f32
  } -> tensor<5x3xf32>
  %g = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%d : tensor<5x3xf32>) outs(%e3 : tensor<5x3xf32>) {
  ^bb0(%p: f32, %o: f32):
    %n = arith.cmpf uno, %p, %p : f32
    %r = arith.select %n, %zero, %p : f32
    linalg.yield %r : f32
  } -> tensor<5x3xf32>
  return %g : tensor<5x3xf32>
}
