#ifndef DIALECTS_ATTN_SEGMENTATTENTIONOP_TD
#define DIALECTS_ATTN_SEGMENTATTENTIONOP_TD

include "dialects/attn/AttnDialect.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def Attn_SegmentAttentionOp
    : Attn_Op<"segment_attention", [Pure, DeclareOpInterfaceMethods<
                                              ReifyRankedShapedTypeOpInterface, ["reifyResultShapes"]>]> {
  let summary = "the attention of the nodes of a graph over the edges that end in them";
  let description = [{
    Each of N nodes sums values over its own list of edges, weighted by a
    softmax of their scores, with H heads of width C each:

        edges(n)      = order[ends[n - 1]], ..., order[ends[n] - 1]    (from 0 for n = 0)
        m[n,h]        = max of floor and scores[e,h] over the e in edges(n)
        w[e,h]        = exp(scores[e,h] - m[n,h])
                        / (sum of exp(scores[f,h] - m[n,h]) over the f in edges(n) + epsilon)
        result[n,h,c] = sum of w[e,h] * values[r(e),h,c] over the e in edges(n)

    r(e) is rows[e], or e without rows. A node without edges gets zeros. An edge
    that is listed twice counts twice. Sums are taken in f32 (f64 for f64).
    Without a floor m is a score. Graphs subtract the greatest of a node's scores and
    of some constant, the floor, which says what epsilon is beside the sum. It is no
    attn.attention: there the scores are a matrix over nodes and edges, of which
    a mask hides all but one entry of each column.

    * (C1) scores are (E, H), values (M, H, C), the result (N, H, C), of one
           float element type;
    * (C2) order is (L), ends (N), rows (E), of i64; entries of order are in
           [0, E), of rows in [0, M), ends ascend up to L;
    * (C3) epsilon is not negative.

    ```mlir
    %y = attn.segment_attention %s, %v by %order, %ends rows %sources
        : tensor<?x8xf32>, tensor<?x8x32xf32>, tensor<?xi64>, tensor<?xi64>, tensor<?xi64> -> tensor<?x8x32xf32>
    ```
  }];
  let arguments = (ins AnyRankedTensor:$scores /*C1*/, AnyRankedTensor:$values /*C1*/, AnyRankedTensor:$order /*C2*/,
      AnyRankedTensor:$ends /*C2*/, Optional<AnyRankedTensor>:$rows /*C2*/,
      DefaultValuedAttr<F64Attr, "0.0">:$epsilon /*C3*/, OptionalAttr<F64Attr>:$floor);
  let results = (outs AnyRankedTensor:$result /*C1*/);
  let assemblyFormat = [{
    $scores `,` $values `by` $order `,` $ends (`rows` $rows^)? (`epsilon` $epsilon^)? (`floor` $floor^)? attr-dict
    `:` type($scores) `,` type($values) `,` type($order) `,` type($ends) (`,` type($rows)^)? `->` type($result)
  }];
  let hasVerifier = 1;
}

#endif // DIALECTS_ATTN_SEGMENTATTENTIONOP_TD
