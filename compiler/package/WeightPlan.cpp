#include "compiler/package/WeightPlan.h"

#include "compiler/package/WeightExpression.h"
#include "mlir/IR/SymbolTable.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/raw_ostream.h"
#include <numeric>

using namespace mlir;

namespace attn {
namespace {

uint64_t bytesOf(GlobalOp global) { return *weightTensorBytes(cast<RankedTensorType>(global.getType())); }

Type elementType(GlobalOp global) { return cast<RankedTensorType>(global.getType()).getElementType(); }

/// Names with a source that goes deeper are circles or hostile.
constexpr unsigned kMaxDepth = 64;

class Expressions {
public:
  Expressions(ModuleOp module) : symbols(module) {}

  GlobalOp lookup(StringRef symbol) { return symbols.lookup<GlobalOp>(symbol); }

  /// Verifies the expression of `global` and of all that it reads, and collects
  /// the initialisers. `key` gets a text that is equal for equal expressions.
  LogicalResult inspect(GlobalOp global, const WeightStore &store, llvm::SetVector<StringRef> &initializers,
                        std::string &key, unsigned depth = 0) {
    if (depth > kMaxDepth)
      return global.emitOpError("has an expression that is nested deeper than ") << kMaxDepth << " or goes in a circle";
    auto type = cast<RankedTensorType>(global.getType());
    llvm::raw_string_ostream os(key);
    if (auto initializer = dyn_cast<InitializerAttr>(global.getExpression())) {
      if (failed(verifyWeightExpression(global, {})))
        return failure();
      if (!store.contains(initializer.getName()))
        return global.emitOpError("reads initialiser '") << initializer.getName() << "', which is not there";
      uint64_t want = *weightTensorBytes(type), got = store.lookup(initializer.getName()).size();
      if (want != got)
        return global.emitOpError("needs ")
               << want << " bytes of initialiser '" << initializer.getName() << "', got " << got;
      initializers.insert(initializer.getName());
      os << "init " << sharedName(initializer.getName(), store) << ' ' << type;
      return success();
    }
    os << type << " = " << withoutSources(global.getExpression()) << " (";
    SmallVector<RankedTensorType> types;
    for (FlatSymbolRefAttr symbol : weightSources(global)) {
      GlobalOp source = lookup(symbol.getValue());
      if (!source)
        return global.emitOpError("reads ") << symbol << ", which is no attn.global";
      std::string sourceKey;
      if (failed(inspect(source, store, initializers, sourceKey, depth + 1)))
        return failure();
      os << sourceKey << ", ";
      types.push_back(cast<RankedTensorType>(source.getType()));
    }
    os << ")";
    return verifyWeightExpression(global, types);
  }

  /// The sources of a concatenation that lie one behind the other, each a place
  /// of its own; none of another global.
  SmallVector<GlobalOp> partsOf(GlobalOp global) {
    auto concat = dyn_cast<ConcatAttr>(global.getExpression());
    if (!concat || concat.getDim() != 0)
      return {};
    SmallVector<GlobalOp> parts;
    for (FlatSymbolRefAttr source : concat.getSources())
      parts.push_back(lookup(source.getValue()));
    bool isAligned = llvm::all_of(ArrayRef(parts).drop_back(),
                                  [](GlobalOp part) { return bytesOf(part) % WeightPlan::kAlignment == 0; });
    return isAligned ? parts : SmallVector<GlobalOp>();
  }

  /// Whether the values of `global`, or parts of it, are stored in fewer bits.
  bool isNarrow(GlobalOp global) {
    if (auto reshape = dyn_cast<ReshapeAttr>(global.getExpression()))
      return !elementType(global).isF32() && elementType(lookup(reshape.getSource().getValue())).isF32();
    if (isa<NarrowPanelsAttr>(global.getExpression()))
      return !isStoredIn(global, elementType(global));
    if (codeBits(global) || isFloat8(global))
      return true;
    return isa<ConcatAttr>(global.getExpression()) && isNarrow(lookup(weightSources(global).front().getValue()));
  }

