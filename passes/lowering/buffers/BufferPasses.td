#ifndef PASSES_LOWERING_BUFFERS_BUFFERPASSES_TD
#define PASSES_LOWERING_BUFFERS_BUFFERPASSES_TD

include "mlir/Pass/PassBase.td"

// In the order of the pipeline (compiler/pipelines).

def FinalizeEntriesPass : Pass<"attn-finalize-entries", "mlir::ModuleOp"> {
  let summary = "entries on tensors become functions that write output buffers";
  let description = [{
    Arguments become memrefs of identity layout, results are written to buffers
    that `attn.output` asks of the runtime as early as their sizes are known.
    What computes sizes from the inputs, and the requirements on them, moves to
    the front; dimensions that the model names alike become one value (the
    runtime has compared them).

    ```mlir
    func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> attributes {attn.entry} {
      ... return %y
    ```
    becomes
    ```mlir
    func.func @main(%x: memref<?xf32>) attributes {attn.entry, attn.inputs = [...], attn.outputs = [...]} {
      %t = bufferization.to_tensor %x restrict
      %n = memref.dim %x, %c0
      %out = attn.output 0 (%n) : memref<?xf32>
      ...
      bufferization.materialize_in_destination %y in restrict writable %out
    ```
    A reshape before the return moves to the buffer, so that what is computed
    before it can be written in place.
  }];
  let dependentDialects = ["::mlir::bufferization::BufferizationDialect", "::mlir::memref::MemRefDialect",
                           "::mlir::arith::ArithDialect", "::mlir::tensor::TensorDialect"];
}

def GuardIndicesPass : Pass<"attn-guard-indices", "mlir::func::FuncOp"> {
  let summary = "no index is checked against a dimension of size 0";
  let description = [{
    `attn.check_index` makes an index that is out of range 0, so that the read goes
    on and the run ends later; a dimension of size 0 has not even that element.
    Before each op with such a check inside, whose size is not known to be
    positive, stands a requirement that the size is positive or the op has no
    iterations.

    ```mlir
    %y = linalg.generic ... ins(%ids : tensor<?xi64>) { ... attn.check_index %i, %n, "node 'emb' (Gather)" ... }
    ```
    becomes
    ```mlir
    %d = tensor.dim %ids, %c0
    %ok = arith.ori (%n > 0), (%d == 0)
    attn.require %ok, "node 'emb' (Gather): an index into a dimension of size {0}" (%n)
    %y = linalg.generic ...
    ```
  }];
  let dependentDialects = ["::attn::AttnDialect", "::mlir::arith::ArithDialect", "::mlir::tensor::TensorDialect"];
}

