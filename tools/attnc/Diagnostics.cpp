#include "tools/attnc/Diagnostics.h"

#include "dialects/attn/NodeLocation.h"
#include "tools/options/Console.h"

using namespace llvm;
using namespace mlir;

namespace attn::tools {
namespace {

bool isNoise(StringRef text) {
  return text.starts_with("see current operation") || text.starts_with("Failures have been detected") ||
         text.starts_with("Pipeline failed while executing") || text.starts_with("A failure has been detected") ||
         text.starts_with("A signal was caught");
}

} // namespace

DiagnosticPrinter::DiagnosticPrinter(MLIRContext *context, std::string file)
    : file(std::move(file)), handler(context, [this](Diagnostic &diagnostic) { print(diagnostic); }) {}

void DiagnosticPrinter::print(Diagnostic &diagnostic) {
  std::string text = diagnostic.str();
  Severity severity = Severity::Error;
  switch (diagnostic.getSeverity()) {
  case mlir::DiagnosticSeverity::Remark:
    return;
  case mlir::DiagnosticSeverity::Note:
    severity = Severity::Note;
    break;
  case mlir::DiagnosticSeverity::Warning:
    severity = Severity::Warning;
    break;
  case mlir::DiagnosticSeverity::Error:
    break;
  }
  if (!isNoise(text)) {
    numErrors += severity == Severity::Error;
    namedNode |= severity == Severity::Error && !nodeName(diagnostic.getLocation()).empty();
    std::string where = describe(diagnostic.getLocation());
    report(severity, (where.empty() ? file : where) + ": " + text);
  }
  for (Diagnostic &note : diagnostic.getNotes())
    if (std::string words = note.str(); !isNoise(words))
      reportNote(words);
}

} // namespace attn::tools