  /// The bits of the codes that `global` is panels of; 0 where the compiler made none.
  int64_t codeBits(GlobalOp global) {
    auto panels = dyn_cast<BytePanelsAttr>(global.getExpression());
    auto codes =
        panels ? dyn_cast<BlockCodesAttr>(lookup(panels.getSource().getValue()).getExpression()) : BlockCodesAttr();
    return codes ? codes.getBits() : 0;
  }

  /// Whether the compiler has made its numbers ones of e4m3.
  bool isFloat8(GlobalOp global) {
    return isa<BlockCodesAttr>(global.getExpression()) && isa<Float8E4M3FNType>(elementType(global));
  }

  /// Whether all numbers of `global` are of type `element` in the model.
  bool isStoredIn(GlobalOp global, Type element) {
    if (isa<InitializerAttr>(global.getExpression()))
      return elementType(global) == element;
    return llvm::all_of(weightSources(global),
                        [&](FlatSymbolRefAttr source) { return isStoredIn(lookup(source.getValue()), element); });
  }

  /// None, with a diagnostic, where an expression cannot hold its values.
  std::optional<WeightBytes> evaluate(GlobalOp global, const WeightStore &store, Narrowing *narrowing) {
    if (auto initializer = dyn_cast<InitializerAttr>(global.getExpression()))
      return WeightBytes{store.lookup(initializer.getName()), nullptr};
    SmallVector<RankedTensorType> types;
    SmallVector<WeightBytes> sources;
    for (FlatSymbolRefAttr symbol : weightSources(global)) {
      GlobalOp source = lookup(symbol.getValue());
      types.push_back(cast<RankedTensorType>(source.getType()));
      std::optional<WeightBytes> bytes = evaluate(source, store, narrowing);
      if (!bytes)
        return std::nullopt;
      sources.push_back(std::move(*bytes));
    }
    WeightBytes bytes = applyWeightExpression(global, types, sources, narrowing);
    return bytes.bytes.size() == bytesOf(global) ? std::optional(std::move(bytes)) : std::nullopt;
  }

private:
  /// The first name seen with the same bytes, so that tied tensors share.
  StringRef sharedName(StringRef name, const WeightStore &store) {
    auto known = shared.find(name);
    if (known != shared.end())
      return known->second;
    ArrayRef<char> bytes = store.lookup(name);
    for (StringRef other : bySize[bytes.size()])
      if (store.lookup(other) == bytes)
        return shared[name] = other.str();
    bySize[bytes.size()].push_back(name);
    return shared[name] = name.str();
  }

  /// The expression's text with its sources blanked; their own keys follow.
  static std::string withoutSources(Attribute expression) {
    auto blank = FlatSymbolRefAttr::get(expression.getContext(), "_");
    AttrTypeReplacer replacer;
    replacer.addReplacement([&](FlatSymbolRefAttr) { return blank; });
    std::string text;
    llvm::raw_string_ostream(text) << replacer.replace(expression);
    return text;
  }

