#include "passes/kernels/spec/Regions.h"

#include "dialects/attn/AttnOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Support/xxhash.h"

using namespace mlir;

namespace attn {

std::optional<int64_t> getIndexDim(Operation *op) {
  if (auto index = dyn_cast<IndexOp>(op))
    return index.getDim();
  if (auto index = dyn_cast<linalg::IndexOp>(op))
    return index.getDim();
  return std::nullopt;
}

TypedAttr getScalarConstant(Value value) {
  Attribute attribute;
  if (!value.getType().isIntOrIndexOrFloat() || !matchPattern(value, m_Constant(&attribute)))
    return {};
  return dyn_cast<TypedAttr>(attribute);
}

int64_t getCost(Block *block) {
  constexpr int64_t kMathCost = 20; // erf
  int64_t cost = 0;
  if (block)
    for (Operation &op : block->without_terminator()) {
      bool isOne = !isa_and_nonnull<math::MathDialect>(op.getDialect()) || isa<math::RoundEvenOp, math::FmaOp>(op);
      cost += isOne ? 1 : kMathCost;
    }
  return cost;
}

std::string sizeText(int64_t size) { return ShapedType::isDynamic(size) ? "x" : std::to_string(size); }

std::string shapeText(MemRefType type) {
  std::string text;
  for (int64_t size : type.getShape())
    text += (text.empty() ? "" : "x") + (ShapedType::isDynamic(size) ? std::string("n") : std::to_string(size));
  return text;
}

bool fail(std::string *reason, const Twine &text) {
  if (reason)
    *reason = text.str();
  return false;
}

namespace {

bool canVectorizeOp(Operation &op, std::string *reason) {
  StringRef name = op.getName().getStringRef();
  if (op.getNumRegions() || op.getNumSuccessors())
    return fail(reason, "'" + name + "' has a region or successor");
  bool isMapped = OpTrait::hasElementwiseMappableTraits(&op) && isMemoryEffectFree(&op);
  if (!isMapped && !getIndexDim(&op) && !(op.getNumResults() == 1 && getScalarConstant(op.getResult(0))))
    return fail(reason, "'" + name + "' does not map over the elements of a vector");
  for (Type type : op.getResultTypes())
    if (!type.isIntOrIndexOrFloat())
      return fail(reason, "'" + name + "' yields a value that is no number");
  for (Value operand : op.getOperands())
    if (operand.getParentBlock() != op.getBlock() && !getScalarConstant(operand))
      return fail(reason, "'" + name + "' uses a value from outside that is no constant");
  return true;
}

} // namespace

bool canVectorizeBlock(Block &block, std::string *reason) {
  for (Type type : block.getArgumentTypes())
    if (!type.isIntOrIndexOrFloat())
      return fail(reason, "an argument is no number");
  if (block.empty() || !block.back().hasTrait<OpTrait::IsTerminator>())
    return fail(reason, "the block has no terminator");
  for (Operation &op : block.without_terminator())
    if (!canVectorizeOp(op, reason))
      return false;
  Operation &yield = block.back();
  if (yield.getNumOperands() != 1 || yield.getNumSuccessors())
    return fail(reason, "the block yields " + Twine(yield.getNumOperands()) + " values instead of one");
  Value result = yield.getOperand(0);
  if (!result.getType().isIntOrIndexOrFloat() || (result.getParentBlock() != &block && !getScalarConstant(result)))
    return fail(reason, "the block yields a value from outside that is no constant");
  return true;
}

std::string blockSignature(Block &block) {
  std::string text;
  llvm::raw_string_ostream os(text);
  DenseMap<Value, unsigned> numbers;
  auto number = [&](Value value) { numbers.try_emplace(value, numbers.size()); };
  os << '(';
  for (BlockArgument argument : block.getArguments()) {
    number(argument);
    os << argument.getType() << ',';
  }
  os << ')';
  for (Operation &op : block) {
    os << op.getName().getStringRef() << '(';
    for (Value operand : op.getOperands()) {
      if (auto known = numbers.find(operand); known != numbers.end())
        os << '%' << known->second << ',';
      else if (Attribute constant; matchPattern(operand, m_Constant(&constant)))
        os << constant << ',';
      else
        os << "?,"; // whoever builds from a block refuses such a one
    }
    os << ')' << op.getAttrDictionary() << ':';
    for (Value result : op.getResults()) {
      number(result);
      os << result.getType() << ',';
    }
    os << ';';
  }
  return text;
}

SmallVector<Value> SumBlock::getArguments(ArrayRef<Value> operands, Value sum) const {
  SmallVector<Value> arguments(operands);
  arguments.insert(arguments.begin() + accumulator, sum);
  arguments.resize(epilogue->getNumArguments(), sum);
  return arguments;
}

SmallVector<int64_t> EpilogueSpec::getOperandShape(unsigned number, int64_t m, int64_t n) const {
  switch (operands[number]) {
  case EpilogueOperand::Scalar:
    return {};
  case EpilogueOperand::RowVector:
    return {n};
  case EpilogueOperand::Column:
    return {m};
  case EpilogueOperand::Full:
    return {m, n};
  }
  llvm_unreachable("covered switch");
}

std::string EpilogueSpec::getEpilogueSuffix() const {
  if (!epilogue)
    return "";
  std::string key = blockSignature(*epilogue) + std::to_string(accumulator);
  for (EpilogueOperand kind : operands)
    key += "srcf"[static_cast<int>(kind)]; // in the order of EpilogueOperand
  return llvm::formatv("_e{0:x-16}", llvm::xxh3_64bits(key));
}

bool EpilogueSpec::canBuildEpilogue(std::string *reason) const {
  if (!epilogue)
    return operands.empty() || fail(reason, "there are operands but no epilogue");
  if (!canVectorizeBlock(*epilogue, reason))
    return false;
  unsigned used = operands.size() + 1;
  if (accumulator >= used || epilogue->getNumArguments() < used)
    return fail(reason, "the epilogue has " + Twine(epilogue->getNumArguments()) + " arguments for the sum and " +
                            Twine(operands.size()) + " operands");
  for (BlockArgument argument : epilogue->getArguments())
    if (argument.getArgNumber() >= used && !argument.use_empty())
      return fail(reason, "the epilogue uses its argument number " + Twine(argument.getArgNumber()));
  for (Operation &op : *epilogue)
    if (getIndexDim(&op))
      return fail(reason, "the epilogue asks for its position");
  return true;
}

} // namespace attn
