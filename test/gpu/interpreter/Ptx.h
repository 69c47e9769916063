#ifndef TEST_GPU_INTERPRETER_PTX_H
#define TEST_GPU_INTERPRETER_PTX_H

#include <cstdint>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

// The parsed form of a PTX module. Section numbers in this folder are those of
// "Parallel Thread Execution ISA", version 8.5.

namespace ptx {

/// What a program does wrong, or an instruction that the interpreter lacks.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Step;
using Execute = void (*)(Step &);

struct Operand {
  enum Kind {
    Register,  ///< `index` in the warp's register file
    Immediate, ///< `bits`; also a variable's address in its own space
    Special,   ///< `index` is a SpecialRegister
    Vector,    ///< {a, b, ...} and a|b: `parts`; `_` is a part of kind Nothing
    Address,   ///< [base + offset, more...]: `parts` (base first) and `offset`
    Nothing
  };
  Kind kind = Nothing;
  uint32_t index = 0;
  uint64_t bits = 0;
  int64_t offset = 0;
  std::vector<Operand> parts;
};

enum SpecialRegister : uint32_t {
  TidX,
  TidY,
  TidZ,
  NtidX,
  NtidY,
  NtidZ,
  CtaidX,
  CtaidY,
  CtaidZ,
  NctaidX,
  NctaidY,
  NctaidZ,
  LaneId,
  WarpId
};

struct Instruction {
  Execute execute = nullptr;
  int32_t predicate = -1; ///< register, or -1
  bool negated = false;
  bool converges = false; ///< all lanes of the warp must execute it together
  std::vector<Operand> operands;
  uint32_t target = 0; ///< of a branch
  std::string opcode;
  unsigned line = 0;
};

struct Parameter {
  uint32_t offset, size, alignment;
};

struct Kernel {
  std::string name;
  std::vector<Instruction> code;
  uint32_t numRegisters = 0;
  uint32_t parameterBytes = 0;
  std::vector<Parameter> parameters;
  uint32_t sharedBytes = 0;                ///< static ones; dynamic ones lie behind
  uint32_t localBytes = 0;                 ///< a thread
  uint32_t requiredThreads[3] = {0, 0, 0}; ///< .reqntid, 0: none
  uint32_t maxThreads = 0;                 ///< .maxntid, 0: none
  uint32_t maxRegisters = 0;               ///< .maxnreg, 0: none
  uint32_t minBlocks = 0;                  ///< .minnctapersm, 0: none

  /// Registers that ptxas has for each thread, as far as the directives say; 0: they do not.
  uint32_t registerLimit() const {
    constexpr uint32_t kFile = 1 << 16, kGroup = 8, kMost = 255;
    uint32_t threads = requiredThreads[0] * requiredThreads[1] * requiredThreads[2];
    threads = threads ? threads : maxThreads;
    if (maxRegisters)
      return maxRegisters;
    if (!threads)
      return 0;
    uint32_t warps = (threads + 31) / 32 * (minBlocks ? minBlocks : 1);
    uint32_t count = kFile / (32 * warps) / kGroup * kGroup;
    return count < kMost ? count : kMost;
  }
};

/// Places a variable of the module in global memory and returns its address.
using PlaceGlobal = std::function<uint64_t(const std::vector<uint8_t> &bytes, uint32_t align)>;

struct Module {
  std::string target;            ///< "sm_80"
  unsigned major = 0, minor = 0; ///< PTX ISA version
  std::map<std::string, Kernel> kernels;
  bool setsConditional = false; ///< declares cudaGraphSetConditional
};

/// Parses `text`. Throws Error, with the line, for anything outside the subset.
Module parse(const std::string &text, const PlaceGlobal &place);

/// What executes an opcode ("add.rn.f32"), null if the interpreter lacks it.
Execute findInstruction(const std::string &opcode, bool &converges);

} // namespace ptx

#endif // TEST_GPU_INTERPRETER_PTX_H
