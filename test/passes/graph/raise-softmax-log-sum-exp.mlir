// RUN: attn-opt %s -attn-raise-softmax -split-input-file | FileCheck %s

#all = affine_map<(a, i, x, y) -> (a, i, x, y)>
#row = affine_map<(a, i, x, y) -> (a, i)>
// exp(s - (log(sum(exp(s - m))) + m)) over two dimensions, m the maximum where it is finite, chosen by products.
// CHECK-LABEL: func.func @two_dimensions
// CHECK-SAME: %[[S:[^:]+]]: tensor<?x5x3x4xf32>
// CHECK: %[[MERGED:.+]] = tensor.collapse_shape %[[S]] {{\[}}[0], [1], [2, 3]]
// CHECK: %[[P:.+]] = attn.softmax %[[MERGED]] dim 2 : tensor<?x5x12xf32>
// CHECK: %[[R:.+]] = tensor.expand_shape %[[P]] {{\[}}[0], [1], [2, 3]]
// CHECK: return %[[R]]
func.func @two_dimensions(%s: tensor<?x5x3x4xf32>, %a: index) -> tensor<?x5x3x4xf32> {
  %zero = arith.constant 0.0 : f32
  %lowest = arith.constant 0xFF800000 : f32
  %e = tensor.empty(%a) : tensor<?x5x3x4xf32>
  %re = tensor.empty(%a) : tensor<?x5xf32>
  %least = linalg.fill ins(%lowest : f32) outs(%re : tensor<?x5xf32>) -> tensor<?x5xf32>
  %none = linalg.fill ins(%zero : f32) outs(%re : tensor<?x5xf32>) -> tensor<?x5xf32>
  %max = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%s : tensor<?x5x3x4xf32>) outs(%least : tensor<?x5xf32>) {
  ^bb0(%x: f32, %o: f32):
    %y = arith.maximumf %x, %o : f32
    linalg.yield %y : f32
  } -> tensor<?x5xf32>
  %shift = linalg.generic {indexing_maps = [affine_map<(a, i) -> (a, i)>, affine_map<(a, i) -> (a, i)>],
      iterator_types = ["parallel", "parallel"]} ins(%max : tensor<?x5xf32>) outs(%re : tensor<?x5xf32>) {
  ^bb0(%x: f32, %o: f32):
    %finite = arith.cmpf one, %x, %lowest : f32
    %infinite = arith.cmpf oeq, %x, %lowest : f32
    %one = arith.uitofp %finite : i1 to f32
    %other = arith.uitofp %infinite : i1 to f32
    %kept = arith.mulf %one, %x : f32
    %nothing = arith.mulf %other, %zero : f32
    %y = arith.addf %kept, %nothing : f32
    linalg.yield %y : f32
  } -> tensor<?x5xf32>
  %exp = linalg.generic {indexing_maps = [#all, #row, #all], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%s, %shift : tensor<?x5x3x4xf32>, tensor<?x5xf32>) outs(%e : tensor<?x5x3x4xf32>) {
  ^bb0(%x: f32, %m: f32, %o: f32):
    %d = arith.subf %x, %m : f32
    %y = math.exp %d : f32
    linalg.yield %y : f32
  } -> tensor<?x5x3x4xf32>
  %sum = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%exp : tensor<?x5x3x4xf32>) outs(%none : tensor<?x5xf32>) {
  ^bb0(%x: f32, %o: f32):
    %y = arith.addf %x, %o : f32
    linalg.yield %y : f32
  } -> tensor<?x5xf32>
  %lse = linalg.generic {indexing_maps = [affine_map<(a, i) -> (a, i)>, affine_map<(a, i) -> (a, i)>, affine_map<(a, i) -> (a, i)>],
      iterator_types = ["parallel", "parallel"]} ins(%sum, %shift : tensor<?x5xf32>, tensor<?x5xf32>) outs(%re : tensor<?x5xf32>) {
  ^bb0(%x: f32, %m: f32, %o: f32):
    %l = math.log %x : f32
    %y = arith.addf %l, %m : f32
    linalg.yield %y : f32
  } -> tensor<?x5xf32>
  %d = linalg.generic {indexing_maps = [#all, #row, #all], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%s, %lse : tensor<?x5x3x4xf32>, tensor<?x5xf32>) outs(%e : tensor<?x5x3x4xf32>) {
  ^bb0(%x: f32, %l: f32, %o: f32):
    %y = arith.subf %x, %l : f32
    linalg.yield %y : f32
  } -> tensor<?x5x3x4xf32>
  %p = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%d : tensor<?x5x3x4xf32>) outs(%e : tensor<?x5x3x4xf32>) {
  ^bb0(%x: f32, %o: f32):
    %y = math.exp %x : f32
    linalg.yield %y : f32
  } -> tensor<?x5x3x4xf32>
  return %p : tensor<?x5x3x4xf32>
}

