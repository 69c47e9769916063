#include "frontends/search/SearchSettings.h"
#include "dialects/attn/AttnOps.h"
#include "frontends/search/OptionalInputs.h"
#include "frontends/search/SearchTensors.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace attn;

namespace {
class SettingsBuilder {
public:
  SettingsBuilder(OpBuilder &b, Location loc, const SearchOptions &options, Beginning &beginning,
                  const Beginning::AddInput &addInput, Value vocabulary, Value seed)
      : b(b), loc(loc), options(options), beginning(beginning), addInput(addInput), vocabulary(vocabulary), seed(seed) {
  }

  SmallVector<Setting> run(Value &length) {
    takeLengths(length);
    if (options.kind == "sample")
      takeDrawing();
    bool changes = options.repetitionPenalty != 1 || options.noRepeatNgram > 0 || options.forcedBos >= 0 ||
                   options.forcedEos >= 0 || !options.suppressed.empty() || !options.beginSuppressed.empty() ||
                   !options.forbidden.empty();
    if (beginning.prompt() && (changes || options.runSettings))
      takeScores();
    return std::move(settings);
  }

private:
  Value integer(int64_t number) { return arith::ConstantIntOp::create(b, loc, number, 64); }
  Value index(int64_t number) { return arith::ConstantIndexOp::create(b, loc, number); }
  Value real(double number) { return arith::ConstantOp::create(b, loc, b.getF64FloatAttr(number)); }

  Value addOptional(StringRef name, Type element, StringRef dtype) {
    return addOptionalList(b, addInput, name, element, dtype);
  }
  Value addNumber(StringRef name, Type element, StringRef dtype) {
    return addOptionalNumber(b, loc, addInput, name, element, dtype);
  }

  bool isInput(StringRef name) const { return options.runSettings || options.drawnBy.count(name.str()); }
  Value integerInput(StringRef name, Value fallback) {
    return isInput(name) ? firstOr(b, loc, addNumber(name, b.getI64Type(), "int64"), fallback) : fallback;
  }
  Value realInput(StringRef name, double fallback) {
    return isInput(name) ? firstOr(b, loc, addNumber(name, b.getF32Type(), "float32"), real(fallback)) : real(fallback);
  }
  Value tokenList(const std::vector<int64_t> &tokens) {
    auto known = RankedTensorType::get({static_cast<int64_t>(tokens.size())}, b.getI64Type());
    Value list = arith::ConstantOp::create(b, loc, DenseElementsAttr::get(known, ArrayRef<int64_t>(tokens)));
    return castTensor(b, loc, list, RankedTensorType::get({ShapedType::kDynamic}, b.getI64Type()));
  }
  Value tokensInput(StringRef name, const std::vector<int64_t> &fallback) {
    Value list = tokenList(fallback);
    Type type = list.getType();
    if (!options.runSettings)
      return list;
    Value given = addOptional(name, b.getI64Type(), "int64");
    requireTokens(name, given);
    auto choice = scf::IfOp::create(b, loc, TypeRange{type}, isThere(b, loc, given), /*addThenBlock=*/true,
                                    /*addElseBlock=*/true);
    OpBuilder there = choice.getThenBodyBuilder(), absent = choice.getElseBodyBuilder();
    scf::YieldOp::create(there, loc, given);
    scf::YieldOp::create(absent, loc, list);
    return choice.getResult(0);
  }

  void requireAtLeast(StringRef name, Value number, int64_t least) {
    Value holds = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sge, number, integer(least));
    Value shown = arith::IndexCastOp::create(b, loc, b.getIndexType(), number);
    RequireOp::create(b, loc, holds, ("search: input '" + name + "' is {0}, which is less than " + Twine(least)).str(),
                      ValueRange{shown});
  }
  /// That `number` is in [least, most]. A message has places for integers alone, so that another number is shown as its
  /// whole part and three digits, with its sign in the message: 2.5 is "2.500".
  void requireBetween(StringRef name, Value number, StringRef least, StringRef most, StringRef insteadOfZero = "") {
    double lower = 0, upper = 0;
    least.getAsDouble(lower);
    most.getAsDouble(upper);
    auto require = [&](Value holds, const Twine &is, ValueRange shown, StringRef next) {
      std::string message =
          ("search: input '" + name + "' is " + is + ", expected a number from " + least + " to " + most + next).str();
      RequireOp::create(b, loc, holds, message, shown);
    };
    auto compare = [&](arith::CmpFPredicate predicate, Value value, double bound) -> Value {
      return arith::CmpFOp::create(b, loc, predicate, value, real(bound));
    };
    Value isNegative = compare(arith::CmpFPredicate::OLT, number, 0);
    Value size = arith::SelectOp::create(b, loc, isNegative, arith::NegFOp::create(b, loc, number), number);
    require(compare(arith::CmpFPredicate::OLE, size, 1e15), "NaN, or its size is above 1e15", {}, "");
    require(compare(arith::CmpFPredicate::UNE, number, 0), "0", {}, insteadOfZero);
    SmallVector<Value> digits;
    Value rest = size;
    for (int n = 0; n < 4; ++n) {
      Value digit = arith::FPToSIOp::create(b, loc, b.getI64Type(), rest);
      digits.push_back(arith::IndexCastOp::create(b, loc, b.getIndexType(), digit));
      Value whole = arith::SIToFPOp::create(b, loc, b.getF64Type(), digit);
      rest = arith::MulFOp::create(b, loc, arith::SubFOp::create(b, loc, rest, whole), real(10));
    }
    require(compare(arith::CmpFPredicate::OGE, number, 0), "-{0}.{1}{2}{3}", digits, "");
    require(compare(arith::CmpFPredicate::OGE, number, lower), "between 0 and " + least, {}, "");
    require(compare(arith::CmpFPredicate::OLE, number, upper), "{0}.{1}{2}{3}", digits, "");
  }

