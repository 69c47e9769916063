#ifndef DIALECTS_ATTN_ATTENTIONATTRS_TD
#define DIALECTS_ATTN_ATTENTIONATTRS_TD

include "dialects/attn/AttnDialect.td"

// The vocabulary of attn.attention: score kinds, normalisers, policies for
// masked rows, mask terms and extra results.

class Attn_Enum<string name, string summary, list<I32EnumAttrCase> cases>
    : I32EnumAttr<name, summary, cases> {
  let cppNamespace = "::attn";
  let genSpecializedAttr = 0;
}
class Attn_DefaultedEnum<EnumInfo info, string default> : EnumParameter<info> {
  let defaultValue = default;
}
class Attn_EnumAttrOf<EnumAttrInfo info, string mnemonic> : EnumAttr<Attn_Dialect, info, mnemonic> {
  let assemblyFormat = "$value";
}

def Attn_ScoreKind : Attn_Enum<"ScoreKind", "what a score is made of", [
    I32EnumAttrCase<"dot", 0>, I32EnumAttrCase<"additive", 1>, I32EnumAttrCase<"given", 2>,
    I32EnumAttrCase<"distance", 3>]>;
def Attn_ScoreKindAttr : Attn_EnumAttrOf<Attn_ScoreKind, "score_kind">;

def Attn_Normalizer : Attn_Enum<"Normalizer", "what makes weights of scores", [
    I32EnumAttrCase<"softmax", 0>, I32EnumAttrCase<"sum", 1>, I32EnumAttrCase<"none", 2>]>;
def Attn_NormalizerAttr : Attn_EnumAttrOf<Attn_Normalizer, "normalizer">;

def Attn_MaskedRows : Attn_Enum<"MaskedRows", "weights of a row without a visible key", [
    I32EnumAttrCase<"zero", 0>, I32EnumAttrCase<"nan", 1>,
    I32EnumAttrCase<"uniform", 2>, I32EnumAttrCase<"finite", 3>]>;
def Attn_MaskedRowsAttr : Attn_EnumAttrOf<Attn_MaskedRows, "masked_rows">;

def Attn_WindowBase : Attn_Enum<"WindowBase", "where a window stands", [
    I32EnumAttrCase<"diagonal", 0>, I32EnumAttrCase<"offset", 1>, I32EnumAttrCase<"centre", 2>]>;

def Attn_WeightsAxis : Attn_Enum<"WeightsAxis", "an axis of the weights as the graph has them", [
    I32EnumAttrCase<"batch", 0>, I32EnumAttrCase<"head", 1>, I32EnumAttrCase<"query", 2>, I32EnumAttrCase<"key", 3>]>;

def Attn_ExtraSource : Attn_Enum<"ExtraSource", "what an extra result holds", [
    I32EnumAttrCase<"lse", 0>, I32EnumAttrCase<"raw_scores", 1>, I32EnumAttrCase<"scores", 2>,
    I32EnumAttrCase<"masked_scores", 3>, I32EnumAttrCase<"weights", 4>, I32EnumAttrCase<"final_weights", 5>]>;
def Attn_Reduction : Attn_Enum<"Reduction", "how an extra result is reduced", [
    I32EnumAttrCase<"none", 0>, I32EnumAttrCase<"sum", 1>, I32EnumAttrCase<"mean", 2>,
    I32EnumAttrCase<"max", 3>, I32EnumAttrCase<"argmax", 4>, I32EnumAttrCase<"entropy", 5>,
    I32EnumAttrCase<"topk_values", 6>, I32EnumAttrCase<"topk_indices", 7>]>;

//===----------------------------------------------------------------------===//
// Mask terms
//===----------------------------------------------------------------------===//

// The description of attn.attention says how terms are joined. A term that
// takes an operand takes the next one of the op's mask operands.

def Attn_CausalAttr : Attn_Attr<"Causal", "causal"> {
  let summary = "keys j <= i + offset";
  let description = [{
    `#attn.causal<0>` is the lower triangle with the diagonal; a cache of n
    keys gives offset n. `#attn.causal<?>` takes the offset from an operand
    (integers or index) whose map names b, h or i.
  }];
  let parameters = (ins "int64_t":$offset);
  let assemblyFormat = "`<` custom<DynamicOrInteger>($offset) `>`";
}

def Attn_WindowAttr : Attn_Attr<"Window", "window"> {
  let summary = "keys c - left <= j <= c + right";
  let description = [{
    c is i; with `offset`, i plus the operand (integers or index); with
    `centre`, the operand itself, which may be a float. A side may be `inf`, and
    negative: `#attn.window<4, -1>` is the four keys before i. The operand's
    map names b, h or i. `#attn.window<0, inf, centre>` is j >= operand.
  }];
  let parameters = (ins "int64_t":$left, "int64_t":$right,
      Attn_DefaultedEnum<Attn_WindowBase, "::attn::WindowBase::diagonal">:$base);
  let assemblyFormat = "`<` custom<Bound>($left) `,` custom<Bound>($right) (`,` $base^)? `>`";
  let extraClassDeclaration = [{
    /// An unbounded side.
    static constexpr int64_t kInf = ::std::numeric_limits<int64_t>::max();
  }];
}

