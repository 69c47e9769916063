#include "dialects/attn/ScoreKinds.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;

namespace attn {

SmallVector<unsigned, 2> ScoreFormula::getQueryDims() const {
  if (!hasKey)
    return {AttentionOp::J};
  if (!queryNamesRows)
    return {AttentionOp::D};
  return {AttentionOp::I, AttentionOp::D};
}

ScoreFormula getScoreFormula(ScoreKind kind) {
  ScoreFormula formula;
  switch (kind) {
  case ScoreKind::dot:
    formula.isProduct = true;
    return formula;
  case ScoreKind::additive:
    formula.hasAlignment = true;
    formula.queryNamesRows = false;
    return formula;
  case ScoreKind::distance:
    formula.queryNamesRows = false;
    return formula;
  case ScoreKind::given:
    formula.hasKey = false;
    return formula;
  }
  llvm_unreachable("a kind without a formula");
}

std::pair<Value, Value> makeScoreFactors(ScoreKind kind, OpBuilder &b, Location loc, const ScoreElements &at,
                                         llvm::function_ref<Value(Value)> activate) {
  switch (kind) {
  case ScoreKind::dot:
    return {at.query, at.key};
  case ScoreKind::additive:
    return {at.alignment, activate(arith::AddFOp::create(b, loc, at.query, at.key))};
  case ScoreKind::distance: {
    Value difference = arith::SubFOp::create(b, loc, at.query, at.key);
    return {difference, difference};
  }
  case ScoreKind::given:
    break;
  }
  llvm_unreachable("a kind without factors");
}

std::string describeScore(ScoreKind kind, llvm::function_ref<std::string(StringRef)> activate) {
  switch (kind) {
  case ScoreKind::dot:
    return "q[i]·k[j]";
  case ScoreKind::additive:
    return "a·" + activate("q[i] + k[j]");
  case ScoreKind::distance:
    return "|q[i] - k[j]|²";
  case ScoreKind::given:
    break;
  }
  llvm_unreachable("a kind without factors");
}

} // namespace attn
