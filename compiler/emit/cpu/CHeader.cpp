#include "compiler/emit/cpu/CHeader.h"
#include "runtime/include/attnrt/abi.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/raw_ostream.h"
#include <optional>

using namespace llvm;

namespace attn {
namespace {

/// Identifiers of one scope: letters, digits and _, no keyword, each once.
class Names {
public:
  explicit Names(ArrayRef<StringRef> taken = {}) {
    for (StringRef name : taken)
      used.insert(name);
  }

  std::string add(StringRef wanted) {
    static constexpr StringLiteral keywords[] = {
        "alignas",  "alignof",  "and",      "asm",       "auto",     "bool",     "break",     "case",   "catch",
        "char",     "class",    "const",    "continue",  "default",  "delete",   "do",        "double", "else",
        "enum",     "explicit", "export",   "extern",    "false",    "float",    "for",       "friend", "goto",
        "if",       "inline",   "int",      "long",      "main",     "mutable",  "namespace", "new",    "not",
        "operator", "or",       "private",  "protected", "public",   "register", "restrict",  "return", "short",
        "signed",   "sizeof",   "static",   "struct",    "switch",   "template", "this",      "throw",  "true",
        "try",      "typedef",  "typename", "union",     "unsigned", "using",    "virtual",   "void",   "volatile",
        "while",    "xor"};
    std::string name;
    for (char c : wanted.take_front(64))
      name += isAlnum(c) ? c : '_';
    if (name.empty() || isDigit(name[0]))
      name.insert(0, "_");
    if (is_contained(keywords, name))
      name += '_';
    std::string base = name;
    for (unsigned n = 2; !used.insert(name).second; ++n)
      name = base + "_" + std::to_string(n);
    return name;
  }

private:
  StringSet<> used;
};

StringRef cType(StringRef dtype) {
  static constexpr std::pair<StringLiteral, StringLiteral> types[] = {
      {"float32", "float"}, {"float64", "double"},  {"float16", "uint16_t"}, {"bfloat16", "uint16_t"},
      {"int8", "int8_t"},   {"int16", "int16_t"},   {"int32", "int32_t"},    {"int64", "int64_t"},
      {"uint8", "uint8_t"}, {"uint16", "uint16_t"}, {"uint32", "uint32_t"},  {"uint64", "uint64_t"},
      {"bool", "uint8_t"}};
  for (auto &[name, type] : types)
    if (name == dtype)
      return type;
  return "void";
}

/// Text that stands in a comment of one line.
std::string comment(StringRef text) {
  std::string result;
  for (char c : text.take_front(200))
    result += isPrint(c) && c != '\\' ? c : '?';
  return result;
}

class EntryWriter {
public:
  /// `takesState`: what the state keeps is not in the lists of `entry`.
  EntryWriter(raw_ostream &os, const EntryDescription &entry, StringRef function, bool takesState)
      : os(os), entry(entry), function(function.str()), takesState(takesState) {}

  void write() {
    collectSizes();
    os << "//===--- " << comment(entry.name) << " ---===//\n\n";
    if (!sizes.empty()) {
      os << "typedef struct " << function << "_dims {\n";
      for (auto &[key, field] : sizes)
        os << "  int64_t " << field << ";\n";
      os << "} " << function << "_dims;\n\n";
    }
    writeSignature();
    writeBody();
  }

private:
  /// Sizes that a caller gives: all dynamic ones of inputs, each name once.
  void collectSizes() {
    Names fields;
    for (auto [i, input] : enumerate(entry.inputs))
      for (size_t dim = 0; dim < input.shape.size(); ++dim)
        if (input.shape[dim] < 0 && !sizes.count(key(input, i, dim)))
          sizes[key(input, i, dim)] =
              fields.add(input.dimNames[dim].empty() ? input.name + "_dim" + std::to_string(dim) : input.dimNames[dim]);
  }

  std::string key(const TensorDescription &tensor, size_t i, size_t dim) const {
    return tensor.dimNames[dim].empty() ? "\n" + std::to_string(i) + " " + std::to_string(dim) : tensor.dimNames[dim];
  }

  /// The shape in C; nullopt where only the run knows it.
  std::optional<std::string> shape(const TensorDescription &tensor, size_t i, bool isInput) const {
    std::string text;
    for (size_t dim = 0; dim < tensor.shape.size(); ++dim) {
      text += dim ? ", " : "";
      if (tensor.shape[dim] >= 0) {
        text += std::to_string(tensor.shape[dim]);
        continue;
      }
      if (!isInput && tensor.dimNames[dim].empty())
        return std::nullopt;
      auto field = sizes.find(key(tensor, i, dim));
      if (field == sizes.end())
        return std::nullopt;
      text += "dims->" + field->second;
    }
    return text.empty() ? "0" : text;
  }

  void describe(const TensorDescription &tensor, StringRef role) {
    os << "// " << role << ' ' << comment(tensor.name) << ": " << tensor.dtype << " [";
    bool isFirst = true;
    for (auto [size, name] : llvm::zip_equal(tensor.shownShape(), tensor.shownNames())) {
      os << (std::exchange(isFirst, false) ? "" : ", ");
      if (size >= 0)
        os << size;
      else
        os << (name.empty() ? "?" : comment(name));
    }
    os << (tensor.isOptional ? "], NULL leaves it out\n" : "]\n");
  }

