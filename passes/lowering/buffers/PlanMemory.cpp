#include "dialects/attn/DimBounds.h"
#include "dialects/attn/LoopOps.h"
#include "passes/Passes.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Bufferization/Transforms/BufferViewFlowAnalysis.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Interfaces/LoopLikeInterface.h"
#include "mlir/Interfaces/ViewLikeInterface.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/Support/MathExtras.h"

namespace attn {
#define GEN_PASS_DEF_PLANMEMORYPASS
#include "passes/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

namespace {
constexpr int64_t kAlignment = 64;

/// `coefficient * factors[0] * factors[1] ...`, factors in the order of their
/// first appearance.
struct Product {
  int64_t coefficient = 1;
  bool overflow = false;
  SmallVector<unsigned, 4> factors; // numbers of values, ascending

  void multiply(int64_t by) { overflow |= llvm::MulOverflow(coefficient, by, coefficient); }
};

struct Buffer {
  memref::AllocOp alloc;
  Product bytes;
  int64_t number = 0;          // in the order of the code
  int64_t named = 0;           // position of the first use or view
  int64_t first = 0, last = 0; // positions of uses, which views are not
  int64_t ready = -1;          // position after which its size is known
  int64_t offset = 0;          // in units of the group's product
  int64_t size = 0;            // likewise
};

class MemoryPlanner {
public:
  explicit MemoryPlanner(func::FuncOp entry) : entry(entry), b(entry.getContext()) {}

  LogicalResult run() {
    if (failed(collect()))
      return failure();
    if (buffers.empty())
      return success();
    int64_t point = std::numeric_limits<int64_t>::max();
    for (Buffer &buffer : buffers)
      point = std::min(point, buffer.named);
    pointOp = operations[point];
    pointOp = entry.getBody().front().findAncestorOpInBlock(*pointOp);
    point = positions[pointOp];
    findBounds();
    llvm::MapVector<ArrayRef<unsigned>, SmallVector<Buffer *>> groups;
    SmallVector<Buffer *> late;
    for (Buffer &buffer : buffers) {
      if (buffer.ready < point)
        groups[buffer.bytes.factors].push_back(&buffer);
      else
        late.push_back(&buffer);
    }
    // What grows asks for more than is planned here.
    bool grows = entry.walk([](WorkspaceOp) { return WalkResult::interrupt(); }).wasInterrupted();
    if (!groups.empty())
      placeGroups(groups.takeVector(), /*isAll=*/late.empty() && !grows);
    for (Buffer *buffer : late)
      requestInPlace(*buffer);
    for (Buffer &buffer : buffers)
      buffer.alloc.erase();
    return success();
  }

private:
  LogicalResult collect() {
    number(entry.getBody().front());
    BufferViewFlowAnalysis aliases(entry);
    WalkResult result = entry.walk([&](memref::AllocOp alloc) -> WalkResult {
      if (alloc->getParentOfType<scf::ParallelOp>())
        return alloc.emitOpError("expects no allocation inside a parallel loop");
      Buffer buffer;
      buffer.alloc = alloc;
      buffer.number = buffers.size();
      buffer.named = buffer.first = std::numeric_limits<int64_t>::max();
      // Within the innermost block that has all uses; where that is a body, each
      // iteration begins anew. An inner loop is alive as a whole.
      Block *scope = alloc->getBlock();
      SmallVector<Operation *> users;
      for (Value alias : aliases.resolve(alloc.getResult()))
        for (Operation *user : alias.getUsers())
          if (!isa<memref::DimOp>(user)) {
            users.push_back(user);
            while (!scope->findAncestorOpInBlock(*user))
              scope = scope->getParentOp()->getBlock();
          }
      for (Operation *user : users) {
        Operation *own = scope->findAncestorOpInBlock(*user);
        buffer.named = std::min(buffer.named, positions[own]);
        if (isa<ViewLikeOpInterface>(user))
          continue;
        buffer.first = std::min(buffer.first, positions[own]);
        buffer.last = std::max(buffer.last, ends[own]);
      }
      if (buffer.first == std::numeric_limits<int64_t>::max())
        buffer.named = buffer.first = buffer.last = positions[alloc];
      MemRefType type = alloc.getType();
      if (!type.getLayout().isIdentity() || !type.getElementType().isIntOrIndexOrFloat())
        return alloc.emitOpError("expects a dense buffer of numbers, got ") << type;
      buffer.bytes.multiply(type.getElementType().isIndex() ? 8 : llvm::divideCeil(type.getElementTypeBitWidth(), 8));
      for (int64_t size : type.getShape())
        if (!ShapedType::isDynamic(size))
          buffer.bytes.multiply(size);
      for (Value size : alloc.getDynamicSizes())
        factorize(size, buffer);
      llvm::sort(buffer.bytes.factors);
      if (buffer.bytes.overflow)
        return alloc.emitOpError("expects a size of less than 2^63 bytes, got ") << type;
      buffers.push_back(std::move(buffer));
      return WalkResult::advance();
    });
    return failure(result.wasInterrupted());
  }

