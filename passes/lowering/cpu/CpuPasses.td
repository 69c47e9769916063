#ifndef PASSES_LOWERING_CPU_CPUPASSES_TD
#define PASSES_LOWERING_CPU_CPUPASSES_TD

include "mlir/Pass/PassBase.td"

defvar searchOptions = [
  Option<"traces", "traces", "bool", "false", "whether attn.trace stands behind each loop, for attn-expose-attention">
];

def LowerSearchPass : Pass<"attn-lower-search", "::mlir::ModuleOp"> {
  let summary = "attn.search becomes a loop around a copy of its step";
  let description = [{
    The first pass of all: what follows sees a loop on tensors. Each iteration
    runs the step on the rows that live, calls two kernels (the best tokens of each row;
    what lives on) and brings the states into the order of the rows. What a step
    computes from its constant arguments alone stands before the loop. States
    that grow are buffers with room (attn.grow), appended to in place where the step
    concatenates and no rows move; histories of tokens and parents are followed back at the end.

    ```mlir
    %t, %n, %s = attn.search "greedy" @step from %bos max %c50 (%h : tensor<?x24xf32>) {...}
    // becomes
    %r:10 = scf.while (...) { scf.condition(%go) ... } do {
      ... the step ...
      %v:3 = attn.kernel @search_rows_w1_b1_2 ins(%logits, %noEnd) outs(...)
      %c:7 = attn.kernel @search_greedy_w1_b1_2 ins(%v#0, %v#1, %v#2, ...) outs(...)
    }
    ```
  }];
  let options = searchOptions;
  let dependentDialects = [
    "::attn::AttnDialect", "::mlir::arith::ArithDialect", "::mlir::func::FuncDialect",
    "::mlir::linalg::LinalgDialect", "::mlir::math::MathDialect", "::mlir::memref::MemRefDialect",
    "::mlir::scf::SCFDialect", "::mlir::tensor::TensorDialect", "::mlir::vector::VectorDialect"
  ];
}

