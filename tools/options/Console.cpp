#include "tools/options/Console.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"
#include <csignal>
#include <cstdlib>
#include <string>
#include <system_error>
#include <unistd.h>
#include <utility>
#include <vector>

using namespace llvm;

namespace attn::tools {
namespace {

bool progressShown = false;

bool errorsAsJson = false, hasJsonResult = false;
void (*reportListener)(Severity, StringRef) = nullptr;
std::vector<std::string> errorsMade, notesMade; // for the JSON of an error

bool colours() {
  static const bool on = [] {
    const char *no = std::getenv("NO_COLOR");
    return isatty(STDERR_FILENO) && !(no && *no) && errs().has_colors();
  }();
  return on;
}

/// Node and operator of "model.onnx: node 'name' (Op): ..." or "..: Op (node 'name')".
std::pair<StringRef, StringRef> findNode(StringRef text) {
  for (StringRef word : {"node '", "layer '"}) {
    auto [before, rest] = text.split(word);
    if (rest.empty())
      continue;
    if (before.consume_back(" ("))
      return {rest.split("')").first, before.rsplit(' ').second};
    auto [name, more] = rest.split("' (");
    if (!more.empty())
      return {name, more.split(')').first};
  }
  return {};
}

json::Value listOf(ArrayRef<std::string> texts) {
  json::Array list;
  for (const std::string &text : texts)
    list.push_back(json::fixUTF8(text));
  return list;
}

void printErrorJson(int code) {
  std::string message = errorsMade.empty() ? "ended without a message" : errorsMade.front();
  auto [node, op] = findNode(message);
  raw_ostream &os = jsonResult();
  os << "{\"status\":" << code << ",\"message\":" << jsonString(message);
  if (!node.empty())
    os << ",\"node\":" << jsonString(node) << ",\"operator\":" << jsonString(op);
  os << ",\"more\":" << listOf(ArrayRef(errorsMade).drop_front(!errorsMade.empty()))
     << ",\"notes\":" << listOf(notesMade) << "}\n";
}

} // namespace

void tellErrorsAsJson() { errorsAsJson = true; }

raw_ostream &jsonResult() {
  hasJsonResult = true;
  return outs();
}

void handOnReports(void (*listener)(Severity, StringRef)) {
  reportListener = listener;
  errorsAsJson = false;
}

void noteReport(Severity severity, StringRef text) {
  if (reportListener)
    reportListener(severity, text);
  else if (errorsAsJson)
    (severity == Severity::Error ? errorsMade : notesMade).push_back(text.str());
}

std::string printable(StringRef text) {
  std::string result;
  raw_string_ostream os(result);
  for (unsigned char c : text) {
    if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7f)
      os << format("\\x%02x", c);
    else
      os << static_cast<char>(c);
  }
  return result;
}

void report(Severity severity, const Twine &text) {
  showProgress("");
  static constexpr struct {
    const char *word;
    raw_ostream::Colors colour;
  } styles[] = {{"error: ", raw_ostream::RED}, {"warning: ", raw_ostream::MAGENTA}, {"note: ", raw_ostream::CYAN}};
  // Whole messages are written at once: the worker process writes here too.
  std::string line;
  raw_string_ostream os(line);
  os.enable_colors(colours());
  const auto &style = styles[static_cast<int>(severity)];
  if (colours())
    os.changeColor(style.colour, /*Bold=*/true);
  os << style.word;
  if (colours())
    os.resetColor();
  std::string clean = printable(text.str());
  StringRef rest = StringRef(clean).rtrim();
  noteReport(severity, rest);
  while (true) {
    auto [first, more] = rest.split('\n');
    os << first << '\n';
    if (more.empty())
      break;
    os << "  ";
    rest = more;
  }
  errs() << line;
  errs().flush();
}

int finishOutput(int code) {
  if (code != ExitSuccess && errorsAsJson && !hasJsonResult)
    printErrorJson(code);
  outs().flush();
  // Nobody is left to tell; LLVM would abort over it at exit.
  errs().flush();
  errs().clear_error();
  if (!outs().has_error())
    return code;
  // A reader that has enough, as head, is no fault; the code is the one that a shell makes of SIGPIPE.
  bool isClosed = outs().error() == std::errc::broken_pipe;
  if (!isClosed)
    reportError("cannot write to standard output: " + outs().error().message());
  outs().clear_error();
  errs().clear_error();
  if (code != ExitSuccess)
    return code;
  return isClosed ? 128 + SIGPIPE : static_cast<int>(ExitUsage);
}

void showProgress(StringRef text) {
  static const bool terminal = isatty(STDERR_FILENO);
  if (!terminal || (text.empty() && !progressShown))
    return;
  errs() << "\r\033[K" << text.take_front(100);
  errs().flush();
  progressShown = !text.empty();
}

std::string formatBytes(uint64_t bytes) {
  std::string result;
  raw_string_ostream os(result);
  if (bytes >= UINT64_C(1) << 30)
    os << format("%.2f GiB", static_cast<double>(bytes) / (1 << 30));
  else if (bytes >= 1 << 20)
    os << format("%.1f MiB", static_cast<double>(bytes) / (1 << 20));
  else if (bytes >= 1 << 10)
    os << format("%.1f KiB", static_cast<double>(bytes) / (1 << 10));
  else
    os << bytes << " bytes";
  return result;
}

std::string formatSeconds(double seconds) {
  std::string result;
  raw_string_ostream os(result);
  if (seconds >= 1)
    os << format("%.2f s", seconds);
  else
    os << format("%.0f ms", seconds * 1e3);
  return result;
}

std::string jsonString(StringRef text) {
  std::string result;
  raw_string_ostream(result) << json::Value(json::fixUTF8(text));
  return result;
}

} // namespace attn::tools