  void writeSignature() {
    Names names({"session", "options", "state", "dims", "run", "inputs", "outputs", "status"});
    for (const TensorDescription &input : entry.inputs)
      describe(input, "in ");
    for (const TensorDescription &output : entry.outputs)
      describe(output, "out");
    os << "static inline attnrt_status " << function << "(attnrt_session *session, const attnrt_run_options *options";
    if (takesState)
      os << ",\n    attnrt_state *state";
    if (!sizes.empty())
      os << ",\n    const " << function << "_dims *dims";
    for (const TensorDescription &input : entry.inputs) {
      inputNames.push_back(names.add(input.name));
      os << ",\n    const " << cType(input.dtype) << " *" << inputNames.back();
    }
    for (auto [i, output] : enumerate(entry.outputs)) {
      outputNames.push_back(names.add(output.name));
      outputShapes.push_back(shape(output, i, false));
      os << ",\n    " << (outputShapes.back() ? cType(output.dtype) : StringRef("attnrt_output")) << " *"
         << outputNames.back();
    }
    os << ") {\n";
  }

  void writeTensor(const TensorDescription &tensor, StringRef name, StringRef variable, StringRef shape) {
    int32_t dtype = abiDType(tensor.dtype);
    os << "  int64_t " << variable << "_shape[] = {" << shape << "};\n"
       << "  DLTensor " << variable << " = {(void *)" << name << ", {kDLCPU, 0}, " << tensor.shape.size() << ", {"
       << (dtype >> 8) << ", " << (dtype & 255) << ", 1}, " << variable << "_shape, 0, 0};\n";
  }

  void writeBody() {
    os << "  attnrt_run_options run = ATTNRT_RUN_OPTIONS_INIT;\n  if (options)\n    run = *options;\n  run.entry = \"";
    printEscapedString(entry.name, os);
    os << "\";\n";
    if (takesState)
      os << "  run.state = state;\n";
    for (auto [i, input] : enumerate(entry.inputs))
      writeTensor(input, inputNames[i], "input_" + std::to_string(i) + "_", *shape(input, i, true));
    os << "  const DLTensor *inputs[] = {";
    for (auto [i, input] : enumerate(entry.inputs))
      os << (input.isOptional ? inputNames[i] + " ? " : "") << "&input_" << i
         << (input.isOptional ? "_ : (const DLTensor *)0, " : "_, ");
    os << "0};\n";
    for (auto [i, output] : enumerate(entry.outputs))
      if (outputShapes[i])
        writeTensor(output, outputNames[i], "output_" + std::to_string(i) + "_", *outputShapes[i]);
    os << "  attnrt_output outputs[] = {";
    for (size_t i = 0; i < entry.outputs.size(); ++i) {
      os << (i ? ", " : "");
      if (outputShapes[i])
        os << "{&output_" << i << "_, 0, 0}";
      else
        os << "*" << outputNames[i];
    }
    os << "};\n  attnrt_status status = attnrt_session_run(session, &run, inputs, " << entry.inputs.size()
       << ", outputs, " << entry.outputs.size() << ");\n";
    for (size_t i = 0; i < entry.outputs.size(); ++i)
      if (!outputShapes[i])
        os << "  *" << outputNames[i] << " = outputs[" << i << "];\n";
    os << "  return status;\n}\n\n";
  }

  raw_ostream &os;
  const EntryDescription &entry;
  std::string function;
  bool takesState;
  MapVector<std::string, std::string, std::map<std::string, unsigned>> sizes; // key -> field
  std::vector<std::string> inputNames, outputNames;
  std::vector<std::optional<std::string>> outputShapes;
};

/// The entry as a caller with a state sees it.
EntryDescription withoutStates(EntryDescription entry) {
  auto drop = [&](std::vector<TensorDescription> &tensors, int32_t EntryDescription::State::*position) {
    std::vector<TensorDescription> rest;
    for (auto [n, tensor] : enumerate(tensors))
      if (none_of(entry.states, [&, n = n](const auto &state) { return state.*position == static_cast<int32_t>(n); }))
        rest.push_back(tensor);
    tensors = std::move(rest);
  };
  drop(entry.inputs, &EntryDescription::State::input);
  drop(entry.outputs, &EntryDescription::State::output);
  return entry;
}

} // namespace

std::string makeCHeader(const LibraryDescription &library, StringRef prefix) {
  std::string text;
  raw_string_ostream os(text);
  os << "// The entries of a model library, typed. Written by " << comment(library.compilerVersion)
     << "; do not edit.\n//\n"
        "// Tensors are dense and row-major; float16 and bfloat16 are their bits, bool is 0 or 1. `options` may be\n"
        "// NULL. An output of type attnrt_output is as in attnrt.h: {NULL, 0, NULL} lets the runtime allocate it.\n"
        "#pragma once\n\n#include \"attnrt/attnrt.h\"\n\n#ifdef __cplusplus\nextern \"C\" {\n#endif\n\n";
  Names functions;
  for (const EntryDescription &entry : library.entries) {
    std::string name = (prefix.take_front(32) + "_" + entry.name).str();
    EntryWriter(os, entry, functions.add(name), /*takesState=*/false).write();
    if (!entry.states.empty())
      EntryWriter(os, withoutStates(entry), functions.add(name + "_with_state"), /*takesState=*/true).write();
  }
  os << "#ifdef __cplusplus\n}\n#endif\n";
  return text;
}

} // namespace attn
