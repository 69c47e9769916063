#ifndef FRONTENDS_ONNX_IMPORTER_H
#define FRONTENDS_ONNX_IMPORTER_H

#include "frontends/onnx/Symbolic.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/Support/LogicalResult.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/StringRef.h"
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

// What an operator's importer sees. One importer function per operator and
// semantic version, grouped by family in frontends/onnx/ops/; it reads its
// inputs and attributes from a Node, emits linalg, tensor, arith, math and attn
// ops, and sets the outputs. An attribute of the wrong kind is reported by the
// Node; the importer function need not look.

namespace attn::onnx {

/// ONNX element types that the importer knows. The IR's types are signless and
/// bool is i8 (0 or 1), so signedness and bool-ness live here.
///
/// The narrow ones (floats of 8 and 4 bits, integers of 4 and 2) are stored one
/// a byte, as the float's bits or the integer's value. They can be moved and
/// converted, and nothing else: isFloat(F8...) is false.
enum class DType {
  F32,
  F64,
  F16,
  BF16,
  I8,
  I16,
  I32,
  I64,
  U8,
  U16,
  U32,
  U64,
  Bool,
  F8E4M3FN,
  F8E4M3FNUZ,
  F8E5M2,
  F8E5M2FNUZ,
  F8E8M0, ///< a power of two, and neither sign nor zero
  F4E2M1,
  I4,
  U4,
  I2,
  U2
};
bool isFloat(DType);
bool isNarrow(DType);
bool isNarrowFloat(DType);
bool isSigned(DType); // floats and signed integers
/// NumPy's name ("float32", "bool").
llvm::StringRef dtypeName(DType);
/// Bytes of an element in a tensor, and bits of one in a file.
int64_t dtypeBytes(DType);
int64_t dtypeBits(DType);
/// TensorProto.DataType's number; nullopt for what the importer does not know.
std::optional<DType> dtypeFromProto(int64_t type);
/// Type of an element in a tensor.
mlir::Type elementType(mlir::MLIRContext *, DType);

/// One element whose value is known at import: a float (a constant, already
/// rounded to the tensor's dtype), or an integer or bool (0, 1) as an
/// expression.
using Scalar = std::variant<double, Expr>;

struct Sequence;
struct Subgraph;

/// An ONNX value during import. Cheap to copy.
struct Tensor {
  DType dtype = DType::F32;
  llvm::SmallVector<Expr, 4> shape; // rank and dimensions are always known

  /// The value is a sequence, and nothing else of this struct means anything.
  std::shared_ptr<const Sequence> sequence;

  /// The elements in row-major order, when they are few (at most
  /// kMaxElements) and each is a constant or an expression: shapes, axes,
  /// scales. Importers of cheap operators compute on them and may leave
  /// `value` empty; `Node::value` materialises it.
  std::optional<llvm::SmallVector<Scalar, 4>> elements;
  static constexpr size_t kMaxElements = 64;

  mlir::Value value;  // ranked tensor, or null (elements are set then): ask Node::value
  std::string weight; // the attn.global that `value` is, or ""

  int64_t rank() const { return shape.size(); }
  /// Its single element, when there is one and it is known.
  std::optional<Scalar> scalar() const;
};

/// An ONNX sequence: what a loop gathered, then single tensors.
struct Sequence {
  DType dtype = DType::F32;
  /// Shape of each tensor of the stack; nullopt while nothing is known to be in it.
  std::optional<llvm::SmallVector<Expr, 4>> element;
  mlir::Value stack; // rows [0, length) of its first dimension; null: there is none
  Expr length;       // of the stack
  std::vector<Tensor> items;
};

/// One node of the graph, its operands and the place its code goes.
class Node {
public:
  //--- what the node is
  llvm::StringRef opType() const;
  /// since_version of the operator in force: the greatest one registered that
  /// is at most the model's opset.
  int version() const;
  mlir::Location loc() const;
  mlir::OpBuilder &builder();
  Symbols &symbols();

