#ifndef DIALECTS_ATTN_ATTNDIALECT_TD
#define DIALECTS_ATTN_ATTNDIALECT_TD

include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"
include "mlir/IR/OpBase.td"

def Attn_Dialect : Dialect {
  let name = "attn";
  let cppNamespace = "::attn";
  let summary = "attention on whole tensors, before any choice of machine";
  let useDefaultAttributePrinterParser = 1;
  let extraClassDeclaration = [{
    /// On a func.func: a function that the library offers to its caller.
    static constexpr ::llvm::StringLiteral kEntryAttr = "attn.entry";
    /// On an argument or result of an entry: its name in the model (string).
    static constexpr ::llvm::StringLiteral kNameAttr = "attn.name";
    /// On an argument or result of an entry: ONNX element type as NumPy spells
    /// it ("float32", "int64", "bool", "uint8", ...). The tensor type in the
    /// IR is signless, and bool is stored as i8 holding 0 or 1.
    static constexpr ::llvm::StringLiteral kDTypeAttr = "attn.dtype";
    /// On an argument or result of an entry: array of strings, one a
    /// dimension; "" where the dimension has no name.
    static constexpr ::llvm::StringLiteral kDimsAttr = "attn.dims";
    /// On a func.func: a kernel, called by attn.kernel.
    static constexpr ::llvm::StringLiteral kKernelAttr = "attn.kernel";
    /// On a func.func: a piece of a parallel loop, called by attn.parallel_for.
    static constexpr ::llvm::StringLiteral kTaskAttr = "attn.task";
    /// On an entry on buffers: one dictionary an input (output), with the
    /// entries name, dtype, dims and shape (-1: known when the model runs).
    static constexpr ::llvm::StringLiteral kInputsAttr = "attn.inputs";
    static constexpr ::llvm::StringLiteral kOutputsAttr = "attn.outputs";
    /// On an attn.global: its place in the library's weights, in bytes.
    static constexpr ::llvm::StringLiteral kOffsetAttr = "attn.offset";
    /// On the lowered module: the texts that a run may end with.
    static constexpr ::llvm::StringLiteral kMessagesAttr = "attn.messages";
    /// On a kernel that is a matrix product (A, B, ..., C), whatever its epilogue.
    static constexpr ::llvm::StringLiteral kProductAttr = "attn.product";
    /// On an attn.kernel: floating-point operations of its products, where the
    /// compile knows them: a number, then the input and the dimension of each
    /// size by which it is multiplied.
    static constexpr ::llvm::StringLiteral kFlopsAttr = "attn.flops";
    /// On the module: what its attn.mark ops count, an array of dictionaries
    /// with the keys name, entry (strings) and nodes (array of strings).
    static constexpr ::llvm::StringLiteral kRegionsAttr = "attn.regions";
    /// On the module: the names of its GPU kernels, by their numbers.
    static constexpr ::llvm::StringLiteral kGpuKernelsAttr = "attn.gpu_kernels";
    /// On a launch and its kernel: the exact architecture whose images alone have its body.
    static constexpr ::llvm::StringLiteral kOnlyExactAttr = "attn.only_exact";
    /// On an scf.parallel: fewer iterations are not worth a second thread.
    static constexpr ::llvm::StringLiteral kMinIterationsAttr = "attn.min_iterations";
    /// On the module: the #attn.target that lowering and kernels read.
    static constexpr ::llvm::StringLiteral kTargetAttr = "attn.target";
    /// On the module: the verdict on each softmax, an array of dictionaries
    /// with the keys node, reason_node, kind, mask, reason (strings) and fused (bool).
    static constexpr ::llvm::StringLiteral kFusionReportAttr = "attn.fusion_report";
    /// On the module: how each product of quantised operands is computed, an array of dictionaries with the keys
    /// node, storage, arithmetic, kernel or reason (strings).
    static constexpr ::llvm::StringLiteral kProductReportAttr = "attn.product_report";
  }];
}

class Attn_Op<string mnemonic, list<Trait> traits = []>
    : Op<Attn_Dialect, mnemonic, traits>;

class Attn_Attr<string name, string attrMnemonic, list<Trait> traits = []>
    : AttrDef<Attn_Dialect, name, traits> {
  let mnemonic = attrMnemonic;
}

//===----------------------------------------------------------------------===//
// Target
//===----------------------------------------------------------------------===//

def Attn_TargetAttr : Attn_Attr<"Target", "target"> {
  let summary = "machine facts that lowering and kernels may use";
  let description = [{
    `triple`, `cpu` and `features` are LLVM's names. `isa` is the step of the
    kernel ladder: `portable`, `avx2` or `avx512`. `l1` and `l2` are the data
    cache sizes of one core in bytes. `dividesFast`: a register of f32 is divided
    as fast as by an estimate of the reciprocal and a step of Newton's (AMD: 16
    lanes in 5 cycles on Zen 5, in 13 on Intel's Golden Cove). A compile reads the machine only through
    this attribute, so it is reproducible and cross-compiles.

    ```mlir
    module attributes {attn.target = #attn.target<triple = "x86_64-unknown-linux-gnu",
        cpu = "x86-64-v4", features = "-prefer-256-bit", isa = "avx512", l1 = 49152, l2 = 1048576>}
    ```
  }];
  let parameters = (ins StringRefParameter<"LLVM target triple">:$triple,
                        StringRefParameter<"LLVM CPU name">:$cpu,
                        StringRefParameter<"LLVM feature string">:$features,
                        StringRefParameter<"portable, avx2 or avx512">:$isa,
                        "int64_t":$l1, "int64_t":$l2, DefaultValuedParameter<"bool", "false">:$dividesFast);
  let assemblyFormat = "`<` struct(params) `>`";
  let extraClassDeclaration = [{
    /// Lanes of one f32 vector register: 16, 8 or 4.
    int64_t getF32Lanes() const {
      return getIsa() == "avx512" ? 16 : getIsa() == "avx2" ? 8 : 4;
    }
    /// The attribute of the module around `op`, or the portable target.
    static ::attn::TargetAttr lookup(::mlir::Operation *op);
  }];
}

#endif // DIALECTS_ATTN_ATTNDIALECT_TD
