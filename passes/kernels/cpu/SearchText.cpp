#include "passes/kernels/cpu/SearchText.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "mlir/Parser/Parser.h"

using namespace mlir;
using namespace attn;

/// `text` with each `{name}` replaced, as a function at `b`.
func::FuncOp attn::parseKernel(OpBuilder &b, StringRef text, ArrayRef<std::pair<StringRef, std::string>> replacements) {
  std::string source = text.str();
  for (const auto &[name, value] : replacements) {
    std::string key = ("{" + name + "}").str();
    for (size_t at = 0; (at = source.find(key, at)) != std::string::npos; at += value.size())
      source.replace(at, key.size(), value);
  }
  OwningOpRef<ModuleOp> module = parseSourceString<ModuleOp>(source, ParserConfig(b.getContext()), "search kernel");
  assert(module && "a kernel of the search does not parse");
  auto function = *module->getOps<func::FuncOp>().begin();
  function->remove();
  b.insert(function);
  return function;
}

/// Ops that make `%ended` true if the i64 `%token` is one of `eos`.
std::string attn::isEnd(ArrayRef<int64_t> eos, StringRef token) {
  std::string text = "%ended0 = arith.constant false\n";
  for (auto [n, id] : llvm::enumerate(eos)) {
    std::string i = std::to_string(n), next = std::to_string(n + 1);
    text += "%eos" + i + " = arith.constant " + std::to_string(id) + " : i64\n";
    text += "%same" + i + " = arith.cmpi eq, " + token.str() + ", %eos" + i + " : i64\n";
    text += "%ended" + next + " = arith.ori %ended" + i + ", %same" + i + " : i1\n";
  }
  return text + "%no = arith.constant false\n%ended = arith.ori %ended" + std::to_string(eos.size()) + ", %no : i1\n";
}

std::string attn::padOf(const SearchKernelSpec &spec) {
  return std::to_string(spec.eos.empty() ? 0 : spec.eos.front());
}