  //--- operands
  size_t numInputs() const; // trailing empty ones included
  size_t numOutputs() const;
  bool hasInput(size_t i) const;  // false for "" and beyond the end
  bool hasOutput(size_t i) const; // false when nobody asked for it
  /// The number of dimensions that the model declares for output `i`. It says
  /// how long a shape is whose length is open; the run checks it.
  std::optional<int64_t> declaredRank(size_t i = 0) const;
  const Tensor &input(size_t i) const;
  /// Input `i` as a sequence; null after an error.
  const Sequence *sequence(size_t i) const;
  bool isSequence(size_t i) const;
  /// The tensor value of `t`, materialised when only its elements are known.
  mlir::Value value(const Tensor &t);
  mlir::Value value(size_t i) { return value(input(i)); }
  /// Elements of input `i` when each is a compile-time constant.
  std::optional<llvm::SmallVector<int64_t>> constantInts(size_t i) const;
  std::optional<llvm::SmallVector<double>> constantFloats(size_t i) const;
  /// The elements of `t` as they are stored, row-major, where they stand in the
  /// model; nothing for what is computed, also from a weight.
  std::optional<std::vector<char>> constantBytes(const Tensor &t) const;
  /// The same of a weight, and of what transposes and reshapes make of one; nothing for other tensors.
  std::optional<std::vector<char>> weightBytes(const Tensor &t) const;
  /// Integers of input `i` as expressions: its elements, or, for a rank-0 or
  /// rank-1 tensor of static length, values read from the tensor at run time.
  std::optional<llvm::SmallVector<Expr>> exprs(size_t i);

  //--- attributes
  bool hasAttr(llvm::StringRef name) const;
  int64_t intAttr(llvm::StringRef name, int64_t fallback) const;
  double floatAttr(llvm::StringRef name, double fallback) const;
  std::string stringAttr(llvm::StringRef name, llvm::StringRef fallback) const;
  std::optional<llvm::SmallVector<int64_t>> intsAttr(llvm::StringRef name) const;
  std::optional<llvm::SmallVector<double>> floatsAttr(llvm::StringRef name) const;
  std::optional<llvm::SmallVector<std::string>> stringsAttr(llvm::StringRef name) const;
  /// A tensor attribute (Constant.value, ConstantOfShape.value).
  std::optional<Tensor> tensorAttr(llvm::StringRef name);
  /// A sparse one, made dense (Constant.sparse_value).
  std::optional<Tensor> sparseTensorAttr(llvm::StringRef name);

  //--- results
  void setOutput(size_t i, Tensor t);
  /// A ranked tensor value with its shape.
  void setOutput(size_t i, mlir::Value value, DType dtype, llvm::ArrayRef<Expr> shape);
  void setElements(size_t i, DType dtype, llvm::ArrayRef<Expr> shape, llvm::ArrayRef<Scalar> elements);

  /// Reports "node 'name' (Op): <message>" and returns failure. The message
  /// starts in lower case and names both values of what does not agree.
  mlir::InFlightDiagnostic error();
  /// The same for what is legal ONNX and not implemented (exit status 2).
  mlir::InFlightDiagnostic unsupported();
  /// "node 'name' (Op)", for messages of attn.require and attn.check_index.
  std::string describe() const;

  //--- subgraphs (Subgraph.cpp)
  /// The graph attribute `name`; null after an error.
  const Subgraph *subgraph(llvm::StringRef name);
  /// Opens a branch or a body: an op at the builder's place with one block,
  /// where all is written until leaveRegion. What is assumed in it ends with it.
  mlir::Operation *enterRegion();
  void leaveRegion(mlir::Operation *region);
  /// Imports the nodes of `graph` where the builder stands, with `inputs` as
  /// its inputs; its outputs.
  mlir::FailureOr<std::vector<Tensor>> importSubgraph(const Subgraph &graph, llvm::ArrayRef<Tensor> inputs);
  /// `--max-loop-iterations`.
  int64_t maxLoopIterations() const;

  //--- random numbers (Draws.cpp)
  /// An i64 in which all bits are random. The seed of the run, the node and the iterations of the loops around it
  /// determine it; with `seed`, that in place of the node.
  mlir::Value drawKey(std::optional<uint64_t> seed);
  /// Around what is imported for iteration number `iteration`: it draws numbers of its own.
  void enterIteration(const Expr &iteration);
  void leaveIteration();

  //--- building blocks (Building.cpp), used by every family
  /// Ranked tensor type of dtype and shape, `?` where not constant.
  mlir::RankedTensorType type(DType dtype, llvm::ArrayRef<Expr> shape);
  /// tensor.empty of that type.
  mlir::Value empty(DType dtype, llvm::ArrayRef<Expr> shape);
  mlir::Value constant(DType dtype, double value); // scalar, in a region or outside
  /// Elements equal to `scalar` everywhere.
  mlir::Value filled(DType dtype, llvm::ArrayRef<Expr> shape, mlir::Value scalar);

  /// Normalises an axis attribute (negative counts from the end); error when
  /// it is outside [-rank, rank).
  mlir::FailureOr<int64_t> axis(int64_t axis, int64_t rank);

