#include "test/gpu/interpreter/Ptx.h"
#include "test/gpu/interpreter/Scanner.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <set>
#include <unordered_map>

namespace ptx {
namespace {

constexpr const char *kSpecial[] = {"%tid.x",    "%tid.y",    "%tid.z",   "%ntid.x",  "%ntid.y",
                                    "%ntid.z",   "%ctaid.x",  "%ctaid.y", "%ctaid.z", "%nctaid.x",
                                    "%nctaid.y", "%nctaid.z", "%laneid",  "%warpid"};

constexpr const char *kSetConditional = "cudaGraphSetConditional";
constexpr uint32_t kDynamicShared = 1; // Operand::index of an Immediate
constexpr uint32_t kMaxStaticShared = 48 << 10;
// Section 4.4: from PTX 8.1 on there is more room for parameters.
constexpr uint32_t kMaxParameters = 4352, kMaxParametersOf81 = 32764;

uint32_t alignTo(uint32_t value, uint32_t align) { return (value + align - 1) / align * align; }

/// Bytes of a type without its dot ("b32"), 0 if it is none.
uint32_t typeBytes(const std::string &type) {
  if (type == "pred")
    return 1;
  size_t digits = type.find_first_of("0123456789");
  if (digits == std::string::npos || digits == 0)
    return 0;
  return uint32_t(atoi(type.c_str() + digits)) / 8;
}

class Parser : Scanner {
public:
  Parser(const std::string &text, const PlaceGlobal &place) : Scanner(text), place(place) {}

  Module run() {
    for (;;) {
      skipSpace();
      if (at == text.size())
        return std::move(module);
      moduleItem();
    }
  }

private:
  //===--------------------------------------------------------------------===//
  // Module
  //===--------------------------------------------------------------------===//

  void moduleItem() {
    std::string first = word();
    if (first == ".version") {
      module.major = unsigned(integer());
      if (!take('.'))
        error("expected a version");
      module.minor = unsigned(integer());
    } else if (first == ".target") {
      module.target = word();
      while (take(','))
        word();
    } else if (first == ".address_size") {
      if (integer() != 64)
        error("only 64-bit addresses are supported");
    } else if (first == ".visible" || first == ".weak" || first == ".extern") {
      isExtern = first == ".extern";
    } else if (first == ".func") {
      declaration();
    } else if (first == ".entry") {
      kernel = &module.kernels[first = name()];
      kernel->name = first;
      registers.clear();
      banks.clear();
      numRegisters = 0;
      entry();
    } else if (first == ".global" || first == ".const" || first == ".shared") {
      variable(first);
    } else {
      error("unknown directive '" + first + "'");
    }
  }

  /// The one function that kernels may call, which the driver provides.
  void declaration() {
    std::string function = name();
    if (!isExtern || function != kSetConditional)
      error("unknown function '" + function + "'");
    isExtern = false;
    while (at < text.size() && text[at] != ';')
      ++at;
    expect(';');
    module.setsConditional = true;
  }

