#include "dialects/attn/AttnOps.h"
#include "passes/Passes.h"
#include "passes/graph/Pipeline.h"
#include "passes/graph/Structured.h"
#include "passes/graph/element/ConstantMask.h"
#include "passes/graph/element/ConstantTable.h"
#include "passes/graph/masks/MaskMining.h"
#include "passes/graph/masks/RaiseEdges.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/IR/SymbolTable.h"
#include "llvm/ADT/SmallBitVector.h"
#include <cstdlib>
#include <functional>
#include <limits>
#include <vector>

using namespace mlir;

namespace attn {
#define GEN_PASS_DEF_RAISETABLESPASS
#include "passes/Passes.h.inc"

namespace {

/// A constant whose elements can be computed from their places.
struct Table {
  SmallVector<unsigned> dims; ///< those of a size other than 1
  /// An element, from its places in `dims`.
  std::function<Value(OpBuilder &, Location, ValueRange)> compute;
};

/// Where a tensor lies in a table along one of its dims: the dimension of the
/// tensor that runs along it, if it has one, and where it starts.
struct Place {
  std::optional<unsigned> dim;
  OpFoldResult offset;
};

Value conjunction(OpBuilder &b, Location loc, const TableBand &band, Value row, Value column) {
  auto constant = [&](int64_t n) -> Value { return arith::ConstantIndexOp::create(b, loc, n); };
  Value all;
  auto require = [&](arith::CmpIPredicate predicate, Value bound) {
    Value holds = arith::CmpIOp::create(b, loc, predicate, column, bound);
    all = all ? arith::AndIOp::create(b, loc, all, holds).getResult() : holds;
  };
  if (band.below)
    require(arith::CmpIPredicate::sle, arith::AddIOp::create(b, loc, row, constant(*band.below)));
  if (band.above)
    require(arith::CmpIPredicate::sge, arith::SubIOp::create(b, loc, row, constant(*band.above)));
  if (band.prefix)
    all = arith::OrIOp::create(
        b, loc, arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, column, constant(*band.prefix)), all);
  if (band.upTo)
    require(arith::CmpIPredicate::slt, constant(*band.upTo));
  if (band.from)
    require(arith::CmpIPredicate::sge, constant(*band.from));
  return all;
}

/// A table with two different values, of which one fills a band.
std::optional<Table> readBand(const ConstantTable &elements, RankedTensorType type, ArrayRef<unsigned> dims) {
  Type element = type.getElementType();
  if (dims.size() > 2 || (isa<IntegerType>(element) && elements.width != 1))
    return std::nullopt;
  uint64_t first = elements.bitsAt(0), second = first;
  for (int64_t n = 0; n != elements.size(); ++n)
    if (uint64_t bits = elements.bitsAt(n); bits != first) {
      if (second != first && bits != second)
        return std::nullopt;
      second = bits;
    }
  if (first == second)
    return std::nullopt;
  auto attribute = [&](uint64_t bits) -> TypedAttr {
    APInt number(elements.width * 8, bits);
    if (auto floating = dyn_cast<FloatType>(element))
      return FloatAttr::get(element, APFloat(floating.getFloatSemantics(), number));
    return IntegerAttr::get(element, number);
  };
  int64_t columns = type.getDimSize(dims.back()), rows = elements.size() / columns;
  for (uint64_t bits : {first, second}) {
    std::optional<TableBand> band = findBand(
        rows, columns, [&](int64_t row, int64_t column) { return elements.bitsAt(row * columns + column) == bits; });
    if (!band)
      continue;
    TypedAttr inside = attribute(bits), outside = attribute(bits == first ? second : first);
    return Table{SmallVector<unsigned>(dims),
                 [band = *band, inside, outside](OpBuilder &b, Location loc, ValueRange places) -> Value {
                   Value row = places.size() == 2 ? places.front() : arith::ConstantIndexOp::create(b, loc, 0);
                   Value shown = conjunction(b, loc, band, row, places.back());
                   return arith::SelectOp::create(b, loc, shown, arith::ConstantOp::create(b, loc, inside),
                                                  arith::ConstantOp::create(b, loc, outside));
                 }};
  }
  return std::nullopt;
}

/// A table of positions: integers, or floats that are, that are a constant plus or minus places.
std::optional<Table> readPositions(const ConstantTable &elements, RankedTensorType type, ArrayRef<unsigned> dims) {
  Type entry = type.getElementType();
  auto floating = dyn_cast<FloatType>(entry);
  if (elements.width < 4)
    return std::nullopt;
  constexpr int64_t kNoInteger = std::numeric_limits<int64_t>::max();
  auto element = [&](int64_t n) -> int64_t {
    APInt bits(elements.width * 8, elements.bitsAt(n));
    if (!floating)
      return bits.getSExtValue();
    APFloat number(floating.getFloatSemantics(), bits);
    return number.isInteger() && !number.isNegZero() && abs(number).convertToDouble() < (1 << 24)
               ? static_cast<int64_t>(number.convertToDouble())
               : kNoInteger;
  };
  int64_t base = element(0);
  if (std::abs(base / 2) > ConstantTable::kMaxEntries)
    return std::nullopt;
  SmallVector<int64_t> sizes, slopes;
  for (unsigned dim : dims)
    sizes.push_back(type.getDimSize(dim));
  int64_t stride = elements.size();
  for (int64_t size : sizes) {
    stride /= size;
    int64_t last = element(stride);
    slopes.push_back(last == base + 1 ? 1 : last == base - 1 ? -1 : last == base ? 0 : 2);
    if (slopes.back() == 2)
      return std::nullopt;
  }
  SmallVector<int64_t> at(dims.size(), 0);
  int64_t expected = base;
  for (int64_t n = 0, count = elements.size(); n != count; ++n) {
    if (element(n) != expected)
      return std::nullopt;
    for (size_t d = at.size(); d-- > 0;) {
      expected += slopes[d];
      if (++at[d] != sizes[d])
        break;
      expected -= slopes[d] * sizes[d];
      at[d] = 0;
    }
  }
  return Table{SmallVector<unsigned>(dims), [=](OpBuilder &b, Location loc, ValueRange places) -> Value {
                 Value sum = arith::ConstantIndexOp::create(b, loc, base);
                 for (auto [place, slope] : llvm::zip_equal(places, slopes))
                   if (slope == 1)
                     sum = b.createOrFold<arith::AddIOp>(loc, sum, place);
                   else if (slope == -1)
                     sum = b.createOrFold<arith::SubIOp>(loc, sum, place);
                 if (!floating)
                   return arith::IndexCastOp::create(b, loc, entry, sum);
                 Value integer = arith::IndexCastOp::create(b, loc, b.getI64Type(), sum);
                 return arith::SIToFPOp::create(b, loc, floating, integer);
               }};
}

/// The first rows of a table that repeats them (for each batch and head, say); `dims` loses those that only repeat.
ConstantTable firstOfRepeated(ConstantTable elements, RankedTensorType type, SmallVector<unsigned> &dims) {
  while (dims.size() > 1) {
    size_t part = elements.bytes.size() / type.getDimSize(dims.front());
    for (size_t from = part; from != elements.bytes.size(); from += part)
      if (elements.bytes.slice(from, part) != elements.bytes.take_front(part))
        return elements;
    elements.bytes = elements.bytes.take_front(part);
    dims.erase(dims.begin());
  }
  return elements;
}

std::optional<Table> readTable(Value value, const ConstantTable &all) {
  auto type = cast<RankedTensorType>(value.getType());
  SmallVector<unsigned> dims;
  for (auto [n, size] : llvm::enumerate(type.getShape()))
    if (size != 1)
      dims.push_back(n);
  if (dims.empty())
    return std::nullopt;
  ConstantTable elements = firstOfRepeated(all, type, dims);
  std::optional<Table> table = readBand(elements, type, dims);
  return table ? table : readPositions(elements, type, dims);
}

/// Puts computed tables in the place of a constant and of its slices.
class TableWriter {
public:
  TableWriter(const Table &table, RewriterBase &rewriter) : table(table), rewriter(rewriter) {}

