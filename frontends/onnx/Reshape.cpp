#include "frontends/onnx/Limits.h"
#include "frontends/onnx/State.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace attn;
using namespace attn::onnx;

static std::optional<SmallVector<int64_t>> constants(ArrayRef<Expr> shape) {
  SmallVector<int64_t> result;
  for (const Expr &size : shape) {
    if (!size.constant())
      return std::nullopt;
    result.push_back(*size.constant());
  }
  return result;
}

namespace {
/// Source dimensions [sourceBegin, sourceEnd) hold the same elements as result
/// dimensions [resultBegin, resultEnd).
struct Group {
  size_t sourceBegin, sourceEnd, resultBegin, resultEnd;
};
} // namespace

/// The finest groups that the expressions prove: cuts where the products of the
/// leading dimensions are equal. What is left behind the last cut joins the
/// last group (trailing ones, or dimensions that only a run can compare).
/// Neither shape is empty, and no group is.
static SmallVector<Group> groups(Symbols &symbols, ArrayRef<Expr> source, ArrayRef<Expr> result) {
  SmallVector<Group> found;
  size_t sourceBegin = 0, resultBegin = 0;
  Expr sourceProduct(1), resultProduct(1);
  for (size_t r = 0; r < result.size(); ++r) {
    resultProduct = resultProduct * result[r];
    Expr ahead = sourceProduct;
    for (size_t s = sourceBegin; s < source.size(); ++s) {
      ahead = ahead * source[s];
      if (symbols.isEqual(ahead, resultProduct) != true)
        continue;
      found.push_back({sourceBegin, s + 1, resultBegin, r + 1});
      sourceBegin = s + 1;
      resultBegin = r + 1;
      sourceProduct = ahead;
      break;
    }
  }
  if (found.empty())
    return {{0, source.size(), 0, result.size()}};
  found.back().sourceEnd = source.size();
  found.back().resultEnd = result.size();
  return found;
}

static ReassociationIndices range(size_t begin, size_t end) {
  return llvm::to_vector<2>(llvm::seq<int64_t>(begin, end));
}

/// The size of merged dimensions: known when each is.
static int64_t merged(ArrayRef<Expr> sizes) {
  Expr size = product(sizes);
  return llvm::all_of(sizes, [](const Expr &e) { return e.constant(); }) ? *size.constant() : ShapedType::kDynamic;
}

static Value castTo(OpBuilder &b, Location loc, Value value, ArrayRef<int64_t> sizes) {
  auto type = RankedTensorType::get(sizes, cast<RankedTensorType>(value.getType()).getElementType());
  return value.getType() == type ? value : Value(tensor::CastOp::create(b, loc, type, value));
}

/// Collapses each group to one dimension, then expands it. Sizes are required
/// to agree; types say what is known on either side.
static Value reshapeValue(Node &node, Value value, ArrayRef<Expr> source, ArrayRef<Expr> result) {
  OpBuilder &b = node.builder();
  Location loc = node.loc();
  SmallVector<int64_t> ones(std::max(source.size(), result.size()), 1);
  SmallVector<ReassociationIndices> none;
  if (result.empty())
    return tensor::CollapseShapeOp::create(b, loc, castTo(b, loc, value, ones), none);
  if (source.empty()) {
    SmallVector<OpFoldResult> sizes(result.size(), b.getIndexAttr(1));
    auto type = cast<RankedTensorType>(value.getType()).clone(ones);
    return tensor::ExpandShapeOp::create(b, loc, type, value, none, sizes);
  }
  SmallVector<ReassociationIndices> collapse, expand;
  SmallVector<int64_t> middle;
  for (const Group &group : groups(node.symbols(), source, result)) {
    collapse.push_back(range(group.sourceBegin, group.sourceEnd));
    expand.push_back(range(group.resultBegin, group.resultEnd));
    middle.push_back(merged(result.slice(group.resultBegin, group.resultEnd - group.resultBegin)));
  }
  if (collapse.size() != source.size())
    value = tensor::CollapseShapeOp::create(b, loc, value, collapse);
  value = castTo(b, loc, value, middle);
  if (expand.size() == result.size())
    return value;
  SmallVector<OpFoldResult> sizes;
  SmallVector<int64_t> known;
  for (const Expr &size : result) {
    sizes.push_back(node.symbols().size(b, loc, size));
    known.push_back(size.constant().value_or(ShapedType::kDynamic));
  }
  auto type = cast<RankedTensorType>(value.getType()).clone(known);
  return tensor::ExpandShapeOp::create(b, loc, type, value, expand, sizes);
}

