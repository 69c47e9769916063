#include "dialects/attn/AttnOps.h"
#include "passes/Passes.h"
#include "passes/graph/Collect.h"
#include "passes/lowering/buffers/BodyEmitter.h"
#include "passes/lowering/buffers/CollapseLoops.h"
#include "passes/lowering/buffers/LaneReductions.h"
#include "passes/lowering/buffers/LoopPlan.h"
#include "passes/lowering/buffers/StartOfSums.h"
#include "passes/lowering/buffers/StreamedStores.h"
#include "passes/lowering/buffers/TransposedLoops.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Linalg/Transforms/Transforms.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/Support/MathExtras.h"

namespace attn {
#define GEN_PASS_DEF_VECTORIZELINALGPASS
#include "passes/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

namespace {
// Work that pays for waking the other threads (0.3 us), in additions on one lane.
constexpr int64_t kParallelWork = 32 << 10;
// A row of so many elements may end with a fence.
constexpr int64_t kStreamedRow = 4096;

class LoopEmitter : LoopPlan {
public:
  /// Sums start from `starts`, one per output, or where it is null from what stands in the output.
  LoopEmitter(linalg::GenericOp op, TargetAttr target, const StreamedOutputs &streamed, ArrayRef<Value> starts)
      : LoopPlan(op, target), streamed(streamed), starts(starts), b(op), loc(op.getLoc()) {}

  void run() {
    for (auto [number, start] : llvm::enumerate(starts))
      if (start)
        emitter->startFrom(number, start);
    zero = arith::ConstantIndexOp::create(b, loc, 0);
    one = arith::ConstantIndexOp::create(b, loc, 1);
    emitOuter(SmallVector<Value>(sizes.size(), zero));
  }

private:
  int64_t sizeGuess(int64_t loop) { return std::max<int64_t>(staticSize(loop).value_or(kUnknownSize), 1); }
  Value sizeOf(int64_t loop) { return getValueOrCreateConstantIndexOp(b, loc, sizes[loop]); }

  int64_t workOf(ArrayRef<unsigned> loops) {
    double work = static_cast<double>(emitter->costOfBody());
    for (unsigned loop : loops)
      work *= sizeGuess(loop);
    if (vectorLoop >= 0)
      work *= static_cast<double>(sizeGuess(vectorLoop)) / lanes;
    for (unsigned loop : inner)
      work *= sizeGuess(loop);
    return static_cast<int64_t>(std::min(work + 1, 1e15));
  }

  /// Runs `body` for every point of the outer parallel loops, in parallel where there is enough to do.
  void emitOuter(SmallVector<Value> indices) {
    if (outer.empty() && vectorLoop >= 0 && !vectorReduces && reductions.empty())
      return emitBlocks(indices);
    bool known = true;
    int64_t rows = 1;
    for (unsigned loop : outer) {
      known &= staticSize(loop).has_value();
      rows *= std::min<int64_t>(sizeGuess(loop), 1 << 20);
    }
    int64_t rowWork = workOf(reductions) * 16 / std::max<int64_t>(lanes, 1);
    // Few long rows are cut.
    int64_t piece = pieceSize(), size = vectorLoop < 0 ? 0 : staticSize(vectorLoop).value_or(0);
    int64_t pieces = vectorReduces || !reductions.empty() || size < 2 * piece ? 1 : llvm::divideCeil(size, piece);
    rows *= pieces;
    rowWork = llvm::divideCeil(rowWork, pieces);
    int64_t minRows = std::max<int64_t>(2, llvm::divideCeil(kParallelWork / 16, rowWork));
    if (outer.empty() || (known && rows < minRows) || op->getParentOfType<scf::ParallelOp>())
      return emitSerial(indices, 0);

    Value count = sizeOf(outer[0]);
    SmallVector<Value> extents{count};
    for (unsigned loop : ArrayRef(outer).drop_front()) {
      extents.push_back(sizeOf(loop));
      count = arith::MulIOp::create(b, loc, count, extents.back());
    }
    if (pieces > 1)
      count = arith::MulIOp::create(b, loc, count, arith::ConstantIndexOp::create(b, loc, pieces));
    auto parallel = scf::ParallelOp::create(b, loc, ValueRange{zero}, ValueRange{count}, ValueRange{one});
    parallel->setAttr(AttnDialect::kMinIterationsAttr, b.getI64IntegerAttr(minRows));
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(parallel.getBody());
    Value rest = parallel.getInductionVars()[0], begin;
    if (pieces > 1) {
      Value number = arith::ConstantIndexOp::create(b, loc, pieces);
      begin = arith::RemUIOp::create(b, loc, rest, number);
      rest = arith::DivUIOp::create(b, loc, rest, number);
    }
    for (size_t i = outer.size(); i-- > 1;) {
      indices[outer[i]] = arith::RemUIOp::create(b, loc, rest, extents[i]);
      rest = arith::DivUIOp::create(b, loc, rest, extents[i]);
    }
    indices[outer[0]] = rest;
    if (pieces > 1)
      emitPiece(indices, begin, piece, sizeOf(vectorLoop));
    else
      emitRow(indices);
  }

