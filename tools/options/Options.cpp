#include "tools/options/Options.h"

#include "tools/options/Console.h"
#include "tools/options/Help.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Option/Option.h"
#include "llvm/Support/raw_ostream.h"
#include <cmath>

using namespace llvm;
using namespace llvm::opt;

namespace attn::tools {
namespace {

#define OPTTABLE_STR_TABLE_CODE
#include "tools/options/Options.inc"
#undef OPTTABLE_STR_TABLE_CODE

#define OPTTABLE_PREFIXES_TABLE_CODE
#include "tools/options/Options.inc"
#undef OPTTABLE_PREFIXES_TABLE_CODE

constexpr OptTable::Info kOptions[] = {
#define OPTION(...) LLVM_CONSTRUCT_OPT_INFO(__VA_ARGS__),
#include "tools/options/Options.inc"
#undef OPTION
};

class AttnOptTable : public GenericOptTable {
public:
  AttnOptTable() : GenericOptTable(OptionStrTable, OptionPrefixesTable, kOptions) { setDashDashParsing(true); }
};

const AttnOptTable &table() {
  static const AttnOptTable instance;
  return instance;
}

/// As the user thinks of it: "--dim", not "--dim=".
std::string spelling(const Arg &arg) { return arg.getSpelling().rtrim('=').str(); }

} // namespace

std::optional<CommandLine> CommandLine::parse(const ToolInfo &tool, int argc, char **argv, int &exitCode) {
  opt::Visibility visibility(tool.visibility);
  unsigned missingIndex = 0, missingCount = 0;
  ArrayRef<const char *> arguments(argv, argc);
  CommandLine line(tool, table().ParseArgs(arguments.drop_front(argc > 0), missingIndex, missingCount, visibility));

  if (line.has(OPT_json) || line.has(OPT_json_errors))
    tellErrorsAsJson();
  if (line.has(OPT_help)) {
    printHelp(outs(), table(), tool);
    exitCode = ExitSuccess;
    return std::nullopt;
  }
  if (line.has(OPT_version)) {
    if (line.has(OPT_json))
      outs() << "{\"tool\":\"" << tool.name << "\",\"version\":\"" << ATTNC_VERSION << "\"}\n";
    else
      outs() << tool.name << ' ' << ATTNC_VERSION << '\n';
    exitCode = ExitSuccess;
    return std::nullopt;
  }
  line.checkUnknown();
  line.checkValues();
  if (missingCount) {
    StringRef name = line.args.getArgString(missingIndex);
    for (unsigned id = 1; id <= table().getNumOptions(); ++id)
      if (Option option = table().getOption(id);
          option.isValid() && option.getPrefixedName() == name && option.getKind() == Option::SeparateClass)
        line.failWithoutValue(option.getUnaliasedOption());
  }
  if (line.failed()) {
    exitCode = ExitUsage;
    return std::nullopt;
  }
  return line;
}

void CommandLine::checkUnknown() {
  opt::Visibility visibility(info->visibility);
  for (const Arg *arg : args.filtered(OPT_UNKNOWN)) {
    std::string spelling = arg->getAsString(args), nearest;
    // A flag with a value.
    auto [name, value] = StringRef(spelling).split('=');
    if (name != spelling && table().findNearest(name, nearest, visibility, /*MinimumLength=*/1) == 0) {
      fail("option '" + name + "' takes no value: '" + spelling + "'");
      continue;
    }
    // Far guesses confuse more than they help.
    unsigned distance = table().findNearest(spelling, nearest, visibility, /*MinimumLength=*/4);
    if (distance <= std::min<size_t>(3, name.size() / 3) && !nearest.empty())
      fail("unknown option '" + spelling + "', did you mean '" + nearest + "'?");
    else
      fail("unknown option '" + spelling + "'");
  }
}

void CommandLine::failWithoutValue(Option option, const Twine &more) {
  fail("option '" + StringRef(option.getPrefixedName()).rtrim('=') + "' needs a value" + more);
  unsigned id = option.getID();
  const char *text = table().getOptionHelpText(id, opt::Visibility(info->visibility));
  const char *metavar = table().getOptionMetaVar(id);
  if (text && metavar)
    reportNote(option.getPrefixedName() + (option.getKind() == Option::SeparateClass ? " " : "") + metavar + ": " +
               text);
}

void CommandLine::checkValues() {
  // "--output --threads=1": nobody's output is called so.
  auto isOption = [](StringRef text) {
    return text.starts_with("--") || text.starts_with("-O") || text == "-o" || text == "-h";
  };
  for (const Arg *arg : args)
    if (const Arg *apart = arg->getAlias(); (apart ? apart : arg)->getOption().getKind() == Option::SeparateClass)
      if (isOption(arg->getValue()))
        failWithoutValue(arg->getOption(), ", and '" + Twine(arg->getValue()) + "' is an option");
}

void CommandLine::fail(const Twine &message) {
  reportError(message);
  code = ExitUsage;
  wrong = true;
}

void CommandLine::reject(const Twine &message, ExitCode as) {
  reportError(message);
  code = wrong ? ExitUsage : as;
  wrong = hasRejected = true;
}

bool CommandLine::failed() {
  if (wrong && !noted && !hasRejected)
    reportNote("'" + text(OPT_started_by, info->name) + " --help' lists the options");
  noted |= wrong;
  return wrong;
}

std::vector<StringRef> CommandLine::positional() const {
  std::vector<StringRef> result;
  for (const Arg *arg : args.filtered(OPT_INPUT))
    result.push_back(arg->getValue());
  return result;
}

std::vector<StringRef> CommandLine::all(OptionId id) const {
  std::vector<StringRef> result;
  for (const Arg *arg : args.filtered(id))
    result.push_back(arg->getValue());
  return result;
}

std::vector<std::string> CommandLine::files(OptionId id) const {
  std::vector<std::string> result;
  for (StringRef name : all(id))
    if (!name.empty() && !is_contained(result, name))
      result.push_back(name.str());
  return result;
}

StringRef CommandLine::text(OptionId id, StringRef fallback) const {
  const Arg *arg = args.getLastArg(id);
  return arg ? StringRef(arg->getValue()) : fallback;
}

uint64_t CommandLine::number(OptionId id, uint64_t fallback, uint64_t lower, uint64_t upper) {
  const Arg *arg = args.getLastArg(id);
  if (!arg)
    return fallback;
  uint64_t value;
  if (StringRef(arg->getValue()).getAsInteger(10, value) || value < lower || value > upper) {
    std::string range =
        upper == INT64_MAX ? "of at least " + utostr(lower) : "from " + utostr(lower) + " to " + utostr(upper);
    fail("'" + spelling(*arg) + "' expects a whole number " + range + ", not '" + arg->getValue() + "'");
    return fallback;
  }
  return value;
}

double CommandLine::real(OptionId id, double fallback) {
  const Arg *arg = args.getLastArg(id);
  if (!arg)
    return fallback;
  double value;
  if (StringRef(arg->getValue()).getAsDouble(value) || !std::isfinite(value) || value < 0) {
    fail("'" + spelling(*arg) + "' expects a number of at least 0, not '" + arg->getValue() + "'");
    return fallback;
  }
  return value;
}

uint64_t CommandLine::bytes(OptionId id, uint64_t fallback) {
  const Arg *arg = args.getLastArg(id);
  if (!arg)
    return fallback;
  StringRef digits = arg->getValue();
  unsigned shift = 0;
  if (digits.consume_back_insensitive("K"))
    shift = 10;
  else if (digits.consume_back_insensitive("M"))
    shift = 20;
  else if (digits.consume_back_insensitive("G"))
    shift = 30;
  uint64_t value;
  if (digits.getAsInteger(10, value) || value > (UINT64_C(1) << 62 >> shift)) {
    fail("'" + spelling(*arg) + "' expects a size as 512M or 4G, not '" + arg->getValue() + "'");
    return fallback;
  }
  return value << shift;
}

std::vector<std::pair<std::string, std::string>> CommandLine::named(OptionId id) {
  std::vector<std::pair<std::string, std::string>> result;
  for (const Arg *arg : args.filtered(id)) {
    auto [name, rest] = StringRef(arg->getValue()).rsplit(':');
    if (name.empty() || !StringRef(arg->getValue()).contains(':'))
      fail("'" + spelling(*arg) + "' expects NAME:VALUE, not '" + arg->getValue() + "'");
    else
      result.emplace_back(name.str(), rest.str());
  }
  return result;
}

std::vector<std::pair<std::string, DimRange>> CommandLine::dims() {
  std::vector<std::pair<std::string, DimRange>> result;
  auto print = [](DimRange range) {
    return range.lower == range.upper ? itostr(range.lower) : itostr(range.lower) + ".." + itostr(range.upper);
  };
  for (auto &[name, text] : named(OPT_dim)) {
    DimRange range;
    auto [first, last] = StringRef(text).split("..");
    bool isRange = StringRef(text).contains("..");
    if (first.getAsInteger(10, range.lower) || range.lower < 0 ||
        (isRange && (last.getAsInteger(10, range.upper) || range.upper < 0))) {
      fail("the size of dimension '" + name + "' must be a whole number of at least 0, or a range as 1..512, not '" +
           text + "'");
      continue;
    }
    if (!isRange)
      range.upper = range.lower;
    if (range.upper < range.lower) {
      fail("the range of dimension '" + name + "' is empty: " + text);
      continue;
    }
    auto same = find_if(result, [&, &name = name](auto &other) { return other.first == name; });
    if (same == result.end())
      result.emplace_back(name, range);
    else if (same->second.lower != range.lower || same->second.upper != range.upper)
      fail("dimension '" + name + "' is given as " + print(same->second) + " and as " + print(range));
  }
  return result;
}

std::vector<std::pair<std::string, std::vector<int64_t>>> CommandLine::shapes() {
  std::vector<std::pair<std::string, std::vector<int64_t>>> result;
  for (auto &[name, text] : named(OPT_shape)) {
    if (auto shape = parseShape(text))
      result.emplace_back(name, *shape);
    else
      fail("the shape of input '" + name + "' must be like 2x128, not '" + text + "'");
  }
  return result;
}

std::vector<std::string> CommandLine::compileArguments(bool withReports) const {
  static constexpr OptionId kGroups[] = {OPT_g_compile, OPT_g_limits, OPT_g_output, OPT_g_inside};
  ArgStringList rendered;
  for (const Arg *arg : args)
    for (OptionId group : ArrayRef(kGroups).take_front(withReports ? 4 : 2))
      if (arg->getOption().matches(group) && !arg->getOption().matches(OPT_o))
        arg->render(args, rendered);
  return std::vector<std::string>(rendered.begin(), rendered.end());
}

std::vector<std::string> CommandLine::argumentsBesides(ArrayRef<OptionId> left) const {
  ArgStringList rendered;
  for (const Arg *arg : args)
    if (none_of(left, [&](OptionId id) { return arg->getOption().matches(id); }))
      arg->render(args, rendered);
  return std::vector<std::string>(rendered.begin(), rendered.end());
}

std::optional<std::vector<int64_t>> parseShape(StringRef text) {
  std::vector<int64_t> shape;
  if (text.empty())
    return shape;
  SmallVector<StringRef> parts;
  text.split(parts, 'x');
  for (StringRef part : parts) {
    int64_t size;
    if (part == "?")
      size = -1;
    else if (part == "*")
      size = -2; // onnx::kOwnSize
    else if (part.getAsInteger(10, size) || size < 0)
      return std::nullopt;
    shape.push_back(size);
  }
  return shape;
}

} // namespace attn::tools
