#include "frontends/search/OptionalInputs.h"
#include "dialects/attn/AttnOps.h"
#include "dialects/attn/OptionalInput.h"
#include "frontends/search/SearchTensors.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace attn;

/// A list of one number, or where `isNumber` is not set of any length.
static Value addList(OpBuilder &b, AddInputFn addInput, StringRef name, Type element, StringRef dtype, bool isNumber) {
  NamedAttrList attrs;
  attrs.set(AttnDialect::kNameAttr, b.getStringAttr(name));
  attrs.set(AttnDialect::kDTypeAttr, b.getStringAttr(dtype));
  attrs.set(AttnDialect::kDimsAttr, b.getStrArrayAttr({""}));
  attrs.set(kOptionalAttr, b.getUnitAttr());
  if (isNumber)
    attrs.set(kGivenDimsAttr, b.getI64ArrayAttr({1}));
  return addInput(RankedTensorType::get({ShapedType::kDynamic}, element), attrs.getDictionary(b.getContext()));
}

Value attn::addOptionalList(OpBuilder &b, AddInputFn addInput, StringRef name, Type element, StringRef dtype) {
  return addList(b, addInput, name, element, dtype, /*isNumber=*/false);
}

Value attn::addOptionalNumber(OpBuilder &b, Location loc, AddInputFn addInput, StringRef name, Type element,
                              StringRef dtype) {
  Value list = addList(b, addInput, name, element, dtype, /*isNumber=*/true), size = sizeOf(b, loc, list, 0);
  Value one = arith::ConstantIndexOp::create(b, loc, 1);
  Value isOne = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sle, size, one);
  RequireOp::create(b, loc, isOne,
                    ("search: input '" + name + "' has the shape [{0}], expected [1], or [0] to leave it out").str(),
                    ValueRange{size});
  return list;
}

Value attn::isThere(OpBuilder &b, Location loc, Value list) {
  Value none = arith::ConstantIndexOp::create(b, loc, 0);
  return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, sizeOf(b, loc, list, 0), none);
}

Value attn::firstOr(OpBuilder &b, Location loc, Value list, Value fallback) {
  auto choice = scf::IfOp::create(b, loc, TypeRange{fallback.getType()}, isThere(b, loc, list), /*addThenBlock=*/true,
                                  /*addElseBlock=*/true);
  OpBuilder there = choice.getThenBodyBuilder(), absent = choice.getElseBodyBuilder();
  Value first = arith::ConstantIndexOp::create(there, loc, 0);
  Value element = tensor::ExtractOp::create(there, loc, list, first);
  if (element.getType() != fallback.getType())
    element = arith::ExtFOp::create(there, loc, fallback.getType(), element);
  scf::YieldOp::create(there, loc, element);
  scf::YieldOp::create(absent, loc, fallback);
  return choice.getResult(0);
}
