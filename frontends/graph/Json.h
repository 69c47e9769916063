#ifndef FRONTENDS_GRAPH_JSON_H
#define FRONTENDS_GRAPH_JSON_H

#include "llvm/ADT/StringRef.h"
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

// JSON that knows where it stands. llvm::json reads strings and numbers; the
// structure is read here, because errors of a graph point at a line and a
// column, a key may stand only once, and nesting has a limit.

namespace attn::graph {

struct Position {
  unsigned line = 1, column = 1; // from 1, columns in bytes
};

struct Json {
  enum Kind { Null, Bool, Integer, Number, String, Array, Object };
  struct Member;

  Kind kind = Null;
  Position at;
  bool boolean = false;
  int64_t integer = 0;
  double number = 0; // of an integer, too
  std::string text;
  std::vector<Json> items;
  std::vector<Member> members; // in the order of the file

  bool is(Kind other) const { return kind == other; }
  bool isNumber() const { return kind == Integer || kind == Number; }
  /// The member `key` of an object; null if there is none or this is no object.
  const Json *find(llvm::StringRef key) const;
};

struct Json::Member {
  std::string key;
  Position at; // of the key
  Json value;
};

/// "an object", for messages.
llvm::StringRef kindName(Json::Kind kind);

struct JsonError {
  Position at;
  std::string message;
};

/// Reads one JSON text; nullopt with the first error.
std::optional<Json> parseJson(llvm::StringRef text, JsonError &error);

} // namespace attn::graph

#endif // FRONTENDS_GRAPH_JSON_H
