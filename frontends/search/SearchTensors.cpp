#include "frontends/search/SearchTensors.h"
#include "dialects/attn/AttnOps.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace attn;

Value attn::sizeOf(OpBuilder &b, Location loc, Value tensor, int64_t dim) {
  return getValueOrCreateConstantIndexOp(b, loc, tensor::getMixedSize(b, loc, tensor, dim));
}

Value attn::extendMask(OpBuilder &b, Location loc, Value given) {
  auto type = cast<RankedTensorType>(given.getType());
  Type element = type.getElementType();
  TypedAttr one = isa<FloatType>(element) ? TypedAttr(b.getFloatAttr(element, 1)) : b.getIntegerAttr(element, 1);
  OpFoldResult rows = tensor::getMixedSize(b, loc, given, 0), zero = b.getIndexAttr(0), unit = b.getIndexAttr(1);
  Value length = sizeOf(b, loc, given, 1),
        next = arith::AddIOp::create(b, loc, length, arith::ConstantIndexOp::create(b, loc, 1));
  Value column = tensor::EmptyOp::create(b, loc, ArrayRef<OpFoldResult>{rows, unit}, element);
  Value number = arith::ConstantOp::create(b, loc, one);
  column = linalg::FillOp::create(b, loc, number, column).getResult(0);
  Value all = tensor::EmptyOp::create(b, loc, ArrayRef<OpFoldResult>{rows, next}, element);
  SmallVector<OpFoldResult> units{unit, unit};
  all = tensor::InsertSliceOp::create(b, loc, given, all, ArrayRef<OpFoldResult>{zero, zero},
                                      ArrayRef<OpFoldResult>{rows, OpFoldResult(length)}, units);
  return tensor::InsertSliceOp::create(b, loc, column, all, ArrayRef<OpFoldResult>{zero, OpFoldResult(length)},
                                       ArrayRef<OpFoldResult>{rows, unit}, units);
}

Value attn::countOnes(OpBuilder &b, Location loc, Value mask, OpFoldResult rows) {
  Type element = cast<RankedTensorType>(mask.getType()).getElementType();
  Value empty = tensor::EmptyOp::create(b, loc, ArrayRef<OpFoldResult>{rows}, element);
  Value zero = arith::ConstantOp::create(b, loc, b.getIntegerAttr(element, 0));
  Value sums = linalg::FillOp::create(b, loc, zero, empty).getResult(0);
  auto rowMap = AffineMap::get(2, 0, b.getAffineDimExpr(0));
  return linalg::GenericOp::create(b, loc, sums.getType(), mask, sums, {b.getMultiDimIdentityMap(2), rowMap},
                                   {utils::IteratorType::parallel, utils::IteratorType::reduction},
                                   [](OpBuilder &body, Location at, ValueRange args) {
                                     Value sum = arith::AddIOp::create(body, at, args[0], args[1]);
                                     linalg::YieldOp::create(body, at, sum);
                                   })
      .getResult(0);
}

Value attn::lastPosition(OpBuilder &b, Location loc, Value scores, StringRef maker) {
  auto type = cast<RankedTensorType>(scores.getType());
  OpFoldResult rows = tensor::getMixedSize(b, loc, scores, 0), one = b.getIndexAttr(1), zero = b.getIndexAttr(0);
  Value count = sizeOf(b, loc, scores, 1), unit = arith::ConstantIndexOp::create(b, loc, 1);
  Value some = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sge, count, unit);
  RequireOp::create(b, loc, some, "search: '" + maker.str() + "' returned the scores of {0} positions",
                    ValueRange{count});
  OpFoldResult last = arith::SubIOp::create(b, loc, count, unit).getResult();
  return tensor::ExtractSliceOp::create(b, loc,
                                        RankedTensorType::get({type.getDimSize(0), type.getDimSize(2)}, b.getF32Type()),
                                        scores, ArrayRef<OpFoldResult>{zero, last, zero},
                                        ArrayRef<OpFoldResult>{rows, one, tensor::getMixedSize(b, loc, scores, 2)},
                                        ArrayRef<OpFoldResult>{one, one, one});
}

Value attn::mostAligned(OpBuilder &b, Location loc, Value weights) {
  auto type = cast<RankedTensorType>(weights.getType());
  int64_t rank = type.getRank();
  SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(b, loc, weights);
  sizes.pop_back();
  auto filled = [&](TypedAttr number) {
    Value empty = tensor::EmptyOp::create(b, loc, sizes, number.getType());
    Value constant = arith::ConstantOp::create(b, loc, number);
    return linalg::FillOp::create(b, loc, constant, empty).getResult(0);
  };
  Value inits[] = {filled(b.getF32FloatAttr(0)), filled(b.getI64IntegerAttr(-1))};
  AffineMap all = b.getMultiDimIdentityMap(rank), kept = all.dropResult(rank - 1);
  SmallVector<utils::IteratorType> loops(rank, utils::IteratorType::parallel);
  loops.back() = utils::IteratorType::reduction;
  auto most = linalg::GenericOp::create(b, loc, TypeRange{inits[0].getType(), inits[1].getType()}, weights, inits,
                                        {all, kept, kept}, loops, [&](OpBuilder &body, Location at, ValueRange args) {
                                          Value place = linalg::IndexOp::create(body, at, rank - 1);
                                          Value here = arith::IndexCastOp::create(body, at, body.getI64Type(), place);
                                          Value more = arith::CmpFOp::create(body, at, arith::CmpFPredicate::OGT,
                                                                             args[0], args[1]);
                                          Value weight = arith::SelectOp::create(body, at, more, args[0], args[1]);
                                          Value position = arith::SelectOp::create(body, at, more, here, args[2]);
                                          linalg::YieldOp::create(body, at, ValueRange{weight, position});
                                        });
  return most.getResult(1);
}
