#ifndef PASSES_GRAPH_GRAPHPASSES_TD
#define PASSES_GRAPH_GRAPHPASSES_TD

include "mlir/Pass/PassBase.td"

def DecomposePass : Pass<"attn-decompose"> {
  let summary = "write attn.softmax, attn.layer_norm and attn.attention as linalg on tensors";
  let description = [{
    The meaning of these ops in plain linalg: what -O0 runs, what an op without
    a kernel becomes, and what fused kernels are tested against. Sums are taken
    in f32 (f64 for f64); each op's materialised scores cost O(i * j) memory.

    ```mlir
    %y = attn.softmax %x dim 1 : tensor<?x?xf32>
    ```

    becomes

    ```mlir
    %max = linalg.generic {maximumf over dim 1} ins(%x)
    %e   = linalg.generic {exp(x - max)} ins(%x, %max)
    %sum = linalg.generic {addf over dim 1} ins(%e)
    %y   = linalg.generic {e / sum} ins(%e, %sum)
    ```

    attn.attention becomes linalg.contract, a generic with the score region,
    such a softmax with its masked-row policy, a generic with the weight region
    and a second linalg.contract.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::affine::AffineDialect",
                           "::mlir::linalg::LinalgDialect", "::mlir::math::MathDialect",
                           "::mlir::tensor::TensorDialect"];
}

#endif // PASSES_GRAPH_GRAPHPASSES_TD
