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

def Attn_NarrowRowsOp
    : Attn_Op<"narrow_rows", [Pure,
        DeclareOpInterfaceMethods<ReifyRankedShapedTypeOpInterface, ["reifyResultShapes"]>]> {
  let summary = "rows of a cache as bytes, each row with a scale";
  let description = [{
    A row is what lies along the last dimension: D numbers x of `rows`, D + 4
    bytes of `result`. Those are codes c, and behind them the bytes of their scale s, an f32, the lowest first:

        top = max |x|,  s = top / 127,  c = round to even (x * (127 / top))

    so that c * s differs from x by no more than top / 254, and a rounding. Where `result` is of f8E4M3FN, c is the
    nearest number of e4m3, ties to even, and c * s differs from x by x / 16 at most, or by s / 1024 where that is more; a
    byte of the scale is then an element, too. A row with nothing of 2^-100 or more is
    one of zeros; in one with an infinity or a NaN no number is finite afterwards.

    * (C1) `rows` are of f32, f16 or bf16, `result` is of i8 or f8E4M3FN;
    * (C2) the last dimension is static, and that of `result` 4 longer; all others are the same.

    ```mlir
    %bytes = attn.narrow_rows %key : tensor<?x12x1x64xf32> -> tensor<?x12x1x68xi8>
    ```
  }];
  let arguments = (ins AnyRankedTensor:$rows /*C1*/);
  let results = (outs AnyRankedTensor:$result /*C1, C2*/);
  let assemblyFormat = "$rows attr-dict `:` type($rows) `->` type($result)";
  let hasVerifier = 1;
}

def Attn_WidenRowsOp
    : Attn_Op<"widen_rows", [Pure,
        DeclareOpInterfaceMethods<ReifyRankedShapedTypeOpInterface, ["reifyResultShapes"]>]> {
  let summary = "the numbers that rows of bytes stand for";
  let description = [{
    What attn.narrow_rows has made of rows: each code times its row's scale, in
    f32 and rounded to what `result` has. An attention that reads it has a kernel
    that reads the bytes, and rounds nothing.

    * (C1) `bytes` are of i8 or f8E4M3FN, `result` is of f32, f16 or bf16;
    * (C2) the last dimension is static, and that of `bytes` 4 longer; all others are the same.

    ```mlir
    %keys = attn.widen_rows %cache : tensor<?x12x?x68xi8> -> tensor<?x12x?x64xf32>
    ```
  }];
  let arguments = (ins AnyRankedTensor:$bytes /*C1*/);
  let results = (outs AnyRankedTensor:$result /*C1, C2*/);
  let assemblyFormat = "$bytes attr-dict `:` type($bytes) `->` type($result)";
  let hasVerifier = 1;
}

#endif // DIALECTS_ATTN_CACHEOPS_TD
