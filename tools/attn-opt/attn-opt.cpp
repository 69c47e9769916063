// Runs passes over textual IR, and replays reproducers. For developers and
// tests; users want attnc.
#include "dialects/attn/AttnOps.h"
#include "passes/Passes.h"

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
  return mlir::asMainReturnCode(mlir::MlirOptMain(argc, argv, "attnc pass driver\n", registry));
}
