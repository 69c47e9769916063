#ifndef PASSES_GRAPH_STRUCTURED_H
#define PASSES_GRAPH_STRUCTURED_H

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Utils/ReshapeOpsUtils.h"
#include "mlir/IR/Builders.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/SmallVector.h"
#include <optional>

// Short spellings of the linalg ops that the graph passes write.

namespace attn {

using ScalarBody = llvm::function_ref<mlir::Value(mlir::OpBuilder &, mlir::Location, mlir::ValueRange)>;

/// tensor.empty of `sizes`.
mlir::Value emptyTensor(mlir::OpBuilder &b, mlir::Location loc, llvm::ArrayRef<mlir::OpFoldResult> sizes,
                        mlir::Type element);

/// The sizes of `tensor`, as the tensor.empty says them that it is, or that it fills.
llvm::SmallVector<mlir::OpFoldResult> madeSizes(mlir::OpBuilder &b, mlir::Location loc, mlir::Value tensor);

/// A tensor whose elements are all `value`.
mlir::Value filledTensor(mlir::OpBuilder &b, mlir::Location loc, llvm::ArrayRef<mlir::OpFoldResult> sizes,
                         mlir::TypedAttr value);
mlir::Value filledTensor(mlir::OpBuilder &b, mlir::Location loc, llvm::ArrayRef<mlir::OpFoldResult> sizes,
                         mlir::Type element, double value);

/// linalg.generic with parallel loops of `sizes`, an identity map for its
/// result, and one scalar a loop point that `body` computes from the inputs.
mlir::Value elementwise(mlir::OpBuilder &b, mlir::Location loc, llvm::ArrayRef<mlir::OpFoldResult> sizes,
                        mlir::Type element, mlir::ValueRange inputs, llvm::ArrayRef<mlir::AffineMap> maps,
                        ScalarBody body);

/// linalg.generic that reduces `input` over the dimensions not in `kept`,
/// starting from `init`. `body` gets the inputs' elements and the accumulator.
mlir::Value reduction(mlir::OpBuilder &b, mlir::Location loc, mlir::ValueRange inputs,
                      llvm::ArrayRef<mlir::AffineMap> maps, mlir::Value init, mlir::AffineMap initMap, ScalarBody body);

/// A linalg.generic with parallel loops and the body of `from`, which reads `inputs` and writes `init` by `maps`.
mlir::linalg::GenericOp withBodyOf(mlir::OpBuilder &b, mlir::linalg::GenericOp from, mlir::ValueRange inputs,
                                   mlir::Value init, llvm::ArrayRef<mlir::AffineMap> maps);

/// The sum of products of two tensors, in `element`: linalg.contract of their maps and, last, the result's.
mlir::Value contraction(mlir::OpBuilder &b, mlir::Location loc, llvm::ArrayRef<mlir::OpFoldResult> sizes,
                        mlir::Type element, mlir::Value lhs, mlir::Value rhs, llvm::ArrayRef<mlir::AffineMap> maps);

/// The maps of such a product of rows by K x N matrices (N x K when transposed), one for all rows or each for one place
/// of the `numBatch` leading dimensions. Loops: those of the result's `rank` dimensions, then that of the sum.
llvm::SmallVector<mlir::AffineMap, 3> rowProductMaps(mlir::MLIRContext *context, unsigned rank, bool transposed,
                                                     unsigned numBatch = 0);

/// `count` places of `tensor` along dimension `dim`, from `first` on.
mlir::Value sliceAlong(mlir::OpBuilder &b, mlir::Location loc, mlir::Value tensor, int64_t dim,
                       mlir::OpFoldResult first, mlir::OpFoldResult count);
/// One place along `dim`, without that dimension.
mlir::Value placeAlong(mlir::OpBuilder &b, mlir::Location loc, mlir::Value tensor, int64_t dim,
                       mlir::OpFoldResult place);
/// `tensor` with `part` in it from `first` on along `dim`, which a part of one place may lack.
mlir::Value insertAlong(mlir::OpBuilder &b, mlir::Location loc, mlir::Value part, mlir::Value tensor, int64_t dim,
                        mlir::OpFoldResult first);

/// `value` in a type that knows more or fewer of its sizes.
mlir::Value castTo(mlir::OpBuilder &b, mlir::Location loc, mlir::Value value, mlir::Type type);

/// Type in which sums over elements of `element` are taken: f32, or f64 for f64.
mlir::FloatType accumulatorType(mlir::Type element);

/// `tensor` read at `map` of loops of `sizes`: with its dimensions in another order, or repeated.
mlir::Value rearranged(mlir::OpBuilder &b, mlir::Location loc, mlir::Value tensor,
                       llvm::ArrayRef<mlir::OpFoldResult> sizes, mlir::AffineMap map);

/// `value` with each dimension cut into those of its group, of `sizes`; itself where each group is of one.
mlir::Value expanded(mlir::OpBuilder &b, mlir::Location loc, mlir::Value value,
                     llvm::ArrayRef<mlir::ReassociationIndices> groups, llvm::ArrayRef<mlir::OpFoldResult> sizes);

/// A tensor without dimensions of `scalar`, which as an index becomes an i64.
mlir::Value scalarTensor(mlir::OpBuilder &b, mlir::Location loc, mlir::Value scalar);

/// `tensor` with dimension n what was dimension permutation[n].
mlir::Value transposed(mlir::OpBuilder &b, mlir::Location loc, mlir::Value tensor, llvm::ArrayRef<int64_t> permutation);

/// `view` (a reshape, a slice, a cast, or a linalg op that moves elements) of `source`, which may have other elements.
mlir::Value remadeView(mlir::OpBuilder &b, mlir::Operation *view, mlir::Value source);

/// `scalar` as a float of type `to`.
mlir::Value convertFloat(mlir::OpBuilder &b, mlir::Location loc, mlir::Value scalar, mlir::Type to);

/// The value of `body`, computed from `args` in the place of its first arguments.
mlir::Value cloneBody(mlir::OpBuilder &b, mlir::Block &body, mlir::ValueRange args);

/// `tensor` with its floats as ones of type `element`. Its sizes may be given, to spare who asks for them.
mlir::Value convertTensor(mlir::OpBuilder &b, mlir::Location loc, mlir::Value tensor, mlir::Type element,
                          llvm::ArrayRef<mlir::OpFoldResult> sizes = {});

/// A float constant of type `type`.
mlir::Value floatConstant(mlir::OpBuilder &b, mlir::Location loc, mlir::Type type, double value);

/// Whether `op` is a linalg op on tensors with only parallel loops, one init
/// and a result written through a permutation of the loops.
bool isPointwise(mlir::Operation *op);

/// How `input` of an op that writes its result through a permutation is read where the result is read at `at`.
mlir::AffineMap readThrough(mlir::OpOperand &input, mlir::AffineMap at);

/// The one loop over which `op` reduces; none where there are none or several.
std::optional<unsigned> onlyReducedLoop(mlir::linalg::LinalgOp op);

/// The op, if it gives each element of its one input as another float by a `Conversion` (arith.extf, arith.truncf), at
/// the same place, and does nothing else; null for others.
template <typename Conversion> mlir::linalg::GenericOp getConversion(mlir::Operation *op) {
  auto generic = llvm::dyn_cast_or_null<mlir::linalg::GenericOp>(op);
  if (!generic || !isPointwise(generic) || generic.getNumDpsInputs() != 1 ||
      !llvm::all_of(generic.getIndexingMapsArray(), [](mlir::AffineMap map) { return map.isIdentity(); }))
    return nullptr;
  mlir::Block *body = generic.getBody();
  auto conversion = body->getTerminator()->getOperand(0).template getDefiningOp<Conversion>();
  return conversion && conversion.getIn() == body->getArgument(0) ? generic : nullptr;
}

/// The input of an elementwise linalg op that yields just an element of it
/// (linalg.transpose, linalg.broadcast, such a generic), or null.
mlir::OpOperand *getMovedInput(mlir::linalg::LinalgOp op);

/// The tensor of which `op`, a view, only moves elements or gives them another shape; null for other ops.
mlir::Value getViewed(mlir::Operation *op);
bool isView(mlir::Operation *op);

/// Whether `op` is a view or an elementwise op: each of its elements is made of those at one place.
bool isPerElement(mlir::Operation *op);

/// The tensor that `value` is a view of, of views, too; itself where it is none.
mlir::Value stripViews(mlir::Value value);

/// Calls `follows(item, list)` for each item of `list`, nearest first and each once; it appends what to look at further
/// on. Ends where `follows` returns true: whether it did. Whoever walks the graph walks it so.
template <typename Item, typename Follows> bool worklist(llvm::SmallVector<Item> list, Follows follows) {
  llvm::DenseSet<Item> seen;
  for (size_t n = 0; n != list.size(); ++n) {
    Item next = list[n];
    if (seen.insert(next).second && follows(next, list))
      return true;
  }
  return false;
}
using Values = llvm::SmallVector<mlir::Value>;

/// Adds the tensors to `list` of which `op`, a view or an elementwise op, makes another; whether it is one.
bool followTensors(mlir::Operation *op, Values &list);

/// Whether `isSource` takes `value`, or some tensor of which views and elementwise ops make it.
bool isMadeOf(mlir::Value value, llvm::function_ref<bool(mlir::Value)> isSource);

/// Whether `isFound` takes some use of `value`, or of the result of an op that
/// uses it and that `follows` takes.
bool hasUse(mlir::Value value, llvm::function_ref<bool(mlir::OpOperand &)> isFound,
            llvm::function_ref<bool(mlir::Operation *)> follows);

/// Whether `value` depends on `source` in any way. `visited`: values known not to, from one question to the next.
bool isComputedFrom(mlir::Value value, mlir::Value source, llvm::DenseSet<mlir::Value> &visited);
inline bool isComputedFrom(mlir::Value value, mlir::Value source) {
  llvm::DenseSet<mlir::Value> visited;
  return isComputedFrom(value, source, visited);
}

/// The one scalar that every element of `value` (a scalar or a tensor) is, as
/// an attribute, or null.
mlir::TypedAttr splatConstant(mlir::Value value);

/// The float that it is.
std::optional<double> numberOf(mlir::Value value);

/// Whether `op` is a sum of products of two float tensors.
bool isContraction(mlir::Operation *op);

/// Whether every element of `value` is 0.
bool isZeroFill(mlir::Value value);

enum class Combiner { sum, maximum };

/// How `op`, a linalg op that combines the elements of its one input over some
/// loops and starts from the neutral element, combines them. Elements may be
/// widened before.
std::optional<Combiner> getReduction(mlir::Operation *op);

/// The scalar op that computes the element of an elementwise op from elements of its inputs, conversions between float
/// types aside; null for other ops.
mlir::Operation *getScalarOp(mlir::linalg::LinalgOp op);

/// The input of `op` whose element `scalar` is, or null.
mlir::OpOperand *getInput(mlir::linalg::LinalgOp op, mlir::Value scalar);

/// The inputs of `op` of which an elementwise one of `Ops`, conversions aside, computes its element; null for others.
template <typename... Ops> std::pair<mlir::OpOperand *, mlir::OpOperand *> getInputs(mlir::linalg::LinalgOp op) {
  mlir::Operation *scalar = getScalarOp(op);
  if (!llvm::isa_and_nonnull<Ops...>(scalar))
    return {};
  mlir::OpOperand *lhs = getInput(op, scalar->getOperand(0)), *rhs = getInput(op, scalar->getOperand(1));
  return lhs && rhs ? std::pair(lhs, rhs) : std::pair<mlir::OpOperand *, mlir::OpOperand *>();
}

/// The constant by which an elementwise op multiplies its one tensor, f32.
std::optional<double> constantFactor(mlir::linalg::LinalgOp op);

/// `scalar` before conversions between float types.
mlir::Value stripConversions(mlir::Value scalar);

} // namespace attn

#endif // PASSES_GRAPH_STRUCTURED_H
