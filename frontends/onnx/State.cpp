#include "frontends/onnx/State.h"
#include "frontends/onnx/Limits.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;
using namespace attn;
using namespace attn::onnx;

ImportState::ImportState(Reporter &reporter, ModuleOp module, func::FuncOp entry, WeightStore &weights)
    : reporter(reporter), module(module), entry(entry), builder(module.getContext()), files(reporter.getPath()),
      weights(weights) {
  builder.setInsertionPointToEnd(&entry.getBody().front());
  symbols.setHome(&entry.getBody().front());
  symbolCounts[entry.getSymName()] = 1;
}

std::string ImportState::uniqueSymbol(StringRef base) {
  if (base.empty())
    base = "weight";
  std::string name = base.str();
  for (;;) {
    auto [it, fresh] = symbolCounts.try_emplace(name, 0);
    if (fresh)
      return name;
    name = base.str() + "." + std::to_string(++symbolCounts[base]);
  }
}

Value ImportState::weightValue(StringRef symbol, RankedTensorType type, Location loc) {
  Value &value = weightValues[symbol];
  if (!value)
    value = WeightOp::create(builder, loc, type, FlatSymbolRefAttr::get(builder.getContext(), symbol));
  return value;
}

Value ImportState::denseConstant(DType dtype, ArrayRef<int64_t> shape, ArrayRef<char> bytes, Location loc) {
  auto type = RankedTensorType::get(shape, elementType(builder.getContext(), dtype));
  // One element's bytes would be read as a splat of a larger tensor; counts
  // agree here, so that is the same thing. No bytes at all need a list.
  DenseElementsAttr attr = bytes.empty() ? DenseElementsAttr::get(type, ArrayRef<Attribute>())
                                         : DenseElementsAttr::getFromRawBuffer(type, bytes);
  return arith::ConstantOp::create(builder, loc, type, attr);
}

Tensor ImportState::constant(StringRef name, const Payload &payload, Location loc) {
  Tensor result;
  result.dtype = payload.dtype;
  for (int64_t size : payload.shape)
    result.shape.push_back(Expr(size));
  ArrayRef<char> bytes = payload.data.bytes;
  if (payload.numElements() <= int64_t(Tensor::kMaxElements)) {
    SmallVector<Scalar, 4> elements;
    for (int64_t i = 0; i < payload.numElements(); ++i)
      if (std::optional<Scalar> element = payload.element(i))
        elements.push_back(*element);
    if (int64_t(elements.size()) == payload.numElements()) {
      result.elements = std::move(elements);
      return result;
    }
  }
  if (bytes.size() <= kMaxInlineBytes) {
    result.value = denseConstant(payload.dtype, payload.shape, bytes, loc);
    return result;
  }
  result.weight = uniqueSymbol(name);
  if (payload.data.holder)
    weights.add(result.weight, bytes, payload.data.holder);
  else
    weights.addCopy(result.weight, bytes);
  auto type = RankedTensorType::get(payload.shape, elementType(builder.getContext(), payload.dtype));
  OpBuilder globals(entry);
  GlobalOp::create(globals, loc, result.weight, type, InitializerAttr::get(builder.getContext(), result.weight));
  result.value = weightValue(result.weight, type, loc);
  return result;
}

Tensor ImportState::derive(const Tensor &source, Attribute expression, ArrayRef<int64_t> shape, Location loc) {
  Tensor result;
  result.dtype = source.dtype;
  for (int64_t size : shape)
    result.shape.push_back(Expr(size));
  auto type = RankedTensorType::get(shape, elementType(builder.getContext(), source.dtype));
  std::string &symbol = derived[{expression, type}];
  if (symbol.empty()) {
    symbol = uniqueSymbol(source.weight);
    OpBuilder globals(entry);
    GlobalOp::create(globals, loc, symbol, type, expression);
  }
  result.weight = symbol;
  result.value = weightValue(symbol, type, loc);
  return result;
}

Value ImportState::materialize(const Tensor &t, Location loc) {
  assert(t.elements && "a tensor has a value or elements");
  SmallVector<int64_t> shape;
  for (const Expr &size : t.shape)
    shape.push_back(size.constant().value_or(ShapedType::kDynamic));
  int64_t width = dtypeBytes(t.dtype);
  std::vector<char> bytes(t.elements->size() * width);
  bool constant = true;
  for (auto [i, element] : llvm::enumerate(*t.elements))
    constant = constant && writeScalar(element, t.dtype, bytes.data() + i * width);
  if (constant)
    return denseConstant(t.dtype, shape, bytes, loc);

  Type type = elementType(builder.getContext(), t.dtype);
  SmallVector<Value> elements;
  for (const Scalar &element : *t.elements) {
    Value index = symbols.materialize(builder, loc, std::get<Expr>(element));
    elements.push_back(arith::IndexCastOp::create(builder, loc, type, index));
  }
  return tensor::FromElementsOp::create(builder, loc, RankedTensorType::get(shape, type), elements);
}

void ImportState::sweep() {
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(entry.getBody().front())))
    if (isOpTriviallyDead(&op))
      op.erase();

  // A global is alive when the entry names it or an alive global's expression does.
  llvm::StringMap<GlobalOp> globals;
  for (auto global : module.getOps<GlobalOp>())
    globals[global.getSymName()] = global;
  llvm::StringMap<bool> alive;
  std::vector<StringRef> work;
  auto mark = [&](StringRef symbol) {
    if (alive.try_emplace(symbol, true).second)
      work.push_back(symbol);
  };
  entry.walk([&](WeightOp op) { mark(op.getGlobal()); });
  while (!work.empty()) {
    GlobalOp global = globals.lookup(work.back());
    work.pop_back();
    global.getExpression().walk([&](FlatSymbolRefAttr source) { mark(source.getValue()); });
  }
  for (auto &entry : globals)
    if (!alive.contains(entry.first())) {
      weights.release(entry.first());
      entry.second.erase();
    }
}
