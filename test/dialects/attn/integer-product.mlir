// RUN: attn-opt %s | attn-opt | FileCheck %s
// RUN: attn-opt %s --attn-decompose | FileCheck %s --check-prefix=LINALG

// CHECK-LABEL: @products
// CHECK: attn.integer_product %{{.*}} zero %{{.*}} by %{{.*}} : tensor<?x4x8xi8> zero tensor<i8> by tensor<8x6xi8> -> tensor<?x4x6xi32>
// CHECK: attn.integer_product %{{.*}} by %{{.*}} zero %{{.*}} transposed unsigned : tensor<8xi8> by tensor<6x8xi8> zero tensor<6xi8> -> tensor<6xi32>
// CHECK: attn.integer_product %{{.*}} by %{{.*}} transposed : tensor<?x4x8xi8> by tensor<?x6x8xi8> -> tensor<?x4x6xi32>
// LINALG-LABEL: @products
// LINALG-NOT: attn.integer_product
// LINALG: linalg.generic {{.*}} iterator_types = ["parallel", "parallel", "parallel", "reduction"]
// LINALG-NEXT: ^bb0(%[[A:.*]]: i8, %[[B:.*]]: i8, %[[Z:.*]]: i8, %[[SUM:.*]]: i32):
// LINALG-DAG: %[[WIDE:.*]] = arith.extui %[[A]] : i8 to i32
// LINALG-DAG: %[[RIGHT:.*]] = arith.extsi %[[B]] : i8 to i32
// LINALG-DAG: %[[ZERO:.*]] = arith.extui %[[Z]] : i8 to i32
// LINALG: %[[LEFT:.*]] = arith.subi %[[WIDE]], %[[ZERO]]
// LINALG: %[[PRODUCT:.*]] = arith.muli %[[LEFT]], %[[RIGHT]]
// LINALG: arith.addi %[[SUM]], %[[PRODUCT]]
// LINALG: linalg.generic {{.*}} iterator_types = ["parallel", "reduction"]
// LINALG: arith.extui
// LINALG: arith.extui
// LINALG: arith.extui
// LINALG: linalg.generic {indexing_maps = [#[[ROW:.*]], #[[MATRIX:.*]], #{{.*}}], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%{{.*}}, %{{.*}} : tensor<?x4x8xi8>, tensor<?x6x8xi8>)
func.func @products(%x: tensor<?x4x8xi8>, %z: tensor<i8>, %w: tensor<8x6xi8>, %v: tensor<8xi8>, %u: tensor<6x8xi8>,
                    %zeros: tensor<6xi8>, %m: tensor<?x6x8xi8>) -> (tensor<?x4x6xi32>, tensor<6xi32>, tensor<?x4x6xi32>) {
  %a = attn.integer_product %x zero %z by %w
      : tensor<?x4x8xi8> zero tensor<i8> by tensor<8x6xi8> -> tensor<?x4x6xi32>
  %b = attn.integer_product %v by %u zero %zeros transposed unsigned
      : tensor<8xi8> by tensor<6x8xi8> zero tensor<6xi8> -> tensor<6xi32>
  %c = attn.integer_product %x by %m transposed : tensor<?x4x8xi8> by tensor<?x6x8xi8> -> tensor<?x4x6xi32>
  return %a, %b, %c : tensor<?x4x6xi32>, tensor<6xi32>, tensor<?x4x6xi32>
}
