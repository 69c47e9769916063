#include "frontends/search/SearchSeed.h"
#include "builders/Code.h"
#include "builders/Mix.h"
#include "dialects/attn/OptionalInput.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace attn;

bool attn::isSeed(func::FuncOp entry, unsigned number) { return bool(entry.getArgAttr(number, kSeedAttr)); }

static bool draws(func::FuncOp entry) {
  return llvm::any_of(llvm::seq(entry.getNumArguments()), [&](unsigned n) { return isSeed(entry, n); });
}

SearchSeed::SearchSeed(OpBuilder &b, Location loc, ArrayRef<func::FuncOp> parts, int64_t fallback, AddInputFn addInput)
    : b(b), loc(loc) {
  if (llvm::none_of(parts, draws))
    return;
  list = addOptionalNumber(b, loc, addInput, "seed", b.getI64Type(), "int64");
  given = firstOr(b, loc, list, arith::ConstantIntOp::create(b, loc, fallback, 64));
}

Value SearchSeed::derive(int64_t number) {
  Value seed = mix(mix(Code(b, loc).asNum(given)) + number);
  Value one = tensor::FromElementsOp::create(b, loc, RankedTensorType::get({1}, b.getI64Type()), seed);
  return tensor::CastOp::create(b, loc, RankedTensorType::get({ShapedType::kDynamic}, b.getI64Type()), one);
}

Value SearchSeed::ofSteps() { return derive(0); }
Value SearchSeed::ofCall() { return derive(++calls); }
