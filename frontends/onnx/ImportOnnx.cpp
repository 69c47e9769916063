#include "frontends/onnx/ImportOnnx.h"
#include "dialects/attn/BroadcastForm.h"
#include "dialects/attn/DimBounds.h"
#include "dialects/attn/NodeLocation.h"
#include "frontends/onnx/Entry.h"
#include "frontends/onnx/Inputs.h"
#include "frontends/onnx/Limits.h"
#include "frontends/onnx/LoopImport.h"
#include "frontends/onnx/State.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace attn;
using namespace attn::onnx;

/// attn.name, attn.dtype and attn.dims of an argument or result.
static DictionaryAttr describeTensor(MLIRContext *context, StringRef name, DType dtype, ArrayRef<std::string> dims) {
  Builder b(context);
  SmallVector<Attribute> names;
  for (const std::string &dim : dims)
    names.push_back(b.getStringAttr(dim));
  return b.getDictionaryAttr({b.getNamedAttr(AttnDialect::kNameAttr, b.getStringAttr(name)),
                              b.getNamedAttr(AttnDialect::kDTypeAttr, b.getStringAttr(dtypeName(dtype))),
                              b.getNamedAttr(AttnDialect::kDimsAttr, b.getArrayAttr(names))});
}

namespace {
class Importer {
public:
  Importer(Reporter &reporter, const ImportOptions &options, const Graph &graph, ModuleOp module, WeightStore &weights);

  bool run(llvm::function_ref<bool(ImportState &)> body);

private:
  bool addInputs();
  bool addOutput(const Tensor &t, const std::string &name);
  void setInput(const InputSpec &spec, const Tensor &t);
  std::optional<Tensor> constantInput(const InputSpec &spec);
  Expr boundedDimension(StringRef name, Value size);
  bool addInitializers();
  bool addOutputs();
  Location makerOf(int value) const;

  Reporter &reporter;
  const ImportOptions &options;
  const Graph &graph;
  func::FuncOp entry;
  ImportState state;
  SmallVector<NamedAttribute> bounds; // of dimensions, lower and upper
  SmallVector<Value> results;
  SmallVector<Attribute> resultAttributes;
};
} // namespace

static std::string symbolOf(const ImportOptions &options, bool isBroadcastForm) {
  // A name that a caller chose could be that of a function of libm.
  std::string symbol = options.isOneOfSeveral ? "entry." + options.entry : options.entry;
  return isBroadcastForm ? "broadcast." + symbol : symbol;
}

static func::FuncOp makeEntry(ModuleOp module, Location loc, const ImportOptions &options) {
  OpBuilder b = OpBuilder::atBlockEnd(module.getBody());
  auto entry = func::FuncOp::create(b, loc, symbolOf(options, options.isBroadcastForm), b.getFunctionType({}, {}));
  if (options.isBroadcastForm)
    entry->setAttr(kBroadcastFormAttr, FlatSymbolRefAttr::get(module.getContext(), symbolOf(options, false)));
  entry->setAttr(AttnDialect::kEntryAttr,
                 options.isOneOfSeveral ? Attribute(b.getStringAttr(options.entry)) : Attribute(b.getUnitAttr()));
  entry.addEntryBlock();
  return entry;
}

Importer::Importer(Reporter &reporter, const ImportOptions &options, const Graph &graph, ModuleOp module,
                   WeightStore &weights)
    : reporter(reporter), options(options), graph(graph), entry(makeEntry(module, reporter.fileLoc(), options)),
      state(reporter, module, entry, weights) {
  state.values.resize(graph.values.size());
  state.names = graph.values;
  state.ranks = graph.ranks;
  state.maxLoopIterations = options.maxLoopIterations;
  state.broadcastsInRun = options.isBroadcastForm;
  if (options.servesBroadcasts && !options.isBroadcastForm)
    state.otherwise = symbolOf(options, /*isBroadcastForm=*/true);
}

