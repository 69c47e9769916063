#ifndef PASSES_GRAPH_GRAPHPASSES_TD
#define PASSES_GRAPH_GRAPHPASSES_TD

include "mlir/Pass/PassBase.td"

def DecomposePass : Pass<"attn-decompose"> {
  let summary = "write attn.softmax, layer_norm, attention and recurrent layers as linalg on tensors";
  let description = [{
    The meaning of these ops in plain linalg: what -O0 runs, what an op without
    a kernel becomes, and what fused kernels are tested against. Sums are taken
    in f32 (f64 for f64); each op's materialised scores cost O(i * j) memory.

    ```mlir
    %y = attn.softmax %x dim 1 : tensor<?x?xf32>
    ```

    becomes

    ```mlir
    %max = linalg.generic {maximumf over dim 1} ins(%x)
    %e   = linalg.generic {exp(x - max)} ins(%x, %max)
    %sum = linalg.generic {addf over dim 1} ins(%e)
    %y   = linalg.generic {e / sum} ins(%e, %sum)
    ```

    attn.attention becomes linalg.contract (a reduction when additive), a
    generic with the score region, such a softmax (or a sum) with its masked-row
    policy, a generic with the weight region and a second linalg.contract. With
    mask terms, an i8 tensor says which keys are visible, and the weighted sum
    is a reduction that passes over hidden ones. A recurrent layer becomes, per
    direction, one linalg.contract of the whole input and an scf.for over the steps,
    attn.segment_attention loops over the edges of each node.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::affine::AffineDialect",
                           "::mlir::linalg::LinalgDialect", "::mlir::math::MathDialect",
                           "::mlir::scf::SCFDialect", "::mlir::tensor::TensorDialect",
                           "::mlir::bufferization::BufferizationDialect"];
}

def AssumeRequiredPass : Pass<"attn-assume-required", "::mlir::ModuleOp"> {
  let summary = "sizes that a check compares are one, and the check stands where both are known";
  let description = [{
    Types and casts say what an `attn.require` makes sure of, so an op before it
    may read as many elements as the check is about to find missing. Each
    comparison of two sizes for equality moves up to where both are known, with
    the checks before it; behind it one of the two is used for both. It runs at
    every level, before ops are folded into each other.

    Changes no result: a run that ends with a message ends with the same one.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect"];
}

def WidenHalvesPass : Pass<"attn-widen-halves", "::mlir::ModuleOp"> {
  let summary = "arithmetic on f16 and bf16 is done in f32";
  let description = [{
    f16 and bf16 are how numbers are stored: inputs, outputs, weights, caches, what a branch or a loop gives. What an
    op computes stays in f32 for the ops that read it, and is rounded to the nearest, ties to even, only where it is
    stored, a tensor joined to a stored one included. A conversion to 16 bits and back in between goes.

    Weights become globals in f32 whose source is the stored one (`#attn.reshape`), which attn-lower-contractions
    packs as they are stored. A lookup in a table and a slice of an input move halves, which are widened behind it.

    ```mlir
    %w = attn.weight @w : tensor<384x384xf16>
    %c = linalg.contract ... ins(%x, %w : tensor<?x384xf16>, tensor<384x384xf16>) outs(%zeros : tensor<?x384xf32>)
    %h = linalg.generic {truncf} ins(%c) -> tensor<?x384xf16>
    %y = linalg.generic {extf, extf, addf, truncf} ins(%h, %x) -> tensor<?x384xf16>
    // becomes
    attn.global @w_f32 : tensor<384x384xf32> = #attn.reshape<@w>
    %u = linalg.generic {extf} ins(%x) -> tensor<?x384xf32>
    %v = attn.weight @w_f32 : tensor<384x384xf32>
    %c = linalg.contract ... ins(%u, %v : tensor<?x384xf32>, tensor<384x384xf32>) outs(%zeros : tensor<?x384xf32>)
    %s = linalg.generic {addf} ins(%c, %u) -> tensor<?x384xf32>
    %y = linalg.generic {truncf} ins(%s) -> tensor<?x384xf16>
    ```

    Numerical effect: roundings between ops go, and with them overflows of f16 (as in ONNX Runtime, which does so,
    too). Runs before all recognition, at -O0 as well: a model gives the same fused or not.
  }];
  let dependentDialects = ["::attn::AttnDialect", "::mlir::arith::ArithDialect", "::mlir::linalg::LinalgDialect",
                           "::mlir::math::MathDialect", "::mlir::tensor::TensorDialect"];
}

def RaiseSoftmaxPass : Pass<"attn-raise-softmax"> {
  let summary = "an exponential divided by its sum becomes attn.softmax";
  let description = [{
    Softmax as ReduceMax, Sub, Exp, ReduceSum, Div; also without the maximum,
    with a product by the reciprocal, and with reshapes between. exp of a
    log-softmax is a softmax, too. A maximum that is subtracted before a softmax
    goes, also where the difference is multiplied by a constant that makes up
    for one before: 32 (s / 32 - max(s / 32)). A sum of magnitudes (an L1 norm)
    of what is not negative becomes a sum.

    ```mlir
    %m = linalg.generic {maximumf over d1} ins(%s)
    %d = linalg.generic {s - m} ins(%s, %m)
    %e = linalg.generic {exp} ins(%d)
    %z = linalg.generic {addf over d1} ins(%e)
    %p = linalg.generic {e / z} ins(%e, %z)
    ```

    becomes

    ```mlir
    %p = attn.softmax %s dim 1 : tensor<?x?xf32>
    ```

    Weights that a mask makes zeros behind the softmax, and that are divided by
    their sum then (and are 0 where that is 0), are a softmax of the scores that
    the mask leaves: w m / sum(w m). It notes what it assumes: hidden scores that
    are far above all others of their row make those vanish in the graph. Not
    with `exact`.

    Numerical effect: rounding; where the graph takes no maximum of the row and
    its exponentials overflow or are all 0, the softmax is finite instead of NaN.
    Not where the graph tests for that: it replaces such rows.
  }];
  let options = [Option<"exact", "exact", "bool", "false", "leave masks behind a softmax there">];
  let dependentDialects = ["::attn::AttnDialect", "::mlir::tensor::TensorDialect"];
}

def RaiseContractionPass : Pass<"attn-raise-contraction"> {
  let summary = "a sum of products around a softmax becomes linalg.contract";
  let description = [{
    Weighted sums and scores written as Mul and ReduceSum. Only where a factor
    is computed from a softmax (or what is divided by its own sum), or a softmax
    from the sum, by elementwise ops and views: elsewhere the fused loop costs
    less than a contraction.

    ```mlir
    %x = linalg.generic {w[b, j] * v[b, j, e]} ins(%w, %v)
    %c = linalg.generic {addf over j} ins(%x)
    ```

    becomes

    ```mlir
    %c = linalg.contract indexing_maps = [(b, j, e) -> (b, j), (b, j, e) -> (b, j, e), (b, j, e) -> (b, e)]
        ins(%w, %v : tensor<?x?xf32>, tensor<?x?x24xf32>) ...
    ```

    A sum of the weights of two softmaxes, (a - w b) v, is distributed: a v -
    w (b v), so that each is an attention. Of places along a dimension of one
    softmax, as in differential attention, it is one sum for all of them, of
    whose result the places are taken. A product of weights, (x y) v, is
    x (y v): two attentions, one of the other's result.

    The sum of weights by which a mixture of softmaxes is divided is that of
    their factors. Values that are weighed block by block of keys with a running
    maximum, as flash attention does, are weighed by one softmax over all keys.

    Numerical effect: rounding; of an infinite value the difference of two sums
    is NaN, and so it is where either sum overflows.
  }];
  let dependentDialects = ["::attn::AttnDialect", "::mlir::arith::ArithDialect", "::mlir::linalg::LinalgDialect",
                           "::mlir::tensor::TensorDialect"];
}

def SplitConcatPass : Pass<"attn-split-concat", "::mlir::ModuleOp"> {
  let summary = "the product of a concatenation with a repeated part becomes a sum of products";
  let description = [{
    W [s; h] = W1 s + W2 h: the term of a part that is repeated (a query for
    every key) is computed once and then repeated, and a score made of such a
    product becomes one of a term of the query and a term of the key. A slice
    of a weight is a weight.

    ```mlir
    %r = linalg.generic {s[b, k]} ins(%s) -> tensor<?x?x16xf32>
    %c = tensor.insert_slice %r ... tensor.insert_slice %h ... into tensor<?x?x48xf32>
    %x = linalg.contract ... ins(%c, %w : tensor<?x?x48xf32>, tensor<48x24xf32>) ...
    ```

    becomes

    ```mlir
    %x1 = linalg.contract ... ins(%s, %w1 : tensor<?x16xf32>, tensor<16x24xf32>) ...
    %x2 = linalg.contract ... ins(%h, %w2 : tensor<?x?x32xf32>, tensor<32x24xf32>) ...
    %x = linalg.generic {x1[b, a] + x2[b, j, a]} ins(%x1, %x2)
    ```

    A part may be the product of two others, as in w [s; h; s h]: the vector
    w is multiplied with one of them, sum_k w_k (s_ik h_jk) = sum_k (s_ik w_k)
    h_jk, and the score is a dot product. Not in f16.

    Numerical effect: rounding; where s_ik w_k overflows and s_ik h_jk doesn't
    (beyond 1e38), an infinity, as with the factors the other way round.
  }];
  let dependentDialects = ["::attn::AttnDialect", "::mlir::arith::ArithDialect", "::mlir::linalg::LinalgDialect",
                           "::mlir::tensor::TensorDialect"];
}

def RecognizeAttentionPass : Pass<"attn-recognize-attention", "::mlir::ModuleOp"> {
  let summary = "grow an attn.attention from each attn.softmax outwards";
  let description = [{
    Recognition by dataflow: from each softmax forwards through elementwise ops
    and views to a contraction over the softmax's dimension, and backwards to
    the contraction that makes the scores. What lies between becomes the score
    and the weight region, tensors that take part in it become captures, and
    every transpose, reshape, broadcast and constant scale on the way to query,
    key, value and result becomes part of an indexing map or of the score
    region. passes/graph/element/Access.h says how views are followed.

    ```mlir
    %s = linalg.contract ... ins(%q, %kt : tensor<?x12x?x32xf32>, tensor<?x12x32x?xf32>) ...
    %m = linalg.generic {s * 0.17 + mask[b, j]} ins(%s, %mask)
    %w = attn.softmax %m dim 3 : tensor<?x12x?x?xf32>
    %o = linalg.contract ... ins(%w, %v) ...
    %t = linalg.transpose ins(%o) permutation = [0, 2, 1, 3]
    ```

    becomes one op that reads query, key and value where their projections
    wrote them:

    ```mlir
    %t = attn.attention masked_rows nan maps [...]
        ins(%q0, %k0, %v0 : tensor<?x?x12x32xf32>, ...) captures(%mask : tensor<?x?xf32>) -> tensor<?x?x12x32xf32>
      score { s * 0.17 + mask }
    ```

    Numerical effect: rounding only (the scale is applied to the product of
    query and key instead of to them; half types are not rounded between).
    A row whose scores are all -inf keeps what the graph computes: NaN, or 0
    where a guard (select of 0 where the weight is NaN) follows the softmax; the
    guard becomes `masked_rows zero`, and no longer hides a NaN that comes from
    NaN in query or key.

    Weights that are used elsewhere too (a graph output, a mean over heads) are
    one more result of the attention.

    The pass writes the verdicts to the module's attribute
    `attn.fusion_report`, one dictionary per softmax (and per attn.attention
    that was there before): `node`, `fused`, `kind`, `reason`, `mask`. So do
    other normalisers: values that are not negative over their sum, gates
    without normaliser (`normalizer` is said then), softmaxes with an attention
    sink (a column without value: the result is scaled by 1 / (1 + exp(sink -
    lse)) afterwards; a row without visible key is 0 then).

    A softmax over the edges of each node of a graph, by scatters, becomes an
    attn.segment_attention with the values that it weighs, where kernels go by
    lists of edges.
  }];
  let dependentDialects = ["::attn::AttnDialect", "::mlir::arith::ArithDialect", "::mlir::linalg::LinalgDialect",
                           "::mlir::math::MathDialect", "::mlir::scf::SCFDialect", "::mlir::tensor::TensorDialect"];
}

def MoveConversionsPass : Pass<"attn-move-conversions"> {
  let summary = "move floats while they are narrow";
  let description = [{
    Elements are narrowed in front of transposes and reshapes and widened behind
    them, where nothing else uses what lies between. A contraction of two factors
    that were widened from one type takes them as they were. For GPUs, whose
    kernels read halves; on CPUs `attn-widen-halves` has made them f32.

    ```mlir
    %1 = linalg.transpose ins(%x : tensor<?x8xf32>) ...
    %2 = linalg.generic {truncf} ins(%1 : tensor<8x?xf32>)
    ```

    becomes

    ```mlir
    %1 = linalg.generic {truncf} ins(%x : tensor<?x8xf32>)
    %2 = linalg.transpose ins(%1 : tensor<?x8xbf16>) ...
    ```

    Numerical effect: none; products of halves are exact in f32.
  }];
  let dependentDialects = ["::mlir::linalg::LinalgDialect", "::mlir::tensor::TensorDialect"];
}

def FuseElementwisePass : Pass<"attn-fuse-elementwise"> {
  let summary = "join chains of elementwise linalg.generic ops";
  let description = [{
    A producer moves into its consumer when it has one use and as many loops
    (each element is computed once, as before), or when recomputing it costs
    nothing: elements only moved or broadcast, indices, one cheap operation.
    Splat constants and fills move into regions. A transpose of gathered
    rows that leaves them whole is such a consumer. Nothing moves into a
    contraction, where it would be computed once a product, and what a GEMM can
    take as its epilogue does not move into a reduction.

    ```mlir
    %1 = linalg.generic {addf} ins(%x, %bias : tensor<?x?x8xf32>, tensor<8xf32>)
    %2 = linalg.generic {tanh} ins(%1 : tensor<?x?x8xf32>)
    ```

    becomes

    ```mlir
    %2 = linalg.generic {tanh(addf)} ins(%x, %bias : tensor<?x?x8xf32>, tensor<8xf32>)
    ```

    Numerical effect: none.
  }];
  let dependentDialects = ["::mlir::affine::AffineDialect", "::mlir::linalg::LinalgDialect"];
}

def RaiseTablesPass : Pass<"attn-raise-tables", "::mlir::ModuleOp"> {
  let summary = "constant masks and positions are computed from where their elements stand";
  let description = [{
    A constant with two values, one of them exactly where row and column are in
    a band (below a diagonal, within a window, before a length, or a prefix
    with one of these), that a softmax or an attention reads through
    elementwise ops, views and slices: each entry is checked, one that is off
    leaves the constant alone. So does a constant of integers that are a number
    plus or minus places, as a folded Range. A slice of them, as of the triangle
    that GPT-2 stores, is computed from its offsets.

    A mask that is added and hides keys by blocks (-inf, or the lower one of two
    values if that is -1e4 or less) becomes a table of bytes that selects what
    hides, unless `keeps-tables`; attn-list-blocks makes lists of it. So does a
    matrix of one number in which loops put another one at computed places, as
    scatters make an adjacency matrix of the edges of a graph (or to which they
    add, where all that is asked of an entry is whether it is 0).

    ```mlir
    %m = arith.constant dense<[[1, 0], [1, 1]]> : tensor<2x2xi8>
    ```

    becomes

    ```mlir
    %m = linalg.generic {select(index 1 <= index 0, 1, 0)} -> tensor<2x2xi8>
    ```

    Numerical effect: none.
  }];
  let options = [Option<"keepsTables", "keeps-tables", "bool", "false", "leave masks of blocks as they are">];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::linalg::LinalgDialect",
                           "::mlir::scf::SCFDialect", "::mlir::tensor::TensorDialect"];
}

def ComputePositionsPass : Pass<"attn-compute-positions", "::mlir::ModuleOp"> {
  let summary = "integers that are made of positions are computed from where they stand";
  let description = [{
    An elementwise op on integers that reads others, through slices,
    concatenations, gathers at computed places and running sums, and whose
    elements turn out to be a constant plus or minus their places, or one
    constant: comparisons that come out alike everywhere are decided. So
    exporters ask whether positions are those of one sequence or of several
    packed into a row (positions whose difference to the one before is not 1,
    summed up, are the numbers of the sequences), and gather by them what is
    compared in a mask; where they are a range, what is left is causal.

    A check of an index goes where it can't fail, and only there; also of one at
    which another tensor is read, as exporters write views with strides.

    ```mlir
    %p = linalg.generic {index 1} -> tensor<?x?xi64>
    %y = linalg.generic {extract %p[index 0, index 2]} -> tensor<?x1x?xi64>
    ```

    becomes

    ```mlir
    %y = linalg.generic {index 2} -> tensor<?x1x?xi64>
    ```

    Numerical effect: none.
  }];
  let dependentDialects = ["::mlir::affine::AffineDialect", "::mlir::arith::ArithDialect",
                           "::mlir::linalg::LinalgDialect", "::mlir::tensor::TensorDialect"];
}

def RaiseBandsPass : Pass<"attn-raise-bands", "::mlir::ModuleOp"> {
  let summary = "softmaxes over keys by their distance from the query become softmaxes over all keys";
  let description = [{
    Sliding windows are computed in chunks: the products of overlapping chunks of
    queries and keys are padded, given rows of another length and cut, so that
    the scores of a query lie by the distance of their keys, and the weights are
    skewed back in the same way (Longformer, LED). Where each score is proved to
    be one function of a query and the key at its distance, and each place without
    a key to be hidden, this becomes the same attention over all keys, with those
    outside the band hidden. No chunk, padding or skew is left.

    Scores of keys that all queries see may lie in front of them, with weighted
    sums of their own (Longformer's global tokens). These keys become the first
    ones. Where their queries are not proved to be those of the other keys, both
    lie side by side, and each key has zeros where the queries are not its own.

    ```mlir
    %w = attn.softmax %skewed dim 2 : tensor<4x64x17xf32>
    ```

    becomes

    ```mlir
    %s = linalg.generic ins(%scores) { select(abs(key - query) <= 8, %in, -inf) }
    %w = attn.softmax %s dim 2 : tensor<4x64x64xf32>
    ```

    Numerical effect: sums are in another order; two sums of 16 bits are rounded
    as one; beside zeros, an infinity in the query or the key makes a score NaN.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::linalg::LinalgDialect",
                           "::mlir::tensor::TensorDialect"];
}

def WriteSlicesPass : Pass<"attn-write-slices", "::mlir::ModuleOp"> {
  let summary = "loops that write the elements of a slice insert it";
  let description = [{
    Loops that write each element of a tensor to a place that, along each
    dimension, is a constant, an offset of a slice, or one of these and a
    multiple of one loop, become the insertion of a slice with strides, as an
    assignment to a slice is exported: a scatter whose indices count. That what
    only a run knows is in range is an `attn.require` in front.

    Of other places the innermost loops that go along whole rows write these as
    slices (on a CPU). One number that is put into a matrix stays: it may mark the
    edges of a graph (`attn-raise-tables`).

    ```mlir
    %y = scf.for ... { tensor.insert %u[%i] into %t[%i + 2] }
    ```

    becomes

    ```mlir
    %y = tensor.insert_slice %u into %x[2] [%n] [1]
    ```

    Numerical effect: none.
  }];
  let dependentDialects = ["::mlir::affine::AffineDialect", "::mlir::arith::ArithDialect",
                           "::mlir::linalg::LinalgDialect", "::mlir::tensor::TensorDialect"];
}

def MarkPlacesPass : Pass<"attn-mark-places", "::mlir::ModuleOp"> {
  let summary = "a number that loops put into planes of scores is chosen by a table of planes";
  let description = [{
    Loops that put one number into scores at places that only a run knows, and
    along all of the other dimensions, as a scatter hides keys that are padding,
    mark these places in a table of bytes. Each score is chosen by it, so that
    what computes the others is seen.

    ```mlir
    %y = scf.for %n ... { scf.for %j ... { tensor.insert %hidden into %s[%p[%n], %j] } }
    ```

    becomes

    ```mlir
    %m = scf.for %n ... { tensor.insert 1 into %zeros[%p[%n]] }
    %y = linalg.generic ins(%s, %m) { select(%m != 0, %hidden, %s) }
    ```

    Numerical effect: none.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::linalg::LinalgDialect", "::mlir::scf::SCFDialect",
                           "::mlir::tensor::TensorDialect"];
}

def OpenMasksPass : Pass<"attn-open-masks", "::mlir::ModuleOp"> {
  let summary = "compute the mask of an imported attention in its score region";
  let description = [{
    A stored mask that is computed from positions and smaller tensors (as the
    exporters of ONNX's Attention write causal masks) is written into the score
    region, where attn-prove-masks reads it. So is a captured tensor. Only where
    a term by position is proved then, and nothing is left that is not a term.

    ```mlir
    %m = linalg.generic {index 1 <= index 0}
    attn.attention mask [#attn.dense] mask_operands(%m) score { %s }
    ```

    becomes `attn.attention score { select(%j <= %i, %s, -inf) }`.

    Numerical effect: none.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::tensor::TensorDialect"];
}

def ExposeAttentionPass : Pass<"attn-expose-attention", "::mlir::ModuleOp"> {
  let summary = "weights of fused attentions become outputs of their entry";
  let description = [{
    For each attention of `nodes` ("all": each) that stands in an entry, or in
    the loop of a search there, the entry has more outputs: `NODE.weights` [batch, head, query,
    key], `NODE.head_mean` [batch, query, key], `NODE.argmax` (the key of the
    largest weight) and `NODE.entropy` (-sum w log w) [batch, head, query],
    `NODE.top_k_weights` and `NODE.top_k_keys` [batch, head, query, K] (0
    behind the last key; no more than there are, if their number is fixed).
    These are the axes of the graph's weights; one that they lack has size 1.

    In a search queries are the tokens that are returned, each with what the step of its choice showed of its last query,
    behind batch stand the hypotheses of a beam, and keys are those of the longest of these steps, 0 behind those of a step.

    They come from a second attention with the same scores and values of width
    1, so that the first one and all other outputs keep their bits. What divides
    the rows of the result behind it (an attention sink) divides the weights, too.

    ```mlir
    %r = attn.attention ins(%q, %k, %v) -> tensor<?x?x8xf32>
    ```

    becomes

    ```mlir
    %r = attn.attention ins(%q, %k, %v) -> tensor<?x?x8xf32>
    %none, %w = attn.attention ins(%q, %k, %zeros) -> tensor<?x?x1xf32> extras [#attn.extra<final_weights>]
    ```

    The fusion report says which outputs an attention has (`exposed`), or why
    none (`not_exposed`). Numerical effect: none.
  }];
  let options = [ListOption<"nodes", "nodes", "std::string", "names of nodes, ENTRY:NODE, or all">,
                 ListOption<"as", "as", "std::string", "weights, head-mean, argmax, entropy, top-k:K">];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::linalg::LinalgDialect", "::mlir::math::MathDialect",
                           "::mlir::scf::SCFDialect", "::mlir::tensor::TensorDialect"];
}

def ProveMasksPass : Pass<"attn-prove-masks", "::mlir::ModuleOp"> {
  let summary = "make mask terms of what a score region hides";
  let description = [{
    Comparisons of positions (and of captured lengths, offsets and stored masks)
    by which the end of a score region puts -inf in the place of a score, or
    adds it, become terms of the attention's mask, so that kernels skip tiles of
    keys. What is not proved to be a term stays in the region.

    ```mlir
    score { %y = select(%j <= %i, %s, -inf) }
    ```

    becomes `mask [#attn.causal<0>]` and `score { %s }`. Quotients of positions
    that are compared, floor(j / 64) = floor(i / 64) or <=, or whose difference
    is bounded, become a `chunks` term.

    A finite constant of -1e4 or less hides keys only from rows that see others:
    unless every row is proved to see a key, `masked_rows` becomes `finite` and
    the masked region says what hidden keys score in a row that sees none. And
    only if all of it is proved, and the rest of the score can't be a mask: a
    bias for keys is made of constants and weights that stay above -1e4 and of
    integers, positions and products of a run (ALiBi, relative positions), and
    of no float input.

    Numerical effect: none for -inf, but for scores of NaN and infinity behind a
    mask; a finite constant c needs scores within |c| / 4, which the report says
    ("assumes"), and which `exact` does without.
  }];
  let options = [Option<"exact", "exact", "bool", "false", "leave finite constants in the region">];
  let dependentDialects = ["::mlir::linalg::LinalgDialect", "::mlir::tensor::TensorDialect"];
}

def ListBlocksPass : Pass<"attn-list-blocks", "::mlir::ModuleOp"> {
  let summary = "a constant mask that hides most keys by blocks, and one made of edges, become lists";
  let description = [{
    A `dense` term over queries and keys whose operand is a constant becomes a
    `blocks` term, if half of the tiles of a kernel are hidden and the lists are
    shorter than the table. The size of the blocks is that of the mask: the
    greatest one of which all boundaries are multiples.

    ```mlir
    mask [#attn.dense] ... mask_operands(%m : tensor<4096x4096xi8>)
    ```

    becomes

    ```mlir
    mask [#attn.blocks<64, 64>] ... mask_operands(%l : tensor<64x3xi32>)
    ```

    A `dense` term whose operand is bytes that loops put at the places of edges
    (attn-raise-tables) becomes `blocks<1, 1>`, adjacency lists: the edges are
    sorted by query and key in the run, and a list is as long as the most keys of
    a query. So nothing of the size of the table is stored. Not where the edges
    are known to be more than an eighth of the pairs.

    Numerical effect: none. Where each row is seen to have a key, what hidden
    keys score in a row that has none (`masked_rows finite`) is dropped; where
    they all score one number, such a row is `uniform`.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::linalg::LinalgDialect",
                           "::mlir::scf::SCFDialect", "::mlir::tensor::TensorDialect"];
}

def FoldLayoutPass : Pass<"attn-fold-layout"> {
  let summary = "read and write through transposes: they become part of indexing maps";
  let description = [{
    A linalg.transpose before an operand of attn.attention, after its result,
    or before an operand of a linalg.contract of two activations goes into the
    op's indexing map. (An attention that recognition built has none left; one
    from the importer does.) Before a contraction with a weight the transpose
    stays: a GEMM reads rows.

    ```mlir
    %t = linalg.transpose ins(%q : tensor<?x?x4x8xf32>) ... permutation = [0, 2, 1, 3]
    %o = attn.attention ... maps [affine_map<(b, h, i, j, d, e) -> (b, h, i, d)>, ...] ins(%t, ...
    ```

    becomes

    ```mlir
    %o = attn.attention ... maps [affine_map<(b, h, i, j, d, e) -> (b, i, h, d)>, ...] ins(%q, ...
    ```

    Numerical effect: none.
  }];
  let dependentDialects = ["::mlir::linalg::LinalgDialect"];
}

def RecognizeCellsPass : Pass<"attn-recognize-cells", "::mlir::ModuleOp"> {
  let summary = "a step of an LSTM, a GRU or a simple recurrent layer becomes attn.lstm, gru, rnn of one step";
  let description = [{
    Found from the op that makes the new state: `o tanh(f c + i g)`, and
    `(1 - z) n + z h` in its spellings, with gates that are a function of products
    with constant matrices and of biases. Products may be joined over gates or
    over inputs, in any order, and there may be several inputs. `tanh(x W + h R)`
    is a step only where h is shown to be a state: a loop carries it, or the
    matrix meets the result of the same formula elsewhere.

    ```mlir
    %c1 = linalg.generic {addf} ins(%fc, %ig)
    %t = linalg.generic {tanh} ins(%c1)
    %h1 = linalg.generic {mulf} ins(%o, %t)
    ```

    becomes

    ```mlir
    %y, %h1, %c1 = attn.lstm forward [...] ins(%x, %w, %r ...) bias(...) initial_h(%h ...) initial_c(%c ...)
    ```

    The state's matrices must be globals; the new ones are slices, transposes and
    concatenations of them. Numerical effect: sums in another order.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::linalg::LinalgDialect",
                           "::mlir::tensor::TensorDialect", "::attn::AttnDialect"];
}

def JoinStepsPass : Pass<"attn-join-steps"> {
  let summary = "steps of one recurrent layer, one after the other, become one op";
  let description = [{
    Each begins with the state that the one before ends with, they have the same
    weights, and no input is computed from a state: the product of all inputs
    is then one, and the weights stay near over all steps.

    ```mlir
    %y0, %h0 = attn.rnn forward [...] ins(%x0, %w, %r ...) initial_h(%h ...)
    %y1, %h1 = attn.rnn forward [...] ins(%x1, %w, %r ...) initial_h(%h0 ...)
    ```

    becomes

    ```mlir
    %x = tensor.insert_slice %x1 into ... // [x0, x1]
    %y, %h1 = attn.rnn forward [...] ins(%x, %w, %r ...) initial_h(%h ...)
    %h0 = tensor.extract_slice %y[0, 0, 0, 0] ...
    ```

    Numerical effect: none.
  }];
  let dependentDialects = ["::mlir::tensor::TensorDialect", "::attn::AttnDialect"];
}

def AppendCachesPass : Pass<"attn-append-caches", "::mlir::ModuleOp"> {
  let summary = "an input that an entry returns with rows behind it, or replaced, is changed in place";
  let description = [{
    The concatenation of an input and one tensor, where the entry returns it. A
    pair of `attn.states` on the entry (an input and the output that is this
    input in the next run) makes it an append to the state.

    ```mlir
    %0 = tensor.insert_slice %past into %empty[0, 0, 0, 0] [%b, 4, %n, 8] [1, 1, 1, 1]
    %1 = tensor.insert_slice %key into %0[0, 0, %n, 0] [%b, 4, 1, 8] [1, 1, 1, 1]
    return %1
    ```

    becomes

    ```mlir
    %1 = attn.kv_append %key to %past dim 2 state 0
    return %1
    ```

    An output that is its state's input with elements replaced, as by ONNX's
    TensorScatter, is written where the state lies: attn.kv_open.

    Who else reads the input of a state reads the front of the result, which
    moves before them; a state whose new rows are made from it is not appended
    to. Runs after recognition, which reads slices. Numerical effect: none.
  }];
  let dependentDialects = ["::attn::AttnDialect", "::mlir::arith::ArithDialect", "::mlir::tensor::TensorDialect"];
}

def MergeProjectionsPass : Pass<"attn-merge-projections", "::mlir::ModuleOp"> {
  let summary = "projections of one tensor that lead to an attention become one product";
  let description = [{
    Contractions of one tensor with 2-D weights, and the constant bias behind
    each, where only views and attentions read the results. The weights stand
    side by side in a global of their own; attention reads slices of rows in
    place. One product has one epilogue, one start of the threads, and reads its
    input once. Only for 64 rows or less, known when compiled, where that counts;
    only for weights of whole panels of 48 or 64 columns, which stay what they
    are in the library; and only where no other op reads one of the weights, so
    that none is stored twice.

    ```mlir
    %q = linalg.contract ins(%x, %wq : tensor<1x8x32xf32>, tensor<32x96xf32>) ...
    %k = linalg.contract ins(%x, %wk : tensor<1x8x32xf32>, tensor<32x48xf32>) ...
    ```

    becomes

    ```mlir
    %w = attn.weight @"wq+wk" : tensor<32x144xf32>
    %p = linalg.contract ins(%x, %w : tensor<1x8x32xf32>, tensor<32x144xf32>) ...
    %q = tensor.extract_slice %p[0, 0, 0] [1, 8, 96] [1, 1, 1]
    %k = tensor.extract_slice %p[0, 0, 96] [1, 8, 48] [1, 1, 1]
    ```

    With `any-rows`, for a GPU, where each launch costs: of any number of rows,
    of weights of any width, and of f16 and bf16, where the op behind a product
    rounds, and may add a bias and round again. Weights by columns are one weight in
    the library then, of which none can be replaced alone.

    Stands with the choice of kernels. Numerical effect: rounding, where a
    wider product is cut into other blocks.
  }];
  let options = [Option<"anyRows", "any-rows", "bool", "false", "of any number of rows, and in 16 bits, too">];
  let dependentDialects = ["::attn::AttnDialect", "::mlir::arith::ArithDialect", "::mlir::linalg::LinalgDialect",
                           "::mlir::tensor::TensorDialect"];
}

def ViewBytesPass : Pass<"attn-view-bytes", "::mlir::ModuleOp"> {
  let summary = "transposes, reshapes, paddings and patches of widened bytes are made of the bytes";
  let description = [{
    What multiplies a stored matrix reads views of bytes: of an operand that is a view
    of widened bytes (dequantised, or less a zero point) the view goes before the
    widening, and moves a quarter. A filter becomes the matrix that a convolution's
    patches are multiplied by, a weight itself (`#attn.reshape`, `#attn.transpose`).
    Padding with 0 becomes padding with the zero point. A scale or a zero point that
    goes along a dimension goes along it still, so a view that cuts or joins that one
    stays.

    ```mlir
    %f = linalg.generic {(uitofp x - 128) * 0.5} ins(%x : tensor<1x3x4x4xi8>) -> tensor<1x3x4x4xf32>
    %p = tensor.pad %f {0.0} : tensor<1x3x4x4xf32> to tensor<1x3x6x6xf32>
    // becomes
    %q = tensor.pad %x {128} : tensor<1x3x4x4xi8> to tensor<1x3x6x6xi8>
    %p = linalg.generic {(uitofp x - 128) * 0.5} ins(%q : tensor<1x3x6x6xi8>) -> tensor<1x3x6x6xf32>
    ```

    Elsewhere what makes bytes of a transpose, or of keys that several heads share,
    or reads them, goes before it, so that attentions read their keys as they lie.
    Numerical effect: none.
  }];
  let dependentDialects = ["::attn::AttnDialect", "::mlir::arith::ArithDialect", "::mlir::linalg::LinalgDialect",
                           "::mlir::tensor::TensorDialect"];
}

def RaiseProductsPass : Pass<"attn-raise-products", "::mlir::ModuleOp"> {
  let summary = "a contraction of quantised operands becomes attn.integer_product";
  let description = [{
    A contraction onto zeros of an activation and a weight that are both widened
    bytes, less a zero point if any: in i32 as they are (MatMulInteger and its
    relatives), in f32 with scales (dequantised on both sides), which then multiply
    the sums. Recognised by what is computed, whatever ops it is spread over, and
    before elementwise ops are joined: the bytes that one quantisation gives feed
    several products. A signed activation gets 128 added.

    Operands in i32 that the run both has, matrices for each of some dimensions
    (groups of a convolution) and few constants are products, too, whose right-hand
    side the run packs. What stays is told by a missed remark: zero points or scales
    along the sum. So do products of floats both of which the run dequantises:
    attentions are made of them, and the f32 kernel multiplies them as fast.

    ```mlir
    %a = linalg.generic {extui x - extui z} ins(%x, %z : tensor<?x8xi8>, tensor<i8>) -> tensor<?x8xi32>
    %b = linalg.generic {extsi} ins(%w : tensor<8x6xi8>) -> tensor<8x6xi32>
    %s = linalg.contract ... ins(%a, %b) outs(%zeros)
    // becomes
    %s = attn.integer_product %x zero %z by %w : tensor<?x8xi8> zero tensor<i8> by tensor<8x6xi8> -> tensor<?x6xi32>
    ```

    Where the weight alone is dequantised, with one scale or one a column that are
    stored, it is a matrix in blocks of equal scales (attn.block_product).

    Numerical effect: none on integers. Of dequantised factors the sum becomes
    exact, and one product by the scales is rounded instead of each term; what
    is too deep for sums of 32 bits (K above 33,025) has rows of floats.
  }];
  let dependentDialects = ["::attn::AttnDialect", "::mlir::arith::ArithDialect", "::mlir::linalg::LinalgDialect",
                           "::mlir::tensor::TensorDialect"];
}

def RaiseBlockProductsPass : Pass<"attn-raise-block-products", "::mlir::ModuleOp"> {
  let summary = "a contraction with a matrix that is stored in blocks becomes attn.block_product";
  let description = [{
    A contraction onto zeros of rows and of what `attn.dequantize_blocks` makes of a
    stored matrix, read in any layout, with its blocks along the sum. Rows of f16 are
    widened. What reads single elements of such a matrix, an embedding, computes them
    from their codes.

    What stays is told by a missed remark and in the module's `attn.product_report`.

    ```mlir
    %w = attn.dequantize_blocks %codes scales %s axis 1 block 32 bits 4 zero_point 8 unsigned
        : tensor<6x64xi8> scales tensor<6x2xf32> -> tensor<6x64xf32>
    %t = linalg.transpose ins(%w) outs(...) permutation = [1, 0]
    %y = linalg.matmul ins(%x, %t) outs(%zeros)
    // becomes
    %y = attn.block_product %x by %codes scales %s block 32 bits 4 zero_point 8 transposed unsigned
        : tensor<?x64xf32> by tensor<6x64xi8> scales tensor<6x2xf32> -> tensor<?x6xf32>
    ```

    Numerical effect: none by itself; a matrix of f16 is no longer rounded to f16
    before its product.
  }];
  let dependentDialects = ["::attn::AttnDialect", "::mlir::arith::ArithDialect", "::mlir::linalg::LinalgDialect",
                           "::mlir::tensor::TensorDialect"];
}

def MoveChannelsPass : Pass<"attn-move-channels"> {
  let summary = "what stands between convolutions keeps its channels last, as their products have them";
  let description = [{
    A convolution gives rows of channels, which ONNX wants behind the batch: a
    transpose follows, and one back stands before the next convolution. Ops
    between them (elementwise ones, windows, pads, concatenations) that read one
    another's results are written for channels that stand last, where fewer
    elements are transposed then: the transposes around them go. Sums over
    places read what they read in either order.

    ```mlir
    %t = linalg.transpose ins(%x : tensor<1x49x64xf32>) ... permutation = [0, 2, 1]
    %y = linalg.generic {max(x, 0)} ins(%t : tensor<1x64x49xf32>)
    %z = linalg.transpose ins(%y : tensor<1x64x49xf32>) ... permutation = [0, 2, 1]
    ```

    becomes

    ```mlir
    %z = linalg.generic {max(x, 0)} ins(%x : tensor<1x49x64xf32>)
    ```

    Numerical effect: none.
  }];
  let dependentDialects = ["::mlir::linalg::LinalgDialect", "::mlir::tensor::TensorDialect"];
}

def SelectRowsPass : Pass<"attn-select-rows"> {
  let summary = "a contraction with ones at one position of each row reads that row";
  let description = [{
    Hard attention: the position of the largest score becomes a row of zeros
    and a one, which weighs the values. The values at that position are read
    instead, and 0 where the position is none of them; no matrix of ones is
    stored. For a number of values that is known and not 0.

    ```mlir
    %ones = linalg.generic {j == %at[i] ? 1.0 : 0.0} ins(%at : tensor<?xi64>) outs(... : tensor<?x56xf32>)
    %y = linalg.contract ... ins(%ones, %v : tensor<?x56xf32>, tensor<56x8xf32>)
    ```

    becomes

    ```mlir
    %y = linalg.generic {tensor.extract %v[%at[i], e]} ins(%at : tensor<?xi64>) outs(... : tensor<?x8xf32>)
    ```

    Numerical effect: none for finite values; infinite ones and NaN of other
    positions do not count.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::linalg::LinalgDialect",
                           "::mlir::tensor::TensorDialect"];
}

def SplitElementwisePass : Pass<"attn-split-elementwise"> {
  let summary = "what reads a concatenation of slices is computed part by part";
  let description = [{
    Rotary embeddings: the halves of each head change places in a concatenation,
    of which an elementwise op reads one element for each of its own. The op is
    cut where the parts meet; it then reads slices, and nothing is copied.
    Slices of a transpose are taken before it.

    ```mlir
    %r = tensor.insert_slice ... // concat(-x[..., 4:], x[..., :4])
    %y = linalg.generic {x * cos + r * sin} ins(%x, %cos, %r, %sin : tensor<?x8xf32>, ...)
    ```

    becomes

    ```mlir
    %a = linalg.generic {x * cos + r * sin} ins(%x_first, %cos_first, %minus_x_last, %sin_first : tensor<?x4xf32>, ...)
    %b = linalg.generic {x * cos + r * sin} ins(%x_last, %cos_last, %x_first, %sin_last : tensor<?x4xf32>, ...)
    %y = tensor.insert_slice ... // concat(a, b)
    ```

    Numerical effect: none.
  }];
  let dependentDialects = ["::mlir::linalg::LinalgDialect", "::mlir::tensor::TensorDialect"];
}

def VerifyCanonicalPass : Pass<"attn-verify-canonical", "::mlir::ModuleOp"> {
  let summary = "fail unless the module is in the form that recognition reads";
  let description = [{
    Checks the form of passes/graph/README.md, in which each thing has one
    spelling, after the passes that raise (`attn-raise-softmax`,
    `attn-raise-contraction`) and before recognition:

    * only ops of affine, arith, attn, func (no calls), linalg, math, scf and
      tensor, on scalars and ranked tensors;
    * a softmax is `attn.softmax`: no exponentials over their own sum;
    * a contraction is `linalg.contract`: no other linalg op sums products;
    * a reshape is `tensor.expand_shape` or `tensor.collapse_shape`.

    A tool for tests and for who adds an importer or a raising pass; a compile
    does not run it, since what is not canonical is only not recognised.

    ```mlir
    // error: not in canonical form: a contraction is linalg.contract
    %0 = linalg.matmul ins(%a, %b : tensor<2x3xf32>, tensor<3x4xf32>) outs(%c : tensor<2x4xf32>) -> tensor<2x4xf32>
    ```
  }];
}

#endif // PASSES_GRAPH_GRAPHPASSES_TD
