// Arrays by name, as numpy.savez and numpy.savez_compressed write them: npy files in a ZIP archive.
#ifndef TOOLS_ATTNC_NPZ_H
#define TOOLS_ATTNC_NPZ_H

#include "tools/attn-run/runner/Inputs.h"

#include "llvm/Support/MemoryBuffer.h"
#include <map>

namespace attn::tools {

/// The reader trusts nothing: every place and length is checked against the file, and every member against its
/// checksum. Archives and members of 4 GiB or more are refused, and so are encrypted ones.
class NpzFile {
public:
  /// Reads the list of members. `error`, which begins with the path, is set unless the fault is None.
  runner::Fault open(const std::string &path, std::string &error);

  std::vector<std::string> names() const;

  /// The array called `name`, which has to be one of names().
  runner::Fault read(const std::string &name, runner::Tensor &tensor, std::string &error) const;

private:
  struct Member {
    uint32_t method, checksum, packed, size, header;
  };
  std::string readList();
  std::string unpack(const Member &member, std::string &bytes) const;

  std::string path;
  std::unique_ptr<llvm::MemoryBuffer> file;
  std::map<std::string, Member> members;
};

} // namespace attn::tools

#endif // TOOLS_ATTNC_NPZ_H
