#include "passes/kernels/spec/IntegerProduct.h"

#include "mlir/IR/Operation.h"

using namespace mlir;

namespace attn {

Type IntegerProductSpec::resultType(MLIRContext *context) const {
  return epilogue ? epilogue->getTerminator()->getOperand(0).getType() : Type(IntegerType::get(context, 32));
}

std::string IntegerProductSpec::zeroKey() const {
  StringRef zeros[] = {"", "_zs", "_zc"};
  return ((hasRowZero ? "_za" : "") + zeros[static_cast<int>(columnZero)]).str();
}

bool isIntegerProduct(const IntegerProductSpec &spec, std::string *reason) {
  auto isSize = [&](int64_t size) { return size > 0 || (spec.isBatched && ShapedType::isDynamic(size)); };
  if (!isSize(spec.k) || !isSize(spec.n) || (spec.m < 0 && !ShapedType::isDynamic(spec.m)))
    return fail(reason, "the sizes M, K, N (" + Twine(spec.m) + ", " + Twine(spec.k) + ", " + Twine(spec.n) +
                            ") are not positive");
  if (spec.isBatched && !ShapedType::isDynamic(spec.m))
    return fail(reason, "the rows of a batch are fixed at " + Twine(spec.m));
  if (!spec.canBuildEpilogue(reason))
    return false;
  if (spec.epilogue && !spec.getSum().getType().isInteger(32))
    return fail(reason, "the epilogue does not take a sum of 32 bits");
  return true;
}

} // namespace attn
