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
} // namespace

bool attn::graph::addSearch(const Json &search, onnx::Reporter &reporter, ModuleOp module, int64_t maxLoopIterations) {
  auto error = [&](const Json &at) { return reporter.invalid(GraphBuilder::location(reporter, at.at)); };
  Fields fields{search};
  SearchOptions options;
  std::string kind = fields.text("kind", "greedy");
  options.kind = kind == "ctc_greedy" ? "ctc-greedy" : kind == "ctc_beam" ? "ctc-beam" : kind;
  // What belongs to some kinds means nothing to another.
  using Kinds = ArrayRef<StringLiteral>;
  static constexpr StringLiteral beams[] = {"beam", "ctc_beam"}, beam[] = {"beam"}, sample[] = {"sample"},
                                 ctc[] = {"ctc_greedy", "ctc_beam"}, steps[] = {"greedy", "beam", "sample"};
  static constexpr std::pair<StringLiteral, Kinds> belongs[] = {{"width", beams},
                                                                {"n_best", beams},
                                                                {"length_penalty", beam},
                                                                {"coverage_penalty", beam},
                                                                {"gnmt", beam},
                                                                {"ended", beam},
                                                                {"early_stop", beam},
                                                                {"temperature", sample},
                                                                {"top_k", sample},
                                                                {"top_p", sample},
                                                                {"seed", sample},
                                                                {"blank", ctc},
                                                                {"frames", ctc},
                                                                {"time_major", ctc},
                                                                {"init", steps},
                                                                {"bos", steps},
                                                                {"eos", steps},
                                                                {"max_length", steps},
                                                                {"min_length", steps},
                                                                {"tokens", steps},
                                                                {"alignment", steps},
                                                                {"states", steps},
                                                                {"alignment_argmax", steps}};
  for (const auto &[key, kinds] : belongs)
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
  if (!options.isCtc() && !search.find("max_length")) {
    error(search) << "a search of kind '" << kind << "' needs 'max_length'";
    return false;
  }
  options.width = fields.integer("width", options.isBeam() ? 4 : 1);
  options.nBest = fields.integer("n_best", 1);
  if (options.nBest > options.width) {
    error(*search.find("n_best")) << "n_best " << options.nBest << " is more than a width of " << options.width
                                  << " has";
    return false;
  }
  options.entry = fields.text("entry", "generate");
  options.step = fields.text("step");
  options.init = fields.text("init");
  options.bos = fields.text("bos", "input");
  if (const Json *ends = search.find("eos"))
    for (const Json &end : ends->items)
      if (!llvm::is_contained(options.eos, end.integer))
        options.eos.push_back(end.integer);
  options.maxLength = fields.text("max_length");
  const Json *length = search.find("max_length");
  if (length && length->is(Json::String) && length->text != "input" && !StringRef(length->text).starts_with("dim:")) {
    error(*length) << "max_length is a number, 'input', 'dim:NAME' or 'dim:NAME+N'";
    return false;
  }
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
  options.fuel = maxLoopIterations;
  options.tokens = fields.text("tokens");
  options.logits = fields.text("logits");
  options.alignment = fields.text("alignment");
  if (const Json *states = search.find("states"))
    for (const Json::Member &state : states->members)
      options.states.push_back({state.key, state.value.text, ""});
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
