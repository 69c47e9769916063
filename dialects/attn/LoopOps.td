#ifndef DIALECTS_ATTN_LOOPOPS_TD
#define DIALECTS_ATTN_LOOPOPS_TD

include "dialects/attn/AttnDialect.td"
include "mlir/Dialect/Bufferization/IR/BufferizableOpInterface.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

// What loops of a model need beyond scf.

def Attn_GrowOp : Attn_Op<"grow", [AllTypesMatch<["buffer", "result"]>,
    DeclareOpInterfaceMethods<MemoryEffectsOpInterface>,
    DeclareOpInterfaceMethods<BufferizableOpInterface,
      ["bufferizesToMemoryRead", "bufferizesToMemoryWrite", "getAliasingValues", "getBufferType", "bufferize"]>]> {
  let summary = "a buffer with room for more, and the same contents in front";
  let description = [{
    `result` has at least `size` elements in dimension `dim`, and where `buffer`
    has elements, the same. A buffer that is large enough is returned as it is;
    otherwise the result has at least twice its size, so that growing step by
    step copies each element a constant number of times. What a loop gathers is
    carried as such a buffer and its true size.

    Consumes `buffer`: bufferisation takes the result for the same memory, which
    is sound because the old buffer is not read afterwards (a tensor that is gets
    copied before). The result is dense: a part of another buffer is copied.

    * (C1) `dim` is a dynamic dimension of the type.
    * (C2) A buffer in memory is dense.

    ```mlir
    %more = attn.grow %rows to %n dim 0 : tensor<?x20xf32>
    ```
  }];
  let arguments = (ins AnyTypeOf<[AnyRankedTensor, AnyMemRef]>:$buffer, Index:$size, I64Attr:$dim /*C1*/);
  let results = (outs AnyTypeOf<[AnyRankedTensor, AnyMemRef]>:$result);
  let assemblyFormat = "$buffer `to` $size `dim` $dim attr-dict `:` type($result)";
  let hasVerifier = 1;
}

def Attn_PollOp : Attn_Op<"poll", []> {
  let summary = "end the run if it was cancelled, is past its deadline or has failed";
  let description = [{
    Once an iteration of each loop of the model: the runtime looks by itself
    only in parallel regions.

    ```mlir
    attn.poll
    ```
  }];
  let assemblyFormat = "attr-dict";
}

def Attn_IsEndingOp : Attn_Op<"is_ending", []> {
  let summary = "whether the run was cancelled, is past its deadline or has failed";
  let description = [{
    For code that has something to put back before it ends: it leaves its loops. What it computes no longer matters.

    ```mlir
    %ends = attn.is_ending
    ```
  }];
  let results = (outs I1:$ends);
  let assemblyFormat = "attr-dict";
}

#endif // DIALECTS_ATTN_LOOPOPS_TD
