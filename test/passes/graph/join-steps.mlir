// RUN: attn-opt %s -attn-join-steps -split-input-file | FileCheck %s

// Three steps with one another's states; the second state is read elsewhere, before the third step.
// CHECK-LABEL: func.func @steps
// CHECK-SAME: %[[A:.*]]: tensor<1x?x8xf32>, %[[B:.*]]: tensor<1x?x8xf32>, %[[C:.*]]: tensor<1x?x8xf32>, %[[H:.*]]: tensor<1x?x16xf32>, %[[W:[a-z0-9]*]]
// CHECK: %[[E:.*]] = tensor.empty(%{{.*}}) : tensor<3x?x8xf32>
// CHECK: %[[X0:.*]] = tensor.insert_slice %[[A]] into %[[E]][0, 0, 0]
// CHECK: %[[X1:.*]] = tensor.insert_slice %[[B]] into %[[X0]][1, 0, 0]
// CHECK: %[[X2:.*]] = tensor.insert_slice %[[C]] into %[[X1]][2, 0, 0]
// CHECK: %[[Y:.*]], %[[LAST:.*]] = attn.rnn forward {{.*}} ins(%[[X2]], {{.*}} initial_h(%[[H]] : tensor<1x?x16xf32>) -> tensor<3x1x?x16xf32>, tensor<1x?x16xf32>
// CHECK-NOT: attn.rnn
// CHECK: %[[SECOND:.*]] = tensor.extract_slice %[[Y]][1, 0, 0, 0] [1, 1, %{{.*}}, 16] {{.*}} to tensor<1x?x16xf32>
// CHECK: linalg.exp ins(%[[SECOND]]
// CHECK: return %[[LAST]]
func.func @steps(%a: tensor<1x?x8xf32>, %b: tensor<1x?x8xf32>, %c: tensor<1x?x8xf32>, %h: tensor<1x?x16xf32>,
    %w: tensor<1x16x8xf32>, %r: tensor<1x16x16xf32>, %e: tensor<1x?x16xf32>) -> (tensor<1x?x16xf32>, tensor<1x?x16xf32>) {
  %y0, %h0 = attn.rnn forward [#attn.activation<tanh>]
      ins(%a, %w, %r : tensor<1x?x8xf32>, tensor<1x16x8xf32>, tensor<1x16x16xf32>) initial_h(%h : tensor<1x?x16xf32>)
      -> tensor<1x1x?x16xf32>, tensor<1x?x16xf32>
  %y1, %h1 = attn.rnn forward [#attn.activation<tanh>]
      ins(%b, %w, %r : tensor<1x?x8xf32>, tensor<1x16x8xf32>, tensor<1x16x16xf32>) initial_h(%h0 : tensor<1x?x16xf32>)
      -> tensor<1x1x?x16xf32>, tensor<1x?x16xf32>
  %x = linalg.exp ins(%h1 : tensor<1x?x16xf32>) outs(%e : tensor<1x?x16xf32>) -> tensor<1x?x16xf32>
  %y2, %h2 = attn.rnn forward [#attn.activation<tanh>]
      ins(%c, %w, %r : tensor<1x?x8xf32>, tensor<1x16x8xf32>, tensor<1x16x16xf32>) initial_h(%h1 : tensor<1x?x16xf32>)
      -> tensor<1x1x?x16xf32>, tensor<1x?x16xf32>
  return %h2, %x : tensor<1x?x16xf32>, tensor<1x?x16xf32>
}

// -----

// Near misses: an input that is made of the state, other weights, and a step that begins elsewhere.
// CHECK-LABEL: func.func @fed
// CHECK-COUNT-4: attn.rnn
// CHECK: return
func.func @fed(%a: tensor<1x4x16xf32>, %h: tensor<1x4x16xf32>, %w: tensor<1x16x16xf32>, %r: tensor<1x16x16xf32>)
    -> (tensor<1x4x16xf32>, tensor<1x4x16xf32>, tensor<1x4x16xf32>) {
  %y0, %h0 = attn.rnn forward [#attn.activation<tanh>]
      ins(%a, %w, %r : tensor<1x4x16xf32>, tensor<1x16x16xf32>, tensor<1x16x16xf32>) initial_h(%h : tensor<1x4x16xf32>)
      -> tensor<1x1x4x16xf32>, tensor<1x4x16xf32>
  %x = linalg.exp ins(%h0 : tensor<1x4x16xf32>) outs(%a : tensor<1x4x16xf32>) -> tensor<1x4x16xf32>
  %y1, %h1 = attn.rnn forward [#attn.activation<tanh>]
      ins(%x, %w, %r : tensor<1x4x16xf32>, tensor<1x16x16xf32>, tensor<1x16x16xf32>) initial_h(%h0 : tensor<1x4x16xf32>)
      -> tensor<1x1x4x16xf32>, tensor<1x4x16xf32>
  %y2, %h2 = attn.rnn forward [#attn.activation<tanh>]
      ins(%a, %r, %w : tensor<1x4x16xf32>, tensor<1x16x16xf32>, tensor<1x16x16xf32>) initial_h(%h1 : tensor<1x4x16xf32>)
      -> tensor<1x1x4x16xf32>, tensor<1x4x16xf32>
  %y3, %h3 = attn.rnn forward [#attn.activation<tanh>]
      ins(%a, %w, %r : tensor<1x4x16xf32>, tensor<1x16x16xf32>, tensor<1x16x16xf32>) initial_h(%a : tensor<1x4x16xf32>)
      -> tensor<1x1x4x16xf32>, tensor<1x4x16xf32>
  return %h1, %h2, %h3 : tensor<1x4x16xf32>, tensor<1x4x16xf32>, tensor<1x4x16xf32>
}

// -----

// The cell between two steps is read elsewhere.
// CHECK-LABEL: func.func @cell
// CHECK-COUNT-2: attn.lstm
func.func @cell(%a: tensor<1x4x8xf32>, %h: tensor<1x4x16xf32>, %w: tensor<1x64x8xf32>, %r: tensor<1x64x16xf32>)
    -> (tensor<1x4x16xf32>, tensor<1x4x16xf32>) {
  %y0, %h0, %c0 = attn.lstm forward [#attn.activation<sigmoid>, #attn.activation<tanh>, #attn.activation<tanh>]
      ins(%a, %w, %r : tensor<1x4x8xf32>, tensor<1x64x8xf32>, tensor<1x64x16xf32>) initial_h(%h : tensor<1x4x16xf32>)
      initial_c(%h : tensor<1x4x16xf32>) -> tensor<1x1x4x16xf32>, tensor<1x4x16xf32>, tensor<1x4x16xf32>
  %y1, %h1, %c1 = attn.lstm forward [#attn.activation<sigmoid>, #attn.activation<tanh>, #attn.activation<tanh>]
      ins(%a, %w, %r : tensor<1x4x8xf32>, tensor<1x64x8xf32>, tensor<1x64x16xf32>) initial_h(%h0 : tensor<1x4x16xf32>)
      initial_c(%c0 : tensor<1x4x16xf32>) -> tensor<1x1x4x16xf32>, tensor<1x4x16xf32>, tensor<1x4x16xf32>
  return %h1, %c0 : tensor<1x4x16xf32>, tensor<1x4x16xf32>
}

// -----

// Each of two chains reads the other's first state: one of them is joined, which then needs the other's first step.
// CHECK-LABEL: func.func @crossed
// CHECK: %[[B0:.*]], %[[HB:.*]] = attn.rnn {{.*}} -> tensor<1x1x4x16xf32>
// CHECK: %[[X:.*]] = tensor.insert_slice %[[HB]] into
// CHECK: attn.rnn {{.*}} ins(%[[X]], {{.*}} -> tensor<2x1x4x16xf32>
// CHECK: attn.rnn {{.*}} -> tensor<1x1x4x16xf32>
// CHECK-NOT: attn.rnn
func.func @crossed(%a: tensor<1x4x16xf32>, %b: tensor<1x4x16xf32>, %h: tensor<1x4x16xf32>, %w: tensor<1x16x16xf32>, %r: tensor<1x16x16xf32>)
    -> (tensor<1x4x16xf32>, tensor<1x4x16xf32>) {
  %y0, %ha = attn.rnn forward [#attn.activation<tanh>]
      ins(%a, %w, %r : tensor<1x4x16xf32>, tensor<1x16x16xf32>, tensor<1x16x16xf32>) initial_h(%h : tensor<1x4x16xf32>)
      -> tensor<1x1x4x16xf32>, tensor<1x4x16xf32>
  %y1, %hb = attn.rnn forward [#attn.activation<tanh>]
      ins(%b, %r, %w : tensor<1x4x16xf32>, tensor<1x16x16xf32>, tensor<1x16x16xf32>) initial_h(%h : tensor<1x4x16xf32>)
      -> tensor<1x1x4x16xf32>, tensor<1x4x16xf32>
  %y2, %ha2 = attn.rnn forward [#attn.activation<tanh>]
      ins(%hb, %w, %r : tensor<1x4x16xf32>, tensor<1x16x16xf32>, tensor<1x16x16xf32>) initial_h(%ha : tensor<1x4x16xf32>)
      -> tensor<1x1x4x16xf32>, tensor<1x4x16xf32>
  %y3, %hb2 = attn.rnn forward [#attn.activation<tanh>]
      ins(%ha, %r, %w : tensor<1x4x16xf32>, tensor<1x16x16xf32>, tensor<1x16x16xf32>) initial_h(%hb : tensor<1x4x16xf32>)
      -> tensor<1x1x4x16xf32>, tensor<1x4x16xf32>
  return %ha2, %hb2 : tensor<1x4x16xf32>, tensor<1x4x16xf32>
}

// -----

// Nobody but the next step reads a cell. The sequence of one step is a part of that of all.
// CHECK-LABEL: func.func @cells
// CHECK: %[[Y:.*]], %[[LAST:.*]], %{{.*}} = attn.lstm {{.*}} -> tensor<2x1x4x16xf32>, tensor<1x4x16xf32>, tensor<1x4x16xf32>
// CHECK-NOT: attn.lstm
// CHECK: %[[FIRST:.*]] = tensor.extract_slice %[[Y]][0, 0, 0, 0] [1, 1, 4, 16] {{.*}} to tensor<1x1x4x16xf32>
// CHECK: return %[[LAST]], %[[FIRST]]
func.func @cells(%a: tensor<1x4x8xf32>, %h: tensor<1x4x16xf32>, %w: tensor<1x64x8xf32>, %r: tensor<1x64x16xf32>)
    -> (tensor<1x4x16xf32>, tensor<1x1x4x16xf32>) {
  %y0, %h0, %c0 = attn.lstm forward [#attn.activation<sigmoid>, #attn.activation<tanh>, #attn.activation<tanh>]
      ins(%a, %w, %r : tensor<1x4x8xf32>, tensor<1x64x8xf32>, tensor<1x64x16xf32>) initial_h(%h : tensor<1x4x16xf32>)
      initial_c(%h : tensor<1x4x16xf32>) -> tensor<1x1x4x16xf32>, tensor<1x4x16xf32>, tensor<1x4x16xf32>
  %y1, %h1, %c1 = attn.lstm forward [#attn.activation<sigmoid>, #attn.activation<tanh>, #attn.activation<tanh>]
      ins(%a, %w, %r : tensor<1x4x8xf32>, tensor<1x64x8xf32>, tensor<1x64x16xf32>) initial_h(%h0 : tensor<1x4x16xf32>)
      initial_c(%c0 : tensor<1x4x16xf32>) -> tensor<1x1x4x16xf32>, tensor<1x4x16xf32>, tensor<1x4x16xf32>
  return %h1, %y0 : tensor<1x4x16xf32>, tensor<1x1x4x16xf32>
}
