#include "tools/attnc/FoldConstants.h"

#include "dialects/attn/AttnOps.h"
#include "dialects/attn/NodeLocation.h"
#include "dialects/attn/WeightStore.h"
#include "tools/attn-run/runner/Model.h"

#include "mlir/Analysis/SliceAnalysis.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "mlir/Transforms/RegionUtils.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace attn::tools {
namespace {

/// Multiply-adds that are worth a compile of their own, and as many for an element of the result that reading it is
/// quicker.
constexpr double kLeastProducts = 0x1p20, kLeastPerElement = 64;
/// What all products of a module may take, which is four seconds of a processor, and any other op.
constexpr double kMostProducts = 0x1p35, kMostSteps = 0x1p26;
/// What a tensor may take that is computed, and what all results together add to the weights.
constexpr int64_t kMostBytes = int64_t(64) << 20, kMostAdded = int64_t(256) << 20;

int64_t bytesOf(RankedTensorType type) {
  double bytes = llvm::divideCeil(std::max(type.getElementTypeBitWidth(), 8u), 8);
  for (int64_t size : type.getShape())
    bytes *= static_cast<double>(size);
  return static_cast<int64_t>(std::min(bytes, 0x1p62));
}

/// How often the body of `loops` runs; much where a range is not known.
double stepsOf(linalg::LinalgOp loops) {
  double steps = 1;
  for (int64_t range : loops.getStaticLoopRanges())
    steps *= ShapedType::isDynamic(range) ? 0x1p62 : static_cast<double>(range);
  return steps;
}

/// The type of a stored tensor, or null.
RankedTensorType storedType(Value value) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  return type && type.hasStaticShape() && isa<FloatType>(type.getElementType()) && type.getElementTypeBitWidth() >= 16
             ? type
             : RankedTensorType();
}

/// The values of one body that are to become weights.
class ConstantProducts {
public:
  explicit ConstantProducts(Block &body) {
    for (Operation &op : body)
      if (isConstant(op))
        constants.insert(&op);
    llvm::DenseSet<Value> ends;
    for (Operation &op : body)
      if (constants.contains(&op) && isLargeProduct(op))
        ends.insert(endOf(op.getResult(0)));
    llvm::DenseSet<Operation *> live;
    for (Operation &op : llvm::reverse(body)) {
      bool isUsed = !constants.contains(&op) || llvm::any_of(op.getUsers(), [&](Operation *user) {
        return live.contains(body.findAncestorOpInBlock(*user));
      });
      bool isStored = isUsed && constants.contains(&op) && op.getNumResults() == 1 && ends.contains(op.getResult(0));
      if (isStored)
        found.push_back(op.getResult(0));
      else if (isUsed)
        live.insert(&op);
    }
  }

  /// The last first.
  ArrayRef<Value> values() const { return found; }

private:
  /// Whether the cost of `op` is known, and small where it is no product.
  static bool isCheap(Operation &op) {
    if (auto loops = dyn_cast<linalg::LinalgOp>(op))
      return linalg::isaContractionOpInterface(loops) || (stepsOf(loops) <= kMostSteps && !hasInnerLoops(op));
    return !op.getNumRegions() && (!isa<AttnDialect>(op.getDialect()) || isa<WeightOp, LayerNormOp>(op));
  }

  bool isConstant(Operation &op) const {
    auto isSmall = [](Type type) {
      auto tensor = dyn_cast<RankedTensorType>(type);
      return !tensor || (tensor.hasStaticShape() && bytesOf(tensor) <= kMostBytes);
    };
    if (op.hasTrait<OpTrait::IsTerminator>() || !isMemoryEffectFree(&op) || !isCheap(op) ||
        (!isa<WeightOp>(op) && !llvm::all_of(op.getResultTypes(), isSmall)))
      return false;
    auto isKnown = [&](Value value) { return constants.contains(value.getDefiningOp()); };
    llvm::SetVector<Value> above;
    getUsedValuesDefinedAbove(op.getRegions(), above);
    return llvm::all_of(op.getOperands(), isKnown) && llvm::all_of(above, isKnown);
  }

