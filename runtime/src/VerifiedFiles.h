#ifndef RUNTIME_SRC_VERIFIEDFILES_H
#define RUNTIME_SRC_VERIFIEDFILES_H

#include <cstdint>
#include <sys/stat.h>

namespace attn::rt {

/// What attnrt_verify says of ATTNRT_VERIFY_ONCE: a note per file in the user's
/// cache folder, which at most 1,024 files share. Nothing that goes wrong here is
/// an error: the file is then verified.

/// Whether a file that is as `file` says was found to have this digest.
bool isNotedAsVerified(const struct stat &file, const uint8_t digest[32]);
void noteAsVerified(const struct stat &file, const uint8_t digest[32]);

} // namespace attn::rt

#endif // RUNTIME_SRC_VERIFIEDFILES_H
