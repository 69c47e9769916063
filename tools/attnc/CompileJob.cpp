#include "tools/attnc/CompileJob.h"

#include "dialects/attn/AttnOps.h"
#include "dialects/attn/SearchOp.h"
#include "dialects/attn/WeightStore.h"
#include "frontends/graph/ImportGraph.h"
#include "frontends/search/OwnStates.h"
#include "frontends/search/StepRoles.h"
#include "tools/attnc/AnnotatedModel.h"
#include "tools/attnc/Diagnostics.h"
#include "tools/attnc/FoldConstants.h"
#include "tools/attnc/GenerationParts.h"
#include "tools/attnc/NaNGuards.h"
#include "tools/options/Console.h"
#include "tools/options/StagedOutput.h"

#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/TimeProfiler.h"
#include "llvm/Support/raw_ostream.h"

using namespace llvm;
using namespace mlir;

namespace attn::tools {
namespace {

int importModel(StringRef path, const onnx::ImportOptions &options, MLIRContext &context, OwningOpRef<ModuleOp> &module,
                WeightStore &weights) {
  auto importFile = path.ends_with(".json") ? graph::importGraph : onnx::importOnnx;
  switch (importFile(&context, path, options, module, weights)) {
  case onnx::ImportStatus::Ok:
    return ExitSuccess;
  case onnx::ImportStatus::Request:
    return ExitUsage;
  case onnx::ImportStatus::Unsupported:
    return ExitUnsupported;
  case onnx::ImportStatus::Invalid:
    return ExitInvalid;
  }
  return ExitInternal;
}

int importAll(const CompileJob &job, onnx::ImportOptions options, MLIRContext &context, OwningOpRef<ModuleOp> &module,
              WeightStore &weights) {
  if (StringRef(job.input).ends_with(".mlir")) {
    module = parseSourceFile<ModuleOp>(job.input, &context);
    if (!module)
      return ExitInvalid;
    for (GlobalOp global : module->getOps<GlobalOp>())
      if (auto initializer = dyn_cast<InitializerAttr>(global.getExpression())) {
        emitError(global.getLoc()) << "initialiser '" << initializer.getName()
                                   << "' of an ONNX model, which IR text does not hold; compile the model itself";
        return ExitInvalid;
      }
    return ExitSuccess;
  }
  // The steps of a search are no entries, and a state or an exposed attention belongs to one form.
  options.servesBroadcasts = !job.search && !job.ownState && job.compile.exposedNodes.empty();
  if (job.entries.empty())
    return importModel(job.input, options, context, module, weights);
  options.isOneOfSeveral = true;
  for (const auto &[name, path] : job.entries) {
    options.entry = name;
    if (int code = importModel(path, options, context, module, weights))
      return code;
  }
  return ExitSuccess;
}

/// What a command line has to do with a node that the importer refuses.
void noteEmptyDims(const CompileJob &job) {
  for (const auto &[name, size] : job.import.dims)
    if (size == 0)
      reportNote("--dim=" + printable(name) +
                 ":0 makes tensors empty, which ONNX allows and not every operator can "
                 "take; give a size of at least 1, or leave the dimension open");
}

/// The models of a search, which is told how they are called.
int importParts(const CompileJob &job, const onnx::ImportOptions &options, MLIRContext &context,
                OwningOpRef<ModuleOp> &module, WeightStore &weights, SearchOptions &search) {
  auto importPart = [&](StringRef path, const onnx::ImportOptions &how) {
    return importModel(path, how, context, module, weights);
  };
  if (job.folder)
    return importGeneration(*job.folder, options, module, search, importPart);
  if (int code = importAll(job, options, context, module, weights))
    return code;
  auto pathOf = [&](StringRef name) {
    for (const auto &[entry, path] : job.entries)
      if (entry == name)
        return path;
    return job.input;
  };
  return StringRef(job.input).ends_with(".onnx") && !search.isCtc()
             ? splitMerged(options, module, search, pathOf, importPart)
             : static_cast<int>(ExitSuccess);
}

int import(const CompileJob &job, MLIRContext &context, OwningOpRef<ModuleOp> &module, WeightStore &weights) {
  SearchOptions search = job.search.value_or(SearchOptions());
  onnx::InputNames names;
  onnx::ImportOptions options = job.import;
  options.names = &names;
  int code = job.search ? importParts(job, options, context, module, weights, search)
                        : importAll(job, options, context, module, weights);
  if (code != ExitSuccess)
    return code;
  bool areSeveral = !job.entries.empty() || job.folder;
  if (std::string unknown = areSeveral ? findUnknownName(options, names) : ""; !unknown.empty()) {
    emitError(UnknownLoc::get(&context)) << "none of the models has the " << unknown;
    return ExitUsage;
  }
  if (job.ownState && failed(ownStates(*module, job.states)))
    return ExitUsage;
  if (!job.search)
    return ExitSuccess;
  bool stepIsUnfit = false;
  search.stepIsUnfit = &stepIsUnfit;
  if (failed(buildSearch(*module, search)))
    return stepIsUnfit ? ExitUnsupported : ExitUsage;
  return ExitSuccess;
}

/// What each search hands from step to step.
std::vector<KeptState> statesOfSearches(ModuleOp module) {
  std::vector<KeptState> states;
  for (auto entry : module.getOps<func::FuncOp>())
    entry.walk([&](SearchOp search) {
      auto name = entry->getAttrOfType<StringAttr>(AttnDialect::kEntryAttr);
      auto step = SymbolTable::lookupNearestSymbolFrom<func::FuncOp>(search, search.getStepAttr());
      for (auto [n, source] : llvm::enumerate(search.getSources()))
        if (source >= 0 && step)
          states.push_back({name ? name.str() : "", nameOfInput(step, n).str(), nameOfOutput(step, source).str(), "",
                            /*inPlace=*/false, search.getGrowDims()[n] >= 0});
    });
  return states;
}

json::Array toJsonArray(ArrayRef<std::string> names) {
  json::Array list;
  for (const std::string &name : names)
    list.push_back(json::fixUTF8(name));
  return list;
}

std::string toJson(const CompileReport &report, const std::vector<KeptState> &searched, unsigned nanGuards,
                   const std::vector<std::string> &masks) {
  std::string text;
  Narrowing all;
  json::Array narrowed;
  for (const NarrowedWeight &weight : report.narrowed) {
    all.merge(weight.lost);
    narrowed.push_back(json::Object{{"name", json::fixUTF8(weight.name)},
                                    {"storage", weight.storage},
                                    {"elements", static_cast<int64_t>(weight.lost.elements)},
                                    {"rms_error", weight.lost.meanError()},
                                    {"max_error", weight.lost.maxError},
                                    {"max_value", weight.lost.maxValue}});
  }
  json::Array caches;
  for (const StoredCache &cache : report.caches) {
    json::Object fields{{"entry", json::fixUTF8(cache.entry)}, {"cache", json::fixUTF8(cache.name)}};
    if (cache.reason.empty()) {
      fields["bytes_before"] = static_cast<int64_t>(cache.bytesBefore);
      fields["bytes"] = static_cast<int64_t>(cache.bytes);
    } else {
      fields["reason"] = json::fixUTF8(cache.reason);
    }
    caches.push_back(std::move(fields));
  }
  json::Array states;
  for (const KeptState &state : report.states) {
    json::Object fields{{"entry", json::fixUTF8(state.entry)},
                        {"input", json::fixUTF8(state.input)},
                        {"output", json::fixUTF8(state.output)},
                        {"in_place", state.inPlace},
                        {"grows", state.grows}};
    if (!state.inPlace)
      fields["reason"] = state.reason;
    states.push_back(std::move(fields));
  }
  for (const KeptState &state : searched)
    states.push_back(json::Object{{"entry", json::fixUTF8(state.entry)},
                                  {"input", json::fixUTF8(state.input)},
                                  {"output", json::fixUTF8(state.output)},
                                  {"grows", state.grows}});
  raw_string_ostream(text) << "{\"states\":" << json::Value(std::move(states))
                           << ",\"caches\":" << json::Value(std::move(caches))
                           << ",\"narrowing_error\":" << json::Value(all.meanError())
                           << ",\"narrowed\":" << json::Value(std::move(narrowed))
                           << ",\"host_ops\":" << json::Value(toJsonArray(report.hostOps))
                           << ",\"elf_bytes\":" << report.elfBytes << ",\"weight_bytes\":" << report.weightBytes
                           << ",\"header\":" << json::Value(report.header) << ",\"fused\":" << report.fusedAttentions
                           << ",\"softmaxes\":" << report.softmaxes
                           << ",\"fusion_passes\":" << json::Value(json::Array(report.fusionPasses))
                           << ",\"nan_guards\":" << nanGuards << ",\"masks\":" << json::Value(json::Array(masks))
                           << ",\"fusion\":" << report.fusionJson << ",\"products\":" << report.productsJson << "}";
  return text;
}

/// The stages of a compile, one behind the other; passes and LLVM add theirs inside of them.
class Timeline {
public:
  explicit Timeline(const CompileJob &job) : path(job.profile) {
    if (!path.empty())
      timeTraceProfilerInitialize(/*TimeTraceGranularity=*/10, "attnc");
  }

