#ifndef DIALECTS_ATTN_RUNTIMEOPS_TD
#define DIALECTS_ATTN_RUNTIMEOPS_TD

include "dialects/attn/AttnDialect.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

// What an entry on buffers asks of the runtime that runs it (attnrt_run in
// runtime/include/attnrt/abi.h). Each may end the run: where the runtime says
// no, the function returns at once.

def Attn_OutputOp : Attn_Op<"output", [MemoryEffects<[MemWrite]>]> {
  let summary = "the buffer of one result of the entry";
  let description = [{
    Called once an output, as soon as its sizes are known.

    * (C1) one size a dynamic dimension of the result;
    * (C2) the result has the identity layout;
    * (C3) `index` is not negative.

    ```mlir
    %y = attn.output 0 (%batch) : memref<?x384xf32>
    ```
  }];
  let arguments = (ins I32Attr:$index /*C3*/, Variadic<Index>:$sizes /*C1*/);
  let results = (outs AnyMemRef:$result /*C2*/);
  let assemblyFormat = "$index `(` $sizes `)` attr-dict `:` type($result)";
  let hasVerifier = 1;
}

def Attn_WorkspaceOp : Attn_Op<"workspace", [MemoryEffects<[MemWrite]>]> {
  let summary = "scratch memory until the run ends, aligned to 64 bytes";
  let description = [{
    ```mlir
    %arena = attn.workspace %bytes : memref<?xi8>
    ```
  }];
  let arguments = (ins Index:$bytes);
  let results = (outs MemRefRankOf<[I8], [1]>:$result);
  let assemblyFormat = "$bytes attr-dict `:` type($result)";
}

def Attn_ParallelForOp : Attn_Op<"parallel_for", [DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "call a task for pieces of [0, n) on the runtime's threads";
  let description = [{
    The task is a `func.func` with the attribute `attn.task`, whose arguments
    are the first and the past-the-end iteration of its piece and then the
    captures. Fewer than `min_iterations` iterations run on the calling thread.

    * (C1) `task` names such a function, and its arguments match.

    ```mlir
    attn.parallel_for @rows %n captures(%x, %y : memref<?x384xf32>, memref<?x384xf32>) min_iterations 2
    ```
  }];
  let arguments = (ins FlatSymbolRefAttr:$task /*C1*/, Index:$iterations, Variadic<AnyType>:$captures,
                       I64Attr:$min_iterations);
  let assemblyFormat = [{
    $task $iterations `captures` `(` ($captures^ `:` type($captures))? `)` `min_iterations` $min_iterations attr-dict
  }];
}

def Attn_MarkOp : Attn_Op<"mark"> {
  let summary = "tell the runtime that a region of the entry is done";
  let description = [{
    What ran since the mark before (or since the entry began) is the region
    `region` of the module's `attn.regions`. `flops` and `bytes` are what it did
    in this run, as far as the compiler can tell; 0: unknown.

    ```mlir
    attn.mark 3 flops(%f) bytes(%b)
    ```
  }];
  let arguments = (ins I32Attr:$region, Index:$flops, Index:$bytes);
  let assemblyFormat = "$region `flops` `(` $flops `)` `bytes` `(` $bytes `)` attr-dict";
}

def Attn_NumThreadsOp : Attn_Op<"num_threads", [Pure]> {
  let summary = "threads that serve parallel loops";
  let description = [{
    At most so many pieces are made of a parallel loop, the first ones an
    iteration longer where they differ. For hints alone: results must not
    depend on it.

    ```mlir
    %n = attn.num_threads : index
    ```
  }];
  let results = (outs Index:$result);
  let assemblyFormat = "attr-dict `:` type($result)";
}

def Attn_ExactArchOp : Attn_Op<"exact_arch", [Pure]> {
  let summary = "the architecture that the GPU code in use is for alone, or 0";
  let description = [{
    `attnrt_device.exact_arch`: 90 for an image of sm_90a. On the host; which of two
    ways of launches to go. Kernels marked `attn.only_exact` with that number
    have a body in its images alone.

    ```mlir
    %arch = attn.exact_arch : index
    ```
  }];
  let results = (outs Index:$result);
  let assemblyFormat = "attr-dict `:` type($result)";
}

def Attn_HasTilesOp : Attn_Op<"has_tiles", [Pure]> {
  let summary = "whether this run may multiply tiles (AMX)";
  let description = [{
    `attnrt_run.has_tiles`: the processor has the tiles of the target, of bf16 and
    of bytes, and the operating system lets the process use them.

    ```mlir
    %yes = attn.has_tiles : i1
    ```
  }];
  let results = (outs I1:$result);
  let assemblyFormat = "attr-dict `:` type($result)";
}

def Attn_DeviceErrorOp : Attn_Op<"device_error", [Pure]> {
  let summary = "where kernels on a GPU note that an index is out of range";
  let description = [{
    `attnrt_device.error`, the words of an `attnrt_device_error`.

    ```mlir
    %error = attn.device_error : memref<4xi64>
    ```
  }];
  let results = (outs MemRefRankOf<[I64], [1]>:$result);
  let assemblyFormat = "attr-dict `:` type($result)";
}

def Attn_FetchOp : Attn_Op<"fetch", [MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "one element of a buffer on the GPU, for the host";
  let description = [{
    Waits for all that was launched before.

    * (C1) as many indices as dimensions, and the element type as the result.

    ```mlir
    %n = attn.fetch %lengths[%i] : memref<?xi64> -> i64
    ```
  }];
  let arguments = (ins AnyMemRef:$buffer, Variadic<Index>:$indices /*C1*/);
  let results = (outs AnyType:$result /*C1*/);
  let assemblyFormat = "$buffer `[` $indices `]` attr-dict `:` type($buffer) `->` type($result)";
  let hasVerifier = 1;
}

#endif // DIALECTS_ATTN_RUNTIMEOPS_TD