/// The run compares products of sizes, some of which it reads: one that leaves
/// 64 bits must not pass for another that fits.
static void requireElements(Node &node, ArrayRef<Expr> shape) {
  OpBuilder &b = node.builder();
  Location loc = node.loc();
  Value elements = arith::ConstantOp::create(b, loc, b.getF64FloatAttr(1));
  SmallVector<Value> sizes;
  for (const Expr &size : shape) {
    sizes.push_back(node.symbols().materialize(b, loc, size));
    Value number = arith::IndexCastOp::create(b, loc, b.getI64Type(), sizes.back());
    number = arith::SIToFPOp::create(b, loc, b.getF64Type(), number);
    elements = arith::MulFOp::create(b, loc, elements, number);
  }
  Value limit = arith::ConstantOp::create(b, loc, b.getF64FloatAttr(0x1p62));
  Value fits = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OLT, elements, limit);
  std::string message = node.describe() + ": the number of elements of shape ";
  for (size_t n = 0; n < shape.size(); ++n)
    message += (n ? "x{" : "{") + std::to_string(n) + "}";
  RequireOp::create(b, loc, fits, message + " is beyond 64 bits", sizes);
}

FailureOr<Tensor> Node::reshape(const Tensor &t, ArrayRef<Expr> shape) {
  if (ArrayRef<Expr>(t.shape) == shape)
    return t;
  if (shape.size() > kMaxRank)
    return error() << "a shape of " << shape.size() << " dimensions, the limit is " << kMaxRank, failure();
  Expr have = product(t.shape), want = product(shape);
  if (have.overflowed() || want.overflowed()) {
    // Perhaps only too long a polynomial: sums become atoms.
    have = Expr(1), want = Expr(1);
    for (const Expr &size : t.shape)
      have = have * symbols().alias(builder(), impl.loc, size);
    for (const Expr &size : shape)
      want = want * symbols().alias(builder(), impl.loc, size);
  }
  if (have.overflowed() || want.overflowed())
    return error() << "the number of elements is beyond 64 bits", failure();
  if (!symbols().isEqual(have, want))
    requireElements(*this, shape);
  // Multiples of one product are equal where both are 0 alone. A view would be of sizes that contradict each other.
  bool isEmpty = symbols().isEqual(have, Expr(0)).value_or(false) ||
                 (!symbols().isEqual(have, want).value_or(false) && have.getTerms().size() == 1 &&
                  want.getTerms().size() == 1 && have.getTerms().begin()->first == want.getTerms().begin()->first);
  if (failed(requireEqual(have, want, "cannot reshape {0} elements into {1}")))
    return failure();

  OpBuilder &b = builder();
  Location loc = impl.loc;
  Tensor result;
  result.dtype = t.dtype;
  result.shape.assign(shape.begin(), shape.end());
  std::optional<SmallVector<int64_t>> sizes = constants(shape);
  if (t.elements && sizes) {
    result.elements = t.elements;
    return result;
  }
  if (!t.weight.empty() && sizes)
    return impl.state.derive(t, ReshapeAttr::get(b.getContext(), FlatSymbolRefAttr::get(b.getContext(), t.weight)),
                             *sizes, loc);
  if (isEmpty) { // no elements: nothing to group by
    result.value = empty(t.dtype, shape);
    return result;
  }

  result.value = reshapeValue(*this, value(t), t.shape, shape);
  return result;
}

//===----------------------------------------------------------------------===//
// Transpose
//===----------------------------------------------------------------------===//