  void enter(StringRef stage) {
    leave();
    inside = true;
    timeTraceProfilerBegin(stage, "");
  }

  /// False where the file cannot be written, which is reported.
  bool write() {
    leave();
    if (path.empty())
      return true;
    std::string error;
    raw_svector_ostream os(buffer);
    timeTraceProfilerWrite(os);
    timeTraceProfilerCleanup();
    if (writeTextFile(path, buffer, error))
      return true;
    reportError(error);
    return false;
  }

private:
  void leave() {
    if (inside)
      timeTraceProfilerEnd();
    inside = false;
  }

  const std::string &path;
  SmallString<0> buffer;
  bool inside = false;
};

} // namespace

int writeJobReproducer(const CompileJob &job) {
  DialectRegistry registry;
  registerCompilerDialects(registry);
  MLIRContext context(registry);
  context.loadAllAvailableDialects();
  ScopedDiagnosticHandler silence(&context, [](Diagnostic &) { return success(); });
  OwningOpRef<ModuleOp> module;
  WeightStore weights;
  if (int code = import(job, context, module, weights))
    return code;
  return succeeded(writeReproducer(*module, job.compile, job.compile.reproducerPath)) ? ExitSuccess : ExitInternal;
}

int runCompileJob(const CompileJob &job, WorkerChannel &channel) {
  Timeline timeline(job);
  timeline.enter(kImportStage);
  channel.stage(kImportStage);
  DialectRegistry registry;
  registerCompilerDialects(registry);
  // Never destroyed: a pass that crashed may have held a lock of the context's threads.
  MLIRContext &context = *new MLIRContext(registry);
  context.loadAllAvailableDialects();
  DiagnosticPrinter diagnostics(&context, job.input);
  OwningOpRef<ModuleOp> module;
  WeightStore weights;
  if (int code = import(job, context, module, weights)) {
    if (!diagnostics.errors())
      reportError(job.input + ": the import failed without a message");
    if (code != ExitUsage && diagnostics.hasNamedNode())
      noteEmptyDims(job);
    return code;
  }

  CompileOptions options = job.compile;
  std::string stage;
  options.onStage = [&](StringRef name) {
    stage = name.str();
    timeline.enter(name);
    channel.stage(name);
  };
  if (options.emit != EmitKind::Attn)
    foldConstants(*module, weights, options, job.constants);
  CompileReport report;
  std::vector<KeptState> searched = statesOfSearches(*module);
  unsigned nanGuards = countNaNTests(*module);
  std::vector<std::string> masks = inputsBeforeGuards(*module);
  LogicalResult compiled = compileModule(std::move(module), weights, options, job.output, &report);
  // Also of a failed compile: its verdicts tell what was not fused.
  channel.report(toJson(report, searched, nanGuards, masks));
  bool isWritten = timeline.write();
  if (succeeded(compiled) && !job.annotated.empty())
    isWritten &= writeAnnotatedModel(context, job.input, report, job.annotated);
  if (succeeded(compiled))
    return isWritten ? ExitSuccess : ExitUsage;
  if (report.outputFailed)
    return ExitUsage;
  if (report.unsupported && diagnostics.errors())
    return ExitUnsupported;
  if (diagnostics.errors())
    return ExitInternal;
  // A recovered crash has had its signal, but a thread that could not start is no fault of a pass.
  channel.endIfNearMemoryLimit();
  reportError(job.input + ": internal error: a pass crashed, or failed without a message (" + stage + ")");
  return ExitInternal;
}

} // namespace attn::tools
