#include "dialects/attn/SearchOp.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;
using namespace attn;

//===----------------------------------------------------------------------===//
// SearchOp
//===----------------------------------------------------------------------===//

LogicalResult SearchOp::verify() {
  // C3
  if (getKind() != "greedy" && getKind() != "beam" && getKind() != "sample")
    return emitOpError("expects kind to be greedy, beam or sample, got '") << getKind() << "'";
  int64_t width = getWidth(), best = getNBest();
  if (width < 1 || best < 1 || best > width || (!isBeam() && width != 1))
    return emitOpError("expects 1 <= n_best <= width, and width 1 but for beam, got n_best ")
           << best << " and width " << width;
  // C6
  if (!getCoveragePenalty().isZero() && !(isBeam() && getAlignmentResult()))
    return emitOpError("expects a coverage_penalty only in a beam search with an alignment_result");
  auto first = cast<RankedTensorType>(getFirst().getType());
  bool isTokens = first.getRank() == 1 && first.getElementType().isInteger(64);
  if (!isTokens && !(first.getRank() == 2 && first.getElementType().isF32()))
    return emitOpError("expects first to be tokens (rank 1, i64) or scores (rank 2, f32), got ") << first;
  if (static_cast<bool>(getAlignment()) != getAlignmentResult().has_value())
    return emitOpError("expects an alignment to be returned exactly where alignment_result is given");
  if (failed(verifySettings()))
    return failure();
  int64_t rank = isBeam() ? 3 : 2;
  auto expect = [&](Value result, int64_t want, bool isFloat) -> LogicalResult {
    auto type = cast<RankedTensorType>(result.getType());
    bool fits = isFloat ? type.getElementType().isF32() : type.getElementType().isInteger(64);
    if (type.getRank() == want && fits)
      return success();
    return emitOpError("expects a result of rank ")
           << want << " and type " << (isFloat ? "f32" : "i64") << ", got " << type;
  };
  if (failed(expect(getTokens(), rank, false)) || failed(expect(getLengths(), rank - 1, false)) ||
      failed(expect(getScores(), rank - 1, true)))
    return failure();
  return getAlignment() ? expect(getAlignment(), rank + 1, true) : success();
}

/// What `given` may name: a type that fits, and whether it changes scores.
static std::optional<bool> changesScores(StringRef name, Type type) {
  auto list = dyn_cast<RankedTensorType>(type);
  bool isList = list && list.getElementType().isInteger(64);
  if (name == "prompt" && isList && list.getRank() == 2)
    return false;
  if (llvm::is_contained({"hidden", "forbidden", "suppressed", "begin_suppressed"}, name) && isList &&
      list.getRank() == 1)
    return true;
  if (llvm::is_contained({"min_length", "top_k", "seed"}, name) && type.isInteger(64))
    return false;
  if (llvm::is_contained({"temperature", "top_p"}, name) && type.isF64())
    return false;
  if (llvm::is_contained({"no_repeat_ngram", "forced_bos", "forced_eos"}, name) && type.isInteger(64))
    return true;
  return name == "repetition_penalty" && type.isF64() ? std::optional(true) : std::nullopt;
}

/// C7
LogicalResult SearchOp::verifySettings() {
  SmallVector<StringRef> names(getGiven().getAsValueRange<StringAttr>());
  if (names.size() != getSettings().size())
    return emitOpError("expects a setting for each of ") << names.size() << " names, got " << getSettings().size();
  for (auto [number, name] : llvm::enumerate(names)) {
    Type type = getSettings()[number].getType();
    std::optional<bool> changes = changesScores(name, type);
    if (!changes || llvm::is_contained(ArrayRef(names).drop_front(number + 1), name))
      return emitOpError("cannot be given '") << name << "' of type " << type << (changes ? " twice" : "");
    if (*changes && !llvm::is_contained(names, "prompt"))
      return emitOpError("expects a 'prompt' beside '") << name << "'";
  }
  return success();
}