  /// `value` lies at `places` of the table, one for each of its dims.
  void replace(Value value, ArrayRef<Place> places);

private:
  OpFoldResult sum(Location loc, OpFoldResult a, OpFoldResult b) {
    return getAsOpFoldResult(rewriter.createOrFold<arith::AddIOp>(
        loc, getValueOrCreateConstantIndexOp(rewriter, loc, a), getValueOrCreateConstantIndexOp(rewriter, loc, b)));
  }
  void replaceSlice(tensor::ExtractSliceOp slice, SmallVector<Place> places);

  const Table &table;
  RewriterBase &rewriter;
};

void TableWriter::replaceSlice(tensor::ExtractSliceOp slice, SmallVector<Place> places) {
  if (!slice.hasUnitStride())
    return;
  rewriter.setInsertionPoint(slice);
  SmallVector<OpFoldResult> offsets = slice.getMixedOffsets();
  llvm::SmallBitVector dropped = slice.getDroppedDims();
  for (auto &[dim, offset] : places) {
    if (!dim)
      continue;
    offset = sum(slice.getLoc(), offset, offsets[*dim]);
    unsigned before = 0;
    for (unsigned n = 0; n != *dim; ++n)
      before += dropped.test(n);
    dim = dropped.test(*dim) ? std::nullopt : std::optional(*dim - before);
  }
  replace(slice.getResult(), places);
}

void TableWriter::replace(Value value, ArrayRef<Place> places) {
  for (Operation *user : llvm::make_early_inc_range(value.getUsers()))
    if (auto slice = dyn_cast<tensor::ExtractSliceOp>(user); slice && slice.getSource() == value)
      replaceSlice(slice, SmallVector<Place>(places));
  if (value.use_empty())
    return;
  // Sizes may be read off the value itself.
  SmallVector<OpOperand *> uses(llvm::make_pointer_range(value.getUses()));
  rewriter.setInsertionPointAfterValue(value);
  Location loc = value.getLoc();
  SmallVector<Value> starts;
  for (const Place &place : places)
    starts.push_back(
        isConstantIntValue(place.offset, 0) ? Value() : getValueOrCreateConstantIndexOp(rewriter, loc, place.offset));
  SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(rewriter, loc, value);
  Type element = getElementTypeOrSelf(value);
  Value computed = elementwise(rewriter, loc, sizes, element, {}, {}, [&](OpBuilder &b, Location loc, ValueRange) {
    SmallVector<Value> at;
    for (auto [place, start] : llvm::zip_equal(places, starts)) {
      at.push_back(place.dim ? linalg::IndexOp::create(b, loc, *place.dim).getResult()
                             : arith::ConstantIndexOp::create(b, loc, 0).getResult());
      if (start)
        at.back() = arith::AddIOp::create(b, loc, at.back(), start);
    }
    return table.compute(b, loc, at);
  });
  for (OpOperand *use : uses)
    use->set(computed);
}

/// An additive mask that hides keys by blocks (with -inf or, where there are two
/// values, a finite constant) becomes a table of bytes that selects the hidden
/// value, and what is added elsewhere.
void splitHidden(Value value, const ConstantTable &entries, RewriterBase &rewriter) {
  auto type = cast<RankedTensorType>(value.getType());
  auto element = dyn_cast<FloatType>(type.getElementType());
  if (!element || type.getRank() < 2 || type.getDimSize(type.getRank() - 2) < 2)
    return;
  int64_t size = entries.size(), rows = type.getDimSize(type.getRank() - 2), columns = type.getShape().back();
  auto numberOf = [&](uint64_t bits) { return APFloat(element.getFloatSemantics(), APInt(entries.width * 8, bits)); };
  uint64_t infinity = APFloat::getInf(element.getFloatSemantics(), /*Negative=*/true).bitcastToAPInt().getZExtValue();
  uint64_t first = entries.bitsAt(0), hidden = infinity, other = first;
  bool hasInfinity = first == infinity, isTwo = true;
  for (int64_t n = 1; n != size; ++n) {
    uint64_t bits = entries.bitsAt(n);
    hasInfinity |= bits == infinity;
    isTwo &= bits == first || other == first || bits == other;
    other = bits == first ? other : bits;
  }
  if (other == first)
    return;
  if (!hasInfinity) {
    hidden = isTwo && numberOf(other) < numberOf(first) ? other : first;
    if (!isTwo || !(numberOf(hidden).convertToDouble() <= kFiniteMask))
      return;
  }
  std::vector<uint8_t> visible(size);
  for (int64_t n = 0; n != size; ++n)
    visible[n] = entries.bitsAt(n) != hidden;
  if (!findBlocks(size / (rows * columns), rows, columns, visible))
    return;
  rewriter.setInsertionPointAfterValue(value);
  Location loc = value.getLoc();
  auto bytes = RankedTensorType::get(type.getShape(), rewriter.getI8Type());
  Value table = arith::ConstantOp::create(rewriter, loc, DenseElementsAttr::get(bytes, ArrayRef<uint8_t>(visible)));
  SmallVector<Value> inputs{table};
  if (!isTwo)
    inputs.push_back(value);
  auto constant = [&](OpBuilder &b, uint64_t bits) -> Value {
    return arith::ConstantOp::create(b, loc, FloatAttr::get(element, numberOf(bits)));
  };
  SmallVector<AffineMap> maps(inputs.size(), rewriter.getMultiDimIdentityMap(type.getRank()));
  SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(rewriter, loc, value);
  SmallVector<OpOperand *> uses;
  for (OpOperand &use : value.getUses())
    if (!isa<tensor::ExtractSliceOp, tensor::DimOp>(use.getOwner()))
      uses.push_back(&use);
  Value split = elementwise(rewriter, loc, sizes, element, inputs, maps,
                            [&](OpBuilder &b, Location loc, ValueRange args) -> Value {
                              Value zero = arith::ConstantOp::create(b, loc, b.getI8IntegerAttr(0));
                              Value shows = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, args[0], zero);
                              Value shown = isTwo ? constant(b, hidden == first ? other : first) : args[1];
                              return arith::SelectOp::create(b, loc, shows, shown, constant(b, hidden));
                            });
  for (OpOperand *use : uses)
    use->set(split);
}

