#include "dialects/attn/AttnOps.h"
#include "dialects/attn/NodeLocation.h"
#include "dialects/attn/ScoreKinds.h"
#include "passes/Passes.h"
#include "passes/graph/Collect.h"
#include "passes/graph/FusionVerdict.h"
#include "passes/graph/Structured.h"
#include "passes/lowering/cpu/SampledValues.h"
#include "passes/lowering/cpu/SpreadBatch.h"
#include "passes/lowering/cpu/StoreScores.h"

#include "mlir/Analysis/SliceAnalysis.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/IR/Remarks.h"
#include "mlir/IR/TypeUtilities.h"
#include <cmath>

namespace attn {
#define GEN_PASS_DEF_PREPAREATTENTIONPASS
#include "passes/Passes.h.inc"
} // namespace attn

using namespace mlir;
using namespace attn;

namespace {

using Dim = AttentionOp::Dim;
/// On an attn.attention: its kernel form.
constexpr StringLiteral kFormAttr = "attn.form";

std::string formOf(AttentionOp op) {
  std::string kind = stringifyScoreKind(op.getKind()).str();
  ScoreFormula formula = getScoreFormula(op.getKind());
  bool isListed = llvm::any_of(op.getMask(), [](Attribute term) { return isa<BlocksAttr>(term); });
  if (!formula.hasKey)
    return kind + (isListed ? "-listed" : "");
  bool isOne = getStaticSize(op, Dim::D) == 1;
  if (!formula.isProduct)
    return kind + (isOne ? "-one" : "");
  bool isColumns = findInnermost(op, op.getKeyMap()) == unsigned(Dim::J) && !isOne;
  return (getStaticSize(op, Dim::I) == 1 ? "row-" : "") + kind + (isColumns ? "-columns" : "");
}

/// Whether the last bit of `quotient` can decide what `op`, which it reaches, gives: a rounding to a whole number, as
/// to a code, for halves are no rare quotients of codes; or a comparison, but for a sign or with what is no number.
bool turnsOnLastBit(Operation *op, Value quotient) {
  auto compare = dyn_cast<arith::CmpFOp>(op);
  if (!compare)
    return isa<math::RoundEvenOp, math::FloorOp, math::CeilOp, arith::FPToSIOp, arith::FPToUIOp>(op);
  Value x = compare.getLhs(), y = compare.getRhs();
  auto isPlain = [&](Value number, Value bound) {
    APFloat value(0.0f);
    return matchPattern(bound, m_ConstantFloat(&value)) &&
           (!value.isFinite() || (value.isZero() && number == quotient));
  };
  return x != y && !isPlain(x, y) && !isPlain(y, x);
}

/// A quotient by a constant in the score region becomes a product: a division
/// takes five times as long, and a score that is summed in any order has that
/// last bit to spare.
void multiplyScores(AttentionOp op, IRRewriter &rewriter) {
  op.getScore().walk([&](arith::DivFOp quotient) {
    APFloat divisor(0.0f);
    if (!quotient.getType().isF32() || !matchPattern(quotient.getRhs(), m_ConstantFloat(&divisor)))
      return;
    auto factor = static_cast<float>(1 / divisor.convertToDouble());
    SetVector<Operation *> users;
    getForwardSlice(quotient.getOperation(), &users);
    if (!std::isnormal(factor) || llvm::any_of(users, [&](Operation *user) { return turnsOnLastBit(user, quotient); }))
      return;
    rewriter.setInsertionPoint(quotient);
    Value constant = arith::ConstantOp::create(rewriter, quotient.getLoc(), rewriter.getF32FloatAttr(factor));
    rewriter.replaceOpWithNewOp<arith::MulFOp>(quotient, quotient.getLhs(), constant);
  });
}

class Preparation {
public:
  Preparation(AttentionOp op, IRRewriter &rewriter) : op(op), rewriter(rewriter) {}

