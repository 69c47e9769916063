// RUN: attn-opt %s -attn-widen-halves -split-input-file | FileCheck %s

// The example of the pass: a product with a stored weight, and what is added to it unrounded.
// CHECK-LABEL: func.func @product
// CHECK-SAME: %[[X:.+]]: tensor<?x8xf16>
// CHECK: %[[U:.+]] = linalg.generic {{.*}} ins(%[[X]] : tensor<?x8xf16>)
// CHECK-NEXT: ^bb0(%[[IN:.+]]: f16, %{{.+}}: f32):
// CHECK-NEXT: arith.extf %[[IN]] : f16 to f32
// CHECK: %[[W:.+]] = attn.weight @w_f32 : tensor<8x8xf32>
// CHECK: %[[C:.+]] = linalg.contract {{.*}} ins(%[[U]], %[[W]] : tensor<?x8xf32>, tensor<8x8xf32>)
// CHECK-NOT: arith.truncf
// CHECK: %[[S:.+]] = linalg.generic {{.*}} ins(%{{.+}}, %[[U]] : tensor<?x8xf32>, tensor<?x8xf32>)
// CHECK: arith.addf %{{.+}}, %{{.+}} : f32
// CHECK: %[[Y:.+]] = linalg.generic {{.*}} ins(%[[S]] : tensor<?x8xf32>)
// CHECK: arith.truncf %{{.+}} : f32 to f16
// CHECK: return %[[Y]] : tensor<?x8xf16>
// CHECK: attn.global @w_f32 : tensor<8x8xf32> = #attn.reshape<@w>
attn.global @w : tensor<8x8xf16> = #attn.initializer<"w">
func.func @product(%x: tensor<?x8xf16>) -> tensor<?x8xf16> {
  %c0 = arith.constant 0 : index
  %d = tensor.dim %x, %c0 : tensor<?x8xf16>
  %w = attn.weight @w : tensor<8x8xf16>
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty(%d) : tensor<?x8xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x8xf32>) -> tensor<?x8xf32>
  %c = linalg.contract indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>,
      affine_map<(m, n, k) -> (m, n)>] ins(%x, %w : tensor<?x8xf16>, tensor<8x8xf16>) outs(%z : tensor<?x8xf32>) -> tensor<?x8xf32>
  %h = tensor.empty(%d) : tensor<?x8xf16>
  %t = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]} ins(%c : tensor<?x8xf32>) outs(%h : tensor<?x8xf16>) {
  ^bb0(%a: f32, %o: f16):
    %r = arith.truncf %a : f32 to f16
    linalg.yield %r : f16
  } -> tensor<?x8xf16>
  %y = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>,
      affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      ins(%t, %x : tensor<?x8xf16>, tensor<?x8xf16>) outs(%h : tensor<?x8xf16>) {
  ^bb0(%a: f16, %b: f16, %o: f16):
    %s = arith.addf %a, %b : f16
    linalg.yield %s : f16
  } -> tensor<?x8xf16>
  return %y : tensor<?x8xf16>
}

// -----

// A cache and what is appended to it stay in 16 bits; who reads both widens them.
// CHECK-LABEL: func.func @cache
// CHECK: arith.negf %{{.+}} : f32
// CHECK: arith.truncf %{{.+}} : f32 to bf16
// CHECK: %[[K:.+]] = tensor.concat dim(0) %arg0, %{{.+}} : (tensor<?x4xbf16>, tensor<1x4xbf16>) -> tensor<?x4xbf16>
// CHECK: %[[WIDE:.+]] = linalg.generic {{.*}} ins(%[[K]] : tensor<?x4xbf16>)
// CHECK: arith.extf
// CHECK: attn.softmax %[[WIDE]] dim 1 : tensor<?x4xf32>
// CHECK: return %[[K]]
func.func @cache(%past: tensor<?x4xbf16>, %new: tensor<1x4xbf16>) -> (tensor<?x4xbf16>, tensor<?x4xbf16>) {
  %e = tensor.empty() : tensor<1x4xbf16>
  %n = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]} ins(%new : tensor<1x4xbf16>) outs(%e : tensor<1x4xbf16>) {
  ^bb0(%a: bf16, %o: bf16):
    %m = arith.negf %a : bf16
    linalg.yield %m : bf16
  } -> tensor<1x4xbf16>
  %k = tensor.concat dim(0) %past, %n : (tensor<?x4xbf16>, tensor<1x4xbf16>) -> tensor<?x4xbf16>
  %s = attn.softmax %k dim 1 : tensor<?x4xbf16>
  return %k, %s : tensor<?x4xbf16>, tensor<?x4xbf16>
}