Tensor Node::transpose(const Tensor &t, ArrayRef<int64_t> permutation) {
  OpBuilder &b = builder();
  Tensor result;
  result.dtype = t.dtype;
  for (int64_t dim : permutation)
    result.shape.push_back(t.shape[dim]);
  if (llvm::is_sorted(permutation))
    return t;
  if (t.elements) {
    SmallVector<int64_t> sizes = *constants(result.shape), from = *constants(t.shape);
    result.elements.emplace();
    for (size_t at = 0; at < t.elements->size(); ++at) {
      SmallVector<int64_t> index(sizes.size());
      int64_t rest = at, position = 0;
      for (int64_t dim = sizes.size() - 1; dim >= 0; rest /= sizes[dim--])
        index[permutation[dim]] = rest % sizes[dim];
      for (size_t dim = 0; dim < from.size(); ++dim)
        position = position * from[dim] + index[dim];
      result.elements->push_back((*t.elements)[position]);
    }
    return result;
  }
  if (!t.weight.empty())
    return impl.state.derive(
        t, TransposeAttr::get(b.getContext(), FlatSymbolRefAttr::get(b.getContext(), t.weight), permutation),
        *constants(result.shape), impl.loc);
  // Moving only dimensions of size 1 moves no element.
  SmallVector<int64_t> moved;
  for (int64_t dim : permutation)
    if (!t.shape[dim].is(1))
      moved.push_back(dim);
  if (llvm::is_sorted(moved))
    if (FailureOr<Tensor> view = reshape(t, result.shape); succeeded(view))
      return *view;
  result.value =
      linalg::TransposeOp::create(b, impl.loc, value(t), empty(t.dtype, result.shape), permutation).getResult()[0];
  return result;
}

//===----------------------------------------------------------------------===//
// Slice
//===----------------------------------------------------------------------===//

Tensor Node::slice(const Tensor &t, int64_t dim, const Expr &offset, const Expr &size, int64_t stride) {
  assert(stride != 0);
  if (offset.is(0) && stride == 1 && symbols().isEqual(size, t.shape[dim]) == true)
    return t;
  OpBuilder &b = builder();
  Tensor result;
  result.dtype = t.dtype;
  result.shape = t.shape;
  result.shape[dim] = size;
  // Before the slice: what asks for more than there is must not be read.
  if (failed(requireShape(t.dtype, result.shape)))
    return t;
  if (t.elements && offset.constant() && size.constant()) {
    SmallVector<int64_t> sizes = *constants(t.shape);
    int64_t inner = 1, outer = 1, from = *offset.constant(), count = *size.constant();
    for (auto [n, extent] : llvm::enumerate(sizes))
      (int64_t(n) < dim ? outer : inner) *= int64_t(n) == dim ? 1 : extent;
    result.elements.emplace();
    for (int64_t o = 0; o < outer; ++o)
      for (int64_t k = 0; k < count; ++k)
        for (int64_t i = 0; i < inner; ++i)
          result.elements->push_back((*t.elements)[(o * sizes[dim] + from + k * stride) * inner + i]);
    return result;
  }
  if (!t.weight.empty() && offset.constant() && size.constant() && stride == 1)
    return impl.state.derive(t,
                             SliceAttr::get(b.getContext(), FlatSymbolRefAttr::get(b.getContext(), t.weight), dim,
                                            *offset.constant(), *size.constant()),
                             *constants(result.shape), impl.loc);
  // Nothing is left: the offset may be the end, which a slice may not name, not of any dimension.
  if (llvm::any_of(result.shape, [](const Expr &extent) { return extent.is(0); }) ||
      symbols().isLess(offset, t.shape[dim]) == false) {
    result.value = empty(t.dtype, result.shape);
    return result;
  }
  if (stride < 0) {
    Value source = value(t), first = symbols().materialize(b, impl.loc, offset);
    result.value = generate(t.dtype, result.shape, [&](OpBuilder &b, Location loc, ValueRange indices) {
      SmallVector<Value> from(indices);
      Value step = arith::ConstantIndexOp::create(b, loc, -stride);
      from[dim] = arith::SubIOp::create(b, loc, first, arith::MulIOp::create(b, loc, indices[dim], step));
      return tensor::ExtractOp::create(b, loc, source, from);
    });
    return result;
  }
  SmallVector<OpFoldResult> offsets(t.rank(), b.getIndexAttr(0)), strides(t.rank(), b.getIndexAttr(1)), sizes;
  for (const Expr &extent : result.shape)
    sizes.push_back(symbols().size(b, impl.loc, extent));
  offsets[dim] = symbols().size(b, impl.loc, offset);
  strides[dim] = b.getIndexAttr(stride);
  result.value =
      tensor::ExtractSliceOp::create(b, impl.loc, type(t.dtype, result.shape), value(t), offsets, sizes, strides);
  return result;
}
