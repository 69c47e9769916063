#include "frontends/graph/SizeText.h"
#include "dialects/attn/NodeLocation.h"
#include "llvm/ADT/StringExtras.h"

using namespace attn;
using namespace attn::graph;
using llvm::StringRef;

static std::optional<onnx::Expr> readFactor(StringRef text, const llvm::StringMap<onnx::Expr> &dimensions,
                                            std::string &error) {
  if (!text.empty() && llvm::isDigit(text[0])) {
    int64_t value = 0;
    if (!text.getAsInteger(10, value))
      return onnx::Expr(value);
    error = "'" + printableName(text) + "' is no size";
    return std::nullopt;
  }
  if (auto known = dimensions.find(text); known != dimensions.end())
    return known->second;
  error = text.empty() ? std::string("a size is a sum of products of integers and dimensions")
                       : "'" + printableName(text) + "' is no dimension of the graph";
  return std::nullopt;
}

std::optional<onnx::Expr> attn::graph::readSize(StringRef text, const llvm::StringMap<onnx::Expr> &dimensions,
                                                std::string &error) {
  onnx::Expr sum;
  // Written out to "a + b" and "a - b" of products; text never nests.
  for (bool isFirst = true, minus = false; isFirst || !text.empty(); isFirst = false) {
    size_t end = text.find_first_of("+-");
    StringRef term = text.substr(0, end);
    onnx::Expr product(1);
    for (bool more = true; more;) {
      auto [factor, rest] = term.split('*');
      more = term.contains('*');
      std::optional<onnx::Expr> value = readFactor(factor.trim(), dimensions, error);
      if (!value)
        return std::nullopt;
      product = product * *value;
      term = rest;
    }
    sum = minus ? sum - product : sum + product;
    if (end == StringRef::npos)
      break;
    minus = text[end] == '-';
    text = text.substr(end + 1);
    if (text.trim().empty()) {
      error = "a size is a sum of products of integers and dimensions";
      return std::nullopt;
    }
  }
  if (sum.overflowed()) {
    error = "the size is beyond 64 bits";
    return std::nullopt;
  }
  return sum;
}
