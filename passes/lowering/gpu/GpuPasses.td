#ifndef PASSES_LOWERING_GPU_GPUPASSES_TD
#define PASSES_LOWERING_GPU_GPUPASSES_TD

include "mlir/Pass/PassBase.td"

// From buffers to launches of kernels, in the order of the pipeline.

/// Of the passes that choose kernels.
defvar gpuKernelOptions = [
  Option<"precision", "precision", "std::string", "\"f32\"",
         "what operands of products are rounded to, for matrix units, where a kernel has such a form: f32, tf32, bf16 or "
         "f16">,
  Option<"sm90a", "sm90a", "std::string", "\"none\"",
         "kernels for images of sm_90a alone: none, also (beside the others) or only (in their place)">
];

def LowerGpuSearchPass : Pass<"attn-lower-gpu-search", "mlir::ModuleOp"> {
  let summary = "attn-lower-search with kernels that are launches";
  let description = [{
    The loop is that of `attn-lower-search`. The kernels of rows have a block of threads for each row, the others a
    thread for each item, and what lives on is moved by blocks. Nobody hears of a token before the end.
  }];
  let options = searchOptions;
  let dependentDialects = ["::mlir::gpu::GPUDialect", "::mlir::scf::SCFDialect", "::mlir::arith::ArithDialect",
                           "::mlir::memref::MemRefDialect", "::mlir::math::MathDialect", "::mlir::vector::VectorDialect",
                           "::mlir::tensor::TensorDialect", "::mlir::linalg::LinalgDialect",
                           "::mlir::NVVM::NVVMDialect", "::mlir::func::FuncDialect", "::attn::AttnDialect"];
}

def NarrowGpuCachesPass : Pass<"attn-narrow-gpu-caches", "::mlir::ModuleOp"> {
  let summary = "caches of keys and values become bytes, each row with a scale, on a GPU";
  let description = [{
    What `attn-narrow-caches` makes of a cache, in the same bytes. Attentions may be of f32, f16 or bf16;
    attn-choose-gpu-rows gives those of up to four queries a kernel that reads the bytes, and has the bytes written out
    in front of others. With `e4m3` what a search carries has codes of that type.

    Numerical effect: a key or value differs by at most 1/254 of the greatest in its row, in e4m3 by 1/16 of itself, or
    by 1/130,048 of the greatest where that is more.
  }];
  let options = [Option<"isFloat8", "e4m3", "bool", "false", "codes are numbers of e4m3">];
  let dependentDialects = ["::mlir::gpu::GPUDialect", "::mlir::scf::SCFDialect", "::mlir::arith::ArithDialect",
                           "::mlir::memref::MemRefDialect", "::mlir::math::MathDialect", "::mlir::vector::VectorDialect",
                           "::mlir::tensor::TensorDialect", "::mlir::linalg::LinalgDialect",
                           "::mlir::NVVM::NVVMDialect", "::mlir::func::FuncDialect", "::attn::AttnDialect"];
}

def StoreFloat8Pass : Pass<"attn-store-float8", "mlir::ModuleOp"> {
  let summary = "weights of products become numbers of e4m3 with a scale for each column";
  let description = [{
    The weight of a contraction, a matrix of f32, f16 or bf16, becomes one of
    f8E4M3FN, N x K, by which the contraction multiplies. The scale of each column,
    its greatest |w| over 127 as in int8, comes behind the sum, in the elementwise
    op that alone reads it, if there is one. A contraction with another weight stays,
    and the module's `attn.product_report` says why.

    Numerical effect: a weight differs by at most 1/16 of itself, or by 2^-17 of the
    greatest of its column where that is more.

    ```mlir
    %c = linalg.contract indexing_maps = [(s, n, k) -> (s, k), (s, n, k) -> (k, n), (s, n, k) -> (s, n)]
        ins(%x, %w : tensor<?x80xf32>, tensor<80x60xf32>) outs(%zeros : tensor<?x60xf32>)
    // becomes
    attn.global @w_t : tensor<60x80xf32> = #attn.transpose<@w, [1, 0]>
    attn.global @w_t_e4m3 : tensor<60x80xf8E4M3FN> = #attn.block_codes<@w_t, transposed = true, block = 80, bits = 8>
    %p = linalg.contract indexing_maps = [(s, n, k) -> (s, k), (s, n, k) -> (n, k), (s, n, k) -> (s, n)]
        ins(%x, %codes : tensor<?x80xf32>, tensor<60x80xf8E4M3FN>) outs(%zeros : tensor<?x60xf32>)
    %c = linalg.generic ins(%p, %scales : tensor<?x60xf32>, tensor<60x1xf32>) { mulf } -> tensor<?x60xf32>
    ```
  }];
  let dependentDialects = ["::attn::AttnDialect", "::mlir::arith::ArithDialect", "::mlir::linalg::LinalgDialect",
                           "::mlir::tensor::TensorDialect"];
}