LogicalResult SearchOp::verifySymbolUses(SymbolTableCollection &symbols) {
  // C1
  auto callee = symbols.lookupNearestSymbolFrom<func::FuncOp>(*this, getStepAttr());
  if (!callee || callee.isExternal() || !callee.getBody().hasOneBlock())
    return emitOpError("expects '") << getStep() << "' to name a function of one block";
  size_t arguments = callee.getNumArguments();
  int64_t results = callee.getNumResults();
  for (ArrayRef<int64_t> list : {getSources(), getBatchDims(), getGrowDims()})
    if (list.size() != arguments)
      return emitOpError("expects a number for each of the ")
             << arguments << " arguments of '" << getStep() << "', got " << list.size();
  auto isResult = [&](int64_t number, Type element, int64_t low, int64_t high) {
    if (number < 0 || number >= results)
      return false;
    auto type = dyn_cast<RankedTensorType>(callee.getResultTypes()[number]);
    return type && (!element || type.getElementType() == element) && type.getRank() >= low && type.getRank() <= high;
  };
  Type f32 = Float32Type::get(getContext());
  if (!isResult(getLogitsResult(), f32, 2, 3))
    return emitOpError("expects result ") << getLogitsResult() << " of '" << getStep() << "' to be scores in f32";
  if (getAlignmentResult() && !isResult(*getAlignmentResult(), f32, 2, 2))
    return emitOpError("expects result ")
           << *getAlignmentResult() << " of '" << getStep() << "' to be an alignment [rows, source] in f32";
  auto init = getInits().begin();
  int64_t tokens = 0;
  for (auto [n, source, rows, grows] : llvm::enumerate(getSources(), getBatchDims(), getGrowDims())) {
    auto type = dyn_cast<RankedTensorType>(callee.getArgumentTypes()[n]);
    if (!type || source < kMask || rows < -1 || rows >= type.getRank() || grows < -1 || grows >= type.getRank() ||
        (grows >= 0 && (!type.isDynamicDim(grows) || grows == rows)))
      return emitOpError("cannot give argument ") << n << " of '" << getStep() << "' what its attributes say";
    // C5
    if (getWidth() != 1 && rows >= 0 && !type.isDynamicDim(rows))
      return emitOpError("expects the rows of argument ")
             << n << " of '" << getStep() << "' to be a dynamic dimension, got " << type;
    if (source == kToken) {
      ++tokens;
      if (rows != 0 || type.getRank() > 2 || !type.getElementType().isInteger())
        return emitOpError("expects argument ") << n << " of '" << getStep() << "' to be tokens, got " << type;
      continue;
    }
    // C2
    if (init == getInits().end() || (*init).getType() != type)
      return emitOpError("expects an init of type ") << type << " for argument " << n << " of '" << getStep() << "'";
    ++init;
    if (source >= 0) {
      auto state = source < results ? dyn_cast<RankedTensorType>(callee.getResultTypes()[source]) : nullptr;
      if (!state || state.getElementType() != type.getElementType() || failed(verifyCompatibleShape(state, type)))
        return emitOpError("expects result ") << source << " of '" << getStep() << "' to be a state of type " << type;
    }
    if ((source == kMask && (type.getRank() != 2 || grows != 1)) ||
        (source == kPosition && !type.getElementType().isInteger()))
      return emitOpError("cannot count argument ") << n << " of '" << getStep() << "' of type " << type;
  }
  if (tokens != 1)
    return emitOpError("expects one argument of '") << getStep() << "' to be the tokens, got " << tokens;
  if (init != getInits().end())
    return emitOpError("expects one init an argument but the tokens, got ") << getInits().size();
  // C4
  auto scores = cast<RankedTensorType>(callee.getResultTypes()[getLogitsResult()]);
  int64_t vocabulary = scores.getShape().back();
  for (int64_t token : getEos())
    if (token < 0 || (!ShapedType::isDynamic(vocabulary) && token >= vocabulary))
      return emitOpError("ends with token ") << token << ", which is outside the vocabulary of " << vocabulary;
  return success();
}

//===----------------------------------------------------------------------===//
// CtcSearchOp
//===----------------------------------------------------------------------===//

LogicalResult CtcSearchOp::verify() {
  auto typeOf = [](Value value) { return cast<RankedTensorType>(value.getType()); };
  RankedTensorType scores = typeOf(getScores()), frames = typeOf(getFrames());
  // D1
  if (scores.getRank() != 3 || !scores.getElementType().isF32() || frames.getRank() != 1 ||
      !frames.getElementType().isInteger(64))
    return emitOpError("expects scores of rank 3 in f32 and frames of rank 1 in i64, got ") << scores << ", " << frames;
  // D2
  int64_t width = getWidth().value_or(1), best = getNBest();
  if (width < 1 || best < 1 || best > width)
    return emitOpError("expects 1 <= n_best <= width, got n_best ") << best << " and width " << width;
  // D3
  int64_t blank = getBlank(), labels = scores.getDimSize(2);
  if (blank < 0 || (!ShapedType::isDynamic(labels) && blank >= labels))
    return emitOpError("has blank ") << blank << ", which is none of " << labels << " labels";
  // D4
  int64_t rank = getWidth() ? 2 : 1;
  auto fits = [&](Value value, int64_t want, Type element) {
    return typeOf(value).getRank() == want && typeOf(value).getElementType() == element;
  };
  Type i64 = IntegerType::get(getContext(), 64), f32 = Float32Type::get(getContext());
  if (!fits(getLabels(), rank + 1, i64) || !fits(getLengths(), rank, i64) || !fits(getTotals(), rank, f32))
    return emitOpError("expects results of ranks ")
           << rank + 1 << ", " << rank << " and " << rank << " in i64, i64 and f32, got " << getResultTypes();
  return success();
}

#define GET_OP_CLASSES
#include "dialects/attn/SearchOp.cpp.inc"
