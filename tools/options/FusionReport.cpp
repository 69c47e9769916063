#include "tools/options/FusionReport.h"

#include "tools/options/Console.h"
#include "tools/options/Page.h"
#include "tools/options/StagedOutput.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"

using namespace llvm;

namespace attn::tools {
namespace {

constexpr const char kPage[] =
#include "tools/pages/fusion.inc"
    ;

struct Row {
  std::string node, verdict, kind, mask;
  std::vector<std::string> notes;
};

std::string text(const json::Object &fields, StringRef key) { return printable(fields.getString(key).value_or("")); }

/// "a, b" of a list of strings.
std::string joined(const json::Object &fields, StringRef key) {
  std::vector<std::string> parts;
  if (const json::Array *list = fields.getArray(key))
    for (const json::Value &part : *list)
      if (std::optional<StringRef> word = part.getAsString())
        parts.push_back(printable(*word));
  return join(parts, ", ");
}

Row readRow(const json::Object &fields) {
  Row row = {text(fields, "node"), text(fields, "verdict"), text(fields, "kind"), text(fields, "mask"), {}};
  if (row.node.empty())
    row.node = "(unnamed)";
  if (std::string entry = text(fields, "entry"); !entry.empty())
    row.node = entry + ": " + row.node;
  if (row.verdict != "fused") // what it is not says the verdict already
    row.kind.clear();
  if (std::string reason = text(fields, "reason"); !reason.empty()) {
    std::string node = text(fields, "reason_node");
    if (StringRef(reason).starts_with(row.verdict + ": ")) // as the verdict says
      reason = reason.substr(row.verdict.size() + 2);
    row.notes.push_back(reason + (node.empty() || node == text(fields, "node") ? "" : ", at " + node));
  }
  for (StringRef key : {"assumes", "copies"})
    if (std::string list = joined(fields, key); !list.empty())
      row.notes.push_back((key + " " + list).str());
  if (std::string outputs = joined(fields, "exposed"); !outputs.empty())
    row.notes.push_back("exposed as " + outputs);
  if (std::string weights = text(fields, "weights"); !weights.empty())
    row.notes.push_back("weights " + weights);
  if (!fields.getBoolean("kernel").value_or(true))
    row.notes.push_back("computed without a kernel: " + text(fields, "kernel_reason"));
  return row;
}

std::string formatTable(const json::Array &verdicts) {
  std::vector<Row> rows;
  unsigned fused = 0, missed = 0;
  for (const json::Value &verdict : verdicts) {
    const json::Object *fields = verdict.getAsObject();
    if (!fields)
      continue;
    rows.push_back(readRow(*fields));
    fused += rows.back().verdict == "fused";
    missed += rows.back().verdict == "missed";
  }
  size_t nodeWidth = 7, verdictWidth = 7, kindWidth = 4;
  for (const Row &row : rows) {
    nodeWidth = std::max(nodeWidth, row.node.size());
    verdictWidth = std::max(verdictWidth, row.verdict.size());
    kindWidth = std::max(kindWidth, row.kind.size());
  }
  std::string table;
  raw_string_ostream os(table);
  auto line = [&](StringRef node, StringRef verdict, StringRef kind, StringRef mask) {
    std::string cells;
    raw_string_ostream(cells) << left_justify(node, nodeWidth) << "  " << left_justify(verdict, verdictWidth) << "  "
                              << left_justify(kind, kindWidth) << "  " << mask;
    os << StringRef(cells).rtrim() << '\n';
  };
  if (!rows.empty())
    line("softmax", "verdict", "kind", "mask");
  for (const Row &row : rows) {
    line(row.node, row.verdict, row.kind, row.mask);
    for (const std::string &note : row.notes)
      os << "    " << note << '\n';
  }
  os << fused << " of " << rows.size() << (rows.size() == 1 ? " softmax" : " softmaxes") << " fused, " << missed
     << " missed\n";
  return table;
}

/// A line for each product of operands in fewer bits than f32, with its kernel or why it has none.
std::string formatProducts(const json::Array &products) {
  std::string table;
  raw_string_ostream os(table);
  size_t kernels = 0;
  auto widthOf = [&](StringRef title, StringRef key) {
    size_t width = title.size();
    for (const json::Value &product : products)
      if (const json::Object *fields = product.getAsObject())
        width = std::max(width, text(*fields, key).size());
    return width;
  };
  size_t node = widthOf("product", "node"), storage = widthOf("weight", "storage"),
         arithmetic = widthOf("arithmetic", "arithmetic");
  if (!products.empty())
    os << left_justify("product", node) << "  " << left_justify("weight", storage) << "  "
       << left_justify("arithmetic", arithmetic) << "  kernel\n";
  for (const json::Value &product : products) {
    const json::Object *fields = product.getAsObject();
    if (!fields)
      continue;
    std::string kernel = text(*fields, "kernel");
    kernels += !kernel.empty();
    os << left_justify(text(*fields, "node"), node) << "  " << left_justify(text(*fields, "storage"), storage) << "  "
       << left_justify(text(*fields, "arithmetic"), arithmetic) << "  "
       << (kernel.empty() ? "none, slower than f32: " + text(*fields, "reason") : kernel) << '\n';
  }
  if (!products.empty())
    os << kernels << " of " << products.size() << (products.size() == 1 ? " product" : " products")
       << " of operands in fewer bits than f32 by a kernel\n";
  return table;
}

bool isFused(const json::Value &verdict) {
  const json::Object *fields = verdict.getAsObject();
  return fields && fields->getBoolean("fused").value_or(false);
}

/// The array in `text`; none where it is not one.
json::Array readArray(StringRef text) {
  Expected<json::Value> value = json::parse(text);
  if (!value) {
    consumeError(value.takeError());
    return {};
  }
  json::Array *list = value->getAsArray();
  return list ? std::move(*list) : json::Array();
}

std::string formatPage(StringRef model, const json::Array &verdicts, json::Array products,
                       std::optional<Verification> verified) {
  json::Object data{{"model", json::fixUTF8(sys::path::filename(model))},
                    {"verdicts", json::Array(verdicts)},
                    {"products", std::move(products)}};
  if (verified)
    data["verified"] = json::Object{{"same", verified->same}, {"runs", verified->runs}};
  return fillPage(kPage, "@FUSION_DATA@", std::move(data));
}

} // namespace

int reportFusion(StringRef model, StringRef verdicts, StringRef products, ArrayRef<std::string> paths,
                 uint64_t required, std::optional<Verification> verified) {
  json::Array list = readArray(verdicts);
  for (StringRef path : paths) {
    std::string error, text;
    if (path == "-")
      text = formatTable(list) + formatProducts(readArray(products));
    else if (isPage(path))
      text = formatPage(model, list, readArray(products), verified);
    else
      text = formatv("{0:2}\n", json::Value(json::Array(list)));
    if (!writeTextFile(path, text, error)) {
      reportError(error);
      return ExitUsage;
    }
  }
  size_t fused = count_if(list, isFused);
  if (fused >= required)
    return ExitSuccess;
  reportError(model + ": " + Twine(fused) + " of " + Twine(list.size()) +
              (list.size() == 1 ? " softmax" : " softmaxes") + " became a fused attention, --require-fused asks for " +
              Twine(required));
  if (fused < list.size())
    reportNote("--fusion-report=- says why the others did not");
  return ExitUnsupported;
}

} // namespace attn::tools