def ChooseGpuRowsPass : Pass<"attn-choose-gpu-rows", "mlir::ModuleOp"> {
  let summary = "attention, softmax and layer normalisation become kernels for a GPU";
  let description = [{
    On f32, f16 and bf16. Attention of any normaliser runs in flash form. A
    softmax along the last dimension and a layer normalisation take a warp or a
    block of threads per row. All steps of a recurrent layer (f32 alone) are one
    launch. A product with a matrix stored in blocks reads its codes; one with a
    weight in e4m3, whose columns have a scale each, becomes a contraction with its
    bytes (f8E4M3FN), and the scale comes behind the sum. `attn.integer_product` multiplies bytes, with the
    elementwise op behind it. Under precision `int8` products by weights become such ones, as by
    attn-round-rows. Both extremes of a tensor are one kernel, and so is the greatest |x| of rows. `attn.narrow_rows`
    has a kernel, and an attention of up to four queries reads `attn.widen_rows` of caches as the bytes. Sums are f32, and a
    16-bit result is rounded once. The rest stays, to be decomposed; a remark says why.
  }];
  let options = gpuKernelOptions;
  let dependentDialects = ["::mlir::gpu::GPUDialect", "::mlir::scf::SCFDialect", "::mlir::arith::ArithDialect",
                           "::mlir::memref::MemRefDialect", "::mlir::math::MathDialect", "::mlir::vector::VectorDialect",
                           "::mlir::tensor::TensorDialect", "::mlir::NVVM::NVVMDialect",
                           "::mlir::func::FuncDialect", "::mlir::LLVM::LLVMDialect", "::attn::AttnDialect"];
}

def ChooseGpuGemmsPass : Pass<"attn-choose-gpu-gemms", "mlir::ModuleOp"> {
  let summary = "contractions become kernels for a GPU, with the elementwise op that follows";
  let description = [{
    Each contraction of f32, f16 and bf16 becomes an `attn.kernel` on its operands
    as they lie, with tiles or, for up to eight rows or columns, with lines. It
    takes in the elementwise op that alone uses it. A remark says why another one
    stays.
  }];
  let options = gpuKernelOptions;
  let dependentDialects = ["::mlir::gpu::GPUDialect", "::mlir::scf::SCFDialect", "::mlir::arith::ArithDialect",
                           "::mlir::memref::MemRefDialect", "::mlir::math::MathDialect", "::mlir::vector::VectorDialect",
                           "::mlir::tensor::TensorDialect", "::mlir::NVVM::NVVMDialect",
                           "::mlir::func::FuncDialect", "::mlir::LLVM::LLVMDialect", "::attn::AttnDialect"];
}

def MoveToHostPass : Pass<"attn-move-to-host", "mlir::ModuleOp"> {
  let summary = "what has no kernel on the GPU is an error, or runs on the CPU";
  let description = [{
    A linalg op of an entry that has no kernel (a function of f64 without code; a
    result that depends on a reduced dimension) is reported with its node. With
    `allow` it becomes a kernel of the CPU, `attn.on_host`, on copies:

    ```mlir
    linalg.generic {...} ins(%x : memref<?xf64>) outs(%y : memref<?xf64>) { math.sin }
    ```
    becomes
    ```mlir
    %copy = attn.host_workspace ...; attn.download %x to %copy; ...
    attn.kernel @on_host ins(%copy) outs(%made) {attn.on_host = "node 'wave' (Sin)"}
    attn.upload %made to %y
    ```
  }];
  let options = [Option<"allow", "allow", "bool", "false", "run on the CPU what has no kernel, on copies of its buffers">];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::func::FuncDialect", "::mlir::memref::MemRefDialect",
                           "::attn::AttnDialect"];
}

def LaunchLinalgPass : Pass<"attn-launch-linalg", "mlir::ModuleOp"> {
  let summary = "linalg on buffers becomes kernels on the GPU";
  let description = [{
    Each linalg op of an entry becomes a `gpu.launch` with a thread for each point
    of its parallel loops, which runs the reduction loops with the sums in
    registers. `attn.kernel` is replaced by the body of its kernel, which has its
    own `gpu.launch`; where cuBLASLt makes the same product, that is tried first
    (`attn.product`). `attn.check_index` in a kernel writes to `attn.device_error`.

    ```mlir
    linalg.generic {...} ins(%x : memref<?xf32>) outs(%y : memref<?xf32>) { ... }
    ```
    becomes
    ```mlir
    gpu.launch blocks(...) = (ceildiv(n, 128), 1, 1) threads(...) = (128, 1, 1) {
      %i = block * 128 + thread
      scf.if %i < n { load, compute, store }
    }
    ```
  }];
  let dependentDialects = ["::mlir::gpu::GPUDialect", "::mlir::scf::SCFDialect", "::mlir::arith::ArithDialect",
                           "::mlir::affine::AffineDialect", "::mlir::memref::MemRefDialect",
                           "::mlir::vector::VectorDialect", "::mlir::LLVM::LLVMDialect", "::attn::AttnDialect"];
}