  int64_t pieceSize() {
    return llvm::alignTo(std::clamp<int64_t>(kParallelWork / emitter->costOfBody(), 512, 1 << 16), 64);
  }

  void emitPiece(SmallVector<Value> indices, Value number, int64_t piece, Value size) {
    Value step = arith::ConstantIndexOp::create(b, loc, piece);
    Value begin = arith::MulIOp::create(b, loc, number, step);
    emitVectorLoop(indices, begin, arith::MinUIOp::create(b, loc, arith::AddIOp::create(b, loc, begin, step), size));
  }

  /// One vectorised loop and no other: pieces of it in parallel.
  void emitBlocks(SmallVector<Value> indices) {
    int64_t piece = pieceSize();
    Value size = sizeOf(vectorLoop);
    if ((staticSize(vectorLoop) && *staticSize(vectorLoop) <= piece) || op->getParentOfType<scf::ParallelOp>())
      return emitVectorLoop(indices, zero, size);
    Value step = arith::ConstantIndexOp::create(b, loc, piece);
    Value pieces = arith::CeilDivUIOp::create(b, loc, size, step);
    auto parallel = scf::ParallelOp::create(b, loc, ValueRange{zero}, ValueRange{pieces}, ValueRange{one});
    parallel->setAttr(AttnDialect::kMinIterationsAttr, b.getI64IntegerAttr(2));
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(parallel.getBody());
    emitPiece(indices, parallel.getInductionVars()[0], piece, size);
  }

  void emitSerial(SmallVector<Value> indices, size_t depth) {
    if (depth == outer.size())
      return emitRow(indices);
    auto loop = scf::ForOp::create(b, loc, zero, sizeOf(outer[depth]), one);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    indices[outer[depth]] = loop.getInductionVar();
    emitSerial(indices, depth + 1);
  }

  /// All that remains when the outer parallel loops are fixed, but for `depth` inner ones.
  void emitRow(SmallVector<Value> indices, size_t depth = 0) {
    if (depth + 1 == inner.size() && slides())
      return emitWindows(indices, inner[depth]);
    if (depth < inner.size())
      return emitFor(zero, sizeOf(inner[depth]), one, [&](Value index) {
        indices[inner[depth]] = index;
        emitRow(indices, depth + 1);
      });
    if (vectorLoop < 0)
      return emitPoint(indices, 1, Value());
    if (vectorReduces)
      return emitReduction(indices);
    std::optional<int64_t> size = staticSize(vectorLoop);
    if (!reductions.empty() && size && *size % lanes == 0 && *size > lanes && *size <= kMostBlocks * lanes &&
        emitter->costOfBody() >= kLongBody) {
      indices[vectorLoop] = zero;
      return emitPoints(indices, vectorLoop, lanes, *size / lanes, lanes, Value());
    }
    emitVectorLoop(indices, zero, sizeOf(vectorLoop));
  }

