#include "dialects/attn/BroadcastForm.h"
#include "dialects/attn/NodeLocation.h"
#include "frontends/onnx/Limits.h"
#include "frontends/onnx/State.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

// What sizes must be: an error where that is known to be wrong, an attn.require where only the run knows.

using namespace mlir;
using namespace attn;
using namespace attn::onnx;

static void emitRequire(Node &node, Value condition, StringRef message, ArrayRef<Value> values,
                        bool unsupported = false, FlatSymbolRefAttr otherwise = {}) {
  OpBuilder &b = node.builder();
  auto require = RequireOp::create(b, node.loc(), condition, b.getStringAttr(node.describe() + ": " + message.str()),
                                   values, unsupported);
  if (otherwise)
    require->setAttr(kOtherwiseAttr, otherwise);
}

/// The message with its values in place, for a requirement that fails now.
static std::string substitute(StringRef message, ArrayRef<std::string> values) {
  std::string text = message.str();
  for (auto [n, value] : llvm::enumerate(values)) {
    std::string place = "{" + std::to_string(n) + "}";
    for (size_t at = 0; (at = text.find(place, at)) != std::string::npos; at += value.size())
      text.replace(at, place.size(), value);
  }
  return text;
}

/// The message with what sizes are made of: "{0} ('sequence')".
static std::string nameSizes(const Symbols &symbols, StringRef message, ArrayRef<Expr> sizes) {
  std::vector<std::string> places;
  for (auto [n, size] : llvm::enumerate(sizes)) {
    std::string name = size.constant() ? "" : symbols.outputName(size);
    places.push_back("{" + std::to_string(n) + "}" + (name.empty() ? "" : " ('" + printableName(name) + "')"));
  }
  return substitute(message, places);
}

/// Whether `a` is computed from what the run reads, and may have wrapped.
static bool mayWrap(Node &node, const Expr &a) {
  bool atom = a.getTerms().size() == 1 && a.getTerms().begin()->first.size() == 1;
  return !atom && node.symbols().mayExceed(a, kMaxSize);
}

/// Emits the comparison of a and b as a requirement.
static void requireCompare(Node &node, arith::CmpIPredicate predicate, const Expr &a, const Expr &b,
                           StringRef message) {
  OpBuilder &builder = node.builder();
  Location loc = node.loc();
  Symbols &symbols = node.symbols();
  Value x = symbols.materialize(builder, loc, a), y = symbols.materialize(builder, loc, b);
  Value holds = arith::CmpIOp::create(builder, loc, predicate, x, y);
  if (predicate == arith::CmpIPredicate::sle && (mayWrap(node, a) || mayWrap(node, b))) {
    // What wrapped is far from its estimate, which is exact but for large numbers.
    Value slack = arith::ConstantOp::create(builder, loc, builder.getF64FloatAttr(0x1p32));
    Value above = arith::AddFOp::create(builder, loc, symbols.estimate(builder, loc, b), slack);
    Value near =
        arith::CmpFOp::create(builder, loc, arith::CmpFPredicate::OLE, symbols.estimate(builder, loc, a), above);
    holds = arith::AndIOp::create(builder, loc, holds, near);
  }
  emitRequire(node, holds, nameSizes(symbols, message, {a, b}), {x, y});
}

LogicalResult Node::requireEqual(const Expr &a, const Expr &b, StringRef message) {
  std::optional<bool> same = symbols().isEqual(a, b);
  if (same == true)
    return success();
  if (same == false || a.overflowed() || b.overflowed())
    return error() << substitute(message, {symbols().print(a), symbols().print(b)}), failure();
  requireCompare(*this, arith::CmpIPredicate::eq, a, b, message);
  symbols().assumeEqual(a, b);
  return success();
}

LogicalResult Node::requireDifferent(const Expr &a, const Expr &b, StringRef message) {
  std::optional<bool> same = symbols().isEqual(a, b);
  if (same == false)
    return success();
  if (same == true || a.overflowed() || b.overflowed())
    return error() << substitute(message, {symbols().print(a), symbols().print(b)}), failure();
  requireCompare(*this, arith::CmpIPredicate::ne, a, b, message);
  return success();
}

LogicalResult Node::requireAtMost(const Expr &a, const Expr &b, StringRef message) {
  std::optional<bool> more = symbols().isLess(b, a);
  if (more == false)
    return success();
  if (more == true || a.overflowed() || b.overflowed())
    return error() << substitute(message, {symbols().print(a), symbols().print(b)}), failure();
  requireCompare(*this, arith::CmpIPredicate::sle, a, b, message);
  symbols().assumeNotNegative(b - a);
  return success();
}