  /// The greatest size of dimension `dim` of an input, where the entry bounds it.
  std::optional<int64_t> boundOf(memref::DimOp dim) {
    auto bounds = entry->getAttrOfType<DictionaryAttr>(kDimBoundsAttr);
    auto inputs = entry->getAttrOfType<ArrayAttr>(AttnDialect::kInputsAttr);
    auto argument = dyn_cast<BlockArgument>(dim.getSource());
    std::optional<int64_t> position = dim.getConstantIndex();
    if (!bounds || !inputs || !argument || !position || argument.getOwner() != &entry.getBody().front() ||
        argument.getArgNumber() >= inputs.size())
      return std::nullopt;
    auto names = cast<DictionaryAttr>(inputs[argument.getArgNumber()]).getAs<ArrayAttr>("dims");
    if (!names || *position < 0 || *position >= static_cast<int64_t>(names.size()))
      return std::nullopt;
    auto range = bounds.getAs<DenseI64ArrayAttr>(cast<StringAttr>(names[*position]).getValue());
    return range ? std::optional(range[1]) : std::nullopt;
  }

  /// The greatest value of a size, which is never negative, through what sizes
  /// are made of.
  std::optional<int64_t> greatest(Value size, unsigned depth = 0) {
    APInt constant;
    if (matchPattern(size, m_ConstantInt(&constant)))
      return constant.getSExtValue();
    Operation *op = size.getDefiningOp();
    if (!op || depth == 8)
      return std::nullopt;
    if (auto dim = dyn_cast<memref::DimOp>(op))
      return boundOf(dim);
    if (!isa<arith::AddIOp, arith::MulIOp, arith::CeilDivUIOp, arith::DivUIOp>(op))
      return std::nullopt;
    std::optional<int64_t> x = greatest(op->getOperand(0), depth + 1), y = greatest(op->getOperand(1), depth + 1);
    int64_t result;
    if (!x || !y || *x < 0 || *y < 0)
      return std::nullopt;
    if (isa<arith::AddIOp>(op))
      return llvm::AddOverflow(*x, *y, result) ? std::nullopt : std::optional(result);
    if (isa<arith::MulIOp>(op))
      return llvm::MulOverflow(*x, *y, result) ? std::nullopt : std::optional(result);
    // A divisor that is no constant may be less than its greatest value.
    if (*y < 1 || !matchPattern(op->getOperand(1), m_ConstantInt(&constant)))
      return std::nullopt;
    return isa<arith::DivUIOp>(op) ? *x / *y : llvm::divideCeil(*x, *y);
  }

  /// The greatest sizes of the factors, where the entry's bounds tell.
  void findBounds() {
    for (Value value : values)
      upper.push_back(greatest(value));
  }