  /// All rows of `loop`, those of a group at once.
  void emitWindows(SmallVector<Value> indices, unsigned loop) {
    Value size = sizeOf(loop), group = arith::ConstantIndexOp::create(b, loc, kWindowRows);
    Value stop = b.createOrFold<arith::AndIOp>(loc, size, arith::ConstantIndexOp::create(b, loc, -kWindowRows));
    emitFor(zero, stop, group, [&](Value index) {
      indices[loop] = index;
      groupedLoop = loop;
      emitVectorLoop(indices, zero, sizeOf(vectorLoop));
      groupedLoop.reset();
    });
    emitFor(stop, size, one, [&](Value index) {
      indices[loop] = index;
      emitVectorLoop(indices, zero, sizeOf(vectorLoop));
    });
  }

  /// `count` points that lie `step` apart along `loop`, each a sum: what they share of a term, a weight or the place of
  /// a sample for instance, is computed once.
  void emitPoints(ArrayRef<Value> indices, unsigned loop, int64_t step, int64_t count, int64_t width, Value mask) {
    SmallVector<Value> places, results;
    for (int64_t n = 0; n != count; ++n)
      places.push_back(
          b.createOrFold<arith::AddIOp>(loc, indices[loop], arith::ConstantIndexOp::create(b, loc, n * step)));
    auto pointOf = [&](SmallVector<Value> &at, int64_t n, ArrayRef<Value> accumulators) {
      at[loop] = places[n];
      return BodyEmitter::Point{b, at, width, mask, accumulators};
    };
    SmallVector<Value> at(indices);
    size_t inits = op.getNumDpsInits();
    for (int64_t n = 0; n != count; ++n)
      for (size_t i = 0; i != inits; ++i)
        results.push_back(emitter->loadOutput(pointOf(at, n, {}), i));
    results = emitReductions(at, 0, results, [&](ArrayRef<Value> inner, ArrayRef<Value> accumulators) {
      SmallVector<Value> at(inner), next;
      emitter->emitInvariants({b, at, 1, Value(), {}}, {static_cast<unsigned>(vectorLoop), loop});
      for (int64_t n = 0; n != count; ++n)
        llvm::append_range(next, emitter->emit(pointOf(at, n, accumulators.slice(n * inits, inits))));
      emitter->dropInvariants();
      return next;
    });
    for (auto [n, result] : llvm::enumerate(results))
      emitter->storeOutput(pointOf(at, n / inits, {}), n % inits, result);
  }

  void emitVectorLoop(SmallVector<Value> indices, Value begin, Value end) {
    if (reductions.empty())
      emitter->emitInvariants({b, indices, 1, Value(), {}}, static_cast<unsigned>(vectorLoop));
    Value width = arith::ConstantIndexOp::create(b, loc, lanes);
    std::optional<int64_t> size = staticSize(vectorLoop);
    bool exact = lanes == 1 || (size && *size % lanes == 0);
    Value stop = exact || masked ? end : roundDown(begin, end);
    bool streams = exact && size.value_or(0) >= kStreamedRow && reductions.empty() && streamOutputs();
    emitFor(begin, stop, width, [&](Value index) {
      indices[vectorLoop] = index;
      Value mask;
      if (masked && !exact)
        mask = maskOf(index, end);
      emitPoint(indices, lanes, mask);
    });
    if (streams) // whoever learns that this row is done sees it
      LLVM::FenceOp::create(b, loc, LLVM::AtomicOrdering::seq_cst);
    if (!exact && !masked)
      emitFor(stop, end, one, [&](Value index) {
        indices[vectorLoop] = index;
        emitPoint(indices, 1, Value());
      });
    emitter->dropInvariants();
  }

  /// Stores past the caches what goes to outputs that nobody reads before the run ends; false where there is none.
  bool streamOutputs() {
    bool any = false;
    for (int64_t i = 0; i < op.getNumDpsInits(); ++i)
      if (emitter->accessOf(op.getDpsInitOperand(i)->getOperandNumber()) == Access::Contiguous &&
          streamed.has(op, i, lanes)) {
        emitter->stream(i);
        any = true;
      }
    return any;
  }

