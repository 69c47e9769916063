#include "frontends/onnx/ops/AttentionScore.h"
#include "dialects/attn/AttnOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include <cmath>

using namespace mlir;

namespace attn::onnx {

/// The mask with its last dimension lengthened to the keys: what is missing
/// is masked.
static FailureOr<Tensor> lengthened(Node &n, const Tensor &mask, const Expr &keys) {
  if (mask.rank() < 1 || mask.rank() > 4)
    return n.error() << "expects a mask of rank 1 to 4, has rank " << mask.rank();
  Expr own = mask.shape.back();
  if (n.version() < 24) {
    if (!own.is(1) && failed(n.requireStretches(own, keys, "the mask has {0} keys, there are {1}")))
      return failure();
    return mask;
  }
  if (n.symbols().isEqual(own, keys).value_or(false))
    return mask;
  if (failed(n.requireAtMost(own, keys, "the mask has {0} keys, there are {1}")))
    return failure();
  OpBuilder &b = n.builder();
  SmallVector<OpFoldResult> low(mask.rank(), b.getIndexAttr(0)), high(low);
  high.back() = n.symbols().size(b, n.loc(), keys - own);
  Tensor out;
  out.dtype = mask.dtype;
  out.shape = mask.shape;
  out.shape.back() = keys;
  if (!isFloat(mask.dtype) && mask.dtype != DType::Bool)
    return n.unsupported() << "an integer mask that is shorter than the keys";
  Num zero = constantNum(b, n.loc(), mask.dtype == DType::Bool ? DType::U8 : mask.dtype, int64_t(0));
  Value fill = isFloat(mask.dtype) ? zero.lowest().value() : zero.value();
  Value v = tensor::PadOp::create(b, n.loc(), n.type(mask.dtype, out.shape), n.value(mask), low, high, fill);
  out.value = v;
  return out;
}

FailureOr<ScoreRule> ScoreRule::read(Node &n, const AttentionSizes &sizes, std::optional<Expr> past, double scale) {
  ScoreRule rule;
  rule.scale = scale;
  rule.softcap = n.floatAttr("softcap", 0.0);
  rule.left = n.intAttr("left_window_size", -1);
  rule.right = n.intAttr("right_window_size", -1);
  if (rule.left < -1 || rule.right < -1)
    return n.error() << "expects window sizes of at least -1, has " << rule.left << " and " << rule.right;
  if (!std::isfinite(rule.softcap) || rule.softcap < 0)
    return n.error() << "expects a softcap of at least 0, has " << std::to_string(rule.softcap);
  int64_t isCausal = n.intAttr("is_causal", 0);
  if (isCausal != 0 && isCausal != 1)
    return n.error() << "expects is_causal 0 or 1, has " << isCausal;
  if (isCausal)
    rule.right = rule.right < 0 ? 0 : std::min<int64_t>(rule.right, 0);
  if (n.hasInput(3)) {
    FailureOr<Tensor> mask = lengthened(n, n.input(3), sizes.keys);
    if (failed(mask) || failed(rule.addMask(n, *mask, sizes)))
      return failure();
  }
  if (n.hasInput(6)) {
    if (failed(rule.addLengths(n, n.input(6), sizes)))
      return failure();
    rule.offsetAtLength = true;
  }
  if (rule.left >= 0 || rule.right >= 0)
    rule.readOffset(n, sizes, past);
  return rule;
}

ScoreRule ScoreRule::scaled(double scale, double softcap) {
  ScoreRule rule;
  rule.scale = scale;
  rule.softcap = softcap;
  return rule;
}

LogicalResult ScoreRule::addLengths(Node &n, const Tensor &given, const AttentionSizes &sizes) {
  if (given.rank() != 1 || given.dtype != DType::I64)
    return n.error() << "expects the lengths as int64 of rank 1, has " << dtypeName(given.dtype) << " of rank "
                     << given.rank();
  if (failed(n.requireEqual(given.shape[0], sizes.batch, "there are {0} lengths for a batch of {1}")))
    return failure();
  // A length that no sequence has would show keys that are not there, or hide all of a row.
  OpBuilder &b = n.builder();
  Value end = n.symbols().materialize(b, n.loc(), sizes.keys + Expr(1));
  Tensor checked = given; // as a tensor also where its elements are known
  checked.value = n.value(given);
  checked.elements.reset();
  checked.value = n.elementwise(DType::I64, given.shape, checked, [&](OpBuilder &b, Location loc, ValueRange args) {
    Value length = arith::IndexCastOp::create(b, loc, b.getIndexType(), args[0]);
    length = CheckIndexOp::create(b, loc, b.getIndexType(), length, end, n.describe() + ": nonpad_kv_seqlen",
                                  /*nonnegative=*/true);
    return arith::IndexCastOp::create(b, loc, b.getI64Type(), length).getResult();
  });
  lengths = operands.size();
  operands.push_back({checked, {0}});
  return success();
}

void ScoreRule::addWindow(int64_t newLeft, int64_t newRight, const std::optional<Tensor> &offsets) {
  left = newLeft;
  right = newRight;
  if (!offsets)
    return;
  offset = operands.size();
  operands.push_back({*offsets, offsets->rank() ? SmallVector<int64_t>{0} : SmallVector<int64_t>{}});
}

LogicalResult ScoreRule::addMask(Node &n, Tensor mask, const AttentionSizes &sizes) {
  if (mask.rank() < 1 || mask.rank() > 4)
    return n.error() << "expects a mask of rank 1 to 4, has rank " << mask.rank();
  if (mask.dtype != DType::Bool && !isFloat(mask.dtype)) // integers are added, too
    mask = n.cast(mask, DType::F32);
  const Expr full[] = {sizes.batch, sizes.heads, sizes.queries, sizes.keys};
  SmallVector<Expr, 4> wide(mask.shape);
  SmallVector<int64_t> dims;
  for (auto [d, size] : llvm::enumerate(wide)) {
    int64_t dim = 4 - mask.rank() + d;
    if (size.is(1))
      continue; // broadcast
    if (failed(n.requireStretches(size, full[dim], "the mask has size {0} where the scores have {1}")))
      return failure();
    size = full[dim];
    dims.push_back(dim);
  }
  mask = n.stretch(mask, wide);
  SmallVector<Expr, 4> shape;
  for (int64_t dim : dims)
    shape.push_back(mask.shape[dim - 4 + mask.rank()]);
  FailureOr<Tensor> view = n.reshape(mask, shape);
  if (failed(view))
    return failure();
  this->mask = operands.size();
  operands.push_back({*view, dims});
  return success();
}

/// The diagonal: query i stands at key i + offset.
void ScoreRule::readOffset(Node &n, const AttentionSizes &sizes, std::optional<Expr> past) {
  // With lengths the last query is the last key that is no padding.
  Expr known = lengths ? Expr(0) - sizes.queries : past.value_or(Expr(0));
  if (std::optional<int64_t> c = known.constant()) {
    constantOffset = *c;
    return;
  }
  offset = operands.size();
  operands.push_back({scalarTensor(DType::I64, known), {}});
}

std::optional<Num> ScoreRule::visible(OpBuilder &b, Location loc, ValueRange values,
                                      llvm::function_ref<Value(int64_t)> index) const {
  auto toIndex = [&](Value i64) { return b.createOrFold<arith::IndexCastOp>(loc, b.getIndexType(), i64); };
  auto constant = [&](int64_t c) -> Value { return arith::ConstantIndexOp::create(b, loc, c); };
  auto add = [&](Value x, Value y) { return b.createOrFold<arith::AddIOp>(loc, x, y); };
  std::optional<Num> result;
  auto restrict = [&](arith::CmpIPredicate predicate, Value x, Value y) {
    Num holds(b, loc, DType::Bool, arith::CmpIOp::create(b, loc, predicate, x, y));
    result = result ? *result & holds : holds;
  };
  if (lengths)
    restrict(arith::CmpIPredicate::slt, index(3), toIndex(values[*lengths]));
  if (left < 0 && right < 0)
    return result;
  Value diagonal = index(2);
  if (offset)
    diagonal = add(diagonal, toIndex(values[*offset]));
  else if (constantOffset)
    diagonal = add(diagonal, constant(constantOffset));
  if (offsetAtLength)
    diagonal = add(diagonal, toIndex(values[*lengths]));
  if (right >= 0)
    restrict(arith::CmpIPredicate::sle, index(3), right ? add(diagonal, constant(right)) : diagonal);
  if (left >= 0)
    restrict(arith::CmpIPredicate::sge, index(3), left ? add(diagonal, constant(-left)) : diagonal);
  return result;
}

Num ScoreRule::apply(const Num &score, ValueRange values, llvm::function_ref<Value(int64_t)> index, Step last) const {
  Num s = scale == 1 ? score : score * scale;
  if (last == Scaled)
    return s;
  if (softcap > 0)
    s = tanh(s / softcap) * softcap;
  if (last == Capped)
    return s;
  OpBuilder &b = score.builder();
  Location loc = score.location();
  if (mask) {
    DType dtype = operands[*mask].tensor.dtype;
    if (dtype == DType::Bool) {
      Num keep(b, loc, DType::U8, values[*mask]); // bools of a tensor are bytes
      s = select(keep != keep.constant(0), s, s.lowest());
    } else {
      s = s + convert(Num(b, loc, dtype, values[*mask]), s.dtype());
    }
  }
  std::optional<Num> seen = visible(b, loc, values, index);
  return seen ? select(*seen, s, s.lowest()) : s;
}

} // namespace attn::onnx