def SeparateHostPass : Pass<"attn-separate-host", "mlir::ModuleOp"> {
  let summary = "what the host reads of the device is fetched, what it writes is launched";
  let description = [{
    In an entry outside of launches a load becomes `attn.fetch` and a store a
    launch of one thread. An op that would touch memory of the device in another
    way cannot run: all of them are reported, with their nodes.
  }];
  let dependentDialects = ["::mlir::gpu::GPUDialect", "::mlir::arith::ArithDialect", "::attn::AttnDialect"];
}

def MoveLoopsPass : Pass<"attn-move-loops", "mlir::ModuleOp"> {
  let summary = "loops whose condition is computed on the device go on there without the host";
  let description = [{
    An `scf.while` that fetches, and whose steps are otherwise launches of one size,
    makes many steps at once. What it carries lies in words on the device: kernels
    that use them (or what follows from them, such as a view of row %i) read the
    words, a fetch becomes a copy to one, and a last launch of one thread computes
    the next ones and whether the loop goes on.

    ```mlir
    scf.while (%i = %c0, %more = %true) { scf.condition(%more) %i } do {
    ^bb0(%i: index):
      launches with %i; %word = attn.fetch %ended[]; scf.yield (%i + 1), (%word == 0)
    ```
    becomes
    ```mlir
    scf.while (%i = %c0, %more = %true) { scf.condition(%more) %i } do {
    ^bb0(%i: index):
      launch { store %i to %state[0]; store %most to %state[1] }
      attn.begin_loop
      launches with load %state[0]; launch { store %ended[] to %state[2] }
      launch { %state[0] + 1; store condition and --%state[1] > 0 to %state[3] }
      attn.end_loop %state[3]
      attn.download %state to %host; scf.yield (load %host[0]), ...
    ```
    Buffers that grow are given room for as many steps as there were, 16 at least,
    before; so the host is asked as often as their number has digits. So is memory
    whose size grows with the step, and a launch has as many blocks as the last of
    the steps wants, of which a step uses its own number. A limit on iterations, and
    what holds in each step if it does in the first, is looked at on the host for
    all these steps at once; any other requirement in each step: where it does not
    hold, its values go to words, the rest of the step does nothing, and the host
    ends the run. An index out of range (`attn.device_error`) ends the loop, too. A remark says which op kept a loop that fetches on the host. In
    such a loop no product goes to cuBLASLt.
  }];
  let dependentDialects = ["::mlir::gpu::GPUDialect", "::mlir::scf::SCFDialect", "::mlir::arith::ArithDialect",
                           "::mlir::memref::MemRefDialect", "::attn::AttnDialect"];
}

def OutlineLaunchesPass : Pass<"attn-outline-launches", "mlir::ModuleOp"> {
  let summary = "launches become kernels of one gpu.module";
  let description = [{
    What a kernel uses becomes its arguments; constants, tables of constants and
    views move in. Kernels that are equal but for their names are one.
    `attn.gpu_kernels` lists the names.
  }];
  let dependentDialects = ["::mlir::gpu::GPUDialect", "::mlir::memref::MemRefDialect"];
}

def ExpandDoublesPass : Pass<"attn-expand-doubles", "mlir::ModuleOp"> {
  let summary = "functions of f64 as arithmetic";
  let description = [{
    A GPU has no instructions for exponentials, logarithms, angles, erf and powers of
    f64, and what a CUDA toolkit has in their place is not here. Within three units in the
    last place, for arguments of any size; scalars alone. Sine, cosine, tangent and powers of narrower
    types, and of vectors, are computed in f64, too: angles are reduced there, and a power is as exact as its
    logarithm is.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::math::MathDialect", "::mlir::scf::SCFDialect",
                           "::mlir::vector::VectorDialect"];
}

def LowerKernelsPass : Pass<"attn-lower-kernels", "mlir::gpu::GPUModuleOp"> {
  let summary = "the kernels of a gpu.module to the LLVM and NVVM dialects";
  let description = [{
    Upstream's patterns of `convert-gpu-to-nvvm`, but for functions that LLVM
    knows (floor, sqrt, fma, minimum...): their pass makes calls of libdevice of
    them, a library that only a CUDA toolkit has. Constant numbers of threads
    become .maxntid, which tells ptxas how many registers there are.
  }];
  let dependentDialects = ["::mlir::LLVM::LLVMDialect", "::mlir::NVVM::NVVMDialect"];
}

#endif // PASSES_LOWERING_GPU_GPUPASSES_TD