// -----

// Views of what is computed are made in f32, a concatenation of such too.
// CHECK-LABEL: func.func @views
// CHECK: %[[S:.+]] = attn.softmax %{{.+}} dim 1 : tensor<2x4xf32>
// CHECK: %[[T:.+]] = linalg.transpose ins(%[[S]] : tensor<2x4xf32>)
// CHECK: %[[E:.+]] = tensor.expand_shape %[[T]] {{.*}} : tensor<4x2xf32> into tensor<2x2x2xf32>
// CHECK: %[[H:.+]] = tensor.extract_slice %[[E]]{{.*}} : tensor<2x2x2xf32> to tensor<1x2x2xf32>
// CHECK: %[[C:.+]] = tensor.concat dim(0) %[[H]], %[[E]] : (tensor<1x2x2xf32>, tensor<2x2x2xf32>) -> tensor<3x2x2xf32>
// CHECK: attn.softmax %[[C]] dim 2 : tensor<3x2x2xf32>
func.func @views(%x: tensor<2x4xf16>) -> tensor<3x2x2xf16> {
  %s = attn.softmax %x dim 1 : tensor<2x4xf16>
  %e = tensor.empty() : tensor<4x2xf16>
  %t = linalg.transpose ins(%s : tensor<2x4xf16>) outs(%e : tensor<4x2xf16>) permutation = [1, 0]
  %v = tensor.expand_shape %t [[0, 1], [2]] output_shape [2, 2, 2] : tensor<4x2xf16> into tensor<2x2x2xf16>
  %h = tensor.extract_slice %v[0, 0, 0] [1, 2, 2] [1, 1, 1] : tensor<2x2x2xf16> to tensor<1x2x2xf16>
  %c = tensor.concat dim(0) %h, %v : (tensor<1x2x2xf16>, tensor<2x2x2xf16>) -> tensor<3x2x2xf16>
  %r = attn.softmax %c dim 2 : tensor<3x2x2xf16>
  return %r : tensor<3x2x2xf16>
}

// -----

// A lookup in a table moves halves.
// CHECK-LABEL: func.func @lookup
// CHECK: %[[T:.+]] = attn.weight @table : tensor<100x4xf16>
// CHECK: tensor.extract %[[T]]
// CHECK: linalg.yield %{{.+}} : f16
// CHECK: arith.extf
// CHECK-NOT: attn.weight @table_f32
attn.global @table : tensor<100x4xf16> = #attn.initializer<"table">
func.func @lookup(%ids: tensor<3xi64>) -> tensor<3x4xf16> {
  %t = attn.weight @table : tensor<100x4xf16>
  %e = tensor.empty() : tensor<3x4xf16>
  %g = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]} ins(%ids : tensor<3xi64>) outs(%e : tensor<3x4xf16>) {
  ^bb0(%id: i64, %o: f16):
    %row = arith.index_cast %id : i64 to index
    %j = linalg.index 1 : index
    %v = tensor.extract %t[%row, %j] : tensor<100x4xf16>
    linalg.yield %v : f16
  } -> tensor<3x4xf16>
  %s = attn.softmax %g dim 1 : tensor<3x4xf16>
  return %s : tensor<3x4xf16>
}

// -----

// What is carried from one iteration to the next is stored.
// CHECK-LABEL: func.func @loop
// CHECK: scf.for {{.*}} iter_args(%[[C:.+]] = %arg0) -> (tensor<4xf16>)
// CHECK: arith.extf
// CHECK: math.tanh %{{.+}} : f32
// CHECK: arith.truncf
// CHECK: scf.yield %{{.+}} : tensor<4xf16>
func.func @loop(%x: tensor<4xf16>, %n: index) -> tensor<4xf16> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %e = tensor.empty() : tensor<4xf16>
  %r = scf.for %i = %c0 to %n step %c1 iter_args(%c = %x) -> (tensor<4xf16>) {
    %t = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
        iterator_types = ["parallel"]} ins(%c : tensor<4xf16>) outs(%e : tensor<4xf16>) {
    ^bb0(%a: f16, %o: f16):
      %m = math.tanh %a : f16
      linalg.yield %m : f16
    } -> tensor<4xf16>
    scf.yield %t : tensor<4xf16>
  }
  return %r : tensor<4xf16>
}

