#include "tools/attnc/AnnotatedModel.h"

#include "frontends/onnx/Annotate.h"
#include "tools/options/Console.h"
#include "tools/options/StagedOutput.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/Path.h"

using namespace llvm;

namespace attn::tools {
namespace {

json::Array readList(StringRef text) {
  Expected<json::Value> value = json::parse(text);
  if (value && value->getAsArray())
    return std::move(*value->getAsArray());
  consumeError(value.takeError());
  return {};
}

std::vector<std::string> textsOf(const json::Object &fields, StringRef key) {
  std::vector<std::string> texts;
  if (const json::Array *list = fields.getArray(key))
    for (const json::Value &value : *list)
      if (std::optional<StringRef> text = value.getAsString())
        texts.push_back(text->str());
  return texts;
}

/// Facts of each softmax, and of the nodes that became part of its attention.
void addVerdict(const json::Object &verdict, onnx::Annotations &annotations) {
  std::string node = verdict.getString("node").value_or("").str();
  onnx::Annotations::Facts &facts = annotations.facts[node];
  for (StringRef key : {"verdict", "reason", "kind", "mask", "weights", "kernel_symbol", "kernel_reason"})
    if (std::optional<StringRef> text = verdict.getString(key); text && !text->empty())
      facts.emplace_back(key.str(), text->str());
  if (std::string formula = join(textsOf(verdict, "formula"), "; "); !formula.empty())
    facts.emplace_back("formula", formula);
  for (StringRef key : {"assumes", "copies", "exposed"})
    if (std::string list = join(textsOf(verdict, key), ", "); !list.empty())
      facts.emplace_back(key.str(), list);
  if (!verdict.getBoolean("fused").value_or(false))
    return;
  annotations.groups[node] = node;
  for (const std::string &part : textsOf(verdict, "nodes"))
    if (part != node && annotations.groups.try_emplace(part, node).second)
      annotations.facts[part].emplace_back("fused_into", node);
}

void addProduct(const json::Object &product, onnx::Annotations &annotations) {
  onnx::Annotations::Facts &facts = annotations.facts[product.getString("node").value_or("").str()];
  for (StringRef key : {"storage", "arithmetic", "kernel", "reason"})
    if (std::optional<StringRef> text = product.getString(key); text && !text->empty())
      facts.emplace_back("product_" + key.str(), text->str());
}

} // namespace

bool isAnnotatedName(StringRef path) {
  StringRef extension = sys::path::extension(path);
  return extension == ".onnx" || extension == ".json";
}

bool writeAnnotatedModel(mlir::MLIRContext &context, StringRef input, const CompileReport &report, StringRef path) {
  onnx::Annotations annotations;
  for (const json::Value &verdict : readList(report.fusionJson))
    if (const json::Object *fields = verdict.getAsObject())
      addVerdict(*fields, annotations);
  for (const json::Value &product : readList(report.productsJson))
    if (const json::Object *fields = product.getAsObject())
      addProduct(*fields, annotations);
  bool isExplored = sys::path::extension(path) == ".json";
  std::optional<std::string> bytes =
      isExplored ? onnx::exploreModel(&context, input, annotations) : onnx::annotateModel(&context, input, annotations);
  std::string error;
  if (!bytes)
    return false;
  if (writeTextFile(path, *bytes, error))
    return true;
  reportError("--annotate: " + error);
  return false;
}

} // namespace attn::tools
