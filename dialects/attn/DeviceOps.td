#ifndef DIALECTS_ATTN_DEVICEOPS_TD
#define DIALECTS_ATTN_DEVICEOPS_TD

include "dialects/attn/AttnDialect.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

// What code on the host asks of the GPU that it launches on.

def Attn_DeviceLimitsOp : Attn_Op<"device_limits", [Pure]> {
  let summary = "multiprocessors of the GPU, and bytes of shared memory that a block may have";
  let description = [{
    `attnrt_device.processors` and `attnrt_device.shared_bytes`: to size a launch whose
    blocks wait for each other (`attn.cooperative`), all of which must be
    resident at once.

    ```mlir
    %processors, %bytes = attn.device_limits : index, index
    ```
  }];
  let results = (outs Index:$processors, Index:$shared_bytes);
  let assemblyFormat = "attr-dict `:` type($processors) `,` type($shared_bytes)";
}

// What an entry with GPU code asks of the runtime beyond launches (attnrt_run in
// runtime/include/attnrt/abi.h). Each may end the run.

def Attn_ProductOp : Attn_Op<"product", [AttrSizedOperandSegments, MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "matrix products by cuBLASLt, where the machine has it";
  let description = [{
    result = activation(scale * left . right + bias + addend) for each of `batch`
    matrices, an `attnrt_product`. All buffers are dense row-major f32 on the
    device, one matrix of a batch behind the other; where `narrow`, both factors hold 16-bit elements of
    `precision`, whatever the type of the buffer, and the others may, by their type: sums are in f32, the result
    is rounded once. With `ask` nothing is made: it tells whether it would be. `activation` is one of
    ATTNRT_ACTIVATION_..., `precision` as in `attnrt_product`. The result is false where the runtime leaves it to the
    entry, which then launches its own kernel.

    * (C1) all buffers are dense and of f32; where `narrow` they may also be of the type that `precision` names.
    * (C2) `narrow` only with the precisions of 16 bits, 2 and 3.
    * (C3) result, bias and addend have one type.

    ```mlir
    %done = attn.product %x, %w, %y bias(%b : memref<384xf32>) sizes(%one, %m, %n, %k)
        {scale = 1.0 : f32, precision = 0 : i32, activation = 1 : i32}
        : memref<?x128xf32>, memref<128x384xf32>, memref<?x384xf32>
    ```
  }];
  let arguments = (ins AnyMemRef:$left, AnyMemRef:$right, AnyMemRef:$result, Optional<AnyMemRef>:$bias,
                       Optional<AnyMemRef>:$addend, Index:$batch, Index:$rows, Index:$columns, Index:$sums,
                       F32Attr:$scale, I32Attr:$precision, I32Attr:$activation, UnitAttr:$left_transposed,
                       UnitAttr:$right_transposed, UnitAttr:$narrow, UnitAttr:$ask);
  let results = (outs I1:$done);
  let assemblyFormat = [{
    $left `,` $right `,` $result (`bias` `(` $bias^ `:` type($bias) `)`)? (`addend` `(` $addend^ `:` type($addend) `)`)?
    `sizes` `(` $batch `,` $rows `,` $columns `,` $sums `)` attr-dict
    `:` type($left) `,` type($right) `,` type($result)
  }];
  let hasVerifier = 1;
}

def Attn_TileMap : Type<VectorOfLengthAndType<[16], [I64]>.predicate, "map of tiles", "::mlir::VectorType">,
                   BuildableType<"::mlir::VectorType::get({16}, $_builder.getI64Type())">;

def Attn_MapTilesOp : Attn_Op<"map_tiles", [Pure]> {
  let summary = "what a launch needs to copy tiles of a tensor at once (sm_90a)";
  let description = [{
    `attnrt_device.map_tiles`, on the host: of a buffer of 16-bit elements in tiles with so many along each dimension. A
    launch takes it as it is, and its kernel asks for the place by `attn.tiles_address`.

    * (C1) the buffer has 2 to 5 dimensions of 16-bit elements, which are neighbours along the last one.
    * (C2) a tile has 1 to 256 elements along each dimension and 64 along the last.

    ```mlir
    %map = attn.map_tiles %w tile [64, 64] : memref<768x3072xbf16>
    ```
  }];
  let arguments = (ins AnyMemRef:$tensor /*C1*/, DenseI64ArrayAttr:$tile /*C2*/);
  let results = (outs Attn_TileMap:$map);
  let assemblyFormat = "$tensor `tile` $tile attr-dict `:` type($tensor)";
  let hasVerifier = 1;
}

