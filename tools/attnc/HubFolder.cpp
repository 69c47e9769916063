#include "tools/attnc/HubFolder.h"
#include "frontends/graph/Json.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"

using namespace llvm;
using attn::graph::Json;

namespace attn::tools {
namespace {

/// A name of an entry: letters, digits and '_'.
std::string entryName(StringRef stem) {
  std::string name = stem.str();
  for (char &c : name)
    if (!isAlnum(c))
      c = '_';
  return isDigit(name[0]) ? "_" + name : name;
}

void listModels(const Twine &folder, HubFolder &found) {
  std::error_code code;
  for (sys::fs::directory_iterator it(folder, code), end; it != end && !code; it.increment(code)) {
    StringRef path = it->path();
    if (sys::path::extension(path) == ".onnx")
      found.models.push_back({entryName(sys::path::stem(path)), path.str()});
  }
  llvm::sort(found.models);
}

class ConfigReader {
public:
  ConfigReader(StringRef folder, SearchOptions &search, std::string &error, bool &isUnsupported)
      : folder(folder), search(search), error(error), isUnsupported(isUnsupported) {}

  bool run() {
    if (!read("config.json", config) || !read("generation_config.json", generation))
      return false;
    readTokens();
    readLengths();
    readPositions();
    readScores();
    readProcessors();
    return error.empty();
  }

private:
  bool read(StringRef name, Json &json) {
    SmallString<128> path(folder);
    sys::path::append(path, name);
    if (!sys::fs::exists(path))
      sys::path::append(path = sys::path::parent_path(folder), name); // of FOLDER/onnx
    if (!sys::fs::exists(path))
      return true;
    constexpr uint64_t kMostBytes = 64 << 20;
    sys::fs::file_status status;
    bool isKnown = !sys::fs::status(path, status), isRegular = isKnown && sys::fs::is_regular_file(status);
    if (!isRegular || status.getSize() > kMostBytes) {
      error = (path + (!isKnown    ? ": cannot be read"
                       : isRegular ? ": is no configuration, it has more than 64 MiB"
                                   : ": is not a regular file"))
                  .str();
      return false;
    }
    auto file = MemoryBuffer::getFile(path, /*IsText=*/true);
    if (!file) {
      error = (path + ": cannot be read: " + file.getError().message()).str();
      return false;
    }
    graph::JsonError wrong;
    std::optional<Json> parsed = graph::parseJson((*file)->getBuffer(), wrong);
    if (!parsed) {
      error = (path + ":" + Twine(wrong.at.line) + ":" + Twine(wrong.at.column) + ": " + wrong.message).str();
      return false;
    }
    if (!parsed->is(Json::Object)) {
      error = (path + ": expects an object, has " + graph::kindName(parsed->kind)).str();
      return false;
    }
    json = std::move(*parsed);
    return true;
  }

  /// Of the generation; where it has no file, and of tokens, of the model, of its decoder, of its text part.
  const Json *find(StringRef key) const {
    const Json *result = generation.find(key);
    bool isToken = is_contained({"bos_token_id", "decoder_start_token_id", "eos_token_id", "pad_token_id"}, key);
    if (generation.is(Json::Object) && !isToken)
      return result && !result->is(Json::Null) ? result : nullptr;
    for (const Json *part : {&config, config.find("decoder"), config.find("text_config")})
      if (part && (!result || result->is(Json::Null)))
        result = part->find(key);
    return result && !result->is(Json::Null) ? result : nullptr;
  }
  void fail(StringRef key, StringRef what) {
    if (error.empty())
      error = (folder + ": '" + key + "' of its configuration " + what).str();
  }
  /// As fail, of what attnc lacks.
  void lack(StringRef key, StringRef what) {
    isUnsupported |= error.empty();
    fail(key, what);
  }
  std::optional<int64_t> integer(StringRef key, int64_t least = 0) {
    const Json *value = find(key);
    if (!value)
      return std::nullopt;
    if (value->is(Json::Integer) && value->integer >= least)
      return value->integer;
    fail(key, "is no number of at least " + std::to_string(least));
    return std::nullopt;
  }
  std::optional<double> number(StringRef key) {
    const Json *value = find(key);
    if (value && !value->isNumber())
      fail(key, "is no number");
    return value && value->isNumber() ? std::optional(value->number) : std::nullopt;
  }
  /// A number, or a list of them.
  std::vector<int64_t> list(StringRef key) {
    std::vector<int64_t> result;
    const Json *value = find(key);
    if (!value)
      return result;
    for (const Json &item : value->is(Json::Array) ? ArrayRef(value->items) : ArrayRef(*value)) {
      if (!item.is(Json::Integer) || item.integer < 0)
        return fail(key, "is no token, or list of tokens"), result;
      if (!is_contained(result, item.integer))
        result.push_back(item.integer);
    }
    return result;
  }

  void readTokens() {
    search.eos = list("eos_token_id");
    const Json *isBoth = config.find("is_encoder_decoder");
    bool hasEncoder = isBoth && isBoth->boolean;
    std::optional<int64_t> start = hasEncoder ? integer("decoder_start_token_id") : std::nullopt;
    if (!start)
      start = integer("bos_token_id");
    if (start)
      search.bos = std::to_string(*start);
    // Configurations say -1 for none.
    if (std::optional<int64_t> pad = integer("pad_token_id", INT64_MIN); pad && *pad >= 0)
      search.pad = search.blank = *pad; // which is the blank of what CTC has trained
  }

