#ifndef DIALECTS_ATTN_GRAPHOPS_TD
#define DIALECTS_ATTN_GRAPHOPS_TD

include "dialects/attn/AttnDialect.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

// Words that the importer uses because dissolving them and finding them again
// would be work without gain, and checks that only the run can make.

def Attn_SoftmaxOp : Attn_Op<"softmax", [Pure, AllTypesMatch<["input", "result"]>,
    DeclareOpInterfaceMethods<ReifyRankedShapedTypeOpInterface, ["reifyResultShapes"]>]> {
  let summary = "softmax over one dimension";
  let description = [{
    `result[.., i, ..] = exp(input[i] - max_i input) / sum_i exp(input[i] - max_i input)`
    over dimension `dim`; sums in f32 (f64 for f64). `log` gives its logarithm.

    * (C1) `dim` is in [0, rank);
    * (C2) the element type is a float.

    ```mlir
    %y = attn.softmax %x dim 3 : tensor<?x12x?x?xf32>
    ```
  }];
  let arguments = (ins AnyRankedTensor:$input, I64Attr:$dim /*C1*/, UnitAttr:$log);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$input `dim` $dim (`log` $log^)? attr-dict `:` type($result)";
  let hasVerifier = 1;
}

def Attn_LayerNormOp : Attn_Op<"layer_norm", [Pure, AllTypesMatch<["input", "result"]>,
    DeclareOpInterfaceMethods<ReifyRankedShapedTypeOpInterface, ["reifyResultShapes"]>]> {
  let summary = "layer normalisation over the trailing dimensions";
  let description = [{
    `result = (x - mean) / sqrt(variance + epsilon) * scale + bias`, mean and
    variance over the dimensions `axis`..rank-1, computed in f32 (f64 for f64).
    `scale` and `bias` have the shape of these dimensions. Source: ONNX
    LayerNormalization-17.

    * (C1) `axis` is in [0, rank);
    * (C2) scale and bias have rank - axis dimensions, equal to those of the input;
    * (C3) input, scale and bias have one float element type.

    ```mlir
    %y = attn.layer_norm %x, %scale, %bias axis 2 epsilon 1.0e-5
        : tensor<?x?x384xf32>, tensor<384xf32>, tensor<384xf32>
    ```
  }];
  let arguments = (ins AnyRankedTensor:$input, AnyRankedTensor:$scale /*C2*/,
                       Optional<AnyRankedTensor>:$bias /*C2*/, I64Attr:$axis /*C1*/,
                       F32Attr:$epsilon);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = [{
    $input `,` $scale (`,` $bias^)? `axis` $axis `epsilon` $epsilon attr-dict
    `:` type($input) `,` type($scale) (`,` type($bias)^)?
  }];
  let hasVerifier = 1;
}

def Attn_RequireOp : Attn_Op<"require", []> {
  let summary = "end the run with a message unless a condition holds";
  let description = [{
    When `condition` is false the run ends with status
    `ATTNRT_INVALID_ARGUMENT` (`ATTNRT_UNSUPPORTED` where `unsupported` says
    that the caller is right and the code cannot do it) and `message`, in which
    `{0}`, `{1}`, ... stand for the values. Stands at the top level of an entry.

    ```mlir
    attn.require %same, "node 'add_3' (Add): sizes {0} and {1} differ" (%a, %b)
    ```
  }];
  let arguments = (ins I1:$condition, StrAttr:$message, Variadic<Index>:$values,
                       UnitAttr:$unsupported);
  let assemblyFormat = "(`unsupported` $unsupported^)? $condition `,` $message (`(` $values^ `)`)? attr-dict";
}

def Attn_CheckIndexOp : Attn_Op<"check_index", [Pure]> {
  let summary = "an index made safe: negative wraps once, out of range is recorded";
  let description = [{
    `result` is `index`, or `index + size` when negative, when that lies in
    [0, size); with `nonnegative` a negative one is out of range too. Otherwise
    the run will end with `ATTNRT_OUT_OF_RANGE` and "`message`: an index is out of
    range: `index` in a dimension of size `size`" (`message` names the node), and
    `result` is 0 meanwhile. Of several the first that is recorded counts. Pure on
    purpose: an unused check may go, a repeated one records the same error.

    ```mlir
    %k = attn.check_index %i, %n, "node 'emb' (Gather)" : index
    %m = attn.check_index nonnegative %i, %n, "node 'split' (SplitToSequence)" : index
    ```
  }];
  let arguments = (ins Index:$index, Index:$size, StrAttr:$message, UnitAttr:$nonnegative);
  let results = (outs Index:$result);
  let assemblyFormat = "(`nonnegative` $nonnegative^)? $index `,` $size `,` $message attr-dict `:` type($result)";
  let extraClassDeclaration = [{
    /// The message of the run, with places for the index and the size.
    std::string getRunMessage() {
      return (getMessage() + ": an index is out of range: {0} in a dimension of size {1}").str();
    }
  }];
}

#endif // DIALECTS_ATTN_GRAPHOPS_TD
