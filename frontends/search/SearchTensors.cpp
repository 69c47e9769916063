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
  Value column = filled(b, loc, {rows, unit}, one);
  Value all = tensor::EmptyOp::create(b, loc, ArrayRef<OpFoldResult>{rows, next}, element);
  SmallVector<OpFoldResult> units{unit, unit};
  all = tensor::InsertSliceOp::create(b, loc, given, all, ArrayRef<OpFoldResult>{zero, zero},
                                      ArrayRef<OpFoldResult>{rows, OpFoldResult(length)}, units);
  return tensor::InsertSliceOp::create(b, loc, column, all, ArrayRef<OpFoldResult>{zero, OpFoldResult(length)},
                                       ArrayRef<OpFoldResult>{rows, unit}, units);
}

Value attn::castTensor(OpBuilder &b, Location loc, Value tensor, RankedTensorType type) {
  return tensor.getType() == type ? tensor : tensor::CastOp::create(b, loc, type, tensor).getResult();
}

Value attn::castElements(OpBuilder &b, Location loc, Value tensor, Type element) {
  auto type = cast<RankedTensorType>(tensor.getType());
  unsigned have = type.getElementTypeBitWidth(), want = element.getIntOrFloatBitWidth();
  if (type.getElementType() == element)
    return tensor;
  Value empty = tensor::EmptyOp::create(b, loc, tensor::getMixedSizes(b, loc, tensor), element);
  AffineMap identity = b.getMultiDimIdentityMap(type.getRank());
  SmallVector<utils::IteratorType> loops(type.getRank(), utils::IteratorType::parallel);
  auto body = [&](OpBuilder &in, Location at, ValueRange args) {
    Value x = args[0];
    Value made = isa<FloatType>(element) ? arith::SIToFPOp::create(in, at, element, x).getResult()
                 : want < have           ? arith::TruncIOp::create(in, at, element, x).getResult()
                                         : arith::ExtSIOp::create(in, at, element, x).getResult();
    linalg::YieldOp::create(in, at, made);
  };
  return linalg::GenericOp::create(b, loc, empty.getType(), tensor, empty, {identity, identity}, loops, body)
      .getResult(0);
}

Value attn::filled(OpBuilder &b, Location loc, ArrayRef<OpFoldResult> sizes, TypedAttr number) {
  Value empty = tensor::EmptyOp::create(b, loc, sizes, number.getType());
  Value constant = arith::ConstantOp::create(b, loc, number);
  return linalg::FillOp::create(b, loc, constant, empty).getResult(0);
}

Value attn::countUp(OpBuilder &b, Location loc, ArrayRef<OpFoldResult> sizes) {
  Value empty = tensor::EmptyOp::create(b, loc, sizes, b.getI64Type());
  int64_t rank = sizes.size();
  SmallVector<utils::IteratorType> loops(rank, utils::IteratorType::parallel);
  return linalg::GenericOp::create(b, loc, empty.getType(), ValueRange(), empty, {b.getMultiDimIdentityMap(rank)},
                                   loops,
                                   [&](OpBuilder &body, Location at, ValueRange) {
                                     Value place = linalg::IndexOp::create(body, at, rank - 1);
                                     Value number = arith::IndexCastOp::create(body, at, body.getI64Type(), place);
                                     linalg::YieldOp::create(body, at, number);
                                   })
      .getResult(0);
}

