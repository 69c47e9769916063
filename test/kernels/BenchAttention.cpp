// Prints GFLOP/s of the attention kernel on one thread as a share of a bare FMA
// loop timed beside it.
//
//   bench-attention [avx512|avx2|portable] [--assembly] [CASE]
#include "test/kernels/AttentionHarness.h"
#include "test/kernels/Measure.h"

#include <chrono>
#include <cstdio>

using namespace attn;
using namespace attn::test;

namespace {

struct Case {
  const char *name;
  Sizes sizes;
  const char *layout; ///< of query; the others accordingly
  const char *mask;   ///< dimensions of an additive mask, or null
  const char *dynamic = "";
  int64_t window = 0;      ///< keys that a query sees, itself the last; -1: all up to itself
  bool isAdditive = false; ///< tanh of query + key
};

void measure(llvm::StringRef isa, const Case &c, int64_t lanes, bool printsAssembly) {
  Attention a;
  bool isBshd = llvm::StringRef(c.layout) == "bihd";
  a.query = c.layout, a.result = isBshd ? "bihe" : "bhie";
  a.key = isBshd ? "bjhd" : "bhjd", a.value = isBshd ? "bjhe" : "bhje";
  a.dynamic = c.dynamic;
  a.score = "%k = arith.constant 0.125 : f32\n%y = arith.mulf %s, %k : f32";
  if (c.mask) {
    a.captures = {{c.mask, "f32"}};
    a.score = "%k = arith.constant 0.125 : f32\n%x = arith.mulf %s, %k : f32\n%y = arith.addf %x, %c0 : f32";
  }
  if (c.window)
    a.mask = {{c.window < 0 ? "causal<0>" : "window<" + std::to_string(c.window - 1) + ", 0>", "", ""}};
  if (c.isAdditive) {
    a.kind = "additive";
    a.activation = "%y = math.tanh %s : f32";
    a.score = "%z = arith.constant 0.0 : f32\n%y = arith.addf %s, %z : f32";
  }
  auto before = std::chrono::steady_clock::now();
  auto kernel = compileAttention(isa, a, c.sizes);
  double compile = std::chrono::duration<double>(std::chrono::steady_clock::now() - before).count();
  if (!kernel)
    return;
  if (printsAssembly)
    std::fputs(kernel->assembly().c_str(), stdout);
  Operands o(a, c.sizes);
  auto n = [&](char dim) { return static_cast<double>(c.sizes.at(dim)); };
  double pairs = n('i') * n('j');
  if (c.window)
    pairs = c.window < 0 ? n('i') * (n('j') + 1) / 2 : (n('i') - (c.window - 1) / 2.0) * c.window;
  double gflop = 2e-9 * n('b') * n('h') * pairs * (n('d') + n('e'));
  if (c.isAdditive)
    for (int64_t m = 0; m < o.query.size(); ++m)
      o.query[m] *= 0.5f;
  double peak = measurePeak(isa, lanes);
  Timing time = measureTime(0.4, [&] { kernel->call(o.all()); });
  peak = std::max(peak, measurePeak(isa, lanes));
  double gbyte = 4e-9 * n('b') * n('h') * n('j') * (n('d') + n('e'));
  std::printf("%-28s best %8.3f ms %6.1f GF %4.0f%% of %3.0f, %5.1f GB/s | median %8.3f ms | compiled in %4.0f ms\n",
              c.name, 1e3 * time.best, gflop / time.best, 100 * gflop / time.best / peak, peak, gbyte / time.best,
              1e3 * time.median, 1e3 * compile);
  std::fflush(stdout);
}

Sizes sizes(int64_t h, int64_t i, int64_t j, int64_t d) {
  return {{'b', 1}, {'h', h}, {'i', i}, {'j', j}, {'d', d}, {'e', d}};
}

} // namespace

int main(int argc, char **argv) {
  llvm::StringRef isa = hostRuns("avx512") ? "avx512" : hostRuns("avx2") ? "avx2" : "portable", only;
  bool printsAssembly = false;
  for (int n = 1; n < argc; ++n) {
    if (llvm::StringRef(argv[n]) == "--assembly")
      printsAssembly = true;
    else if (llvm::is_contained(kIsas, llvm::StringRef(argv[n])))
      isa = argv[n];
    else if (argv[n][0] == '-') {
      std::fprintf(stderr, "usage: bench-attention [avx512|avx2|portable] [--assembly] [CASE]\n");
      return 1;
    } else {
      only = argv[n];
    }
  }
  if (!hostRuns(isa)) {
    std::fprintf(stderr, "bench-attention: this machine does not run '%s'\n", isa.str().c_str());
    return 1;
  }
  mlir::MLIRContext context;
  context.loadDialect<AttnDialect>();
  int64_t lanes = makeTarget(context, isa).getF32Lanes();
  for (const Case &c : std::vector<Case>{{"dense h2 s512 d64", sizes(2, 512, 512, 64), "bhid", nullptr},
                                         {"dense h12 s128 d64", sizes(12, 128, 128, 64), "bhid", nullptr},
                                         {"dense h2 s512 d128", sizes(2, 512, 512, 128), "bhid", nullptr},
                                         {"dense h2 s512 d64 bshd", sizes(2, 512, 512, 64), "bihd", nullptr},
                                         {"key mask h2 s512 d64 bshd", sizes(2, 512, 512, 64), "bihd", "bj"},
                                         {"full mask h2 s512 d64", sizes(2, 512, 512, 64), "bhid", "bij"},
                                         {"minilm h12 s128 d32 bshd", sizes(12, 128, 128, 32), "bihd", "bj"},
                                         {"minilm dynamic", sizes(12, 128, 128, 32), "bihd", "bj", "bij"},
                                         {"minilm s16 dynamic", sizes(12, 16, 16, 32), "bihd", "bj", "bij"},
                                         {"vit h12 s197 d64 bshd", sizes(12, 197, 197, 64), "bihd", nullptr},
                                         {"dense h8 s2048 d64", sizes(8, 2048, 2048, 64), "bhid", nullptr},
                                         {"causal h1 s512 d64", sizes(1, 512, 512, 64), "bhid", nullptr, "", -1},
                                         {"causal h8 s2048 d64", sizes(8, 2048, 2048, 64), "bhid", nullptr, "", -1},
                                         {"window256 h8 s4096 d64", sizes(8, 4096, 4096, 64), "bhid", nullptr, "", 256},
                                         {"additive b8 n64 m256 d512",
                                          {{'b', 8}, {'h', 1}, {'i', 64}, {'j', 256}, {'d', 512}, {'e', 64}},
                                          "bhid",
                                          nullptr,
                                          "",
                                          0,
                                          true},
                                         {"additive b64 n1 m50 d512",
                                          {{'b', 64}, {'h', 1}, {'i', 1}, {'j', 50}, {'d', 512}, {'e', 64}},
                                          "bhid",
                                          nullptr,
                                          "",
                                          0,
                                          true},
                                         {"decode b16 h12 s2048 d64",
                                          {{'b', 16}, {'h', 12}, {'i', 1}, {'j', 2048}, {'d', 64}, {'e', 64}},
                                          "bhid",
                                          nullptr},
                                         {"decode h12 s2048 d64", sizes(12, 1, 2048, 64), "bhid", nullptr}})
    if (llvm::StringRef(c.name).contains(only))
      measure(isa, c, lanes, printsAssembly);
}
