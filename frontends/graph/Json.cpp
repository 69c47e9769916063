#include "frontends/graph/Json.h"
#include "dialects/attn/NodeLocation.h"
#include "frontends/graph/Limits.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/JSON.h"
#include <cmath>

using namespace attn;
using namespace attn::graph;
using llvm::StringRef;

const Json *Json::find(StringRef key) const {
  for (const Member &member : members)
    if (member.key == key)
      return &member.value;
  return nullptr;
}

StringRef attn::graph::kindName(Json::Kind kind) {
  static constexpr llvm::StringLiteral names[] = {"null",     "true or false", "an integer", "a number",
                                                  "a string", "an array",      "an object"};
  return names[kind];
}

namespace {
class Reader {
public:
  Reader(StringRef text, JsonError &error) : text(text), error(error) {}

  std::optional<Json> read() {
    size_t bad = 0;
    if (!llvm::json::isUTF8(text, &bad)) {
      while (next < bad)
        advance();
      return fail("the text is not UTF-8"), std::nullopt;
    }
    Json result;
    skipSpace();
    if (!readValue(result, 0))
      return std::nullopt;
    skipSpace();
    if (next != text.size())
      return fail("something follows the end of the JSON value"), std::nullopt;
    return result;
  }

private:
  bool fail(const llvm::Twine &message) { return fail(at, message); }
  bool fail(Position where, const llvm::Twine &message) {
    error = {where, message.str()};
    return false;
  }
  char peek() const { return next < text.size() ? text[next] : '\0'; }
  void advance() {
    if (text[next++] == '\n')
      ++at.line, at.column = 1;
    else
      ++at.column;
  }
  void skipSpace() {
    while (next < text.size() && StringRef(" \t\r\n").contains(text[next]))
      advance();
  }
  /// What stands here, for messages.
  std::string here() const {
    return next < text.size() ? "'" + printableName(text.substr(next, 1)) + "'" : "the end of the file";
  }

  bool readValue(Json &result, unsigned depth);
  bool readString(std::string &result);
  bool readNumber(Json &result);
  bool readArray(Json &result, unsigned depth);
  bool readObject(Json &result, unsigned depth);

  StringRef text;
  JsonError &error;
  size_t next = 0, values = 0;
  Position at;
};
} // namespace

bool Reader::readValue(Json &result, unsigned depth) {
  result.at = at;
  if (++values > kMaxJsonValues)
    return fail("there are more than " + llvm::Twine(kMaxJsonValues) + " values");
  char first = peek();
  if (first == '{' || first == '[') {
    if (depth == kMaxJsonDepth)
      return fail("arrays and objects are nested deeper than " + llvm::Twine(kMaxJsonDepth));
    return first == '{' ? readObject(result, depth + 1) : readArray(result, depth + 1);
  }
  if (first == '"') {
    result.kind = Json::String;
    return readString(result.text);
  }
  if (first == '-' || llvm::isDigit(first))
    return readNumber(result);
  for (StringRef word : {"true", "false", "null"})
    if (text.substr(next).starts_with(word)) {
      result.kind = word == "null" ? Json::Null : Json::Bool;
      result.boolean = word == "true";
      for (size_t i = 0; i < word.size(); ++i)
        advance();
      return true;
    }
  return fail("expected a value, found " + here());
}

bool Reader::readString(std::string &result) {
  Position start = at;
  size_t begin = next;
  advance();
  while (peek() != '"') {
    if (next >= text.size() || text[next] == '\n')
      return fail(start, "the string has no end");
    if (text[next] == '\\')
      advance();
    if (next < text.size())
      advance();
  }
  advance();
  llvm::Expected<llvm::json::Value> value = llvm::json::parse(text.slice(begin, next));
  std::optional<StringRef> string;
  if (!value)
    llvm::consumeError(value.takeError());
  else
    string = value->getAsString();
  if (!string)
    return fail(start, "the string holds a control character or an unknown escape");
  result = string->str();
  return true;
}

bool Reader::readNumber(Json &result) {
  size_t begin = next;
  while (llvm::isAlnum(peek()) || peek() == '+' || peek() == '-' || peek() == '.')
    advance();
  StringRef digits = text.slice(begin, next);
  llvm::Expected<llvm::json::Value> value = llvm::json::parse(digits);
  // llvm::json takes more than JSON has: 01, 1., .5
  StringRef whole = digits.ltrim('-').take_while([](char c) { return llvm::isDigit(c); });
  bool isStrict = !whole.empty() && (whole.size() == 1 || whole[0] != '0') && digits.count('.') <= 1 &&
                  !digits.contains(".e") && !digits.contains(".E") && !digits.ends_with(".") &&
                  digits.find_first_not_of("0123456789+-.eE") == StringRef::npos;
  std::optional<double> number;
  if (!value)
    llvm::consumeError(value.takeError());
  else
    number = value->getAsNumber();
  if (!number || !isStrict)
    return fail(result.at, "'" + printableName(digits) + "' is not a number");
  if (!std::isfinite(*number))
    return fail(result.at, "the number '" + printableName(digits) + "' is too large");
  result.number = *number;
  result.kind = Json::Number;
  if (digits.find_first_of(".eE") == StringRef::npos) {
    result.kind = Json::Integer;
    if (digits.getAsInteger(10, result.integer))
      return fail(result.at, "the integer '" + printableName(digits) + "' does not fit 64 bits");
  }
  return true;
}

bool Reader::readArray(Json &result, unsigned depth) {
  result.kind = Json::Array;
  advance();
  skipSpace();
  if (peek() == ']')
    return advance(), true;
  for (;;) {
    if (!readValue(result.items.emplace_back(), depth))
      return false;
    skipSpace();
    if (peek() == ']')
      return advance(), true;
    if (peek() != ',')
      return fail("expected ',' or ']', found " + here());
    advance();
    skipSpace();
  }
}

bool Reader::readObject(Json &result, unsigned depth) {
  result.kind = Json::Object;
  llvm::StringSet<> keys;
  advance();
  skipSpace();
  if (peek() == '}')
    return advance(), true;
  for (;;) {
    Json::Member &member = result.members.emplace_back();
    member.at = at;
    if (peek() != '"')
      return fail("expected a key in quotes, found " + here());
    if (!readString(member.key))
      return false;
    if (!keys.insert(member.key).second)
      return fail(member.at, "the key '" + printableName(member.key) + "' stands twice in one object");
    skipSpace();
    if (peek() != ':')
      return fail("expected ':' behind the key '" + printableName(member.key) + "', found " + here());
    advance();
    skipSpace();
    if (!readValue(member.value, depth))
      return false;
    skipSpace();
    if (peek() == '}')
      return advance(), true;
    if (peek() != ',')
      return fail("expected ',' or '}', found " + here());
    advance();
    skipSpace();
  }
}

std::optional<Json> attn::graph::parseJson(StringRef text, JsonError &error) { return Reader(text, error).read(); }
