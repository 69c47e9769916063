#include "tools/attnc/Summary.h"
#include "tools/options/Console.h"

#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/raw_ostream.h"
#include <map>

using namespace llvm;

namespace attn::tools {

static std::vector<std::string> texts(const json::Array *list) {
  std::vector<std::string> all;
  if (list)
    for (const json::Value &text : *list)
      all.push_back(text.getAsString().value_or("").str());
  return all;
}

static std::string print(const json::Array &list) {
  std::string text;
  raw_string_ostream(text) << json::Value(json::Array(list));
  return text;
}

Summary Summary::parse(StringRef text) {
  Summary summary;
  Expected<json::Value> value = json::parse(text);
  if (!value) {
    consumeError(value.takeError());
    return summary;
  }
  const json::Object *object = value->getAsObject();
  if (!object)
    return summary;
  summary.elfBytes = object->getInteger("elf_bytes").value_or(0);
  summary.weightBytes = object->getInteger("weight_bytes").value_or(0);
  summary.header = object->getString("header").value_or("").str();
  summary.narrowingError = object->getNumber("narrowing_error").value_or(0);
  if (const json::Array *narrowed = object->getArray("narrowed"))
    summary.narrowed = print(*narrowed);
  summary.hostOps = texts(object->getArray("host_ops"));
  if (const json::Array *states = object->getArray("states"))
    summary.readStates(*states);
  if (const json::Array *caches = object->getArray("caches"))
    summary.readCaches(*caches);
  summary.readFusion(*object);
  if (const json::Value *products = object->get("products"))
    summary.products = formatv("{0}", *products).str();
  return summary;
}

void Summary::readFusion(const json::Object &object) {
  fused = object.getInteger("fused").value_or(0);
  softmaxes = object.getInteger("softmaxes").value_or(0);
  fusionPasses = texts(object.getArray("fusion_passes"));
  assumptions.nanGuards = object.getInteger("nan_guards").value_or(0);
  assumptions.masks = texts(object.getArray("masks"));
  if (const json::Array *verdicts = object.getArray("fusion"))
    for (const json::Value &verdict : *verdicts)
      if (const json::Object *fields = verdict.getAsObject()) {
        if (const json::Array *list = fields->getArray("assumes"))
          assumptions.keepsLogitsSmall |= !list->empty();
        StringRef node = fields->getString("node").value_or("").split('\'').second.rsplit('\'').first;
        StringRef entry = fields->getString("entry").value_or("");
        std::string name = (entry.empty() ? "" : entry.str() + ":") + node.str();
        if (fields->getBoolean("fused").value_or(false) && !is_contained(attentions, name))
          attentions.push_back(name);
        std::optional<StringRef> reason = fields->getString("not_exposed");
        if (reason || fields->get("exposed"))
          exposed.push_back({fields->getString("node").value_or("").str(),
                             fields->getString("entry").value_or("").str(), reason.value_or("").str()});
      }
  if (const json::Value *verdicts = object.get("fusion")) {
    fusion.clear();
    raw_string_ostream(fusion) << formatv("{0:2}", *verdicts);
  }
}

void Summary::readStates(const json::Array &list) {
  states = print(list);
  for (const json::Value &state : list)
    if (const json::Object *fields = state.getAsObject();
        fields && fields->getBoolean("grows").value_or(false) && fields->getBoolean("in_place") == false)
      copiedStates.push_back(("entry '" + fields->getString("entry").value_or("") + "': each run copies its state '" +
                              printable(fields->getString("input").value_or("")) +
                              "', and does not append to it: " + fields->getString("reason").value_or(""))
                                 .str());
}

void Summary::readCaches(const json::Array &list) {
  caches = print(list);
  std::map<std::pair<std::string, std::string>, std::vector<std::string>> wide; // by entry and reason
  for (const json::Value &cache : list) {
    const json::Object *fields = cache.getAsObject();
    if (!fields)
      continue;
    ++cacheCount;
    if (std::optional<StringRef> reason = fields->getString("reason")) {
      wide[{printable(fields->getString("entry").value_or("")), printable(*reason)}].push_back(
          printable(fields->getString("cache").value_or("")));
      continue;
    }
    cacheBytes += fields->getInteger("bytes").value_or(0);
    cacheBytesBefore += fields->getInteger("bytes_before").value_or(0);
  }
  for (const auto &[where, names] : wide) {
    wideCacheCount += names.size();
    std::string more = names.size() == 1 ? " is" : " and " + std::to_string(names.size() - 1) + " more are";
    wideCaches.push_back("entry '" + where.first + "': " + names.front() + more +
                         " not stored in 8 bits: " + where.second);
  }
}

} // namespace attn::tools
