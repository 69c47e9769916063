#ifndef TEST_KERNELS_ATTENTIONHARNESS_H
#define TEST_KERNELS_ATTENTIONHARNESS_H

#include "passes/kernels/cpu/Attention.h"
#include "test/kernels/KernelHarness.h"

#include <cmath>
#include <functional>
#include <initializer_list>
#include <random>
#include <string>
#include <vector>

// One attention by its sizes, layouts and region; its fp64 reference, written
// from the formula in the dialect; and the bound of the project on the error.
namespace attn::test {

/// A number for each of the dimensions b, h, i, j, d and e.
class Dims {
public:
  Dims() = default;
  Dims(std::initializer_list<std::pair<char, int64_t>> init) {
    for (auto [dim, value] : init)
      (*this)[dim] = value;
  }
  int64_t &operator[](char dim) { return values[dim - 'b']; }
  int64_t at(char dim) const { return values[dim - 'b']; }

private:
  int64_t values['j' - 'b' + 1] = {};
};
using Sizes = Dims;
using At = Dims;

struct Attention {
  /// Dimensions of each operand in order; the letters are those of the dialect.
  std::string query = "bhid", key = "bhjd", value = "bhje", result = "bhie";
  /// Dimensions and element type of the captures.
  std::vector<std::pair<std::string, std::string>> captures;
  /// Body of the regions: `%s` is the score, `%c0`... the captures, `%y` is yielded.
  std::string score = "%y = arith.mulf %s, %s : f32", weight, activation, masked;
  std::string maskedRows = "nan", kind = "dot", normalizer = "softmax";
  /// Of query, key, value, alignment and result: f32, bf16 or f16.
  std::string element = "f32";
  /// Of key and value as the kernel reads them, if not that; "bytes" are rows of attn.narrow_rows.
  std::string stored;
  const std::string &storedElement() const { return stored.empty() ? element : stored; }
  std::string alignment = "hd";
  /// Terms in the syntax of `#attn.`, each with the dimensions and type of its operand, if any.
  struct Term {
    std::string term, dims, type;
    /// Of an operand that lists blocks: queries a list, keys a block, entries of each list.
    int64_t rows = 0, columns = 0, entries = 0;
  };
  std::vector<Term> mask;
  /// Extra results: source and dimensions.
  std::vector<std::pair<std::string, std::string>> extras;
  /// Query heads a key head.
  int64_t group = 1;
  /// Letters whose size is `?` in the types; `l` is that of a list.
  std::string dynamic;

  std::string text(const Sizes &sizes) const;
};

/// Compiles `attention` for `isa`, with products of bf16 for "avx512bf16"; null, with a diagnostic, where it cannot be
/// built.
std::unique_ptr<Kernel> compileAttention(llvm::StringRef isa, const Attention &attention, const Sizes &sizes);

/// Inputs and result of one call.
struct Operands {
  Operands(const Attention &attention, const Sizes &sizes, unsigned seed = 1);

  /// Element of `buffer` at the iteration indices `at`.
  int64_t offset(const std::string &dims, const At &at, bool isGrouped = false) const;
  std::vector<const Buffer *> all() const;

  const Attention &attention;
  Sizes sizes;
  Buffer query, key, value, alignment, result;
  std::vector<Buffer> captures, mask, extras;
};

/// Element `n` of a buffer of f32, bf16 or f16.
double readFloat(const Buffer &buffer, const std::string &type, int64_t n);

/// The score or weight region in fp64: value, and the indices (b, h, i, j).
using Region = std::function<double(double, const At &)>;

struct Reference {
  Region score, weight = nullptr, masked = nullptr;
  std::function<double(double)> activation = nullptr;
  std::function<bool(const At &)> visible = nullptr;
  /// What a row holds whose every score is -inf; the average of all values where infinite.
  double emptyRow = NAN;
};

/// Compares the results with the reference; returns "" or what differs first.
std::string compareWithReference(const Operands &operands, const Reference &reference);
inline std::string compareWithReference(const Operands &operands, const Region &score, const Region &weight = nullptr,
                                        double emptyRow = NAN) {
  return compareWithReference(operands, Reference{score, weight, nullptr, nullptr, nullptr, emptyRow});
}

/// Whether `test` ("Name/isa") runs for `isa`: the short run takes each test for
/// one step of the ISA, the full one (ATTNC_FULL) for all.
bool isInThisRun(llvm::StringRef test, llvm::StringRef isa);

} // namespace attn::test

#endif // TEST_KERNELS_ATTENTIONHARNESS_H
