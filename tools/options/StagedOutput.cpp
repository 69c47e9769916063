#include "tools/options/StagedOutput.h"

#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace llvm;

namespace attn::tools {
namespace {

std::string why(StringRef path, int error) { return ("cannot write '" + path + "': " + std::strerror(error)).str(); }

std::string parentOf(StringRef path) {
  StringRef parent = sys::path::parent_path(path);
  return parent.empty() ? "." : parent.str();
}

bool copyTo(StringRef from, StringRef to, std::string &error) {
  ErrorOr<std::unique_ptr<MemoryBuffer>> bytes = MemoryBuffer::getFile(from);
  std::error_code code = bytes.getError();
  if (!code) {
    raw_fd_ostream os(to, code, sys::fs::CD_OpenExisting, sys::fs::FA_Write, sys::fs::OF_None);
    if (!code) {
      os << (*bytes)->getBuffer();
      os.close();
      code = os.error();
      os.clear_error();
    }
  }
  if (code)
    error = why(to, code.value());
  return !code;
}

} // namespace

std::unique_ptr<StagedOutput> StagedOutput::create(StringRef output, std::string &error) {
  std::unique_ptr<StagedOutput> staged(new StagedOutput());
  staged->target = output.str();
  struct stat info;
  if (output == "-") {
    staged->kind = Kind::Stdout;
  } else if (stat(staged->target.c_str(), &info) == 0) {
    if (S_ISDIR(info.st_mode)) {
      error = why(output, EISDIR);
      return nullptr;
    }
    if (S_ISFIFO(info.st_mode) || S_ISCHR(info.st_mode)) {
      staged->kind = Kind::Stream;
    } else if (!S_ISREG(info.st_mode)) {
      error = ("cannot write '" + output + "': it is neither a file nor a pipe").str();
      return nullptr;
    } else if (SmallString<128> real; !sys::fs::real_path(output, real)) {
      // Through a symbolic link the file it names is replaced, not the link.
      staged->target = real.str().str();
    }
  }

  std::string parent = staged->kind == Kind::File ? parentOf(staged->target) : ScratchFolder::temporaryParent();
  staged->folder = ScratchFolder::create(parent);
  if (!staged->folder) {
    error = staged->kind == Kind::File ? why(output, errno) : why(parent, errno);
    return nullptr;
  }
  return staged;
}

std::string StagedOutput::path() const { return kind == Kind::Stdout ? "-" : side(sys::path::filename(target)); }

bool StagedOutput::commit(std::string &error) {
  switch (kind) {
  case Kind::Stdout:
    return true;
  case Kind::Stream:
    return copyTo(path(), target, error);
  case Kind::File:
    break;
  }
  if (rename(path().c_str(), target.c_str()) != 0) {
    error = why(target, errno);
    return false;
  }
  // The name survives a power cut only once the folder is on the disk.
  if (int fd = open(parentOf(target).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); fd >= 0) {
    fsync(fd);
    close(fd);
  }
  return true;
}

bool writeFile(StringRef path, function_ref<void(raw_ostream &)> write, std::string &error) {
  if (path == "-") {
    write(outs());
    outs().flush();
    return true;
  }
  std::unique_ptr<StagedOutput> staged = StagedOutput::create(path, error);
  if (!staged)
    return false;
  std::error_code code;
  {
    raw_fd_ostream os(staged->path(), code);
    if (!code) {
      write(os);
      os.close();
      code = os.error();
      os.clear_error();
    }
  }
  if (code) {
    error = why(path, code.value());
    return false;
  }
  return staged->commit(error);
}

bool writeTextFile(StringRef path, StringRef text, std::string &error) {
  return writeFile(path, [&](raw_ostream &os) { os << text; }, error);
}

bool copyTextFile(StringRef from, StringRef to, std::string &error) {
  ErrorOr<std::unique_ptr<MemoryBuffer>> bytes = MemoryBuffer::getFile(from);
  if (!bytes) {
    error = why(to, bytes.getError().value());
    return false;
  }
  return writeTextFile(to, (*bytes)->getBuffer(), error);
}

} // namespace attn::tools
