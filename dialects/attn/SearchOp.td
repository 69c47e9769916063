#ifndef DIALECTS_ATTN_SEARCHOP_TD
#define DIALECTS_ATTN_SEARCHOP_TD

include "dialects/attn/AttnDialect.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def Attn_SearchOp : Attn_Op<"search", [DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "search for the most probable outputs of a decoder step";
  let description = [{
    `step` is an entry that takes the last token of each row and some state, and
    returns scores for the next token. `sources` says for each of its arguments
    where it comes from:

    | source | argument |
    |-|-|
    | `r` >= 0 | a state: its init at first, then result `r` of the step before |
    | -1 | the tokens chosen last, one a row |
    | -2 | constant: the same in all steps |
    | -3 | a position: its init at first, one more in each step |
    | -4 | a mask: its init at first, one more 1 at the end of dimension 1 in each step |

    `inits` are the arguments of the first step but for the tokens, in their
    order, with `batch` rows in the dimension that `batch_dims` names (-1: an
    argument has no rows). `grow_dims` names the dimension in which a state gets
    longer from step to step (-1: none does). `first` holds the tokens that the
    first step is given ([batch]), or already the scores for the first token
    ([batch, vocabulary]), from which the search then starts.

    All scores are f32 logarithms: `logp = x - log(sum(exp(x)))` over the row x of
    result `logits_result`. A token of `eos` ends a hypothesis and belongs to it; no
    hypothesis is longer than `max_length`, and none is allowed to end before it
    has `min_length` other tokens. Of equal scores the smaller row, then the
    smaller token comes first.

    **greedy**: each row takes its most probable token until it has ended. The
    score is the sum of logp.

    **beam**: a search of `width` K for each of the `batch` items.
    An item holds K live hypotheses with the sums of logp (at first 0, and -inf for
    all but one) and the K best complete ones. In step t all live hypotheses are
    extended by all tokens; the candidates are ordered by their sum s.
    A complete hypothesis of n tokens has the score `s / penalty(n)`, with
    `penalty(n) = n^A`, or `((5 + n) / 6)^A` where `gnmt` is set, A `length_penalty`.
    In step `max_length` every candidate is complete.
    - `refill` (default): of the first K candidates those that are complete join the
      complete ones (the K best stay); the best K incomplete candidates live on. An
      item is done when its best live s divided by penalty(t) is not greater than
      the worst of K complete ones, with `early_stop` also when it has K complete ones.
    - `shrink`: the width is K less the number of complete hypotheses; of so many
      first candidates the complete ones are kept, the others live on. An item is
      done when the width is 0.

    What is returned of an item depends on nothing in other items.

    **sample**: each row draws from the distribution softmax(x / `temperature`),
    limited to the `top_k` most probable tokens (0: all; ties stay), then to the most
    probable ones that together reach `top_p` (ties stay), renormalised: the first
    token in index order whose cumulative probability (f64) is greater than u. u is
    `(h >> 11) / 2^53`, h from splitmix64 of `seed`, row and step: `mix(mix(mix(seed) + row) + step)`
    with `mix(z)`: z += 0x9e3779b97f4a7c15; z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb; z ^ z >> 31. The score is the sum of logp, which
    knows neither temperature nor limits.

    Results: tokens [batch, length] ([batch, n_best, length] for beam), padded with
    the first of `eos` (0 where there is none), lengths and scores ([batch] or
    [batch, n_best]), best first, and with `alignment_result` that result of the step in
    which each token was chosen ([.., length, source], zeros where padded or where the token came of `first`).

    A run ends with a message where a row of scores has a NaN or +inf or nothing
    but -inf, or where `max_length` is less than 1 or more than `fuel`.

    * (C1) `step` names a function whose arguments and results `sources` and the other attributes describe;
    * (C2) one init an argument but the tokens, of its type;
    * (C3) `kind` is greedy, beam or sample; `width` and `n_best` are positive, and n_best at most width; only beam has a width other than 1;
    * (C4) tokens of `eos` lie in the vocabulary, where its size is known;
    * (C5) with a width other than 1, the rows of `step` are a dynamic dimension.

    ```mlir
    %t, %n, %s = attn.search "beam" @"entry.step" from %bos max %c50 (%h, %memory : tensor<?x24xf32>, tensor<?x?x24xf32>)
        {sources = array<i64: -1, 1, -2>, batch_dims = array<i64: 0, 0, 0>, grow_dims = array<i64: -1, -1, -1>,
         logits_result = 0 : i64, width = 4 : i64, eos = array<i64: 2>}
        : tensor<?xi64> -> tensor<?x1x?xi64>, tensor<?x1xi64>, tensor<?x1xf32>
    ```
  }];
  let arguments = (ins StrAttr:$kind /*C3*/, FlatSymbolRefAttr:$step /*C1*/, AnyRankedTensor:$first, Index:$max_length,
      Variadic<AnyRankedTensor>:$inits /*C2*/, DenseI64ArrayAttr:$sources, DenseI64ArrayAttr:$batch_dims,
      DenseI64ArrayAttr:$grow_dims, I64Attr:$logits_result, OptionalAttr<I64Attr>:$alignment_result,
      DefaultValuedAttr<I64Attr, "1">:$width /*C3*/, DefaultValuedAttr<I64Attr, "1">:$n_best /*C3*/,
      DefaultValuedAttr<DenseI64ArrayAttr, "{}">:$eos /*C4*/, DefaultValuedAttr<I64Attr, "0">:$min_length,
      DefaultValuedAttr<F64Attr, "0.0">:$length_penalty, UnitAttr:$gnmt, UnitAttr:$shrink, UnitAttr:$early_stop,
      DefaultValuedAttr<F64Attr, "1.0">:$temperature, DefaultValuedAttr<I64Attr, "0">:$top_k,
      DefaultValuedAttr<F64Attr, "1.0">:$top_p, DefaultValuedAttr<I64Attr, "0">:$seed,
      DefaultValuedAttr<I64Attr, "16777216">:$fuel);
  let results = (outs AnyRankedTensor:$tokens, AnyRankedTensor:$lengths, AnyRankedTensor:$scores,
                      Optional<AnyRankedTensor>:$alignment);
  let assemblyFormat = [{
    $kind $step `from` $first `max` $max_length (`(` $inits^ `:` type($inits) `)`)? attr-dict
    `:` type($first) `->` type(results)
  }];
  let extraClassDeclaration = [{
    static constexpr int64_t kToken = -1, kConstant = -2, kPosition = -3, kMask = -4;
    bool isBeam() { return getKind() == "beam"; }
    /// Whether `first` holds scores and not tokens.
    bool startsWithScores() { return ::mlir::cast<::mlir::RankedTensorType>(getFirst().getType()).getRank() == 2; }
  }];
  let hasVerifier = 1;
}

#endif // DIALECTS_ATTN_SEARCHOP_TD
