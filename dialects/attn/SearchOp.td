#ifndef DIALECTS_ATTN_SEARCHOP_TD
#define DIALECTS_ATTN_SEARCHOP_TD

include "dialects/attn/AttnDialect.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def Attn_SearchOp : Attn_Op<"search", [AttrSizedOperandSegments, DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
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
    With `coverage_penalty` B its score has the term `B * sum(log(min(c_i, 1)))` over the positions i of the
    source, c_i the sum of what its tokens have in column i of `alignment_result` (Wu et al. 2016). A position
    whose c_i is 0 does not count: nothing may look at it. Live hypotheses are ordered without that term.
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
    `pad` (the first of `eos` without it, 0 where there is none), lengths and scores ([batch] or
    [batch, n_best]), best first, and with `alignment_result` that result of the step in
    which each token was chosen ([.., length, source], zeros where padded or where the token came of `first`).

    `given` names settings that are operands, each of which takes the place of the attribute of its name:
    `min_length`, `top_k`, `seed` (i64), `temperature`, `top_p` (f64). With a `prompt` (i64 [batch, tokens], what
    stands before the first token that is chosen) scores are first changed as transformers' processors do, in this
    order: tokens of the prompt, but for `hidden` ones (i64 [batch], how many at its front), and those chosen count
    `repetition_penalty` (f64) less, a token that would repeat an n-gram of `no_repeat_ngram` (i64, 0: any) gets -inf,
    `forbidden` tokens (i64 [n]) do, those of `eos` do before `min_length`, all but `forced_bos` (i64, -1: none; in the
    first step behind a prompt of one token) or `forced_eos` (in step `max_length`, where it overrides all before it)
    do, `suppressed` tokens (i64 [n]) do, and those of `begin_suppressed` in the first step, or behind `forced_bos`.
    logp is then the changed score less the logarithm of the sum as it was; a beam changes logarithms of probabilities.

    A run ends with a message where a row of scores has a NaN or +inf or nothing
    but -inf, where an item that has not ended has no token left to choose, or where
    `max_length` is less than 1 or more than `fuel`.

    * (C1) `step` names a function whose arguments and results `sources` and the other attributes describe;
    * (C2) one init an argument but the tokens, of its type;
    * (C3) `kind` is greedy, beam or sample; `width` and `n_best` are positive, and n_best at most width; only beam has a width other than 1;
    * (C4) tokens of `eos` lie in the vocabulary, where its size is known;
    * (C5) with a width other than 1, the rows of `step` are a dynamic dimension;
    * (C6) `coverage_penalty` is 0 but for a beam with `alignment_result`;
    * (C7) `settings` are those of `given`, of their types, each once; those that change scores come with a `prompt`.

    ```mlir
    %t, %n, %s = attn.search "beam" @"entry.step" from %bos max %c50 (%h, %memory : tensor<?x24xf32>, tensor<?x?x24xf32>)
        {sources = array<i64: -1, 1, -2>, batch_dims = array<i64: 0, 0, 0>, grow_dims = array<i64: -1, -1, -1>,
         logits_result = 0 : i64, width = 4 : i64, eos = array<i64: 2>}
        : tensor<?xi64> -> tensor<?x1x?xi64>, tensor<?x1xi64>, tensor<?x1xf32>
    ```
  }];
  let arguments = (ins StrAttr:$kind /*C3*/, FlatSymbolRefAttr:$step /*C1*/, AnyRankedTensor:$first, Index:$max_length,
      Variadic<AnyRankedTensor>:$inits /*C2*/, Variadic<AnyType>:$settings /*C7*/, DenseI64ArrayAttr:$sources, DenseI64ArrayAttr:$batch_dims,
      DenseI64ArrayAttr:$grow_dims, I64Attr:$logits_result, OptionalAttr<I64Attr>:$alignment_result,
      DefaultValuedAttr<I64Attr, "1">:$width /*C3*/, DefaultValuedAttr<I64Attr, "1">:$n_best /*C3*/,
      DefaultValuedAttr<DenseI64ArrayAttr, "{}">:$eos /*C4*/, OptionalAttr<I64Attr>:$pad, DefaultValuedAttr<I64Attr, "0">:$min_length,
      DefaultValuedAttr<F64Attr, "0.0">:$length_penalty,
      DefaultValuedAttr<F64Attr, "0.0">:$coverage_penalty /*C6*/, UnitAttr:$gnmt, UnitAttr:$shrink, UnitAttr:$early_stop,
      DefaultValuedAttr<F64Attr, "1.0">:$temperature, DefaultValuedAttr<I64Attr, "0">:$top_k,
      DefaultValuedAttr<F64Attr, "1.0">:$top_p, DefaultValuedAttr<I64Attr, "0">:$seed,
      DefaultValuedAttr<I64Attr, "16777216">:$fuel,
      DefaultValuedAttr<StrArrayAttr, "{}">:$given /*C7*/);
  let results = (outs AnyRankedTensor:$tokens, AnyRankedTensor:$lengths, AnyRankedTensor:$scores,
                      Optional<AnyRankedTensor>:$alignment);
  let assemblyFormat = [{
    $kind $step `from` $first `max` $max_length (`(` $inits^ `:` type($inits) `)`)?
    (`with` `(` $settings^ `:` type($settings) `)`)? attr-dict
    `:` type($first) `->` type(results)
  }];
  let extraClassDeclaration = [{
    static constexpr int64_t kToken = -1, kConstant = -2, kPosition = -3, kMask = -4;
    ::llvm::LogicalResult verifySettings();
    bool isBeam() { return getKind() == "beam"; }
    /// Whether `first` holds scores and not tokens.
    bool startsWithScores() { return ::mlir::cast<::mlir::RankedTensorType>(getFirst().getType()).getRank() == 2; }
  }];
  let hasVerifier = 1;
}