// -----

#all = affine_map<(a, i, x, y) -> (a, i, x, y)>
#row = affine_map<(a, i, x, y) -> (a, i)>
// What is added is not what was subtracted.
// CHECK-LABEL: func.func @another_shift
// CHECK-NOT: attn.softmax
func.func @another_shift(%s: tensor<?x5x3x4xf32>, %a: index) -> tensor<?x5x3x4xf32> {
  %zero = arith.constant 0.0 : f32
  %lowest = arith.constant 0xFF800000 : f32
  %e = tensor.empty(%a) : tensor<?x5x3x4xf32>
  %re = tensor.empty(%a) : tensor<?x5xf32>
  %least = linalg.fill ins(%lowest : f32) outs(%re : tensor<?x5xf32>) -> tensor<?x5xf32>
  %none = linalg.fill ins(%zero : f32) outs(%re : tensor<?x5xf32>) -> tensor<?x5xf32>
  %max = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%s : tensor<?x5x3x4xf32>) outs(%least : tensor<?x5xf32>) {
  ^bb0(%x: f32, %o: f32):
    %y = arith.maximumf %x, %o : f32
    linalg.yield %y : f32
  } -> tensor<?x5xf32>
  %shift = linalg.generic {indexing_maps = [affine_map<(a, i) -> (a, i)>, affine_map<(a, i) -> (a, i)>],
      iterator_types = ["parallel", "parallel"]} ins(%max : tensor<?x5xf32>) outs(%re : tensor<?x5xf32>) {
  ^bb0(%x: f32, %o: f32):
    %finite = arith.cmpf one, %x, %lowest : f32
    %infinite = arith.cmpf oeq, %x, %lowest : f32
    %one = arith.uitofp %finite : i1 to f32
    %other = arith.uitofp %infinite : i1 to f32
    %kept = arith.mulf %one, %x : f32
    %nothing = arith.mulf %other, %zero : f32
    %y = arith.addf %kept, %nothing : f32
    linalg.yield %y : f32
  } -> tensor<?x5xf32>
  %exp = linalg.generic {indexing_maps = [#all, #row, #all], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%s, %shift : tensor<?x5x3x4xf32>, tensor<?x5xf32>) outs(%e : tensor<?x5x3x4xf32>) {
  ^bb0(%x: f32, %m: f32, %o: f32):
    %d = arith.subf %x, %m : f32
    %y = math.exp %d : f32
    linalg.yield %y : f32
  } -> tensor<?x5x3x4xf32>
  %sum = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%exp : tensor<?x5x3x4xf32>) outs(%none : tensor<?x5xf32>) {
  ^bb0(%x: f32, %o: f32):
    %y = arith.addf %x, %o : f32
    linalg.yield %y : f32
  } -> tensor<?x5xf32>
  %lse = linalg.generic {indexing_maps = [affine_map<(a, i) -> (a, i)>, affine_map<(a, i) -> (a, i)>, affine_map<(a, i) -> (a, i)>],
      iterator_types = ["parallel", "parallel"]} ins(%sum, %max : tensor<?x5xf32>, tensor<?x5xf32>) outs(%re : tensor<?x5xf32>) {
  ^bb0(%x: f32, %m: f32, %o: f32):
    %l = math.log %x : f32
    %y = arith.addf %l, %m : f32
    linalg.yield %y : f32
  } -> tensor<?x5xf32>
  %d = linalg.generic {indexing_maps = [#all, #row, #all], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%s, %lse : tensor<?x5x3x4xf32>, tensor<?x5xf32>) outs(%e : tensor<?x5x3x4xf32>) {
  ^bb0(%x: f32, %l: f32, %o: f32):
    %y = arith.subf %x, %l : f32
    linalg.yield %y : f32
  } -> tensor<?x5x3x4xf32>
  %p = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%d : tensor<?x5x3x4xf32>) outs(%e : tensor<?x5x3x4xf32>) {
  ^bb0(%x: f32, %o: f32):
    %y = math.exp %x : f32
    linalg.yield %y : f32
  } -> tensor<?x5x3x4xf32>
  return %p : tensor<?x5x3x4xf32>
}

