#include "frontends/search/LearnedPositions.h"
#include "dialects/attn/AttnOps.h"
#include "frontends/search/DecoderInputs.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace attn;

/// Whether a table of the model is read at `index`.
static bool readsTable(CheckIndexOp index) {
  return llvm::any_of(index->getUsers(), [](Operation *user) {
    auto extract = dyn_cast<tensor::ExtractOp>(user);
    Operation *table = extract ? extract.getTensor().getDefiningOp() : nullptr;
    return isa_and_present<WeightOp, arith::ConstantOp>(table) && extract.getTensor().getType().getRank() == 2;
  });
}

/// Whether `index` is a token as the part is given it.
static bool isToken(func::FuncOp part, CheckIndexOp index) {
  auto cast = index.getIndex().getDefiningOp<arith::IndexCastOp>();
  auto element = cast ? dyn_cast<BlockArgument>(cast.getIn()) : BlockArgument();
  auto loop = element ? dyn_cast<linalg::LinalgOp>(element.getOwner()->getParentOp()) : linalg::LinalgOp();
  auto given = loop ? dyn_cast<BlockArgument>(loop.getMatchingOpOperand(element)->get()) : BlockArgument();
  return given && given.getOwner() == &part.getBody().front() &&
         purposeOf(part, given.getArgNumber()) == Purpose::Tokens;
}

void attn::nameLearnedPositions(ArrayRef<func::FuncOp> parts, const SearchOptions &options) {
  // Tables of BART and its like have two rows in front of the first position.
  constexpr int64_t kMostBefore = 2;
  func::FuncOp learned;
  std::string has = "the " + std::to_string(options.positions) + " positions of the model (" + options.positionsKey +
                    " of its configuration)";
  for (func::FuncOp part : parts)
    part.walk([&](CheckIndexOp index) {
      APInt rows;
      if (!options.positions || !matchPattern(index.getSize(), m_ConstantInt(&rows)) ||
          rows.getSExtValue() < options.positions || rows.getSExtValue() > options.positions + kMostBefore ||
          !readsTable(index) || isToken(part, index))
        return;
      index.setMessage(
          (index.getMessage() + ": the prompt and the new tokens (max_new_tokens, --max-length) need more than " + has)
              .str());
      learned = part;
    });
  int64_t most = 0;
  if (!learned || StringRef(options.maxLength).getAsInteger(10, most) || most <= options.positions)
    return;
  learned.emitWarning() << "a run may write " << most << " tokens, more than " << has
                        << ": one that does not end before fails; --max-length=N allows fewer";
}
