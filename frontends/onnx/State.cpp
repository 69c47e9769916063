#include "frontends/onnx/State.h"
#include "dialects/attn/NodeLocation.h"
#include "frontends/onnx/Limits.h"
#include "frontends/onnx/OperatorSchema.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
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
  for (auto symbol : module.getOps<SymbolOpInterface>())
    symbolCounts[symbol.getName()] = 1;
  for (auto global : module.getOps<GlobalOp>())
    if (!isa<InitializerAttr>(global.getExpression()))
      derived[{global.getExpression(), global.getType()}] = global.getSymName().str();
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
  if (!value) {
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToEnd(&entry.getBody().front());
    value = WeightOp::create(builder, loc, type, FlatSymbolRefAttr::get(builder.getContext(), symbol));
  }
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
  auto type = RankedTensorType::get(payload.shape, elementType(builder.getContext(), payload.dtype));
  // An equal one of another entry is the same weight.
  auto known = dyn_cast_or_null<GlobalOp>(name.empty() ? nullptr : module.lookupSymbol(name));
  if (known && known.getType() == type && weights.contains(name) && weights.lookup(name) == bytes) {
    result.weight = name.str();
    result.value = weightValue(result.weight, type, loc);
    return result;
  }
  result.weight = uniqueSymbol(name);
  if (payload.data.holder)
    weights.add(result.weight, bytes, payload.data.holder);
  else
    weights.addCopy(result.weight, bytes);
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

/// Erases what nothing uses, from the last op to the first. Regions nest no
/// deeper than subgraphs may.
static void sweepBlock(Block &block) {
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(block))) {
    if (isOpTriviallyDead(&op)) {
      op.erase();
      continue;
    }
    if (isa<scf::SCFDialect>(op.getDialect()))
      for (Region &region : op.getRegions())
        for (Block &inner : region)
          sweepBlock(inner);
  }
}

/// Whether an operator only moves or converts what it gets.
static bool takesNarrow(StringRef op) {
  static const StringRef known[] = {"Cast",          "CastLike",        "QuantizeLinear", "DequantizeLinear",
                                    "Identity",      "Reshape",         "Transpose",      "Flatten",
                                    "Squeeze",       "Unsqueeze",       "Shape",          "Size",
                                    "Constant",      "ConstantOfShape", "Gather",         "GatherBlockQuantized",
                                    "Concat",        "Slice",           "Split",          "BitCast",
                                    "QLinearMatMul", "Expand",          "Tile",           "Pad",
                                    "ScatterND",     "ScatterElements", "GemmFloat8"};
  return llvm::is_contained(known, op);
}

bool ImportState::checkInputs(const GraphNode &node, Location loc) {
  for (int input : node.inputs)
    if (isGiven(input) && values[input] && isNarrow(values[input]->dtype) && node.import && !takesNarrow(node.op)) {
      reporter.unsupported(loc) << "element type " << dtypeName(values[input]->dtype);
      return false;
    }
  for (int input : node.inputs) {
    if (!isGiven(input) || values[input])
      continue;
    auto it = unusable.find(input);
    if (it != unusable.end())
      reporter.unsupported(loc) << "uses " << it->second;
    else
      reporter.invalid(loc) << "uses '" << printableName(names[input])
                            << "', an output that its operator does not have";
    return false;
  }
  if (!node.schema)
    return true;
  SmallVector<const Tensor *> inputs;
  for (int input : node.inputs)
    inputs.push_back(isGiven(input) ? &*values[input] : nullptr);
  return checkTypes(*node.schema, inputs, loc, reporter);
}

bool ImportState::importNode(const GraphNode &node, Location loc) {
  if (!checkInputs(node, loc))
    return false;
  if (++importedNodes > kMaxImportedNodes) {
    reporter.invalid(loc) << "takes more than " << kMaxImportedNodes
                          << " steps to import: loops inside loops change the shapes of what they carry";
    return false;
  }
  if (!node.import) { // an output of an inlined function
    values[node.outputs[0]] = values[node.inputs[0]];
    return true;
  }
  Node::Impl impl{*this, node, loc, {}, false};
  impl.outputs.resize(node.outputs.size());
  Node api(impl);
  bool imported = succeeded(node.import(api));
  if (symbols.takeOverflow())
    api.error() << "a size or an index is beyond 64 bits, or too long an expression";
  if (!imported && !reporter.failed())
    reporter.invalid(loc) << "cannot be imported";
  if (!imported || impl.failed)
    return false;
  for (auto [number, output] : llvm::zip_equal(node.outputs, impl.outputs))
    if (number != GraphNode::kNone)
      values[number] = std::move(output);
  return true;
}

bool ImportState::importNodes(ArrayRef<GraphNode> nodes) {
  return llvm::all_of(nodes,
                      [&](const GraphNode &node) { return importNode(node, reporter.nodeLoc(node.name, node.op)); });
}

Operation *ImportState::enterRegion(Location loc) {
  auto region = scf::ExecuteRegionOp::create(builder, loc, TypeRange());
  Block *block = &region.getRegion().emplaceBlock();
  builder.setInsertionPointToEnd(block);
  symbols.enterHome(block);
  readsBefore.push_back(innerReads.size());
  return region;
}

void ImportState::leaveRegion(Operation *region) {
  symbols.leaveHome();
  builder.setInsertionPointToEnd(region->getBlock());
  for (size_t n = readsBefore.pop_back_val(); innerReads.size() > n; innerReads.pop_back())
    reads.erase(innerReads.back());
}

void ImportState::sweep() {
  sweepBlock(entry.getBody().front());
  sweepGlobals();
}

void ImportState::abandon() {
  entry.erase();
  sweepGlobals();
}

void ImportState::sweepGlobals() {
  // A global is alive when an entry names it or an alive global's expression does.
  llvm::StringMap<GlobalOp> globals;
  for (auto global : module.getOps<GlobalOp>())
    globals[global.getSymName()] = global;
  llvm::StringMap<bool> alive;
  std::vector<StringRef> work;
  auto mark = [&](StringRef symbol) {
    if (alive.try_emplace(symbol, true).second)
      work.push_back(symbol);
  };
  module.walk([&](WeightOp op) { mark(op.getGlobal()); });
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