  /// How many positions the decoder has. Whether it has learned them, its graph shows.
  void readPositions() const {
    for (const Json *part : {config.find("decoder"), config.find("text_config"), &config})
      for (StringRef key : {"n_positions", "max_target_positions", "max_position_embeddings"})
        if (const Json *value = part ? part->find(key) : nullptr;
            value && value->is(Json::Integer) && value->integer > 0 && !search.positions) {
          search.positions = value->integer;
          search.positionsKey = key;
        }
  }

  void readLengths() {
    std::optional<int64_t> least = integer("min_new_tokens");
    search.minCountsPrompt = !least;
    search.minLength = least ? *least : integer("min_length").value_or(0);
    search.countsPrompt = !find("max_new_tokens") && find("max_length");
    // Without either, new tokens, as transformers has it.
    search.maxLength = std::to_string(integer(search.countsPrompt ? "max_length" : "max_new_tokens", 1).value_or(20));
  }

  /// What transformers does to scores before it chooses.
  void readProcessors() {
    search.repetitionPenalty = number("repetition_penalty").value_or(1);
    if (!(search.repetitionPenalty >= 1e-6 && search.repetitionPenalty <= 1e6))
      fail("repetition_penalty", "is not from 1e-6 to 1e6");
    search.noRepeatNgram = integer("no_repeat_ngram_size").value_or(0);
    search.forcedBos = integer("forced_bos_token_id").value_or(-1);
    // Of several that are equally good a search takes the smallest.
    if (std::vector<int64_t> ends = list("forced_eos_token_id"); !ends.empty())
      search.forcedEos = *llvm::min_element(ends);
    search.suppressed = list("suppress_tokens");
    search.beginSuppressed = list("begin_suppress_tokens");
    const Json *words = find("bad_words_ids");
    if (words && !words->is(Json::Array))
      fail("bad_words_ids", "is no list of words");
    for (const Json &word : words ? ArrayRef(words->items) : ArrayRef<Json>()) {
      if (word.items.size() != 1 || !word.items[0].is(Json::Integer))
        return lack("bad_words_ids", "has a word of more than one token, which no search of attnc leaves out");
      if (word.items[0].integer < 0)
        return fail("bad_words_ids", "has a word that is no token");
      search.forbidden.push_back(word.items[0].integer);
    }
    // What would change tokens, and is not served.
    auto refuse = [&](StringRef key, double neutral) {
      const Json *value = find(key);
      if (value && !(value->isNumber() && value->number == neutral) && !(value->is(Json::Bool) && !value->boolean))
        lack(key, "is set, and no search of attnc has it: remove it, or set it to what does nothing");
    };
    for (StringRef key : {"sequence_bias", "constraints", "force_words_ids", "exponential_decay_length_penalty",
                          "penalty_alpha", "dola_layers", "remove_invalid_values", "renormalize_logits"})
      refuse(key, 0);
    refuse("encoder_no_repeat_ngram_size", 0);
    refuse("diversity_penalty", 0);
    refuse("num_beam_groups", 1);
    for (StringRef key : {"encoder_repetition_penalty", "guidance_scale"})
      refuse(key, 1);
    if (search.kind == "sample") {
      refuse("typical_p", 1);
      for (StringRef key : {"min_p", "epsilon_cutoff", "eta_cutoff", "top_h"})
        refuse(key, 0);
    }
  }

  void readScores() {
    search.lengthPenalty = number("length_penalty").value_or(1);
    const Json *early = find("early_stopping");
    search.earlyStop = early && early->boolean;
    if (early && !early->is(Json::Bool) && search.kind == "beam")
      lack("early_stopping", "is neither true nor false, which no search of attnc has");
    search.temperature = number("temperature").value_or(1);
    search.topK = integer("top_k").value_or(50);
    search.topP = number("top_p").value_or(1);
  }

  StringRef folder;
  SearchOptions &search;
  std::string &error;
  bool &isUnsupported;
  Json config, generation;
};

} // namespace

std::optional<HubFolder> readHubFolder(StringRef path, std::string &error) {
  HubFolder found;
  listModels(path, found);
  if (found.models.empty())
    listModels(path + "/onnx", found);
  auto model = [&](StringRef name) {
    for (const auto &[known, file] : found.models)
      if (known == name)
        return file;
    return std::string();
  };
  auto firstOf = [&](ArrayRef<StringRef> names) {
    for (StringRef name : names)
      if (std::string file = model(name); !file.empty())
        return file;
    return std::string();
  };
  found.encoder = model("encoder_model");
  found.withPast = firstOf({"decoder_with_past_model", "model_with_past"});
  if (!found.withPast.empty())
    found.decoder = firstOf({"decoder_model", "model"});
  if (found.decoder.empty()) {
    found.decoder = firstOf({"decoder_model_merged", "model_merged", "decoder_model", "model"});
    if (found.decoder.empty())
      std::swap(found.decoder, found.withPast); // which takes prompts, too, behind an empty cache
    else
      found.withPast.clear();
  }
  if (!found.models.empty())
    return found;
  error =
      (path + ": has no model (*.onnx), and none in its folder onnx; " +
       (sys::fs::exists(path + "/config.json") ? "export it: " : "to export one: ") +
       "'optimum-cli export onnx --model FOLDER OUT', or AttncExporter of the Python package (docs/transformers.md)")
          .str();
  return std::nullopt;
}

bool readHubConfig(StringRef path, SearchOptions &search, std::string &error, bool &isUnsupported) {
  return ConfigReader(path, search, error, isUnsupported).run();
}

} // namespace attn::tools