  /// The last multiple of the vector width after `begin` that is no more than `end`.
  Value roundDown(Value begin, Value end) {
    Value length = arith::SubIOp::create(b, loc, end, begin);
    Value whole = arith::AndIOp::create(b, loc, length, arith::ConstantIndexOp::create(b, loc, -lanes));
    return arith::AddIOp::create(b, loc, begin, whole);
  }

  Value maskOf(Value index, Value end) {
    Value left = arith::SubIOp::create(b, loc, end, index);
    return vector::CreateMaskOp::create(b, loc, VectorType::get({lanes}, b.getI1Type()), ValueRange{left});
  }

  void emitFor(Value begin, Value end, Value step, llvm::function_ref<void(Value)> body) {
    auto loop = scf::ForOp::create(b, loc, begin, end, step);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    body(loop.getInductionVar());
  }

  /// Reads, reduces and writes the outputs at one point of the parallel loops.
  void emitPoint(SmallVector<Value> indices, int64_t width, Value mask) {
    if (groupedLoop)
      return emitPoints(indices, *groupedLoop, 1, kWindowRows, width, mask);
    BodyEmitter::Point point{b, indices, width, mask, {}};
    SmallVector<Value> results;
    if (reductions.empty()) {
      results = emitter->emit(point);
    } else {
      for (int64_t i = 0; i < op.getNumDpsInits(); ++i)
        results.push_back(emitter->loadOutput(point, i));
      results = emitReductions(indices, 0, results, [&](ArrayRef<Value> at, ArrayRef<Value> accumulators) {
        return emitter->emit({b, at, width, mask, accumulators});
      });
    }
    for (auto [i, result] : llvm::enumerate(results))
      emitter->storeOutput(point, i, result);
  }

  using ReductionBody = llvm::function_ref<SmallVector<Value>(ArrayRef<Value>, ArrayRef<Value>)>;

  SmallVector<Value> emitReductions(SmallVector<Value> indices, size_t depth, ArrayRef<Value> accumulators,
                                    ReductionBody body) {
    if (depth == reductions.size())
      return body(indices, accumulators);
    if (unrollsTaps && depth + 1 == reductions.size()) {
      SmallVector<Value> results(accumulators);
      for (int64_t tap = 0; tap != *staticSize(reductions[depth]); ++tap) {
        indices[reductions[depth]] = arith::ConstantIndexOp::create(b, loc, tap);
        results = body(indices, results);
      }
      return results;
    }
    auto loop = scf::ForOp::create(b, loc, zero, sizeOf(reductions[depth]), one, accumulators);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    indices[reductions[depth]] = loop.getInductionVar();
    SmallVector<Value> carried(loop.getRegionIterArgs().begin(), loop.getRegionIterArgs().end());
    scf::YieldOp::create(b, loc, emitReductions(indices, depth + 1, carried, body));
    return SmallVector<Value>(loop.getResults().begin(), loop.getResults().end());
  }

  /// The vectorised loop reduces: lanes have accumulators of their own, which are folded once per row.
  void emitReduction(SmallVector<Value> indices) {
    BodyEmitter::Point scalar{b, indices, 1, Value(), {}};
    SmallVector<Value> results;
    for (int64_t i = 0; i < op.getNumDpsInits(); ++i)
      results.push_back(emitter->loadOutput(scalar, i));
    results = emitReductions(indices, 0, results, [&](ArrayRef<Value> at, ArrayRef<Value> accumulators) {
      return reduceLanes(SmallVector<Value>(at), accumulators);
    });
    for (auto [i, result] : llvm::enumerate(results))
      emitter->storeOutput(scalar, i, result);
  }