bool Importer::addInputs() {
  std::optional<std::vector<InputSpec>> specs = readInputs(graph, options, reporter);
  if (!specs)
    return false;
  Block &block = entry.getBody().front();
  OpBuilder &b = state.builder;
  Location loc = reporter.fileLoc();
  SmallVector<Attribute> attributes;
  llvm::StringSet<> taken;
  for (const InputSpec &spec : *specs)
    for (const InputDim &dim : spec.dims)
      taken.insert(dim.name);
  for (auto [value, info] : graph.inputs)
    if (options.absent.count(info->name()))
      state.absent.insert(value);
  for (const InputSpec &spec : *specs) {
    if (std::optional<Tensor> known = constantInput(spec)) {
      setInput(spec, *known);
      continue;
    }
    SmallVector<int64_t> sizes;
    SmallVector<std::string> names;
    for (const InputDim &dim : spec.dims) {
      sizes.push_back(dim.size.value_or(ShapedType::kDynamic));
      names.push_back(dim.size ? "" : dim.name);
    }
    auto type = RankedTensorType::get(sizes, elementType(b.getContext(), spec.dtype));
    attributes.push_back(describeTensor(b.getContext(), spec.name, spec.dtype, names));
    Tensor t;
    t.dtype = spec.dtype;
    t.value = block.addArgument(type, loc);
    for (auto [n, dim] : llvm::enumerate(spec.dims)) {
      if (dim.size) {
        t.shape.push_back(Expr(*dim.size));
        continue;
      }
      // Equal names are one size (the runtime checks); a nameless one gets a
      // name that the model does not give to another.
      std::string name = dim.name.empty() ? spec.name + "[" + std::to_string(n) + "]" : dim.name;
      while (dim.name.empty() && !taken.insert(name).second)
        name += "'";
      if (std::optional<Expr> known = state.symbols.lookup(name)) {
        state.sharedDims.insert(name);
        t.shape.push_back(*known);
        continue;
      }
      Value size = tensor::DimOp::create(b, loc, t.value, int64_t(n));
      t.shape.push_back(boundedDimension(name, size));
    }
    setInput(spec, t);
  }
  entry.setFunctionType(b.getFunctionType(block.getArgumentTypes(), {}));
  entry.setArgAttrsAttr(b.getArrayAttr(attributes));
  if (!bounds.empty())
    entry->setAttr(kDimBoundsAttr, b.getDictionaryAttr(bounds));
  return true;
}

/// `t` as the input of the model that it is, or as the next part of it.
void Importer::setInput(const InputSpec &spec, const Tensor &t) {
  std::optional<Tensor> &value = state.values[spec.value];
  if (spec.part == InputSpec::Part::Whole) {
    value = t;
    return;
  }
  Sequence sequence = value ? *value->sequence : Sequence();
  sequence.dtype = spec.dtype;
  if (spec.part == InputSpec::Part::Item) {
    sequence.items.push_back(t);
  } else {
    sequence.stack = t.value;
    sequence.length = t.shape[0];
    sequence.element.emplace(t.shape.begin() + 1, t.shape.end());
  }
  value.emplace();
  value->sequence = std::make_shared<const Sequence>(std::move(sequence));
}

/// An input of at most one dimension that the options set.
std::optional<Tensor> Importer::constantInput(const InputSpec &spec) {
  auto known = options.constants.find(spec.name);
  if (known == options.constants.end() || spec.part != InputSpec::Part::Whole || isFloat(spec.dtype) ||
      isNarrow(spec.dtype) || spec.dims.size() > 1)
    return std::nullopt;
  int64_t count = spec.dims.empty() ? 1 : spec.dims[0].size.value_or(1);
  if (count > int64_t(Tensor::kMaxElements))
    return std::nullopt;
  Tensor t;
  t.dtype = spec.dtype;
  if (!spec.dims.empty())
    t.shape.push_back(Expr(count));
  t.elements = SmallVector<Scalar, 4>(count, Scalar(Expr(known->second)));
  return t;
}