def Attn_TraceOp : Attn_Op<"trace", []> {
  let summary = "the rows in which the tokens of a search were chosen";
  let description = [{
    `steps` is a result of the loop of a search, an scf.while whose body is a step of `count` rows. For each token that
    is returned `rows` ([batch, length], for a beam [batch, n_best, length]) has the row in which it was chosen; -1: there
    is no token. Token t was chosen in iteration t; with `begun` in t - 1, the first one before the loop.

    `attn-lower-search` writes it for `attn-expose-attention`, which removes it.

    ```mlir
    attn.trace %rows of %count in %steps : tensor<?x1x?xi64>
    ```
  }];
  let arguments = (ins AnyRankedTensor:$rows, Index:$count, Index:$steps, UnitAttr:$begun);
  let assemblyFormat = "$rows `of` $count `in` $steps attr-dict `:` type($rows)";
}

def Attn_TellOp : Attn_Op<"tell", []> {
  let summary = "tell the caller of the run of a token";
  let description = [{
    Row `row` of a search that is no beam took `token` in step `step`, counted from 0. The run ends where the caller wants
    it to.

    ```mlir
    attn.tell %token row %row step %step
    ```
  }];
  let arguments = (ins I64:$token, Index:$row, Index:$step);
  let assemblyFormat = "$token `row` $row `step` $step attr-dict";
}

def Attn_CtcSearchOp : Attn_Op<"ctc_search", [Pure]> {
  let summary = "the labels that scores of frames spell, without blanks and repetitions";
  let description = [{
    `scores` are f32 logarithms of each label in each frame, [batch, time, labels], or
    [time, batch, labels] with `time_major`; `frames` ([batch]) says how many frames an
    item has. `logp = x - log(sum(exp(x)))` over the labels x of a frame. A path takes
    one label in each frame; what it spells is the path without repetitions, and then
    without `blank`. Of equal scores the earlier row, then the smaller label comes first.

    Without `width`: the path of the most probable label of each frame; the score is its sum of logp.

    With `width` K, prefix beam search: K prefixes, each with the probability of all paths
    that spell it and end in a blank, and of those that do not (f64 logarithms, at first
    the empty one alone). In each frame a prefix stays (blank, or its last label
    again) or gets one label longer; a prefix that is reached in two ways has the sum of both. The K of
    the greatest sum live on. Before a longer prefix of the same row the one that stays comes. The score is the
    logarithm of the sum of both probabilities.

    Results: labels [batch, length] ([batch, `n_best`, length] with a width), padded with
    `blank`, lengths and scores ([batch] or [batch, n_best]), best first. Where there are fewer
    prefixes than `n_best` the length is 0 and the score -inf.

    A run ends with a message where a frame that counts has a NaN or +inf or nothing but -inf, or
    an item has less than 0 frames, or more than `scores` has.

    * (D1) `scores` are f32 of rank 3, `frames` are i64 of rank 1;
    * (D2) `width` and `n_best` are positive, and n_best at most width, 1 without a width;
    * (D3) `blank` is a label, where their number is known;
    * (D4) the results are i64, i64 and f32 of the ranks above.

    ```mlir
    %t, %n, %s = attn.ctc_search %logp frames %count {blank = 0 : i64, width = 10 : i64}
        : tensor<?x?x29xf32>, tensor<?xi64> -> tensor<?x1x?xi64>, tensor<?x1xi64>, tensor<?x1xf32>
    ```
  }];
  let arguments = (ins AnyRankedTensor:$scores /*D1*/, AnyRankedTensor:$frames, I64Attr:$blank /*D3*/,
      OptionalAttr<I64Attr>:$width /*D2*/, DefaultValuedAttr<I64Attr, "1">:$n_best, UnitAttr:$time_major);
  let results = (outs AnyRankedTensor:$labels /*D4*/, AnyRankedTensor:$lengths, AnyRankedTensor:$totals);
  let assemblyFormat = [{
    $scores `frames` $frames attr-dict `:` type($scores) `,` type($frames) `->` type($labels) `,` type($lengths) `,` type($totals)
  }];
  let hasVerifier = 1;
}

#endif // DIALECTS_ATTN_SEARCHOP_TD