// -----

// A number of f64 is rounded once.
// CHECK-LABEL: func.func @doubles
// CHECK: arith.truncf %{{.+}} : f64 to f16
// CHECK: arith.extf %{{.+}} : f16 to f32
// CHECK: math.tanh %{{.+}} : f32
func.func @doubles(%x: tensor<4xf64>) -> tensor<4xf16> {
  %e = tensor.empty() : tensor<4xf16>
  %h = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
      iterator_types = ["parallel"]} ins(%x : tensor<4xf64>) outs(%e : tensor<4xf16>) {
  ^bb0(%a: f64, %o: f16):
    %m = arith.truncf %a : f64 to f16
    linalg.yield %m : f16
  } -> tensor<4xf16>
  %r = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
      iterator_types = ["parallel"]} ins(%h : tensor<4xf16>) outs(%e : tensor<4xf16>) {
  ^bb0(%a: f16, %o: f16):
    %m = math.tanh %a : f16
    linalg.yield %m : f16
  } -> tensor<4xf16>
  return %r : tensor<4xf16>
}

// -----

// Bits of halves are theirs: nothing is widened.
// CHECK-LABEL: func.func @bits
// CHECK: arith.bitcast %{{.+}} : f16 to i16
// CHECK-NOT: f32
func.func @bits(%x: tensor<4xf16>) -> tensor<4xi16> {
  %e = tensor.empty() : tensor<4xi16>
  %r = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
      iterator_types = ["parallel"]} ins(%x : tensor<4xf16>) outs(%e : tensor<4xi16>) {
  ^bb0(%a: f16, %o: i16):
    %m = arith.bitcast %a : f16 to i16
    linalg.yield %m : i16
  } -> tensor<4xi16>
  return %r : tensor<4xi16>
}

// -----

// A Cast of the graph rounds what was in f32.
// CHECK-LABEL: func.func @cast
// CHECK: %[[H:.+]] = linalg.generic {{.*}} ins(%arg0 : tensor<4xf32>) outs(%{{.+}} : tensor<4xbf16>)
// CHECK-NOT: attn.rounds
// CHECK: arith.truncf %{{.+}} : f32 to bf16
// CHECK: %[[W:.+]] = linalg.generic {{.*}} ins(%[[H]] : tensor<4xbf16>)
// CHECK: arith.extf
// CHECK: %[[Y:.+]] = linalg.generic {{.*}} ins(%[[W]] : tensor<4xf32>)
// CHECK: return %[[Y]] : tensor<4xf32>
func.func @cast(%x: tensor<4xf32>) -> tensor<4xf32> {
  %e = tensor.empty() : tensor<4xbf16>
  %h = linalg.generic {attn.rounds, indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
      iterator_types = ["parallel"]} ins(%x : tensor<4xf32>) outs(%e : tensor<4xbf16>) {
  ^bb0(%a: f32, %o: bf16):
    %r = arith.truncf %a : f32 to bf16
    linalg.yield %r : bf16
  } -> tensor<4xbf16>
  %f = tensor.empty() : tensor<4xf32>
  %y = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%h : tensor<4xbf16>) outs(%f : tensor<4xf32>) {
  ^bb0(%a: bf16, %o: f32):
    %r = arith.extf %a : bf16 to f32
    linalg.yield %r : f32
  } -> tensor<4xf32>
  return %y : tensor<4xf32>
}

// -----

