#include "tools/attnc/GenerateOptions.h"
#include "tools/attnc/HubFolder.h"
#include "tools/options/Console.h"

#include "llvm/ADT/StringExtras.h"

using namespace llvm;

namespace attn::tools {
namespace {

constexpr int64_t kMaxWidth = 1024, kMaxEnds = 64;

bool readKind(CommandLine &line, SearchOptions &search) {
  auto [kind, width] = line.text(OPT_generate).split(':');
  search.kind = kind.str();
  bool isBeam = search.isBeam();
  if (!isBeam && kind != "greedy" && kind != "sample" && kind != "ctc-greedy") {
    line.fail("--generate expects greedy, beam:WIDTH, sample, ctc-greedy or ctc-beam:WIDTH, not '" + kind + "'");
    return false;
  }
  if (!isBeam && line.text(OPT_generate).contains(':'))
    line.fail("--generate=" + kind + " takes no width");
  else if (isBeam && (width.getAsInteger(10, search.width) || search.width < 1 || search.width > kMaxWidth))
    line.fail("--generate=" + kind + ":WIDTH expects a width from 1 to " + Twine(kMaxWidth) + ", not '" + width + "'");
  search.nBest = line.number(OPT_n_best, 1, 1, kMaxWidth);
  if (!line.failed() && search.nBest > search.width)
    line.fail("--n-best=" + Twine(search.nBest) + " asks for more than a width of " + Twine(search.width) + " has");
  return true;
}

void readLimits(CommandLine &line, SearchOptions &search, bool isFolder) {
  search.bos = line.text(OPT_bos, search.bos).str();
  int64_t number = 0;
  // An entry that runs before may have the first scores, and a prompt needs none.
  if (search.bos.empty() && !line.has(OPT_init) && !search.isCtc() && !isFolder)
    line.fail("--generate=" + search.kind + " needs a first token: --bos=ID, or --bos=input");
  if (!search.bos.empty() && search.bos != "input" && (StringRef(search.bos).getAsInteger(10, number) || number < 0))
    line.fail("--bos expects a token or 'input', not '" + search.bos + "'");
  SmallVector<StringRef> ends;
  if (line.has(OPT_eos))
    search.eos.clear();
  line.text(OPT_eos).split(ends, ',', -1, /*KeepEmpty=*/false);
  for (StringRef end : ends) {
    if (end.getAsInteger(10, number) || number < 0)
      line.fail("--eos expects tokens as 2 or 2,5, not '" + line.text(OPT_eos) + "'");
    else if (!is_contained(search.eos, number))
      search.eos.push_back(number);
  }
  if (line.has(OPT_eos) && ends.empty())
    line.fail("--eos expects tokens as 2 or 2,5, not '" + line.text(OPT_eos) + "'");
  if (search.eos.size() > kMaxEnds)
    line.fail("--eos names " + Twine(search.eos.size()) + " tokens, the limit is " + Twine(kMaxEnds));
  if (line.has(OPT_max_length))
    search.countsPrompt = false;
  search.maxLength = line.text(OPT_max_length, search.maxLength).str();
  StringRef length = search.maxLength;
  if (length.empty() && !search.isCtc())
    line.fail("--generate=" + search.kind + " needs --max-length");
  else if (!length.empty() && length != "input" && !length.starts_with("dim:") &&
           (length.getAsInteger(10, number) || number < 1))
    line.fail("--max-length expects a number of at least 1, dim:NAME, dim:NAME+N or 'input', not '" + length + "'");
  if (line.has(OPT_min_length))
    search.minCountsPrompt = false;
  search.minLength = line.number(OPT_min_length, search.minLength);
  search.fuel = line.number(OPT_max_loop_iterations, search.fuel, 1, INT64_MAX);
}

/// What sampling draws by; each may be 'input', for the caller of a run to say.
void readDrawing(CommandLine &line, SearchOptions &search) {
  auto isInput = [&](OptionId id, StringRef name) {
    bool result = line.text(id) == "input";
    if (result)
      search.drawnBy.insert(name.str());
    return result;
  };
  if (!isInput(OPT_temperature, "temperature"))
    search.temperature = line.real(OPT_temperature, search.temperature);
  if (!(search.temperature >= 1e-6 && search.temperature <= 1e6))
    line.fail("--temperature expects a number from 1e-6 to 1e6, or 'input', not '" + line.text(OPT_temperature) + "'");
  if (!isInput(OPT_top_p, "top_p"))
    search.topP = line.real(OPT_top_p, search.topP);
  if (search.topP <= 0 || search.topP > 1)
    line.fail("--top-p expects a number above 0 and not above 1, or 'input', not '" + line.text(OPT_top_p) + "'");
  if (!isInput(OPT_top_k, "top_k"))
    search.topK = line.number(OPT_top_k, search.topK);
  if (!isInput(OPT_sample_seed, "seed"))
    search.seed = line.number(OPT_sample_seed, 0);
}

void readScores(CommandLine &line, SearchOptions &search) {
  StringRef penalty = line.text(OPT_length_penalty);
  search.gnmt = penalty.consume_front("gnmt:");
  if ((line.has(OPT_length_penalty) && penalty.getAsDouble(search.lengthPenalty)) ||
      !(search.lengthPenalty >= -100 && search.lengthPenalty <= 100))
    line.fail("--length-penalty expects A or gnmt:A with A from -100 to 100, not '" + line.text(OPT_length_penalty) +
              "'");
  StringRef ended = line.text(OPT_ended, "refill");
  search.shrink = ended == "shrink";
  if (ended != "refill" && ended != "shrink")
    line.fail("--ended expects refill or shrink, not '" + ended + "'");
  search.earlyStop |= line.has(OPT_early_stop);
  readDrawing(line, search);
  StringRef coverage = line.text(OPT_coverage_penalty, "0");
  if (coverage.getAsDouble(search.coveragePenalty) || !(search.coveragePenalty >= 0 && search.coveragePenalty <= 100))
    line.fail("--coverage-penalty expects a number from 0 to 100, not '" + coverage + "'");
  if (search.coveragePenalty > 0 && !line.has(OPT_alignment))
    line.fail("--coverage-penalty needs --alignment, the weights of which it sums");
  if (line.has(OPT_alignment_argmax) && !line.has(OPT_alignment))
    line.fail("--alignment-argmax needs --alignment");
  search.alignmentArgmax = line.has(OPT_alignment_argmax);
  search.blank = line.number(OPT_blank, search.blank);
  search.frames = line.text(OPT_frames).str();
  search.timeMajor = line.has(OPT_time_major);
  bool samples = search.kind == "sample", isBeam = search.kind == "beam", isCtc = search.isCtc();
  auto belongs = [&](OptionId id, StringRef name, bool allowed, StringRef kind) {
    if (line.has(id) && !allowed)
      line.fail("--" + name + " belongs to --generate=" + kind);
  };
  belongs(OPT_temperature, "temperature", samples, "sample");
  belongs(OPT_top_k, "top-k", samples, "sample");
  belongs(OPT_top_p, "top-p", samples, "sample");
  belongs(OPT_sample_seed, "sample-seed", samples, "sample");
  belongs(OPT_length_penalty, "length-penalty", isBeam, "beam");
  belongs(OPT_ended, "ended", isBeam, "beam");
  belongs(OPT_early_stop, "early-stop", isBeam, "beam");
  belongs(OPT_coverage_penalty, "coverage-penalty", isBeam, "beam");
  belongs(OPT_blank, "blank", isCtc, "ctc-greedy or ctc-beam");
  belongs(OPT_frames, "frames", isCtc, "ctc-greedy or ctc-beam");
  belongs(OPT_time_major, "time-major", isCtc, "ctc-greedy or ctc-beam");
  for (auto [id, name] : {std::pair<OptionId, StringRef>{OPT_init, "init"},
                          {OPT_map, "map"},
                          {OPT_bos, "bos"},
                          {OPT_eos, "eos"},
                          {OPT_max_length, "max-length"},
                          {OPT_min_length, "min-length"},
                          {OPT_tokens, "tokens"},
                          {OPT_alignment, "alignment"},
                          {OPT_state, "state"}})
    belongs(id, name, !isCtc, "greedy, beam or sample");
}

/// What runs before the step, and what goes where.
void readParts(CommandLine &line, SearchOptions &search) {
  SmallVector<StringRef> entries;
  line.text(OPT_init).split(entries, ',', -1, /*KeepEmpty=*/false);
  for (StringRef entry : entries)
    search.init.push_back(entry.str());
  search.prompts = entries.size() > 1;
  for (StringRef text : line.all(OPT_map)) {
    auto [from, to] = text.split(':');
    NameMap map;
    for (auto [side, entry, name] : {std::tuple(from, &map.entry, &map.output), {to, &map.step, &map.input}}) {
      auto [first, rest] = side.split('.');
      *entry = first.str();
      *name = rest.str();
      if (first.empty() || rest.empty())
        return line.fail("--map expects ENTRY.OUTPUT:ENTRY.INPUT, not '" + text + "'");
    }
    search.maps.push_back(map);
  }
}

void readNames(CommandLine &line, SearchOptions &search) {
  search.tokens = line.text(OPT_tokens).str();
  search.logits = line.text(OPT_logits).str();
  search.alignment = line.text(OPT_alignment).str();
  search.states = readStatePairs(line);
}

} // namespace

std::vector<StatePair> readStatePairs(CommandLine &line) {
  std::vector<StatePair> result;
  for (StringRef list : line.all(OPT_state)) {
    auto isPair = [](StringRef text) { return text.find(':', 1) < text.size() - 1; };
    SmallVector<StringRef> pairs;
    list.split(pairs, ',', -1, /*KeepEmpty=*/false);
    // Names hold the commas where these part no pairs.
    if (!llvm::all_of(pairs, isPair))
      pairs = {list};
    if (pairs.empty() || !isPair(pairs.front()))
      return line.fail("--state expects INPUT:OUTPUT,..., not '" + list + "'"), result;
    for (StringRef pair : pairs)
      result.push_back({"", "", pair.str()});
  }
  return result;
}

std::optional<SearchOptions> readGenerateOptions(CommandLine &line, StringRef folder) {
  if (!line.has(OPT_generate)) {
    for (auto [id, name] : {std::pair<OptionId, StringRef>{OPT_step, "step"},
                            {OPT_init, "init"},
                            {OPT_map, "map"},
                            {OPT_bos, "bos"},
                            {OPT_eos, "eos"},
                            {OPT_max_length, "max-length"}})
      if (line.has(id))
        line.fail("--" + name + " belongs to --generate");
    return std::nullopt;
  }
  SearchOptions search;
  search.kind = line.text(OPT_generate).split(':').first.str();
  bool isUnsupported = false;
  if (std::string error; !folder.empty() && !readHubConfig(folder, search, error, isUnsupported)) {
    line.reject(error, isUnsupported ? ExitUnsupported : ExitUsage);
    return search;
  }
  if (!readKind(line, search)) // what belongs to it cannot be told
    return search;
  search.step = line.text(OPT_step).str();
  readParts(line, search);
  readLimits(line, search, !folder.empty());
  // What ends a sequence is no forbidden word, as transformers has it.
  llvm::erase_if(search.forbidden, [&](int64_t word) { return is_contained(search.eos, word); });
  readScores(line, search);
  readNames(line, search);
  if (!line.failed() && !folder.empty() && search.eos.empty() && !search.isCtc())
    reportWarning(folder + ": no config.json or generation_config.json there names an end token, so every result has "
                           "as many tokens as it may have; --eos=ID names one");
  return search;
}

} // namespace attn::tools
