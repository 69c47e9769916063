#ifndef DIALECTS_ATTN_DEVICEOPS_TD
#define DIALECTS_ATTN_DEVICEOPS_TD

include "dialects/attn/AttnDialect.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

// What code on the host asks of the GPU that it launches on.

def Attn_DeviceLimitsOp : Attn_Op<"device_limits", [Pure]> {
  let summary = "multiprocessors of the GPU, and bytes of shared memory that a block may have";
  let description = [{
    `attnrt_run.processors` and `attnrt_run.shared_bytes`: to size a launch whose
    blocks wait for each other (`attn.cooperative`), all of which must be
    resident at once.

    ```mlir
    %processors, %bytes = attn.device_limits : index, index
    ```
  }];
  let results = (outs Index:$processors, Index:$shared_bytes);
  let assemblyFormat = "attr-dict `:` type($processors) `,` type($shared_bytes)";
}

#endif // DIALECTS_ATTN_DEVICEOPS_TD