/// The dimension `name` of value `size`, within the bounds that the options give it.
Expr Importer::boundedDimension(StringRef name, Value size) {
  auto range = options.dimRanges.find(name.str());
  if (range == options.dimRanges.end())
    return state.symbols.dimension(name, size);
  auto [lower, upper] = range->second;
  OpBuilder &b = state.builder;
  Location loc = size.getLoc();
  auto holds = [&](arith::CmpIPredicate predicate, int64_t bound) -> Value {
    return arith::CmpIOp::create(b, loc, predicate, size, arith::ConstantIndexOp::create(b, loc, bound));
  };
  Value inside =
      arith::AndIOp::create(b, loc, holds(arith::CmpIPredicate::sge, lower), holds(arith::CmpIPredicate::sle, upper));
  std::string message = "dimension '" + printableName(name.str()) +
                        "' has size {0}, and the library was compiled for " + std::to_string(lower) + " to " +
                        std::to_string(upper);
  RequireOp::create(b, loc, inside, message, size)->setAttr(kBoundOfAttr, b.getStringAttr(name));
  bounds.push_back(b.getNamedAttr(name, b.getDenseI64ArrayAttr({lower, upper})));
  return state.symbols.dimension(name, size, lower);
}

bool Importer::addInitializers() {
  for (auto [value, tensor, isShared, sparse] : graph.initializers) {
    PayloadError problem;
    std::optional<Payload> payload =
        sparse ? readSparse(*sparse, /*take=*/!isShared, state.files, state.denseBytes, problem)
               : readPayload(*tensor, /*take=*/!isShared, state.files, problem);
    if (payload) {
      state.values[value] = state.constant(tensor->name(), *payload, reporter.fileLoc());
    } else if (problem.unsupported) {
      // Only a node that uses it has a reason to complain.
      state.unusable[value] = "initialiser '" + printableName(tensor->name()) + "' " + problem.message;
    } else {
      reporter.invalid() << "initialiser '" << printableName(tensor->name()) << "' " << problem.message;
      return false;
    }
  }
  return true;
}

/// Of the node that makes `value`, or of the file.
Location Importer::makerOf(int value) const {
  for (const GraphNode &node : graph.nodes)
    if (llvm::is_contained(node.outputs, value))
      return reporter.nodeLoc(node.name, node.op);
  return reporter.fileLoc();
}

bool Importer::addOutput(const Tensor &t, const std::string &name) {
  SmallVector<std::string> names;
  for (const Expr &size : t.shape)
    names.push_back(state.symbols.outputName(size));
  DictionaryAttr described = describeTensor(state.builder.getContext(), name, t.dtype, names);
  for (Attribute other : resultAttributes)
    if (cast<DictionaryAttr>(other).get(AttnDialect::kNameAttr) == described.get(AttnDialect::kNameAttr)) {
      reporter.unsupported() << "has two outputs '" << printableName(name) << "', one of them in a sequence";
      return false;
    }
  results.push_back(t.value ? t.value : state.materialize(t, reporter.fileLoc()));
  resultAttributes.push_back(described);
  return true;
}

/// The tensors of a sequence are outputs of their own. Where only the run knows how many there are, one has them all.
bool Importer::addOutputs() {
  OpBuilder &b = state.builder;
  for (auto [number, info] : graph.outputs) {
    std::optional<Tensor> &t = state.values[number];
    if (!t) {
      auto it = state.unusable.find(number);
      std::string why = it == state.unusable.end() ? "its operator does not make it" : it->second;
      reporter.unsupported(makerOf(number)) << "output '" << printableName(info->name()) << "': " << why;
      return false;
    }
    const std::string &name = info->name();
    std::vector<std::pair<std::string, Tensor>> parts;
    if (!t->sequence) {
      parts.push_back({name, *t});
    } else if (const Sequence &sequence = *t->sequence; sequence.stack) {
      OpRegistry none;
      LogicalResult stacked = Operators(state, none).with("", name, makerOf(number), [&](Node &n) {
        if (std::optional<Tensor> all = stackSequence(n, sequence))
          parts.push_back({name, *all});
        return success(!parts.empty());
      });
      if (failed(stacked))
        return false;
    } else {
      for (auto [n, item] : llvm::enumerate(sequence.items))
        parts.push_back({name + "." + std::to_string(n), item});
    }
    for (const auto &part : parts)
      if (!addOutput(part.second, part.first))
        return false;
  }
  if (results.empty()) {
    reporter.unsupported() << "has no outputs: all are sequences without tensors";
    return false;
  }
  func::ReturnOp::create(b, reporter.fileLoc(), results);
  entry.setFunctionType(b.getFunctionType(entry.getBody().front().getArgumentTypes(), ValueRange(results).getTypes()));
  entry.setResAttrsAttr(b.getArrayAttr(resultAttributes));
  return true;
}

