#include "compiler/emit/cpu/SingleLaneStores.h"

#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/Module.h"
#include <optional>

using namespace llvm;

namespace attn {

/// The only lane that is set; none where the mask is unknown or has others.
static std::optional<unsigned> singleLane(const Value *mask) {
  auto *type = dyn_cast<FixedVectorType>(mask->getType());
  auto *constant = dyn_cast<Constant>(mask);
  if (!type || !constant)
    return std::nullopt;
  std::optional<unsigned> single;
  for (unsigned lane = 0; lane < type->getNumElements(); ++lane) {
    auto *bit = dyn_cast_or_null<ConstantInt>(constant->getAggregateElement(lane));
    if (!bit || (bit->isOne() && single))
      return std::nullopt;
    if (bit->isOne())
      single = lane;
  }
  return single;
}

void storeSingleLanes(Module &module) {
  for (Function &function : module)
    for (Instruction &inst : make_early_inc_range(instructions(function))) {
      auto *store = dyn_cast<IntrinsicInst>(&inst);
      if (!store || store->getIntrinsicID() != Intrinsic::masked_store)
        continue;
      Value *vector = store->getArgOperand(0), *pointer = store->getArgOperand(1);
      std::optional<unsigned> lane = singleLane(store->getArgOperand(2));
      if (!lane)
        continue;
      IRBuilder<> b(store);
      Type *element = vector->getType()->getScalarType();
      uint64_t bytes = module.getDataLayout().getTypeStoreSize(element) * *lane;
      Value *address = b.CreateConstInBoundsGEP1_32(element, pointer, *lane);
      Align align = commonAlignment(store->getParamAlign(1).valueOrOne(), bytes);
      b.CreateAlignedStore(b.CreateExtractElement(vector, *lane), address, align);
      store->eraseFromParent();
    }
}

} // namespace attn
