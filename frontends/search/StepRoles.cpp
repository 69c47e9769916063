#include "frontends/search/StepRoles.h"
#include "dialects/attn/NodeLocation.h"
#include "frontends/search/DecoderInputs.h"
#include "frontends/search/SearchSeed.h"
#include "frontends/search/StateBranches.h"

#include "mlir/IR/TypeUtilities.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace attn;

static StringRef nameOf(DictionaryAttr attrs) {
  auto name = attrs ? attrs.getAs<StringAttr>(AttnDialect::kNameAttr) : StringAttr();
  return name ? name.getValue() : StringRef();
}

static SmallVector<StringRef> dimsOf(DictionaryAttr attrs, Type type) {
  SmallVector<StringRef> result(cast<RankedTensorType>(type).getRank());
  auto dims = attrs ? attrs.getAs<ArrayAttr>(AttnDialect::kDimsAttr) : ArrayAttr();
  if (dims && dims.size() == result.size())
    for (auto [n, name] : llvm::enumerate(dims))
      if (auto text = dyn_cast<StringAttr>(name))
        result[n] = text.getValue();
  return result;
}

StringRef attn::nameOfInput(func::FuncOp entry, unsigned number) { return nameOf(entry.getArgAttrDict(number)); }
StringRef attn::nameOfOutput(func::FuncOp entry, unsigned number) { return nameOf(entry.getResultAttrDict(number)); }
SmallVector<StringRef> attn::dimsOfInput(func::FuncOp entry, unsigned number) {
  return dimsOf(entry.getArgAttrDict(number), entry.getArgumentTypes()[number]);
}
SmallVector<StringRef> attn::dimsOfOutput(func::FuncOp entry, unsigned number) {
  return dimsOf(entry.getResultAttrDict(number), entry.getResultTypes()[number]);
}

std::string attn::shapeAndType(Type type) {
  std::string text;
  llvm::raw_string_ostream out(text);
  if (auto ranked = dyn_cast<RankedTensorType>(type)) {
    for (int64_t size : ranked.getShape())
      (ShapedType::isDynamic(size) ? out << '?' : out << size) << 'x';
    type = ranked.getElementType();
  }
  out << type;
  return text;
}

StringRef attn::nameOfEntry(func::FuncOp entry) {
  auto given = entry->getAttrOfType<StringAttr>(AttnDialect::kEntryAttr);
  return given ? given.getValue() : entry.getSymName();
}

std::string attn::listNames(func::FuncOp entry, bool ofInputs) {
  std::string names;
  for (unsigned n = 0, count = ofInputs ? entry.getNumArguments() : entry.getNumResults(); n < count; ++n)
    names += (n ? ", '" : "'") + printableName(ofInputs ? nameOfInput(entry, n) : nameOfOutput(entry, n)) + "'";
  return names.empty() ? "nothing" : names;
}

func::FuncOp attn::findEntry(ModuleOp module, StringRef name) {
  for (auto function : module.getOps<func::FuncOp>())
    if (function->hasAttr(AttnDialect::kEntryAttr) && nameOfEntry(function) == name)
      return function;
  return {};
}

std::string attn::listEntries(ModuleOp module) {
  std::string text;
  for (auto function : module.getOps<func::FuncOp>())
    if (function->hasAttr(AttnDialect::kEntryAttr))
      text += (text.empty() ? "it has '" : ", '") + printableName(nameOfEntry(function)) + "'";
  return text.empty() ? "it has none" : text;
}

bool attn::isStatePair(StringRef input, StringRef output) {
  auto joined = [&](const Twine &a, StringRef b) { return (a + b).str() == output; };
  // past_x and present_x, past_key_values.0.key and present.0.key.
  StringRef rest = input;
  if (rest.consume_front("past_key_values") && (joined("present", rest) || joined("present_key_values", rest)))
    return true;
  rest = input;
  if (rest.consume_front("past") && (joined("present", rest) || joined("new_past", rest)))
    return true;
  for (StringRef front : {"next_", "new_", "present_", "updated_"})
    if (joined(front, input))
      return true;
  for (StringRef back : {"_out", "_next", "_new", ".1", "_1"})
    if (joined(input, back))
      return true;
  for (StringRef front : {"last_", "prev_", "previous_", "old_", "initial_"}) {
    rest = input;
    if (rest.consume_front(front) && (rest == output || joined("next_", rest) || joined("new_", rest)))
      return true;
  }
  for (StringRef back : {"_in", "_prev", "_0"}) {
    rest = input;
    if (rest.consume_back(back) && (rest == output || joined(rest, "_out") || joined("next_", rest)))
      return true;
  }
  return false;
}

