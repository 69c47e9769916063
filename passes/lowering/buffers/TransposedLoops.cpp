#include "passes/lowering/buffers/TransposedLoops.h"

#include "builders/Lanes.h"
#include "dialects/attn/AttnOps.h"
#include "passes/lowering/buffers/BodyEmitter.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;

namespace attn {
namespace {

/// Whether all operands lie along `loop` or are the same there, with a vector form of the body.
bool liesAlong(linalg::GenericOp op, unsigned loop) {
  BodyEmitter body(op, loop);
  bool any = false;
  for (unsigned input = 0; input < static_cast<unsigned>(op.getNumDpsInputs()); ++input) {
    if (body.accessOf(input) != Access::Contiguous && body.accessOf(input) != Access::Same)
      return false;
    any |= body.accessOf(input) == Access::Contiguous;
  }
  return any && body.canVectorize() && !body.mayTrap() && body.numGathers() == 0;
}

} // namespace

std::optional<TransposedLoops> TransposedLoops::match(linalg::GenericOp op, int64_t lanes) {
  if (op.getNumDpsInits() != 1 || op.getNumParallelLoops() != op.getNumLoops() || lanes < 4 ||
      op.payloadUsesValueFromOperand(op.getDpsInitOperand(0)))
    return std::nullopt;
  Type element = getElementTypeOrSelf(op.getDpsInits().front().getType());
  if (!element.isIntOrFloat() || element.getIntOrFloatBitWidth() != 32)
    return std::nullopt;
  SmallVector<int64_t> sizes = op.getStaticLoopRanges();
  unsigned output = op.getDpsInitOperand(0)->getOperandNumber();
  auto mayBeSide = [&](unsigned loop) { return ShapedType::isDynamic(sizes[loop]) || sizes[loop] >= lanes; };
  std::optional<unsigned> along, across;
  for (unsigned loop = 0; loop < op.getNumLoops(); ++loop) {
    if (!mayBeSide(loop))
      continue;
    Access access = BodyEmitter(op, loop).accessOf(output);
    if (access == Access::Contiguous && !liesAlong(op, loop))
      across = loop;
    else if (access == Access::Strided && liesAlong(op, loop))
      along = loop;
  }
  if (!along || !across)
    return std::nullopt;
  return TransposedLoops(op, lanes, *along, *across);
}

/// The loops around strips of `lanes` rows of the output, in parallel where there is enough to do.
void TransposedLoops::emit(int64_t mostWork) {
  OpBuilder b(op);
  Location loc = op.getLoc();
  auto number = [&](int64_t value) -> Value { return arith::ConstantIndexOp::create(b, loc, value); };
  SmallVector<Value> sizes;
  for (Range range : cast<linalg::LinalgOp>(op.getOperation()).createLoopRanges(b, loc))
    sizes.push_back(getValueOrCreateConstantIndexOp(b, loc, range.size));
  SmallVector<unsigned> outer;
  for (unsigned loop = 0; loop < sizes.size(); ++loop)
    if (loop != along && loop != across)
      outer.push_back(loop);
  Value strips = b.createOrFold<arith::CeilDivUIOp>(loc, sizes[along], number(lanes)), count = strips;
  for (unsigned loop : outer)
    count = b.createOrFold<arith::MulIOp>(loc, count, sizes[loop]);
  auto body = [&](Value rest) {
    SmallVector<Value> indices(sizes.size());
    Value strip = b.createOrFold<arith::RemUIOp>(loc, rest, strips);
    rest = b.createOrFold<arith::DivUIOp>(loc, rest, strips);
    indices[along] = b.createOrFold<arith::MulIOp>(loc, strip, number(lanes));
    for (unsigned loop : llvm::reverse(outer)) {
      indices[loop] = b.createOrFold<arith::RemUIOp>(loc, rest, sizes[loop]);
      rest = b.createOrFold<arith::DivUIOp>(loc, rest, sizes[loop]);
    }
    emitStrip(b, indices, sizes);
  };
  int64_t row = getConstantIntValue(sizes[across]).value_or(kUnknownSize);
  int64_t least = std::max<int64_t>(2, llvm::divideCeil(mostWork, row * lanes * BodyEmitter(op, -1).costOfBody()));
  std::optional<int64_t> known = getConstantIntValue(count);
  OpBuilder::InsertionGuard guard(b);
  if ((known && *known < least) || op->getParentOfType<scf::ParallelOp>()) {
    auto loop = scf::ForOp::create(b, loc, number(0), count, number(1));
    b.setInsertionPointToStart(loop.getBody());
    return body(loop.getInductionVar());
  }
  auto loop = scf::ParallelOp::create(b, loc, ValueRange{number(0)}, ValueRange{count}, ValueRange{number(1)});
  loop->setAttr(AttnDialect::kMinIterationsAttr, b.getI64IntegerAttr(least));
  b.setInsertionPointToStart(loop.getBody());
  body(loop.getInductionVars()[0]);
}

/// `lanes` rows of the output, square by square; what is left of one is made point by point.
void TransposedLoops::emitStrip(OpBuilder &b, SmallVector<Value> indices, ArrayRef<Value> sizes) {
  Location loc = op.getLoc();
  Value side = arith::ConstantIndexOp::create(b, loc, lanes);
  auto loop = scf::ForOp::create(b, loc, arith::ConstantIndexOp::create(b, loc, 0), sizes[across], side);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  indices[across] = loop.getInductionVar();
  Value isWhole;
  SmallVector<Value> ends(sizes.size());
  for (unsigned dim : {along, across}) {
    Value end = b.createOrFold<arith::AddIOp>(loc, indices[dim], side);
    ends[dim] = b.createOrFold<arith::MinUIOp>(loc, end, sizes[dim]);
    if (std::optional<int64_t> size = getConstantIntValue(sizes[dim]); size && *size % lanes == 0)
      continue;
    Value fits = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ule, end, sizes[dim]);
    isWhole = isWhole ? arith::AndIOp::create(b, loc, isWhole, fits).getResult() : fits;
  }
  if (!isWhole)
    return emitSquare(b, indices);
  scf::IfOp::create(
      b, loc, isWhole,
      [&](OpBuilder &inner, Location at) {
        emitSquare(inner, indices);
        scf::YieldOp::create(inner, at);
      },
      [&](OpBuilder &inner, Location at) {
        emitPoints(inner, indices, ends);
        scf::YieldOp::create(inner, at);
      });
}

