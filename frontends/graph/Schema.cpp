#include "frontends/graph/Schema.h"
#include "dialects/attn/NodeLocation.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"

using namespace attn;
using namespace attn::graph;
using llvm::StringRef;

/// schema.json, as the build put it here.
static constexpr char schemaText[] =
#include "frontends/graph/SchemaText.inc"
    ;

namespace {
/// The part of JSON Schema that schema.json uses; the test of the schema fails
/// on a keyword that is not handled here.
class Checker {
public:
  explicit Checker(const Json &schema) : root(schema) {}

  bool check(const Json &value, const Json &schema, const Json *layer);

  SchemaError error;

private:
  bool fail(Position at, const llvm::Twine &message, const Json *layer) {
    error = {at, message.str(), layer};
    return false;
  }
  bool checkKind(const Json &value, const Json &schema, const Json *layer);
  bool checkObject(const Json &value, const Json &schema, const Json *layer);
  bool checkValue(const Json &value, const Json &schema, const Json *layer);

  const Json &root;
};
} // namespace

static bool matchesKind(const Json &value, StringRef type) {
  switch (value.kind) {
  case Json::Null:
    return type == "null";
  case Json::Bool:
    return type == "boolean";
  case Json::Integer:
    return type == "integer" || type == "number";
  case Json::Number:
    return type == "number";
  case Json::String:
    return type == "string";
  case Json::Array:
    return type == "array";
  case Json::Object:
    return type == "object";
  }
  return false;
}

/// "a string" for "string".
static std::string typeWords(StringRef type) {
  if (type == "boolean")
    return "true or false";
  return (type.starts_with("a") || type.starts_with("i") || type.starts_with("o") ? "an " : "a ") + type.str();
}

bool Checker::checkKind(const Json &value, const Json &schema, const Json *layer) {
  const Json *type = schema.find("type");
  if (!type)
    return true;
  std::string expected;
  for (const Json &choice : type->is(Json::Array) ? llvm::ArrayRef<Json>(type->items) : llvm::ArrayRef<Json>(*type)) {
    if (matchesKind(value, choice.text))
      return true;
    expected += (expected.empty() ? "" : " or ") + typeWords(choice.text);
  }
  return fail(value.at, "expected " + expected + ", found " + kindName(value.kind), layer);
}

/// Whether `text` is what schema.json calls a name: letters, digits and _, not
/// beginning with a digit; with points between them, a reference.
static bool matchesFormat(StringRef text, StringRef format) {
  if (text.empty() || llvm::isDigit(text[0]) || text.size() > 4096)
    return false;
  return llvm::all_of(text, [&](char c) {
    return llvm::isAlnum(c) || c == '_' || (format == "reference" && StringRef(".{}").contains(c));
  });
}

static std::string notAName(StringRef text) {
  return "'" + printableName(text) + "' is no name: letters, digits and _, no digit in front";
}

bool Checker::checkObject(const Json &value, const Json &schema, const Json *layer) {
  const Json *properties = schema.find("properties"), *others = schema.find("additionalProperties");
  for (const Json::Member &member : value.members) {
    if (schema.find("propertyNames") && !matchesFormat(member.key, "name"))
      return fail(member.at, notAName(member.key), layer);
    if (const Json *known = properties ? properties->find(member.key) : nullptr) {
      // The version of the format.
      if (const Json *only = known->find("const");
          only && only->is(Json::Integer) && member.value.is(Json::Integer) && member.value.integer != only->integer)
        return fail(member.value.at,
                    "'" + member.key + "' is " + llvm::Twine(member.value.integer) + ", and " +
                        llvm::Twine(only->integer) + " is the only version known",
                    layer);
      if (!check(member.value, *known, layer))
        return false;
      continue;
    }
    if (others && others->is(Json::Object)) {
      if (!check(member.value, *others, layer))
        return false;
      continue;
    }
    if (!others || others->boolean)
      continue;
    StringRef best;
    unsigned least = 3;
    for (const Json::Member &candidate : properties->members)
      if (unsigned distance = StringRef(member.key).edit_distance(candidate.key, true, least); distance < least) {
        best = candidate.key;
        least = distance;
      }
    return fail(member.at,
                "unknown key '" + printableName(member.key) + "'" +
                    (best.empty() ? "" : ", did you mean '" + best.str() + "'?"),
                layer);
  }
  if (const Json *required = schema.find("required"))
    for (const Json &key : required->items)
      if (!value.find(key.text))
        return fail(value.at, "needs the key '" + key.text + "'", layer);
  const Json *least = schema.find("minProperties"), *most = schema.find("maxProperties");
  if (least && int64_t(value.members.size()) < least->integer)
    return fail(value.at, "expected at least " + llvm::Twine(least->integer) + " members", layer);
  if (most && int64_t(value.members.size()) > most->integer)
    return fail(value.at, "expected at most " + llvm::Twine(most->integer) + " members", layer);
  return true;
}