  /// Shape of the NumPy broadcast of `shapes`. Sizes that cannot be decided at
  /// import become attn.require; sizes that differ are an error.
  mlir::FailureOr<llvm::SmallVector<Expr>> broadcast(llvm::ArrayRef<llvm::ArrayRef<Expr>> shapes);

  /// Two sizes, neither of them 1 at import, that are one dimension of a result:
  /// where just one of them is 1 in a run, the run says that the model is to be
  /// compiled for that; otherwise as requireEqual.
  mlir::LogicalResult requireBroadcast(const Expr &a, const Expr &b, llvm::StringRef message);
  /// The one dimension that such two are: `a` after requireBroadcast, and in the
  /// form for runs in which one of them is 1, the other one.
  mlir::FailureOr<Expr> joinSizes(const Expr &a, const Expr &b, llvm::StringRef message);
  /// `own` is `size`, or in that form 1, and what has it is to be stretched.
  mlir::LogicalResult requireStretches(const Expr &own, const Expr &size, llvm::StringRef message);
  /// `t` under `shape`, of its rank: in that form repeated where a size that is
  /// not 1 at import is 1 in the run.
  Tensor stretch(const Tensor &t, llvm::ArrayRef<Expr> shape);

  /// The run ends with "node 'name' (Op): <message>" unless a == b, in the
  /// message {0} is a and {1} is b. Nothing is emitted where equality is proved
  /// or was required before; an error where it is disproved.
  mlir::LogicalResult requireEqual(const Expr &a, const Expr &b, llvm::StringRef message);
  /// The same for a <= b, and for a != b.
  mlir::LogicalResult requireDifferent(const Expr &a, const Expr &b, llvm::StringRef message);
  mlir::LogicalResult requireAtMost(const Expr &a, const Expr &b, llvm::StringRef message);

  /// The same for any condition (an i1), and for an `a` ({0}) that is computed
  /// from what the run reads: it did not leave 64 bits.
  void require(mlir::Value condition, llvm::StringRef message, bool unsupported = false);
  /// The same for a condition that is 1 where it holds; {0} and so on are `sizes`.
  void require(const Expr &condition, llvm::StringRef message, llvm::ArrayRef<Expr> sizes);
  mlir::LogicalResult requireFits(const Expr &a, llvm::StringRef message);

  /// Each size is in [0, kMaxSize] and the bytes are at most kMaxTensorBytes:
  /// an error, or a requirement where sizes are read in the run. setOutput,
  /// empty and slice call it.
  mlir::LogicalResult requireShape(DType dtype, llvm::ArrayRef<Expr> shape);

  /// The elementwise operator applied at import: nullopt unless every operand's
  /// elements are known, the result has at most kMaxElements, and `fn` answers
  /// for each of them. Operands are broadcast to `shape` as elementwise() does;
  /// `fn` gets one scalar an operand. Results are rounded to `result`; an
  /// integer constant that does not fit it means nullopt. So an importer says
  ///
  ///     if (auto folded = node.foldElementwise(dtype, shape, {a, b}, fn))
  ///       return node.setOutput(0, *folded), success();
  std::optional<Tensor> foldElementwise(DType result, llvm::ArrayRef<Expr> shape, llvm::ArrayRef<Tensor> operands,
                                        llvm::function_ref<std::optional<Scalar>(llvm::ArrayRef<Scalar>)> fn);

  /// One linalg.generic over `shape`; operands are broadcast to it: unit
  /// dimensions are collapsed away and left out of the indexing map. `body`
  /// gets one scalar per operand in the operand's element type (a Bool operand
  /// arrives as i1, and a Bool result is yielded as i1) and returns the result.
  /// An operand with one known element is a scalar, not an input.
  using ElementwiseBody = llvm::function_ref<mlir::Value(mlir::OpBuilder &, mlir::Location, mlir::ValueRange)>;
  mlir::Value elementwise(DType result, llvm::ArrayRef<Expr> shape, llvm::ArrayRef<Tensor> operands,
                          ElementwiseBody body);

  /// One linalg.generic without inputs: `body` gets the index of the element in
  /// each dimension and returns it as it is stored (Bool is i8).
  mlir::Value generate(DType result, llvm::ArrayRef<Expr> shape, ElementwiseBody body);
  /// `size` rows of one dimension: offset, offset + stride, ... (stride may be
  /// negative). Bounds have been checked. A weight stays a weight where it can.
  Tensor slice(const Tensor &t, int64_t dim, const Expr &offset, const Expr &size, int64_t stride = 1);

