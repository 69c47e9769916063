#include "dialects/attn/Activation.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;

namespace attn {
namespace {

struct Writer {
  OpBuilder &b;
  Location loc;
  Type type;

  Value constant(double value) {
    TypedAttr attr = b.getFloatAttr(getElementTypeOrSelf(type), value);
    if (auto vector = dyn_cast<VectorType>(type))
      attr = SplatElementsAttr::get(vector, attr);
    return arith::ConstantOp::create(b, loc, attr);
  }
  Value constant(FloatAttr value) { return constant(value ? value.getValueAsDouble() : 0.0); }
  Value add(Value x, Value y) { return arith::AddFOp::create(b, loc, x, y); }
  Value sub(Value x, Value y) { return arith::SubFOp::create(b, loc, x, y); }
  Value mul(Value x, Value y) { return arith::MulFOp::create(b, loc, x, y); }
  Value div(Value x, Value y) { return arith::DivFOp::create(b, loc, x, y); }
  Value abs(Value x) { return math::AbsFOp::create(b, loc, x); }
  Value exp(Value x) { return math::ExpOp::create(b, loc, x); }
  Value tanh(Value x) { return math::TanhOp::create(b, loc, x); }
  /// x where it is not less (greater) than the bound; so NaN stays NaN.
  Value atLeast(Value x, Value bound) { return where(arith::CmpFPredicate::OLT, x, bound, bound, x); }
  Value atMost(Value x, Value bound) { return where(arith::CmpFPredicate::OGT, x, bound, bound, x); }
  Value where(arith::CmpFPredicate predicate, Value x, Value y, Value then, Value otherwise) {
    Value condition = arith::CmpFOp::create(b, loc, predicate, x, y);
    return arith::SelectOp::create(b, loc, condition, then, otherwise);
  }
};

} // namespace

Value emitActivation(OpBuilder &b, Location loc, ActivationAttr activation, Value x) {
  Writer w{b, loc, x.getType()};
  auto alpha = [&] { return w.constant(activation.getAlpha()); };
  auto beta = [&] { return w.constant(activation.getBeta()); };
  Value zero = w.constant(0.0), one = w.constant(1.0);
  switch (activation.getKind()) {
  case ActivationKind::sigmoid:
    return w.div(one, w.add(one, w.exp(w.sub(zero, x))));
  case ActivationKind::tanh:
    return w.tanh(x);
  case ActivationKind::relu:
    return w.atLeast(x, zero);
  case ActivationKind::affine:
    return w.add(w.mul(alpha(), x), beta());
  case ActivationKind::leaky_relu:
    return w.where(arith::CmpFPredicate::OLT, x, zero, w.mul(alpha(), x), x);
  case ActivationKind::thresholded_relu:
    return w.where(arith::CmpFPredicate::OLE, x, alpha(), zero, x);
  case ActivationKind::scaled_tanh:
    return w.mul(alpha(), w.tanh(w.mul(beta(), x)));
  case ActivationKind::hard_sigmoid:
    return w.atMost(w.atLeast(w.add(w.mul(alpha(), x), beta()), zero), one);
  case ActivationKind::elu:
    return w.where(arith::CmpFPredicate::OLT, x, zero, w.mul(alpha(), math::ExpM1Op::create(b, loc, x)), x);
  case ActivationKind::softsign:
    return w.div(x, w.add(one, w.abs(x)));
  case ActivationKind::softplus:
    return w.add(w.atLeast(x, zero), math::Log1pOp::create(b, loc, w.exp(w.sub(zero, w.abs(x)))));
  }
  llvm_unreachable("covered switch");
}

Value emitClip(OpBuilder &b, Location loc, double bound, Value x) {
  Writer w{b, loc, x.getType()};
  return w.atMost(w.atLeast(x, w.constant(-bound)), w.constant(bound));
}

} // namespace attn