def LowerContractionsPass : Pass<"attn-lower-contractions", "::mlir::ModuleOp"> {
  let summary = "contractions with a weight become calls of packed GEMM kernels";
  let description = [{
    A contraction (`linalg.contract`, `linalg.matmul`, ... on f32, accumulating
    onto zeros) of which one operand is an `attn.weight` becomes an
    `attn.kernel` on the weight packed as column panels, a new `attn.global`
    that equal uses share. The dimensions that only the other operand and the
    result have are collapsed to the rows; where their order asks for it, that
    operand or the result is transposed.

    Of two operands that only the run knows, the one with the result's last
    columns is packed by a kernel of its own, a batch of them too, from 2^15
    multiplications and 4 rows on (a dynamic size counts as 64). The rest stays.

    An elementwise `linalg.generic` that is the only user of the result becomes
    the kernel's epilogue, if it reads its other operands by column, by row, at
    the element or as one scalar. The kernel stands where this op stood.

    Remarks of category `attn-lower-contractions` name each contraction: passed
    `gemm` with the kernel; missed `gemm` or `epilogue` with the reason.

    `weights` stores them in fewer bits (`#attn.narrow_panels`): `bf16`, or `int8`
    with a scale for each column, or, as `int8:64`, for each column and 64 rows.
    They are widened in registers; activations and sums stay f32. Without it a
    weight that is f16 or bf16 widened (attn-widen-halves) is packed as it is stored.

    With `precision=bf16` weights not said otherwise are bf16; where the target
    has vdpbf16ps and K is even, the activation is rounded to bf16, too, once for
    all its uses, and sums are in f32. A result that only such products read is
    stored in bf16; an erf before it may be off by 3.6e-6 (`afn`).

    Of 16 rows or more by a weight in f16 the sums are made by tiles of bf16 (AMX)
    where the run has them: of rows as sums of three, of the weight as that of two.

    With `precision=bf16x3` (`bf16x6`) both are the sum of two (three) parts in
    bf16, of whose products three (six) are summed: results as f32 has them, by
    products of bf16. Where these are of tiles (AMX), as the target may have them,
    the run chooses between them and vdpbf16ps.

    Numerical effect: the sum over k keeps its order but on tiles; multiply and add
    are fused.
    Narrow weights are rounded: by 2^-9 of themselves in bf16, by 1/254 of the
    greatest in their group in int8. What two parts lack is 2^-17 of the element;
    of an activation in parts an infinity, or what rounds to one in bf16, gives NaN.

    ```mlir
    %w = attn.weight @w : tensor<384x1536xf32>
    %c = linalg.contract indexing_maps = [(b, s, n, k) -> (b, s, k), (b, s, n, k) -> (k, n), (b, s, n, k) -> (b, s, n)]
        ins(%x, %w : tensor<?x?x384xf32>, tensor<384x1536xf32>) outs(%zeros : tensor<?x?x1536xf32>)
    %y = linalg.generic ins(%c, %bias) { addf } -> tensor<?x?x1536xf32>
    // becomes
    attn.global @w_panels48 : tensor<32x384x48xf32> = #attn.pack_panels<@w, transposed = false, width = 48>
    %p = attn.weight @w_panels48 : tensor<32x384x48xf32>
    %a = tensor.collapse_shape %x [[0, 1], [2]]
    %z = attn.kernel @gemm_f32_mx_k384_n1536_fma_8x3x16_c42_e0123456789abcdef ins(%a, %p, %bias) outs(%empty)
    %y = tensor.expand_shape %z [[0, 1], [2]]
    ```
  }];
  let options = [
    Option<"weights", "weights", "std::string", "\"f32\"", "how packed weights are stored: f32, bf16, int8 or int8:GROUP">,
    Option<"precision", "precision", "std::string", "\"f32\"",
           "bf16: weights and the activations that meet them are bf16 where the target multiplies such; bf16x3, bf16x6: "
           "in two, three parts">
  ];
  let dependentDialects = [
    "::attn::AttnDialect", "::mlir::arith::ArithDialect", "::mlir::func::FuncDialect", "::mlir::linalg::LinalgDialect",
    "::mlir::LLVM::LLVMDialect", "::mlir::memref::MemRefDialect", "::mlir::scf::SCFDialect",
    "::mlir::tensor::TensorDialect", "::mlir::vector::VectorDialect"
  ];
}

def FoldCodesPass : Pass<"attn-fold-codes", "::mlir::ModuleOp"> {
  let summary = "codes that are written and read again stay floats, and are divided by products";
  let description = [{
    Rounding to codes of up to 16 bits between bounds, as QuantizeLinear does with a scale and a zero point that
    are constants, in the body of an op:
    - A float that is made of the code again is the rounded float itself, and so is the code less its zero
      point. The integer is left to what stores it.
    - Where the scale is that with which such a code was read, the code is not rounded again.
    - The bounds come first, on what is rounded: none are needed for the code then.
    - For codes of up to 8 bits, the quotient by the scale is a product with the reciprocal and one correction, on a
      target with fused multiply-adds. It is at most a unit in the last place off, so that only what lies beside the
      half between two codes may be rounded otherwise. The compiler tries all of that, and keeps the division where
      one code differs.

    ```mlir
    %q = arith.divf %x, %scale
    %r = math.roundeven %q
    %c = ... // from 0 to 255
    %f = arith.uitofp (arith.trunci (arith.fptosi %c)) : f32
    // becomes
    %y = ... // %x from 0 * scale to 255 * scale
    %p = arith.mulf %y, %reciprocal
    %e = math.fma (arith.negf %p), %scale, %y
    %f = math.roundeven (math.fma %e, %reciprocal, %p)
    ```
    Source: P. Markstein, "Computation of elementary functions on the IBM RISC System/6000 processor", IBM J. Res.
    Dev. 34 (1990), for the correction.
  }];
  let dependentDialects = ["::attn::AttnDialect", "::mlir::arith::ArithDialect", "::mlir::math::MathDialect"];
}