void TransposedLoops::emitSquare(OpBuilder &b, SmallVector<Value> indices) {
  Location loc = op.getLoc();
  BodyEmitter reader(op, along), writer(op, across);
  auto next = [&](Value index, int64_t n) {
    return b.createOrFold<arith::AddIOp>(loc, index, arith::ConstantIndexOp::create(b, loc, n));
  };
  Value first = indices[across], row = indices[along];
  SmallVector<Vec> rows;
  for (int64_t n = 0; n < lanes; ++n) {
    indices[across] = next(first, n);
    rows.push_back(Vec(b, loc, reader.emit({b, indices, lanes, Value(), {}}).front()));
  }
  indices[across] = first;
  for (auto [n, column] : llvm::enumerate(transpose(rows))) {
    indices[along] = next(row, static_cast<int64_t>(n));
    writer.storeOutput({b, indices, lanes, Value(), {}}, 0, column.value());
  }
}

void TransposedLoops::emitPoints(OpBuilder &b, SmallVector<Value> indices, ArrayRef<Value> ends) {
  Location loc = op.getLoc();
  Value one = arith::ConstantIndexOp::create(b, loc, 1);
  OpBuilder::InsertionGuard guard(b);
  for (unsigned dim : {along, across}) {
    auto loop = scf::ForOp::create(b, loc, indices[dim], ends[dim], one);
    b.setInsertionPointToStart(loop.getBody());
    indices[dim] = loop.getInductionVar();
  }
  BodyEmitter body(op, -1);
  BodyEmitter::Point point{b, indices, 1, Value(), {}};
  body.storeOutput(point, 0, body.emit(point).front());
}

} // namespace attn
