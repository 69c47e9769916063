#include "compiler/Report.h"
#include "dialects/attn/BroadcastForm.h"
#include "dialects/attn/CacheOps.h"
#include "dialects/attn/DeviceOps.h"
#include "dialects/attn/DimBounds.h"
#include "dialects/attn/NodeLocation.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "llvm/Support/JSON.h"

using namespace mlir;
namespace json = llvm::json;

namespace attn {
namespace {

/// C strings end at the first zero, and the runtime reads no others.
std::string cString(StringRef raw) {
  std::string text = json::fixUTF8(raw);
  std::replace(text.begin(), text.end(), '\0', '?');
  return text;
}

std::string cString(StringAttr attr) { return cString(attr ? attr.getValue() : StringRef()); }

LogicalResult describeTensors(FunctionOpInterface entry, StringRef key, std::vector<TensorDescription> &tensors) {
  auto list = entry->getAttrOfType<ArrayAttr>(key);
  if (!list)
    return entry.emitError() << "entry without the attribute " << key;
  for (auto attrs : list.getAsRange<DictionaryAttr>()) {
    TensorDescription tensor;
    tensor.name = cString(attrs.getAs<StringAttr>("name"));
    tensor.dtype = cString(attrs.getAs<StringAttr>("dtype"));
    if (!abiDType(tensor.dtype))
      return entry.emitError() << "tensor '" << tensor.name << "' has element type '" << tensor.dtype
                               << "', which a library cannot hold";
    llvm::append_range(tensor.shape, attrs.getAs<DenseI64ArrayAttr>("shape").asArrayRef());
    for (auto dim : attrs.getAs<ArrayAttr>("dims").getAsRange<StringAttr>())
      tensor.dimNames.push_back(cString(dim));
    tensor.isOptional = attrs.contains("optional");
    tensor.givenShape = tensor.shape;
    tensor.givenNames = tensor.dimNames;
    auto given = attrs.getAs<ArrayAttr>("given_dims");
    for (size_t n = 0; given && n < std::min(given.size(), tensor.shape.size()); ++n) {
      if (auto size = dyn_cast<IntegerAttr>(given[n]))
        tensor.givenShape[n] = size.getInt();
      else
        tensor.givenNames[n] = cString(dyn_cast<StringAttr>(given[n]));
    }
    tensors.push_back(std::move(tensor));
  }
  return success();
}

/// What holds of runs that `form` does instead of the entry, too.
LogicalResult addForm(FunctionOpInterface form, EntryDescription &entry) {
  std::vector<TensorDescription> outputs;
  if (failed(describeTensors(form, AttnDialect::kOutputsAttr, outputs)))
    return failure();
  for (auto [output, other] : llvm::zip_equal(entry.outputs, outputs))
    for (auto [n, size] : llvm::enumerate(output.shape))
      if (size != other.shape[n] || output.dimNames[n] != other.dimNames[n]) {
        size = -1;
        output.dimNames[n].clear();
      }
  auto bytes = form->getAttrOfType<IntegerAttr>(kMaxWorkspaceAttr);
  if (entry.maxWorkspace)
    entry.maxWorkspace = bytes ? std::optional(std::max(*entry.maxWorkspace, bytes.getInt())) : std::nullopt;
  return success();
}

json::Value toJson(Attribute attr) {
  if (auto text = dyn_cast<StringAttr>(attr))
    return json::fixUTF8(text.getValue());
  if (auto flag = dyn_cast<BoolAttr>(attr))
    return flag.getValue();
  if (auto number = dyn_cast<IntegerAttr>(attr))
    return number.getValue().getSExtValue();
  if (auto number = dyn_cast<FloatAttr>(attr))
    return number.getValueAsDouble();
  if (isa<UnitAttr>(attr))
    return true;
  if (auto list = dyn_cast<ArrayAttr>(attr)) {
    json::Array array;
    for (Attribute element : list)
      array.push_back(toJson(element));
    return array;
  }
  if (auto attrs = dyn_cast<DictionaryAttr>(attr)) {
    json::Object object;
    for (NamedAttribute entry : attrs)
      object[json::fixUTF8(entry.getName().strref())] = toJson(entry.getValue());
    return object;
  }
  std::string text;
  llvm::raw_string_ostream(text) << attr;
  return json::fixUTF8(text);
}

/// One word for each verdict, which tells a miss from what is no attention.
StringRef verdictOf(const json::Object &fields) {
  if (fields.getBoolean("fused").value_or(false))
    return "fused";
  StringRef reason = fields.getString("reason").value_or("");
  for (StringRef word : {"not an attention", "no contraction"})
    if (reason.starts_with(word))
      return word;
  return "missed";
}

} // namespace

FailureOr<std::vector<EntryDescription>> describeEntries(ModuleOp module) {
  std::vector<EntryDescription> entries;
  std::vector<std::string> messages;
  if (auto list = module->getAttrOfType<ArrayAttr>(AttnDialect::kMessagesAttr))
    for (auto message : list.getAsRange<StringAttr>())
      messages.push_back(cString(message));
  for (auto entry : module.getOps<FunctionOpInterface>()) {
    if (!entry->hasAttr(AttnDialect::kEntryAttr) || entry->hasAttr(kBroadcastFormAttr))
      continue;
    EntryDescription description;
    description.name = description.function = entry.getName().str();
    if (auto name = entry->getAttrOfType<StringAttr>(AttnDialect::kEntryAttr))
      description.name = cString(name);
    description.messages = messages;
    if (failed(describeTensors(entry, AttnDialect::kInputsAttr, description.inputs)) ||
        failed(describeTensors(entry, AttnDialect::kOutputsAttr, description.outputs)))
      return failure();
    if (auto bounds = entry->getAttrOfType<DictionaryAttr>(kDimBoundsAttr))
      for (NamedAttribute dim : bounds)
        if (auto range = dyn_cast<DenseI64ArrayAttr>(dim.getValue()); range && range.size() == 2)
          description.dimBounds.push_back({cString(dim.getName().strref()), range[0], range[1]});
    if (auto bytes = entry->getAttrOfType<IntegerAttr>(kMaxWorkspaceAttr))
      description.maxWorkspace = bytes.getInt();
    for (auto form : module.getOps<FunctionOpInterface>())
      if (auto of = form->getAttrOfType<FlatSymbolRefAttr>(kBroadcastFormAttr); of && of.getValue() == entry.getName())
        if (failed(addForm(form, description)))
          return failure();
    auto reasons = entry->getAttrOfType<ArrayAttr>(kStateReasonsAttr);
    if (auto states = entry->getAttrOfType<ArrayAttr>(kStatesAttr))
      for (auto [n, state] : llvm::enumerate(states.getAsRange<DenseI64ArrayAttr>())) {
        auto reason = reasons && n < reasons.size() ? dyn_cast<StringAttr>(reasons[n]) : StringAttr();
        description.states.push_back({static_cast<int32_t>(state[0]), static_cast<int32_t>(state[1]),
                                      static_cast<int32_t>(state[2]),
                                      reason ? reason.str() : "the pass attn-append-caches did not run"});
      }
    entries.push_back(std::move(description));
  }
  if (entries.empty()) {
    module.emitError() << "the module has no entry (a func.func with the attribute " << AttnDialect::kEntryAttr << ")";
    return failure();
  }
  return entries;
}

void reportStates(ArrayRef<EntryDescription> entries, CompileReport &report) {
  for (const EntryDescription &entry : entries)
    for (const EntryDescription::State &state : entry.states) {
      const TensorDescription &before = entry.inputs[state.input], &after = entry.outputs[state.output];
      bool grows = false;
      for (auto [size, first, second] : llvm::zip(before.shape, before.dimNames, after.dimNames))
        grows |= size < 0 && first != second;
      report.states.push_back({entry.name, before.name, after.name, state.dim == kOwnBuffer ? state.reason : "",
                               state.dim != kOwnBuffer, grows || state.dim >= 0});
    }
}

void reportCaches(ModuleOp module, CompileReport &report) {
  auto lines = module->getAttrOfType<ArrayAttr>(kCacheReportAttr);
  if (!lines)
    return;
  for (auto fields : lines.getAsRange<DictionaryAttr>()) {
    auto text = [&](StringRef key) {
      auto attr = fields.getAs<StringAttr>(key);
      return attr ? attr.str() : std::string();
    };
    auto number = [&](StringRef key) {
      auto attr = fields.getAs<IntegerAttr>(key);
      return attr ? static_cast<uint64_t>(attr.getInt()) : 0;
    };
    report.caches.push_back({text("entry"), text("cache"), text("reason"), number("bytes_before"), number("bytes")});
  }
}

void reportHostOps(ModuleOp module, CompileReport &report) {
  for (auto function : module.getOps<func::FuncOp>())
    if (auto node = function->getAttrOfType<StringAttr>(kOnHostAttr);
        node && !llvm::is_contained(report.hostOps, node.getValue()))
      report.hostOps.push_back(node.str());
}

void noteUnrecognized(ModuleOp module, unsigned optLevel) {
  if (module->hasAttr("attn.fusion_report"))
    return;
  Builder b(module->getContext());
  StringRef why = optLevel == 0 ? "attention was not looked for: -O0"
                                : "attention was not looked for: the pass attn-recognize-attention did not run";
  SmallVector<Attribute> verdicts;
  module->walk([&](SoftmaxOp softmax) {
    if (softmax->getParentOfType<FunctionOpInterface>()->hasAttr(kBroadcastFormAttr))
      return;
    verdicts.push_back(b.getDictionaryAttr({b.getNamedAttr("node", b.getStringAttr(nodeName(softmax.getLoc()))),
                                            b.getNamedAttr("fused", b.getBoolAttr(false)),
                                            b.getNamedAttr("reason", b.getStringAttr(why))}));
  });
  module->setAttr("attn.fusion_report", b.getArrayAttr(verdicts));
}

void reportFusion(ModuleOp module, CompileReport &report) {
  json::Array verdicts;
  if (auto list = module->getAttrOfType<ArrayAttr>("attn.fusion_report"))
    for (Attribute verdict : list)
      verdicts.push_back(toJson(verdict));
  for (json::Value &verdict : verdicts)
    if (json::Object *fields = verdict.getAsObject(); fields && !fields->get("verdict"))
      (*fields)["verdict"] = verdictOf(*fields);
  report.softmaxes = verdicts.size();
  report.fusedAttentions = llvm::count_if(verdicts, [](const json::Value &verdict) {
    const json::Object *object = verdict.getAsObject();
    return object && object->getBoolean("fused").value_or(false);
  });
  report.fusionJson.clear();
  llvm::raw_string_ostream(report.fusionJson) << json::Value(std::move(verdicts));
}

void reportProducts(ModuleOp module, CompileReport &report) {
  if (auto list = module->getAttrOfType<ArrayAttr>(AttnDialect::kProductReportAttr)) {
    report.productsJson.clear();
    llvm::raw_string_ostream(report.productsJson) << toJson(list);
  }
}

std::vector<RegionDescription> describeRegions(ModuleOp module) {
  std::vector<RegionDescription> regions;
  if (auto list = module->getAttrOfType<ArrayAttr>(AttnDialect::kRegionsAttr))
    for (auto fields : list.getAsRange<DictionaryAttr>()) {
      RegionDescription &region = regions.emplace_back();
      region.name = fields.getAs<StringAttr>("name").str();
      region.entry = fields.getAs<StringAttr>("entry").str();
      for (auto node : fields.getAs<ArrayAttr>("nodes").getAsRange<StringAttr>())
        region.nodes.push_back(node.str());
    }
  return regions;
}

} // namespace attn