namespace {
class RoleFinder {
public:
  RoleFinder(func::FuncOp step, const SearchOptions &options) : step(step), options(options) {
    inputs = step.getNumArguments();
    outputs = step.getNumResults();
    roles.sources.assign(inputs, SearchOp::kConstant);
    roles.rowDims.assign(inputs, -1);
    roles.growDims.assign(inputs, -1);
  }

  FailureOr<StepRoles> run() {
    if (failed(pairStates()) || failed(findTokens()) || failed(findLogits()) || failed(findAlignment()))
      return failure();
    findRows();
    if (failed(findGrowth()))
      return failure();
    findCounters();
    return roles;
  }

private:
  InFlightDiagnostic error() { return step.emitError() << "the step '" << options.step << "' "; }
  RankedTensorType inputType(int64_t n) { return cast<RankedTensorType>(step.getArgumentTypes()[n]); }
  RankedTensorType outputType(int64_t n) { return cast<RankedTensorType>(step.getResultTypes()[n]); }

  int64_t input(StringRef name) {
    for (int64_t n = 0; n < inputs; ++n)
      if (nameOfInput(step, n) == name)
        return n;
    return -1;
  }
  int64_t output(StringRef name) {
    for (int64_t n = 0; n < outputs; ++n)
      if (nameOfOutput(step, n) == name)
        return n;
    return -1;
  }
  bool canPair(int64_t n, int64_t r) {
    return inputType(n).getElementType() == outputType(r).getElementType() &&
           succeeded(verifyCompatibleShape(inputType(n), outputType(r)));
  }
  bool isPaired(int64_t result) { return llvm::is_contained(roles.sources, result); }

  LogicalResult pairStates() {
    for (const StatePair &pair : options.states) {
      auto numbers = findStatePair(step, pair);
      if (failed(numbers))
        return failure();
      if (!*numbers) {
        error() << "has not " << pair.describe() << ", which --state pairs; " << describePairable(step);
        return failure();
      }
      auto [n, r] = **numbers;
      if (roles.sources[n] >= 0 || isPaired(r)) {
        error() << "has its state '" << printableName(nameOfInput(step, n)) << "' or '"
                << printableName(nameOfOutput(step, r)) << "' in two pairs";
        return failure();
      }
      roles.sources[n] = r;
    }
    for (int64_t n = 0; options.states.empty() && n < inputs; ++n)
      for (int64_t r = 0; r < outputs && roles.sources[n] < 0; ++r)
        if (!isPaired(r) && isStatePair(nameOfInput(step, n), nameOfOutput(step, r)) && canPair(n, r) &&
            !isCrossCache(nameOfInput(step, n)))
          roles.sources[n] = r;
    for (int64_t n = 0; n < inputs; ++n) {
      int64_t r = roles.sources[n];
      if (r < 0)
        continue;
      if (canPair(n, r))
        continue;
      error() << "has input '" << printableName(nameOfInput(step, n)) << "' (" << shapeAndType(inputType(n))
              << ") and output '" << printableName(nameOfOutput(step, r)) << "' (" << shapeAndType(outputType(r))
              << "), which are to be one state";
      return failure();
    }
    return success();
  }

