#ifndef DIALECTS_ATTN_ATTENTIONOP_TD
#define DIALECTS_ATTN_ATTENTIONOP_TD

include "dialects/attn/AttentionAttrs.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

//===----------------------------------------------------------------------===//
// AttentionOp
//===----------------------------------------------------------------------===//

def Attn_AttentionOp : Attn_Op<"attention", [Pure, IsolatedFromAbove, AttrSizedOperandSegments,
    DeclareOpInterfaceMethods<ReifyRankedShapedTypeOpInterface, ["reifyResultShapes"]>]> {
  let summary = "the one fused attention: scores, mask, weights, weighted sum";
  let description = [{
    With the iteration dimensions (b, h, i, j, d, e): batch, head, query, key,
    key width and value width, computes in f32 (f64 for f64)

        r[b,h,i,j]   = by kind: dot       sum_d query * key
                                additive  sum_d alignment * activation(query + key)
                                distance  sum_d (query - key)^2
                                given     query
        s[b,h,i,j]   = score( r, captures... ), -inf (0 unless softmax) for a key that the mask hides
        w[b,h,i,:]   = by normalizer: softmax_j s, s / sum_j s (sum), s (none)
        result[b,h,i,e] = sum_j weight( w[b,h,i,j], captures... ) * value

    Each operand and result is read through its indexing map, a map from
    (b, h, i, j, d, e) to the operand's own dimensions; so the layouts BHSD,
    BSHD, 3-D, packed and transposed K are maps, and `h floordiv 4` in the maps
    of key and value is a grouped-query ratio of 4. A dimension that no map
    names has size 1. The maps stand in the order of the operands (query, key,
    value, alignment, captures..., mask operands...), then result and extra
    results. `ins` holds query, key, value; and alignment when additive; only
    the scores (called query) and value when given.

    The block arguments of the regions score, weight and masked are the score
    (or weight) in f32 (f64) and one element of each capture; `attn.index`
    gives b, h, i or j. The activation region has one argument and no index.
    Regions use nothing else from outside: constants stand in the region. An
    empty region is the identity; score is never empty.

    `mask` is a list of terms. Key j is visible to query i when every `dense`,
    `lengths`, `blocks` and `chunks` term shows it, and every `causal` and
    `window` term or one `prefix` term does. A hidden key has weight 0 in every stage, and a
    NaN in its score or value reaches nothing. (The score region may mask too,
    by -inf; such a key only has a score of -inf.)

    `masked_rows` says what a row gets without any score above -inf (under
    `sum`: of sum 0): weights of `zero`, of `nan` (what the plain graph
    computes), or `uniform` (1/n for each of all n keys); the weight region
    follows. With `finite` the hidden keys of such a row take part, with the
    score `masked( s, captures... )`: that is where additive constants like
    -1e4 stand which hide keys only from rows that see others.

    `softmax_type` is the float type to which scores and weights are rounded
    around the softmax, when it is not the type of the computation.

    Extra results (`#attn.extra`) come from the same sweep. Their maps name b
    and h as the result does.

    `axes` says which axis of the graph's weights, [batch, head, query, key],
    each of b, h, i and j is, where it isn't one each: the heads of a group
    can be rows of i. It lists parts of batch, then of head, query and key, the
    outer ones first. It changes nothing that is computed.

    Constraints:

    * (C1) query, key, value, alignment and result have one float element type;
    * (C2) one map an operand and a result, each with 6 dimensions, no symbols,
           and as many results as its operand has dimensions (one fewer for
           the operand of a blocks term and a top-k result);
    * (C3) each map result is a dimension, `h floordiv c` with c > 1, or
           the constant 0, and for a blocks term `i floordiv rows`; a map names
           each dimension at most once; maps of results hold no floordiv;
    * (C4) query names i (if the kind is dot) and d, not j or e; given
           scores name j, not d or e; key names j and d, not i or e; value
           names j and e, not i or d; alignment names d, perhaps h; the result
           names i and e, not j or d; a capture names neither d nor e; the
           result names b and h exactly when the map of an operand does;
    * (C5) sizes that belong to one dimension agree where both are static; a
           dimension read at the constant 0 has size 1; under `h floordiv c`,
           c times the size is the size of h; a dimension that only a result
           names is static;
    * (C6) each region that is not empty takes what is said above and yields
           one f32 (f64);
    * (C7) key is there unless the kind is given, alignment and activation
           only if it is additive;
    * (C8) `mask` holds mask terms, and there is one mask operand for each of
           those that take one;
    * (C9) a mask operand holds integers or index (dense: integers; centre:
           also floats), and its map names b, h and i at most (dense: and j);
    * (C10) a static offset, side or prefix lies in [-2^40, 2^40], block sizes
           in [1, 2^40];
    * (C11) `extras` holds one #attn.extra a result beyond the first, whose
           map and element type are those that #attn.extra asks for;
    * (C12) the masked region stands with `masked_rows finite` only; without
           normalizer, masked_rows is zero;
    * (C13) softmax_type is a float type and stands with softmax only;
    * (C14) `axes` holds #attn.axis_part in the order of axes; parts of one
           dimension make up its size, at most one of them open, and each of b,
           h, i and j that a map of an operand names has parts, no other.

    Example:

    ```mlir
    #q = affine_map<(b, h, i, j, d, e) -> (b, i, h, d)>
    #k = affine_map<(b, h, i, j, d, e) -> (b, j, h, d)>
    #v = affine_map<(b, h, i, j, d, e) -> (b, j, h, e)>
    #m = affine_map<(b, h, i, j, d, e) -> (b, j)>
    #n = affine_map<(b, h, i, j, d, e) -> (b)>
    #o = affine_map<(b, h, i, j, d, e) -> (b, i, h, e)>
    #w = affine_map<(b, h, i, j, d, e) -> (b, i, j)>
    %o, %w = attn.attention masked_rows nan mask [#attn.causal<0>, #attn.lengths] maps [#q, #k, #v, #m, #n, #o, #w]
        ins(%q, %k, %v : tensor<?x?x12x32xf32>, tensor<?x?x12x32xf32>, tensor<?x?x12x32xf32>)
        captures(%mask : tensor<?x?xf32>) mask_operands(%n : tensor<?xi64>) -> tensor<?x?x12x32xf32>
      extras [#attn.extra<weights, mean>] : tensor<?x?x?xf32>
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
    DefaultValuedAttr<Attn_ScoreKindAttr, "::attn::ScoreKind::dot">:$kind,
    DefaultValuedAttr<Attn_NormalizerAttr, "::attn::Normalizer::softmax">:$normalizer,
    Attn_MaskedRowsAttr:$masked_rows,
    DefaultValuedAttr<ArrayAttr, "{}">:$mask /*C8*/,
    DefaultValuedAttr<ArrayAttr, "{}">:$extras /*C11*/,
    OptionalAttr<TypeAttr>:$softmax_type /*C13*/,
    OptionalAttr<ArrayAttr>:$axes /*C14*/,
    AffineMapArrayAttr:$indexing_maps /*C2*/,
    AnyRankedTensor:$query /*C1*/,
    Optional<AnyRankedTensor>:$key /*C1, C7*/,
    AnyRankedTensor:$value /*C1*/,
    Optional<AnyRankedTensor>:$alignment /*C1, C7*/,
    Variadic<AnyRankedTensor>:$captures,
    Variadic<AnyRankedTensor>:$mask_operands /*C9*/
  );
  let results = (outs AnyRankedTensor:$result /*C1*/, Variadic<AnyRankedTensor>:$extra_results /*C11*/);
  let regions = (region SizedRegion<1>:$score, AnyRegion:$weight, AnyRegion:$activation, AnyRegion:$masked);
  let assemblyFormat = [{
    (`kind` $kind^)? (`normalizer` $normalizer^)? `masked_rows` $masked_rows (`mask` $mask^)?
    (`softmax_type` $softmax_type^)? `maps` $indexing_maps
    `ins` `(` custom<Inputs>($query, $key, $value, $alignment,
                             type($query), type($key), type($value), type($alignment)) `)`
    (`captures` `(` $captures^ `:` type($captures) `)`)?
    (`mask_operands` `(` $mask_operands^ `:` type($mask_operands) `)`)?
    `->` type($result) (`extras` $extras^ `:` type($extra_results))?
    `score` $score (`weight` $weight^)? (`activation` $activation^)? (`masked` $masked^)? attr-dict
  }];
  let builders = [
    // The callbacks write a region's body and return what it yields: `score`
    // and `weight` get the f32 score (weight) and one element of each capture.
    // Without one the region is empty. A plain dot-product attention:
    OpBuilder<(ins "::mlir::Type":$result, "::mlir::Value":$query, "::mlir::Value":$key,
                   "::mlir::Value":$value, "::mlir::ValueRange":$captures,
                   "::llvm::ArrayRef<::mlir::AffineMap>":$maps, "::attn::MaskedRows":$maskedRows,
                   "::attn::AttentionBody":$score, CArg<"::attn::AttentionBody", "{}">:$weight)>,
    // Any attention; the regions are empty without `score` and `weight`.
    OpBuilder<(ins "const ::attn::AttentionParts &":$parts, CArg<"::attn::AttentionBody", "{}">:$score,
                   CArg<"::attn::AttentionBody", "{}">:$weight)>
  ];
  let skipDefaultBuilders = 1;
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
  let extraClassDeclaration = [{
    /// Positions of the iteration dimensions in every indexing map.
    enum Dim { B = 0, H = 1, I = 2, J = 3, D = 4, E = 5 };
    static constexpr unsigned kDims = 6;

    /// The maps of the operands in their order, then of the results.
    ::mlir::AffineMap getMap(unsigned n) {
      return ::llvm::cast<::mlir::AffineMapAttr>(getIndexingMaps()[n]).getValue();
    }
    ::mlir::AffineMap getQueryMap() { return getMap(0); }
    ::mlir::AffineMap getKeyMap() { return getMap(1); } ///< when there is a key
    ::mlir::AffineMap getValueMap() { return getMap(getKey() ? 2 : 1); }
    ::mlir::AffineMap getAlignmentMap() { return getMap(3); } ///< when additive
    ::mlir::AffineMap getCaptureMap(unsigned n) { return getMap(getCaptures().getBeginOperandIndex() + n); }
    ::mlir::AffineMap getMaskMap(unsigned n) { return getMap(getMaskOperands().getBeginOperandIndex() + n); }
    ::mlir::AffineMap getResultMap() { return getMap(getNumOperands()); }
    ::mlir::AffineMap getExtraMap(unsigned n) { return getMap(getNumOperands() + 1 + n); }
    /// All operands, in the order of the maps.
    ::mlir::OperandRange getMappedOperands() { return getOperands(); }

    /// `h floordiv c` as c; `h` (or another dimension) itself as 1.
    static int64_t getDivisor(::mlir::AffineExpr);
    /// The dimension that a map result names, or nullopt for the constant 0.
    static ::std::optional<unsigned> getNamedDim(::mlir::AffineExpr);
    /// Whether a result of `map` names `dim`.
    static bool names(::mlir::AffineMap map, unsigned dim);
    /// Whether the map of an operand or of the result names `dim`.
    bool isNamed(unsigned dim);
    /// Sizes of (b, h, i, j, d, e); 1 for one that no map names. Emits
    /// tensor.dim where the size is dynamic.
    ::llvm::SmallVector<::mlir::OpFoldResult> getIterationSizes(::mlir::OpBuilder &, ::mlir::Location);

    /// The terms of the mask, each with its operand.
    ::llvm::SmallVector<::attn::MaskTerm> getMaskTerms();
    ::attn::ExtraAttr getExtra(unsigned n) { return ::llvm::cast<::attn::ExtraAttr>(getExtras()[n]); }
    /// f64 when query is f64, else f32: what regions compute in.
    ::mlir::FloatType getComputeType();
    /// Dot product, softmax, no mask terms, no extra results, f32 softmax:
    /// what the score and weight regions say is all there is.
    bool isPlain();
    /// All that makes this op but its regions, to build a changed one.
    ::attn::AttentionParts getParts();
  }];
}

def Attn_YieldOp : Attn_Op<"yield", [Pure, Terminator, HasParent<"AttentionOp">]> {
  let summary = "the value of a region of attn.attention";
  let arguments = (ins AnyType:$value);
  let assemblyFormat = "$value attr-dict `:` type($value)";
}

def Attn_IndexOp : Attn_Op<"index", [Pure]> {
  let summary = "b (0), h (1), i (2) or j (3) of the score at hand";
  let description = [{
    Inside a score, weight or masked region of `attn.attention`.

    ```mlir
    %i = attn.index 2 : index
    ```
  }];
  let arguments = (ins ConfinedAttr<I64Attr, [IntMinValue<0>, IntMaxValue<3>]>:$dim);
  let results = (outs Index:$result);
  let assemblyFormat = "$dim attr-dict `:` type($result)";
}

#endif // DIALECTS_ATTN_ATTENTIONOP_TD