// Near miss: what comes from such numbers and goes back to them is not rounded on the way.
// CHECK-LABEL: func.func @there_and_back
// CHECK: arith.negf %{{.+}} : f32
// CHECK-NOT: arith.truncf
// CHECK: math.exp %{{.+}} : f32
func.func @there_and_back(%x: tensor<4xf16>) -> tensor<4xf16> {
  %e = tensor.empty() : tensor<4xf16>
  %n = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%x : tensor<4xf16>) outs(%e : tensor<4xf16>) {
  ^bb0(%a: f16, %o: f16):
    %r = arith.negf %a : f16
    linalg.yield %r : f16
  } -> tensor<4xf16>
  %f = tensor.empty() : tensor<4xf32>
  %w = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%n : tensor<4xf16>) outs(%f : tensor<4xf32>) {
  ^bb0(%a: f16, %o: f32):
    %r = arith.extf %a : f16 to f32
    linalg.yield %r : f32
  } -> tensor<4xf32>
  %h = linalg.generic {attn.rounds, indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
      iterator_types = ["parallel"]} ins(%w : tensor<4xf32>) outs(%e : tensor<4xf16>) {
  ^bb0(%a: f32, %o: f16):
    %r = arith.truncf %a : f32 to f16
    linalg.yield %r : f16
  } -> tensor<4xf16>
  %y = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%h : tensor<4xf16>) outs(%e : tensor<4xf16>) {
  ^bb0(%a: f16, %o: f16):
    %r = math.exp %a : f16
    linalg.yield %r : f16
  } -> tensor<4xf16>
  return %y : tensor<4xf16>
}

// -----

// Numbers in blocks are computed in f32; their scales are stored as they were.
// CHECK-LABEL: func.func @blocks
// CHECK: %[[S:.+]] = attn.weight @scales_f32 : tensor<6x3xf32>
// CHECK: %[[W:.+]] = attn.dequantize_blocks %{{.+}} scales %[[S]] axis 1 block 32 bits 4 unsigned : tensor<6x80xi8> scales tensor<6x3xf32> -> tensor<6x80xf32>
// CHECK: linalg.contract {{.*}} ins(%{{.+}}, %[[W]] : tensor<2x80xf32>, tensor<6x80xf32>)
// CHECK: attn.global @scales_f32 : tensor<6x3xf32> = #attn.reshape<@scales>
attn.global @codes : tensor<6x80xi8> = #attn.initializer<"codes">
attn.global @scales : tensor<6x3xf16> = #attn.initializer<"scales">
func.func @blocks(%x: tensor<2x80xf16>) -> tensor<2x6xf32> {
  %q = attn.weight @codes : tensor<6x80xi8>
  %s = attn.weight @scales : tensor<6x3xf16>
  %w = attn.dequantize_blocks %q scales %s axis 1 block 32 bits 4 unsigned
      : tensor<6x80xi8> scales tensor<6x3xf16> -> tensor<6x80xf16>
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<2x6xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<2x6xf32>) -> tensor<2x6xf32>
  %y = linalg.contract indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>,
      affine_map<(m, n, k) -> (m, n)>] ins(%x, %w : tensor<2x80xf16>, tensor<6x80xf16>) outs(%f : tensor<2x6xf32>) -> tensor<2x6xf32>
  return %y : tensor<2x6xf32>
}

// -----

// What tells halves apart is no half.
// CHECK-LABEL: func.func @compared
// CHECK: %[[C:.+]] = arith.cmpf ogt, %[[A:.+]], %[[B:.+]] : f32
// CHECK: arith.select %[[C]], %[[A]], %[[B]] : f32
// CHECK: arith.truncf %{{.+}} : f32 to f16
func.func @compared(%x: tensor<4xf16>, %y: tensor<4xf16>) -> tensor<4xf16> {
  %e = tensor.empty() : tensor<4xf16>
  %m = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
      iterator_types = ["parallel"]} ins(%x, %y : tensor<4xf16>, tensor<4xf16>) outs(%e : tensor<4xf16>) {
  ^bb0(%a: f16, %b: f16, %o: f16):
    %c = arith.cmpf ogt, %a, %b : f16
    %r = arith.select %c, %a, %b : f16
    linalg.yield %r : f16
  } -> tensor<4xf16>
  return %m : tensor<4xf16>
}

// -----