/// The estimate as an integer for a message: what is beyond 64 bits is their end.
static Value toReport(OpBuilder &b, Location loc, Value estimate) {
  Value bound = arith::ConstantOp::create(b, loc, b.getF64FloatAttr(9.2e18));
  Value low = arith::NegFOp::create(b, loc, bound);
  Value fits = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OLT, estimate, bound);
  estimate = arith::SelectOp::create(b, loc, fits, estimate, bound);
  fits = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OGT, estimate, low);
  estimate = arith::SelectOp::create(b, loc, fits, estimate, low);
  Value integer = arith::FPToSIOp::create(b, loc, b.getI64Type(), estimate);
  return arith::IndexCastOp::create(b, loc, b.getIndexType(), integer);
}

void Node::require(Value condition, StringRef message, bool unsupported) {
  emitRequire(*this, condition, message, {}, unsupported);
}

void Node::require(const Expr &condition, StringRef message, ArrayRef<Expr> sizes) {
  OpBuilder &b = builder();
  Value one = arith::ConstantIndexOp::create(b, impl.loc, 1);
  Value holds =
      arith::CmpIOp::create(b, impl.loc, arith::CmpIPredicate::eq, symbols().materialize(b, impl.loc, condition), one);
  SmallVector<Value> values;
  for (const Expr &size : sizes)
    values.push_back(symbols().materialize(b, impl.loc, size));
  emitRequire(*this, holds, nameSizes(symbols(), message, sizes), values);
}

LogicalResult Node::requireFits(const Expr &a, StringRef message) {
  if (a.overflowed())
    return error() << substitute(message, {symbols().print(a)}), failure();
  if (!symbols().mayExceed(a, INT64_MAX - 1))
    return success();
  OpBuilder &b = builder();
  Value estimate = symbols().estimate(b, impl.loc, a), size = math::AbsFOp::create(b, impl.loc, estimate);
  Value limit = arith::ConstantOp::create(b, impl.loc, b.getF64FloatAttr(9.2e18));
  emitRequire(*this, arith::CmpFOp::create(b, impl.loc, arith::CmpFPredicate::OLE, size, limit), message,
              {toReport(b, impl.loc, estimate)});
  return success();
}

LogicalResult Node::requireShape(DType dtype, ArrayRef<Expr> shape) {
  SmallVector<int64_t> known;
  bool open = false;
  for (const Expr &size : shape) {
    std::optional<int64_t> constant = size.constant();
    if (size.overflowed() || (constant && *constant < 0))
      return error() << "a result has a dimension of size " << symbols().print(size), failure();
    if (constant)
      known.push_back(*constant);
    open |= symbols().mayExceed(size, kMaxSize);
  }
  if (!checkedBytes(known, dtypeBytes(dtype))) {
    std::string sizes;
    for (const Expr &size : shape)
      sizes += (sizes.empty() ? "" : "x") + symbols().print(size);
    return error() << "a result of shape " << sizes << " is larger than the limit of " << kMaxTensorBytes << " bytes",
           failure();
  }
  if (!open)
    return success();

  OpBuilder &b = builder();
  Location loc = impl.loc;
  auto number = [&](double value) -> Value { return arith::ConstantOp::create(b, loc, b.getF64FloatAttr(value)); };
  auto within = [&](Value x, double limit) -> Value {
    return arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OLE, x, number(limit));
  };
  Value bytes = number(dtypeBytes(dtype));
  Expr product(dtypeBytes(dtype));
  SmallVector<Value> sizes;
  std::string text;
  for (const Expr &size : shape) {
    Value value = symbols().materialize(b, loc, size), estimate = symbols().estimate(b, loc, size);
    text += (sizes.empty() ? "{" : "x{") + std::to_string(sizes.size()) + "}";
    sizes.push_back(value);
    bytes = arith::MulFOp::create(b, loc, bytes, estimate);
    product = product * size;
    if (!symbols().mayExceed(size, kMaxSize) || !symbols().noteBounded(size))
      continue;
    // In range, and near its estimate: it did not wrap on the way. Large terms that cancel round the estimate.
    Value exact = arith::IndexCastOp::create(b, loc, b.getI64Type(), value);
    exact = arith::SIToFPOp::create(b, loc, b.getF64Type(), exact);
    Value off = math::AbsFOp::create(b, loc, arith::SubFOp::create(b, loc, estimate, exact));
    Value least = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OGE, exact, number(0));
    Value fits = arith::AndIOp::create(b, loc, least, within(exact, kMaxSize));
    fits = arith::AndIOp::create(b, loc, fits, within(off, 4096));
    emitRequire(*this, fits, "a dimension of size {0} is outside [0, " + std::to_string(kMaxSize) + "]",
                {toReport(b, loc, estimate)});
  }
  if (product.overflowed() || symbols().noteBounded(product))
    emitRequire(*this, within(bytes, kMaxTensorBytes),
                "a result of shape " + text + " is larger than the limit of " + std::to_string(kMaxTensorBytes) +
                    " bytes",
                sizes);
  return success();
}

