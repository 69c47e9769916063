#include "tools/attnc/GenerationParts.h"

#include "dialects/attn/AttnOps.h"
#include "frontends/search/DecoderInputs.h"
#include "frontends/search/StepRoles.h"
#include "tools/options/Console.h"

using namespace llvm;
using namespace mlir;

namespace attn::tools {
namespace {

constexpr char kBranch[] = "use_cache_branch";

/// `options` for a decoder that goes on: one token, and what it has in its cache.
onnx::ImportOptions asStep(onnx::ImportOptions options) {
  options.isOneOfSeveral = true;
  options.constants[kBranch] = 1;
  for (const char *name : {"input_ids", "decoder_input_ids", "position_ids", "decoder_position_ids", "cache_position"})
    options.singles.insert(name);
  return options;
}

onnx::ImportOptions asFirst(onnx::ImportOptions options) {
  options.isOneOfSeveral = true;
  options.constants[kBranch] = 0;
  return options;
}

} // namespace

int importGeneration(const HubFolder &folder, const onnx::ImportOptions &options, OwningOpRef<ModuleOp> &module,
                     SearchOptions &search, ImportPart import) {
  auto add = [&](StringRef path, onnx::ImportOptions how, StringRef entry) {
    how.isOneOfSeveral = true;
    how.entry = entry.str();
    return import(path, how);
  };
  search.prompts = search.hidesParts = search.runSettings = true;
  search.step = "step";
  if (!folder.encoder.empty()) {
    if (int code = add(folder.encoder, options, "encode"))
      return code;
    search.init.push_back("encode");
  }
  if (int code = add(folder.decoder, asFirst(options), "first"))
    return code;
  func::FuncOp first = findEntry(*module, "first");
  bool goesOn = !folder.withPast.empty() || hasPast(first);
  if (!goesOn) { // no cache: each step takes all tokens
    first->setAttr(AttnDialect::kEntryAttr, StringAttr::get(first.getContext(), "step"));
    return ExitSuccess;
  }
  search.init.push_back("first");
  return add(folder.withPast.empty() ? folder.decoder : folder.withPast, asStep(options), "step");
}

int splitMerged(const onnx::ImportOptions &options, OwningOpRef<ModuleOp> &module, SearchOptions &search,
                llvm::function_ref<std::string(StringRef)> pathOf, ImportPart import) {
  func::FuncOp only =
      hasSingleElement(module->getOps<func::FuncOp>()) ? *module->getOps<func::FuncOp>().begin() : func::FuncOp();
  std::string name = !search.step.empty() ? search.step : only ? nameOfEntry(only).str() : "step";
  func::FuncOp step = findEntry(*module, name);
  if (!step ||
      llvm::none_of(llvm::seq(step.getNumArguments()), [&](unsigned n) { return nameOfInput(step, n) == kBranch; }))
    return ExitSuccess;
  std::string path = pathOf(name), first = name + "_first";
  step.erase();
  onnx::ImportOptions how = asFirst(options);
  how.entry = first;
  if (int code = import(path, how))
    return code;
  how = asStep(options);
  how.entry = name;
  if (int code = import(path, how))
    return code;
  search.hidden.push_back(first);
  search.init.push_back(first);
  search.prompts = true;
  search.step = name;
  return ExitSuccess;
}

} // namespace attn::tools
