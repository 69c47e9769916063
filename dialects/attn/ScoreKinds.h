#ifndef DIALECTS_ATTN_SCOREKINDS_H
#define DIALECTS_ATTN_SCOREKINDS_H

#include "dialects/attn/AttnOps.h"
#include <string>
#include <utility>

// What the kinds of an attention's scores are. Whoever verifies, decomposes, builds or reports scores asks here and
// names no kind, so that a new kind is told to one file.

namespace attn {

/// Which operands a kind takes. Its score is a sum over the key width of products of two factors; without a key, the
/// query holds the scores.
struct ScoreFormula {
  bool hasKey = true;
  bool hasAlignment = false;  ///< a vector over the width, and perhaps an activation
  bool isProduct = false;     ///< the factors are query and key, which matrix instructions multiply
  bool queryNamesRows = true; ///< else the map of the query may lack i

  /// The dimensions that the map of the query must name.
  llvm::SmallVector<unsigned, 2> getQueryDims() const;
};

ScoreFormula getScoreFormula(ScoreKind kind);

/// Elements at one place of the width: scalars or vectors of one float type. No alignment where the kind has none.
struct ScoreElements {
  mlir::Value query, key, alignment;
};

/// The factors that `kind`, which has a key, makes of `at`. Where all elements are 0 their product is 0, unless
/// `activate`, the activation of the op, makes something else of it.
std::pair<mlir::Value, mlir::Value> makeScoreFactors(ScoreKind kind, mlir::OpBuilder &b, mlir::Location loc,
                                                     const ScoreElements &at,
                                                     llvm::function_ref<mlir::Value(mlir::Value)> activate);

/// What reports write for the score of query i and key j, if there is a key; `activate` writes the activation of a
/// sum as a factor.
std::string describeScore(ScoreKind kind, llvm::function_ref<std::string(llvm::StringRef)> activate);

} // namespace attn

#endif // DIALECTS_ATTN_SCOREKINDS_H
