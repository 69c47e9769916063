#include "test/kernels/Measure.h"

namespace attn::test {

double measurePeak(llvm::StringRef isa, int64_t lanes) {
  constexpr int kChains = 12, kSteps = 20000;
  std::string type = "vector<" + std::to_string(lanes) + "xf32>", text, yields, types, inits, sum;
  for (int i = 0; i < kChains; ++i) {
    std::string n = std::to_string(i);
    text += lanes == 4 ? "%m" + n + " = arith.mulf %x, %x : " + type + "\n%f" + n + " = arith.addf %m" + n + ", %a" +
                             n + " : " + type + "\n"
                       : "%f" + n + " = vector.fma %x, %x, %a" + n + " : " + type + "\n";
    yields += (i ? ", %f" : "%f") + n;
    types += (i ? ", " : "") + type;
    inits += (i ? ", %a" : "%a") + n + " = %x";
    sum += "%s" + std::to_string(i + 1) + " = arith.addf %s" + n + ", %r#" + n + " : " + type + "\n";
  }
  auto kernel =
      Kernel::compileText(isa, "func.func @k(%m: memref<?xf32>) attributes {attn.kernel} {\n"
                               "%c0 = arith.constant 0 : index\n%c1 = arith.constant 1 : index\n"
                               "%n = arith.constant " +
                                   std::to_string(kSteps) +
                                   " : index\n"
                                   "%x = vector.load %m[%c0] : memref<?xf32>, " +
                                   type +
                                   "\n"
                                   "%r:" +
                                   std::to_string(kChains) + " = scf.for %i = %c0 to %n step %c1 iter_args(" + inits +
                                   ") -> (" + types + ") {\n" + text + "scf.yield " + yields + " : " + types +
                                   "\n}\n%s0 = arith.constant dense<0.0> : " + type + "\n" + sum + "vector.store %s" +
                                   std::to_string(kChains) + ", %m[%c0] : memref<?xf32>, " + type + "\nreturn\n}");
  if (!kernel)
    return 0;
  Buffer memory({lanes}, std::vector<float>(lanes, 1e-3f));
  double seconds = measureTime(0.1, [&] {
                     kernel->call({&memory});
                     std::fill_n(memory.data(), lanes, 1e-3f);
                   }).best;
  return 2e-9 * kChains * kSteps * lanes / seconds;
}

} // namespace attn::test
