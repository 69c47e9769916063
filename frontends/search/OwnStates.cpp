#include "frontends/search/OwnStates.h"
#include "dialects/attn/CacheOps.h"
#include "dialects/attn/NodeLocation.h"
#include "frontends/search/StepRoles.h"

#include "mlir/IR/TypeUtilities.h"
#include "llvm/ADT/SmallSet.h"

using namespace mlir;
using namespace attn;

namespace {
using Pairs = ArrayRef<StatePair>;

class StateOwner {
public:
  /// `misfit` tells of a first pair that the names make and the types do not allow.
  StateOwner(func::FuncOp entry, Pairs pairs, std::string &misfit) : entry(entry), pairs(pairs), misfit(misfit) {}

  /// Marks in `met` the pairs that the entry has; `found` counts its states.
  LogicalResult run(SmallVectorImpl<bool> &met, size_t &found) {
    for (auto [n, pair] : llvm::enumerate(pairs)) {
      auto numbers = findStatePair(entry, pair);
      if (failed(numbers))
        return failure();
      if (!*numbers)
        continue;
      auto [input, output] = **numbers;
      met[n] = true;
      if (!canPair(input, output))
        return entry.emitError() << describePair(input, output)
                                 << " cannot be one state: it keeps its type and its sizes but for open ones";
      if (inputs.contains(input) || outputs.contains(output))
        return entry.emitError() << "the state '" << printableName(nameOfInput(entry, input)) << "' or '"
                                 << printableName(nameOfOutput(entry, output)) << "' is in two pairs";
      add(input, output);
    }
    for (int64_t input = 0; pairs.empty() && input < entry.getNumArguments(); ++input)
      for (int64_t output = 0; output < entry.getNumResults() && !inputs.contains(input); ++output) {
        if (outputs.contains(output) || !isStatePair(nameOfInput(entry, input), nameOfOutput(entry, output)))
          continue;
        if (canPair(input, output))
          add(input, output);
        else if (misfit.empty())
          misfit = describePair(input, output);
      }
    if (!states.empty())
      entry->setAttr(kStatesAttr, ArrayAttr::get(entry.getContext(), states));
    found += states.size();
    return success();
  }

private:
  static Attribute dtypeOf(DictionaryAttr attrs) { return attrs ? attrs.get(AttnDialect::kDTypeAttr) : Attribute(); }

  bool canPair(int64_t input, int64_t output) {
    auto before = dyn_cast<RankedTensorType>(entry.getArgumentTypes()[input]),
         after = dyn_cast<RankedTensorType>(entry.getResultTypes()[output]);
    return before && after && before.getElementType() == after.getElementType() &&
           dtypeOf(entry.getArgAttrDict(input)) == dtypeOf(entry.getResultAttrDict(output)) &&
           succeeded(verifyCompatibleShape(before, after));
  }

  std::string describePair(int64_t input, int64_t output) {
    return "input '" + printableName(nameOfInput(entry, input)) + "' (" +
           shapeAndType(entry.getArgumentTypes()[input]) + ") and output '" +
           printableName(nameOfOutput(entry, output)) + "' (" + shapeAndType(entry.getResultTypes()[output]) + ")";
  }

  void add(int64_t input, int64_t output) {
    inputs.insert(input);
    outputs.insert(output);
    states.push_back(DenseI64ArrayAttr::get(entry.getContext(), {input, output}));
  }

  func::FuncOp entry;
  Pairs pairs;
  std::string &misfit;
  llvm::SmallSet<int64_t, 16> inputs, outputs;
  SmallVector<Attribute> states;
};
} // namespace

LogicalResult attn::ownStates(ModuleOp module, Pairs pairs) {
  SmallVector<bool> met(pairs.size(), false);
  size_t found = 0;
  std::string misfit;
  for (auto entry : module.getOps<func::FuncOp>())
    if (entry->hasAttr(AttnDialect::kEntryAttr) && !entry.isExternal())
      if (failed(StateOwner(entry, pairs, misfit).run(met, found)))
        return failure();
  for (auto [pair, isMet] : llvm::zip_equal(pairs, met)) {
    if (isMet)
      continue;
    auto diagnostic = module.emitError() << "no entry has " << pair.describe() << ", which --state pairs";
    for (auto entry : module.getOps<func::FuncOp>())
      if (entry->hasAttr(AttnDialect::kEntryAttr) && !entry.isExternal())
        diagnostic << "; " << describePairable(entry);
    return diagnostic;
  }
  if (!found && !misfit.empty())
    return module.emitError()
           << misfit
           << " cannot be one state (it keeps its type and its sizes but for open ones), and their names pair no "
              "others";
  if (!misfit.empty())
    module.emitWarning() << misfit << " are no state, though their names make them one";
  if (!found)
    return module.emitError() << "no entry has an input that is, by its name, an output of the run before: "
                                 "name them with --state=INPUT:OUTPUT";
  return success();
}