def LiftConstantsPass : Pass<"attn-lift-constants", "::mlir::ModuleOp"> {
  let summary = "ops that differ in constants alone take them as operands";
  let description = [{
    Elementwise ops and attentions that are the same but for constants of f32, f64 or
    i32 in their regions, as those of a quantised model's blocks are for their scales
    and zero points, get these as operands of rank 0, so that one kernel, or one task, serves all. Constants
    that all of them share stay. An attention whose scores are its products times a
    constant keeps that: its kernel has it in the queries.

    ```mlir
    %a = linalg.generic ins(%x) { mulf %in, 0.1 }
    %b = linalg.generic ins(%y) { mulf %in, 0.2 }
    // becomes
    %a = linalg.generic ins(%x, %c0_1 : tensor<?xf32>, tensor<f32>) { mulf %in, %in_0 }
    %b = linalg.generic ins(%y, %c0_2 : tensor<?xf32>, tensor<f32>) { mulf %in, %in_0 }
    ```
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect"];
}

def AssignScratchPass : Pass<"attn-assign-scratch", "::mlir::ModuleOp"> {
  let summary = "large scratch of kernels lies in memory of the session, not on the stack";
  let description = [{
    Entries run on the caller's thread, whose stack may be small. Where the
    `memref.alloca`s of a kernel, or those of one of its tasks, take more than 8 KiB
    together, those of 1 KiB and more get places in scratch that the caller of the
    kernel provides: one piece for the call, and one for each task that runs at a
    time. The kernel says how many bytes these have. `attn-lower-runtime` hands them
    on. Kernels that are called by kernels keep theirs on the stack.

    ```mlir
    func.func @k(%x: memref<?xf32>) attributes {attn.kernel} {
      scf.parallel (%i) = (%c0) to (%n) step (%c1) {
        %rows = memref.alloca() {alignment = 64 : i64} : memref<4096xf32>
    // becomes
    func.func @k(%x: memref<?xf32>) attributes {attn.kernel, attn.scratch = array<i64: 0, 16384>} {
      scf.parallel (%i) = (%c0) to (%n) step (%c1) {
        %rows = memref.alloca() {alignment = 64 : i64, attn.task_scratch = array<i64: 0, 16384>} : memref<4096xf32>
    ```
  }];
}

def RoundRowsPass : Pass<"attn-round-rows", "::mlir::ModuleOp"> {
  let summary = "products by a weight become attn.integer_product, rows and weight rounded to 8 bits";
  let description = [{
    A contraction of rows and a weight, a matrix, becomes `attn.integer_product` of
    the rows, rounded in the run by max |x| / 127 of each, and of what
    `#attn.block_codes` of 8 bits makes of the weight, a scale per column. Both may
    be in f32, f16 or bf16, and sums are in f32. The sums
    times both scales are fused into the elementwise op behind, so that
    attn-lower-products finds one epilogue. Rows are rounded once for all products
    that read them. A contraction with another shape, of fewer than 32 terms or 16
    columns, or for a processor that does not multiply bytes, stays f32, and the
    module's `attn.product_report` says why.

    Numerical effect: an element of a row differs by at most 1/254 of the greatest in
    it, a weight by as much of the greatest in its column. A row with an infinity or
    a NaN gives NaN.

    ```mlir
    %c = linalg.contract indexing_maps = [(s, n, k) -> (s, k), (s, n, k) -> (k, n), (s, n, k) -> (s, n)]
        ins(%x, %w : tensor<?x80xf32>, tensor<80x60xf32>) outs(%zeros : tensor<?x60xf32>)
    // becomes
    attn.global @w_bytes : tensor<80x60xi8> = #attn.block_codes<@w, transposed = false, block = 80, bits = 8>
    %s = attn.integer_product %rounded zero %c128 by %codes
        : tensor<?x80xi8> zero tensor<i8> by tensor<80x60xi8> -> tensor<?x60xi32>
    %c = linalg.generic ins(%s, %row_scales, %column_scales) { sitofp, mulf, mulf } -> tensor<?x60xf32>
    ```
  }];
  let dependentDialects = ["::attn::AttnDialect", "::mlir::arith::ArithDialect", "::mlir::linalg::LinalgDialect",
                           "::mlir::math::MathDialect", "::mlir::tensor::TensorDialect"];
}

def LowerBlockProductsPass : Pass<"attn-lower-block-products", "::mlir::ModuleOp"> {
  let summary = "attn.block_product by a weight becomes a call of a GEMM kernel that unpacks its codes";
  let description = [{
    Codes become words of 32 bits in panels (`#attn.byte_panels` in i32), scales and
    zero points panels beside them. An elementwise `linalg.generic` that alone uses
    the result becomes the kernel's epilogue as in attn-lower-contractions.

    What has no kernel stays for attn-decompose, and the module's
    `attn.product_report` says why.

    Rows that may be rounded (`narrow_rows`) are where the target multiplies bytes.
    Of 16 rows or more, rounded or not, tiles make the sums where the run has them
    (AMX): of bytes, or of bf16, three of which a number of f32 is.

    Numerical effect: of a few rows, of rounded ones and on tiles, a block's sum is
    multiplied by its scale, not each of its terms. Rounding is that of `narrow_rows`.

    ```mlir
    %y = attn.block_product %x by %codes scales %s block 32 bits 4 zero_point 8 transposed unsigned
        : tensor<?x768xf32> by tensor<2304x768xi8> scales tensor<2304x24xf32> -> tensor<?x2304xf32>
    // becomes
    attn.global @w_words : tensor<36x96x64xi32> = #attn.byte_panels<@w, transposed = true, width = 64, group = 8, unsigned = true>
    attn.global @s_panels : tensor<36x24x64xf32> = #attn.pack_panels<@s, transposed = true, width = 64>
    %y = attn.kernel @gemm_qu4b32_mx_k768_n2304_fma_6x4x16_z8 ins(%x, %words, %scales) outs(%empty)
    ```
  }];
  let dependentDialects = [
    "::attn::AttnDialect", "::mlir::arith::ArithDialect", "::mlir::func::FuncDialect", "::mlir::linalg::LinalgDialect",
    "::mlir::LLVM::LLVMDialect", "::mlir::memref::MemRefDialect", "::mlir::scf::SCFDialect",
    "::mlir::tensor::TensorDialect", "::mlir::vector::VectorDialect"
  ];
}

def LowerProductsPass : Pass<"attn-lower-products", "::mlir::ModuleOp"> {
  let summary = "attn.integer_product by a weight becomes a call of a packed GEMM kernel of bytes";
  let description = [{
    The weight keeps its bytes: panels whose rows lie in groups (`#attn.byte_panels`,
    4 rows with AVX2 or AVX-512, 1 elsewhere) and the sums of its columns
    are new globals. Zero points correct the sums. Without VNNI two products are
    added in 16 bits where the weight's bytes let them fit, and in 32 elsewhere:
    a third global (`#attn.step_order`) says where. An elementwise `linalg.generic`
    that alone uses the result, scales, bias, activation and the next quantisation
    among it, becomes the kernel's epilogue as in attn-lower-contractions.

    The greatest and the least element of one tensor, two reductions over all of it
    as dynamic quantisation asks for, become one kernel, which all threads share.

    What has no kernel stays for attn-decompose, and the module's
    `attn.product_report` says why.

    Numerical effect: none; sums of integers are exact, and so are extremes.

    ```mlir
    %s = attn.integer_product %x zero %z by %w : tensor<?x8xi8> zero tensor<i8> by tensor<8x6xi8> -> tensor<?x6xi32>
    %y = linalg.generic {sitofp, mulf, addf} ins(%s, %scale, %bias) -> tensor<?x6xf32>
    // becomes
    attn.global @w_bytes : tensor<1x2x192xi8> = #attn.byte_panels<@w, transposed = false, width = 48, group = 4, unsigned = false>
    attn.global @w_sums : tensor<1x48xi32> = #attn.column_sums<@w, transposed = false, width = 48, unsigned = false>
    %y = attn.kernel @gemm_i8_mx_k8_n6_quads_8x3x16_za_e0123456789abcdef ins(%x, %p, %sums, %z, %scale, %bias) outs(%empty)
    ```
  }];
  let dependentDialects = [
    "::attn::AttnDialect", "::mlir::arith::ArithDialect", "::mlir::func::FuncDialect", "::mlir::linalg::LinalgDialect",
    "::mlir::LLVM::LLVMDialect", "::mlir::memref::MemRefDialect", "::mlir::scf::SCFDialect",
    "::mlir::tensor::TensorDialect", "::mlir::vector::VectorDialect"
  ];
}

def PrepareAttentionPass : Pass<"attn-prepare-attention", "::mlir::ModuleOp"> {
  let summary = "bring each attn.attention into a kernel form, copying operands that fit none";
  let description = [{
    A form says what a kernel streams, and which dimension stands innermost in
    memory: the width in query, key and value, or the queries (query, scores) or
    keys (key, value, scores). It is written to the op as `attn.form`:

    | form | scores | key |
    |-|-|-|
    | `dot` | dot | by rows (width innermost) |
    | `dot-columns` | dot | transposed (keys innermost) |
    | `row-dot` | dot of a single query | by rows |
    | `row-dot-columns` | dot of a single query | transposed |
    | `additive` | additive | by rows |
    | `additive-one` | additive of width 1: rank-one sums | any |
    | `given` | given | none |
    | `given-listed` | given, with lists of blocks or neighbours | none |
    | `given-spread` | given, a few each of many batches that stand innermost in values and result | none |
    | `given-sampled` | given, of one query for each value, which is gathered | none |

    The last two are no kernels: a softmax over columns and a sum whose lanes are
    batches (outlook attention, whose windows lie beside each other), and a
    softmax and sums that gather their values, so that these are never stored
    (deformable attention, whose queries sample maps).

    An operand in which batch or heads stand innermost fits none: each of its
    lines would be read once per head. It is copied by a linalg.transpose; the
    report names it under `copies`, and a remark does.

    ```mlir
    %o = attn.attention ... maps [..., affine_map<(b, h, i, j, d, e) -> (b, j, d, h)>, ...] ins(%q, %k, %v ...
    // becomes
    %t = linalg.transpose ins(%k ...) permutation = [0, 1, 3, 2]
    %o = attn.attention ... maps [..., affine_map<(b, h, i, j, d, e) -> (b, j, h, d)>, ...] ins(%q, %t, %v ... {attn.form = "dot"}
    ```

    Where each of many batches has one query and values of its own, and all
    share the keys (the sampled places of deformable attention), the scores are
    one `linalg.contract` before a `given` attention: by itself a query would
    read all keys.

    Numerical effect: such scores are summed in another order.
  }];
  let dependentDialects = ["::attn::AttnDialect", "::mlir::linalg::LinalgDialect", "::mlir::tensor::TensorDialect"];
}

def LowerRecurrentPass : Pass<"attn-lower-recurrent", "::mlir::ModuleOp"> {
  let summary = "attn.rnn, attn.gru and attn.lstm become calls of a kernel for all steps";
  let description = [{
    The input is projected for all steps and directions by one contraction
    (which `attn-lower-contractions`, run afterwards, makes a GEMM); the steps
    are one kernel. The recurrent weights become panels with the gates of a few
    units side by side, a new `attn.global`, in bf16 or int8 with scales as
    `weights` says; the kernel widens them in registers. What has no kernel (another element
    type than f32, recurrent weights that are no `attn.weight`, directions with
    different activations) stays for `attn-decompose`.

    Remarks of category `attn-lower-recurrent`: passed with the kernel, or missed
    with the reason.

    Numerical effect: sigmoid and tanh by a polynomial exponential, absolute
    error 2e-7; few items at once split each sum into two.

    ```mlir
    %y, %h = attn.gru forward [...] ins(%x, %w, %r : ...) -> tensor<?x1x4x512xf32>, tensor<1x4x512xf32>
    // becomes
    %g = linalg.contract ... ins(%x, %w) outs(%zeros : tensor<?x4x1x1536xf32>)
    %p = attn.weight @r_gates : tensor<32x512x48xf32>
    %y, %h, %s = attn.kernel @gru_f32_forward_sx_b4_h512_v16_e0123456789abcdef ins(%g, %p) outs(%0, %1, %2)
    ```
  }];
  let options = [
    Option<"weights", "weights", "std::string", "\"f32\"", "how recurrent weights are stored: f32, bf16, int8 or int8:GROUP">
  ];
  let dependentDialects = [
    "::attn::AttnDialect", "::mlir::arith::ArithDialect", "::mlir::func::FuncDialect", "::mlir::linalg::LinalgDialect",
    "::mlir::LLVM::LLVMDialect", "::mlir::math::MathDialect", "::mlir::memref::MemRefDialect",
    "::mlir::scf::SCFDialect", "::mlir::tensor::TensorDialect", "::mlir::vector::VectorDialect"
  ];
}

def LowerAttentionPass : Pass<"attn-lower-attention", "::mlir::ModuleOp"> {
  let summary = "attn.attention becomes a call of a fused kernel";
  let description = [{
    Equal attentions (types, maps, regions, mask, policy) share one kernel, which
    also writes the extra results; reduced ones are made of whole ones. What has
    no kernel (f64, a dynamic head width, a region that
    does not map to vectors) stays for `attn-decompose`.

    Query, key, value and alignment that are f16 or bf16 widened are read as they
    are stored, a cache above all.

    Remarks of category `attn-lower-attention`: passed with the kernel, or missed
    with the reason.

    Numerical effect: sums run over blocks of 256 keys; exponentials are a
    polynomial with relative error 2.2e-7. A masked key's weight of 0 hides a NaN
    or infinity in its value, which 0 * NaN in the plain graph does not.

    With `precision=bf16`, where the target has vdpbf16ps, dot products of more than
    4 queries, keys and values that the run computes (no inputs and no caches) have
    these, the weights and the result rounded to bf16; scores and sums are f32.

    Weights that are extra results and only reduced (by keys, queries or heads, or
    the first k) come block by block of queries, the reductions with them, in an
    `scf.for`; all of them are never in memory. The verdict says so under `weights`,
    or why they are stored. Sums over queries are then taken block by block.

    ```mlir
    %o = attn.attention masked_rows nan maps [#q, #k, #v, #o] ins(%q, %k, %v : ...) -> tensor<?x?x12x32xf32>
    // becomes
    %e = tensor.empty(%b, %s) : tensor<?x?x12x32xf32>
    %o = attn.kernel @attention_f32_d32_e32_0123456789abcdef ins(%q, %k, %v : ...) outs(%e : ...)
    ```
  }];
  let options = [
    Option<"precision", "precision", "std::string", "\"f32\"", "bf16: products of bf16 where the target multiplies such">
  ];
  let dependentDialects = [
    "::attn::AttnDialect", "::mlir::affine::AffineDialect", "::mlir::arith::ArithDialect",
    "::mlir::func::FuncDialect", "::mlir::linalg::LinalgDialect", "::mlir::LLVM::LLVMDialect",
    "::mlir::memref::MemRefDialect", "::mlir::scf::SCFDialect", "::mlir::tensor::TensorDialect", "::mlir::vector::VectorDialect"
  ];
}

def NarrowCachesPass : Pass<"attn-narrow-caches", "::mlir::ModuleOp"> {
  let summary = "caches of keys and values become bytes, each row with a scale";
  let description = [{
    A state of an entry (`attn.states`) that rows are appended to, and that
    attentions alone read, as keys or values of products whose rows are rows of
    it: it is stored as attn.narrow_rows says, which new rows become before they
    are appended. Attentions read attn.widen_rows of it; attn-lower-attention gives them kernels that read the bytes.
    Likewise what a search carries; what it moves between beams are rows with their scales.

    The input and the output of the entry are of i8 then, with rows that are 4
    longer. The module's `attn.cache_report` has a line for each cache, with the
    reason where it stays as it is. Remarks of category `attn-narrow-caches`: passed or missed `Cache`.

    Numerical effect: a key or value differs by at most 1/254 of the greatest in its row.

    ```mlir
    %all = attn.kv_append %key to %past dim 2 state 0
        : tensor<?x12x1x64xf32>, tensor<?x12x?x64xf32> -> tensor<?x12x?x64xf32>
    // becomes
    %bytes = attn.narrow_rows %key : tensor<?x12x1x64xf32> -> tensor<?x12x1x68xi8>
    %all = attn.kv_append %bytes to %past dim 2 state 0
        : tensor<?x12x1x68xi8>, tensor<?x12x?x68xi8> -> tensor<?x12x?x68xi8>
    %keys = attn.widen_rows %all : tensor<?x12x?x68xi8> -> tensor<?x12x?x64xf32>
    ```
  }];
  let dependentDialects = [
    "::attn::AttnDialect", "::mlir::arith::ArithDialect", "::mlir::func::FuncDialect", "::mlir::linalg::LinalgDialect",
    "::mlir::memref::MemRefDialect", "::mlir::scf::SCFDialect", "::mlir::tensor::TensorDialect",
    "::mlir::vector::VectorDialect"
  ];
}

def LowerNormalizationPass : Pass<"attn-lower-normalization", "::mlir::ModuleOp"> {
  let summary = "attn.softmax, attn.layer_norm, attn.top_k and attn.narrow_rows become kernel calls";
  let description = [{
    On f32; the rest stays for `attn-decompose`. The result may take the buffer
    of the input. A softmax over another dimension than the last one takes the
    columns of the matrix behind it side by side, unless they are known to fill
    less than half a register. `attn.top_k` of any type becomes one too; where it is not over the
    last dimension, input and results are transposed.

    Remarks of category `attn-lower-normalization`: passed `softmax`, `layer_norm`
    or `top_k` with the kernel, or missed with the reason.

    Numerical effect: sums of a row are taken in 4 vectors at once and then pairwise, those of columns in order.

    ```mlir
    %y = attn.softmax %x dim 1 : tensor<?x?xf32>
    // becomes
    %e = tensor.empty(%m, %n) : tensor<?x?xf32>
    %y = attn.kernel @softmax_f32_nxn_v16 ins(%x : tensor<?x?xf32>) outs(%e : tensor<?x?xf32>) elementwise [0]
    ```
  }];
  let dependentDialects = [
    "::attn::AttnDialect", "::mlir::arith::ArithDialect", "::mlir::func::FuncDialect", "::mlir::LLVM::LLVMDialect",
    "::mlir::math::MathDialect", "::mlir::memref::MemRefDialect", "::mlir::scf::SCFDialect",
    "::mlir::tensor::TensorDialect", "::mlir::vector::VectorDialect"
  ];
}

def LowerSegmentsPass : Pass<"attn-lower-segments", "::mlir::ModuleOp"> {
  let summary = "attn.segment_attention becomes a kernel call";
  let description = [{
    On f32 with heads and widths that are known and not too many; the rest stays
    for `attn-decompose`. The verdict gets the kernel's name.

    Numerical effect: edges are summed in blocks of 64, which are summed one
    after the other.

    ```mlir
    %y = attn.segment_attention %s, %v by %order, %ends
        : tensor<?x8xf32>, tensor<?x8x8xf32>, tensor<?xi64>, tensor<?xi64> -> tensor<?x8x8xf32>
    // becomes
    %e = tensor.empty(%n) : tensor<?x8x8xf32>
    %y = attn.kernel @segment_attention_f32_nx8xnx8x8xnxnxnx8x8_v16 ins(%s, %v, %order, %ends : ...) outs(%e : ...)
    ```
  }];
  let dependentDialects = [
    "::attn::AttnDialect", "::mlir::arith::ArithDialect", "::mlir::func::FuncDialect", "::mlir::LLVM::LLVMDialect",
    "::mlir::math::MathDialect", "::mlir::memref::MemRefDialect", "::mlir::scf::SCFDialect",
    "::mlir::tensor::TensorDialect", "::mlir::vector::VectorDialect"
  ];
}

#endif // PASSES_LOWERING_CPU_CPUPASSES_TD
