#ifndef FRONTENDS_SEARCH_BUILDSEARCH_H
#define FRONTENDS_SEARCH_BUILDSEARCH_H

#include "frontends/search/StatePairs.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Support/LogicalResult.h"
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace attn {

/// An output of an entry that is an input of a later one: "encode.last_hidden_state:step.encoder_hidden_states".
struct NameMap {
  std::string entry, output, step, input;
};

/// What a search asks for that a model does not say. Empty texts: found by name.
struct SearchOptions {
  std::string kind = "greedy";
  int64_t width = 1, nBest = 1;
  /// `step` may be empty: the only entry, or "step".
  std::string entry = "generate", step;
  /// Entries that run before, each with what those before it return.
  std::vector<std::string> init;
  std::vector<NameMap> maps;
  /// The search begins with prompts of any number of tokens: it makes their masks and positions, and empty caches.
  bool prompts = false;
  /// With prompts: `maxLength` counts their tokens, too.
  bool countsPrompt = false;
  /// The entries that it calls are no entries of the library: all of them, or these.
  bool hidesParts = false;
  std::vector<std::string> hidden;
  /// The first token ("1"), or "input": one a row, given by the caller. Not
  /// needed where the entry `init` returns scores.
  std::string bos;
  std::vector<int64_t> eos;
  /// What stands behind the end of a result: the first of `eos` without it, or 0.
  std::optional<int64_t> pad;
  /// "50", "input", or "dim:NAME", "dim:NAME+50": of an input of the search.
  std::string maxLength;
  int64_t minLength = 0;
  /// How many positions a model has that has learned them, and which setting says so. 0: unknown.
  int64_t positions = 0;
  std::string positionsKey;
  double lengthPenalty = 0, coveragePenalty = 0;
  bool gnmt = false, shrink = false, earlyStop = false;
  /// With prompts: `minLength` counts their tokens, too.
  bool minCountsPrompt = false;
  /// As transformers has them: what tokens that were there before count less, n-grams that are there once (0: any),
  /// tokens that the first and the last step take (-1: any), tokens that no step, or not the first one, takes, and
  /// tokens that are taken only where they are forced. They need `prompts`.
  double repetitionPenalty = 1;
  int64_t noRepeatNgram = 0, forcedBos = -1, forcedEos = -1;
  std::vector<int64_t> suppressed, beginSuppressed, forbidden;
  /// The entry has an optional input for each of these, and for lengths and drawing.
  bool runSettings = false;
  /// Of "seed", "temperature", "top_k" and "top_p" those that are optional inputs in any case.
  std::set<std::string> drawnBy;
  double temperature = 1, topP = 1;
  int64_t topK = 0, seed = 0, fuel = int64_t(1) << 24;
  std::string tokens, logits, alignment;
  bool alignmentArgmax = false; // return positions, not weights
  /// Of kinds "ctc-greedy" and "ctc-beam"; `frames` is an output or input of the step.
  int64_t blank = 0;
  std::string frames;
  bool timeMajor = false;
  /// Of the step. Empty: found by their names.
  std::vector<StatePair> states;
  /// If given: set where an error is the step's, and other options would not help.
  bool *stepIsUnfit = nullptr;

  void blameStep() const {
    if (stepIsUnfit)
      *stepIsUnfit = true;
  }
  bool isCtc() const { return kind == "ctc-greedy" || kind == "ctc-beam"; }
  bool isBeam() const { return kind == "beam" || kind == "ctc-beam"; }
};

/// Adds to `module`, which has the entries of the options, one that searches.
/// Errors go to the context's diagnostic handler.
mlir::LogicalResult buildSearch(mlir::ModuleOp module, const SearchOptions &options);
/// The part of it for CTC.
mlir::LogicalResult buildCtcSearch(mlir::ModuleOp module, const SearchOptions &options);

} // namespace attn

#endif // FRONTENDS_SEARCH_BUILDSEARCH_H
