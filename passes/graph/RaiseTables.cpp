#include "dialects/attn/AttnOps.h"
#include "dialects/attn/WeightStore.h"
#include "passes/Passes.h"
#include "passes/graph/ConstantMask.h"
#include "passes/graph/Pipeline.h"
#include "passes/graph/Structured.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/IR/SymbolTable.h"
#include <cstring>

using namespace mlir;

namespace attn {
#define GEN_PASS_DEF_RAISETABLESPASS
#include "passes/Passes.h.inc"

namespace {

/// Larger tables are left alone: each entry is looked at a few times.
constexpr int64_t kMaxEntries = int64_t(1) << 24;

/// A constant with at most two dimensions of a size other than 1 and two
/// different values, of which one fills a band.
struct Table {
  Band band;
  TypedAttr inside, outside;
  std::optional<unsigned> row;
  unsigned column;
};

/// The bytes of a constant, row-major; empty where they are not known.
ArrayRef<char> bytesOf(Value value, const SymbolTable &symbols, const WeightStore *weights) {
  if (auto constant = value.getDefiningOp<arith::ConstantOp>()) {
    auto dense = dyn_cast<DenseElementsAttr>(constant.getValue());
    return dense && !dense.isSplat() ? dense.getRawData() : ArrayRef<char>();
  }
  auto weight = value.getDefiningOp<WeightOp>();
  auto global = weight && weights ? symbols.lookup<GlobalOp>(weight.getGlobal()) : GlobalOp();
  auto initializer = global ? dyn_cast<InitializerAttr>(global.getExpression()) : InitializerAttr();
  return initializer ? weights->lookup(initializer.getName()) : ArrayRef<char>();
}

std::optional<Table> readTable(Value value, const SymbolTable &symbols, const WeightStore *weights) {
  auto type = cast<RankedTensorType>(value.getType());
  Type element = type.getElementType();
  Table table{};
  SmallVector<unsigned> wide;
  for (auto [n, size] : llvm::enumerate(type.getShape()))
    if (size != 1)
      wide.push_back(n);
  int64_t width = element.isIntOrFloat() ? element.getIntOrFloatBitWidth() / 8 : 0;
  if (wide.empty() || wide.size() > 2 || width == 0 || width > 8 || type.getNumElements() > kMaxEntries ||
      (isa<IntegerType>(element) && width != 1))
    return std::nullopt;
  ArrayRef<char> bytes = bytesOf(value, symbols, weights);
  if (bytes.empty() || bytes.size() != size_t(type.getNumElements() * width))
    return std::nullopt;
  auto bitsAt = [&](int64_t n) {
    uint64_t bits = 0;
    std::memcpy(&bits, bytes.data() + n * width, width);
    return bits;
  };
  uint64_t first = bitsAt(0), second = first;
  for (int64_t n = 0, count = type.getNumElements(); n != count; ++n)
    if (uint64_t bits = bitsAt(n); bits != first) {
      if (second != first && bits != second)
        return std::nullopt;
      second = bits;
    }
  if (first == second)
    return std::nullopt;
  auto attribute = [&](uint64_t bits) -> TypedAttr {
    APInt number(width * 8, bits);
    if (auto floating = dyn_cast<FloatType>(element))
      return FloatAttr::get(element, APFloat(floating.getFloatSemantics(), number));
    return IntegerAttr::get(element, number);
  };
  table.column = wide.back();
  if (wide.size() == 2)
    table.row = wide.front();
  int64_t columns = type.getDimSize(table.column), rows = type.getNumElements() / columns;
  for (uint64_t inside : {first, second}) {
    std::optional<Band> band =
        findBand(rows, columns, [&](int64_t row, int64_t column) { return bitsAt(row * columns + column) == inside; });
    if (!band)
      continue;
    table.band = *band;
    table.inside = attribute(inside);
    table.outside = attribute(inside == first ? second : first);
    return table;
  }
  return std::nullopt;
}

/// Whether a softmax or the mask of an attention reads `value`, through
/// elementwise ops, views and slices.
bool reachesScores(Value value) {
  SmallVector<Value> front{value};
  DenseSet<Value> seen;
  while (!front.empty()) {
    Value next = front.pop_back_val();
    if (!seen.insert(next).second)
      continue;
    for (OpOperand &use : next.getUses()) {
      Operation *user = use.getOwner();
      if (isa<SoftmaxOp>(user))
        return true;
      if (auto attention = dyn_cast<AttentionOp>(user))
        if (llvm::is_contained(attention.getCaptures(), next) || llvm::is_contained(attention.getMaskOperands(), next))
          return true;
      if (isView(user) || isPointwise(user) || isa<tensor::ExtractSliceOp>(user))
        front.push_back(user->getResult(0));
    }
  }
  return false;
}

/// Puts computed tables in the place of a constant and of its slices.
class TableWriter {
public:
  TableWriter(const Table &table, RewriterBase &rewriter) : table(table), rewriter(rewriter) {}

  /// `value` is the table from row and column `offset` on; `row` and `column`
  /// are the dimensions that these are in, where it has them.
  void replace(Value value, OpFoldResult rowOffset, OpFoldResult columnOffset, std::optional<unsigned> row,
               std::optional<unsigned> column);

private:
  OpFoldResult sum(Location loc, OpFoldResult a, OpFoldResult b) {
    if (isConstantIntValue(a, 0))
      return b;
    if (isConstantIntValue(b, 0))
      return a;
    return arith::AddIOp::create(rewriter, loc, getValueOrCreateConstantIndexOp(rewriter, loc, a),
                                 getValueOrCreateConstantIndexOp(rewriter, loc, b))
        .getResult();
  }
  void replaceSlice(tensor::ExtractSliceOp slice, OpFoldResult rowOffset, OpFoldResult columnOffset,
                    std::optional<unsigned> row, std::optional<unsigned> column);