  /// After `.global`, `.shared` or `.local`: [.align N] .type name[size] [= {...}];
  void variable(const std::string &space) {
    uint32_t align = 1;
    std::string type = word();
    if (type == ".align") {
      align = uint32_t(integer());
      type = word();
    }
    uint32_t element = type.size() > 1 ? typeBytes(type.substr(1)) : 0;
    if (!element)
      error("unknown type '" + type + "' of a variable");
    align = std::max(align, element);
    std::string variableName = name();
    uint64_t count = 1;
    bool isOpen = false;
    if (take('[')) {
      skipSpace();
      if (text[at] == ']')
        isOpen = true;
      else
        count = uint64_t(integer());
      expect(']');
    }
    std::vector<uint8_t> bytes(count * element, 0);
    if (take('=')) {
      bool braces = take('{');
      for (uint64_t i = 0;; ++i) {
        if (i == count)
          error("too many initialisers of '" + variableName + "'");
        uint64_t value = immediate();
        memcpy(&bytes[i * element], &value, element);
        if (!take(','))
          break;
      }
      if (braces)
        expect('}');
    }
    expect(';');
    if (space == ".shared") {
      uint32_t &used = kernel ? kernel->sharedBytes : moduleShared;
      if (isOpen) {
        if (!isExtern)
          error("'" + variableName + "' has no size");
        dynamicShared.insert(variableName);
        dynamicAlign = std::max(dynamicAlign, align);
      } else {
        used = alignTo(used, align);
        symbols[variableName] = used;
        used += uint32_t(bytes.size());
      }
    } else if (space == ".local") {
      kernel->localBytes = alignTo(kernel->localBytes, align);
      symbols[variableName] = kernel->localBytes;
      kernel->localBytes += uint32_t(bytes.size());
    } else {
      // LLVM reads a variable by whole aligned groups, which lie in one page.
      uint32_t group = std::min<uint32_t>(align, 16);
      bytes.resize((bytes.size() + group - 1) / group * group);
      symbols[variableName] = place(bytes, align);
    }
    isExtern = false;
  }

  //===--------------------------------------------------------------------===//
  // Kernels
  //===--------------------------------------------------------------------===//

  void entry() {
    kernel->sharedBytes = moduleShared;
    labels.clear();
    uses.clear();
    scopes.assign(1, 0);
    numScopes = 1;
    if (take('(') && !take(')')) {
      do
        parameter();
      while (take(','));
      expect(')');
    }
    uint32_t limit =
        std::make_pair(module.major, module.minor) >= std::make_pair(8u, 1u) ? kMaxParametersOf81 : kMaxParameters;
    if (kernel->parameterBytes > limit)
      error("the parameters of '" + kernel->name + "' have " + std::to_string(kernel->parameterBytes) +
            " bytes, of which there are at most " + std::to_string(limit));
    while (!take('{')) {
      std::string directive = word();
      if (directive == ".reqntid") {
        for (int i = 0; i < 3; ++i)
          kernel->requiredThreads[i] = 1;
        for (int i = 0; i < 3; ++i) {
          kernel->requiredThreads[i] = uint32_t(integer());
          if (!take(','))
            break;
        }
      } else if (directive == ".maxntid") {
        kernel->maxThreads = 1;
        do
          kernel->maxThreads *= uint32_t(integer());
        while (take(','));
      } else if (directive == ".minnctapersm") {
        kernel->minBlocks = uint32_t(integer());
      } else if (directive == ".maxnreg") {
        kernel->maxRegisters = uint32_t(integer());
      } else {
        error("unknown directive '" + directive + "' of a kernel");
      }
    }
    for (int depth = 1; depth > 0;) {
      if (take('}')) {
        --depth;
        scopes.pop_back();
      } else if (take('{')) {
        ++depth;
        scopes.push_back(numScopes++);
      } else {
        statement();
      }
    }
    for (auto &[instruction, label] : uses) {
      auto found = labels.find(label);
      if (found == labels.end())
        error("no label '" + label + "'");
      kernel->code[instruction].target = found->second;
    }
    if (kernel->sharedBytes > kMaxStaticShared)
      error("'" + kernel->name + "' declares " + std::to_string(kernel->sharedBytes) +
            " bytes of shared memory, beyond " + std::to_string(kMaxStaticShared));
    if (!dynamicShared.empty()) {
      kernel->sharedBytes = alignTo(kernel->sharedBytes, dynamicAlign);
      for (Instruction &instruction : kernel->code)
        for (Operand &operand : instruction.operands)
          placeDynamic(operand);
    }
    kernel->numRegisters = numRegisters;
    kernel = nullptr;
  }

