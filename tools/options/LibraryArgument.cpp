#include "tools/options/LibraryArgument.h"

#include "tools/options/Console.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include <cerrno>
#include <csignal>
#include <cstring>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace llvm;

namespace attn::tools {
namespace {

/// The attnc of the same installation; the one in PATH if there is none.
std::string findAttnc() {
  char self[4096];
  ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
  if (length > 0) {
    SmallString<256> path(StringRef(self, static_cast<size_t>(length)));
    sys::path::remove_filename(path);
    sys::path::append(path, "attnc");
    if (access(path.c_str(), X_OK) == 0)
      return path.str().str();
  }
  return "attnc";
}

/// Runs a program to its end. SIGINT, SIGTERM and SIGHUP are passed on to it;
/// `stoppedBy` is then the signal, which stays blocked so that the caller can
/// clean up. Returns the exit code, 128 and its number for a signal that killed
/// the program, or -1 with errno set.
int runProgram(const std::vector<std::string> &arguments, int &stoppedBy) {
  std::vector<char *> argv;
  argv.reserve(arguments.size() + 1);
  for (const std::string &argument : arguments)
    argv.push_back(const_cast<char *>(argument.c_str()));
  argv.push_back(nullptr);

  sigset_t awaited, before;
  sigemptyset(&awaited);
  for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGCHLD})
    sigaddset(&awaited, signal);
  sigprocmask(SIG_BLOCK, &awaited, &before);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  posix_spawnattr_setsigmask(&attributes, &before);
  pid_t child = -1;
  int error = posix_spawnp(&child, argv[0], nullptr, &attributes, argv.data(), environ);
  posix_spawnattr_destroy(&attributes);

  int status = 0;
  while (!error) {
    pid_t ended = waitpid(child, &status, WNOHANG);
    if (ended == child)
      break;
    if (ended < 0 && errno != EINTR) {
      error = errno;
      break;
    }
    siginfo_t info;
    if (sigwaitinfo(&awaited, &info) > 0 && info.si_signo != SIGCHLD) {
      stoppedBy = info.si_signo;
      kill(child, stoppedBy);
    }
  }
  if (!stoppedBy)
    sigprocmask(SIG_SETMASK, &before, nullptr);
  errno = error;
  if (error)
    return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

[[noreturn]] void dieBy(int signal) {
  std::signal(signal, SIG_DFL);
  std::raise(signal);
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_UNBLOCK, &all, nullptr);
  _exit(128 + signal);
}

} // namespace

bool LibraryArgument::isModel(StringRef path) {
  StringRef extension = sys::path::extension(path);
  return extension == ".onnx" || extension == ".json" || extension == ".mlir";
}

std::unique_ptr<LibraryArgument> LibraryArgument::prepare(CommandLine &line, int &exitCode) {
  std::vector<StringRef> models = line.positional();
  if (models.size() != 1)
    line.fail(models.empty() ? "no model given" : "one model expected, not " + Twine(models.size()));
  if (line.has(OPT_json) && is_contained(line.all(OPT_fusion_report), "-"))
    line.fail("--json and --fusion-report=- would both write to standard output");
  if (models.size() == 1 && sys::fs::is_directory(models.front()))
    line.fail("'" + models.front() + "' is a folder: attnc makes a library of the models in it (docs/hub.md)");
  exitCode = ExitUsage;
  if (line.failed())
    return nullptr;

  std::unique_ptr<LibraryArgument> argument(new LibraryArgument());
  argument->given = argument->library = models.front().str();
  if (!isModel(argument->given)) {
    std::vector<std::string> useless = line.compileArguments();
    if (line.has(OPT_o))
      useless.push_back("-o");
    for (StringRef option : useless)
      // A run has sizes and may keep a state, too, and the library its verdicts.
      if (!is_contained({"--dim", "--shape", "--own-state", "--fusion-report", "--require-fused"},
                        option.split('=').first))
        report(Severity::Warning,
               argument->given + " is compiled already: " + option.split('=').first + " has no effect");
    for (auto &[name, range] : line.dims())
      if (range.lower != range.upper)
        line.fail("--dim=" + Twine(name) + ":" + Twine(range.lower) + ".." + Twine(range.upper) +
                  " bounds a compile; " + argument->given + " is compiled already, and a run takes one size");
    if (line.failed())
      return nullptr;
    return argument;
  }

  argument->library = line.text(OPT_o).str();
  std::vector<std::string> options = line.compileArguments();
  // Sizes are for the run: IR has those that its import gave.
  if (StringRef(argument->given).ends_with(".mlir"))
    llvm::erase_if(options, [](StringRef option) { return option.starts_with("--dim=") && !option.contains(".."); });
  // Not beside the library, which is about to go.
  if (!line.has(OPT_reproducer))
    options.push_back("--reproducer=" + sys::path::stem(argument->given).str() + ".reproducer.mlir");
  // A GPU has no regions, but its stream has a timeline.
  bool isTraced = line.has(OPT_profile) && line.text(OPT_target, "cpu") == "cpu";
  if (line.has(OPT_breakdown) || isTraced || line.has(OPT_roofline))
    options.push_back("--mark-regions");
  if (line.has(OPT_attention_maps) && !line.has(OPT_expose_attention))
    options.push_back("--expose-attention=all");
  return compile(line, std::move(argument), std::move(options), exitCode);
}

std::unique_ptr<LibraryArgument> LibraryArgument::prepareReference(CommandLine &line, int &exitCode) {
  std::unique_ptr<LibraryArgument> argument(new LibraryArgument());
  argument->given = line.positional().front().str();
  std::vector<std::string> options = line.compileArguments(/*withReports=*/false);
  for (const char *plain : {"--weights=f32", "--precision=f32", "--fp32-math=f32", "--cache=model"})
    options.push_back(plain);
  return compile(line, std::move(argument), std::move(options), exitCode);
}

std::unique_ptr<LibraryArgument> LibraryArgument::compile(const CommandLine &line,
                                                          std::unique_ptr<LibraryArgument> argument,
                                                          std::vector<std::string> options, int &exitCode) {
  exitCode = ExitUsage;
  if (argument->library.empty()) {
    std::string parent = ScratchFolder::temporaryParent();
    argument->folder = ScratchFolder::create(parent);
    if (!argument->folder) {
      reportError("cannot make a folder in '" + parent + "': " + std::strerror(errno));
      return nullptr;
    }
    argument->library = argument->folder->path() + "/model.so";
  }
  std::vector<std::string> command = {findAttnc(), "-o", argument->library,
                                      "--started-by=" + std::string(line.tool().name)};
  if (line.has(OPT_json))
    command.push_back("--json-errors");
  for (std::string &option : options)
    command.push_back(std::move(option));
  command.push_back("--");
  command.push_back(argument->given);

  int stoppedBy = 0;
  exitCode = runProgram(command, stoppedBy);
  if (stoppedBy) {
    argument->discard();
    dieBy(stoppedBy);
  }
  if (exitCode < 0) {
    reportError("cannot start '" + command.front() + "': " + std::strerror(errno));
    exitCode = ExitInternal;
  } else if (exitCode > 128) {
    reportError("'" + command.front() + "' died: " + strsignal(exitCode - 128));
    exitCode = ExitInternal;
  } else if (exitCode != ExitSuccess && line.has(OPT_json)) {
    jsonResult(); // which attnc has printed
  }
  return exitCode == ExitSuccess ? std::move(argument) : nullptr;
}

void LibraryArgument::discard() { folder.reset(); }

} // namespace attn::tools
