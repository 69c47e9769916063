// RUN: attn-opt %s -attn-raise-bands -canonicalize -cse | FileCheck %s
// Not where a slice of the scores is one place off, so that some are those of other keys,
// RUN: sed 's/extracted_slice_42\[0, 0, 0, 3\]/extracted_slice_42[0, 0, 0, 2]/' %s | attn-opt -attn-raise-bands | FileCheck %s --check-prefix=SAME
// where a place without a key is not hidden,
// RUN: sed 's/dense<0xFF800000>/dense<-1.0e+04>/' %s | attn-opt -attn-raise-bands | FileCheck %s --check-prefix=SAME
// where values are those of other keys than the scores,
// RUN: sed 's/into %26\[0, 2, 0\]/into %26[0, 3, 0]/' %s | attn-opt -attn-raise-bands | FileCheck %s --check-prefix=SAME
// where weights are skewed by another distance than the scores,
// RUN: sed 's/into %32\[0, 0, 0, 0\]/into %32[0, 0, 0, 1]/' %s | attn-opt -attn-raise-bands | FileCheck %s --check-prefix=SAME
// where padding of values makes NaN of weights of 0,
// RUN: sed 's/constant -1.000000e+00/constant 0xFF800000/' %s | attn-opt -attn-raise-bands | FileCheck %s --check-prefix=SAME
// or where the weights are read elsewhere, too.
// RUN: sed -e 's/-> (tensor<1x8x2x4xf32>)/-> (tensor<1x8x2x5xf32>, tensor<1x8x2x4xf32>)/' -e 's/return .*/return %%23, %%transposed_80 : tensor<1x8x2x5xf32>, tensor<1x8x2x4xf32>/' %s | attn-opt -attn-raise-bands | FileCheck %s --check-prefix=SAME