  /// That `token` is one that the step scores, or -1 for none.
  void requireToken(OpBuilder &at, StringRef name, StringRef is, Value token) {
    if (!vocabulary)
      return;
    auto compare = [&](arith::CmpIPredicate predicate, Value number, Value bound) -> Value {
      return arith::CmpIOp::create(at, loc, predicate, number, bound);
    };
    Value shown = arith::IndexCastOp::create(at, loc, at.getIndexType(), token);
    Value holds = arith::AndIOp::create(
        at, loc, compare(arith::CmpIPredicate::sge, token, arith::ConstantIntOp::create(at, loc, -1, 64)),
        compare(arith::CmpIPredicate::slt, shown, vocabulary));
    std::string message =
        ("search: input '" + name + "' " + is + " {0}, which is outside the vocabulary of {1} tokens; -1 says none")
            .str();
    RequireOp::create(at, loc, holds, message, ValueRange{shown, vocabulary});
  }
  void requireTokens(StringRef name, Value list) {
    auto loop = scf::ForOp::create(b, loc, index(0), sizeOf(b, loc, list, 0), index(1));
    OpBuilder body = OpBuilder::atBlockTerminator(loop.getBody());
    Value token = tensor::ExtractOp::create(body, loc, list, loop.getInductionVar());
    requireToken(body, name, "has", token);
  }
  /// A token that a run may force.
  Value tokenInput(StringRef name, int64_t fallback) {
    Value token = integerInput(name, integer(fallback));
    if (isInput(name))
      requireToken(b, name, "is", token);
    return token;
  }

  void takeLengths(Value &length) {
    Value prompt = beginning.promptLength();
    if (options.runSettings) {
      Value given = addNumber("max_new_tokens", b.getI64Type(), "int64");
      requireAtLeast("max_new_tokens", firstOr(b, loc, given, integer(1)), 1);
      Value known = arith::IndexCastOp::create(b, loc, b.getI64Type(), length);
      length = arith::IndexCastOp::create(b, loc, b.getIndexType(), firstOr(b, loc, given, known));
    }
    if (prompt) {
      Value some =
          arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sge, length, arith::ConstantIndexOp::create(b, loc, 1));
      RequireOp::create(b, loc, some,
                        "search: a prompt of {0} tokens leaves no room for another: the configuration's greatest "
                        "length counts the prompt, --max-length and max_new_tokens do not",
                        ValueRange{prompt});
    }
    Value least = integer(options.minLength);
    if (prompt && options.minCountsPrompt && options.minLength) {
      Value before = arith::IndexCastOp::create(b, loc, b.getI64Type(), prompt);
      least = arith::MaxSIOp::create(b, loc, arith::SubIOp::create(b, loc, least, before), integer(0));
    }
    least = integerInput("min_new_tokens", least);
    if (options.runSettings)
      requireAtLeast("min_new_tokens", least, 0);
    if (options.runSettings || (prompt && options.minCountsPrompt))
      settings.push_back({"min_length", least});
  }

  void takeDrawing() {
    if (!options.runSettings && options.drawnBy.empty() && !seed)
      return;
    if (!seed)
      seed = integerInput("seed", integer(options.seed));
    Value topK = integerInput("top_k", integer(options.topK));
    Value temperature = realInput("temperature", options.temperature), topP = realInput("top_p", options.topP);
    requireAtLeast("top_k", topK, 0);
    requireBetween("temperature", temperature, "1e-6", "1e6", "; for greedy search give top_k 1 instead");
    requireBetween("top_p", topP, "1e-6", "1");
    settings.append({{"seed", seed}, {"top_k", topK}, {"temperature", temperature}, {"top_p", topP}});
  }

  void takeScores() {
    Value penalty = realInput("repetition_penalty", options.repetitionPenalty);
    Value ngram = integerInput("no_repeat_ngram_size", integer(options.noRepeatNgram));
    requireBetween("repetition_penalty", penalty, "1e-6", "1e6");
    requireAtLeast("no_repeat_ngram_size", ngram, 0);
    if (Value hidden = beginning.promptPadding())
      settings.push_back({"hidden", hidden});
    settings.append({{"prompt", beginning.prompt()},
                     {"forbidden", tokenList(options.forbidden)},
                     {"repetition_penalty", penalty},
                     {"no_repeat_ngram", ngram},
                     {"forced_bos", tokenInput("forced_bos_token_id", options.forcedBos)},
                     {"forced_eos", tokenInput("forced_eos_token_id", options.forcedEos)},
                     {"suppressed", tokensInput("suppress_tokens", options.suppressed)},
                     {"begin_suppressed", tokensInput("begin_suppress_tokens", options.beginSuppressed)}});
  }

  OpBuilder &b;
  Location loc;
  const SearchOptions &options;
  Beginning &beginning;
  const Beginning::AddInput &addInput;
  Value vocabulary, seed;
  SmallVector<Setting> settings;
};
} // namespace

SmallVector<Setting> attn::makeSettings(OpBuilder &b, Location loc, const SearchOptions &options, Beginning &beginning,
                                        const Beginning::AddInput &addInput, Value vocabulary, Value seed,
                                        Value &length) {
  return SettingsBuilder(b, loc, options, beginning, addInput, vocabulary, seed).run(length);
}