/// What a user does about a size that is 1 in a run alone.
static std::string fixToOne(const Symbols &symbols, const Expr &size, const std::string &text) {
  if (std::string name = printableName(symbols.name(size)); !name.empty())
    return "compile with --dim=" + name + ":1";
  if (!text.empty())
    return "compile with --dim for what '" + text + "' is made of, so that it is 1";
  return "no --dim fixes the size that is 1, as the run computes it";
}

/// A size that is 1 only in a run would be broadcast by ONNX. Code for both would cost every model whose names differ
/// for equal sizes ("total", "past + seq") its fusion, so another form of the entry does such a run; without one the
/// run says that the model is to be compiled for it.
static void requireDecided(Node &node, const Expr &a, const Expr &b, FlatSymbolRefAttr otherwise) {
  OpBuilder &builder = node.builder();
  Location loc = node.loc();
  Symbols &symbols = node.symbols();
  // No size is below 0.
  bool isKnown = symbols.isEqual(a, b) || symbols.max(a, 0) == symbols.max(b, 0);
  if (isKnown || a.overflowed() || b.overflowed())
    return;
  OpBuilder::InsertionGuard guard(builder);
  if (otherwise) // also of a loop's body: it is the entry that the run leaves, before it begins
    builder.setInsertionPointToEnd(symbols.getHomes().front());
  Value x = symbols.materialize(builder, loc, a), y = symbols.materialize(builder, loc, b);
  Value one = arith::ConstantIndexOp::create(builder, loc, 1);
  auto compare = [&](arith::CmpIPredicate predicate, Value a, Value b) -> Value {
    return builder.createOrFold<arith::CmpIOp>(loc, predicate, a, b);
  };
  Value same = compare(arith::CmpIPredicate::eq, x, y);
  auto textOf = [&](const Expr &size) {
    return size.constant() || !symbols.isNamed(size) ? "" : printableName(symbols.print(size));
  };
  auto place = [](StringRef value, const std::string &text) {
    return (value + (text.empty() ? "" : " ('" + text + "')")).str();
  };
  std::string textOfA = textOf(a), textOfB = textOf(b);
  std::string sizes =
      "sizes " + place("{0}", textOfA) + " and " + place("{1}", textOfB) + " broadcast in this run only; ";
  // One for each, as the message names the dimension.
  auto requireLonger = [&](const Expr &size, Value value, const std::string &text) {
    if (size.constant() || size.content() > 1) // a multiple, and never 1
      return;
    Value isLonger = compare(arith::CmpIPredicate::ne, value, one);
    emitRequire(node, builder.createOrFold<arith::OrIOp>(loc, same, isLonger), sizes + fixToOne(symbols, size, text),
                {x, y}, /*unsupported=*/true, otherwise);
  };
  requireLonger(a, x, textOfA);
  requireLonger(b, y, textOfB);
}

LogicalResult Node::requireBroadcast(const Expr &a, const Expr &b, StringRef message) {
  if (symbols().isCapped(a, b) || symbols().isCapped(b, a))
    return requireEqual(a, b, message);
  // In no run are they equal, in some one of them is 1.
  const Expr one(1);
  if (symbols().isEqual(a, b) == false && !symbols().isEqual(a, one) && !symbols().isEqual(b, one)) {
    const Expr &fixed = symbols().name(a).empty() ? b : a;
    std::string name = symbols().name(fixed).str();
    InFlightDiagnostic error = unsupported();
    error << substitute(message, {symbols().print(a), symbols().print(b)}) << " unless one of them is 1; "
          << fixToOne(symbols(), fixed, symbols().isNamed(fixed) ? printableName(symbols().print(fixed)) : "");
    if (impl.state.sharedDims.count(name))
      error << ", or where an input calls another size '" << printableName(name)
            << "' by mistake, with --shape=INPUT:?x*, which takes the name of that dimension away";
    return failure();
  }
  FlatSymbolRefAttr otherwise;
  if (!impl.state.otherwise.empty() && symbols().isNamed(a) && symbols().isNamed(b))
    otherwise = FlatSymbolRefAttr::get(builder().getContext(), impl.state.otherwise);
  requireDecided(*this, a, b, otherwise);
  return requireEqual(a, b, message);
}