bool Importer::run(llvm::function_ref<bool(ImportState &)> body) {
  if (!addInputs() || !addInitializers() || !body(state) || !addOutputs()) {
    if (options.isBroadcastForm)
      state.abandon();
    return false;
  }
  state.sweep();
  state.setSeed();
  return true;
}

bool attn::onnx::buildEntry(Reporter &reporter, const ImportOptions &options, const Graph &graph,
                            OwningOpRef<ModuleOp> &module, WeightStore &weights,
                            llvm::function_ref<bool(ImportState &)> body) {
  if (module && options.isOneOfSeveral && module->lookupSymbol(symbolOf(options, options.isBroadcastForm))) {
    reporter.invalid() << "is to be entry '" << options.entry << "', of which there is one already";
    return false;
  }
  OwningOpRef<ModuleOp> fresh;
  if (!module)
    fresh = ModuleOp::create(reporter.fileLoc());
  if (!Importer(reporter, options, graph, module ? *module : *fresh, weights).run(body))
    return false;
  if (fresh)
    module = std::move(fresh);
  return true;
}

void attn::onnx::loadImportDialects(MLIRContext *context) {
  context->loadDialect<AttnDialect, arith::ArithDialect, func::FuncDialect, linalg::LinalgDialect, math::MathDialect,
                       scf::SCFDialect, tensor::TensorDialect>();
}

static ImportStatus importEntry(MLIRContext *context, StringRef path, const ImportOptions &options,
                                OwningOpRef<ModuleOp> &module, WeightStore &weights) {
  Reporter reporter(context, path);
  std::unique_ptr<proto::ModelProto> model = readModelFile(reporter);
  OpsetImports opsets;
  if (!model || !readOpsetImports(model->opset_import(), reporter, opsets) ||
      !keepOutputs(*model->mutable_graph(), options, reporter))
    return reporter.getStatus();
  OpRegistry registry;
  registerAllOps(registry);
  Graph graph;
  if (!flatten(*model, opsets, registry, reporter, graph))
    return reporter.getStatus();
  if (!buildEntry(reporter, options, graph, module, weights,
                  [&](ImportState &state) { return state.importNodes(graph.nodes); }))
    return reporter.getStatus();
  return ImportStatus::Ok;
}

ImportStatus attn::onnx::importOnnx(MLIRContext *context, StringRef path, const ImportOptions &options,
                                    OwningOpRef<ModuleOp> &module, WeightStore &weights) {
  loadImportDialects(context);
  if (ImportStatus status = importEntry(context, path, options, module, weights); status != ImportStatus::Ok)
    return status;
  SmallVector<RequireOp> undecided;
  auto entry = module->lookupSymbol<func::FuncOp>(symbolOf(options, /*isBroadcastForm=*/false));
  entry.walk([&](RequireOp op) {
    if (op->hasAttr(kOtherwiseAttr))
      undecided.push_back(op);
  });
  if (undecided.empty())
    return ImportStatus::Ok;
  ImportOptions form = options;
  form.isBroadcastForm = true;
  ScopedDiagnosticHandler silence(context, [](Diagnostic &) { return success(); });
  if (importEntry(context, path, form, module, weights) != ImportStatus::Ok)
    for (RequireOp op : undecided) // the run says what it asks for
      op->removeAttr(kOtherwiseAttr);
  else
    shareSeed(entry, module->lookupSymbol<func::FuncOp>(symbolOf(form, /*isBroadcastForm=*/true)));
  return ImportStatus::Ok;
}