struct RaiseTablesPass : impl::RaiseTablesPassBase<RaiseTablesPass> {
  using RaiseTablesPassBase::RaiseTablesPassBase;
  RaiseTablesPass(const WeightStore *weights, bool keeps) : weights(weights) { keepsTables = keeps; }

  void runOnOperation() override {
    SymbolTable symbols(getOperation());
    SmallVector<Value> constants;
    getOperation().walk([&](Operation *op) {
      if (isa<arith::ConstantOp, WeightOp>(op) && isa<RankedTensorType>(op->getResult(0).getType()))
        constants.push_back(op->getResult(0));
    });
    IRRewriter rewriter(&getContext());
    for (Value value : constants) {
      ConstantTable elements = ConstantTable::read(value, symbols, weights);
      if (elements.bytes.empty() || !reachesScores(value))
        continue;
      std::optional<Table> table = readTable(value, elements);
      if (!table) {
        if (!keepsTables)
          splitHidden(value, elements, rewriter);
        continue;
      }
      SmallVector<Place> places;
      for (unsigned dim : table->dims)
        places.push_back({dim, rewriter.getIndexAttr(0)});
      TableWriter(*table, rewriter).replace(value, places);
    }
    if (!keepsTables)
      raiseEdges(getOperation(), symbols, weights);
  }

private:
  const WeightStore *weights = nullptr;
};

} // namespace

std::unique_ptr<Pass> createRaiseTablesPass(const WeightStore *weights, bool keepsTables) {
  return std::make_unique<RaiseTablesPass>(weights, keepsTables);
}
} // namespace attn