FailureOr<Expr> Node::joinSizes(const Expr &a, const Expr &b, StringRef message) {
  ImportState &state = impl.state;
  std::optional<bool> same = symbols().isEqual(a, b);
  bool isOpen = !same && !symbols().isCapped(a, b) && !symbols().isCapped(b, a);
  if (!state.broadcastsInRun || !isOpen) {
    if (failed(requireBroadcast(a, b, message)))
      return failure();
    return a;
  }
  for (const ImportState::Join &join : state.joins)
    for (const Expr *part : {&a, &b})
      if (join.size == (part == &a ? b : a) && llvm::is_contained(join.parts, *part))
        return join.size;
  Value x = symbols().materialize(builder(), impl.loc, a), y = symbols().materialize(builder(), impl.loc, b);
  Value one = arith::ConstantIndexOp::create(builder(), impl.loc, 1);
  auto equal = [&](Value x, Value y) {
    return builder().createOrFold<arith::CmpIOp>(impl.loc, arith::CmpIPredicate::eq, x, y);
  };
  Value isUnit = builder().createOrFold<arith::OrIOp>(impl.loc, equal(x, one), equal(y, one));
  Value fits = builder().createOrFold<arith::OrIOp>(impl.loc, equal(x, y), isUnit);
  emitRequire(*this, fits, nameSizes(symbols(), message, {a, b}), {x, y});
  ImportState::Join join{symbols().select(symbols().equal(a, Expr(1)), b, a), {a, b}};
  for (const ImportState::Join &known : state.joins)
    if (known.size == a || known.size == b)
      llvm::append_range(join.parts, known.parts);
  state.joins.push_back(join);
  return join.size;
}

LogicalResult Node::requireStretches(const Expr &own, const Expr &size, StringRef message) {
  FailureOr<Expr> joined = joinSizes(own, size, message);
  if (failed(joined))
    return failure();
  return requireEqual(*joined, size, message);
}

/// Asks for 1 where a size is to be repeated to `other`: because it is 0 or 1 in a run, as a slice of the first element
/// has, or because no run has both equal, or `other` 1.
static bool requireOne(Node &node, const Expr &size, const Expr &other) {
  Symbols &symbols = node.symbols();
  const Expr one(1);
  bool isAtMostOne = symbols.upperBound(size) == 1 && symbols.lowerBound(size).value_or(-1) >= 0;
  bool isAlone =
      symbols.isEqual(size, other) == false && !symbols.isEqual(size, one) && symbols.isEqual(other, one) == false;
  if (size.constant() || size.overflowed() || other.overflowed() || (!isAtMostOne && !isAlone))
    return false;
  if (isAtMostOne) {
    OpBuilder &b = node.builder();
    Value value = symbols.materialize(b, node.loc(), size), unit = symbols.materialize(b, node.loc(), one);
    Value holds = arith::CmpIOp::create(b, node.loc(), arith::CmpIPredicate::eq, value, unit);
    emitRequire(node, holds, nameSizes(symbols, "size {0} is broadcast, and is not 1 in this run", {size}), {value},
                /*unsupported=*/true);
  } else {
    requireCompare(node, arith::CmpIPredicate::eq, size, one,
                   substitute("sizes {0} and {1} do not broadcast", {"{0}", printableName(symbols.print(other))}));
  }
  symbols.assumeEqual(size, one);
  return true;
}

FailureOr<SmallVector<Expr>> Node::broadcast(ArrayRef<ArrayRef<Expr>> shapes) {
  size_t rank = 0;
  for (ArrayRef<Expr> shape : shapes)
    rank = std::max(rank, shape.size());
  SmallVector<Expr> result(rank, Expr(1));
  for (size_t dim = 0; dim < rank; ++dim) {
    Expr &size = result[dim];
    // A constant is the best name for a size that several shapes claim.
    for (bool constants : {true, false})
      for (ArrayRef<Expr> shape : shapes) {
        if (dim + shape.size() < rank)
          continue;
        const Expr &other = shape[dim + shape.size() - rank];
        if (symbols().isEqual(other, Expr(1)) == true || constants != other.constant().has_value())
          continue;
        bool isDecided = size.is(1) || symbols().isEqual(size, other) == true;
        if (!isDecided && requireOne(*this, other, size))
          continue;
        if (size.is(1) || (!isDecided && requireOne(*this, size, other))) {
          size = other;
          continue;
        }
        FailureOr<Expr> joined = joinSizes(size, other, "sizes {0} and {1} do not broadcast");
        if (failed(joined))
          return failure();
        size = *joined;
      }
  }
  return result;
}
