#include "compiler/emit/cpu/BfloatWords.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/PostOrderIterator.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/InstrTypes.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/Module.h"

using namespace llvm;

namespace attn {
namespace {

bool isBfloat(const Value *value) { return value->getType()->getScalarType()->isBFloatTy(); }

Type *wordsOf(Type *type) {
  Type *word = Type::getInt16Ty(type->getContext());
  auto *vector = dyn_cast<VectorType>(type);
  return vector ? VectorType::get(word, vector->getElementCount()) : word;
}

class Rewriter {
public:
  explicit Rewriter(Function &function) : function(function) {}

  void run() {
    ReversePostOrderTraversal<Function *> blocks(&function);
    for (BasicBlock *block : blocks)
      for (Instruction &inst : make_early_inc_range(*block))
        visit(inst);
    for (auto [from, to] : phis)
      for (unsigned n = 0; n < from->getNumIncomingValues(); ++n)
        to->addIncoming(words(from->getIncomingValue(n)), from->getIncomingBlock(n));
    // A replaced value may still be asked for by one that is not: as bf16 again.
    for (Instruction *inst : reverse(replaced)) {
      if (!inst->use_empty()) {
        Value *again = PoisonValue::get(inst->getType());
        if (any_of(inst->users(), [&](User *user) { return !isReplaced.contains(user); }))
          again = IRBuilder<>(inst->getParent(), behind(inst)).CreateBitCast(made.lookup(inst), inst->getType());
        inst->replaceAllUsesWith(again);
      }
      inst->eraseFromParent();
    }
  }

private:
  static BasicBlock::iterator behind(Instruction *inst) { return *inst->getInsertionPointAfterDef(); }

  /// The words of a bf16 value that is there already.
  Value *words(Value *value) {
    if (auto *constant = dyn_cast<Constant>(value))
      return ConstantExpr::getBitCast(constant, wordsOf(value->getType()));
    Value *&word = made[value];
    if (!word) {
      auto place =
          isa<Argument>(value) ? function.getEntryBlock().getFirstInsertionPt() : behind(cast<Instruction>(value));
      word = new BitCastInst(value, wordsOf(value->getType()), "", place);
    }
    return word;
  }

  void replace(Instruction &inst, Value *by) {
    if (isBfloat(&inst))
      made[&inst] = by;
    else if (!inst.getType()->isVoidTy())
      inst.replaceAllUsesWith(by);
    if (auto *now = dyn_cast<Instruction>(by); now && now != &inst)
      now->copyMetadata(inst);
    replaced.push_back(&inst);
    isReplaced.insert(&inst);
  }

  void visit(Instruction &inst) {
    bool gives = isBfloat(&inst), takes = any_of(inst.operands(), [](Value *value) { return isBfloat(value); });
    if (!gives && !takes)
      return;
    IRBuilder<> b(&inst);
    Type *type = gives ? wordsOf(inst.getType()) : inst.getType();
    auto operand = [&](unsigned n) {
      Value *value = inst.getOperand(n);
      return isBfloat(value) ? words(value) : value;
    };
    if (auto *phi = dyn_cast<PHINode>(&inst)) {
      PHINode *now = b.CreatePHI(type, phi->getNumIncomingValues());
      phis.push_back({phi, now});
      return replace(inst, now);
    }
    if (auto *load = dyn_cast<LoadInst>(&inst); load && load->isSimple())
      return replace(inst, b.CreateAlignedLoad(type, load->getPointerOperand(), load->getAlign()));
    if (auto *store = dyn_cast<StoreInst>(&inst); store && store->isSimple())
      return replace(inst, b.CreateAlignedStore(operand(0), store->getPointerOperand(), store->getAlign()));
    if (isa<SelectInst>(inst))
      return replace(inst, b.CreateSelect(inst.getOperand(0), operand(1), operand(2)));
    if (isa<BitCastInst>(inst))
      return replace(inst, b.CreateBitCast(operand(0), type));
    if (isa<FreezeInst>(inst))
      return replace(inst, b.CreateFreeze(operand(0)));
    if (isa<ExtractElementInst>(inst))
      return replace(inst, b.CreateExtractElement(operand(0), inst.getOperand(1)));
    if (isa<InsertElementInst>(inst))
      return replace(inst, b.CreateInsertElement(operand(0), operand(1), inst.getOperand(2)));
    if (auto *shuffle = dyn_cast<ShuffleVectorInst>(&inst))
      return replace(inst, b.CreateShuffleVector(operand(0), operand(1), shuffle->getShuffleMask()));
    auto *call = dyn_cast<IntrinsicInst>(&inst);
    if (!call ||
        !is_contained({Intrinsic::masked_load, Intrinsic::masked_store, Intrinsic::masked_gather,
                       Intrinsic::masked_scatter, Intrinsic::masked_expandload, Intrinsic::masked_compressstore},
                      call->getIntrinsicID()))
      return; // computes, and takes its bf16 as they are
    SmallVector<Value *> operands;
    for (unsigned n = 0; n < call->arg_size(); ++n)
      operands.push_back(operand(n));
    CallInst *now = b.CreateIntrinsic(type, call->getIntrinsicID(), operands);
    now->setAttributes(call->getAttributes());
    replace(inst, now);
  }

  Function &function;
  DenseMap<Value *, Value *> made;
  SmallVector<std::pair<PHINode *, PHINode *>> phis;
  SmallVector<Instruction *> replaced;
  DenseSet<Value *> isReplaced;
};

} // namespace

void moveBfloatAsWords(Module &module) {
  for (Function &function : module)
    if (!function.isDeclaration())
      Rewriter(function).run();
}

} // namespace attn