  static bool hasInnerLoops(Operation &op) {
    return llvm::any_of(op.getRegion(0).getOps(), [](Operation &inner) { return inner.getNumRegions() != 0; });
  }

  static bool isLargeProduct(Operation &op) {
    auto product = dyn_cast<linalg::LinalgOp>(op);
    if (!product || !linalg::isaContractionOpInterface(product) || !storedType(op.getResult(0)))
      return false;
    auto elements = static_cast<double>(storedType(op.getResult(0)).getNumElements());
    return stepsOf(product) >= std::max(kLeastProducts, kLeastPerElement * elements);
  }

  /// What only views and elementwise ops make of `value`, and nothing larger.
  Value endOf(Value value) const {
    while (value.hasOneUse()) {
      Operation *user = *value.user_begin();
      auto loops = dyn_cast<linalg::LinalgOp>(user);
      bool isView = isa<tensor::ExpandShapeOp, tensor::CollapseShapeOp>(user);
      bool goesOn = constants.contains(user) && user->getNumResults() == 1 && storedType(user->getResult(0)) &&
                    (isView || (loops && !loops.getNumReductionLoops()));
      if (!goesOn || storedType(user->getResult(0)).getNumElements() > storedType(value).getNumElements())
        break;
      value = user->getResult(0);
    }
    return value;
  }

  llvm::DenseSet<Operation *> constants;
  SmallVector<Value> found;
};

/// A module of its own that computes `values`.
class Computation {
public:
  Computation(ModuleOp from, ArrayRef<Value> values, const WeightStore &weights)
      : symbols(from), weights(weights), made(ModuleOp::create(from.getLoc())) {
    OpBuilder b = OpBuilder::atBlockEnd(made->getBody());
    SmallVector<Type> types = llvm::to_vector(ValueRange(values).getTypes());
    auto entry = func::FuncOp::create(b, from.getLoc(), "main", b.getFunctionType({}, types));
    entry->setAttr(AttnDialect::kEntryAttr, b.getUnitAttr());
    for (auto [n, value] : llvm::enumerate(values)) {
      auto type = cast<RankedTensorType>(value.getType());
      SmallVector<Attribute> dims(type.getRank(), b.getStringAttr(""));
      entry.setResultAttr(n, AttnDialect::kNameAttr, b.getStringAttr("constant" + llvm::Twine(n)));
      entry.setResultAttr(n, AttnDialect::kDTypeAttr, b.getStringAttr(nameOf(type.getElementType())));
      entry.setResultAttr(n, AttnDialect::kDimsAttr, b.getArrayAttr(dims));
    }
    b.setInsertionPointToStart(entry.addEntryBlock());
    IRMapping map;
    for (Value value : values)
      copy(b, value, map);
    func::ReturnOp::create(b, from.getLoc(),
                           llvm::map_to_vector(values, [&](Value value) { return map.lookup(value); }));
  }

  OwningOpRef<ModuleOp> take() { return std::move(made); }
  WeightStore &ownWeights() { return own; }
  /// How many multiply-adds it takes.
  double products() const { return count; }

private:
  static StringRef nameOf(Type type) {
    return type.isF32() ? "float32" : type.isF64() ? "float64" : type.isF16() ? "float16" : "bfloat16";
  }

  void copy(OpBuilder &b, Value value, IRMapping &map) {
    BackwardSliceOptions how;
    how.inclusive = true;
    how.omitUsesFromAbove = false;
    llvm::SetVector<Operation *> slice;
    if (failed(getBackwardSlice(value, &slice, how)))
      llvm_unreachable("what is constant has no operands of the entry");
    for (Operation *op : slice) { // what an op needs stands before it
      if (op->getBlock() != value.getParentBlock() || map.contains(op->getResult(0)))
        continue;
      if (auto weight = dyn_cast<WeightOp>(op))
        copyGlobal(weight.getGlobalAttr());
      if (auto loops = dyn_cast<linalg::LinalgOp>(op); loops && linalg::isaContractionOpInterface(loops))
        count += stepsOf(loops);
      b.clone(*op, map);
    }
  }