  /// The names of the operands that were copied.
  SmallVector<Attribute> run() {
    if (op.getKey()) {
      arrange(0, "query", {Dim::D, Dim::I});
      arrange(1, "key", {Dim::D, Dim::J});
    } else {
      arrange(0, "scores", {Dim::J, Dim::I});
    }
    arrange(op.getKey() ? 2 : 1, "value", {Dim::E, Dim::J});
    return copies;
  }

private:
  /// Copies operand `n` so that the first of `wanted` stands innermost, unless
  /// one of them does already or the first has size 1: then there are no rows to keep together.
  void arrange(unsigned n, StringRef name, ArrayRef<unsigned> wanted) {
    AffineMap map = op.getMap(n);
    std::optional<unsigned> last = findInnermost(op, map);
    if (last && !llvm::is_contained(wanted, *last) && AttentionOp::names(map, wanted.front()) &&
        getStaticSize(op, wanted.front()) != 1)
      moveLast(n, name, wanted.front());
  }

  void moveLast(unsigned n, StringRef name, unsigned dim) {
    AffineMap map = op.getMap(n);
    SmallVector<int64_t> permutation;
    int64_t moved = -1;
    for (int64_t k = 0; k != map.getNumResults(); ++k)
      if (AttentionOp::getNamedDim(map.getResult(k)) == dim)
        moved = k;
      else
        permutation.push_back(k);
    permutation.push_back(moved);

    rewriter.setInsertionPoint(op);
    Location loc = op.getLoc();
    Value source = op->getOperand(n);
    Value copy = transposed(rewriter, loc, source, permutation);
    SmallVector<AffineExpr> exprs;
    for (int64_t k : permutation)
      exprs.push_back(map.getResult(k));
    SmallVector<AffineMap> maps(op.getIndexingMaps().getAsValueRange<AffineMapAttr>());
    maps[n] = AffineMap::get(AttentionOp::kDims, 0, exprs, op.getContext());
    rewriter.modifyOpInPlace(op, [&] {
      op->setOperand(n, copy);
      op.setIndexingMapsAttr(rewriter.getAffineMapArrayAttr(maps));
    });
    copies.push_back(rewriter.getStringAttr(name));
    remark::passed(loc, remark::RemarkOpts::name("Form").category("attn-prepare-attention"))
        << ("copies the " + name + ": batch or heads stand innermost in it").str();
  }

  AttentionOp op;
  IRRewriter &rewriter;
  SmallVector<Attribute> copies;
};

struct PrepareAttentionPass : attn::impl::PrepareAttentionPassBase<PrepareAttentionPass> {
  void runOnOperation() override {
    IRRewriter rewriter(&getContext());
    for (AttentionOp op : collect<AttentionOp>(getOperation())) {
      multiplyScores(op, rewriter);
      VerdictName name(op);
      auto noteWritten = [&](StringRef form, StringRef reason) {
        completeVerdict(getOperation(), name,
                        {rewriter.getNamedAttr("form", rewriter.getStringAttr(form)),
                         rewriter.getNamedAttr("kernel", rewriter.getBoolAttr(false)),
                         rewriter.getNamedAttr("kernel_reason", rewriter.getStringAttr(reason)),
                         rewriter.getNamedAttr("kernel_symbol", rewriter.getStringAttr(""))});
      };
      if (spreadBatch(op, rewriter)) {
        noteWritten("given-spread", "windows side by side are columns of a softmax");
        continue;
      }
      op = storeSharedScores(op, rewriter);
      if (sumSamples(op, rewriter)) {
        noteWritten("given-sampled", "values are computed where they are summed");
        continue;
      }
      SmallVector<Attribute> copies = Preparation(op, rewriter).run();
      std::string form = formOf(op);
      op->setAttr(kFormAttr, rewriter.getStringAttr(form));
      SmallVector<NamedAttribute> fields{rewriter.getNamedAttr("form", rewriter.getStringAttr(form))};
      if (!copies.empty())
        fields.push_back(rewriter.getNamedAttr("copies", rewriter.getArrayAttr(copies)));
      completeVerdict(getOperation(), name, fields);
    }
  }
};

} // namespace
