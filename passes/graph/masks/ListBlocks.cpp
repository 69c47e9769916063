#include "dialects/attn/NodeLocation.h"
#include "passes/Passes.h"
#include "passes/graph/Collect.h"
#include "passes/graph/Pipeline.h"
#include "passes/graph/element/ConstantMask.h"
#include "passes/graph/element/ConstantTable.h"
#include "passes/graph/masks/EdgeLists.h"
#include "passes/graph/masks/MaskMining.h"
#include "passes/graph/masks/MaskReport.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/IR/SymbolTable.h"
#include "llvm/Support/MathExtras.h"
#include <cstring>
#include <vector>

using namespace mlir;

namespace attn {
#define GEN_PASS_DEF_LISTBLOCKSPASS
#include "passes/Passes.h.inc"

namespace {

using A = AttentionOp;

/// A constant mask over queries and keys, brought into the order (b, h, i, j).
struct Table {
  int64_t sizes[4] = {1, 1, 1, 1};
  bool isNamed[4] = {};
  std::vector<uint8_t> visible; ///< 0 or 1

  int64_t planes() const { return sizes[A::B] * sizes[A::H]; }
  const uint8_t *rowAt(int64_t plane, int64_t row) const {
    return visible.data() + (plane * sizes[A::I] + row) * sizes[A::J];
  }
  bool showsEachRowAKey() const {
    for (int64_t row = 0; row != planes() * sizes[A::I]; ++row)
      if (!std::memchr(rowAt(0, row), 1, sizes[A::J]))
        return false;
    return true;
  }
};

std::optional<Table> readTable(const MaskTerm &term, const SymbolTable &symbols, const WeightStore *weights) {
  ConstantTable entries = ConstantTable::read(term.operand, symbols, weights);
  if (entries.bytes.empty())
    return std::nullopt;
  Table table;
  int64_t strides[4] = {}, stride = 1;
  auto shape = cast<RankedTensorType>(term.operand.getType()).getShape();
  for (int64_t n = shape.size(); n-- > 0; stride *= shape[n]) {
    auto dim = dyn_cast<AffineDimExpr>(term.map.getResult(n));
    if (!dim && shape[n] == 1)
      continue;
    if (!dim || dim.getPosition() > A::J || table.isNamed[dim.getPosition()])
      return std::nullopt;
    table.isNamed[dim.getPosition()] = true;
    table.sizes[dim.getPosition()] = shape[n];
    strides[dim.getPosition()] = stride;
  }
  if (!table.isNamed[A::I] || !table.isNamed[A::J])
    return std::nullopt;
  table.visible.reserve(entries.size());
  for (int64_t b = 0; b != table.sizes[A::B]; ++b)
    for (int64_t h = 0; h != table.sizes[A::H]; ++h)
      for (int64_t i = 0; i != table.sizes[A::I]; ++i)
        for (int64_t j = 0; j != table.sizes[A::J]; ++j)
          table.visible.push_back(
              entries.bitsAt(b * strides[A::B] + h * strides[A::H] + i * strides[A::I] + j * strides[A::J]) != 0);
  return table;
}

/// The lists of `table`, as a tensor (b, h, i / rows, list) of the named ones, and its map.
std::pair<Value, AffineMap> writeLists(const Table &table, const BlockGrid &grid, OpBuilder &b, Location loc) {
  int64_t count = std::max<int64_t>(grid.listed, 1);
  std::vector<int32_t> lists;
  for (int64_t plane = 0; plane != table.planes(); ++plane)
    for (int64_t row = 0; row < table.sizes[A::I]; row += grid.rows) {
      size_t end = lists.size() + count;
      for (int64_t column = 0; column < table.sizes[A::J]; column += grid.columns)
        if (table.rowAt(plane, row)[column])
          lists.push_back(column / grid.columns);
      lists.resize(end, -1);
    }
  SmallVector<int64_t> shape;
  SmallVector<AffineExpr> exprs;
  for (unsigned dim : {A::B, A::H, A::I})
    if (table.isNamed[dim]) {
      shape.push_back(dim == A::I ? llvm::divideCeil(table.sizes[dim], grid.rows) : table.sizes[dim]);
      exprs.push_back(dim == A::I ? b.getAffineDimExpr(dim).floorDiv(grid.rows) : b.getAffineDimExpr(dim));
    }
  shape.push_back(count);
  auto type = RankedTensorType::get(shape, b.getI32Type());
  Value operand = arith::ConstantOp::create(b, loc, DenseElementsAttr::get(type, ArrayRef<int32_t>(lists)));
  return {operand, AffineMap::get(A::kDims, 0, exprs, b.getContext())};
}

/// `op` with `lists` of blocks, read through `map`, in the place of term `number` of its mask; without what it does in
/// rows that see no key, where there are none.
AttentionOp withBlocks(RewriterBase &rewriter, AttentionOp op, size_t number, BlocksAttr blocks, Value lists,
                       AffineMap map, bool seesKeys = false) {
  AttentionParts parts = op.getParts();
  size_t position = llvm::count_if(ArrayRef(parts.mask).take_front(number), takesMaskOperand);
  parts.mask[number] = blocks;
  parts.maps[op.getNumOperands() - parts.maskOperands.size() + position] = map;
  parts.maskOperands[position] = lists;
  if (seesKeys)
    parts.maskedRows = MaskedRows::nan;
  rewriter.setInsertionPoint(op);
  auto to = AttentionOp::create(rewriter, op.getLoc(), parts);
  for (auto [from, into] : llvm::zip_equal(op->getRegions(), to->getRegions()))
    if (!seesKeys || &from != &op.getMasked())
      into.takeBody(from);
  rewriter.replaceOp(op, to->getResults());
  return to;
}

/// The attention with one more of its constant masks as lists of blocks, or null.
AttentionOp listOne(AttentionOp op, IRRewriter &rewriter, const SymbolTable &symbols, const WeightStore *weights) {
  for (auto [number, term] : llvm::enumerate(op.getMaskTerms())) {
    if (!isa<DenseMaskAttr>(term.term))
      continue;
    std::optional<Table> table = readTable(term, symbols, weights);
    if (!table)
      continue;
    std::optional<BlockGrid> grid = findBlocks(table->planes(), table->sizes[A::I], table->sizes[A::J], table->visible);
    if (!grid)
      continue;
    rewriter.setInsertionPoint(op);
    auto [lists, map] = writeLists(*table, *grid, rewriter, op.getLoc());
    bool seesKeys = op.getMaskedRows() == MaskedRows::finite && op.getMask().size() == 1 && table->showsEachRowAKey();
    return withBlocks(rewriter, op, number, BlocksAttr::get(op.getContext(), grid->rows, grid->columns), lists, map,
                      seesKeys);
  }
  return {};
}

/// Lists of edges that several attentions read.
using EdgeListCache = DenseMap<std::pair<Value, unsigned>, Value>;

/// Whether there are so few edges, as far as is known, that lists are shorter than the table.
bool isSparse(const EdgeTable &table, OpBuilder &b) {
  auto type = cast<RankedTensorType>(table.getValue().getType());
  std::optional<int64_t> edges = getConstantIntValue(table.countEdges(b));
  return !edges || !type.hasStaticShape() || *edges <= type.getNumElements() / 8;
}

/// In a row that sees no key the table of `term`, the only one of the mask, has no edge: what the masked region makes
/// of its entries is known, and where it makes one number of all scores the weights are equal.
void settleMasked(AttentionOp op, const MaskTerm &term, RewriterBase &rewriter) {
  Block &block = op.getMasked().front();
  rewriter.setInsertionPointToStart(&block);
  for (auto [n, capture] : llvm::enumerate(op.getCaptures()))
    if (BlockArgument entry = block.getArgument(1 + n); capture == term.operand && op.getCaptureMap(n) == term.map)
      rewriter.replaceAllUsesWith(
          entry, arith::ConstantOp::create(rewriter, op.getLoc(), rewriter.getZeroAttr(entry.getType())));
  for (Operation &inner : llvm::make_early_inc_range(block.without_terminator())) {
    SmallVector<Value> folded;
    rewriter.setInsertionPoint(&inner);
    if (!isa<arith::ConstantOp>(inner) && succeeded(rewriter.tryFold(&inner, folded)))
      rewriter.replaceOp(&inner, folded);
  }
  bool givesSums = llvm::any_of(op.getExtras().getAsRange<ExtraAttr>(),
                                [](ExtraAttr extra) { return extra.getSource() == ExtraSource::lse; });
  FloatAttr number;
  if (givesSums || !matchPattern(block.getTerminator()->getOperand(0), m_Constant(&number)) ||
      !number.getValue().isFinite())
    return;
  rewriter.eraseBlock(&block);
  op.setMaskedRows(MaskedRows::uniform);
}

/// The attention with one more of its masks, a table of edges, as lists of the keys of each query, or null.
AttentionOp listEdgesOfOne(AttentionOp op, IRRewriter &rewriter, const SymbolTable &symbols, const WeightStore *weights,
                           EdgeListCache &cache) {
  for (auto [number, term] : llvm::enumerate(op.getMaskTerms())) {
    if (!isa<DenseMaskAttr>(term.term) || term.map.getNumResults() != 2)
      continue;
    std::optional<unsigned> first = AttentionOp::getNamedDim(term.map.getResult(0)),
                            second = AttentionOp::getNamedDim(term.map.getResult(1));
    if (!first || !second || std::min(*first, *second) != A::I || std::max(*first, *second) != A::J)
      continue;
    std::optional<EdgeTable> table = EdgeTable::match(term.operand, symbols, weights);
    if (!table || !table->isMarked())
      continue;
    unsigned queries = *first == A::I ? 0 : 1;
    rewriter.setInsertionPointAfterValue(term.operand);
    Value &lists = cache[{term.operand, queries}];
    if (!lists && !isSparse(*table, rewriter))
      continue;
    if (!lists)
      lists = listEdges(*table, queries, rewriter);
    AttentionOp to = withBlocks(rewriter, op, number, BlocksAttr::get(op.getContext(), 1, 1), lists,
                                AffineMap::get(A::kDims, 0, rewriter.getAffineDimExpr(A::I)));
    if (to.getMaskedRows() == MaskedRows::finite && to.getMask().size() == 1)
      settleMasked(to, term, rewriter);
    return dropUnusedCaptures(rewriter, to);
  }
  return {};
}

struct ListBlocksPass : impl::ListBlocksPassBase<ListBlocksPass> {
  ListBlocksPass() = default;
  ListBlocksPass(const WeightStore *weights) : weights(weights) {}

  void runOnOperation() override {
    SymbolTable symbols(getOperation());
    IRRewriter rewriter(&getContext());
    MaskReport report(getOperation());
    EdgeListCache edges;
    for (AttentionOp op : collect<AttentionOp>(getOperation())) {
      bool isListed = false;
      auto listNext = [&]() {
        AttentionOp with = listOne(op, rewriter, symbols, weights);
        return with ? with : listEdgesOfOne(op, rewriter, symbols, weights, edges);
      };
      while (AttentionOp with = listNext()) {
        op = with;
        isListed = true;
      }
      if (isListed)
        report.set(op, nameMask(op));
    }
  }

private:
  const WeightStore *weights = nullptr;
};

} // namespace

std::unique_ptr<Pass> createListBlocksPass(const WeightStore *weights) {
  return std::make_unique<ListBlocksPass>(weights);
}

} // namespace attn
