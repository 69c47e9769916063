// Inputs that tell a fused model from the graph it came from, and the comparison
// of two libraries on them.
#ifndef TOOLS_ATTNC_FUSIONCASES_H
#define TOOLS_ATTNC_FUSIONCASES_H

#include <string>
#include <vector>

namespace attn::tools {

struct FusionComparison {
  std::string error;                    ///< a library that does not load
  bool isUnfit = false;                 ///< because this machine cannot run it
  unsigned casesRun = 0;                ///< that both libraries accepted
  std::string uncompared;               ///< an entry that no case could run, and why
  unsigned declared = 0;                ///< outputs where NaN or Inf arrive in other elements, as declared
  std::vector<std::string> differences; ///< one line a case and output
};

/// What fusion is allowed to assume about a model.
struct FusionAssumptions {
  bool keepsLogitsSmall = false;  ///< scores are far below a finite mask: no logits of 1e4 or -inf
  unsigned nanGuards = 0;         ///< tests for NaN in the graph, which then hide NaN from query and key too
  std::vector<std::string> masks; ///< inputs whose infinities make no NaN that such a test hides besides
};

/// Runs every entry of both libraries on inputs of length 1, ragged and full
/// tiles, masks of zeros, ones and lengths, equal logits, logits of 1e4, -inf and NaN in single inputs.
///
/// Floats may differ by 1e-4 + 1e-3 |x| (1e-2 for half types) and by what the
/// unfused form itself changes by when its inputs move by a few units in the
/// last place: so an ill-conditioned case is no difference.
FusionComparison compareFusedForms(const std::string &fused, const std::string &unfused,
                                   const FusionAssumptions &assumptions);

} // namespace attn::tools

#endif // TOOLS_ATTNC_FUSIONCASES_H
