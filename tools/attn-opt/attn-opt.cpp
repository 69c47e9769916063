// Runs passes over textual IR, replays reproducers, and evaluates IR in double
// precision. For developers and tests; users want attnc.
#include "dialects/attn/AttnOps.h"
#include "passes/Passes.h"
#include "tools/interpret/InterpretCommand.h"

#include "mlir/InitAllDialects.h"
#include "mlir/InitAllExtensions.h"
#include "mlir/InitAllPasses.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"

int main(int argc, char **argv) {
  mlir::DialectRegistry registry;
  mlir::registerAllDialects(registry);
  mlir::registerAllExtensions(registry);
  mlir::registerAllPasses();
  registry.insert<attn::AttnDialect>();
  attn::registerAttnPasses();
  for (int n = 1; n < argc; ++n)
    if (llvm::StringRef(argv[n]) == "--attn-interpret")
      return attn::interpret::interpretMain(argc, argv, registry);
  return mlir::asMainReturnCode(mlir::MlirOptMain(argc, argv, "attnc pass driver\n", registry));
}
