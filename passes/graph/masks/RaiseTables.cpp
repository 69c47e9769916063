#include "dialects/attn/AttnOps.h"
#include "passes/Passes.h"
#include "passes/graph/Formulas.h"
#include "passes/graph/Pipeline.h"
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

Mask conjunction(Code &k, const TableBand &band, const Index &row, const Index &column) {
  std::optional<Mask> all;
  auto require = [&](const Mask &holds) { all = all ? *all & holds : holds; };
  if (band.below)
    require(column <= row + *band.below);
  if (band.above)
    require(column >= row - *band.above);
  if (band.prefix)
    all = (column < *band.prefix) | *all;
  if (band.upTo)
    require(column < *band.upTo);
  if (band.from)
    require(column >= *band.from);
  return *all;
}

/// A table with two different values, of which one fills a band.
std::optional<Table> readBand(const ConstantTable &elements, RankedTensorType type, ArrayRef<unsigned> dims) {
  Type element = type.getElementType();
  if (dims.size() > 2 || (isa<IntegerType>(element) && elements.width != 1))
    return std::nullopt;
  int64_t other = 0; // an entry that is not as the first one
  for (int64_t n = 1; n != elements.size(); ++n)
    if (elements.bitsAt(n) != elements.bitsAt(other)) {
      if (other && elements.bitsAt(n) != elements.bitsAt(0))
        return std::nullopt;
      other = other ? other : n;
    }
  if (other == 0)
    return std::nullopt;
  int64_t columns = type.getDimSize(dims.back()), rows = elements.size() / columns;
  for (int64_t entry : {int64_t(0), other}) {
    std::optional<TableBand> band = findBand(rows, columns, [&](int64_t row, int64_t column) {
      return elements.bitsAt(row * columns + column) == elements.bitsAt(entry);
    });
    if (!band)
      continue;
    TypedAttr inside = elements.attributeAt(entry), outside = elements.attributeAt(other - entry);
    return Table{SmallVector<unsigned>(dims),
                 [band = *band, inside, outside](OpBuilder &b, Location loc, ValueRange places) -> Value {
                   Code k(b, loc);
                   Index row = places.size() == 2 ? k.asIndex(places.front()) : k.index(0);
                   Mask shown = conjunction(k, band, row, k.asIndex(places.back()));
                   return select(shown, constantOf(k, inside), constantOf(k, outside));
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
  SmallVector<int64_t> sizes = llvm::map_to_vector(dims, [&](unsigned dim) { return type.getDimSize(dim); });
  std::optional<SmallVector<int64_t>> slopes = findSteps(sizes, element);
  if (!slopes || llvm::any_of(*slopes, [](int64_t slope) { return slope < -1 || slope > 1; }))
    return std::nullopt;
  return Table{SmallVector<unsigned>(dims),
               [=, slopes = *slopes](OpBuilder &b, Location loc, ValueRange places) -> Value {
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
  auto constant = [&](Code &k, uint64_t bits) { return constantOf(k, FloatAttr::get(element, numberOf(bits))); };
  SmallVector<AffineMap> maps(inputs.size(), rewriter.getMultiDimIdentityMap(type.getRank()));
  SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(rewriter, loc, value);
  Value split = elementwise(rewriter, loc, sizes, element, inputs, maps, formula([&](Code &k, ArrayRef<Num> x) {
                              Num shown = isTwo ? constant(k, hidden == first ? other : first) : x[1];
                              return select(x[0] != 0, shown, constant(k, hidden));
                            }));
  value.replaceUsesWithIf(split, [&](OpOperand &use) {
    return !isa<tensor::ExtractSliceOp, tensor::DimOp>(use.getOwner()) && use.getOwner() != split.getDefiningOp();
  });
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
