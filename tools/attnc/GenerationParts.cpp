#include "tools/attnc/GenerationParts.h"

#include "dialects/attn/AttnOps.h"
#include "frontends/search/DecoderInputs.h"
#include "frontends/search/StepRoles.h"
#include "tools/options/Console.h"

#include "llvm/Support/Path.h"

using namespace llvm;
using namespace mlir;

namespace attn::tools {
namespace {

constexpr char kBranch[] = "use_cache_branch";

/// `options` for a decoder that goes on: one token, and what it has in its cache.
onnx::ImportOptions asStep(onnx::ImportOptions options) {
  options.isOneOfSeveral = true;
  options.constants[kBranch] = 1;
  options.masks.insert("attention_mask");
  for (const char *name : {"input_ids", "decoder_input_ids", "position_ids", "decoder_position_ids", "cache_position"})
    options.singles.insert(name);
  return options;
}

onnx::ImportOptions asFirst(onnx::ImportOptions options) {
  options.isOneOfSeveral = true;
  options.constants[kBranch] = 0;
  options.masks.insert("attention_mask");
  return options;
}

/// The first input of `entry` that `is` takes; "" for none.
std::string findInput(func::FuncOp entry, llvm::function_ref<bool(StringRef)> is) {
  for (unsigned n = 0; n != entry.getNumArguments(); ++n)
    if (StringRef name = nameOfInput(entry, n); is(name))
      return name.str();
  return "";
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
  auto isEncoded = [](StringRef name) { return name == "encoder_hidden_states" || name == "encoder_outputs"; };
  std::string encoded = folder.encoder.empty() ? findInput(first, isEncoded) : "";
  if (!encoded.empty()) {
    first.emitError("no encoder_model.onnx is beside it, which makes its input '" + encoded +
                    "'; export the encoder, too, or name the entries: encode=FILE step=FILE --init=encode");
    return ExitUsage;
  }
  std::string crossed = folder.withPast.empty() && sys::path::stem(folder.decoder).contains("with_past")
                            ? findInput(first, isCrossCache)
                            : "";
  if (!crossed.empty()) {
    first.emitError("no decoder_model.onnx is beside it, which makes its input '" + crossed +
                    "' of the encoder's outputs; export it, too");
    return ExitUsage;
  }
  bool goesOn = !folder.withPast.empty() || hasPast(first);
  if (search.isCtc() && (goesOn || !folder.encoder.empty())) {
    first.emitError("is a decoder that makes one token after the other, and --generate=" + search.kind +
                    " needs a model that scores all frames at once; use greedy, beam:WIDTH or sample");
    return ExitUsage;
  }
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