  SymbolTable symbols;
  llvm::StringMap<std::string> shared;
  std::map<size_t, std::vector<StringRef>> bySize;
};

/// How the runtime describes a global made of one initialiser. Positions are part of the code, too: what it knows of
/// them keeps what it reads there in bounds.
std::string describeLayout(GlobalOp global, Expressions &expressions) {
  if (elementType(global).isInteger(64))
    return "derived";
  if (isa<InitializerAttr>(global.getExpression()))
    return "plain";
  if (auto reshape = dyn_cast<ReshapeAttr>(global.getExpression())) {
    GlobalOp source = expressions.lookup(reshape.getSource().getValue());
    std::string layout = describeLayout(source, expressions);
    bool keepsBits = elementType(global) == elementType(source) || isa<Float8E4M3FNType>(elementType(global));
    if (keepsBits)
      return layout == "plain" ? "plain" : "derived";
    if (layout != "plain" || elementType(global).isF32())
      return "derived";
    return elementType(global).isF16() ? "plain-f16" : "plain-bf16";
  }
  if (auto narrow = dyn_cast<NarrowPanelsAttr>(global.getExpression())) {
    if (narrow.getDepth() != 1 || narrow.getParts() != 1)
      return "derived";
    bool isBf16 = cast<RankedTensorType>(global.getType()).getElementType().isBF16();
    return (isBf16 ? "panels-bf16:" : "panels-int8:") + std::to_string(narrow.getWidth());
  }
  if (auto scales = dyn_cast<PanelScalesAttr>(global.getExpression()))
    return "scales:" + std::to_string(scales.getWidth());
  auto pack = dyn_cast<PackPanelsAttr>(global.getExpression());
  if (!pack)
    return "derived";
  bool transposed = pack.getTransposed();
  GlobalOp source = expressions.lookup(pack.getSource().getValue());
  if (auto transpose = dyn_cast<TransposeAttr>(source.getExpression())) {
    if (transpose.getPermutation() == ArrayRef<int64_t>{1, 0})
      transposed = !transposed;
    source = expressions.lookup(transpose.getSource().getValue());
  }
  if (!isa<InitializerAttr>(source.getExpression()))
    return "derived";
  return (transposed ? "panels-t:" : "panels:") + std::to_string(pack.getWidth());
}

/// The same of initialiser `name` where several lie side by side: in rows of so many elements each has its own.
std::string describeColumns(GlobalOp global, StringRef name, Expressions &expressions) {
  if (elementType(global).isInteger(64))
    return "derived";
  std::string kind = "columns";
  if (auto reshape = dyn_cast<ReshapeAttr>(global.getExpression())) {
    GlobalOp source = expressions.lookup(reshape.getSource().getValue());
    Type element = elementType(global);
    bool isRounded = element != elementType(source);
    if (isRounded && !element.isF16() && !element.isBF16())
      return "derived";
    if (isRounded)
      kind += element.isF16() ? "-f16" : "-bf16";
    global = source;
  }
  auto concat = dyn_cast<ConcatAttr>(global.getExpression());
  if (!concat)
    return "derived";
  auto rowOf = [&](GlobalOp each) {
    ArrayRef<int64_t> shape = cast<RankedTensorType>(each.getType()).getShape().drop_front(concat.getDim());
    return std::accumulate(shape.begin(), shape.end(), int64_t(1), std::multiplies<>());
  };
  std::optional<int64_t> found;
  int64_t first = 0;
  for (FlatSymbolRefAttr symbol : concat.getSources()) {
    GlobalOp source = expressions.lookup(symbol.getValue());
    auto initializer = dyn_cast<InitializerAttr>(source.getExpression());
    bool isFound = initializer && initializer.getName() == name;
    if (!initializer || (isFound && found)) // of one that stands there twice both would change
      return "derived";
    if (isFound)
      found = first;
    first += rowOf(source);
  }
  return kind + ":" + std::to_string(*found) + ":" + std::to_string(first);
}

} // namespace

FailureOr<WeightPlan> WeightPlan::create(ModuleOp module, ArrayRef<StringRef> symbols, const WeightStore &store) {
  WeightPlan plan;
  Expressions expressions(module);
  llvm::StringMap<GlobalOp> initializerGlobals;
  module.walk([&](GlobalOp global) {
    if (auto initializer = dyn_cast<InitializerAttr>(global.getExpression()))
      initializerGlobals[initializer.getName()] = global;
  });
  llvm::StringMap<uint64_t> offsetOfKey;
  // Each name that reads the place has its row, so that the runtime sees that
  // replacing one tensor would change another.
  auto addRows = [&](GlobalOp global, const llvm::SetVector<StringRef> &initializers, uint64_t offset) {
    const std::string known = describeLayout(global, expressions);
    for (StringRef name : initializers) {
      if (llvm::any_of(plan.rows, [&](const WeightRow &row) { return row.offset == offset && row.name == name; }))
        continue;
      std::string layout = known == "derived" ? describeColumns(global, name, expressions) : known;
      auto type = cast<RankedTensorType>(initializerGlobals.lookup(name).getType());
      plan.rows.push_back(
          {name.str(), type.getElementType(), SmallVector<int64_t>(type.getShape()), offset, bytesOf(global), layout});
    }
  };
  auto addPlace = [&](GlobalOp global, const llvm::SetVector<StringRef> &initializers) {
    Place place;
    place.symbol = global.getSymName().str();
    place.offset = llvm::alignTo(plan.total, kAlignment);
    place.size = bytesOf(global);
    for (StringRef name : initializers)
      place.sources.push_back(name.str());
    plan.total = place.offset + place.size;
    plan.places.push_back(std::move(place));
    return plan.places.back().offset;
  };
  auto layOut = [&](StringRef symbol) -> LogicalResult {
    if (plan.offsets.contains(symbol))
      return success();
    GlobalOp global = expressions.lookup(symbol);
    if (!global)
      return module.emitError() << "weight '" << symbol << "' is no attn.global";
    llvm::SetVector<StringRef> initializers;
    std::string key;
    if (failed(expressions.inspect(global, store, initializers, key)))
      return failure();
    SmallVector<GlobalOp> parts = expressions.partsOf(global);
    if (parts.empty()) {
      auto [known, isNew] = offsetOfKey.try_emplace(key);
      if (isNew)
        known->second = addPlace(global, initializers);
      plan.offsets[symbol] = known->second;
      addRows(global, initializers, known->second);
      return success();
    }
    auto [known, isNew] = offsetOfKey.try_emplace(key, llvm::alignTo(plan.total, kAlignment));
    uint64_t offset = plan.offsets[symbol] = known->second;
    for (GlobalOp part : parts) {
      llvm::SetVector<StringRef> read;
      std::string partKey;
      if (failed(expressions.inspect(part, store, read, partKey)))
        return failure();
      if (isNew)
        offsetOfKey.try_emplace(partKey, addPlace(part, read));
      addRows(part, read, offset);
      offset += bytesOf(part);
    }
    return success();
  };
  // First what has parts: who reads one of them alone finds it there.
  for (bool hasParts : {true, false})
    for (StringRef symbol : symbols) {
      GlobalOp global = expressions.lookup(symbol);
      if ((global && isa<ConcatAttr>(global.getExpression())) == hasParts && failed(layOut(symbol)))
        return failure();
    }
  return plan;
}

std::optional<uint64_t> WeightPlan::offsetOf(StringRef symbol) const {
  auto it = offsets.find(symbol);
  return it == offsets.end() ? std::nullopt : std::optional<uint64_t>(it->second);
}

LogicalResult WeightPlan::write(ModuleOp module, WeightStore &store, function_ref<bool(ArrayRef<char>)> sink,
                                std::vector<NarrowedWeight> *narrowed) const {
  Expressions expressions(module);
  llvm::StringMap<unsigned> uses;
  for (const Place &place : places)
    for (const std::string &source : place.sources)
      ++uses[source];
  uint64_t at = 0;
  for (const Place &place : places) {
    const char zeros[kAlignment] = {};
    if (!sink(ArrayRef<char>(zeros, place.offset - at)))
      return failure();
    GlobalOp global = expressions.lookup(place.symbol);
    Narrowing lost;
    std::optional<WeightBytes> bytes = expressions.evaluate(global, store, &lost);
    if (!bytes)
      return failure();
    if (bytes->bytes.size() != place.size)
      return module.emitError() << "weight '" << place.symbol << "' changed its size while it was written";
    if (!sink(bytes->bytes))
      return failure();
    if (narrowed && expressions.isNarrow(global)) {
      auto type = cast<RankedTensorType>(global.getType());
      std::string name = place.sources.empty() ? place.symbol : llvm::join(place.sources, " + ");
      narrowed->push_back({name,
                           type.getElementType().isBF16()      ? "bf16"
                           : type.getElementType().isF16()     ? "f16"
                           : expressions.codeBits(global) == 4 ? "int4"
                           : expressions.isFloat8(global)      ? "fp8"
                                                               : "int8",
                           lost});
    }
    at = place.offset + place.size;
    for (const std::string &source : place.sources)
      if (--uses[source] == 0)
        store.release(source);
  }
  return success();
}

} // namespace attn
