#include "compiler/emit/cpu/SteppedMultiples.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Analysis/LoopInfo.h"
#include "llvm/IR/Dominators.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/Module.h"
#include "llvm/IR/PatternMatch.h"
#include <optional>

using namespace llvm;
using namespace llvm::PatternMatch;

namespace attn {
namespace {

/// More of them might not fit the registers beside what a loop reads from.
constexpr size_t kMostMultiples = 3;

/// Of one loop.
class Stepper {
public:
  explicit Stepper(Loop &loop) : loop(loop), entry(loop.getLoopPreheader()), latch(loop.getLoopLatch()) {}

  void run() {
    if (!entry || !latch)
      return;
    SmallVector<PHINode *> phis(make_pointer_range(loop.getHeader()->phis()));
    for (PHINode *phi : phis)
      if (match(phi->getIncomingValueForBlock(latch), m_Add(m_Specific(phi), m_ConstantInt(step))))
        for (Instruction *multiple : multiplesOf(phi))
          makeSum(*multiple, phi);
  }

private:
  /// Products of `index`, or of its distance to a value that the loop does not change, and a constant.
  SmallVector<Instruction *> multiplesOf(PHINode *index) {
    SmallVector<Instruction *> found;
    auto take = [&](Value *from) {
      for (User *user : from->users())
        if (auto *inst = cast<Instruction>(user); loop.contains(inst) && factorOf(inst, from))
          found.push_back(inst);
    };
    take(index);
    for (User *user : index->users())
      if (auto *inst = cast<Instruction>(user); loop.contains(inst) && isDistance(inst, index))
        take(inst);
    return found.size() <= kMostMultiples ? found : SmallVector<Instruction *>();
  }

  /// What `inst` multiplies `from` by, if it is no more than that.
  static std::optional<APInt> factorOf(const Instruction *inst, const Value *from) {
    const APInt *factor;
    if (match(inst, m_Mul(m_Specific(from), m_APInt(factor))))
      return *factor;
    if (match(inst, m_Shl(m_Specific(from), m_APInt(factor))) && factor->ult(factor->getBitWidth()))
      return APInt::getOneBitSet(factor->getBitWidth(), factor->getZExtValue());
    return std::nullopt;
  }

  bool isDistance(const Instruction *inst, const PHINode *index) const {
    Value *other;
    return match(inst,
                 m_CombineOr(m_c_Add(m_Specific(index), m_Value(other)), m_Sub(m_Specific(index), m_Value(other)))) &&
           loop.isLoopInvariant(other);
  }

  void makeSum(Instruction &multiple, PHINode *index) {
    Value *from = multiple.getOperand(0), *start = index->getIncomingValueForBlock(entry);
    IRBuilder<> b(entry->getTerminator());
    if (auto *distance = dyn_cast<BinaryOperator>(from)) // not the index, which is no such
      start = b.CreateBinOp(distance->getOpcode(), start, distance->getOperand(distance->getOperand(0) == index));
    APInt factor = *factorOf(&multiple, from);
    Constant *by = ConstantInt::get(multiple.getType(), factor);
    start = b.CreateMul(start, by);
    b.SetInsertPoint(&loop.getHeader()->front());
    PHINode *sum = b.CreatePHI(multiple.getType(), 2);
    b.SetInsertPoint(latch->getTerminator());
    sum->addIncoming(start, entry);
    sum->addIncoming(b.CreateAdd(sum, ConstantInt::get(multiple.getType(), step->getValue() * factor)), latch);
    multiple.replaceAllUsesWith(sum);
    multiple.eraseFromParent();
  }

  Loop &loop;
  BasicBlock *entry, *latch;
  ConstantInt *step = nullptr;
};

} // namespace

void stepMultiples(Module &module) {
  for (Function &function : module) {
    if (function.isDeclaration())
      continue;
    DominatorTree tree(function);
    LoopInfo loops(tree);
    for (Loop *loop : loops.getLoopsInPreorder())
      if (loop->isInnermost())
        Stepper(*loop).run();
  }
}

} // namespace attn