static std::string printNumber(const Json &value) {
  std::string text;
  llvm::raw_string_ostream(text) << llvm::format("%.12g", value.number);
  return text;
}

bool Checker::checkValue(const Json &value, const Json &schema, const Json *layer) {
  if (const Json *known = schema.find("const");
      known && (value.kind != known->kind || value.text != known->text || value.integer != known->integer))
    return fail(value.at,
                "expected " + (known->is(Json::String) ? "'" + known->text + "'" : std::to_string(known->integer)),
                layer);
  if (const Json *choices = schema.find("enum")) {
    std::string list, best;
    unsigned least = 3;
    for (const Json &choice : choices->items) {
      if (choice.text == value.text)
        return true;
      list += (list.empty() ? "" : ", ") + choice.text;
      if (unsigned distance = StringRef(value.text).edit_distance(choice.text, true, least); distance < least) {
        best = choice.text;
        least = distance;
      }
    }
    return fail(value.at,
                "'" + printableName(value.text) + "' is none of " + list +
                    (best.empty() ? "" : "; did you mean '" + best + "'?"),
                layer);
  }
  if (const Json *pattern = schema.find("pattern"); pattern && value.is(Json::String)) {
    StringRef format = StringRef(pattern->text).contains('.') ? "reference" : "name";
    if (!matchesFormat(value.text, format))
      return fail(value.at, notAName(value.text), layer);
  }
  if (value.isNumber()) {
    const Json *least = schema.find("minimum"), *most = schema.find("maximum");
    if (least && value.number < least->number)
      return fail(value.at, "expected at least " + printNumber(*least) + ", found " + printNumber(value), layer);
    if (most && value.number > most->number)
      return fail(value.at, "expected at most " + printNumber(*most) + ", found " + printNumber(value), layer);
  }
  if (value.is(Json::Array)) {
    const Json *least = schema.find("minItems"), *most = schema.find("maxItems"), *items = schema.find("items");
    if (least && int64_t(value.items.size()) < least->integer)
      return fail(value.at, "expected at least " + llvm::Twine(least->integer) + " items", layer);
    if (most && int64_t(value.items.size()) > most->integer)
      return fail(value.at, "expected at most " + llvm::Twine(most->integer) + " items", layer);
    for (const Json &item : value.items)
      if (items && !check(item, *items, layer))
        return false;
  }
  return true;
}

bool Checker::check(const Json &value, const Json &schema, const Json *layer) {
  if (const Json *reference = schema.find("$ref")) {
    StringRef name = StringRef(reference->text).drop_front(StringRef("#/$defs/").size());
    return check(value, *root.find("$defs")->find(name), name == "layer" ? &value : layer);
  }
  if (!checkKind(value, schema, layer))
    return false;
  if (!checkValue(value, schema, layer))
    return false;
  if (value.is(Json::Object) && !checkObject(value, schema, layer))
    return false;
  if (const Json *all = schema.find("allOf"))
    for (const Json &part : all->items) {
      // {"if": {"properties": {"layer": {"const": NAME}}}, "then": ...}
      const Json &condition = part.find("if")->find("properties")->members[0].value;
      const Json *key = value.find(part.find("if")->find("properties")->members[0].key);
      if (key && key->text == condition.find("const")->text && !check(value, *part.find("then"), layer))
        return false;
    }
  return true;
}

std::optional<SchemaError> attn::graph::checkSchema(const Json &file) {
  static const std::optional<Json> schema = [] {
    JsonError error;
    return parseJson(schemaText, error);
  }();
  assert(schema && "schema.json is JSON");
  Checker checker(*schema);
  if (checker.check(file, *schema, nullptr))
    return std::nullopt;
  return checker.error;
}
