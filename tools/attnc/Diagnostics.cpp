#include "tools/attnc/Diagnostics.h"

#include "tools/options/Console.h"

#include "llvm/ADT/TypeSwitch.h"
#include "mlir/IR/Location.h"

using namespace llvm;
using namespace mlir;

namespace attn::tools {
namespace {

// A fused op has its nodes' locations; the first names the one it began with.
template <typename LocT>
LocT findLoc(Location loc) {
  if (auto found = dyn_cast<LocT>(loc))
    return found;
  if (auto name = dyn_cast<NameLoc>(loc))
    return findLoc<LocT>(name.getChildLoc());
  if (auto call = dyn_cast<CallSiteLoc>(loc))
    return findLoc<LocT>(call.getCallee());
  if (auto fused = dyn_cast<FusedLoc>(loc))
    for (Location part : fused.getLocations())
      if (LocT found = findLoc<LocT>(part))
        return found;
  return LocT();
}

bool isNoise(StringRef text) {
  return text.starts_with("see current operation") || text.starts_with("Failures have been detected") ||
         text.starts_with("Pipeline failed while executing") || text.starts_with("A failure has been detected") ||
         text.starts_with("A signal was caught");
}

} // namespace

std::string describeNode(Location loc) {
  NameLoc name = findLoc<NameLoc>(loc);
  if (!name || name.getName().empty())
    return "";
  StringRef text = name.getName();
  return text.starts_with("node '") ? text.str() : "node '" + text.str() + "'";
}

DiagnosticPrinter::DiagnosticPrinter(MLIRContext *context, std::string file)
    : file(std::move(file)), handler(context, [this](Diagnostic &diagnostic) { print(diagnostic); }) {}

std::string DiagnosticPrinter::prefix(Location loc, StringRef text) const {
  if (text.starts_with(file + ":"))
    return "";
  std::string result = file + ": ";
  if (text.starts_with("node '"))
    return result;
  if (std::string node = describeNode(loc); !node.empty())
    return result + node + ": ";
  // Textual IR has lines instead of nodes.
  if (auto place = findLoc<FileLineColLoc>(loc); place && place.getFilename() == file && place.getLine())
    return file + ":" + std::to_string(place.getLine()) + ":" + std::to_string(place.getColumn()) + ": ";
  return result;
}

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
    report(severity, prefix(diagnostic.getLocation(), text) + text);
  }
  for (Diagnostic &note : diagnostic.getNotes())
    if (std::string words = note.str(); !isNoise(words))
      reportNote(words);
}

} // namespace attn::tools