// Of what is stored a part is widened, through a view, too, and of what the graph is given nothing before it is read.
// CHECK-LABEL: func.func @slices
// CHECK: %[[W:.+]] = attn.weight @rows_f32 : tensor<4x6xf32>
// CHECK: %[[V:.+]] = tensor.expand_shape %[[W]] {{.*}} : tensor<4x6xf32> into tensor<4x2x3xf32>
// CHECK: %[[P:.+]] = tensor.extract_slice %[[V]]{{.*}} : tensor<4x2x3xf32> to tensor<1x2x3xf32>
// CHECK: attn.softmax %[[P]] dim 2
// CHECK: tensor.extract_slice %arg0{{.*}} : tensor<4x2x3xf16> to tensor<1x2x3xf16>
attn.global @rows : tensor<4x6xf16> = #attn.initializer<"rows">
func.func @slices(%x: tensor<4x2x3xf16>) -> (tensor<1x2x3xf16>, tensor<1x2x3xf16>) {
  %w = attn.weight @rows : tensor<4x6xf16>
  %v = tensor.expand_shape %w [[0], [1, 2]] output_shape [4, 2, 3] : tensor<4x6xf16> into tensor<4x2x3xf16>
  %p = tensor.extract_slice %v[2, 0, 0] [1, 2, 3] [1, 1, 1] : tensor<4x2x3xf16> to tensor<1x2x3xf16>
  %s = attn.softmax %p dim 2 : tensor<1x2x3xf16>
  %u = tensor.extract_slice %x[2, 0, 0] [1, 2, 3] [1, 1, 1] : tensor<4x2x3xf16> to tensor<1x2x3xf16>
  %t = attn.softmax %u dim 2 : tensor<1x2x3xf16>
  return %s, %t : tensor<1x2x3xf16>, tensor<1x2x3xf16>
}

// -----

// What is repeated is widened before.
// CHECK-LABEL: func.func @repeated
// CHECK: %[[W:.+]] = linalg.generic {{.*}} ins(%arg0 : tensor<4xf16>) outs(%{{.+}} : tensor<4xf32>)
// CHECK: arith.extf
// CHECK: %[[R:.+]] = linalg.generic {{.*}} ins(%[[W]] : tensor<4xf32>) outs(%{{.+}} : tensor<3x4xf32>)
// CHECK: attn.softmax %[[R]] dim 1 : tensor<3x4xf32>
func.func @repeated(%x: tensor<4xf16>) -> tensor<3x4xf16> {
  %e = tensor.empty() : tensor<3x4xf16>
  %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (j)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]} ins(%x : tensor<4xf16>) outs(%e : tensor<3x4xf16>) {
  ^bb0(%a: f16, %o: f16):
    linalg.yield %a : f16
  } -> tensor<3x4xf16>
  %s = attn.softmax %r dim 1 : tensor<3x4xf16>
  return %s : tensor<3x4xf16>
}

// -----

