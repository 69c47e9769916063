#include "frontends/search/OwnStates.h"
#include "dialects/attn/CacheOps.h"
#include "dialects/attn/NodeLocation.h"
#include "frontends/search/StepRoles.h"

#include "mlir/IR/TypeUtilities.h"
#include "llvm/ADT/SmallSet.h"

using namespace mlir;
using namespace attn;

namespace {
using Pairs = ArrayRef<std::pair<std::string, std::string>>;

class StateOwner {
public:
  StateOwner(func::FuncOp entry, Pairs pairs) : entry(entry), pairs(pairs) {}

  /// Marks in `met` the pairs that the entry has; `found` counts its states.
  LogicalResult run(SmallVectorImpl<bool> &met, size_t &found) {
    for (auto [n, pair] : llvm::enumerate(pairs)) {
      int64_t input = find(pair.first, entry.getNumArguments(), nameOfInput),
              output = find(pair.second, entry.getNumResults(), nameOfOutput);
      if (input < 0 || output < 0)
        continue;
      met[n] = true;
      if (!canPair(input, output))
        return entry.emitError() << "input '" << printableName(pair.first) << "' of type "
                                 << entry.getArgumentTypes()[input] << " and output '" << printableName(pair.second)
                                 << "' of type " << entry.getResultTypes()[output] << " cannot be one state";
      if (inputs.contains(input) || outputs.contains(output))
        return entry.emitError() << "the state '" << printableName(pair.first) << "' or '" << printableName(pair.second)
                                 << "' is in two pairs";
      add(input, output);
    }
    for (int64_t input = 0; input < entry.getNumArguments(); ++input)
      for (int64_t output = 0; output < entry.getNumResults() && !inputs.contains(input); ++output)
        if (!outputs.contains(output) && isStatePair(nameOfInput(entry, input), nameOfOutput(entry, output)) &&
            canPair(input, output))
          add(input, output);
    if (!states.empty())
      entry->setAttr(kStatesAttr, ArrayAttr::get(entry.getContext(), states));
    found += states.size();
    return success();
  }

private:
  int64_t find(StringRef name, int64_t count, StringRef (*nameOf)(func::FuncOp, unsigned)) {
    for (int64_t n = 0; n < count; ++n)
      if (nameOf(entry, n) == name)
        return n;
    return -1;
  }

  static Attribute dtypeOf(DictionaryAttr attrs) { return attrs ? attrs.get(AttnDialect::kDTypeAttr) : Attribute(); }

  bool canPair(int64_t input, int64_t output) {
    auto before = dyn_cast<RankedTensorType>(entry.getArgumentTypes()[input]),
         after = dyn_cast<RankedTensorType>(entry.getResultTypes()[output]);
    return before && after && before.getElementType() == after.getElementType() &&
           dtypeOf(entry.getArgAttrDict(input)) == dtypeOf(entry.getResultAttrDict(output)) &&
           succeeded(verifyCompatibleShape(before, after));
  }

  void add(int64_t input, int64_t output) {
    inputs.insert(input);
    outputs.insert(output);
    states.push_back(DenseI64ArrayAttr::get(entry.getContext(), {input, output}));
  }

  func::FuncOp entry;
  Pairs pairs;
  llvm::SmallSet<int64_t, 16> inputs, outputs;
  SmallVector<Attribute> states;
};
} // namespace

LogicalResult attn::ownStates(ModuleOp module, Pairs pairs) {
  SmallVector<bool> met(pairs.size(), false);
  size_t found = 0;
  for (auto entry : module.getOps<func::FuncOp>())
    if (entry->hasAttr(AttnDialect::kEntryAttr) && !entry.isExternal())
      if (failed(StateOwner(entry, pairs).run(met, found)))
        return failure();
  for (auto [pair, isMet] : llvm::zip_equal(pairs, met))
    if (!isMet)
      return module.emitError() << "no entry has input '" << printableName(pair.first) << "' and output '"
                                << printableName(pair.second) << "', which --state pairs";
  if (!found)
    return module.emitError() << "no entry has an input that is, by its name, an output of the run before: "
                                 "name them with --state=INPUT:OUTPUT";
  return success();
}
