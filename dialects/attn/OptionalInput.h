// Inputs that a caller of an entry may leave out.
#ifndef DIALECTS_ATTN_OPTIONALINPUT_H
#define DIALECTS_ATTN_OPTIONALINPUT_H

#include "llvm/ADT/StringRef.h"

namespace attn {

/// On an argument of an entry (unit): a caller may leave it out. It is then a tensor of no elements, so that its type
/// has a dimension that the run decides, and no dimension with a name.
inline constexpr llvm::StringLiteral kOptionalAttr = "attn.optional";

/// On such an argument (an array of strings and integers): its dimensions where a caller gives it, for those who read
/// about the entry. The runtime compares none of them, as it does those of attn.dims.
inline constexpr llvm::StringLiteral kGivenDimsAttr = "attn.given_dims";

/// On such an argument (unit), tensor<?xi64>: the seed of what the entry draws, 0 if it is left out.
inline constexpr llvm::StringLiteral kSeedAttr = "attn.seed";

} // namespace attn

#endif // DIALECTS_ATTN_OPTIONALINPUT_H