  LogicalResult findTokens() {
    auto canBe = [&](int64_t n) {
      RankedTensorType type = inputType(n);
      return roles.sources[n] < 0 && !isSeed(step, n) && type.getElementType().isInteger() &&
             type.getElementTypeBitWidth() >= 32 && (type.getRank() == 1 || type.getRank() == 2);
    };
    if (!options.tokens.empty()) {
      roles.tokens = input(options.tokens);
      if (roles.tokens < 0 || !canBe(roles.tokens)) {
        error() << "has no input '" << printableName(options.tokens) << "' that takes tokens";
        return failure();
      }
    }
    for (StringRef name :
         {"token", "tokens", "input_ids", "decoder_input_ids", "y", "prev_token", "last_token", "input"})
      if (roles.tokens < 0 && input(name) >= 0 && canBe(input(name)))
        roles.tokens = input(name);
    for (int64_t n = 0; n < inputs && roles.tokens < 0; ++n)
      if (canBe(n) && llvm::none_of(llvm::seq(inputs), [&](int64_t m) { return m != n && canBe(m); }))
        roles.tokens = n;
    if (roles.tokens < 0) {
      error() << "has no input that can be told to take tokens: name it with --tokens=";
      return failure();
    }
    RankedTensorType type = inputType(roles.tokens);
    if (type.getRank() == 2 && !type.isDynamicDim(1) && type.getDimSize(1) != 1) {
      options.blameStep();
      error() << "takes " << type.getDimSize(1) << " tokens at once, a search gives it one";
      return failure();
    }
    roles.sources[roles.tokens] = SearchOp::kToken;
    return success();
  }

  LogicalResult findLogits() {
    auto canBe = [&](int64_t n) {
      RankedTensorType type = outputType(n);
      return !isPaired(n) && type.getElementType().isF32() && (type.getRank() == 2 || type.getRank() == 3);
    };
    if (!options.logits.empty()) {
      roles.logits = output(options.logits);
      if (roles.logits < 0 || !canBe(roles.logits)) {
        auto diagnostic = error() << "has no output '" << printableName(options.logits)
                                  << "' of scores [rows, vocabulary] in float32; its outputs are ";
        llvm::interleaveComma(llvm::seq(outputs), diagnostic, [&](int64_t r) {
          diagnostic << '\'' << printableName(nameOfOutput(step, r)) << "' (" << shapeAndType(outputType(r)) << ')';
        });
        return failure();
      }
    }
    for (StringRef name : {"logits", "log_probs", "logprobs", "scores", "output"})
      if (roles.logits < 0 && output(name) >= 0 && canBe(output(name)))
        roles.logits = output(name);
    for (int64_t n = 0; n < outputs && roles.logits < 0; ++n)
      if (canBe(n) && llvm::none_of(llvm::seq(outputs), [&](int64_t m) { return m != n && canBe(m); }))
        roles.logits = n;
    if (roles.logits < 0) {
      error() << "has no output that can be told to hold the scores of the next token in float32: name it with "
                 "--logits=";
      return failure();
    }
    return success();
  }

  LogicalResult findAlignment() {
    if (options.alignment.empty())
      return success();
    roles.alignment = output(options.alignment);
    if (roles.alignment >= 0 && outputType(roles.alignment).getRank() == 2 &&
        outputType(roles.alignment).getElementType().isF32())
      return success();
    error() << "has no output '" << printableName(options.alignment) << "' of weights [rows, source] in float32";
    return failure();
  }

  /// Rows are what the model calls as it calls those of the tokens.
  void findRows() {
    SmallVector<StringRef> own = dimsOfInput(step, roles.tokens);
    StringRef name = own.empty() ? "" : own[0];
    int64_t count = inputType(roles.tokens).getDimSize(0);
    for (int64_t n = 0; n < inputs; ++n) {
      SmallVector<StringRef> dims = dimsOfInput(step, n);
      RankedTensorType type = inputType(n);
      for (int64_t d = 0; d < type.getRank() && roles.rowDims[n] < 0; ++d)
        if (type.isDynamicDim(d) ? !name.empty() && dims[d] == name : type.getDimSize(d) == count)
          roles.rowDims[n] = d;
    }
    roles.rowDims[roles.tokens] = 0;
  }