  void parameter() {
    if (word() != ".param")
      error("expected a parameter");
    uint32_t align = 1, element = 0;
    std::string next;
    for (;;) {
      skipSpace();
      if (text[at] != '.')
        break;
      next = word();
      if (next == ".align" || next == ".ptr") {
        if (next == ".align")
          align = uint32_t(integer());
      } else if (next == ".global" || next == ".shared" || next == ".const" || next == ".local") {
      } else {
        element = typeBytes(next.substr(1));
        if (!element)
          error("unknown type '" + next + "' of a parameter");
        align = std::max(align, element);
      }
    }
    // `.u64 .ptr .global .align 16 name`: that alignment is the pointee's.
    if (element == 8)
      align = 8;
    std::string parameterName = name();
    uint32_t size = element;
    if (take('[')) {
      size = element * uint32_t(integer());
      expect(']');
    }
    uint32_t offset = alignTo(kernel->parameterBytes, align);
    kernel->parameters.push_back({offset, size, align});
    kernel->parameterBytes = offset + size;
    symbols[parameterName] = offset;
  }

  std::string scoped(const std::string &local) { return local + "@" + std::to_string(scopes.back()); }

  void statement() {
    skipSpace();
    if (at == text.size())
      error("the kernel ends too early");
    if (take(';'))
      return;
    if (text[at] == '.') {
      directive();
      return;
    }
    // A label?
    size_t begin = at;
    if (isNameStart(text[at]) && text[at] != '%') {
      std::string label = name();
      if (at < text.size() && text[at] == ':' && text[at + 1] != ':') {
        ++at;
        labels[label[0] == '$' ? label : scoped(label)] = uint32_t(kernel->code.size());
        return;
      }
      at = begin;
    }
    instruction();
  }

  void directive() {
    std::string first = word();
    if (first == ".reg") {
      std::string type = word();
      if (type.size() < 2 || !typeBytes(type.substr(1)))
        error("unknown type '" + type + "' of a register");
      do {
        std::string base = name();
        if (take('<')) {
          int64_t count = integer();
          expect('>');
          if (count < 0 || count > 1 << 24)
            error("declares " + std::to_string(count) + " registers");
          banks[base] = {numRegisters, uint32_t(count)};
          numRegisters += uint32_t(count);
        } else {
          declare(base[0] == '%' ? base : scoped(base));
        }
      } while (take(','));
      expect(';');
    } else if (first == ".param") {
      // What a call passes (section 5.1.6.3) is kept like a register.
      std::string type = word();
      if (type != ".b32" && type != ".b64")
        error("unknown type '" + type + "' of an argument");
      declare(scoped(name()));
      expect(';');
    } else if (first == ".shared" || first == ".local") {
      variable(first);
    } else if (first == ".pragma") {
      while (text[at] != ';')
        ++at;
      expect(';');
    } else {
      error("unknown directive '" + first + "'");
    }
  }

  void declare(const std::string &registerName) { registers[registerName] = numRegisters++; }

  std::optional<uint32_t> findRegister(const std::string &registerName) {
    if (registerName[0] != '%') // as declare() has it
      for (auto scope = scopes.rbegin(); scope != scopes.rend(); ++scope) {
        auto found = registers.find(registerName + "@" + std::to_string(*scope));
        if (found != registers.end())
          return found->second;
      }
    // Most are one of many that one directive declares: `.reg .b32 %r<70>;`.
    size_t digits = registerName.size();
    while (digits > 0 && isDigit(registerName[digits - 1]))
      --digits;
    if (digits < registerName.size() && registerName.size() - digits < 9) {
      auto bank = banks.find(registerName.substr(0, digits));
      uint32_t number = uint32_t(atoi(registerName.c_str() + digits));
      if (bank != banks.end() && number < bank->second.count)
        return bank->second.first + number;
    }
    auto found = registers.find(registerName);
    if (found == registers.end())
      return std::nullopt;
    return found->second;
  }