Value attn::positionsOf(OpBuilder &b, Location loc, Value mask) {
  Type element = cast<RankedTensorType>(mask.getType()).getElementType(), i64 = b.getI64Type();
  Value before = filled(b, loc, tensor::getMixedSizes(b, loc, mask), b.getI64IntegerAttr(0));
  MLIRContext *context = b.getContext();
  AffineExpr row = b.getAffineDimExpr(0), place = b.getAffineDimExpr(1), other = b.getAffineDimExpr(2);
  SmallVector<utils::IteratorType> loops{utils::IteratorType::parallel, utils::IteratorType::parallel,
                                         utils::IteratorType::reduction};
  return linalg::GenericOp::create(
             b, loc, before.getType(), mask, before,
             {AffineMap::get(3, 0, {row, other}, context), AffineMap::get(3, 0, {row, place}, context)}, loops,
             [&](OpBuilder &body, Location at, ValueRange args) {
               Value here = linalg::IndexOp::create(body, at, 1), there = linalg::IndexOp::create(body, at, 2);
               Value isBefore = arith::CmpIOp::create(body, at, arith::CmpIPredicate::ult, there, here);
               Value zero = arith::ConstantOp::create(body, at, body.getZeroAttr(element));
               Value isOne = isa<FloatType>(element)
                                 ? arith::CmpFOp::create(body, at, arith::CmpFPredicate::UNE, args[0], zero).getResult()
                                 : arith::CmpIOp::create(body, at, arith::CmpIPredicate::ne, args[0], zero).getResult();
               Value counts = arith::AndIOp::create(body, at, isBefore, isOne);
               Value number = arith::ExtUIOp::create(body, at, i64, counts);
               linalg::YieldOp::create(body, at, arith::AddIOp::create(body, at, args[1], number).getResult());
             })
      .getResult(0);
}

Value attn::firstNonzeros(OpBuilder &b, Location loc, Value matrix) {
  Value most = sizeOf(b, loc, matrix, 1),
        empty = tensor::EmptyOp::create(b, loc, ArrayRef<OpFoldResult>{tensor::getMixedSize(b, loc, matrix, 0)},
                                        b.getI64Type());
  most = arith::IndexCastOp::create(b, loc, b.getI64Type(), most);
  Value init = linalg::FillOp::create(b, loc, most, empty).getResult(0);
  AffineMap all = b.getMultiDimIdentityMap(2), perRow = AffineMap::get(2, 0, b.getAffineDimExpr(0));
  return linalg::GenericOp::create(b, loc, init.getType(), matrix, init, {all, perRow},
                                   {utils::IteratorType::parallel, utils::IteratorType::reduction},
                                   [&](OpBuilder &body, Location at, ValueRange args) {
                                     Value place = linalg::IndexOp::create(body, at, 1);
                                     Value here = arith::IndexCastOp::create(body, at, body.getI64Type(), place);
                                     Value none = arith::ConstantOp::create(body, at, body.getI64IntegerAttr(0));
                                     Value isZero =
                                         arith::CmpIOp::create(body, at, arith::CmpIPredicate::eq, args[0], none);
                                     Value found = arith::SelectOp::create(body, at, isZero, args[1], here);
                                     Value least = arith::MinSIOp::create(body, at, args[1], found);
                                     linalg::YieldOp::create(body, at, least);
                                   })
      .getResult(0);
}

Value attn::columns(OpBuilder &b, Location loc, Value matrix, OpFoldResult begin, OpFoldResult count) {
  OpFoldResult rows = tensor::getMixedSize(b, loc, matrix, 0), zero = b.getIndexAttr(0), one = b.getIndexAttr(1);
  return tensor::ExtractSliceOp::create(b, loc, matrix, ArrayRef<OpFoldResult>{zero, begin},
                                        ArrayRef<OpFoldResult>{rows, count}, ArrayRef<OpFoldResult>{one, one});
}

void attn::requireEqual(OpBuilder &b, Location loc, Value a, Value c, const Twine &message) {
  if (a == c)
    return;
  Value same = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, a, c);
  RequireOp::create(b, loc, same, message.str(), ValueRange{a, c});
}

Value attn::countOnes(OpBuilder &b, Location loc, Value mask, OpFoldResult rows) {
  Type element = cast<RankedTensorType>(mask.getType()).getElementType();
  Value sums = filled(b, loc, {rows}, b.getIntegerAttr(element, 0));
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
  Value inits[] = {filled(b, loc, sizes, b.getF32FloatAttr(0)), filled(b, loc, sizes, b.getI64IntegerAttr(-1))};
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