// Longformer's window of two keys on each side of a query, of eight tokens and two heads, in chunks of four.
// CHECK-LABEL: func.func @sliding_chunks
// CHECK-SAME: %[[Q:[^:]+]]: tensor<1x8x2x4xf32>, %[[K:[^:]+]]: tensor<1x8x2x4xf32>, %[[V:[^:]+]]: tensor<1x8x2x4xf32>
// CHECK: %[[S:.+]] = linalg.contract
// CHECK-SAME: -> tensor<8x2x8xf32>
// CHECK: %[[M:.+]] = linalg.generic {{.*}} ins(%[[S]] : tensor<8x2x8xf32>)
// CHECK: %[[I:.+]] = linalg.index 0
// CHECK: %[[J:.+]] = linalg.index 2
// CHECK: %[[FIRST:.+]] = arith.addi %[[I]], %c-2
// CHECK: %[[LAST:.+]] = arith.addi %[[I]], %c2
// CHECK: %[[A:.+]] = arith.cmpi sge, %[[J]], %[[FIRST]]
// CHECK: %[[B:.+]] = arith.cmpi sle, %[[J]], %[[LAST]]
// CHECK: %[[SEES:.+]] = arith.andi %[[A]], %[[B]]
// CHECK: arith.select %[[SEES]], %{{.+}}, %{{.+}} : f32
// CHECK: %[[W:.+]] = attn.softmax %[[M]] dim 2 : tensor<8x2x8xf32>
// CHECK: linalg.contract {{.*}} ins(%[[W]], %{{.+}} : tensor<8x2x8xf32>, tensor<{{.+}}>)
// CHECK-NOT: tensor.insert_slice
// SAME: attn.softmax %{{.+}} dim 3 : tensor<1x8x2x5xf32>
#map = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d4)>
#map1 = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d3, d4)>
#map2 = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3)>
#map3 = affine_map<(d0, d1) -> (d0, d1)>
#map4 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#map5 = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#map6 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d3)>
#map7 = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d4, d3)>
module {
  func.func @sliding_chunks(%arg0: tensor<1x8x2x4xf32>, %arg1: tensor<1x8x2x4xf32>, %arg2: tensor<1x8x2x4xf32>) -> (tensor<1x8x2x4xf32>) {
    %c48 = arith.constant 48 : index
    %cst = arith.constant -1.000000e+00 : f32
    %c8 = arith.constant 8 : index
    %c0_i8 = arith.constant 0 : i8
    %cst_0 = arith.constant dense<0xFF800000> : tensor<1x2x2x3xf32>
    %cst_1 = arith.constant dense<1.000000e+00> : tensor<2x3xf32>
    %c1 = arith.constant 1 : index
    %c0 = arith.constant 0 : index
    %c4 = arith.constant 4 : index
    %c2 = arith.constant 2 : index
    %cst_2 = arith.constant dense<0.000000e+00> : tensor<2x4x2x5xf32>
    %cst_3 = arith.constant 0.000000e+00 : f32
    %0 = tensor.empty() : tensor<1x2x8x4xf32>
    %transposed = linalg.transpose ins(%arg0 : tensor<1x8x2x4xf32>) outs(%0 : tensor<1x2x8x4xf32>) permutation = [0, 2, 1, 3] 
    %collapsed = tensor.collapse_shape %transposed [[0, 1], [2], [3]] : tensor<1x2x8x4xf32> into tensor<2x8x4xf32>
    %transposed_4 = linalg.transpose ins(%arg1 : tensor<1x8x2x4xf32>) outs(%0 : tensor<1x2x8x4xf32>) permutation = [0, 2, 1, 3] 
    %collapsed_5 = tensor.collapse_shape %transposed_4 [[0, 1], [2], [3]] : tensor<1x2x8x4xf32> into tensor<2x8x4xf32>
    %extracted_slice = tensor.extract_slice %collapsed[0, 0, 0] [2, 4, 4] [1, 1, 1] : tensor<2x8x4xf32> to tensor<2x4x4xf32>
    %extracted_slice_6 = tensor.extract_slice %collapsed[0, 2, 0] [2, 4, 4] [1, 1, 1] : tensor<2x8x4xf32> to tensor<2x4x4xf32>
    %extracted_slice_7 = tensor.extract_slice %collapsed[0, 4, 0] [2, 4, 4] [1, 1, 1] : tensor<2x8x4xf32> to tensor<2x4x4xf32>
    %1 = tensor.empty() : tensor<2x4x4xf32>
    %transposed_8 = linalg.transpose ins(%extracted_slice : tensor<2x4x4xf32>) outs(%1 : tensor<2x4x4xf32>) permutation = [0, 2, 1] 
    %expanded = tensor.expand_shape %transposed_8 [[0], [1, 2], [3]] output_shape [2, 1, 4, 4] : tensor<2x4x4xf32> into tensor<2x1x4x4xf32>
    %transposed_9 = linalg.transpose ins(%extracted_slice_6 : tensor<2x4x4xf32>) outs(%1 : tensor<2x4x4xf32>) permutation = [0, 2, 1] 
    %expanded_10 = tensor.expand_shape %transposed_9 [[0], [1, 2], [3]] output_shape [2, 1, 4, 4] : tensor<2x4x4xf32> into tensor<2x1x4x4xf32>
    %transposed_11 = linalg.transpose ins(%extracted_slice_7 : tensor<2x4x4xf32>) outs(%1 : tensor<2x4x4xf32>) permutation = [0, 2, 1] 
    %expanded_12 = tensor.expand_shape %transposed_11 [[0], [1, 2], [3]] output_shape [2, 1, 4, 4] : tensor<2x4x4xf32> into tensor<2x1x4x4xf32>
    %2 = tensor.empty() : tensor<2x3x4x4xf32>
    %inserted_slice = tensor.insert_slice %expanded into %2[0, 0, 0, 0] [2, 1, 4, 4] [1, 1, 1, 1] : tensor<2x1x4x4xf32> into tensor<2x3x4x4xf32>
    %inserted_slice_13 = tensor.insert_slice %expanded_10 into %inserted_slice[0, 1, 0, 0] [2, 1, 4, 4] [1, 1, 1, 1] : tensor<2x1x4x4xf32> into tensor<2x3x4x4xf32>
    %inserted_slice_14 = tensor.insert_slice %expanded_12 into %inserted_slice_13[0, 2, 0, 0] [2, 1, 4, 4] [1, 1, 1, 1] : tensor<2x1x4x4xf32> into tensor<2x3x4x4xf32>
    %transposed_15 = linalg.transpose ins(%inserted_slice_14 : tensor<2x3x4x4xf32>) outs(%2 : tensor<2x3x4x4xf32>) permutation = [0, 1, 3, 2] 
    %extracted_slice_16 = tensor.extract_slice %collapsed_5[0, 0, 0] [2, 4, 4] [1, 1, 1] : tensor<2x8x4xf32> to tensor<2x4x4xf32>
    %extracted_slice_17 = tensor.extract_slice %collapsed_5[0, 2, 0] [2, 4, 4] [1, 1, 1] : tensor<2x8x4xf32> to tensor<2x4x4xf32>
    %extracted_slice_18 = tensor.extract_slice %collapsed_5[0, 4, 0] [2, 4, 4] [1, 1, 1] : tensor<2x8x4xf32> to tensor<2x4x4xf32>
    %transposed_19 = linalg.transpose ins(%extracted_slice_16 : tensor<2x4x4xf32>) outs(%1 : tensor<2x4x4xf32>) permutation = [0, 2, 1] 
    %expanded_20 = tensor.expand_shape %transposed_19 [[0], [1, 2], [3]] output_shape [2, 1, 4, 4] : tensor<2x4x4xf32> into tensor<2x1x4x4xf32>
    %transposed_21 = linalg.transpose ins(%extracted_slice_17 : tensor<2x4x4xf32>) outs(%1 : tensor<2x4x4xf32>) permutation = [0, 2, 1] 
    %expanded_22 = tensor.expand_shape %transposed_21 [[0], [1, 2], [3]] output_shape [2, 1, 4, 4] : tensor<2x4x4xf32> into tensor<2x1x4x4xf32>
    %transposed_23 = linalg.transpose ins(%extracted_slice_18 : tensor<2x4x4xf32>) outs(%1 : tensor<2x4x4xf32>) permutation = [0, 2, 1] 
    %expanded_24 = tensor.expand_shape %transposed_23 [[0], [1, 2], [3]] output_shape [2, 1, 4, 4] : tensor<2x4x4xf32> into tensor<2x1x4x4xf32>
    %inserted_slice_25 = tensor.insert_slice %expanded_20 into %2[0, 0, 0, 0] [2, 1, 4, 4] [1, 1, 1, 1] : tensor<2x1x4x4xf32> into tensor<2x3x4x4xf32>
    %inserted_slice_26 = tensor.insert_slice %expanded_22 into %inserted_slice_25[0, 1, 0, 0] [2, 1, 4, 4] [1, 1, 1, 1] : tensor<2x1x4x4xf32> into tensor<2x3x4x4xf32>
    %inserted_slice_27 = tensor.insert_slice %expanded_24 into %inserted_slice_26[0, 2, 0, 0] [2, 1, 4, 4] [1, 1, 1, 1] : tensor<2x1x4x4xf32> into tensor<2x3x4x4xf32>
    %transposed_28 = linalg.transpose ins(%inserted_slice_27 : tensor<2x3x4x4xf32>) outs(%2 : tensor<2x3x4x4xf32>) permutation = [0, 1, 3, 2] 
    %3 = linalg.fill ins(%cst_3 : f32) outs(%2 : tensor<2x3x4x4xf32>) -> tensor<2x3x4x4xf32>
    %4 = linalg.contract indexing_maps = [#map, #map1, #map2] ins(%transposed_15, %transposed_28 : tensor<2x3x4x4xf32>, tensor<2x3x4x4xf32>) outs(%3 : tensor<2x3x4x4xf32>) -> tensor<2x3x4x4xf32>
    %5 = tensor.empty() : tensor<2x3x5x4xf32>
    %6 = linalg.fill ins(%cst_3 : f32) outs(%5 : tensor<2x3x5x4xf32>) -> tensor<2x3x5x4xf32>
    %inserted_slice_29 = tensor.insert_slice %4 into %6[0, 0, 0, 0] [2, 3, 4, 4] [1, 1, 1, 1] : tensor<2x3x4x4xf32> into tensor<2x3x5x4xf32>
    %collapsed_30 = tensor.collapse_shape %inserted_slice_29 [[0], [1], [2, 3]] : tensor<2x3x5x4xf32> into tensor<2x3x20xf32>
    %expanded_31 = tensor.expand_shape %collapsed_30 [[0], [1], [2, 3]] output_shape [2, 3, 4, 5] : tensor<2x3x20xf32> into tensor<2x3x4x5xf32>
    %extracted_slice_32 = tensor.extract_slice %expanded_31[0, 0, 0, 0] [2, 3, 2, 5] [1, 1, 1, 1] : tensor<2x3x4x5xf32> to tensor<2x3x2x5xf32>
    %extracted_slice_33 = tensor.extract_slice %extracted_slice_32[0, 0, 0, 0] [2, 3, 2, 3] [1, 1, 1, 1] : tensor<2x3x2x5xf32> to tensor<2x3x2x3xf32>
    %inserted_slice_34 = tensor.insert_slice %extracted_slice_33 into %cst_2[0, 0, 0, 2] [2, 3, 2, 3] [1, 1, 1, 1] : tensor<2x3x2x3xf32> into tensor<2x4x2x5xf32>
    %extracted_slice_35 = tensor.extract_slice %expanded_31[0, 2, 0, 0] [2, 1, 4, 5] [1, 1, 1, 1] : tensor<2x3x4x5xf32> to tensor<2x1x4x5xf32>
    %collapsed_36 = tensor.collapse_shape %extracted_slice_35 [[0], [1, 2], [3]] : tensor<2x1x4x5xf32> into tensor<2x4x5xf32>
    %extracted_slice_37 = tensor.extract_slice %collapsed_36[0, 2, 0] [2, 2, 5] [1, 1, 1] : tensor<2x4x5xf32> to tensor<2x2x5xf32>
    %extracted_slice_38 = tensor.extract_slice %extracted_slice_37[0, 0, 0] [2, 2, 3] [1, 1, 1] : tensor<2x2x5xf32> to tensor<2x2x3xf32>
    %expanded_39 = tensor.expand_shape %extracted_slice_38 [[0], [1, 2], [3]] output_shape [2, 1, 2, 3] : tensor<2x2x3xf32> into tensor<2x1x2x3xf32>
    %extracted_slice_40 = tensor.extract_slice %expanded_39[0, 0, 0, 0] [2, 1, 2, 3] [1, 1, 1, 1] : tensor<2x1x2x3xf32> to tensor<2x2x3xf32>
    %inserted_slice_41 = tensor.insert_slice %extracted_slice_40 into %inserted_slice_34[0, 3, 0, 2] [2, 1, 2, 3] [1, 1, 1, 1] : tensor<2x2x3xf32> into tensor<2x4x2x5xf32>
    %extracted_slice_42 = tensor.extract_slice %expanded_31[0, 0, 1, 0] [2, 3, 2, 5] [1, 1, 1, 1] : tensor<2x3x4x5xf32> to tensor<2x3x2x5xf32>
    %extracted_slice_43 = tensor.extract_slice %extracted_slice_42[0, 0, 0, 3] [2, 3, 2, 2] [1, 1, 1, 1] : tensor<2x3x2x5xf32> to tensor<2x3x2x2xf32>
    %inserted_slice_44 = tensor.insert_slice %extracted_slice_43 into %inserted_slice_41[0, 1, 0, 0] [2, 3, 2, 2] [1, 1, 1, 1] : tensor<2x3x2x2xf32> into tensor<2x4x2x5xf32>
    %extracted_slice_45 = tensor.extract_slice %expanded_31[0, 0, 0, 0] [2, 1, 4, 5] [1, 1, 1, 1] : tensor<2x3x4x5xf32> to tensor<2x1x4x5xf32>
    %collapsed_46 = tensor.collapse_shape %extracted_slice_45 [[0], [1, 2], [3]] : tensor<2x1x4x5xf32> into tensor<2x4x5xf32>
    %extracted_slice_47 = tensor.extract_slice %collapsed_46[0, 0, 0] [2, 1, 5] [1, 1, 1] : tensor<2x4x5xf32> to tensor<2x1x5xf32>
    %extracted_slice_48 = tensor.extract_slice %extracted_slice_47[0, 0, 4] [2, 1, 1] [1, 1, 1] : tensor<2x1x5xf32> to tensor<2x1x1xf32>
    %expanded_49 = tensor.expand_shape %extracted_slice_48 [[0], [1], [2, 3]] output_shape [2, 1, 1, 1] : tensor<2x1x1xf32> into tensor<2x1x1x1xf32>
    %extracted_slice_50 = tensor.extract_slice %expanded_49[0, 0, 0, 0] [2, 1, 1, 1] [1, 1, 1, 1] : tensor<2x1x1x1xf32> to tensor<2xf32>
    %inserted_slice_51 = tensor.insert_slice %extracted_slice_50 into %inserted_slice_44[0, 0, 1, 1] [2, 1, 1, 1] [1, 1, 1, 1] : tensor<2xf32> into tensor<2x4x2x5xf32>
    %collapsed_52 = tensor.collapse_shape %inserted_slice_51 [[0], [1, 2], [3]] : tensor<2x4x2x5xf32> into tensor<2x8x5xf32>
    %expanded_53 = tensor.expand_shape %collapsed_52 [[0, 1], [2], [3]] output_shape [1, 2, 8, 5] : tensor<2x8x5xf32> into tensor<1x2x8x5xf32>
    %7 = tensor.empty() : tensor<1x8x2x5xf32>
    %transposed_54 = linalg.transpose ins(%expanded_53 : tensor<1x2x8x5xf32>) outs(%7 : tensor<1x8x2x5xf32>) permutation = [0, 2, 1, 3] 
    %8 = tensor.empty() : tensor<2x3xf32>
    %9 = linalg.generic {indexing_maps = [#map3, #map3], iterator_types = ["parallel", "parallel"]} ins(%cst_1 : tensor<2x3xf32>) outs(%8 : tensor<2x3xf32>) {
    ^bb0(%in: f32, %out: f32):
      %37 = linalg.index 0 : index
      %38 = linalg.index 1 : index
      %39 = arith.cmpi sle, %38, %37 : index
      %40 = arith.select %39, %in, %cst_3 : f32
      linalg.yield %40 : f32
    } -> tensor<2x3xf32>
    %10 = linalg.generic {indexing_maps = [#map3], iterator_types = ["parallel", "parallel"]} outs(%8 : tensor<2x3xf32>) {
    ^bb0(%out: f32):
      %37 = linalg.index 0 : index
      %38 = linalg.index 1 : index
      %39 = arith.subi %c1, %37 : index
      %extracted = tensor.extract %9[%39, %38] : tensor<2x3xf32>
      linalg.yield %extracted : f32
    } -> tensor<2x3xf32>
    %expanded_55 = tensor.expand_shape %10 [[0, 1], [2, 3]] output_shape [1, 2, 1, 3] : tensor<2x3xf32> into tensor<1x2x1x3xf32>
    %11 = tensor.empty() : tensor<1x2x1x3xf32>
    %12 = linalg.generic {indexing_maps = [#map4], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} outs(%11 : tensor<1x2x1x3xf32>) {
    ^bb0(%out: f32):
      %37 = linalg.index 1 : index
      %38 = linalg.index 3 : index
      %39 = arith.subi %c1, %37 : index
      %extracted = tensor.extract %expanded_55[%c0, %39, %c0, %38] : tensor<1x2x1x3xf32>
      linalg.yield %extracted : f32
    } -> tensor<1x2x1x3xf32>
    %13 = linalg.generic {indexing_maps = [#map4], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} outs(%11 : tensor<1x2x1x3xf32>) {
    ^bb0(%out: f32):
      %37 = linalg.index 1 : index
      %38 = linalg.index 3 : index
      %39 = arith.subi %c2, %38 : index
      %extracted = tensor.extract %12[%c0, %37, %c0, %39] : tensor<1x2x1x3xf32>
      linalg.yield %extracted : f32
    } -> tensor<1x2x1x3xf32>
    %extracted_slice_56 = tensor.extract_slice %transposed_54[0, 0, 0, 0] [1, 2, 2, 5] [1, 1, 1, 1] : tensor<1x8x2x5xf32> to tensor<1x2x2x5xf32>
    %extracted_slice_57 = tensor.extract_slice %extracted_slice_56[0, 0, 0, 0] [1, 2, 2, 3] [1, 1, 1, 1] : tensor<1x2x2x5xf32> to tensor<1x2x2x3xf32>
    %expanded_58 = tensor.expand_shape %10 [[0, 1], [2]] output_shape [1, 2, 3] : tensor<2x3xf32> into tensor<1x2x3xf32>
    %14 = tensor.empty() : tensor<1x2x2x3xf32>
    %15 = tensor.empty() : tensor<1x2x3xi8>
    %16 = linalg.generic {indexing_maps = [#map5, #map5], iterator_types = ["parallel", "parallel", "parallel"]} ins(%expanded_58 : tensor<1x2x3xf32>) outs(%15 : tensor<1x2x3xi8>) {
    ^bb0(%in: f32, %out: i8):
      %37 = arith.cmpf une, %in, %cst_3 : f32
      %38 = arith.extui %37 : i1 to i8
      linalg.yield %38 : i8
    } -> tensor<1x2x3xi8>
    %17 = tensor.empty() : tensor<1x2x2x3xi8>
    %18 = linalg.generic {indexing_maps = [#map6, #map4], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%16 : tensor<1x2x3xi8>) outs(%17 : tensor<1x2x2x3xi8>) {
    ^bb0(%in: i8, %out: i8):
      linalg.yield %in : i8
    } -> tensor<1x2x2x3xi8>
    %19 = linalg.generic {indexing_maps = [#map4, #map4, #map4, #map4], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%18, %cst_0, %extracted_slice_57 : tensor<1x2x2x3xi8>, tensor<1x2x2x3xf32>, tensor<1x2x2x3xf32>) outs(%14 : tensor<1x2x2x3xf32>) {
    ^bb0(%in: i8, %in_81: f32, %in_82: f32, %out: f32):
      %37 = arith.cmpi ne, %in, %c0_i8 : i8
      %38 = arith.select %37, %in_81, %in_82 : f32
      linalg.yield %38 : f32
    } -> tensor<1x2x2x3xf32>
    %extracted_slice_59 = tensor.extract_slice %19[0, 0, 0, 0] [1, 2, 2, 3] [1, 1, 1, 1] : tensor<1x2x2x3xf32> to tensor<2x2x3xf32>
    %inserted_slice_60 = tensor.insert_slice %extracted_slice_59 into %transposed_54[0, 0, 0, 0] [1, 2, 2, 3] [1, 1, 1, 1] : tensor<2x2x3xf32> into tensor<1x8x2x5xf32>
    %extracted_slice_61 = tensor.extract_slice %inserted_slice_60[0, 6, 0, 0] [1, 2, 2, 5] [1, 1, 1, 1] : tensor<1x8x2x5xf32> to tensor<1x2x2x5xf32>
    %extracted_slice_62 = tensor.extract_slice %extracted_slice_61[0, 0, 0, 2] [1, 2, 2, 3] [1, 1, 1, 1] : tensor<1x2x2x5xf32> to tensor<1x2x2x3xf32>
    %collapsed_63 = tensor.collapse_shape %13 [[0], [1], [2, 3]] : tensor<1x2x1x3xf32> into tensor<1x2x3xf32>
    %20 = linalg.generic {indexing_maps = [#map5, #map5], iterator_types = ["parallel", "parallel", "parallel"]} ins(%collapsed_63 : tensor<1x2x3xf32>) outs(%15 : tensor<1x2x3xi8>) {
    ^bb0(%in: f32, %out: i8):
      %37 = arith.cmpf une, %in, %cst_3 : f32
      %38 = arith.extui %37 : i1 to i8
      linalg.yield %38 : i8
    } -> tensor<1x2x3xi8>
    %21 = linalg.generic {indexing_maps = [#map6, #map4], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%20 : tensor<1x2x3xi8>) outs(%17 : tensor<1x2x2x3xi8>) {
    ^bb0(%in: i8, %out: i8):
      linalg.yield %in : i8
    } -> tensor<1x2x2x3xi8>
    %22 = linalg.generic {indexing_maps = [#map4, #map4, #map4, #map4], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%21, %cst_0, %extracted_slice_62 : tensor<1x2x2x3xi8>, tensor<1x2x2x3xf32>, tensor<1x2x2x3xf32>) outs(%14 : tensor<1x2x2x3xf32>) {
    ^bb0(%in: i8, %in_81: f32, %in_82: f32, %out: f32):
      %37 = arith.cmpi ne, %in, %c0_i8 : i8
      %38 = arith.select %37, %in_81, %in_82 : f32
      linalg.yield %38 : f32
    } -> tensor<1x2x2x3xf32>
    %extracted_slice_64 = tensor.extract_slice %22[0, 0, 0, 0] [1, 2, 2, 3] [1, 1, 1, 1] : tensor<1x2x2x3xf32> to tensor<2x2x3xf32>
    %inserted_slice_65 = tensor.insert_slice %extracted_slice_64 into %inserted_slice_60[0, 6, 0, 2] [1, 2, 2, 3] [1, 1, 1, 1] : tensor<2x2x3xf32> into tensor<1x8x2x5xf32>
    %23 = attn.softmax %inserted_slice_65 dim 3 : tensor<1x8x2x5xf32>
    %24 = tensor.empty() : tensor<1x2x8x5xf32>
    %transposed_66 = linalg.transpose ins(%23 : tensor<1x8x2x5xf32>) outs(%24 : tensor<1x2x8x5xf32>) permutation = [0, 2, 1, 3] 
    %collapsed_67 = tensor.collapse_shape %transposed_66 [[0, 1], [2], [3]] : tensor<1x2x8x5xf32> into tensor<2x8x5xf32>
    %expanded_68 = tensor.expand_shape %collapsed_67 [[0], [1, 2], [3]] output_shape [2, 4, 2, 5] : tensor<2x8x5xf32> into tensor<2x4x2x5xf32>
    %transposed_69 = linalg.transpose ins(%arg2 : tensor<1x8x2x4xf32>) outs(%0 : tensor<1x2x8x4xf32>) permutation = [0, 2, 1, 3] 
    %collapsed_70 = tensor.collapse_shape %transposed_69 [[0, 1], [2], [3]] : tensor<1x2x8x4xf32> into tensor<2x8x4xf32>
    %25 = tensor.empty() : tensor<2x12x4xf32>
    %26 = linalg.fill ins(%cst : f32) outs(%25 : tensor<2x12x4xf32>) -> tensor<2x12x4xf32>
    %inserted_slice_71 = tensor.insert_slice %collapsed_70 into %26[0, 2, 0] [2, 8, 4] [1, 1, 1] : tensor<2x8x4xf32> into tensor<2x12x4xf32>
    %collapsed_72 = tensor.collapse_shape %inserted_slice_71 [[0, 1, 2]] : tensor<2x12x4xf32> into tensor<96xf32>
    %27 = tensor.empty() : tensor<2x4x6x4xi64>
    %28 = linalg.generic {indexing_maps = [#map4], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} outs(%27 : tensor<2x4x6x4xi64>) {
    ^bb0(%out: i64):
      %37 = linalg.index 0 : index
      %38 = linalg.index 1 : index
      %39 = linalg.index 2 : index
      %40 = linalg.index 3 : index
      %41 = arith.muli %37, %c48 overflow<nsw> : index
      %42 = arith.muli %38, %c8 overflow<nsw> : index
      %43 = arith.addi %41, %42 : index
      %44 = arith.muli %39, %c4 overflow<nsw> : index
      %45 = arith.addi %43, %44 : index
      %46 = arith.addi %45, %40 : index
      %47 = arith.index_cast %46 : index to i64
      linalg.yield %47 : i64
    } -> tensor<2x4x6x4xi64>
    %29 = tensor.empty() : tensor<2x4x6x4xf32>
    %30 = linalg.generic {indexing_maps = [#map4, #map4], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%28 : tensor<2x4x6x4xi64>) outs(%29 : tensor<2x4x6x4xf32>) {
    ^bb0(%in: i64, %out: f32):
      %37 = arith.index_cast %in : i64 to index
      %extracted = tensor.extract %collapsed_72[%37] : tensor<96xf32>
      linalg.yield %extracted : f32
    } -> tensor<2x4x6x4xf32>
    %31 = tensor.empty() : tensor<2x4x2x8xf32>
    %32 = linalg.fill ins(%cst_3 : f32) outs(%31 : tensor<2x4x2x8xf32>) -> tensor<2x4x2x8xf32>
    %inserted_slice_73 = tensor.insert_slice %expanded_68 into %32[0, 0, 0, 0] [2, 4, 2, 5] [1, 1, 1, 1] : tensor<2x4x2x5xf32> into tensor<2x4x2x8xf32>
    %collapsed_74 = tensor.collapse_shape %inserted_slice_73 [[0], [1], [2, 3]] : tensor<2x4x2x8xf32> into tensor<2x4x16xf32>
    %extracted_slice_75 = tensor.extract_slice %collapsed_74[0, 0, 0] [2, 4, 14] [1, 1, 1] : tensor<2x4x16xf32> to tensor<2x4x14xf32>
    %expanded_76 = tensor.expand_shape %extracted_slice_75 [[0], [1], [2, 3]] output_shape [2, 4, 2, 7] : tensor<2x4x14xf32> into tensor<2x4x2x7xf32>
    %extracted_slice_77 = tensor.extract_slice %expanded_76[0, 0, 0, 0] [2, 4, 2, 6] [1, 1, 1, 1] : tensor<2x4x2x7xf32> to tensor<2x4x2x6xf32>
    %33 = tensor.empty() : tensor<2x4x2x4xf32>
    %34 = linalg.fill ins(%cst_3 : f32) outs(%33 : tensor<2x4x2x4xf32>) -> tensor<2x4x2x4xf32>
    %35 = linalg.contract indexing_maps = [#map, #map7, #map2] ins(%extracted_slice_77, %30 : tensor<2x4x2x6xf32>, tensor<2x4x6x4xf32>) outs(%34 : tensor<2x4x2x4xf32>) -> tensor<2x4x2x4xf32>
    %collapsed_78 = tensor.collapse_shape %35 [[0], [1, 2], [3]] : tensor<2x4x2x4xf32> into tensor<2x8x4xf32>
    %expanded_79 = tensor.expand_shape %collapsed_78 [[0, 1], [2], [3]] output_shape [1, 2, 8, 4] : tensor<2x8x4xf32> into tensor<1x2x8x4xf32>
    %36 = tensor.empty() : tensor<1x8x2x4xf32>
    %transposed_80 = linalg.transpose ins(%expanded_79 : tensor<1x2x8x4xf32>) outs(%36 : tensor<1x8x2x4xf32>) permutation = [0, 2, 1, 3] 
    return %transposed_80 : tensor<1x8x2x4xf32>
  }
}
