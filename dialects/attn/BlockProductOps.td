#ifndef DIALECTS_ATTN_BLOCKPRODUCTOPS_TD
#define DIALECTS_ATTN_BLOCKPRODUCTOPS_TD

include "dialects/attn/AttnDialect.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

// Weights in blocks: a few bits an element, and a scale for each block of elements along one dimension.

def Attn_DequantizeBlocksOp : Attn_Op<"dequantize_blocks", [Pure,
    DeclareOpInterfaceMethods<ReifyRankedShapedTypeOpInterface, ["reifyResultShapes"]>]> {
  let summary = "numbers stored as small integers with one scale a block";
  let description = [{
    `result[.., i, ..] = (codes[.., i, ..] - zeros[.., i / block, ..]) * scales[.., i / block, ..]`
    in the scales' type, where `i` is the index of dimension `axis`. Codes have
    `bits` bits, from 0 on with `unsigned`, else from -2^(bits - 1) on. Without
    `zeros` the zero point is `zero_point`; zeros of i8 are in the codes' range,
    others floats of the scales' type.

    With `narrow_rows` the model lets a product round the rows that it is multiplied
    by to 8 bits, each block with a scale of its own (`accuracy_level` 4).

    With `e4m3` codes of 8 bits are those of float8e4m3fn, from which no zero
    point is subtracted.

    Rationale. MatMulNBits and GatherBlockQuantized of ONNX Runtime and
    DequantizeLinear with `block_size` store the same thing. As one op a reader finds
    codes and scales, and what reads the numbers decides whether they are ever
    written out. In the IR each code is a byte; a kernel's weights hold `bits` of it.

    * (C1) codes have i8 elements; scales and result one float type; zeros i8 or that type;
    * (C2) `axis` is a dimension of the result; `bits` is 2, 4 or 8 and `block` positive;
    * (C3) codes have the result's shape;
    * (C4) scales and zeros have the result's shape but for `axis`, which has ceil(size / block) entries;
    * (C5) codes of e4m3 have 8 bits, no zeros, no zero point and are not `unsigned`.

    ```mlir
    %w = attn.dequantize_blocks %codes scales %s axis 1 block 32 bits 4 zero_point 8 unsigned
        : tensor<6x80xi8> scales tensor<6x3xf32> -> tensor<6x80xf32>
    ```
  }];
  let arguments = (ins AnyRankedTensor:$codes, AnyRankedTensor:$scales, Optional<AnyRankedTensor>:$zeros,
                       I64Attr:$axis, I64Attr:$block, I64Attr:$bits, DefaultValuedAttr<I64Attr, "0">:$zero_point,
                       UnitAttr:$is_unsigned, UnitAttr:$narrow_rows, UnitAttr:$is_e4m3);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = [{
    $codes `scales` $scales (`zeros` $zeros^)? `axis` $axis `block` $block `bits` $bits (`zero_point` $zero_point^)?
    (`unsigned` $is_unsigned^)? (`e4m3` $is_e4m3^)? (`narrow_rows` $narrow_rows^)? attr-dict
    `:` type($codes) `scales` type($scales) (`zeros` type($zeros)^)? `->` type($result)
  }];
  let hasVerifier = 1;
}

def Attn_BlockProductOp : Attn_Op<"block_product", [Pure,
    DeclareOpInterfaceMethods<ReifyRankedShapedTypeOpInterface, ["reifyResultShapes"]>]> {
  let summary = "the product of rows of f32 and a matrix that is stored in blocks";
  let description = [{
    `result[.., n] = sum_k lhs[.., k] * w[k, n]` in f32, where w is what
    `attn.dequantize_blocks` makes of `codes`, `scales` and `zeros` with blocks along
    K. With `transposed` these are N x K, as MatMulNBits stores them. With
    `narrow_rows` blocks of lhs may be rounded to s8, by max |lhs| / 127.

    Rationale. The product reads the codes themselves, so that no matrix of floats is
    written in a run, nor stored in a library.

    * (C1) lhs and result are f32; codes, scales and zeros as `attn.dequantize_blocks` has them;
    * (C2) codes are a matrix;
    * (C3) lhs has a last dimension of static size K, which is that of codes;
    * (C4) the result has the sizes of lhs but for the last, which is N.

    ```mlir
    %y = attn.block_product %x by %codes scales %s block 32 bits 4 zero_point 8 transposed unsigned
        : tensor<?x80xf32> by tensor<6x80xi8> scales tensor<6x3xf32> -> tensor<?x6xf32>
    ```
  }];
  let arguments = (ins AnyRankedTensor:$lhs, AnyRankedTensor:$codes, AnyRankedTensor:$scales,
                       Optional<AnyRankedTensor>:$zeros, I64Attr:$block, I64Attr:$bits,
                       DefaultValuedAttr<I64Attr, "0">:$zero_point, UnitAttr:$transposed,
                       UnitAttr:$is_unsigned, UnitAttr:$narrow_rows);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = [{
    $lhs `by` $codes `scales` $scales (`zeros` $zeros^)? `block` $block `bits` $bits (`zero_point` $zero_point^)?
    (`transposed` $transposed^)? (`unsigned` $is_unsigned^)? (`narrow_rows` $narrow_rows^)? attr-dict
    `:` type($lhs) `by` type($codes) `scales` type($scales) (`zeros` type($zeros)^)? `->` type($result)
  }];
  let extraClassDeclaration = [{
    /// K and N.
    int64_t getDepth() { return ::llvm::cast<::mlir::RankedTensorType>(getLhs().getType()).getShape().back(); }
    int64_t getColumns() {
      return ::llvm::cast<::mlir::RankedTensorType>(getCodes().getType()).getDimSize(getTransposed() ? 0 : 1);
    }
  }];
  let hasVerifier = 1;
}

#endif // DIALECTS_ATTN_BLOCKPRODUCTOPS_TD
