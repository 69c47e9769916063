#include "tools/options/Console.h"

#include "llvm/Support/Format.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"
#include <cstdlib>
#include <string>
#include <unistd.h>

using namespace llvm;

namespace attn::tools {
namespace {

bool progressShown = false;

bool colours() {
  static const bool on = [] {
    const char *no = std::getenv("NO_COLOR");
    return isatty(STDERR_FILENO) && !(no && *no) && errs().has_colors();
  }();
  return on;
}

} // namespace

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
  outs().flush();
  // Nobody is left to tell; LLVM would abort over it at exit.
  errs().flush();
  errs().clear_error();
  if (!outs().has_error())
    return code;
  reportError("cannot write to standard output: " + outs().error().message());
  outs().clear_error();
  errs().clear_error();
  return code == ExitSuccess ? static_cast<int>(ExitUsage) : code;
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
    os << format("%.2f GiB", bytes / double(1 << 30));
  else if (bytes >= 1 << 20)
    os << format("%.1f MiB", bytes / double(1 << 20));
  else if (bytes >= 1 << 10)
    os << format("%.1f KiB", bytes / double(1 << 10));
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
