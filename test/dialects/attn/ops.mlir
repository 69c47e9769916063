// RUN: attn-opt %s | attn-opt | FileCheck %s

#q = affine_map<(b, h, i, j, d, e) -> (b, i, h, d)>
#k = affine_map<(b, h, i, j, d, e) -> (b, j, h, d)>
#v = affine_map<(b, h, i, j, d, e) -> (b, j, h, e)>
#m = affine_map<(b, h, i, j, d, e) -> (b, j)>
#o = affine_map<(b, h, i, j, d, e) -> (b, i, h, e)>

// CHECK-LABEL: func.func @attention
// CHECK: attn.attention masked_rows nan maps [{{.*}}] ins(%{{.*}}, %{{.*}}, %{{.*}} : {{.*}}) captures(%{{.*}} : tensor<?x?xf32>) -> tensor<?x?x12x32xf32> score {
func.func @attention(%q: tensor<?x?x12x32xf32>, %k: tensor<?x?x12x32xf32>, %v: tensor<?x?x12x32xf32>,
                     %mask: tensor<?x?xf32>) -> tensor<?x?x12x32xf32> {
  %o = attn.attention masked_rows nan maps [#q, #k, #v, #m, #o]
      ins(%q, %k, %v : tensor<?x?x12x32xf32>, tensor<?x?x12x32xf32>, tensor<?x?x12x32xf32>)
      captures(%mask : tensor<?x?xf32>) -> tensor<?x?x12x32xf32>
    score {
    ^bb0(%s: f32, %m: f32):
      %c = arith.constant 0.176776692 : f32
      %x = arith.mulf %s, %c : f32
      %y = arith.addf %x, %m : f32
      attn.yield %y : f32
    }
  return %o : tensor<?x?x12x32xf32>
}

attn.global @w : tensor<384x96xf32> = #attn.initializer<"encoder.0.w">
// CHECK: attn.global @w_panels : tensor<2x384x48xf32> = #attn.pack_panels<@w, transposed = false, width = 48>
attn.global @w_panels : tensor<2x384x48xf32> = #attn.pack_panels<@w, transposed = false, width = 48>
// CHECK: attn.global @w_halves : tensor<2x192x96xbf16> = #attn.narrow_panels<@w, transposed = false, width = 48, group = 0>
attn.global @w_halves : tensor<2x192x96xbf16> = #attn.narrow_panels<@w, transposed = false, width = 48, group = 0>
// CHECK: attn.global @w_tiles : tensor<3x192x64xbf16> = #attn.narrow_panels<@w, transposed = false, width = 32, group = 0 depth 32>
attn.global @w_tiles : tensor<3x192x64xbf16> = #attn.narrow_panels<@w, transposed = false, width = 32, group = 0 depth 32>
// CHECK: attn.global @w_parts : tensor<2x192x192xbf16> = #attn.narrow_panels<@w, transposed = false, width = 48, group = 0 parts 2>
attn.global @w_parts : tensor<2x192x192xbf16> = #attn.narrow_panels<@w, transposed = false, width = 48, group = 0 parts 2>
// CHECK: attn.global @w_scales : tensor<2x6x48xf32> = #attn.panel_scales<@w, transposed = false, width = 48, group = 64>
attn.global @w_scales : tensor<2x6x48xf32> = #attn.panel_scales<@w, transposed = false, width = 48, group = 64>
attn.global @b : tensor<384x96xi8> = #attn.initializer<"encoder.0.b">
// CHECK: attn.global @b_bytes : tensor<2x96x192xi8> = #attn.byte_panels<@b, transposed = false, width = 48, group = 4, unsigned = false>
attn.global @b_bytes : tensor<2x96x192xi8> = #attn.byte_panels<@b, transposed = false, width = 48, group = 4, unsigned = false>
// CHECK: attn.global @b_sums : tensor<2x48xi32> = #attn.column_sums<@b, transposed = false, width = 48, unsigned = true>
attn.global @b_sums : tensor<2x48xi32> = #attn.column_sums<@b, transposed = false, width = 48, unsigned = true>
// CHECK: attn.global @b_order : tensor<2x98xi16> = #attn.step_order<@b, transposed = false, width = 48, group = 4, unsigned = true>
attn.global @b_order : tensor<2x98xi16> = #attn.step_order<@b, transposed = false, width = 48, group = 4, unsigned = true>

func.func private @gemm(memref<?x384xf32>, memref<2x384x48xf32>, memref<?x96xf32>) attributes {attn.kernel}

// CHECK-LABEL: func.func @kernel
func.func @kernel(%a: tensor<?x384xf32>, %e: tensor<?x96xf32>) -> tensor<?x96xf32> {
  // CHECK: attn.weight @w_panels : tensor<2x384x48xf32>
  %w = attn.weight @w_panels : tensor<2x384x48xf32>
  // CHECK: attn.kernel @gemm ins(%{{.*}}, %{{.*}} : {{.*}}) outs(%{{.*}} : tensor<?x96xf32>) -> tensor<?x96xf32>
  %c = attn.kernel @gemm ins(%a, %w : tensor<?x384xf32>, tensor<2x384x48xf32>) outs(%e : tensor<?x96xf32>) -> tensor<?x96xf32>
  return %c : tensor<?x96xf32>
}

// CHECK-LABEL: func.func @rnn
// CHECK: attn.rnn forward [#attn.activation<tanh>] ins(%{{.*}}, %{{.*}}, %{{.*}} : {{.*}}) -> tensor<?x1x4x16xf32>, tensor<1x4x16xf32>
func.func @rnn(%x: tensor<?x4x8xf32>, %w: tensor<1x16x8xf32>, %r: tensor<1x16x16xf32>) -> tensor<1x4x16xf32> {
  %y, %h = attn.rnn forward [#attn.activation<tanh>]
      ins(%x, %w, %r : tensor<?x4x8xf32>, tensor<1x16x8xf32>, tensor<1x16x16xf32>)
      -> tensor<?x1x4x16xf32>, tensor<1x4x16xf32>
  return %h : tensor<1x4x16xf32>
}

// CHECK-LABEL: func.func @gru
// CHECK: attn.gru bidirectional [#attn.activation<hard_sigmoid, alpha = 2.000000e-01 : f64, beta = 5.000000e-01 : f64>,
// CHECK-SAME: #attn.activation<elu, alpha = 1.000000e+00 : f64>,
// CHECK-SAME: clip 1.500000e+00 batch_first linear_before_reset ins({{.*}}) bias({{.*}}) lengths({{.*}}) initial_h({{.*}})
func.func @gru(%x: tensor<?x?x8xf32>, %w: tensor<2x48x8xf32>, %r: tensor<2x48x16xf32>, %b: tensor<2x96xf32>,
               %n: tensor<?xi32>, %h0: tensor<?x2x16xf32>) -> tensor<?x?x2x16xf32> {
  %y, %h = attn.gru bidirectional
      [#attn.activation<hard_sigmoid, alpha = 0.2 : f64, beta = 0.5 : f64>, #attn.activation<elu, alpha = 1.0 : f64>,
       #attn.activation<sigmoid>, #attn.activation<tanh>] clip 1.5 batch_first linear_before_reset
      ins(%x, %w, %r : tensor<?x?x8xf32>, tensor<2x48x8xf32>, tensor<2x48x16xf32>) bias(%b : tensor<2x96xf32>)
      lengths(%n : tensor<?xi32>) initial_h(%h0 : tensor<?x2x16xf32>) -> tensor<?x?x2x16xf32>, tensor<?x2x16xf32>
  return %y : tensor<?x?x2x16xf32>
}

// An input that is projected already.
// CHECK-LABEL: func.func @projected
// CHECK: attn.gru forward [{{.*}}] linear_before_reset mirrored ins(%{{.*}}, %{{.*}} : tensor<?x4x48xf32>, tensor<1x48x16xf32>) ->
func.func @projected(%x: tensor<?x4x48xf32>, %r: tensor<1x48x16xf32>) -> tensor<1x4x16xf32> {
  %y, %h = attn.gru forward [#attn.activation<sigmoid>, #attn.activation<tanh>] linear_before_reset mirrored
      ins(%x, %r : tensor<?x4x48xf32>, tensor<1x48x16xf32>) -> tensor<?x1x4x16xf32>, tensor<1x4x16xf32>
  return %h : tensor<1x4x16xf32>
}

// CHECK-LABEL: func.func @lstm
// CHECK: attn.lstm reverse [{{.*}}] input_forget ins({{.*}}) initial_c({{.*}}) peephole({{.*}}) -> tensor<3x1x4x16xf64>, tensor<1x4x16xf64>, tensor<1x4x16xf64>
func.func @lstm(%x: tensor<3x4x8xf64>, %w: tensor<1x64x8xf64>, %r: tensor<1x64x16xf64>, %c0: tensor<1x4x16xf64>,
                %p: tensor<1x48xf64>) -> tensor<1x4x16xf64> {
  %y, %h, %c = attn.lstm reverse [#attn.activation<sigmoid>, #attn.activation<tanh>, #attn.activation<softsign>] input_forget
      ins(%x, %w, %r : tensor<3x4x8xf64>, tensor<1x64x8xf64>, tensor<1x64x16xf64>)
      initial_c(%c0 : tensor<1x4x16xf64>) peephole(%p : tensor<1x48xf64>)
      -> tensor<3x1x4x16xf64>, tensor<1x4x16xf64>, tensor<1x4x16xf64>
  return %c : tensor<1x4x16xf64>
}

// CHECK-LABEL: func.func @loop_words
func.func @loop_words(%x: tensor<2x?xf32>, %n: index) -> tensor<2x?xf32> {
  // CHECK: attn.poll
  attn.poll
  // CHECK: %{{.*}} = attn.is_ending
  %ends = attn.is_ending
  // CHECK: attn.grow %{{.*}} to %{{.*}} dim 1 : tensor<2x?xf32>
  %y = attn.grow %x to %n dim 1 : tensor<2x?xf32>
  return %y : tensor<2x?xf32>
}

// CHECK-LABEL: func.func @device_words
func.func @device_words(%x: memref<?x8xf32>, %w: memref<8x4xf32>, %y: memref<?x4xf32>, %b: memref<4xf32>, %v: memref<8x4xbf16>, %h: memref<4xbf16>, %n: index) {
  // CHECK: attn.product %{{.*}}, %{{.*}}, %{{.*}} bias(%{{.*}} : memref<4xf32>) sizes(%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}})
  // CHECK-SAME: {activation = 1 : i32, precision = 0 : i32, right_transposed, scale = 5.000000e-01 : f32}
  %done = attn.product %x, %w, %y bias(%b : memref<4xf32>) sizes(%n, %n, %n, %n)
      {activation = 1 : i32, precision = 0 : i32, right_transposed, scale = 0.5 : f32} : memref<?x8xf32>, memref<8x4xf32>, memref<?x4xf32>
  // CHECK: attn.product {{.*}} addend(%{{.*}} : memref<?x4xf32>)
  %made = attn.product %x, %w, %y addend(%y : memref<?x4xf32>) sizes(%n, %n, %n, %n)
      {activation = 0 : i32, precision = 0 : i32, scale = 1.0 : f32} : memref<?x8xf32>, memref<8x4xf32>, memref<?x4xf32>
  // CHECK: attn.product {{.*}} {activation = 0 : i32, ask, narrow, precision = 2 : i32, {{.*}} memref<8x4xbf16>
  %asked = attn.product %x, %v, %y sizes(%n, %n, %n, %n)
      {activation = 0 : i32, ask, narrow, precision = 2 : i32, scale = 1.0 : f32} : memref<?x8xf32>, memref<8x4xbf16>, memref<?x4xf32>
  // CHECK: attn.product {{.*}} bias(%{{.*}} : memref<4xbf16>) {{.*}} : memref<8x4xbf16>, memref<8x4xbf16>, memref<8x4xbf16>
  %halved = attn.product %v, %v, %v bias(%h : memref<4xbf16>) sizes(%n, %n, %n, %n)
      {activation = 0 : i32, narrow, precision = 2 : i32, scale = 1.0 : f32} : memref<8x4xbf16>, memref<8x4xbf16>, memref<8x4xbf16>
  // CHECK: %[[MAP:.*]] = attn.map_tiles %{{.*}} tile [256, 64] : memref<8x4xbf16>
  // CHECK: attn.tiles_address %[[MAP]]
  %map = attn.map_tiles %v tile [256, 64] : memref<8x4xbf16>
  %place = attn.tiles_address %map
  // CHECK: attn.host_workspace %{{.*}} : memref<?xi8>
  %arena = attn.host_workspace %n : memref<?xi8>
  %c0 = arith.constant 0 : index
  %copy = memref.view %arena[%c0][%n] : memref<?xi8> to memref<?x8xf32>
  // CHECK: attn.download %{{.*}} to %{{.*}} : memref<?x8xf32>
  attn.download %x to %copy : memref<?x8xf32>
  // CHECK: attn.upload %{{.*}} to %{{.*}} : memref<?x8xf32>
  attn.upload %copy to %x : memref<?x8xf32>
  // CHECK: attn.begin_loop
  attn.begin_loop
  %words = memref.alloca() : memref<2xi64>
  // CHECK: attn.end_loop %{{.*}}[1] : memref<2xi64>
  attn.end_loop %words[1] : memref<2xi64>
  return
}

// Branches have become blocks.
// CHECK-LABEL: func.func @loop_of_blocks
func.func @loop_of_blocks(%words: memref<2xi64>) {
  attn.begin_loop
  cf.br ^next
^next:
  // CHECK: ^bb1:
  // CHECK-NEXT: attn.end_loop
  attn.end_loop %words[1] : memref<2xi64>
  return
}