def Attn_ChunksAttr : Attn_Attr<"Chunks", "chunks"> {
  let summary = "keys from left chunks before the query's own to right chunks behind it";
  let description = [{
    Positions come in chunks of `size`. `#attn.chunks<8, 0, 0>` is the query's
    own chunk, `#attn.chunks<8, inf, 0>` that and all before it, whatever stands
    later in it. With `offset` queries are counted from the operand (integers or
    index, a multiple of `size`), whose map names b or h.
  }];
  let parameters = (ins "int64_t":$size, "int64_t":$left, "int64_t":$right,
      Attn_DefaultedEnum<Attn_WindowBase, "::attn::WindowBase::diagonal">:$base);
  let assemblyFormat = "`<` $size `,` custom<Bound>($left) `,` custom<Bound>($right) (`,` $base^)? `>`";
  let genVerifyDecl = 1;
}

def Attn_PrefixAttr : Attn_Attr<"Prefix", "prefix"> {
  let summary = "keys j < n, whatever causal and window terms say";
  let description = [{
    It widens causal and window terms and narrows nothing: `causal<0>,
    prefix<3>` shows key j when j <= i or j < 3. `#attn.prefix<?>` takes n
    from an operand (integers or index) whose map names b, h or i.
  }];
  let parameters = (ins "int64_t":$size);
  let assemblyFormat = "`<` custom<DynamicOrInteger>($size) `>`";
}

def Attn_LengthsAttr : Attn_Attr<"Lengths", "lengths"> {
  let summary = "keys j < n, where n is an operand";
  let description = [{
    The operand holds integers or index; its map names b, h or i. A length
    above the number of keys hides none, one below 1 all.
  }];
}

def Attn_BlocksAttr : Attn_Attr<"Blocks", "blocks"> {
  let summary = "keys in listed blocks";
  let description = [{
    Queries come in blocks of `rows`, keys in blocks of `columns`. The operand
    lists (integers or index) for each block of queries the blocks of keys that
    it sees, in its last dimension; a negative entry lists nothing, a repeated
    one nothing more. Its map is for the dimensions before the last, and names
    b, h or `i floordiv rows` (i when rows is 1). Rows and columns 1 make
    adjacency lists.
  }];
  let parameters = (ins "int64_t":$rows, "int64_t":$columns);
  let assemblyFormat = "`<` $rows `,` $columns `>`";
}

def Attn_DenseMaskAttr : Attn_Attr<"DenseMask", "dense"> {
  let summary = "keys where the operand, a tensor of integers, is not 0";
  let description = [{ The operand's map names b, h, i or j. }];
}

//===----------------------------------------------------------------------===//
// Extra results
//===----------------------------------------------------------------------===//

def Attn_ExtraAttr : Attn_Attr<"Extra", "extra"> {
  let summary = "one more result of attn.attention";
  let description = [{
    `#attn.extra<source>` or `#attn.extra<source, reduction>`. Sources:

    * `lse`: log of the sum of exp of a row's scores, -inf in a row without a
      visible key (softmax only; over b, h, i);
    * `raw_scores`: before the score region, `scores`: after it, whatever the
      mask says; `masked_scores`: with -inf where the mask hides the key (with
      `masked_rows finite`: what the masked region yields);
    * `weights`: what the normaliser gives; `final_weights`: after the weight
      region, what is multiplied with the values.

    Reductions run over those of b, h, i, j that exist and that the map of the
    result does not name: `sum`, `mean` and `max` over any (sum over i: column
    sums; mean over h: head mean); `argmax` (the lowest key of a largest
    weight; NaN is larger than any number), `entropy` (-sum w log w) and
    `topk_values`, `topk_indices` (descending, equal ones by key; one more,
    last dimension of static size k that the map does not have) over j alone.

    ```mlir
    #attn.extra<weights, mean>
    ```
  }];
  let parameters = (ins EnumParameter<Attn_ExtraSource>:$source,
      Attn_DefaultedEnum<Attn_Reduction, "::attn::Reduction::none">:$reduction);
  let assemblyFormat = "`<` $source (`,` $reduction^)? `>`";
  let extraClassDeclaration = [{
    bool isTopK() const {
      return getReduction() == Reduction::topk_values || getReduction() == Reduction::topk_indices;
    }
    /// Whether the result holds key positions, integers.
    bool isIndex() const {
      return getReduction() == Reduction::argmax || getReduction() == Reduction::topk_indices;
    }
  }];
}

//===----------------------------------------------------------------------===//
// The graph's own axes
//===----------------------------------------------------------------------===//

def Attn_AxisPartAttr : Attn_Attr<"AxisPart", "axis_part"> {
  let summary = "a part of an axis of the graph's weights, and where attn.attention has it";
  let description = [{
    `#attn.axis_part<head of 2, 4>` is a part of the head axis of 4 elements that the op has in dimension i (0 to 3 are
    b, h, i and j). `?` is an open size.
  }];
  let parameters = (ins EnumParameter<Attn_WeightsAxis>:$axis, "unsigned":$dim, "int64_t":$size);
  let assemblyFormat = "`<` $axis `of` $dim `,` custom<DynamicOrInteger>($size) `>`";
}

#endif // DIALECTS_ATTN_ATTENTIONATTRS_TD
