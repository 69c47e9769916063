#ifndef FRONTENDS_ONNX_LOOPIMPORT_H
#define FRONTENDS_ONNX_LOOPIMPORT_H

#include "frontends/onnx/Importer.h"
#include <functional>

// Loop and Scan as scf.for or scf.while on tensors.
//
// The shapes of what a loop carries are found by trying: at first each has the
// shape that it has before the loop; what the body makes otherwise is carried
// more freely at the next try. So a body is imported a few times, and sizes
// that do not change keep their names and constants.

namespace attn::onnx {

/// Rows that a buffer of unknown length has room for at first.
inline constexpr int64_t kFirstRows = 16;

/// One value that a loop carries from an iteration to the next.
struct Carried {
  enum Mode {
    Fixed,  // a tensor of one shape
    Append, // grows at the end of dimension `dim`: a buffer with room, and its length
    Flat,   // any sizes in the dimensions `varies`: a flat buffer with room, and these sizes
    Stack   // a sequence: a buffer of rows, and their number
  };
  Tensor init;
  Mode mode = Fixed;
  int64_t dim = 0;
  llvm::SmallVector<bool> varies;
  std::optional<llvm::SmallVector<Expr, 4>> element; // Stack: the shape of its rows, once it is known

  // Of the try at hand.
  Tensor inside;                           // what the body sees
  llvm::SmallVector<mlir::Value, 2> inits; // of the loop's arguments
  llvm::SmallVector<mlir::BlockArgument, 2> arguments;
  llvm::SmallVector<mlir::Value, 2> yielded;
};

/// One output that gathers a value an iteration.
struct Gathered {
  int64_t axis = 0;        // in the output
  bool isReversed = false; // the first iteration's value comes last
  DType dtype = DType::F32;
  llvm::SmallVector<Expr> shape; // of the output; in `axis` the number of iterations
  mlir::Value yielded;

  /// Of the dimensions of a value, those whose size only the body knows. Where there is one, the values lie one behind
  /// the other in a flat buffer, and the loop carries these sizes, too.
  llvm::SmallVector<bool> varies;
  llvm::SmallVector<mlir::Value> sizes; // of the iteration's value

  bool isFlat() const { return llvm::is_contained(varies, true); }
};

/// A Scan's input, of which each iteration sees a slice.
struct Scanned {
  Tensor tensor;
  int64_t axis = 0;
  bool isReversed = false;
};

class LoopImport {
public:
  /// Imports the body where the builder stands: inputs to outputs.
  using Body = std::function<mlir::FailureOr<std::vector<Tensor>>(llvm::ArrayRef<Tensor>)>;
  LoopImport(Node &node, Body body) : node(node), body(std::move(body)) {}
  LoopImport(Node &node, const Subgraph &graph)
      : LoopImport(node, [&](llvm::ArrayRef<Tensor> inputs) { return node.importSubgraph(graph, inputs); }) {}

  /// How often the loop runs, if nothing ends it before; nullopt: no bound.
  std::optional<Expr> trips;
  /// Loop: whether it starts (0 or 1). The body has the iteration and the
  /// condition as inputs in front, and a condition as output.
  std::optional<Expr> condition;
  std::vector<Carried> carried;
  std::vector<Scanned> scanned;
  std::vector<Gathered> gathered;

  /// Imports the body until all fits. What was carried, then what was gathered.
  mlir::FailureOr<std::vector<Tensor>> run();

private:
  mlir::LogicalResult attempt(bool &fits);
  bool canUnroll(const Carried &sequence) const;
  mlir::LogicalResult requireFewTrips();
  mlir::FailureOr<std::vector<Tensor>> unroll();
  mlir::LogicalResult leaveBody(llvm::MutableArrayRef<Tensor> outputs, bool &fits);
  // LoopCarried.cpp
  mlir::LogicalResult prepare(Carried &value);
  mlir::LogicalResult enter(Carried &value);
  mlir::LogicalResult fit(Carried &value, Tensor &out, bool &fits);
  mlir::LogicalResult fitSequence(Carried &value, const Tensor &out, bool &fits);
  mlir::LogicalResult leave(Carried &value, Tensor &out, llvm::MutableArrayRef<Tensor> outputs);
  void leaveAppend(Carried &value, Tensor &out, llvm::MutableArrayRef<Tensor> outputs);
  void leaveSequence(Carried &value, const Sequence &out);
  // LoopImport.cpp
  mlir::LogicalResult gather(Gathered &output, const Tensor &out);
  mlir::LogicalResult gatherFlat(Gathered &output, const Tensor &out);
  mlir::LogicalResult readCondition(const Tensor &out);
  Tensor slice(const Scanned &input);
  void initGathered(const Gathered &output, llvm::SmallVectorImpl<mlir::Value> &inits,
                    llvm::SmallVectorImpl<mlir::Value> &yielded);
  mlir::FailureOr<Tensor> unflatten(const Gathered &output, mlir::ValueRange results);
  mlir::LogicalResult requireRows();
  mlir::ValueRange makeFor();
  mlir::ValueRange makeWhile();
  mlir::FailureOr<std::vector<Tensor>> outputsOf(mlir::ValueRange results);

  Node &node;
  Body body;
  mlir::Operation *region = nullptr;
  mlir::Block *block = nullptr;
  Expr iteration;
  bool isEndKnown = false; // the body of an attempt says that the loop goes on, whatever the run brings
  bool unrolls = false;    // tensors of unlike sizes are appended to a sequence: the body once an iteration
  bool counts = false;     // scf.for: nothing but the number of trips ends it
  mlir::Value goesOn;      // the condition that the body makes, i1
  Expr ran;                // after the loop: iterations there were
};

//===----------------------------------------------------------------------===//
// Buffers with room (LoopBuffers.cpp)
//===----------------------------------------------------------------------===//

llvm::SmallVector<mlir::OpFoldResult> sizesOf(Node &node, llvm::ArrayRef<Expr> shape);
mlir::Value castTo(Node &node, mlir::Value value, mlir::Type type);
/// The type of a buffer whose dimension `dim` has room.
mlir::RankedTensorType bufferType(Node &node, DType dtype, llvm::ArrayRef<Expr> shape, int64_t dim);
/// `tensor` (of `shape`) as such a buffer.
mlir::Value toBuffer(Node &node, mlir::Value tensor, DType dtype, llvm::ArrayRef<Expr> shape, int64_t dim);
/// `rows` (of `element`) into `buffer` behind `length` rows, with more room
/// where it is needed.
mlir::Value appendRows(Node &node, mlir::Value buffer, const Expr &length, llvm::ArrayRef<Tensor> rows,
                       llvm::ArrayRef<Expr> element);
/// The elements of `buffer` below `shape` in every dimension.
Tensor frontOf(Node &node, mlir::Value buffer, DType dtype, llvm::ArrayRef<Expr> shape);

//===----------------------------------------------------------------------===//
// Sequences (ops/Sequence.cpp)
//===----------------------------------------------------------------------===//

/// Rows [0, length) of a sequence's stack and its items as one tensor with a
/// new dimension 0; nullopt after an error.
std::optional<Tensor> stackSequence(Node &node, const Sequence &sequence);

} // namespace attn::onnx

#endif // FRONTENDS_ONNX_LOOPIMPORT_H