#id = affine_map<(i, j) -> (i, j)>
// A fill is one of f32, of a constant or of what a run gives.
// CHECK-LABEL: func.func @fills
// CHECK-DAG: %[[C:.*]] = arith.constant 2.500000e+00 : f32
// CHECK-DAG: linalg.fill ins(%[[C]] : f32) outs(%{{.*}} : tensor<?x4xf32>)
// CHECK-DAG: %[[S:.*]] = arith.extf %arg1 : f16 to f32
// CHECK-DAG: linalg.fill ins(%[[S]] : f32) outs(%{{.*}} : tensor<?x4xf32>)
// CHECK: arith.addf {{.*}} : f32
// CHECK: arith.mulf {{.*}} : f32
func.func @fills(%x: tensor<?x4xf16>, %s: f16) -> tensor<?x4xf16> {
  %c0 = arith.constant 0 : index
  %number = arith.constant 2.5 : f16
  %n = tensor.dim %x, %c0 : tensor<?x4xf16>
  %e = tensor.empty(%n) : tensor<?x4xf16>
  %known = linalg.fill ins(%number : f16) outs(%e : tensor<?x4xf16>) -> tensor<?x4xf16>
  %given = linalg.fill ins(%s : f16) outs(%e : tensor<?x4xf16>) -> tensor<?x4xf16>
  %r = linalg.generic {indexing_maps = [#id, #id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x, %known, %given : tensor<?x4xf16>, tensor<?x4xf16>, tensor<?x4xf16>) outs(%e : tensor<?x4xf16>) {
  ^bb0(%a: f16, %b: f16, %c: f16, %out: f16):
    %sum = arith.addf %a, %b : f16
    %y = arith.mulf %sum, %c : f16
    linalg.yield %y : f16
  } -> tensor<?x4xf16>
  return %r : tensor<?x4xf16>
}

// -----

// What the graph sorts and chooses from in f32, between two conversions, is not rounded behind them: the threshold is
// one of the scores.
// CHECK-LABEL: func.func @threshold
// CHECK: attn.top_k
// CHECK-NOT: arith.truncf
// CHECK: arith.cmpf oge, %{{.+}}, %{{.+}} : f32
func.func @threshold(%x: tensor<4xf16>) -> tensor<4xi1> {
  %e = tensor.empty() : tensor<4xf16>
  %n = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%x : tensor<4xf16>) outs(%e : tensor<4xf16>) {
  ^bb0(%a: f16, %o: f16):
    %r = math.exp %a : f16
    linalg.yield %r : f16
  } -> tensor<4xf16>
  %f = tensor.empty() : tensor<4xf32>
  %w = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%n : tensor<4xf16>) outs(%f : tensor<4xf32>) {
  ^bb0(%a: f16, %o: f32):
    %r = arith.extf %a : f16 to f32
    linalg.yield %r : f32
  } -> tensor<4xf32>
  %four = arith.constant 4 : index
  %top:2 = attn.top_k %w, %four dim 0 : tensor<4xf32> -> tensor<4xf32>, tensor<4xi64>
  %m = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
      iterator_types = ["parallel"]} ins(%top#0, %w : tensor<4xf32>, tensor<4xf32>) outs(%f : tensor<4xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %r = arith.minimumf %a, %b : f32
    linalg.yield %r : f32
  } -> tensor<4xf32>
  %h = linalg.generic {attn.rounds, indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
      iterator_types = ["parallel"]} ins(%m : tensor<4xf32>) outs(%e : tensor<4xf16>) {
  ^bb0(%a: f32, %o: f16):
    %r = arith.truncf %a : f32 to f16
    linalg.yield %r : f16
  } -> tensor<4xf16>
  %b = tensor.empty() : tensor<4xi1>
  %y = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
      iterator_types = ["parallel"]} ins(%n, %h : tensor<4xf16>, tensor<4xf16>) outs(%b : tensor<4xi1>) {
  ^bb0(%a: f16, %c: f16, %o: i1):
    %r = arith.cmpf oge, %a, %c : f16
    linalg.yield %r : i1
  } -> tensor<4xi1>
  return %y : tensor<4xi1>
}

// -----

// Near miss: a number of f32 is among those that it chooses from.
// CHECK-LABEL: func.func @clipped
// CHECK: arith.maximumf
// CHECK: arith.truncf %{{.+}} : f32 to f16
func.func @clipped(%x: tensor<4xf16>, %least: f32) -> tensor<4xf16> {
  %e = tensor.empty() : tensor<4xf16>
  %n = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%x : tensor<4xf16>) outs(%e : tensor<4xf16>) {
  ^bb0(%a: f16, %o: f16):
    %r = math.exp %a : f16
    linalg.yield %r : f16
  } -> tensor<4xf16>
  %f = tensor.empty() : tensor<4xf32>
  %w = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%n : tensor<4xf16>) outs(%f : tensor<4xf32>) {
  ^bb0(%a: f16, %o: f32):
    %r = arith.extf %a : f16 to f32
    linalg.yield %r : f32
  } -> tensor<4xf32>
  %m = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%w : tensor<4xf32>) outs(%f : tensor<4xf32>) {
  ^bb0(%a: f32, %o: f32):
    %r = arith.maximumf %a, %least : f32
    linalg.yield %r : f32
  } -> tensor<4xf32>
  %h = linalg.generic {attn.rounds, indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
      iterator_types = ["parallel"]} ins(%m : tensor<4xf32>) outs(%e : tensor<4xf16>) {
  ^bb0(%a: f32, %o: f16):
    %r = arith.truncf %a : f32 to f16
    linalg.yield %r : f16
  } -> tensor<4xf16>
  %y = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%h : tensor<4xf16>) outs(%e : tensor<4xf16>) {
  ^bb0(%a: f16, %o: f16):
    %r = math.exp %a : f16
    linalg.yield %r : f16
  } -> tensor<4xf16>
  return %y : tensor<4xf16>
}
