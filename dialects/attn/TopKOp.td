#ifndef DIALECTS_ATTN_TOPKOP_TD
#define DIALECTS_ATTN_TOPKOP_TD

include "dialects/attn/AttnDialect.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def Attn_TopKOp : Attn_Op<"top_k", [Pure,
    DeclareOpInterfaceMethods<ReifyRankedShapedTypeOpInterface, ["reifyResultShapes"]>]> {
  let summary = "the first elements of each row in descending order, and where they stand";
  let description = [{
    The `count` greatest elements (with `smallest`: the least) along dimension
    `dim`, in that order, and their positions; equal elements by position. NaN is
    greater than any number, and all NaNs are equal, as are -0 and 0. Integers are
    signed unless `unsigned` says otherwise. What `count` exceeds the size of `dim` by
    is 0. Source: ONNX TopK-11.

    * (C1) `dim` is in [0, rank);
    * (C2) the results have the sizes of the input, but for `dim`;
    * (C3) values have the input's element type, floats or integers, positions i64.

    ```mlir
    %v, %i = attn.top_k %x, %k dim 1 : tensor<?x?xf32> -> tensor<?x?xf32>, tensor<?x?xi64>
    ```
  }];
  let arguments = (ins AnyRankedTensor:$input, Index:$count, I64Attr:$dim /*C1*/, UnitAttr:$smallest,
                       UnitAttr:$is_unsigned);
  let results = (outs AnyRankedTensor:$values /*C2, C3*/, AnyRankedTensor:$positions /*C2, C3*/);
  let assemblyFormat = [{
    $input `,` $count `dim` $dim (`smallest` $smallest^)? (`unsigned` $is_unsigned^)? attr-dict
    `:` type($input) `->` type($values) `,` type($positions)
  }];
  let hasVerifier = 1;
}

#endif // DIALECTS_ATTN_TOPKOP_TD
