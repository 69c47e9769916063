#ifndef PASSES_GRAPH_PIPELINE_H
#define PASSES_GRAPH_PIPELINE_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/StringRef.h"
#include <memory>
#include <string>
#include <vector>

namespace mlir {
class OpPassManager;
class Pass;
} // namespace mlir

namespace attn {

class WeightStore;

struct GraphOptions {
  /// Masks by finite constants stay arithmetic (attn-prove-masks), and so do those behind a softmax that is then
  /// divided by what is left of it (attn-raise-softmax).
  bool exactMasks = false;
  /// Where constant masks are looked up that are not in the IR (attn-raise-tables, attn-list-blocks), and weights that
  /// are added to scores (attn-prove-masks).
  const WeightStore *weights = nullptr;
  /// Whether kernels go by lists of blocks of keys, and of the edges of each node.
  bool listsBlocks = true;
  /// Whether arithmetic on f16 and bf16 is done in f32 (attn-widen-halves); GPUs multiply such numbers as they are.
  bool widensHalves = true;
  /// Whether loops write whole rows (attn-write-slices), each by a loop of its own.
  bool copiesRows = true;
  /// Nodes of attentions whose weights become outputs ("all": each), and as what (attn-expose-attention).
  std::vector<std::string> exposedNodes, exposedAs;
};

/// The most weights that `top-k:K` shows per query.
constexpr int64_t kMaxExposedTopK = 1 << 20;
/// Whether attn-expose-attention can show weights as `word`: "weights", "head-mean", "top-k:5", ...
bool isExposure(llvm::StringRef word);

std::unique_ptr<mlir::Pass> createRaiseSoftmaxPass(bool exact);
std::unique_ptr<mlir::Pass> createRecognizeAttentionPass(bool listsEdges);
std::unique_ptr<mlir::Pass> createRaiseTablesPass(const WeightStore *weights, bool keepsTables);
std::unique_ptr<mlir::Pass> createComputePositionsPass(const WeightStore *weights);
std::unique_ptr<mlir::Pass> createMarkPlacesPass(const WeightStore *weights);
std::unique_ptr<mlir::Pass> createRaiseBandsPass(const WeightStore *weights);
std::unique_ptr<mlir::Pass> createWriteSlicesPass(const WeightStore *weights, bool copiesRows);
std::unique_ptr<mlir::Pass> createProveMasksPass(bool exact, const WeightStore *weights);
std::unique_ptr<mlir::Pass> createRaiseProductsPass(const WeightStore *weights);
std::unique_ptr<mlir::Pass> createListBlocksPass(const WeightStore *weights);
std::unique_ptr<mlir::Pass> createExposeAttentionPass(llvm::ArrayRef<std::string> nodes,
                                                      llvm::ArrayRef<std::string> as);

/// Adds the passes that bring an imported module into the canonical form of
/// passes/graph/README.md, in order. At `optLevel` 0 only what correctness
/// needs: nothing is recognised, and every softmax, layer_norm and attention is
/// decomposed. At 1 and above these ops remain; lowering gives them kernels and
/// runs attn-decompose on the ones it has none for. A pass for whose argument
/// ("attn-fold-layout") `wants` is false is left out.
void buildGraphPipeline(mlir::OpPassManager &pm, unsigned optLevel,
                        llvm::function_ref<bool(llvm::StringRef)> wants = nullptr, const GraphOptions &options = {});

} // namespace attn

#endif // PASSES_GRAPH_PIPELINE_H
