// What becomes of the sums of a tile.

#include "passes/kernels/cpu/GemmEmitter.h"
#include "passes/kernels/cpu/RegionVectorizer.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;

namespace attn {

void GemmEmitter::forPanelColumns(function_ref<void(int64_t)> emitColumns) {
  int64_t rest = ShapedType::isDynamic(spec.n) ? ShapedType::kDynamic : spec.n % width;
  if (rest == 0)
    return emitColumns(width);
  if (spec.numPanels() == 1)
    return emitColumns(rest);
  Value last = arith::SubIOp::create(b, loc, numPanels, constant(1));
  Value isLast = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, panel, last);
  auto choice = scf::IfOp::create(b, loc, isLast, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(choice.thenBlock());
  emitColumns(rest);
  b.setInsertionPointToStart(choice.elseBlock());
  emitColumns(width);
}

/// The vectors that hold `count` columns: all that a panel has where only the
/// run knows.
int64_t GemmEmitter::vectorsOf(int64_t count) const {
  return ShapedType::isDynamic(count) ? spec.tileVectors : llvm::divideCeil(count, spec.lanes);
}

void GemmEmitter::emitDirect(int64_t height, ArrayRef<Value> sums) {
  forPanelColumns([&](int64_t count) {
    for (int64_t r = 0; r < height; ++r)
      for (int64_t v = 0; v < vectorsOf(count); ++v)
        emitElement(add(row, constant(r)), v, count, sums[r * spec.tileVectors + v]);
  });
}

void GemmEmitter::emitStaged() {
  scf::ForOp loop = createLoop(zero, tileHeight, ValueRange());
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value r = loop.getInductionVar(), at = add(row, r);
  forPanelColumns([&](int64_t count) {
    for (int64_t v = 0; v < vectorsOf(count); ++v) {
      Value sum = vector::LoadOp::create(b, loc, vectorType, scratch, ValueRange{r, constant(v * spec.lanes)});
      emitElement(at, v, count, sum);
    }
  });
}

Value GemmEmitter::load(Value buffer, ValueRange indices, Value mask) {
  if (!mask)
    return vector::LoadOp::create(b, loc, vectorType, buffer, indices);
  Value none = arith::ConstantOp::create(b, loc, b.getZeroAttr(vectorType));
  return vector::MaskedLoadOp::create(b, loc, vectorType, buffer, indices, mask, none);
}

/// Applies the epilogue to the vector `vectorNumber` of a row whose panel has
/// `count` columns, and stores it.
void GemmEmitter::emitElement(Value row, int64_t vectorNumber, int64_t count, Value sum) {
  int64_t first = vectorNumber * spec.lanes;
  Value column = add(firstColumn, constant(first));
  Value mask;
  auto maskType = VectorType::get({spec.lanes}, b.getI1Type());
  if (ShapedType::isDynamic(count)) // what is left may be less than nothing: no lane then
    mask = vector::CreateMaskOp::create(b, loc, maskType, ValueRange{arith::SubIOp::create(b, loc, columns, column)});
  else if (count - first < spec.lanes)
    mask = vector::ConstantMaskOp::create(b, loc, maskType, ArrayRef<int64_t>{count - first});
  Value result = sum;
  if (spec.epilogue) {
    SmallVector<Value> arguments;
    for (auto [kind, buffer] : llvm::zip_equal(spec.operands, operands)) {
      if (arguments.size() == spec.accumulator)
        arguments.push_back(sum);
      switch (kind) {
      case EpilogueOperand::Scalar:
        arguments.push_back(memref::LoadOp::create(b, loc, buffer, ValueRange()));
        break;
      case EpilogueOperand::RowVector:
        arguments.push_back(load(buffer, {column}, mask));
        break;
      case EpilogueOperand::Column:
        arguments.push_back(memref::LoadOp::create(b, loc, buffer, row));
        break;
      case EpilogueOperand::Full:
        arguments.push_back(load(buffer, {row, column}, mask));
        break;
      }
    }
    // The accumulator when it comes last, then what nothing uses.
    arguments.resize(spec.epilogue->getNumArguments(), sum);
    result = *vectorizeBlock(b, *spec.epilogue, arguments, spec.lanes, nullptr);
  }
  if (spec.hasNarrowResult)
    result = arith::TruncFOp::create(b, loc, VectorType::get({spec.lanes}, b.getBF16Type()), result);
  if (mask)
    vector::MaskedStoreOp::create(b, loc, c, ValueRange{row, column}, mask, result);
  else
    vector::StoreOp::create(b, loc, result, c, ValueRange{row, column});
}

} // namespace attn
