// Stands in for the compiler room in a build that has none yet: --emit=attn only.
#include "compiler/Compiler.h"
#include "dialects/attn/AttnOps.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/DialectRegistry.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;

void attn::registerCompilerDialects(DialectRegistry &registry) {
  registry.insert<AttnDialect, arith::ArithDialect, func::FuncDialect, linalg::LinalgDialect, math::MathDialect,
                  scf::SCFDialect, tensor::TensorDialect>();
}

LogicalResult attn::compileModule(OwningOpRef<ModuleOp> module, WeightStore &, const CompileOptions &options,
                                  llvm::StringRef outputPath, CompileReport *) {
  if (options.emit != EmitKind::Attn)
    return module->emitError("this build can only --emit=attn");
  std::error_code code;
  llvm::raw_fd_ostream os(outputPath, code);
  if (code)
    return module->emitError("cannot write '") << outputPath << "': " << code.message();
  module->print(os);
  os << '\n';
  return success();
}