  void instruction() {
    Instruction result;
    result.line = line;
    if (take('@')) {
      result.negated = take('!');
      std::string predicate = name();
      std::optional<uint32_t> index = findRegister(predicate);
      if (!index)
        error("undeclared predicate '" + predicate + "'");
      result.predicate = int32_t(*index);
    }
    result.opcode = word();
    result.execute = findInstruction(result.opcode, result.converges);
    if (!result.execute)
      error("unknown instruction '" + result.opcode + "'");
    auto begins = [&](const char *text) { return result.opcode.compare(0, strlen(text), text) == 0; };
    if (((begins("wgmma.") || begins("setmaxnreg.")) && module.target != "sm_90a") ||
        (begins("cp.async.bulk.") &&
         atoi(module.target.substr(std::min<size_t>(3, module.target.size())).c_str()) < 90))
      error("'" + result.opcode + "' is no instruction of '" + module.target + "'");
    kernel->code.push_back(std::move(result));
    Instruction &in = kernel->code.back();
    skipSpace();
    if (in.opcode.compare(0, 3, "bra") == 0) {
      std::string label = name();
      uses.push_back({kernel->code.size() - 1, label[0] == '$' ? label : scoped(label)});
    } else if (in.opcode.compare(0, 4, "call") == 0) {
      std::string function = name();
      if (function != kSetConditional || !module.setsConditional)
        error("calls '" + function + "', which is not declared");
      expect(',');
      expect('(');
      do
        in.operands.push_back(operand());
      while (take(','));
      expect(')');
    } else if (text[at] != ';') {
      do {
        Operand first = operand();
        if (take('|')) {
          Operand pair;
          pair.kind = Operand::Vector;
          pair.parts = {first, operand()};
          first = pair;
        }
        in.operands.push_back(std::move(first));
      } while (take(','));
    }
    expect(';');
  }

  /// Dynamic shared memory begins where the kernel's own ends, which is known
  /// only when all of it is read.
  void placeDynamic(Operand &operand) {
    if (operand.kind == Operand::Immediate && operand.index == kDynamicShared) {
      operand.bits += kernel->sharedBytes;
      operand.index = 0;
    }
    for (Operand &part : operand.parts)
      placeDynamic(part);
  }

  Operand operand() {
    Operand result;
    skipSpace();
    char c = text[at];
    if (take('{')) {
      result.kind = Operand::Vector;
      do
        result.parts.push_back(operand());
      while (take(','));
      expect('}');
      return result;
    }
    if (take('[')) {
      result.kind = Operand::Address;
      result.parts.push_back(operand());
      skipSpace();
      if (take('+'))
        result.offset = integer();
      else if (text[at] == '-')
        result.offset = integer();
      while (take(','))
        result.parts.push_back(operand());
      expect(']');
      return result;
    }
    if (isdigit(uint8_t(c)) || c == '-') {
      result.kind = Operand::Immediate;
      result.bits = immediate();
      return result;
    }
    std::string text = c == '%' ? word() : name();
    if (text == "_")
      return result;
    if (std::optional<uint32_t> index = findRegister(text)) {
      result.kind = Operand::Register;
      result.index = *index;
      return result;
    }
    for (uint32_t i = 0; i < std::size(kSpecial); ++i)
      if (text == kSpecial[i]) {
        result.kind = Operand::Special;
        result.index = i;
        return result;
      }
    result.kind = Operand::Immediate;
    auto symbol = symbols.find(text);
    if (symbol != symbols.end())
      result.bits = symbol->second;
    else if (dynamicShared.count(text))
      result.index = kDynamicShared;
    else
      error("unknown name '" + text + "'");
    return result;
  }

  const PlaceGlobal &place;
  Module module;
  Kernel *kernel = nullptr;
  struct Bank {
    uint32_t first, count;
  };
  std::unordered_map<std::string, uint64_t> symbols;
  std::unordered_map<std::string, uint32_t> registers, labels;
  std::unordered_map<std::string, Bank> banks; ///< registers declared as `name<count>`
  uint32_t numRegisters = 0;
  std::vector<std::pair<size_t, std::string>> uses;
  std::vector<int> scopes;
  int numScopes = 0;
  uint32_t moduleShared = 0, dynamicAlign = 16;
  std::set<std::string> dynamicShared; // all of them at one place
  bool isExtern = false;
};

} // namespace

Module parse(const std::string &text, const PlaceGlobal &place) { return Parser(text, place).run(); }

} // namespace ptx
