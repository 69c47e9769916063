#ifndef DIALECTS_ATTN_ATTENTIONOP_TD
#define DIALECTS_ATTN_ATTENTIONOP_TD

include "dialects/attn/AttnDialect.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def Attn_MaskedRows : I32EnumAttr<"MaskedRows", "result of a row whose every score is -inf", [
    I32EnumAttrCase<"zero", 0>, I32EnumAttrCase<"nan", 1>,
    I32EnumAttrCase<"uniform", 2>, I32EnumAttrCase<"finite", 3>]> {
  let cppNamespace = "::attn";
  let genSpecializedAttr = 0;
}
def Attn_MaskedRowsAttr : EnumAttr<Attn_Dialect, Attn_MaskedRows, "masked_rows"> {
  let assemblyFormat = "$value";
}

//===----------------------------------------------------------------------===//
// AttentionOp
//===----------------------------------------------------------------------===//

def Attn_AttentionOp : Attn_Op<"attention", [Pure, IsolatedFromAbove,
    DeclareOpInterfaceMethods<ReifyRankedShapedTypeOpInterface, ["reifyResultShapes"]>]> {
  let summary = "attention with a score region and a weight region";
  let description = [{
    With the iteration dimensions (b, h, i, j, d, e): batch, head, query, key,
    key width and value width, computes in f32

        s[b,h,i,j]   = score( sum_d query * key, captures... )
        w[b,h,i,:]   = softmax_j s[b,h,i,:]
        result[b,h,i,e] = sum_j weight( w[b,h,i,j], captures... ) * value

    Each operand and the result is read through its indexing map, a map from
    (b, h, i, j, d, e) to the operand's own dimensions; so the layouts BHSD,
    BSHD, 3-D, packed and transposed K are maps, and `h floordiv 4` in the maps
    of key and value is a grouped-query ratio of 4. A dimension that no map
    names has size 1. The maps stand in the order query, key, value,
    captures..., result.

    The block arguments of both regions are the score (or weight) in f32 and
    one element of each capture; `attn.index` gives b, h, i or j. They use
    nothing else from outside: constants stand in the region. An empty weight
    region is the identity.

    `masked_rows` says what a row gets whose every score is -inf: `zero`,
    `nan` (what the plain graph computes), `uniform` (average of all keys) or
    `finite` (the additive constants take part: no score is -inf).

    Constraints:

    * (C1) query, key, value and result have one float element type;
    * (C2) there are 4 + number of captures maps, each with 6 dimensions, no
           symbols, and as many results as its operand has dimensions;
    * (C3) each map result is a dimension, `h floordiv c` with c > 1, or
           the constant 0; a map names each dimension at most once; the map of
           the result holds no floordiv;
    * (C4) query names i and d, not j or e; key names j and d, not i or e;
           value names j and e, not i or d; the result names i and e, not j
           or d; a capture names neither d nor e; the result names b and h
           exactly when the map of an operand does;
    * (C5) sizes that belong to one dimension agree where both are static; a
           dimension read at the constant 0 has size 1; under `h floordiv c`,
           c times the size is the size of h;
    * (C6) the score region and a weight region that is not empty take the
           f32 score and the element of each capture, and yield one f32.

    Example:

    ```mlir
    #q = affine_map<(b, h, i, j, d, e) -> (b, i, h, d)>
    #k = affine_map<(b, h, i, j, d, e) -> (b, j, h, d)>
    #v = affine_map<(b, h, i, j, d, e) -> (b, j, h, e)>
    #m = affine_map<(b, h, i, j, d, e) -> (b, j)>
    #o = affine_map<(b, h, i, j, d, e) -> (b, i, h, e)>
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
    ```
  }];
  let arguments = (ins
    AnyRankedTensor:$query /*C1*/,
    AnyRankedTensor:$key /*C1*/,
    AnyRankedTensor:$value /*C1*/,
    Variadic<AnyRankedTensor>:$captures,
    AffineMapArrayAttr:$indexing_maps /*C2*/,
    Attn_MaskedRowsAttr:$masked_rows
  );
  let results = (outs AnyRankedTensor:$result /*C1*/);
  let regions = (region SizedRegion<1>:$score, AnyRegion:$weight);
  let assemblyFormat = [{
    `masked_rows` $masked_rows `maps` $indexing_maps
    `ins` `(` $query `,` $key `,` $value `:` type($query) `,` type($key) `,` type($value) `)`
    (`captures` `(` $captures^ `:` type($captures) `)`)?
    `->` type($result)
    `score` $score (`weight` $weight^)? attr-dict
  }];
  let builders = [
    // The callbacks write a region's body and return what it yields: `score`
    // and `weight` get the f32 score (weight) and one element of each capture.
    // Without `weight` the weight region is empty.
    OpBuilder<(ins "::mlir::Type":$result, "::mlir::Value":$query, "::mlir::Value":$key,
                   "::mlir::Value":$value, "::mlir::ValueRange":$captures,
                   "::llvm::ArrayRef<::mlir::AffineMap>":$maps, "::attn::MaskedRows":$maskedRows,
                   "::attn::AttentionBody":$score, CArg<"::attn::AttentionBody", "{}">:$weight)>
  ];
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
  let extraClassDeclaration = [{
    /// Positions of the iteration dimensions in every indexing map.
    enum Dim { B = 0, H = 1, I = 2, J = 3, D = 4, E = 5 };
    ::mlir::AffineMap getQueryMap() { return getMap(0); }
    ::mlir::AffineMap getKeyMap() { return getMap(1); }
    ::mlir::AffineMap getValueMap() { return getMap(2); }
    ::mlir::AffineMap getCaptureMap(unsigned n) { return getMap(3 + n); }
    ::mlir::AffineMap getResultMap() { return getMap(getIndexingMaps().size() - 1); }
    ::mlir::AffineMap getMap(unsigned n) {
      return ::llvm::cast<::mlir::AffineMapAttr>(getIndexingMaps()[n]).getValue();
    }
    /// Query, key, value, captures..., in the order of the maps.
    ::mlir::OperandRange getMappedOperands() { return getOperands(); }
    /// `h floordiv c` as c; `h` (or another dimension) itself as 1.
    static int64_t getDivisor(::mlir::AffineExpr);
    /// The dimension that a map result names, or nullopt for the constant 0.
    static ::std::optional<unsigned> getNamedDim(::mlir::AffineExpr);
    /// Whether the map of an operand or of the result names `dim`.
    bool isNamed(unsigned dim);
    /// Sizes of (b, h, i, j, d, e); 1 for one that no map names. Emits
    /// tensor.dim where the size is dynamic.
    ::llvm::SmallVector<::mlir::OpFoldResult> getIterationSizes(::mlir::OpBuilder &, ::mlir::Location);
  }];
}

def Attn_YieldOp : Attn_Op<"yield", [Pure, Terminator, HasParent<"AttentionOp">]> {
  let summary = "the value of a score or weight region";
  let arguments = (ins AnyType:$value);
  let assemblyFormat = "$value attr-dict `:` type($value)";
}

def Attn_IndexOp : Attn_Op<"index", [Pure]> {
  let summary = "b (0), h (1), i (2) or j (3) of the score at hand";
  let description = [{
    Inside a score or weight region of `attn.attention`.

    ```mlir
    %i = attn.index 2 : index
    ```
  }];
  let arguments = (ins ConfinedAttr<I64Attr, [IntMinValue<0>, IntMaxValue<3>]>:$dim);
  let results = (outs Index:$result);
  let assemblyFormat = "$dim attr-dict `:` type($result)";
}

#endif // DIALECTS_ATTN_ATTENTIONOP_TD