  /// Adds the greatest size of a group of `total` units to `bytes`; nullopt for
  /// one that has none.
  void addGreatest(ArrayRef<unsigned> factors, int64_t total, std::optional<int64_t> &bytes) {
    int64_t unit = 1;
    bool fits = true;
    for (unsigned factor : factors) {
      fits &= upper[factor].has_value();
      fits = fits && !llvm::MulOverflow(unit, *upper[factor], unit);
    }
    if (!factors.empty())
      fits = fits && !llvm::AddOverflow(unit, int64_t(15), unit);
    unit = factors.empty() ? unit : unit & -16;
    if (!fits || !bytes || llvm::MulOverflow(unit, total, unit) || llvm::AddOverflow(*bytes, unit, *bytes))
      bytes = std::nullopt;
  }

  /// Gives each op its place in the code, and the place where its regions end.
  void number(Block &block) {
    for (Operation &op : block) {
      positions[&op] = operations.size();
      operations.push_back(&op);
      for (Region &region : op.getRegions())
        for (Block &inner : region)
          number(inner);
      ends[&op] = operations.size() - 1;
    }
  }

  /// Multiplies `size` into the buffer's bytes, taken apart into factors.
  void factorize(Value size, Buffer &buffer) {
    APInt constant;
    if (matchPattern(size, m_ConstantInt(&constant)))
      return buffer.bytes.multiply(constant.getSExtValue());
    if (auto multiply = size.getDefiningOp<arith::MulIOp>()) {
      factorize(multiply.getLhs(), buffer);
      return factorize(multiply.getRhs(), buffer);
    }
    if (auto apply = size.getDefiningOp<affine::AffineApplyOp>())
      if (factorize(apply.getAffineMap().getResult(0), apply, buffer))
        return;
    Operation *def = size.getDefiningOp();
    int64_t ready = def ? positions[def] : -1;
    if (size.getParentBlock() != &entry.getBody().front())
      ready = std::numeric_limits<int64_t>::max();
    buffer.ready = std::max(buffer.ready, ready);
    auto [entry, inserted] = numbers.try_emplace(size, values.size());
    if (inserted)
      values.push_back(size);
    buffer.bytes.factors.push_back(entry->second);
  }

  /// The same for a product of symbols and constants; false, and nothing done,
  /// for any other expression.
  bool factorize(AffineExpr expr, affine::AffineApplyOp apply, Buffer &buffer) {
    bool isProduct = true;
    expr.walk([&](AffineExpr part) {
      isProduct &= part.getKind() == AffineExprKind::Mul || part.getKind() == AffineExprKind::Constant ||
                   isa<AffineDimExpr, AffineSymbolExpr>(part);
    });
    if (!isProduct)
      return false;
    expr.walk([&](AffineExpr part) {
      if (auto constant = dyn_cast<AffineConstantExpr>(part))
        buffer.bytes.multiply(constant.getValue());
      else if (auto dim = dyn_cast<AffineDimExpr>(part))
        factorize(apply.getDimOperands()[dim.getPosition()], buffer);
      else if (auto symbol = dyn_cast<AffineSymbolExpr>(part))
        factorize(apply.getSymbolOperands()[symbol.getPosition()], buffer);
    });
    return true;
  }

  using Group = std::pair<ArrayRef<unsigned>, SmallVector<Buffer *>>;

  /// Largest first, each at the lowest place that is free during its life.
  /// Returns the group's size in units.
  static int64_t placeGroup(MutableArrayRef<Buffer *> group, int64_t unit) {
    SmallVector<Buffer *> order(group.begin(), group.end());
    for (Buffer *buffer : order)
      buffer->size = llvm::alignTo(std::max<int64_t>(buffer->bytes.coefficient, 1), unit);
    llvm::sort(order, [](Buffer *a, Buffer *b) {
      return std::make_tuple(-a->size, a->first, a->number) < std::make_tuple(-b->size, b->first, b->number);
    });
    SmallVector<Buffer *> placed; // by offset
    int64_t total = 0;
    for (Buffer *buffer : order) {
      int64_t at = 0;
      for (Buffer *other : placed) {
        if (other->last < buffer->first || buffer->last < other->first)
          continue;
        if (at + buffer->size <= other->offset)
          break;
        at = std::max(at, other->offset + other->size);
      }
      buffer->offset = at;
      total = std::max(total, at + buffer->size);
      placed.insert(llvm::upper_bound(placed, buffer, [](Buffer *a, Buffer *b) { return a->offset < b->offset; }),
                    buffer);
    }
    return total;
  }