def PrepareBuffersPass : Pass<"attn-prepare-buffers", "mlir::func::FuncOp"> {
  let summary = "give each writer its own fill, spell concatenations as slices";
  let description = [{
    Right before bufferisation: CSE has given equal `linalg.fill`s one value,
    and every writer after the first would copy it. `tensor.empty` stays shared
    (an unshared one costs an allocation). `tensor.concat` becomes insertions
    into one tensor, more than 32 insertions of parts that fill one become a
    `tensor.concat` (upstream's analyses of as many take seconds), a collapse of a tensor without elements a tensor.empty
    (memref.collapse_shape refuses to join {?, 0}), and so a slice at the end of
    one (memref.subview refuses the offset). What a loop's body reads of
    a state after the place of another is written (states that it swaps, yields
    twice or as views of each other, old contents) is copied first.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::linalg::LinalgDialect", "::mlir::tensor::TensorDialect"];
}

def JoinConversionsPass : Pass<"attn-join-conversions", "mlir::func::FuncOp"> {
  let summary = "what is rounded and widened again is made by one loop";
  let description = [{
    A step in 16 bits whose caches come and go as f32 rounds what came, appends
    to it, and widens all of it. The widening moves in front of the insertions,
    and an op that rounds makes the rounded and the widened floats at once: what
    came is read once, and each result written once. A step of GPT-2 in f16
    behind 512 tokens, one thread of Emerald Rapids: 28.1 -> 26.8 ms.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::linalg::LinalgDialect", "::mlir::tensor::TensorDialect"];
}

def SinkConversionsPass : Pass<"attn-sink-conversions", "mlir::func::FuncOp"> {
  let summary = "what is computed of the run's inputs alone is computed where it is first read";
  let description = [{
    Exporters convert a step's caches at the front of the file, all of them before
    the first layer. An elementwise op that reads nothing but inputs moves down to
    its first reader, so that a layer finds its cache in the processor's cache,
    and all layers use the same buffer. What reads a state, which the run
    overwrites, stays, and nothing moves past an op that writes to memory.
  }];
}

def EliminateEmptiesPass : Pass<"attn-eliminate-empties", "mlir::ModuleOp"> {
  let summary = "what is inserted into a tensor is computed in its place";
  let description = [{
    Upstream's elimination of `tensor.empty`, once no two concatenations begin in
    the same one, and reshapes that only add dimensions of size 1 are part of the
    insertion, but for two cases: what the destination is made of would move in
    front of the first writer, and with it what writes other parts of it. Where
    an `attn.require` stands in between, these would be as large as it has not
    allowed yet, so there it stays. So it does where an output's value overwrites
    one that is read afterwards. What an output is put together in becomes its
    buffer first, so that its parts are computed there.
  }];
  let dependentDialects = ["::mlir::bufferization::BufferizationDialect", "::mlir::tensor::TensorDialect"];
}

def FinishBuffersPass : Pass<"attn-finish-buffers", "mlir::func::FuncOp"> {
  let summary = "after bufferisation: copies as linalg, dense operands for kernels";
  let description = [{
    `memref.copy` becomes `linalg.generic`, so that it is vectorised and run in
    parallel; an operand of `attn.kernel` that is no dense row-major buffer is
    copied to one; `memref.dim` of a view is the size that the view was given.
  }];
  let dependentDialects = ["::mlir::linalg::LinalgDialect", "::mlir::affine::AffineDialect", "::mlir::memref::MemRefDialect"];
}

def PlanMemoryPass : Pass<"attn-plan-memory", "mlir::func::FuncOp"> {
  let summary = "all allocations of an entry become views of one workspace";
  let description = [{
    Sizes are products of a constant and named dimensions. Buffers with the
    same dimensions form a group in which places are found at compile time by
    lifetime, in units of the dimensions' product; the groups follow one
    another. So a buffer is reused as with static shapes, and the one request
    for memory stands at the entry. A buffer whose size only the run computes
    gets its own request where the size is known. Where `attn.dim_bounds` gives
    every named dimension a greatest size, `attn.max_workspace` says what a run
    asks for at most. A kernel may not allocate: its
    scratch is an operand or a `memref.alloca`.
  }];
  let dependentDialects = ["::mlir::memref::MemRefDialect", "::mlir::arith::ArithDialect",
                           "::attn::AttnDialect"];
}

def VectorizeLinalgPass : Pass<"attn-vectorize-linalg", "mlir::func::FuncOp"> {
  let summary = "linalg on buffers becomes vector loops, parallel where worth it";
  let description = [{
    One loop is vectorised: the one that costs the fewest strided accesses; a
    reduction is carried in registers. On AVX-512 the last step is masked,
    elsewhere a scalar loop takes the rest. What cannot be done on vectors is
    emitted as scalar loops.

    Long rows of an output that this run does not read, and that is larger than
    the second-level cache, are stored past the caches (`StreamedStores`): a cache
    that goes back to the caller in f32 while the attention reads it in f16.
  }];
  let dependentDialects = ["::mlir::scf::SCFDialect", "::mlir::vector::VectorDialect", "::mlir::LLVM::LLVMDialect",
                           "::mlir::memref::MemRefDialect", "::mlir::arith::ArithDialect",
                           "::mlir::affine::AffineDialect", "::attn::AttnDialect"];
}

def OutlineParallelPass : Pass<"attn-outline-parallel", "mlir::ModuleOp"> {
  let summary = "parallel loops become tasks of the runtime";
  let description = [{
    Each outermost one-dimensional `scf.parallel` from 0 in steps of 1 becomes
    a function over a piece of its iterations and an `attn.parallel_for`. Loops
    that differ in what they capture alone share one function. All others stay
    and run serially. A `memref.alloca` of static size moves to the entry of its
    function.
  }];
  let dependentDialects = ["::mlir::scf::SCFDialect", "::mlir::arith::ArithDialect",
                           "::mlir::func::FuncDialect", "::attn::AttnDialect"];
}

def PollLoopsPass : Pass<"attn-poll-loops", "mlir::func::FuncOp"> {
  let summary = "long loops look whether the run is to end";
  let description = [{
    The runtime looks between the pieces of a parallel region; a serial loop, and
    a row of a region, may take seconds. Loops of entries, and of kernels with
    `attn.polls`, are cut into pieces of some 2^18 scalar operations, with an
    `attn.poll` between two of them. A loop that is known to be shorter stays.
    Loops with `attn.polls` of other kernels are cut, too, and left by way of
    `attn.is_ending`: the kernel puts back what it has set.

    ```mlir
    scf.for %i = %c0 to %n step %c1 { ... }  // 8 operations
    ```

    becomes

    ```mlir
    scf.for %o = %c0 to %n step %c32768 {
      %end = arith.minsi %next, %n
      scf.for %i = %o to %end step %c1 { ... }
      %more = arith.cmpi slt, %end, %n
      scf.if %more { attn.poll }
    }
    ```

    Before `attn-outline-parallel`: a task looks, too.
  }];
  let dependentDialects = ["::mlir::scf::SCFDialect", "::mlir::arith::ArithDialect", "::attn::AttnDialect"];
}

def MarkRegionsPass : Pass<"attn-mark-regions", "mlir::ModuleOp"> {
  let summary = "tell the runtime at the end of each region of an entry";
  let description = [{
    For profiles: an `attn.mark` after each kernel, parallel loop, copy and
    serial loop of an entry, with the operations and bytes of its products and
    buffers, and `attn.regions` on the module: a name and the model's nodes for each.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::memref::MemRefDialect", "::attn::AttnDialect"];
}

def ApproximateMathPass : Pass<"attn-approximate-math", "mlir::ModuleOp"> {
  let summary = "math functions as polynomials, on scalars and vectors";
  let description = [{
    f32 by polynomials: exp, log, asin and atan within 2 units in the last place, denormal
    numbers included, and so are sin and cos, which reduce their angle in f64 and leave those from
    2^20 on to libm; erf by one without a division (2.7e-7, with `afn` a shorter one, 3.6e-6; a
    quotient by a constant becomes a product before it); others by MLIR's (tanh 3e-7). f16 and
    bf16 through f32; functions without a polynomial as expressions of others; what is left goes
    to libm.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::math::MathDialect",
                           "::mlir::func::FuncDialect", "::mlir::LLVM::LLVMDialect",
                           "::mlir::vector::VectorDialect", "::mlir::scf::SCFDialect"];
}

def ExpandHalfFloatsPass : Pass<"attn-expand-half-floats", "mlir::func::FuncOp"> {
  let summary = "arithmetic on f16 and bf16 in f32";
  let description = [{
    Each op on f16 or bf16 computes in f32 and rounds its result. Conversions
    for which the target has no instruction (bf16 on any, f16 on `portable`) are
    written as integer arithmetic, so that no compiler library is needed.
  }];
  let dependentDialects = ["::attn::AttnDialect", "::mlir::arith::ArithDialect"];
}

def ExpandReshapesPass : Pass<"attn-expand-reshapes", "mlir::func::FuncOp"> {
  let summary = "memref.expand_shape with its given sizes as reinterpret_cast";
  let description = [{
    `expand-strided-metadata` derives the sizes again, ignores `output_shape`
    and crashes on a group with two dynamic dimensions. A view keeps its offset
    and the stride of each group's innermost dimension.
  }];
  let dependentDialects = ["::mlir::memref::MemRefDialect", "::mlir::affine::AffineDialect"];
}

def ExpandViewsPass : Pass<"attn-expand-views", "mlir::func::FuncOp"> {
  let summary = "views of buffers as offsets and strides, affine sums as arithmetic";
  let description = [{
    What `expand-strided-metadata` and `lower-affine` do, without a look at the ops between. Loads, stores and
    prefetches then take addresses, each a chain of steps that the accesses of a block share:

    ```mlir
    %1 = arith.addi %row, %c1 : index
    %2 = memref.load %a[%1, %k] : memref<?x32xf32>
    ```
    becomes, with what the access of another row has, too,
    ```mlir
    %at = llvm.getelementptr %atRow[%k64]
    %next = llvm.getelementptr %at[32]
    %2 = llvm.load %next
    ```
  }];
  let dependentDialects = ["::mlir::memref::MemRefDialect", "::mlir::affine::AffineDialect",
                           "::mlir::arith::ArithDialect", "::mlir::scf::SCFDialect",
                           "::mlir::vector::VectorDialect"];
}

def LowerVectorsPass : Pass<"attn-lower-vectors", "mlir::func::FuncOp"> {
  let summary = "vector ops as those that LLVM has";
  let description = [{
    What `convert-vector-to-scf` does, and `convert-vector-to-llvm` before its conversion, which is
    `convert-to-llvm`'s. Loads, stores and products of one dimension, nearly all of a kernel, are not looked at.
    Arithmetic on floats and on vectors of one dimension, whose types LLVM has, becomes LLVM's right here.
  }];
  let dependentDialects = ["::mlir::vector::VectorDialect", "::mlir::arith::ArithDialect",
                           "::mlir::memref::MemRefDialect", "::mlir::scf::SCFDialect",
                           "::mlir::affine::AffineDialect", "::mlir::tensor::TensorDialect"];
}

def LowerRuntimePass : Pass<"attn-lower-runtime", "mlir::ModuleOp"> {
  let summary = "entries, kernels and tasks get the signatures of the runtime's ABI";
  let description = [{
    After structured control flow is gone. `attn.output`, `workspace`,
    `parallel_for` and `require` become calls through attnrt_run with an early
    return, `check_index` a comparison, `weight` the address at `attn.offset` of its
    global (compiler/package gives each used global its place before), `kernel` a call.
  }];
  let dependentDialects = ["::mlir::LLVM::LLVMDialect", "::mlir::cf::ControlFlowDialect",
                           "::mlir::arith::ArithDialect", "::mlir::func::FuncDialect"];
}

#endif // PASSES_LOWERING_BUFFERS_BUFFERPASSES_TD
