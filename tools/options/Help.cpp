#include "tools/options/Help.h"

#include "tools/options/Options.h"

#include "llvm/Option/Option.h"
#include "llvm/Support/raw_ostream.h"

using namespace llvm;
using namespace llvm::opt;

namespace attn::tools {
namespace {

// OptTable::printHelp sorts the groups by name and does not wrap. What attnc itself measures, few look for.
constexpr OptionId kGroups[] = {OPT_g_run,    OPT_g_bench,  OPT_g_reduce, OPT_g_output, OPT_g_compile,
                                OPT_g_search, OPT_g_limits, OPT_g_inside, OPT_g_general};
constexpr OptionId kGroupsOfAttnc[] = {OPT_g_output, OPT_g_compile, OPT_g_search, OPT_g_limits,
                                       OPT_g_inside, OPT_g_bench,   OPT_g_general};
constexpr unsigned kColumn = 30, kWidth = 100;

void printOption(raw_ostream &os, StringRef spelling, StringRef text) {
  os << "  " << spelling;
  unsigned column = 2 + spelling.size();
  if (column + 2 > kColumn) {
    os << '\n';
    column = 0;
  }
  os.indent(kColumn - column);
  column = kColumn;
  while (!text.empty()) {
    auto [word, rest] = text.split(' ');
    if (column > kColumn && column + 1 + word.size() > kWidth) {
      os << '\n';
      os.indent(kColumn);
      column = kColumn;
    } else if (column > kColumn) {
      os << ' ';
      ++column;
    }
    os << word;
    column += word.size();
    text = rest;
  }
  os << '\n';
}

} // namespace

void printHelp(raw_ostream &os, const OptTable &table, const ToolInfo &tool) {
  os << "usage: " << tool.usage << "\n\n" << tool.overview << '\n';
  ArrayRef<OptionId> groups = tool.visibility == AttncVis ? ArrayRef(kGroupsOfAttnc) : ArrayRef(kGroups);
  for (OptionId group : groups) {
    bool first = true;
    for (unsigned id = 1; id <= table.getNumOptions(); ++id) {
      const Option option = table.getOption(id);
      const char *text = table.getOptionHelpText(id, opt::Visibility(tool.visibility));
      if (table.getOptionGroupID(id) != group || !text || !option.hasVisibilityFlag(tool.visibility))
        continue;
      if (first)
        os << '\n' << table.getOptionName(group) << ":\n";
      first = false;
      std::string spelling = option.getPrefixedName().str();
      if (const char *metavar = table.getOptionMetaVar(id))
        spelling += std::string(option.getKind() == Option::SeparateClass ? " " : "") + metavar;
      printOption(os, spelling, std::string(text) + (option.hasFlag(Repeatable) ? "; may be given again" : ""));
    }
  }
  os << "\nOf an option that may not be given again the last value counts.\n\nExamples:\n" << tool.examples << "\nExit codes:\n" << tool.exitCodes;
}

} // namespace attn::tools
