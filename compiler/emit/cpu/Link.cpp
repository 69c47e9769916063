#include "compiler/emit/cpu/Object.h"

#include "lld/Common/Driver.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Object/ELFObjectFile.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/raw_ostream.h"
#include <cerrno>
#include <cstring>
#include <deque>
#include <fcntl.h>
#include <optional>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>

LLD_HAS_DRIVER(elf)

namespace attn {
namespace {

/// A descriptor that closes itself.
struct Descriptor {
  explicit Descriptor(int fd) : fd(fd) {}
  Descriptor(const Descriptor &) = delete;
  ~Descriptor() {
    if (fd >= 0)
      close(fd);
  }
  bool write(llvm::ArrayRef<char> bytes) const {
    while (!bytes.empty()) {
      ssize_t count = ::write(fd, bytes.data(), bytes.size());
      if (count < 0 && errno != EINTR)
        return false;
      bytes = bytes.drop_front(std::max<ssize_t>(count, 0));
    }
    return true;
  }
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd); }
  int fd;
};

/// What the code may leave to the process that loads it: libm, and libc's memory
/// functions, which LLVM makes of loops that copy or clear (libattnrt needs libc
/// anyway). All that the runtime offers comes through attnrt_run, not by name.
bool isAllowedSymbol(llvm::StringRef name) {
  static const llvm::StringSet<> kMemory = {"memcpy", "memmove", "memset"};
  // In their forms for double, and with an f for float.
  static const llvm::StringSet<> kMath = {
      "acos", "acosh", "asin",      "asinh", "atan",   "atan2", "atanh", "cbrt", "ceil",  "copysign",  "cos",
      "cosh", "erf",   "erfc",      "exp",   "exp10",  "exp2",  "expm1", "fabs", "floor", "fma",       "fmax",
      "fmin", "fmod",  "frexp",     "ldexp", "log",    "log10", "log1p", "log2", "modf",  "nearbyint", "pow",
      "rint", "round", "roundeven", "sin",   "sincos", "sinh",  "sqrt",  "tan",  "tanh",  "tgamma",    "trunc"};
  if (kMemory.contains(name) || kMath.contains(name))
    return true;
  return name.consume_back("f") && kMath.contains(name);
}

/// False, with `error` set, where the objects need a symbol that a model library
/// may not count on: the link would succeed and loading fail, or worse.
bool checkSymbols(llvm::ArrayRef<ObjectBytes> objects, std::string &error) {
  llvm::StringSet<> defined, needed;
  for (const ObjectBytes &object : objects) {
    llvm::MemoryBufferRef bytes(llvm::StringRef(object.data(), object.size()), "model.o");
    llvm::Expected<std::unique_ptr<llvm::object::ObjectFile>> file =
        llvm::object::ObjectFile::createELFObjectFile(bytes);
    if (!file) {
      error = "cannot read the object again: " + llvm::toString(file.takeError());
      return false;
    }
    for (const llvm::object::SymbolRef &symbol : (*file)->symbols()) {
      llvm::Expected<uint32_t> flags = symbol.getFlags();
      llvm::Expected<llvm::StringRef> name = symbol.getName();
      if (!flags || !name) {
        llvm::consumeError(flags.takeError());
        llvm::consumeError(name.takeError());
        error = "cannot read the object's symbols";
        return false;
      }
      if (*flags & llvm::object::BasicSymbolRef::SF_Undefined)
        needed.insert(*name);
      else if (*flags & llvm::object::BasicSymbolRef::SF_Global)
        defined.insert(*name);
    }
  }
  for (const auto &symbol : needed) {
    llvm::StringRef name = symbol.getKey();
    if (!name.empty() && !defined.contains(name) && !isAllowedSymbol(name)) {
      error = "internal error: the code needs the symbol '" + name.str() + "', which no library of a run provides";
      return false;
    }
  }
  return true;
}

constexpr char kVersionScript[] = "{ global: attnrt_library_query; local: *; };\n";

/// Runs the linker over `objects` with `options` in front of them and `last` behind.
bool runLinker(llvm::ArrayRef<ObjectBytes> objects, llvm::ArrayRef<const char *> options,
               llvm::ArrayRef<const char *> last, ObjectBytes &result, std::string &error) {
  std::deque<Descriptor> inputs;
  std::deque<std::string> paths;
  for (const ObjectBytes &object : objects) {
    inputs.emplace_back(memfd_create("model.o", MFD_CLOEXEC));
    if (!inputs.back().write(object)) {
      error = std::string("cannot hold the object for the linker: ") + std::strerror(errno);
      return false;
    }
    paths.push_back(inputs.back().path());
  }
  // Through a pipe: into a file, lld writes by a mapping of a temporary beside
  // it, which a memfd does not survive and a full disk answers with SIGBUS.
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    error = std::string("cannot make a pipe for the linker: ") + std::strerror(errno);
    return false;
  }
  Descriptor source(ends[0]);
  std::optional<Descriptor> output(std::in_place, ends[1]);
  std::thread reader([&] {
    char chunk[65536];
    ssize_t count;
    while ((count = read(source.fd, chunk, sizeof chunk)) > 0 || (count < 0 && errno == EINTR))
      result.append(chunk, chunk + std::max<ssize_t>(count, 0));
  });
  std::string outputPath = output->path();
  std::vector<const char *> args = {"ld.lld", "--threads=1", "-o", outputPath.c_str()};
  args.insert(args.end(), options.begin(), options.end());
  for (const std::string &path : paths)
    args.push_back(path.c_str());
  args.insert(args.end(), last.begin(), last.end());
  std::string messages;
  llvm::raw_string_ostream os(messages);
  lld::Result done = lld::lldMain(args, os, os, {{lld::Gnu, &lld::elf::link}});
  output.reset(); // the end of the file, for the reader
  reader.join();
  if (done.retCode == 0 && !result.empty())
    return true;
  error = "the linker failed: " + (messages.empty() ? std::string("no message") : messages);
  return false;
}

} // namespace

bool linkLibrary(llvm::ArrayRef<ObjectBytes> objects, ObjectBytes &elf, std::string &error) {
  if (!checkSymbols(objects, error))
    return false;
  Descriptor script(memfd_create("exports", MFD_CLOEXEC));
  if (!script.write(llvm::ArrayRef<char>(kVersionScript, sizeof(kVersionScript) - 1))) {
    error = std::string("cannot hold the list of exports for the linker: ") + std::strerror(errno);
    return false;
  }
  std::string exports = "--version-script=" + script.path();
  const char *options[] = {"-shared",
                           "--hash-style=gnu",
                           "-z",
                           "now",
                           "-z",
                           "noexecstack",
                           "--build-id=none",
                           "--strip-debug",
                           "--gc-sections",
                           "-soname=attnc-model",
                           exports.c_str()};
  // Math that has no polynomial of ours comes from libm; needed only then.
  static constexpr const char *kLibm[] = {"/lib/x86_64-linux-gnu/libm.so.6", "/lib64/libm.so.6", "/usr/lib/libm.so.6"};
  std::vector<const char *> libraries;
  for (const char *libm : kLibm) {
    if (llvm::sys::fs::exists(libm)) {
      libraries = {"--as-needed", libm};
      break;
    }
  }
  return runLinker(objects, options, libraries, elf, error);
}

bool joinObjects(llvm::ArrayRef<ObjectBytes> objects, ObjectBytes &joined, std::string &error) {
  if (objects.size() == 1) {
    joined = objects.front();
    return true;
  }
  return runLinker(objects, {"-r"}, {}, joined, error);
}

} // namespace attn