  const Table &table;
  RewriterBase &rewriter;
};

void TableWriter::replaceSlice(tensor::ExtractSliceOp slice, OpFoldResult rowOffset, OpFoldResult columnOffset,
                               std::optional<unsigned> row, std::optional<unsigned> column) {
  if (llvm::any_of(slice.getMixedStrides(), [](OpFoldResult stride) { return !isConstantIntValue(stride, 1); }))
    return;
  rewriter.setInsertionPoint(slice);
  SmallVector<OpFoldResult> offsets = slice.getMixedOffsets();
  llvm::SmallBitVector dropped = slice.getDroppedDims();
  auto cut = [&](std::optional<unsigned> &dim, OpFoldResult &offset) {
    if (!dim)
      return;
    offset = sum(slice.getLoc(), offset, offsets[*dim]);
    unsigned before = 0;
    for (unsigned n = 0; n != *dim; ++n)
      before += dropped.test(n);
    dim = dropped.test(*dim) ? std::nullopt : std::optional(*dim - before);
  };
  cut(row, rowOffset);
  cut(column, columnOffset);
  replace(slice.getResult(), rowOffset, columnOffset, row, column);
}

void TableWriter::replace(Value value, OpFoldResult rowOffset, OpFoldResult columnOffset, std::optional<unsigned> row,
                          std::optional<unsigned> column) {
  for (Operation *user : llvm::make_early_inc_range(value.getUsers()))
    if (auto slice = dyn_cast<tensor::ExtractSliceOp>(user); slice && slice.getSource() == value)
      replaceSlice(slice, rowOffset, columnOffset, row, column);
  if (value.use_empty())
    return;
  // Sizes may be read off the value itself.
  SmallVector<OpOperand *> uses(llvm::make_pointer_range(value.getUses()));
  rewriter.setInsertionPointAfterValue(value);
  Location loc = value.getLoc();
  auto asValue = [&](OpFoldResult offset) -> Value {
    return isConstantIntValue(offset, 0) ? Value() : getValueOrCreateConstantIndexOp(rewriter, loc, offset);
  };
  Value rowStart = asValue(rowOffset), columnStart = asValue(columnOffset);
  SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(rewriter, loc, value);
  Type element = getElementTypeOrSelf(value);
  Value computed = elementwise(rewriter, loc, sizes, element, {}, {}, [&](OpBuilder &b, Location loc, ValueRange) {
    auto constant = [&](int64_t n) -> Value { return arith::ConstantIndexOp::create(b, loc, n); };
    auto place = [&](std::optional<unsigned> dim, Value start) -> Value {
      Value at = dim ? linalg::IndexOp::create(b, loc, *dim).getResult() : constant(0);
      return start ? arith::AddIOp::create(b, loc, at, start).getResult() : at;
    };
    Value r = place(row, rowStart), c = place(column, columnStart), all;
    auto require = [&](arith::CmpIPredicate predicate, Value bound) {
      Value holds = arith::CmpIOp::create(b, loc, predicate, c, bound);
      all = all ? arith::AndIOp::create(b, loc, all, holds).getResult() : holds;
    };
    const Band &band = table.band;
    if (band.below)
      require(arith::CmpIPredicate::sle, arith::AddIOp::create(b, loc, r, constant(*band.below)));
    if (band.above)
      require(arith::CmpIPredicate::sge, arith::SubIOp::create(b, loc, r, constant(*band.above)));
    if (band.prefix)
      all = arith::OrIOp::create(
          b, loc, arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, c, constant(*band.prefix)), all);
    if (band.upTo)
      require(arith::CmpIPredicate::slt, constant(*band.upTo));
    if (band.from)
      require(arith::CmpIPredicate::sge, constant(*band.from));
    Value inside = arith::ConstantOp::create(b, loc, table.inside),
          outside = arith::ConstantOp::create(b, loc, table.outside);
    return arith::SelectOp::create(b, loc, all, inside, outside).getResult();
  });
  for (OpOperand *use : uses)
    use->set(computed);
}

struct RaiseTablesPass : impl::RaiseTablesPassBase<RaiseTablesPass> {
  RaiseTablesPass() = default;
  RaiseTablesPass(const WeightStore *weights) : weights(weights) {}

  void runOnOperation() override {
    SymbolTable symbols(getOperation());
    SmallVector<Value> constants;
    getOperation().walk([&](Operation *op) {
      if (isa<arith::ConstantOp, WeightOp>(op) && isa<RankedTensorType>(op->getResult(0).getType()))
        constants.push_back(op->getResult(0));
    });
    IRRewriter rewriter(&getContext());
    for (Value value : constants) {
      if (!cast<RankedTensorType>(value.getType()).hasStaticShape() || !reachesScores(value))
        continue;
      std::optional<Table> table = readTable(value, symbols, weights);
      if (table)
        TableWriter(*table, rewriter)
            .replace(value, rewriter.getIndexAttr(0), rewriter.getIndexAttr(0), table->row, table->column);
    }
  }

private:
  const WeightStore *weights = nullptr;
};

} // namespace

std::unique_ptr<Pass> createRaiseTablesPass(const WeightStore *weights) {
  return std::make_unique<RaiseTablesPass>(weights);
}
} // namespace attn
