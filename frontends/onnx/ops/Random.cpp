#include "builders/Mix.h"
#include "frontends/onnx/ops/Families.h"
#include "frontends/onnx/ops/Loops.h"
#include "frontends/onnx/ops/Reduce.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"
#include <cmath>

// Random numbers. An element is a function of the run's seed, the node, the iteration and its place, so that no state
// is kept: who computes it, and how often, does not matter.

using namespace mlir;

namespace attn::onnx {
namespace {

//===----------------------------------------------------------------------===//
// Draws
//===----------------------------------------------------------------------===//

/// 64 random bits for each element of a tensor: number n of splitmix64 from the state that the node's key is.
class Draw {
public:
  Draw(Node &n, ArrayRef<Expr> shape) : key(n.drawKey(ownSeed(n))), sizes(sizeValues(n, shape)) {}

  Num bits(OpBuilder &b, Location loc, ValueRange at) const {
    Num place = constantNum(b, loc, DType::I64, int64_t(0));
    for (auto [index, size] : llvm::zip_equal(at, sizes))
      place = place * fromIndex(b, loc, DType::I64, size) + fromIndex(b, loc, DType::I64, index);
    return mix(Num(b, loc, DType::I64, key) + place * kMixStep);
  }
  /// The same in the body of an elementwise operator.
  Num bits(OpBuilder &b, Location loc) const {
    SmallVector<Value> at;
    for (size_t dim = 0; dim < sizes.size(); ++dim)
      at.push_back(linalg::IndexOp::create(b, loc, dim));
    return bits(b, loc, at);
  }

private:
  static std::optional<uint64_t> ownSeed(Node &n) {
    if (!n.hasAttr("seed"))
      return std::nullopt;
    if (n.opType() == "Dropout")
      return n.intAttr("seed", 0);
    return llvm::bit_cast<uint64_t>(n.floatAttr("seed", 0));
  }

