#include "tools/attn-reduce/ReducibleModule.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Parser/Parser.h"

using namespace mlir;

namespace attn::tools {
namespace {

/// Operations that may be left out, users before what they use: so that the first of a range needs no operand of a
/// later.
std::vector<Operation *> operationsOf(ModuleOp module) {
  std::vector<Operation *> list;
  module.walk<WalkOrder::PreOrder>([&](Operation *op) {
    if (!isa<ModuleOp, SymbolOpInterface>(op) && !op->hasTrait<OpTrait::IsTerminator>())
      list.push_back(op);
  });
  std::reverse(list.begin(), list.end());
  return list;
}

std::vector<Operation *> symbolsOf(ModuleOp module) {
  std::vector<Operation *> list;
  for (Operation &op : module.getOps())
    if (isa<SymbolOpInterface>(op))
      list.push_back(&op);
  return list;
}

/// Every result of a function, by the operation that returns it.
std::vector<std::pair<func::ReturnOp, unsigned>> resultsOf(ModuleOp module) {
  std::vector<std::pair<func::ReturnOp, unsigned>> list;
  for (auto function : module.getOps<func::FuncOp>())
    if (!function.isExternal() && llvm::hasSingleElement(function.getBody()))
      if (auto result = dyn_cast<func::ReturnOp>(function.getBody().front().getTerminator()))
        for (unsigned n = 0; n < result.getNumOperands(); ++n)
          list.emplace_back(result, n);
  return list;
}

/// What can stand for `result`, or null.
Value standIn(OpResult result) {
  Operation *op = result.getOwner();
  for (Value operand : op->getOperands())
    if (operand.getType() == result.getType() && operand.getDefiningOp() != op) // graph regions have cycles
      return operand;
  auto function = op->getParentOfType<func::FuncOp>();
  if (!function || failed(function.insertArgument(function.getNumArguments(), result.getType(), {}, op->getLoc())))
    return nullptr;
  return function.getArguments().back();
}

bool leaveOutOperation(Operation *op) {
  for (OpResult result : op->getResults()) {
    if (result.use_empty())
      continue;
    Value other = standIn(result);
    if (!other)
      return false;
    result.replaceAllUsesWith(other);
  }
  op->erase();
  return true;
}

void leaveOutResult(func::ReturnOp result, unsigned number) {
  auto function = result->getParentOfType<func::FuncOp>();
  result->eraseOperand(number);
  (void)function.eraseResult(number);
}

std::string textOf(ModuleOp module) {
  std::string text;
  llvm::raw_string_ostream os(text);
  module.print(os);
  os << '\n';
  return text;
}

} // namespace

std::unique_ptr<ReducibleModule> ReducibleModule::read(MLIRContext *context, llvm::StringRef path) {
  std::unique_ptr<ReducibleModule> result(new ReducibleModule);
  result->module = parseSourceFile<ModuleOp>(path, context);
  if (!result->module)
    return nullptr;
  result->next = result->module.get().clone();
  return result;
}

size_t ReducibleModule::count(unsigned part) const {
  return part == Symbols      ? symbolsOf(module.get()).size()
         : part == Operations ? operationsOf(module.get()).size()
                              : resultsOf(module.get()).size();
}

bool ReducibleModule::leaveOut(unsigned part, size_t first, size_t last) {
  next = module.get().clone();
  if (part == Symbols) {
    std::vector<Operation *> symbols = symbolsOf(next.get());
    for (size_t n = first; n < last; ++n)
      symbols[n]->erase();
  } else if (part == Operations) {
    std::vector<Operation *> operations = operationsOf(next.get());
    for (size_t n = first; n < last; ++n)
      if (!leaveOutOperation(operations[n]))
        return false;
  } else {
    auto results = resultsOf(next.get());
    for (size_t n = last; n-- > first;)
      leaveOutResult(results[n].first, results[n].second);
  }
  // What a candidate breaks is no news.
  ScopedDiagnosticHandler silence(next->getContext(), [](Diagnostic &) { return success(); });
  return succeeded(verify(next.get()));
}

std::string ReducibleModule::candidate() const { return textOf(next.get()); }

std::pair<size_t, size_t> ReducibleModule::sizeOf(ModuleOp module) {
  size_t operations = 0;
  module.walk([&](Operation *) { ++operations; });
  return {operations, textOf(module).size()};
}

} // namespace attn::tools