  SmallVector<Value> reduceLanes(SmallVector<Value> indices, ArrayRef<Value> accumulators) {
    Value end = sizeOf(vectorLoop);
    std::optional<int64_t> size = staticSize(vectorLoop);
    bool exact = size && *size % lanes == 0;
    Value stop = exact || masked ? end : roundDown(zero, end);
    SmallVector<Value> neutral;
    for (unsigned i = 0; i < accumulators.size(); ++i) {
      auto element = cast<TypedAttr>(*arith::getNeutralElement(combinerOf(op, i)));
      auto type = VectorType::get({lanes}, element.getType());
      neutral.push_back(arith::ConstantOp::create(b, loc, type, DenseElementsAttr::get(type, Attribute(element))));
    }
    auto loop = scf::ForOp::create(b, loc, zero, stop, arith::ConstantIndexOp::create(b, loc, lanes), neutral);
    {
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(loop.getBody());
      indices[vectorLoop] = loop.getInductionVar();
      Value mask = masked && !exact ? maskOf(loop.getInductionVar(), end) : Value();
      SmallVector<Value> carried(loop.getRegionIterArgs().begin(), loop.getRegionIterArgs().end());
      SmallVector<Value> next = emitter->emit({b, indices, lanes, mask, carried});
      if (mask) // lanes beyond the end keep what they have
        for (auto [value, old] : llvm::zip(next, carried))
          value = arith::SelectOp::create(b, loc, mask, value, old);
      scf::YieldOp::create(b, loc, next);
    }
    SmallVector<Value> results;
    for (unsigned i = 0; i < accumulators.size(); ++i) {
      Operation *combiner = combinerOf(op, i);
      bool isFloat = isa<FloatType>(accumulators[i].getType());
      Value folded = vector::ReductionOp::create(b, loc, *kindOf(combiner), loop.getResult(i),
                                                 isFloat ? arith::FastMathFlags::reassoc : arith::FastMathFlags::none);
      IRMapping map;
      map.map(combiner->getOperand(0), accumulators[i]);
      map.map(combiner->getOperand(1), folded);
      if (combiner->getOperand(0) == combiner->getOperand(1))
        llvm_unreachable("the output argument has one use");
      results.push_back(b.clone(*combiner, map)->getResult(0));
    }
    if (exact || masked)
      return results;
    auto tail = scf::ForOp::create(b, loc, stop, end, one, results);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(tail.getBody());
    indices[vectorLoop] = tail.getInductionVar();
    SmallVector<Value> carried(tail.getRegionIterArgs().begin(), tail.getRegionIterArgs().end());
    scf::YieldOp::create(b, loc, emitter->emit({b, indices, 1, Value(), carried}));
    return SmallVector<Value>(tail.getResults().begin(), tail.getResults().end());
  }

  const StreamedOutputs &streamed;
  ArrayRef<Value> starts;
  OpBuilder b;
  Location loc;
  std::optional<unsigned> groupedLoop; // of which a group of rows is written at once
  Value zero, one;
};

struct VectorizeLinalgPass : attn::impl::VectorizeLinalgPassBase<VectorizeLinalgPass> {
  void runOnOperation() override {
    TargetAttr target = TargetAttr::lookup(getOperation());
    llvm::DenseMap<Operation *, SmallVector<Value>> starts;
    for (linalg::LinalgOp op : collect<linalg::LinalgOp>(getOperation()))
      for (int64_t number = 0; number != op.getNumDpsInits(); ++number)
        starts[op].push_back(takeFill(op, number));
    StreamedOutputs streamed(getOperation(), target);
    IRRewriter rewriter(&getContext());
    for (linalg::LinalgOp op : collect<linalg::LinalgOp>(getOperation())) {
      if (!op.hasPureBufferSemantics()) {
        op.emitOpError("expects buffers");
        return signalPassFailure();
      }
      rewriter.setInsertionPoint(op);
      SmallVector<Value> own = starts.lookup(op);
      auto generic = dyn_cast<linalg::GenericOp>(op.getOperation());
      if (!generic) {
        FailureOr<linalg::GenericOp> made = linalg::generalizeNamedOp(rewriter, op);
        if (failed(made)) {
          op.emitOpError("has no form as linalg.generic");
          return signalPassFailure();
        }
        generic = *made;
      }
      generic = collapseLoops(rewriter, generic);
      if (auto transposed = TransposedLoops::match(generic, target.getF32Lanes()))
        transposed->emit(kParallelWork);
      else
        LoopEmitter(generic, target, streamed, own).run();
      rewriter.eraseOp(generic);
    }
  }
};
} // namespace