  Value key;
  SmallVector<Value> sizes;
};

int significandBits(DType dtype) {
  return dtype == DType::F64 ? 53 : dtype == DType::F32 ? 24 : dtype == DType::F16 ? 11 : 8;
}

/// The first `count` of 64 bits as a number in [0, 1) of `wide`, f32 or f64: a multiple of 2^-count.
Num uniform(const Num &bits, int count, DType wide) {
  Num first = bits >> (64 - count);
  if (wide == DType::F32)
    first = convert(first, DType::I32);
  return convert(first, wide) * std::ldexp(1.0, -count);
}

/// Box and Muller. The radius ends at 6.7 in f32, at 8.7 in f64.
Num normal(const Num &bits, DType wide) {
  constexpr double kTurn = 6.283185307179586;
  bool isDouble = wide == DType::F64;
  int count = isDouble ? 53 : 31;
  Num first = bits >> (64 - count);
  Num part = (convert(isDouble ? first : convert(first, DType::I32), wide) + 0.5) * std::ldexp(1.0, -count);
  Num turn = isDouble ? uniform(mix(bits), 53, wide) : uniform(bits << 40, 24, wide);
  return sqrt(-2.0 * log(part)) * cos(turn * kTurn);
}

/// `x` as one writes a float.
std::string shortest(double x) {
  std::string text;
  llvm::raw_string_ostream(text) << llvm::format("%.7g", x);
  return text;
}

/// What `dtype` says, else `fallback`.
FailureOr<DType> drawnType(Node &n, DType fallback) {
  if (!n.hasAttr("dtype"))
    return fallback;
  int64_t number = n.intAttr("dtype", 0);
  std::optional<DType> dtype = dtypeFromProto(number);
  if (!dtype || isNarrow(*dtype))
    return n.error() << "has dtype " << number << ", expected a type of numbers", failure();
  return *dtype;
}

//===----------------------------------------------------------------------===//
// RandomUniform, RandomNormal and their Like forms
//===----------------------------------------------------------------------===//

/// The greatest number of `dtype` below `high`, or above it where `low` is: rounding reaches no further.
double lastBefore(Node &n, DType dtype, double high, double low) {
  const auto &semantics = cast<FloatType>(elementType(n.builder().getContext(), dtype)).getFloatSemantics();
  bool isAbove = low > high, losesInfo = false;
  llvm::APFloat last(high);
  last.convert(semantics, isAbove ? llvm::APFloat::rmTowardPositive : llvm::APFloat::rmTowardNegative, &losesInfo);
  if (!losesInfo)
    last.next(/*nextDown=*/!isAbove);
  last.convert(llvm::APFloat::IEEEdouble(), llvm::APFloat::rmNearestTiesToEven, &losesInfo);
  return last.convertToDouble();
}

using Distribution = llvm::function_ref<Num(const Num &bits)>;

LogicalResult setDrawn(Node &n, DType dtype, ArrayRef<Expr> shape, Distribution distribution) {
  Draw draw(n, shape);
  Value drawn = n.generate(dtype, shape, [&](OpBuilder &b, Location loc, ValueRange at) -> Value {
    return convert(distribution(draw.bits(b, loc, at)), dtype).value();
  });
  n.setOutput(0, drawn, dtype, shape);
  return success();
}

LogicalResult importRandom(Node &n) {
  bool isLike = n.opType().ends_with("Like");
  if (isLike && failed(expectInputs(n, 1)))
    return failure();
  FailureOr<DType> dtype = drawnType(n, isLike ? n.input(0).dtype : DType::F32);
  if (failed(dtype))
    return failure();
  if (!isFloat(*dtype))
    return n.error() << "draws " << dtypeName(*dtype) << ", expected a float type; attribute 'dtype' says which",
           failure();
  SmallVector<Expr> shape;
  if (isLike)
    llvm::append_range(shape, n.input(0).shape);
  else
    for (int64_t size : n.intsAttr("shape").value_or(SmallVector<int64_t>()))
      shape.push_back(Expr(size));
  for (const Expr &size : shape)
    if (size.constant() && *size.constant() < 0)
      return n.error() << "has a dimension of size " << *size.constant(), failure();
  DType wide = computeDType(*dtype);
  if (n.opType().starts_with("RandomNormal")) {
    double mean = n.floatAttr("mean", 0), scale = n.floatAttr("scale", 1);
    return setDrawn(n, *dtype, shape, [&](const Num &bits) { return mean + scale * normal(bits, wide); });
  }
  double low = n.floatAttr("low", 0), high = n.floatAttr("high", 1), range = high - low;
  if (!std::isfinite(wide == DType::F32 ? float(range) : range))
    return n.error() << "draws from " << shortest(low) << " to " << shortest(high) << ", which is no finite range in "
                     << dtypeName(*dtype),
           failure();
  return setDrawn(n, *dtype, shape, [&](const Num &bits) {
    Num x = low + range * uniform(bits, significandBits(*dtype), wide);
    if (low == high)
      return x;
    double last = lastBefore(n, *dtype, high, low);
    return low < high ? atMost(x, x.constant(last)) : atLeast(x, x.constant(last));
  });
}

LogicalResult importBernoulli(Node &n) {
  if (failed(expectInputs(n, 1)) || failed(expectFloat(n, 0)))
    return failure();
  const Tensor &p = n.input(0);
  FailureOr<DType> dtype = drawnType(n, p.dtype);
  if (failed(dtype))
    return failure();
  DType wide = computeDType(p.dtype);
  Draw draw(n, p.shape);
  Value drawn = n.elementwise(*dtype, p.shape, {p}, [&](OpBuilder &b, Location loc, ValueRange v) -> Value {
    Num u = uniform(draw.bits(b, loc), significandBits(wide), wide);
    return convert(u < convert(Num(b, loc, p.dtype, v[0]), wide), *dtype).value();
  });
  n.setOutput(0, drawn, *dtype, p.shape);
  return success();
}

//===----------------------------------------------------------------------===//
// Multinomial
//===----------------------------------------------------------------------===//

/// [rows, classes] in f64: the sums of weights up to each class, from logarithms of the weights. The run ends where a
/// row is no distribution.
FailureOr<Tensor> runningWeights(Node &n, const Tensor &logits) {
  Tensor x = n.cast(logits, computeDType(logits.dtype));
  FailureOr<Tensor> greatest = keepDims(n, reduce(n, Combine::Max, x, {1}), {1}, 2);
  if (failed(greatest))
    return failure();
  FailureOr<Tensor> weights = formula(n, DType::F64, {x, *greatest}, [](ArrayRef<Num> v) { return exp(v[0] - v[1]); });
  if (failed(weights))
    return failure();
  // NaN where the row has one, +inf, or nothing but -inf: the exponent is inf - inf or NaN there.
  Tensor sums = runningSum(n, *weights, 1), total = reduce(n, Combine::Sum, *weights, {0, 1});
  OpBuilder &b = n.builder();
  Num all(b, n.loc(), DType::F64, tensor::ExtractOp::create(b, n.loc(), n.value(total), ValueRange()));
  n.require(all == all, "a row has NaN, +inf, or nothing but -inf, expected logarithms of probabilities");
  return sums;
}

LogicalResult importMultinomial(Node &n) {
  if (failed(expectInputs(n, 1)) || failed(expectFloat(n, 0)))
    return failure();
  const Tensor &x = n.input(0);
  FailureOr<DType> dtype = drawnType(n, DType::I32);
  if (failed(dtype))
    return failure();
  int64_t count = n.intAttr("sample_size", 1);
  if (x.rank() != 2 || count < 0 || (*dtype != DType::I32 && *dtype != DType::I64))
    return n.error() << "expects an input of rank 2, a sample_size of at least 0 and int32 or int64 results, has rank "
                     << x.rank() << ", " << count << " and " << dtypeName(*dtype),
           failure();
  Expr classes = x.shape[1];
  if (failed(n.requireAtMost(1, classes, "chooses from {1} classes")))
    return failure();
  FailureOr<Tensor> sums = runningWeights(n, x);
  if (failed(sums))
    return failure();
  SmallVector<Expr> shape{x.shape[0], Expr(count)};
  Draw draw(n, shape);
  Value table = n.value(*sums), size = n.symbols().materialize(n.builder(), n.loc(), classes);
  // Halvings until one class is left.
  std::optional<int64_t> known = classes.constant();
  Value steps = arith::ConstantIndexOp::create(n.builder(), n.loc(), known ? llvm::Log2_64_Ceil(*known) : 63);
  Value drawn = n.generate(*dtype, shape, [&](OpBuilder &b, Location loc, ValueRange at) -> Value {
    auto sumAt = [&](OpBuilder &b, Location loc, const Num &place) {
      Value index = arith::IndexCastOp::create(b, loc, b.getIndexType(), place.value());
      return load(b, loc, table, DType::F64, {at[0], index});
    };
    Num last = fromIndex(b, loc, DType::I64, size) - 1;
    // Below the whole sum, of which it is at most the part 1 - 2^-53.
    Num target = uniform(draw.bits(b, loc, at), 53, DType::F64) * sumAt(b, loc, last);
    auto halve = [&](OpBuilder &b, Location loc, ValueRange, ValueRange now) -> SmallVector<Value> {
      Num low(b, loc, DType::I64, now[0]), high(b, loc, DType::I64, now[1]);
      Num middle = (low + high) >> 1, isBehind = sumAt(b, loc, middle) <= Num(b, loc, DType::F64, target);
      return {select((low < high) & isBehind, middle + 1, low).value(), select(isBehind, high, middle).value()};
    };
    Value inits[] = {last.constant(0).value(), last.value()};
    return convert(Num(b, loc, DType::I64, sequential(b, loc, steps, inits, halve)[0]), *dtype).value();
  });
  n.setOutput(0, drawn, *dtype, shape);
  return success();
}

//===----------------------------------------------------------------------===//
// Dropout
//===----------------------------------------------------------------------===//

/// The one element of input `i`, which the run knows.
FailureOr<Num> singleElement(Node &n, size_t i) {
  const Tensor &t = n.input(i);
  if (t.rank() > 1)
    return n.error() << "expects input " << i << " of one element, has rank " << t.rank(), failure();
  if (t.rank() == 1 && failed(n.requireEqual(t.shape[0], Expr(1), "{0} elements, expected {1}")))
    return failure();
  OpBuilder &b = n.builder();
  SmallVector<Value> first(t.rank(), arith::ConstantIndexOp::create(b, n.loc(), 0));
  return load(b, n.loc(), n.value(t), t.dtype, first);
}

/// The part of the elements that is dropped, in `wide`; 0 outside of training. Nothing where it is known to be 0.
FailureOr<std::optional<Num>> droppedPart(Node &n, DType wide) {
  OpBuilder &b = n.builder();
  std::optional<double> known = n.version() < 12 ? n.floatAttr("ratio", 0.5) : 0.5;
  if (n.version() >= 12 && n.hasInput(1)) {
    std::optional<SmallVector<double>> given = n.constantFloats(1);
    known = given && given->size() == 1 ? std::optional(given->front()) : std::nullopt;
  }
  bool isTraining = n.version() < 7 && !n.intAttr("is_test", 0), asksRun = n.version() >= 12 && n.hasInput(2);
  if (asksRun)
    if (std::optional<SmallVector<int64_t>> mode = n.constantInts(2); mode && mode->size() == 1) {
      isTraining = mode->front() != 0;
      asksRun = false;
    }
  if ((!isTraining && !asksRun) || known == 0.0)
    return std::optional<Num>();
  if (known && !(*known >= 0 && *known <= 1))
    return n.error() << "has ratio " << shortest(*known) << ", expected a number in [0, 1]", failure();
  FailureOr<Num> given = known ? FailureOr<Num>(constantNum(b, n.loc(), wide, *known)) : singleElement(n, 1);
  if (failed(given))
    return failure();
  Num part = convert(*given, wide);
  if (asksRun) {
    FailureOr<Num> mode = singleElement(n, 2);
    if (failed(mode))
      return failure();
    part = select(*mode, part, part.constant(0.0));
  }
  if (!known)
    n.require((part >= 0.0) & (part <= 1.0), "the ratio is outside [0, 1]");
  return std::optional(part);
}

LogicalResult importDropout(Node &n) {
  const Tensor &x = n.input(0);
  DType wide = computeDType(x.dtype), maskType = n.version() < 10 ? x.dtype : DType::Bool; // 7: "same type as input"
  FailureOr<std::optional<Num>> part = droppedPart(n, wide);
  if (failed(part))
    return failure();
  if (!*part) {
    n.setOutput(0, x);
    if (n.hasOutput(1))
      n.setOutput(1, n.filled(maskType, x.shape, n.constant(maskType, 1)), maskType, x.shape);
    return success();
  }
  Draw draw(n, x.shape);
  Num scale = 1.0 / (1.0 - **part);
  auto isKept = [&](OpBuilder &b, Location loc) {
    return uniform(draw.bits(b, loc), significandBits(wide), wide) >= Num(b, loc, wide, **part);
  };
  Value kept = n.elementwise(x.dtype, x.shape, {x}, [&](OpBuilder &b, Location loc, ValueRange v) -> Value {
    Num element = convert(Num(b, loc, x.dtype, v[0]), wide) * Num(b, loc, wide, scale);
    return convert(select(isKept(b, loc), element, element.constant(0.0)), x.dtype).value();
  });
  n.setOutput(0, kept, x.dtype, x.shape);
  if (n.hasOutput(1))
    n.setOutput(1,
                n.elementwise(maskType, x.shape, {},
                              [&](OpBuilder &b, Location loc, ValueRange) -> Value {
                                return convert(isKept(b, loc), maskType).value();
                              }),
                maskType, x.shape);
  return success();
}

} // namespace

void registerRandomOps(OpRegistry &registry) {
  registry.add("RandomUniform", {1, 22}, importRandom);
  registry.add("RandomUniformLike", {1, 22}, importRandom);
  registry.add("RandomNormal", {1, 22}, importRandom);
  registry.add("RandomNormalLike", {1, 22}, importRandom);
  registry.add("Bernoulli", {15, 22}, importBernoulli);
  registry.add("Multinomial", {7, 22}, importMultinomial);
  registry.add("Dropout", {1, 6, 7, 10, 12, 13, 22}, importDropout);
}

} // namespace attn::onnx
