#ifndef DIALECTS_ATTN_INTEGERPRODUCTOP_TD
#define DIALECTS_ATTN_INTEGERPRODUCTOP_TD

include "dialects/attn/AttnDialect.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def Attn_IntegerProductOp : Attn_Op<"integer_product", [Pure, AttrSizedOperandSegments,
    DeclareOpInterfaceMethods<ReifyRankedShapedTypeOpInterface, ["reifyResultShapes"]>]> {
  let summary = "the product of a quantised activation and a quantised matrix, as sums of integers";
  let description = [{
    `result[.., n] = sum_k (lhs[.., k] - lhs_zero) * (rhs[k, n] - rhs_zero[n])` in
    32 bits, modulo 2^32. `lhs` has elements from 0 to 255, `rhs` from -128 to 127,
    or from 0 to 255 with `unsigned`; each zero point has the range of its tensor.
    With `transposed` rhs is N x K. A zero point that is missing is 0. Dimensions of
    rhs before the last two are the first ones of lhs: a matrix for each of them.

    Rationale. Every spelling of a quantised product ends in this op: what an exporter
    does before it makes `lhs`, and scales, bias, activation and the next
    quantisation are elementwise ops on the result, which fuse as those of any
    other product do. Neither `linalg.contract` nor a quantised linalg op says it:
    operands of 8 bits of different signs, both with zero points, of which one
    goes by column. Their product as integers is exact, so that a kernel may sum in
    any order: `sum lhs * rhs - lhs_zero * sum rhs`, with sums of the matrix that
    the compiler knows. A signed activation is one of 0 to 255 with 128 added to it
    and to its zero point.

    | operand | shape | elements |
    |-|-|-|
    | `lhs` | `.. x K` | u8 |
    | `lhs_zero` | rank 0 | u8 |
    | `rhs` | `.. x K x N`, transposed `.. x N x K` | s8, with `unsigned` u8 |
    | `rhs_zero` | rank 0, or `N` | as rhs |
    | `result` | `.. x N` | s32 |

    * (C1) lhs, rhs and their zero points have i8 elements, the result i32;
    * (C2) lhs has a dimension at least, rhs two, and those before them are the first
           ones of lhs;
    * (C3) lhs and rhs have the same K;
    * (C4) the result has the sizes of lhs but for the last, which is N;
    * (C5) lhs_zero has rank 0, rhs_zero rank 0 or the shape N.

    ```mlir
    %s = attn.integer_product %x zero %z by %w
        : tensor<?x128x768xi8> zero tensor<i8> by tensor<768x3072xi8> -> tensor<?x128x3072xi32>
    ```
  }];
  let arguments = (ins AnyRankedTensor:$lhs, Optional<AnyRankedTensor>:$lhs_zero, AnyRankedTensor:$rhs,
                       Optional<AnyRankedTensor>:$rhs_zero, UnitAttr:$transposed, UnitAttr:$is_unsigned);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = [{
    $lhs (`zero` $lhs_zero^)? `by` $rhs (`zero` $rhs_zero^)? (`transposed` $transposed^)? (`unsigned` $is_unsigned^)?
    attr-dict `:` type($lhs) (`zero` type($lhs_zero)^)? `by` type($rhs) (`zero` type($rhs_zero)^)? `->` type($result)
  }];
  let extraClassDeclaration = [{
    /// Dimensions of rhs before those of a matrix.
    int64_t getNumBatch() { return ::llvm::cast<::mlir::RankedTensorType>(getRhs().getType()).getRank() - 2; }
    /// K and N of rhs, or kDynamic.
    int64_t getDepth() { return rhsSize(getTransposed() ? 1 : 0); }
    int64_t getColumns() { return rhsSize(getTransposed() ? 0 : 1); }

  private:
    int64_t rhsSize(int64_t dim) {
      auto type = ::llvm::cast<::mlir::RankedTensorType>(getRhs().getType());
      return type.getDimSize(type.getRank() - 2 + dim);
    }
  }];
  let hasVerifier = 1;
}

#endif // DIALECTS_ATTN_INTEGERPRODUCTOP_TD