def Attn_TilesAddressOp : Attn_Op<"tiles_address", [Pure]> {
  let summary = "where a kernel's parameter from attn.map_tiles lies";
  let description = [{
    A generic address, on the device. The parameter stays where the launch has put it, which bulk copies ask for.

    ```mlir
    %place = attn.tiles_address %map
    ```
  }];
  let arguments = (ins Attn_TileMap:$map);
  let results = (outs I64:$address);
  let assemblyFormat = "$map attr-dict";
}

def Attn_HostWorkspaceOp : Attn_Op<"host_workspace", [MemoryEffects<[MemWrite]>]> {
  let summary = "scratch memory of the host, aligned to 64 bytes";
  let description = [{
    Until the same op is executed again, which gives the same memory where it is large enough, or the run ends.

    ```mlir
    %bytes = attn.host_workspace %size : memref<?xi8>
    ```
  }];
  let arguments = (ins Index:$bytes);
  let results = (outs MemRefRankOf<[I8], [1]>:$result);
  let assemblyFormat = "$bytes attr-dict `:` type($result)";
}

def Attn_DownloadOp : Attn_Op<"download", [MemoryEffects<[MemRead, MemWrite]>, SameTypeOperands]> {
  let summary = "copy a buffer of the device to one of the host";
  let description = [{
    Waits for all that was launched before.

    * (C1) the buffers are dense.

    ```mlir
    attn.download %x to %copy : memref<?x384xf32>
    ```
  }];
  let arguments = (ins AnyMemRef:$from, AnyMemRef:$to);
  let assemblyFormat = "$from `to` $to attr-dict `:` type($from)";
  let hasVerifier = 1;
}

def Attn_UploadOp : Attn_Op<"upload", [MemoryEffects<[MemRead, MemWrite]>, SameTypeOperands]> {
  let summary = "copy a buffer of the host to one of the device";
  let description = [{
    Behind all that was launched before; the host's buffer may change afterwards.

    * (C1) the buffers are dense.

    ```mlir
    attn.upload %copy to %y : memref<?x384xf32>
    ```
  }];
  let arguments = (ins AnyMemRef:$from, AnyMemRef:$to);
  let assemblyFormat = "$from `to` $to attr-dict `:` type($from)";
  let hasVerifier = 1;
}

def Attn_BeginLoopOp : Attn_Op<"begin_loop", []> {
  let summary = "what is launched from here on is the body of a loop of the device";
  let description = [{
    Up to the `attn.end_loop` behind it in the block. Between the two the host
    reads nothing of the device and writes nothing there.

    ```mlir
    attn.begin_loop
    gpu.launch ...
    attn.end_loop %state[3] : memref<4xi64>
    ```
  }];
  let assemblyFormat = "attr-dict";
}

def Attn_EndLoopOp : Attn_Op<"end_loop", []> {
  let summary = "repeat what was launched since attn.begin_loop until a word on the device is 0";
  let description = [{
    The body has run once by then at least; its last launch writes the word.

    * (C1) the buffer is dense and has such a word.
    * (C2) an `attn.begin_loop` stands in front of it, and no other `attn.end_loop` in between. Where branches have become
      blocks that is not verified.

    ```mlir
    attn.end_loop %state[3] : memref<4xi64>
    ```
  }];
  let arguments = (ins MemRefRankOf<[I64], [1]>:$state, I64Attr:$word);
  let assemblyFormat = "$state `[` $word `]` attr-dict `:` type($state)";
  let hasVerifier = 1;
}

#endif // DIALECTS_ATTN_DEVICEOPS_TD
