#include "frontends/graph/Search.h"
#include "frontends/graph/Layer.h"
#include "frontends/search/BuildSearch.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace attn;
using namespace attn::graph;

namespace {
/// Fields of the object, which fit the schema.
struct Fields {
  const Json &json;

  std::string text(StringRef key, StringRef fallback = "") const {
    const Json *field = json.find(key);
    return !field ? fallback.str() : field->is(Json::Integer) ? std::to_string(field->integer) : field->text;
  }
  double number(StringRef key, double fallback) const {
    const Json *field = json.find(key);
    return field ? field->number : fallback;
  }
  int64_t integer(StringRef key, int64_t fallback) const {
    const Json *field = json.find(key);
    return field ? field->integer : fallback;
  }
  bool flag(StringRef key) const {
    const Json *field = json.find(key);
    return field && field->boolean;
  }
};

using Kinds = ArrayRef<StringLiteral>;
constexpr StringLiteral kBeams[] = {"beam", "ctc_beam"}, kBeam[] = {"beam"}, kSample[] = {"sample"},
                        kCtc[] = {"ctc_greedy", "ctc_beam"}, kSteps[] = {"greedy", "beam", "sample"};

/// What belongs to some kinds means nothing to another.
constexpr std::pair<StringLiteral, Kinds> kBelongs[] = {{"width", kBeams},
                                                        {"n_best", kBeams},
                                                        {"length_penalty", kBeam},
                                                        {"coverage_penalty", kBeam},
                                                        {"gnmt", kBeam},
                                                        {"ended", kBeam},
                                                        {"early_stop", kBeam},
                                                        {"temperature", kSample},
                                                        {"top_k", kSample},
                                                        {"top_p", kSample},
                                                        {"seed", kSample},
                                                        {"blank", kCtc},
                                                        {"frames", kCtc},
                                                        {"time_major", kCtc},
                                                        {"init", kSteps},
                                                        {"bos", kSteps},
                                                        {"eos", kSteps},
                                                        {"max_length", kSteps},
                                                        {"min_length", kSteps},
                                                        {"tokens", kSteps},
                                                        {"alignment", kSteps},
                                                        {"states", kSteps},
                                                        {"alignment_argmax", kSteps}};

using ErrorAt = llvm::function_ref<InFlightDiagnostic(const Json &)>;

/// Whether the fields go together; an error says which do not.
bool checkFields(const Json &search, const std::string &kind, ErrorAt error) {
  for (const auto &[key, kinds] : kBelongs)
    if (const Json *field = search.find(key); field && !llvm::is_contained(kinds, kind)) {
      error(*field) << "'" << key << "' belongs to a search of kind '" << llvm::join(kinds, "' or '") << "', not '"
                    << kind << "'";
      return false;
    }
  for (StringRef key : {"coverage_penalty", "alignment_argmax"})
    if (const Json *field = search.find(key); field && !search.find("alignment")) {
      error(*field) << "'" << key << "' needs an 'alignment'";
      return false;
    }
  const Json *length = search.find("max_length");
  if (!length && llvm::is_contained(kSteps, kind)) {
    error(search) << "a search of kind '" << kind << "' needs 'max_length'";
    return false;
  }
  return true;
}

SearchOptions readOptions(const Json &search, const std::string &kind) {
  Fields fields{search};
  SearchOptions options;
  options.kind = kind == "ctc_greedy" ? "ctc-greedy" : kind == "ctc_beam" ? "ctc-beam" : kind;
  options.width = fields.integer("width", options.isBeam() ? 4 : 1);
  options.nBest = fields.integer("n_best", 1);
  options.entry = fields.text("entry", "generate");
  options.step = fields.text("step");
  if (std::string init = fields.text("init"); !init.empty())
    options.init.push_back(init);
  options.bos = fields.text("bos", "input");
  if (const Json *ends = search.find("eos"))
    for (const Json &end : ends->items)
      if (!llvm::is_contained(options.eos, end.integer))
        options.eos.push_back(end.integer);
  options.maxLength = fields.text("max_length");
  options.minLength = fields.integer("min_length", 0);
  options.lengthPenalty = fields.number("length_penalty", 0);
  options.coveragePenalty = fields.number("coverage_penalty", 0);
  options.alignmentArgmax = fields.flag("alignment_argmax");
  options.blank = fields.integer("blank", 0);
  options.frames = fields.text("frames");
  options.timeMajor = fields.flag("time_major");
  options.gnmt = fields.flag("gnmt");
  options.shrink = fields.text("ended", "refill") == "shrink";
  options.earlyStop = fields.flag("early_stop");
  options.temperature = fields.number("temperature", 1);
  options.topK = fields.integer("top_k", 0);
  options.topP = fields.number("top_p", 1);
  options.seed = fields.integer("seed", 0);
  options.tokens = fields.text("tokens");
  options.logits = fields.text("logits");
  options.alignment = fields.text("alignment");
  if (const Json *states = search.find("states"))
    for (const Json::Member &state : states->members)
      options.states.push_back({state.key, state.value.text, ""});
  return options;
}

/// Whether values that the schema lets through make sense.
bool checkValues(const Json &search, const SearchOptions &options, ErrorAt error) {
  if (options.nBest > options.width) {
    error(*search.find("n_best")) << "n_best " << options.nBest << " is more than a width of " << options.width
                                  << " has";
    return false;
  }
  const Json *length = search.find("max_length");
  if (length && length->is(Json::String) && length->text != "input" && !StringRef(length->text).starts_with("dim:")) {
    error(*length) << "max_length is a number, 'input', 'dim:NAME' or 'dim:NAME+N'";
    return false;
  }
  return true;
}
} // namespace

bool attn::graph::addSearch(const Json &search, onnx::Reporter &reporter, ModuleOp module, int64_t maxLoopIterations) {
  auto error = [&](const Json &at) { return reporter.invalid(GraphBuilder::location(reporter, at.at)); };
  std::string kind = Fields{search}.text("kind", "greedy");
  if (!checkFields(search, kind, error))
    return false;
  SearchOptions options = readOptions(search, kind);
  options.fuel = maxLoopIterations;
  if (!checkValues(search, options, error))
    return false;
  // It reports at the step, which has no line; the search has.
  std::string what;
  LogicalResult built = failure();
  {
    ScopedDiagnosticHandler handler(module.getContext(), [&](Diagnostic &diagnostic) {
      bool isError = diagnostic.getSeverity() == DiagnosticSeverity::Error;
      if (what.empty() && isError)
        what = diagnostic.str();
      return success(isError);
    });
    built = buildSearch(module, options);
  }
  if (succeeded(built))
    return true;
  reporter.unsupported(GraphBuilder::location(reporter, search.at)) << what;
  return false;
}