  Value constant(int64_t value) { return arith::ConstantIndexOp::create(b, entry.getLoc(), value); }

  /// Whether `size` may be negative, as one is that a branch computes which a run does not take.
  static bool mayBeNegative(Value size, unsigned depth = 0) {
    constexpr unsigned kMostDepth = 8;
    APInt number;
    if (matchPattern(size, m_ConstantInt(&number)))
      return number.isNegative();
    Operation *op = size.getDefiningOp();
    if (isa_and_nonnull<memref::DimOp>(op))
      return false;
    bool keepsSign = isa_and_nonnull<arith::AddIOp, arith::MulIOp, arith::DivUIOp, arith::CeilDivUIOp>(op);
    if (auto apply = dyn_cast_or_null<affine::AffineApplyOp>(op)) {
      keepsSign = true;
      apply.getAffineMap().getResult(0).walk([&](AffineExpr part) {
        auto constant = dyn_cast<AffineConstantExpr>(part);
        keepsSign &= !constant || constant.getValue() >= 0;
      });
    }
    return !keepsSign || depth == kMostDepth ||
           llvm::any_of(op->getOperands(), [&](Value operand) { return mayBeNegative(operand, depth + 1); });
  }

  /// The product of `factors`, rounded up to 16 so that multiples of 4 bytes
  /// of it are multiples of 64; as a double in `approximate`.
  Value unitOf(ArrayRef<unsigned> factors, Value &approximate) {
    Location loc = entry.getLoc();
    approximate = arith::ConstantOp::create(b, loc, b.getF64FloatAttr(1.0));
    if (factors.empty())
      return constant(1);
    Value unit;
    for (unsigned factor : factors) {
      Value size = values[factor];
      if (mayBeNegative(size))
        size = arith::MaxSIOp::create(b, loc, size, constant(0));
      Value number = arith::IndexCastOp::create(b, loc, b.getI64Type(), size);
      approximate = arith::MulFOp::create(b, loc, approximate, arith::SIToFPOp::create(b, loc, b.getF64Type(), number));
      unit = unit ? arith::MulIOp::create(b, loc, unit, size).getResult() : size;
    }
    approximate = arith::AddFOp::create(b, loc, approximate, arith::ConstantOp::create(b, loc, b.getF64FloatAttr(16)));
    return arith::AndIOp::create(b, loc, arith::AddIOp::create(b, loc, unit, constant(15)), constant(-16));
  }

  void placeGroups(SmallVector<Group> groups, bool isAll) {
    Location loc = entry.getLoc();
    b.setInsertionPoint(pointOp);
    Value base = constant(0), estimate = arith::ConstantOp::create(b, loc, b.getF64FloatAttr(0.0));
    SmallVector<std::pair<Buffer *, Value>> places;
    std::optional<int64_t> greatest = 0;
    for (auto &[factors, group] : groups) {
      int64_t total = placeGroup(group, factors.empty() ? kAlignment : 4);
      addGreatest(factors, total, greatest);
      Value approximate, unit = unitOf(factors, approximate);
      for (Buffer *buffer : group) {
        Value offset = arith::MulIOp::create(b, loc, unit, constant(buffer->offset));
        places.emplace_back(buffer, arith::AddIOp::create(b, loc, base, offset));
      }
      base = arith::AddIOp::create(b, loc, base, arith::MulIOp::create(b, loc, unit, constant(total)));
      Value scaled = arith::MulFOp::create(
          b, loc, approximate, arith::ConstantOp::create(b, loc, b.getF64FloatAttr(static_cast<double>(total))));
      estimate = arith::AddFOp::create(b, loc, estimate, scaled);
    }
    Value bytes = base;
    if (!greatest || *greatest >= int64_t(1) << 62) {
      bytes = fitting(loc, estimate, base);
    } else if (isAll) {
      entry->setAttr(kMaxWorkspaceAttr, b.getI64IntegerAttr(*greatest));
    }
    Value arena = WorkspaceOp::create(b, loc, MemRefType::get({ShapedType::kDynamic}, b.getI8Type()), bytes);
    for (auto [buffer, offset] : places)
      replace(*buffer, arena, offset);
  }

