#ifndef DIALECTS_ATTN_CACHEOPS_TD
#define DIALECTS_ATTN_CACHEOPS_TD

include "dialects/attn/AttnDialect.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

// Caches of keys and values that grow from run to run.

def Attn_KvAppendOp
    : Attn_Op<"kv_append", [Pure, DeclareOpInterfaceMethods<ReifyRankedShapedTypeOpInterface, ["reifyResultShapes"]>]> {
  let summary = "a cache and new rows behind it";
  let description = [{
    `result` is `cache` followed by `rows` along dimension `dim`. With `state`,
    the entry's state of that number (`attn.states`) holds `cache` and takes
    `result`: its memory has room behind the cache, the rows are written there
    and nothing is copied. Without, the op is a concatenation.

    * (C1) `dim` is a dimension of the cache;
    * (C2) cache, rows and result have one rank and element type;
    * (C3) their sizes are equal but for `dim`, where the result's is the sum of the others;
    * (C4) `state` is not negative, and dimension `dim` of a cache with a state is dynamic.

    ```mlir
    %present = attn.kv_append %key to %past dim 2 state 0
        : tensor<?x12x1x64xf32>, tensor<?x12x?x64xf32> -> tensor<?x12x?x64xf32>
    ```
  }];
  let arguments = (ins AnyRankedTensor:$rows, AnyRankedTensor:$cache, I64Attr:$dim /*C1*/,
      OptionalAttr<I32Attr>:$state /*C4*/);
  let results = (outs AnyRankedTensor:$result /*C2, C3*/);
  let assemblyFormat = [{
    $rows `to` $cache `dim` $dim (`state` $state^)? attr-dict `:` type($rows) `,` type($cache) `->` type($result)
  }];
  let hasVerifier = 1;
}

def Attn_KvOpenOp
    : Attn_Op<"kv_open", [Pure, AllTypesMatch<["cache", "result"]> /*C1*/,
        DeclareOpInterfaceMethods<ReifyRankedShapedTypeOpInterface, ["reifyResultShapes"]>]> {
  let summary = "a cache of fixed size, to be written where it lies";
  let description = [{
    `result` is `cache`, an input of the entry, which the entry's state of that
    number (`attn.states`) holds. What the entry returns for the state is written
    over `result`, so nothing is copied but the rows that change.

    * (C1) the result has the type of the cache;
    * (C2) `state` is not negative.

    ```mlir
    %cache = attn.kv_open %past state 0 : tensor<?x12x1024x64xf32>
    ```
  }];
  let arguments = (ins AnyRankedTensor:$cache, I32Attr:$state /*C2*/);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$cache `state` $state attr-dict `:` type($cache)";
  let hasVerifier = 1;
}

def Attn_CacheOp : Attn_Op<"cache", [MemoryEffects<[MemWrite]>]> {
  let summary = "the memory of a state of the entry, with room for what the run appends";
  let description = [{
    Called once a state, as soon as the sizes after the run are known. The
    result has at least the size that `sizes` say in dimension `dim` and exactly
    it in all others; in front is what the state held before the run. Without
    `dim` it is just what the state held.

    * (C1) one size a dynamic dimension of the result;
    * (C2) the result has the identity layout;
    * (C3) `state` is not negative;
    * (C4) `dim`, if given, is a dynamic dimension of the result.

    ```mlir
    %room = attn.cache 0 dim 2 (%batch, %total) : memref<?x12x?x64xf32>
    ```
  }];
  let arguments = (ins I32Attr:$state /*C3*/, OptionalAttr<I64Attr>:$dim /*C4*/, Variadic<Index>:$sizes /*C1*/);
  let results = (outs AnyMemRef:$result /*C2*/);
  let assemblyFormat = "$state (`dim` $dim^)? `(` $sizes `)` attr-dict `:` type($result)";
  let hasVerifier = 1;
}

#endif // DIALECTS_ATTN_CACHEOPS_TD
