#ifndef FRONTENDS_ONNX_STATE_H
#define FRONTENDS_ONNX_STATE_H

#include "dialects/attn/AttnOps.h"
#include "dialects/attn/WeightStore.h"
#include "frontends/onnx/Graph.h"
#include "frontends/onnx/Payload.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/StringMap.h"

namespace attn::onnx {

/// What one import builds.
class ImportState {
public:
  ImportState(Reporter &reporter, mlir::ModuleOp module, mlir::func::FuncOp entry, WeightStore &weights);

  Reporter &reporter;
  mlir::ModuleOp module;
  mlir::func::FuncOp entry;
  mlir::OpBuilder builder; // at the end of the entry's block
  Symbols symbols;
  ExternalFiles files;
  uint64_t denseBytes = 0;                          // of sparse tensors, once dense
  std::vector<std::optional<Tensor>> values;        // by number in Graph::values
  llvm::DenseMap<int, std::string> unusable;        // why a value without a tensor has none
  llvm::DenseSet<int> absent;                       // optional inputs without a value
  std::map<std::pair<void *, int64_t>, Expr> reads; // element of a tensor read as an index
  uint64_t foldedBytes = 0;
  size_t importedNodes = 0; // a loop's body counts each time it is tried
  int64_t maxLoopIterations = 0;

  /// Sizes of which only the run knows whether one is 1: in the form for such
  /// runs both are looked at and joined, each join once; elsewhere they are taken
  /// to be equal, and `otherwise` names that form ("": there is none).
  bool broadcastsInRun = false;
  std::string otherwise;
  struct Join {
    Expr size;
    llvm::SmallVector<Expr, 2> parts;
  };
  std::vector<Join> joins;
  std::set<std::string> sharedDims; ///< names of sizes of several inputs

  /// mix(seed of the run), i64: an argument of the entry that setSeed replaces by an input. Null: nothing draws.
  mlir::Value seed;
  llvm::SmallVector<Expr> iterations; // of the loops around what is imported, outermost first
  /// Gives the entry the optional input for the seed, where an op that is left draws (Draws.cpp).
  void setSeed();

  /// Imports nodes in order, at the builder's insertion point. False after a
  /// diagnostic.
  bool importNodes(llvm::ArrayRef<GraphNode> nodes);
  bool importNode(const GraphNode &node, mlir::Location loc);
  /// Whether a node that has `value` as an input has this input.
  bool isGiven(int value) const { return value != GraphNode::kNone && !absent.contains(value); }
  llvm::ArrayRef<std::string> names;  // of the values
  llvm::DenseMap<int, int64_t> ranks; // of values, where the model declares it

  /// A branch or the body of a loop under construction: an op at the end of the
  /// block at hand whose one block the builder and the symbols move into.
  mlir::Operation *enterRegion(mlir::Location loc);
  /// Back to where `region` stands. What is to be used later has left it.
  void leaveRegion(mlir::Operation *region);

  /// A constant: elements when few, a dense constant up to kMaxInlineBytes,
  /// otherwise a weight of that name.
  Tensor constant(llvm::StringRef name, const Payload &payload, mlir::Location loc);
  /// The weight that `expression` (of `source`) is; equal expressions are one.
  Tensor derive(const Tensor &source, mlir::Attribute expression, llvm::ArrayRef<int64_t> shape, mlir::Location loc);
  mlir::Value denseConstant(DType dtype, llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<char> bytes, mlir::Location loc);
  /// The tensor value of what has only elements.
  mlir::Value materialize(const Tensor &t, mlir::Location loc);

  /// Drops operations and weights that nothing uses.
  void sweep();
  /// Drops the entry and what only it used.
  void abandon();

private:
  void sweepGlobals();
  bool checkInputs(const GraphNode &node, mlir::Location loc);
  mlir::Value weightValue(llvm::StringRef symbol, mlir::RankedTensorType type, mlir::Location loc);
  std::string uniqueSymbol(llvm::StringRef base);

  llvm::StringMap<mlir::Value> weightValues;          // one attn.weight a symbol
  std::vector<std::pair<void *, int64_t>> innerReads; // those made in regions, in order
  llvm::SmallVector<size_t> readsBefore;              // one a region
  llvm::DenseMap<std::pair<mlir::Attribute, mlir::Type>, std::string> derived;
  friend class Node;
  llvm::StringMap<unsigned> symbolCounts;
  WeightStore &weights;
};

/// One of two forms of an entry may draw alone: both then have the input.
void shareSeed(mlir::func::FuncOp entry, mlir::func::FuncOp form);

struct Node::Impl {
  ImportState &state;
  const GraphNode &node;
  mlir::Location loc;
  llvm::SmallVector<std::optional<Tensor>, 2> outputs;
  bool failed = false; // an error was reported by an accessor that cannot fail
};

} // namespace attn::onnx

#endif // FRONTENDS_ONNX_STATE_H