  /// `bytes`, of about `estimate`; sizes whose product does not fit 64 bits ask
  /// for more than there is.
  Value fitting(Location loc, Value estimate, Value bytes) {
    Value limit = arith::ConstantOp::create(b, loc, b.getF64FloatAttr(0x1p62));
    Value fits = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OLT, estimate, limit);
    return arith::SelectOp::create(b, loc, fits, bytes, constant(-1));
  }

  /// A buffer whose size the run computes: its own request, where it is known.
  void requestInPlace(Buffer &buffer) {
    memref::AllocOp alloc = buffer.alloc;
    b.setInsertionPoint(alloc);
    Location loc = alloc.getLoc();
    Value bytes = constant(buffer.bytes.coefficient);
    Value estimate =
        arith::ConstantOp::create(b, loc, b.getF64FloatAttr(static_cast<double>(buffer.bytes.coefficient)));
    for (unsigned factor : buffer.bytes.factors) {
      bytes = arith::MulIOp::create(b, loc, bytes, values[factor]);
      Value number = arith::IndexCastOp::create(b, loc, b.getI64Type(), values[factor]);
      number = arith::SIToFPOp::create(b, loc, b.getF64Type(), number);
      estimate = arith::MulFOp::create(b, loc, estimate, number);
    }
    bytes = fitting(loc, estimate, bytes);
    Value arena = WorkspaceOp::create(b, alloc.getLoc(), MemRefType::get({ShapedType::kDynamic}, b.getI8Type()), bytes);
    if (alloc->getParentOfType<LoopLikeOpInterface>())
      arena.getDefiningOp()->setAttr(kReusedAttr, b.getUnitAttr());
    replace(buffer, arena, constant(0));
  }

  void replace(Buffer &buffer, Value arena, Value offset) {
    memref::AllocOp alloc = buffer.alloc;
    OpBuilder::InsertionGuard guard(b);
    if (alloc->getBlock() != pointOp->getBlock() || pointOp->isBeforeInBlock(alloc))
      b.setInsertionPoint(alloc);
    Value view = memref::ViewOp::create(b, alloc.getLoc(), alloc.getType(), arena, offset, alloc.getDynamicSizes());
    alloc.replaceAllUsesWith(view);
  }

  func::FuncOp entry;
  OpBuilder b;
  Operation *pointOp = nullptr;
  SmallVector<Operation *> operations;
  DenseMap<Operation *, int64_t> positions, ends;
  DenseMap<Value, unsigned> numbers;
  SmallVector<Value> values;
  SmallVector<std::optional<int64_t>> upper; // of each value, where known
  SmallVector<Buffer> buffers;
};

struct PlanMemoryPass : attn::impl::PlanMemoryPassBase<PlanMemoryPass> {
  void runOnOperation() override {
    func::FuncOp function = getOperation();
    if (function.isExternal())
      return;
    if (function->hasAttr(AttnDialect::kEntryAttr)) {
      if (failed(MemoryPlanner(function).run()))
        signalPassFailure();
      return;
    }
    // A kernel runs many times in a run, whose workspace only grows: what it
    // needs is an operand, which its caller has planned, or on the stack.
    WalkResult result = function.walk([](Operation *op) {
      if (!isa<memref::AllocOp, WorkspaceOp>(op))
        return WalkResult::advance();
      op->emitOpError("expects to stand in an entry, not in a kernel");
      return WalkResult::interrupt();
    });
    if (result.wasInterrupted())
      signalPassFailure();
  }
};
} // namespace
