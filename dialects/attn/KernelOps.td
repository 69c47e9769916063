#ifndef DIALECTS_ATTN_KERNELOPS_TD
#define DIALECTS_ATTN_KERNELOPS_TD

include "dialects/attn/AttnDialect.td"
include "mlir/Dialect/Bufferization/IR/BufferizableOpInterface.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/DestinationStyleOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def Attn_KernelOp : Attn_Op<"kernel", [
    AttrSizedOperandSegments,
    DestinationStyleOpInterface,
    DeclareOpInterfaceMethods<SymbolUserOpInterface>,
    DeclareOpInterfaceMethods<MemoryEffectsOpInterface>,
    DeclareOpInterfaceMethods<BufferizableOpInterface,
      ["bufferizesToMemoryRead", "bufferizesToMemoryWrite",
       "bufferizesToElementwiseAccess", "getAliasingValues", "bufferize"]>]> {
  let summary = "call a kernel: reads ins, overwrites outs";
  let description = [{
    The kernel is a `func.func` with the attribute `attn.kernel` whose
    arguments are the buffers of `ins`, then of `outs` (memrefs with identity
    layout). It never reads an `outs` buffer before writing it, so an init may
    be a bare `tensor.empty`. `elementwise` lists the positions in `ins` that
    the kernel reads at an index before it writes the same index of every
    out, and nowhere else: such an operand may share its buffer with an out.
    On buffers the op is the same without results.

    * (C1) `callee` names a `func.func` with the attribute `attn.kernel` and as
           many arguments as the op has operands;
    * (C2) one result a tensor in `outs`, of its type;
    * (C3) the numbers in `elementwise` are positions in `ins`.

    ```mlir
    %c = attn.kernel @gemm_f32_k384_n384 ins(%a, %w, %r : ...) outs(%e : ...)
        elementwise [2] -> tensor<?x384xf32>
    ```
  }];
  let arguments = (ins FlatSymbolRefAttr:$callee, Variadic<AnyType>:$inputs,
                       Variadic<AnyType>:$inits,
                       DefaultValuedAttr<DenseI64ArrayAttr, "{}">:$elementwise);
  let results = (outs Variadic<AnyRankedTensor>:$outputs);
  let assemblyFormat = [{
    $callee `ins` `(` ($inputs^ `:` type($inputs))? `)` `outs` `(` $inits `:` type($inits) `)`
    (`elementwise` $elementwise^)? attr-dict (`->` type($outputs)^)?
  }];
  let extraClassDeclaration = [{
    ::mlir::MutableOperandRange getDpsInitsMutable() { return getInitsMutable(); }
  }];
  let hasVerifier = 1;
}

#endif // DIALECTS_ATTN_KERNELOPS_TD