  /// A global with those that it is made of, and their bytes.
  void copyGlobal(FlatSymbolRefAttr name) {
    auto global = symbols.lookup<GlobalOp>(name.getValue());
    if (!copied.insert(name.getValue()).second)
      return;
    OpBuilder::atBlockBegin(made->getBody()).clone(*global);
    if (auto initializer = dyn_cast<InitializerAttr>(global.getExpression()))
      own.add(initializer.getName(), weights.lookup(initializer.getName()), nullptr);
    global.getExpression().walk([&](FlatSymbolRefAttr source) { copyGlobal(source); });
  }

  SymbolTable symbols;
  const WeightStore &weights;
  WeightStore own;
  OwningOpRef<ModuleOp> made;
  llvm::DenseSet<StringRef> copied;
  double count = 0;
};

/// Compiles and runs; false where that fails.
bool compute(Computation &computation, const CompileOptions &options, const std::string &path,
             std::vector<runner::Tensor> &results) {
  OwningOpRef<ModuleOp> module = computation.take();
  ScopedDiagnosticHandler silence(module->getContext(), [](Diagnostic &) { return success(); });
  CompileOptions how;
  how.quickCode = true;
  how.cacheDir = options.cacheDir;
  runner::Model library;
  runner::Failure failure;
  std::vector<runner::Tensor> inputs;
  bool done = succeeded(compileModule(std::move(module), computation.ownWeights(), how, path)) &&
              library.load(path, "", 0, failure) && library.run(inputs, results, failure);
  (void)llvm::sys::fs::remove(path);
  return done;
}

/// Puts a weight of these bytes in the place of `value`.
void replace(Value value, const runner::Tensor &result, SymbolTable &symbols, WeightStore &weights) {
  Location loc = value.getLoc();
  std::string of = nodeName(loc).str(), name = of.empty() ? "a constant" : "the constant of " + of;
  for (unsigned n = 2; weights.contains(name); ++n)
    name = "the constant of " + of + " " + std::to_string(n);
  weights.addCopy(name, {static_cast<const char *>(result.data()), result.bytes()});
  auto module = cast<ModuleOp>(symbols.getOp());
  OpBuilder b = OpBuilder::atBlockBegin(module.getBody());
  auto global = GlobalOp::create(b, loc, b.getStringAttr("constant"), TypeAttr::get(value.getType()),
                                 InitializerAttr::get(b.getContext(), name));
  StringAttr symbol = symbols.insert(global);
  b.setInsertionPointAfterValue(value);
  value.replaceAllUsesWith(WeightOp::create(b, loc, value.getType(), FlatSymbolRefAttr::get(symbol)));
}

void eraseDead(Block &body) {
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(body)))
    if (isOpTriviallyDead(&op))
      op.erase();
}

} // namespace

void foldConstants(ModuleOp module, WeightStore &weights, const CompileOptions &options, const std::string &library) {
  if (options.optLevel == 0 || options.maxFusionPasses == 0 || library.empty())
    return;
  SmallVector<Value> values;
  int64_t bytes = 0;
  for (auto function : module.getOps<func::FuncOp>()) {
    if (function.isExternal())
      continue;
    ConstantProducts products(function.front());
    for (Value value : products.values())
      if (int64_t size = bytesOf(storedType(value)); bytes + size <= kMostAdded) {
        bytes += size;
        values.push_back(value);
      }
  }
  if (values.empty())
    return;
  Computation computation(module, values, weights);
  std::vector<runner::Tensor> results;
  if (computation.products() > kMostProducts || !compute(computation, options, library, results))
    return;
  SymbolTable symbols(module);
  for (auto [value, result] : llvm::zip_equal(values, results))
    replace(value, result, symbols, weights);
  for (auto function : module.getOps<func::FuncOp>())
    if (!function.isExternal())
      eraseDead(function.front());
}

} // namespace attn::tools
