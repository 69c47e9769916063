// Concatenations of many parts.
#ifndef DIALECTS_ATTN_MANYPARTS_H
#define DIALECTS_ATTN_MANYPARTS_H

#include <cstddef>

namespace attn {

/// A concatenation of no more parts is spelled as insertions into one tensor, so that each is computed in its place. Of
/// more it is a `tensor.concat`: the analyses of bufferisation compare each insertion with all others.
inline constexpr size_t kFewParts = 32;

} // namespace attn

#endif // DIALECTS_ATTN_MANYPARTS_H