// -----

#all = affine_map<(a, i, x, y) -> (a, i, x, y)>
#row = affine_map<(a, i, x, y) -> (a, i)>
// Half of the maximum: exponentials may overflow, and the weights are 0 then.
// CHECK-LABEL: func.func @no_maximum
// CHECK-NOT: attn.softmax
func.func @no_maximum(%s: tensor<?x5x3x4xf32>, %a: index) -> tensor<?x5x3x4xf32> {
  %zero = arith.constant 0.0 : f32
  %lowest = arith.constant 0xFF800000 : f32
  %e = tensor.empty(%a) : tensor<?x5x3x4xf32>
  %re = tensor.empty(%a) : tensor<?x5xf32>
  %least = linalg.fill ins(%lowest : f32) outs(%re : tensor<?x5xf32>) -> tensor<?x5xf32>
  %none = linalg.fill ins(%zero : f32) outs(%re : tensor<?x5xf32>) -> tensor<?x5xf32>
  %max = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%s : tensor<?x5x3x4xf32>) outs(%least : tensor<?x5xf32>) {
  ^bb0(%x: f32, %o: f32):
    %y = arith.maximumf %x, %o : f32
    linalg.yield %y : f32
  } -> tensor<?x5xf32>
  %shift = linalg.generic {indexing_maps = [affine_map<(a, i) -> (a, i)>, affine_map<(a, i) -> (a, i)>],
      iterator_types = ["parallel", "parallel"]} ins(%max : tensor<?x5xf32>) outs(%re : tensor<?x5xf32>) {
  ^bb0(%x: f32, %o: f32):
    %finite = arith.cmpf one, %x, %lowest : f32
    %infinite = arith.cmpf oeq, %x, %lowest : f32
    %one = arith.constant 0.5 : f32
    %other = arith.uitofp %infinite : i1 to f32
    %kept = arith.mulf %one, %x : f32
    %nothing = arith.mulf %other, %zero : f32
    %y = arith.addf %kept, %nothing : f32
    linalg.yield %y : f32
  } -> tensor<?x5xf32>
  %exp = linalg.generic {indexing_maps = [#all, #row, #all], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%s, %shift : tensor<?x5x3x4xf32>, tensor<?x5xf32>) outs(%e : tensor<?x5x3x4xf32>) {
  ^bb0(%x: f32, %m: f32, %o: f32):
    %d = arith.subf %x, %m : f32
    %y = math.exp %d : f32
    linalg.yield %y : f32
  } -> tensor<?x5x3x4xf32>
  %sum = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%exp : tensor<?x5x3x4xf32>) outs(%none : tensor<?x5xf32>) {
  ^bb0(%x: f32, %o: f32):
    %y = arith.addf %x, %o : f32
    linalg.yield %y : f32
  } -> tensor<?x5xf32>
  %lse = linalg.generic {indexing_maps = [affine_map<(a, i) -> (a, i)>, affine_map<(a, i) -> (a, i)>, affine_map<(a, i) -> (a, i)>],
      iterator_types = ["parallel", "parallel"]} ins(%sum, %shift : tensor<?x5xf32>, tensor<?x5xf32>) outs(%re : tensor<?x5xf32>) {
  ^bb0(%x: f32, %m: f32, %o: f32):
    %l = math.log %x : f32
    %y = arith.addf %l, %m : f32
    linalg.yield %y : f32
  } -> tensor<?x5xf32>
  %d = linalg.generic {indexing_maps = [#all, #row, #all], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%s, %lse : tensor<?x5x3x4xf32>, tensor<?x5xf32>) outs(%e : tensor<?x5x3x4xf32>) {
  ^bb0(%x: f32, %l: f32, %o: f32):
    %y = arith.subf %x, %l : f32
    linalg.yield %y : f32
  } -> tensor<?x5x3x4xf32>
  %p = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%d : tensor<?x5x3x4xf32>) outs(%e : tensor<?x5x3x4xf32>) {
  ^bb0(%x: f32, %o: f32):
    %y = math.exp %x : f32
    linalg.yield %y : f32
  } -> tensor<?x5x3x4xf32>
  return %p : tensor<?x5x3x4xf32>
}
