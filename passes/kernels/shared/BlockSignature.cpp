#include "passes/kernels/shared/BlockSignature.h"

#include "mlir/IR/Block.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/Operation.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;

namespace attn {

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

} // namespace attn