  /// A view of `t` under another shape of the same number of elements:
  /// collapse_shape and expand_shape where the expressions prove which
  /// dimensions merge or split, tensor.reshape with a run-time check otherwise.
  mlir::FailureOr<Tensor> reshape(const Tensor &t, llvm::ArrayRef<Expr> shape);
  /// Dimensions permuted: result dim n is source dim permutation[n]. A weight
  /// stays a weight (#attn.transpose).
  Tensor transpose(const Tensor &t, llvm::ArrayRef<int64_t> permutation);
  /// linalg.contract with the given maps over an iteration space; operands'
  /// sizes have been checked. Accumulates in f32 for f16 and bf16.
  mlir::Value contract(DType result, llvm::ArrayRef<Expr> shape, const Tensor &a, const Tensor &b,
                       llvm::ArrayRef<mlir::AffineMap> maps);
  /// Converts elements: ONNX Cast between any two known dtypes.
  Tensor cast(const Tensor &t, DType to);
  /// A scalar's conversion inside a region; Bool is i1 on either side. Folds
  /// on constants.
  static mlir::Value castScalar(mlir::OpBuilder &b, mlir::Location loc, mlir::Value value, DType from, DType to);
  /// `t` under the broadcast `shape` (ONNX Expand): itself when equal.
  Tensor expand(const Tensor &t, llvm::ArrayRef<Expr> shape);
  /// A tensor whose bytes are known: a dense constant, or a weight above
  /// kMaxInlineBytes. `bytes` are row-major, little endian, Bool 0 or 1.
  Tensor constantTensor(DType dtype, llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<char> bytes);
  /// A tensor of one number, of which `bytes` are all elements, as it is computed; nothing where they are several.
  std::optional<Tensor> uniformTensor(DType dtype, llvm::ArrayRef<Expr> shape, llvm::ArrayRef<char> bytes);

  struct Impl;
  explicit Node(Impl &impl) : impl(impl) {}

private:
  Impl &impl;
};

using ImportFn = mlir::LogicalResult (*)(Node &);

/// Operator name and since_version to importer function, of one domain.
class OpRegistry {
public:
  /// Registers `fn` for each since_version in `versions` whose semantics it
  /// implements, e.g. add("Softmax", {13}, importSoftmax13). Every since_version
  /// from opset 7 on is registered, or a later one would silently be taken for
  /// an earlier one (a test compares with the schemas of the onnx package).
  void add(llvm::StringRef op, llvm::ArrayRef<int> versions, ImportFn fn, llvm::StringRef domain = "");
  /// The importer in force at `opset`, or null; `version` gets its since_version.
  ImportFn lookup(llvm::StringRef domain, llvm::StringRef op, int opset, int &version) const;

  /// (domain, operator) -> since_version -> importer.
  using Table = std::map<std::pair<std::string, std::string>, std::map<int, ImportFn>>;
  const Table &entries() const { return table; }

private:
  Table table;
};

/// Every family below.
void registerAllOps(OpRegistry &);

// The families, one file each in frontends/onnx/ops/.
void registerElementwiseOps(OpRegistry &);   // Elementwise.cpp: unary, binary, compare, Where, Cast
void registerMatMulOps(OpRegistry &);        // MatMul.cpp: MatMul, Gemm, Einsum, Conv
void registerReductionOps(OpRegistry &);     // Reduction.cpp: Reduce*, ArgMax, CumSum
void registerNormalizationOps(OpRegistry &); // Normalization.cpp: Softmax, LogSoftmax, LayerNormalization ...
void registerAttentionOps(OpRegistry &);     // Attention.cpp: Attention-23/24
void registerShapeOps(OpRegistry &);         // Shape.cpp: Shape, Reshape, Squeeze, Flatten, Expand, Constant ...
void registerDataMovementOps(OpRegistry &);  // DataMovement.cpp: Transpose, Concat, Split, Slice, Pad, Tile ...
void registerIndexingOps(OpRegistry &);      // Indexing.cpp: Gather*, Range, Trilu, OneHot ...
void registerRecurrentOps(OpRegistry &);     // Recurrent.cpp: RNN, GRU, LSTM
void registerControlFlowOps(OpRegistry &);   // ControlFlow.cpp: If, Loop, Scan
void registerSequenceOps(OpRegistry &);      // Sequence.cpp: Sequence*, ConcatFromSequence, SplitToSequence

} // namespace attn::onnx

#endif // FRONTENDS_ONNX_IMPORTER_H
