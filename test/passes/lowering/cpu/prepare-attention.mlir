// RUN: attn-opt %s --attn-prepare-attention -split-input-file | FileCheck %s
// RUN: attn-opt %s --attn-prepare-attention -split-input-file --remarks-filter=attn-prepare-attention \
// RUN:   --remark-format=emitRemark -o /dev/null 2>&1 | FileCheck %s --check-prefix=REMARK

#q = affine_map<(b, h, i, j, d, e) -> (b, i, h, d)>
#k = affine_map<(b, h, i, j, d, e) -> (b, j, d, h)>
#kt = affine_map<(b, h, i, j, d, e) -> (b, h, d, j)>
#v = affine_map<(b, h, i, j, d, e) -> (b, j, h, e)>
#o = affine_map<(b, h, i, j, d, e) -> (b, i, h, e)>

// Heads innermost in the key: a copy, said twice. A transposed key is a form of its own.
// CHECK-DAG: #[[K:.+]] = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d3, d1, d4)>
// CHECK: attn.fusion_report = [{copies = ["key"], form = "dot", fused = true, node = "node 'a' (MatMul)"}, {form = "dot-columns", fused = true, node = "node 'b' (MatMul)"}]
// CHECK-LABEL: func.func @dot
// CHECK: %[[T:.+]] = linalg.transpose ins(%{{.+}} : tensor<?x?x32x12xf32>) outs(%{{.+}} : tensor<?x?x12x32xf32>) permutation = [0, 1, 3, 2]
// CHECK: attn.attention masked_rows nan maps [#{{.+}}, #[[K]], #{{.+}}, #{{.+}}] ins(%{{.+}}, %[[T]], %{{.+}} :
// CHECK: attn.form = "dot"
// CHECK-NOT: linalg.transpose
// CHECK: attn.form = "dot-columns"
// REMARK: remark: {{.*}}[Passed] Form {{.*}}copies the key: batch or heads stand innermost in it
// REMARK-NOT: copies the key
module attributes {attn.fusion_report = [{fused = true, node = "node 'a' (MatMul)"}, {fused = true, node = "node 'b' (MatMul)"}]} {
  func.func @dot(%q: tensor<?x?x12x32xf32>, %k: tensor<?x?x32x12xf32>, %kt: tensor<?x12x32x?xf32>,
                 %v: tensor<?x?x12x32xf32>) -> (tensor<?x?x12x32xf32>, tensor<?x?x12x32xf32>) {
    %x = attn.attention masked_rows nan maps [#q, #k, #v, #o]
        ins(%q, %k, %v : tensor<?x?x12x32xf32>, tensor<?x?x32x12xf32>, tensor<?x?x12x32xf32>) -> tensor<?x?x12x32xf32>
      score {
      ^bb0(%s: f32):
        attn.yield %s : f32
      } loc("node 'a' (MatMul)")
    %y = attn.attention masked_rows nan maps [#q, #kt, #v, #o]
        ins(%q, %kt, %v : tensor<?x?x12x32xf32>, tensor<?x12x32x?xf32>, tensor<?x?x12x32xf32>) -> tensor<?x?x12x32xf32>
      score {
      ^bb0(%s: f32):
        attn.yield %s : f32
      } loc("node 'b' (MatMul)")
    return %x, %y : tensor<?x?x12x32xf32>, tensor<?x?x12x32xf32>
  }
}

// -----

#q = affine_map<(b, h, i, j, d, e) -> (b, i, h, d)>
#k = affine_map<(b, h, i, j, d, e) -> (b, j, h, d)>
#v = affine_map<(b, h, i, j, d, e) -> (b, j, h, e)>
#s = affine_map<(b, h, i, j, d, e) -> (b, h, j, i)>
#a = affine_map<(b, h, i, j, d, e) -> (d)>
#l = affine_map<(b, h, i, j, d, e) -> (i)>
#o = affine_map<(b, h, i, j, d, e) -> (b, i, h, e)>

// One query; width 1 with heads innermost, which is no reason to copy; column-wise scores; neighbours.
// CHECK-LABEL: func.func @forms
// CHECK-NOT: linalg.transpose
// CHECK: attn.form = "row-dot"
// CHECK: attn.form = "additive-one"
// CHECK: attn.form = "given"
// CHECK: attn.form = "given-listed"
func.func @forms(%q: tensor<2x1x4x8xf32>, %k: tensor<2x5x4x8xf32>, %v: tensor<2x5x4x8xf32>, %q1: tensor<2x3x4x1xf32>,
                 %k1: tensor<2x5x4x1xf32>, %v1: tensor<2x5x4x1xf32>, %a: tensor<1xf32>, %s: tensor<2x4x5x3xf32>,
                 %l: tensor<3x2xi64>) -> (tensor<2x1x4x8xf32>, tensor<2x3x4x1xf32>, tensor<2x3x4x8xf32>, tensor<2x3x4x8xf32>) {
  %x = attn.attention masked_rows nan maps [#q, #k, #v, #o]
      ins(%q, %k, %v : tensor<2x1x4x8xf32>, tensor<2x5x4x8xf32>, tensor<2x5x4x8xf32>) -> tensor<2x1x4x8xf32>
    score {
    ^bb0(%r: f32):
      attn.yield %r : f32
    }
  %y = attn.attention kind additive masked_rows nan maps [#q, #k, #v, #a, #o]
      ins(%q1, %k1, %v1, %a : tensor<2x3x4x1xf32>, tensor<2x5x4x1xf32>, tensor<2x5x4x1xf32>, tensor<1xf32>) -> tensor<2x3x4x1xf32>
    score {
    ^bb0(%r: f32):
      attn.yield %r : f32
    }
  %z = attn.attention kind given masked_rows nan maps [#s, #v, #o]
      ins(%s, %v : tensor<2x4x5x3xf32>, tensor<2x5x4x8xf32>) -> tensor<2x3x4x8xf32>
    score {
    ^bb0(%r: f32):
      attn.yield %r : f32
    }
  %w = attn.attention kind given masked_rows zero mask [#attn.blocks<1, 1>] maps [#s, #v, #l, #o]
      ins(%s, %v : tensor<2x4x5x3xf32>, tensor<2x5x4x8xf32>) mask_operands(%l : tensor<3x2xi64>) -> tensor<2x3x4x8xf32>
    score {
    ^bb0(%r: f32):
      attn.yield %r : f32
    }
  return %x, %y, %z, %w : tensor<2x1x4x8xf32>, tensor<2x3x4x1xf32>, tensor<2x3x4x8xf32>, tensor<2x3x4x8xf32>
}

// -----

#q = affine_map<(b, h, i, j, d, e) -> (b, i, h, d)>
#k = affine_map<(b, h, i, j, d, e) -> (b, j, h, d)>
#v = affine_map<(b, h, i, j, d, e) -> (b, j, h, e)>
#o = affine_map<(b, h, i, j, d, e) -> (b, i, h, e)>

// Scores are multiplied instead of divided by a constant; not by one whose reciprocal is no normal number, nor where the
// divisor varies, nor where the quotient is rounded to a whole number: 4.7 / 0.2 is 23.5 less a bit, 4.7 x 5 is 23.5.
// Nor where a number is compared with it, or with what was made of it; a sign and an infinity are told by either.
// CHECK-LABEL: func.func @divided
// CHECK: %[[C:.+]] = arith.constant 2.500000e-01 : f32
// CHECK: arith.mulf %{{.+}}, %[[C]] : f32
// CHECK-NOT: arith.divf
// CHECK-LABEL: func.func @not_multiplied
// CHECK: arith.divf
// CHECK: arith.divf
// CHECK-LABEL: func.func @rounded
// CHECK: arith.divf
// CHECK-LABEL: func.func @compared
// CHECK: arith.divf
// CHECK: arith.divf
// CHECK-LABEL: func.func @told
// CHECK-NOT: arith.divf
func.func @divided(%q: tensor<2x3x4x8xf32>, %k: tensor<2x5x4x8xf32>) -> tensor<2x3x4x8xf32> {
  %x = attn.attention masked_rows nan maps [#q, #k, #v, #o]
      ins(%q, %k, %k : tensor<2x3x4x8xf32>, tensor<2x5x4x8xf32>, tensor<2x5x4x8xf32>) -> tensor<2x3x4x8xf32>
    score {
    ^bb0(%s: f32):
      %c = arith.constant 4.0 : f32
      %r = arith.divf %s, %c : f32
      attn.yield %r : f32
    }
  return %x : tensor<2x3x4x8xf32>
}

func.func @not_multiplied(%q: tensor<2x3x4x8xf32>, %k: tensor<2x5x4x8xf32>) -> tensor<2x3x4x8xf32> {
  %x = attn.attention masked_rows nan maps [#q, #k, #v, #o]
      ins(%q, %k, %k : tensor<2x3x4x8xf32>, tensor<2x5x4x8xf32>, tensor<2x5x4x8xf32>) -> tensor<2x3x4x8xf32>
    score {
    ^bb0(%s: f32):
      %c = arith.constant 1.0e-39 : f32
      %one = arith.constant 1.0 : f32
      %t = arith.addf %s, %one : f32
      %r = arith.divf %s, %c : f32
      %u = arith.divf %r, %t : f32
      attn.yield %u : f32
    }
  return %x : tensor<2x3x4x8xf32>
}

func.func @rounded(%q: tensor<2x3x4x8xf32>, %k: tensor<2x5x4x8xf32>) -> tensor<2x3x4x8xf32> {
  %x = attn.attention masked_rows nan maps [#q, #k, #v, #o]
      ins(%q, %k, %k : tensor<2x3x4x8xf32>, tensor<2x5x4x8xf32>, tensor<2x5x4x8xf32>) -> tensor<2x3x4x8xf32>
    score {
    ^bb0(%s: f32):
      %c = arith.constant 0.2 : f32
      %most = arith.constant 127.0 : f32
      %r = arith.divf %s, %c : f32
      %t = arith.minimumf %r, %most : f32
      %u = math.roundeven %t : f32
      attn.yield %u : f32
    }
  return %x : tensor<2x3x4x8xf32>
}

func.func @compared(%q: tensor<2x3x4x8xf32>, %k: tensor<2x5x4x8xf32>) -> tensor<2x3x4x8xf32> {
  %x = attn.attention masked_rows nan maps [#q, #k, #v, #o]
      ins(%q, %k, %k : tensor<2x3x4x8xf32>, tensor<2x5x4x8xf32>, tensor<2x5x4x8xf32>) -> tensor<2x3x4x8xf32>
    score {
    ^bb0(%s: f32):
      %c = arith.constant 1.7 : f32
      %bound = arith.constant 4.117647 : f32
      %zero = arith.constant 0.0 : f32
      %low = arith.constant -100.0 : f32
      %r = arith.divf %s, %c : f32
      %a = arith.cmpf oge, %r, %bound : f32
      %t = arith.select %a, %r, %low : f32
      %u = arith.divf %t, %c : f32
      %d = arith.subf %u, %bound : f32
      %b = arith.cmpf ogt, %d, %zero : f32
      %v = arith.select %b, %u, %low : f32
      attn.yield %v : f32
    }
  return %x : tensor<2x3x4x8xf32>
}

func.func @told(%q: tensor<2x3x4x8xf32>, %k: tensor<2x5x4x8xf32>) -> tensor<2x3x4x8xf32> {
  %x = attn.attention masked_rows nan maps [#q, #k, #v, #o]
      ins(%q, %k, %k : tensor<2x3x4x8xf32>, tensor<2x5x4x8xf32>, tensor<2x5x4x8xf32>) -> tensor<2x3x4x8xf32>
    score {
    ^bb0(%s: f32):
      %c = arith.constant 1.7 : f32
      %zero = arith.constant 0.0 : f32
      %inf = arith.constant 0xFF800000 : f32
      %r = arith.divf %s, %c : f32
      %a = arith.cmpf ogt, %r, %zero : f32
      %t = arith.select %a, %r, %zero : f32
      %b = arith.cmpf oeq, %t, %inf : f32
      %u = arith.select %b, %zero, %t : f32
      %n = arith.cmpf une, %u, %u : f32
      %v = arith.select %n, %zero, %u : f32
      attn.yield %v : f32
    }
  return %x : tensor<2x3x4x8xf32>
}

// -----

#q = affine_map<(b, h, i, j, d, e) -> (i, b, d)>
#k = affine_map<(b, h, i, j, d, e) -> (d, h, j)>
#kb = affine_map<(b, h, i, j, d, e) -> (b, d, h, j)>
#k0 = affine_map<(b, h, i, j, d, e) -> (0, d, h, j)>
#v = affine_map<(b, h, i, j, d, e) -> (h, b, j, e)>
#vh = affine_map<(b, h, i, j, d, e) -> (h, j, e)>
#o = affine_map<(b, h, i, j, d, e) -> (b, h, e, i)>

// Queries that share keys, each with values of its own: one product makes all scores.
// CHECK-DAG: #[[S:.+]] = affine_map<(d0, d1, d2, d3, d4, d5) -> (d2, d0, d1, d3)>
// CHECK-DAG: #[[A:.+]] = affine_map<(d0, d1, d2, d3, d4) -> (d2, d0, d4)>
// CHECK-DAG: #[[B:.+]] = affine_map<(d0, d1, d2, d3, d4) -> (d4, d1, d3)>
// CHECK-DAG: #[[C:.+]] = affine_map<(d0, d1, d2, d3, d4) -> (d2, d0, d1, d3)>
// CHECK-LABEL: func.func @sampled
// CHECK: %[[SCORES:.+]] = linalg.contract indexing_maps = [#[[A]], #[[B]], #[[C]]] ins(%arg0, %arg1 : tensor<1x?x32xf32>, tensor<32x4x12xf32>) outs(%{{.+}} : tensor<1x?x4x12xf32>)
// CHECK: attn.attention kind given masked_rows nan maps [#[[S]], #{{.+}}, #{{.+}}] ins(%[[SCORES]], %arg2 :
// CHECK: attn.form = "given"
func.func @sampled(%q: tensor<1x?x32xf32>, %k: tensor<32x4x12xf32>, %v: tensor<4x?x12x8xf32>) -> tensor<?x4x8x1xf32> {
  %x = attn.attention masked_rows nan maps [#q, #k, #v, #o]
      ins(%q, %k, %v : tensor<1x?x32xf32>, tensor<32x4x12xf32>, tensor<4x?x12x8xf32>) -> tensor<?x4x8x1xf32>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
  return %x : tensor<?x4x8x1xf32>
}

// Not where they are few, share the values, have keys of their own, are rows that read them together, or where the keys
// have a dimension of size 1 that is none of the attention.
// CHECK-LABEL: func.func @not_sampled
// CHECK-NOT: linalg.contract
// CHECK: return
func.func @not_sampled(%q: tensor<1x?x32xf32>, %few: tensor<1x15x32xf32>, %rows: tensor<2x?x32xf32>, %k: tensor<32x4x12xf32>,
                       %kb: tensor<?x32x4x12xf32>, %k0: tensor<1x32x4x12xf32>, %v: tensor<4x?x12x8xf32>, %v15: tensor<4x15x12x8xf32>, %vh: tensor<4x12x8xf32>)
    -> (tensor<15x4x8x1xf32>, tensor<?x4x8x1xf32>, tensor<?x4x8x1xf32>, tensor<?x4x8x2xf32>, tensor<?x4x8x1xf32>) {
  %w = attn.attention masked_rows nan maps [#q, #k, #v, #o]
      ins(%few, %k, %v15 : tensor<1x15x32xf32>, tensor<32x4x12xf32>, tensor<4x15x12x8xf32>) -> tensor<15x4x8x1xf32>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
  %x = attn.attention masked_rows nan maps [#q, #k, #vh, #o]
      ins(%q, %k, %vh : tensor<1x?x32xf32>, tensor<32x4x12xf32>, tensor<4x12x8xf32>) -> tensor<?x4x8x1xf32>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
  %y = attn.attention masked_rows nan maps [#q, #kb, #v, #o]
      ins(%q, %kb, %v : tensor<1x?x32xf32>, tensor<?x32x4x12xf32>, tensor<4x?x12x8xf32>) -> tensor<?x4x8x1xf32>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
  %z = attn.attention masked_rows nan maps [#q, #k, #v, #o]
      ins(%rows, %k, %v : tensor<2x?x32xf32>, tensor<32x4x12xf32>, tensor<4x?x12x8xf32>) -> tensor<?x4x8x2xf32>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
  %u = attn.attention masked_rows nan maps [#q, #k0, #v, #o]
      ins(%q, %k0, %v : tensor<1x?x32xf32>, tensor<1x32x4x12xf32>, tensor<4x?x12x8xf32>) -> tensor<?x4x8x1xf32>
    score {
    ^bb0(%s: f32):
      attn.yield %s : f32
    }
  return %w, %x, %y, %z, %u : tensor<15x4x8x1xf32>, tensor<?x4x8x1xf32>, tensor<?x4x8x1xf32>, tensor<?x4x8x2xf32>,
      tensor<?x4x8x1xf32>
}

// -----

#s = affine_map<(b, h, i, j, d, e) -> (b, h, i, j)>
#v = affine_map<(b, h, i, j, d, e) -> (b, e, j, h)>
#o = affine_map<(b, h, i, j, d, e) -> (b, e, i, h)>
#r = affine_map<(b, h, i, j, d, e) -> (b, h, i, e)>
// Nine scores by nine of each window, the windows side by side: the innermost loop goes over windows. Not where the
// result has its width innermost.
// CHECK: attn.fusion_report = [{form = "given-spread", fused = true, kernel = false, kernel_reason = "windows side by side are columns of a softmax", kernel_symbol = "", node = "node 'a' (MatMul)"}, {copies = ["value"], form = "given", fused = true, node = "node 'b' (MatMul)"}]
// CHECK-LABEL: func.func @windows
// CHECK: %[[S:.+]] = linalg.generic {{.*}} ins(%arg0 : tensor<2x49x9x9xf32>) outs(%{{.+}} : tensor<2x9x9x49xf32>)
// CHECK: arith.mulf
// CHECK: %[[W:.+]] = attn.softmax %[[S]] dim 2 : tensor<2x9x9x49xf32>
// CHECK: linalg.generic {{.*}} ins(%[[W]], %arg1 : tensor<2x9x9x49xf32>, tensor<2x8x9x49xf32>) outs(%{{.+}} : tensor<2x8x9x49xf32>)
// CHECK: attn.attention
// CHECK: attn.form = "given"
// REMARK: remark: {{.*}}node 'b'{{.*}}[Passed] Form {{.*}}copies the value: batch or heads stand innermost in it
// REMARK-NOT: copies
module attributes {attn.fusion_report = [{fused = true, node = "node 'a' (MatMul)"}, {fused = true, node = "node 'b' (MatMul)"}]} {
  func.func @windows(%s: tensor<2x49x9x9xf32>, %v: tensor<2x8x9x49xf32>)
      -> (tensor<2x8x9x49xf32>, tensor<2x49x9x8xf32>) {
    %x = attn.attention kind given masked_rows nan maps [#s, #v, #o]
        ins(%s, %v : tensor<2x49x9x9xf32>, tensor<2x8x9x49xf32>) -> tensor<2x8x9x49xf32>
      score {
      ^bb0(%e: f32):
        %c = arith.constant 0.5 : f32
        %t = arith.mulf %e, %c : f32
        attn.yield %t : f32
      } loc("node 'a' (MatMul)")
    %y = attn.attention kind given masked_rows nan maps [#s, #v, #r]
        ins(%s, %v : tensor<2x49x9x9xf32>, tensor<2x8x9x49xf32>) -> tensor<2x49x9x8xf32>
      score {
      ^bb0(%e: f32):
        attn.yield %e : f32
      } loc("node 'b' (MatMul)")
    return %x, %y : tensor<2x8x9x49xf32>, tensor<2x49x9x8xf32>
  }
}