  /// A state of which a dimension has another name or size after the step.
  LogicalResult findGrowth() {
    for (int64_t n = 0; n < inputs; ++n) {
      int64_t r = roles.sources[n];
      if (r < 0)
        continue;
      SmallVector<StringRef> before = dimsOfInput(step, n), after = dimsOfOutput(step, r);
      for (int64_t d = 0; d < inputType(n).getRank(); ++d) {
        if (d == roles.rowDims[n] || !inputType(n).isDynamicDim(d) ||
            (outputType(r).isDynamicDim(d) && before[d] == after[d] && !before[d].empty()))
          continue;
        if (outputType(r).isDynamicDim(d) && before[d].empty() && after[d].empty())
          continue;
        if (roles.growDims[n] >= 0) {
          options.blameStep();
          error() << "changes its state '" << printableName(nameOfInput(step, n))
                  << "' in more than one dimension, which a search does not support";
          return failure();
        }
        roles.growDims[n] = d;
      }
    }
    return success();
  }

  /// Positions, seeds, and a mask that is as long as a growing state will be.
  void findCounters() {
    for (int64_t n = 0; n < inputs; ++n)
      if (isSeed(step, n))
        roles.sources[n] = SearchOp::kPosition;
    llvm::StringSet<> constant;
    bool grows = llvm::any_of(roles.growDims, [](int64_t dim) { return dim >= 0; });
    for (int64_t n = 0; n < inputs; ++n)
      if (roles.sources[n] == SearchOp::kConstant && nameOfInput(step, n) != "attention_mask")
        for (StringRef dim : dimsOfInput(step, n))
          if (!dim.empty()) // which is called as no other
            constant.insert(dim);
    for (int64_t n = 0; n < inputs; ++n) {
      if (roles.sources[n] != SearchOp::kConstant)
        continue;
      StringRef name = nameOfInput(step, n);
      RankedTensorType type = inputType(n);
      bool counts = llvm::is_contained({"position_ids", "cache_position", "position", "positions"}, name);
      if (counts && type.getElementType().isInteger() && type.getElementTypeBitWidth() >= 32)
        roles.sources[n] = SearchOp::kPosition;
      bool isMask =
          purposeOf(step, n) == Purpose::Mask && type.getRank() == 2 && type.isDynamicDim(1) && roles.rowDims[n] == 0;
      if (grows && isMask && !constant.contains(dimsOfInput(step, n)[1])) {
        roles.sources[n] = SearchOp::kMask;
        roles.growDims[n] = 1;
      }
    }
  }

  func::FuncOp step;
  const SearchOptions &options;
  int64_t inputs = 0, outputs = 0;
  StepRoles roles;
};
} // namespace

FailureOr<StepRoles> attn::findRoles(func::FuncOp step, const SearchOptions &options) {
  FailureOr<StepRoles> roles = RoleFinder(step, options).run();
  if (failed(roles) || failed(checkStateBranches(step, *roles, options)))
    return failure();
  return roles;
}

LogicalResult attn::checkNames(func::FuncOp step, ArrayRef<func::FuncOp> parts, ArrayRef<DictionaryAttr> inputs) {
  auto originOf = [&](DictionaryAttr input) -> std::string {
    for (func::FuncOp part : parts)
      for (unsigned n = 0; n < part.getNumArguments(); ++n)
        if (part.getArgAttrDict(n) == input)
          return "of '" + nameOfEntry(part).str() + "'";
    return "of the search itself (--bos=input, --max-length=input or a setting of its runs)";
  };
  llvm::StringMap<DictionaryAttr> known;
  for (DictionaryAttr input : inputs) {
    auto name = input.getAs<StringAttr>(AttnDialect::kNameAttr);
    auto [it, isFresh] = known.try_emplace(name ? name.getValue() : "", input);
    if (name && !isFresh)
      return step.emitError() << "the search around '" << nameOfEntry(step) << "' has two inputs '"
                              << printableName(name.getValue()) << "', one " << originOf(it->second) << " and one "
                              << originOf(input)
                              << ": rename the input of the model, or give it an output of another entry with "
                                 "--map=ENTRY.OUTPUT:ENTRY.INPUT";
  }
  return success();
}
