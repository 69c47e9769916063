// Prints GOP/s of the GEMM kernel of bytes on one thread, hot (one weight) and cold (rotating over 256 MB of weights,
// as a real network does), as a share of a bare loop of its instruction on the same bytes, timed beside it: with AVX2
// of vpmaddubsw and vpmaddwd, which two steps at once may surpass.
//
//   bench-integer-gemm [amxint8|avx512vnni|avxvnni|avx2] [--json] [M...]
#include "passes/kernels/cpu/IntegerGemm.h"
#include "passes/kernels/cpu/PackRows.h"
#include "passes/kernels/cpu/TileRegisters.h"
#include "passes/kernels/shared/KernelFunction.h"
#include "test/kernels/IntegerGemmCases.h"
#include "test/kernels/Measure.h"

#include "mlir/Parser/Parser.h"
#include "llvm/ADT/StringExtras.h"
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>
#include <random>

using namespace mlir;
using namespace attn;
using namespace attn::test;

namespace {

using attn::test::Buffer;

constexpr char kEpilogues[] = R"(
  func.func @scaled(%sum: i32, %scale: f32, %bias: f32) -> f32 {
    %x = arith.sitofp %sum : i32 to f32
    %y = arith.mulf %x, %scale : f32
    %z = arith.addf %y, %bias : f32
    return %z : f32
  }
  func.func @gelu(%sum: i32, %scale: f32, %bias: f32) -> f32 {
    %one = arith.constant 1.0 : f32
    %half = arith.constant 0.5 : f32
    %r = arith.constant 0.707106769 : f32
    %x = arith.sitofp %sum : i32 to f32
    %y = arith.mulf %x, %scale : f32
    %z = arith.addf %y, %bias : f32
    %s = arith.mulf %z, %r : f32
    %e = math.erf %s : f32
    %u = arith.addf %e, %one : f32
    %h = arith.mulf %z, %half : f32
    %g = arith.mulf %h, %u : f32
    return %g : f32
  })";

struct Shape {
  int64_t k, n;
  const char *epilogue;
};

Buffer randomBytes(ArrayRef<int64_t> shape) {
  Buffer buffer(shape, 1);
  std::mt19937 random(1);
  for (int64_t i = 0; i < buffer.size(); ++i)
    buffer.data<char>()[i] = static_cast<char>(random() >> 7);
  return buffer;
}

/// What a quantiser makes of normally distributed weights whose greatest is five standard deviations, as of a million;
/// it is more of trained ones.
Buffer quantisedNormals(ArrayRef<int64_t> shape) {
  Buffer buffer(shape, 1);
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 127 / 5.0f);
  for (int64_t i = 0; i < buffer.size(); ++i)
    buffer.data<int8_t>()[i] = std::clamp(std::lround(normal(random)), -127l, 127l);
  return buffer;
}

/// As #attn.step_order.
Buffer stepOrderOf(const Buffer &panels, const IntegerGemmSpec &spec) {
  SmallVector<int64_t> shape = spec.panelShape();
  std::vector<int32_t> numbers = stepOrder(panels.data<int8_t>(), shape[0], spec.k, shape[2], true);
  return Buffer({shape[0], spec.stepOrder().size()}, std::vector<int16_t>(numbers.begin(), numbers.end()));
}

/// GOP/s of tiles, or of independent chains in registers.
double measureBytePeak(StringRef isa) {
  constexpr int64_t kSteps = 5000, kChains = 12;
  bool hasWords = isa == "avx2";
  int64_t lanes = isa == "avxvnni" || hasWords ? 8 : 16;
  bool hasTiles = isa == "amxint8";
  auto kernel = Kernel::compile(isa, [&](OpBuilder &b, Location loc) -> FailureOr<func::FuncOp> {
    KernelFunction f(b, loc, "peak");
    Code &k = f.k;
    attn::Buffer bytes = f.buffer({2048}, b.getI8Type()), sums = f.buffer({256}, b.getI32Type());
    if (hasTiles) {
      TileRegisters tiles(k);
      Index rows = k.index(16), stride = k.index(64);
      tiles.configure(rows, rows);
      for (int64_t i = 0; i < 2; ++i) {
        tiles.load(TileRegisters::rows(i), bytes.address(), stride);
        tiles.load(TileRegisters::columns(i), bytes.address() + 1024, stride);
      }
      k.loop(0, kSteps, 1, [&](Index) {
        for (int64_t number = 0; number < 4; ++number)
          tiles.multiply("llvm.x86.tdpbusd", number / 2, number % 2);
      });
      tiles.store(TileRegisters::sum(1, 1), sums.address(), stride);
      tiles.release();
      return f.function;
    }
    Vec left = bytes.vector(4 * lanes, 0), right = bytes.vector(4 * lanes, 1024);
    Vec ones = k.splat(k.number(b.getI16Type(), int64_t(1)), 2 * lanes);
    SmallVector<Vec> chains(kChains, sums.vector(lanes, 0));
    StringRef name = lanes == 16 ? "llvm.x86.avx512.vpdpbusd.512" : "llvm.x86.avx512.vpdpbusd.256";
    chains = k.loop(0, kSteps, 1, chains, [&](Index, SmallVector<Vec> now) {
      for (Vec &sum : now) {
        if (hasWords) {
          Vec words =
              k.asVec(k.intrinsic("llvm.x86.avx2.pmadd.ub.sw", ones.type(), {bitcast(sum, b.getI8Type()), right}));
          sum = sum + k.asVec(k.intrinsic("llvm.x86.avx2.pmadd.wd", sum.type(), {words, ones}));
        } else {
          sum = k.asVec(k.intrinsic(name, sum.type(), {sum, left, right}));
        }
      }
      return now;
    });
    for (auto [n, sum] : llvm::enumerate(chains))
      sums.setVector(sum, static_cast<int64_t>(n) * lanes);
    return f.function;
  });
  if (!kernel)
    return 0;
  Buffer bytes = randomBytes({2048}), sums({256});
  double operations = 2e-9 * kSteps * (hasTiles ? 4 * 16 * 16 * 64 : kChains * lanes * 4);
  return operations / measureTime(0.1, [&] { kernel->call({&bytes, &sums}); }).best;
}

void measure(StringRef isa, const Shape &shape, ArrayRef<int64_t> rows, double peak, bool json) {
  IntegerGemmSpec used;
  auto kernel = Kernel::compile(isa, [&](OpBuilder &builder, Location loc) -> FailureOr<func::FuncOp> {
    TargetAttr target = makeTarget(*builder.getContext(), isa);
    IntegerGemmSpec spec = IntegerGemmSpec::forTarget(target, ShapedType::kDynamic, shape.k, shape.n);
    used = spec;
    OwningOpRef<ModuleOp> holder = parseSourceString<ModuleOp>(kEpilogues, builder.getContext());
    spec.hasRowZero = true;
    if (shape.epilogue) {
      spec.epilogue = &holder->lookupSymbol<func::FuncOp>(shape.epilogue).front();
      spec.operands = {EpilogueOperand::RowVector, EpilogueOperand::RowVector};
    }
    return buildIntegerGemm(builder, loc, spec);
  });
  if (!kernel)
    return;
  auto pack = Kernel::compile(isa, [&](OpBuilder &builder, Location loc) -> FailureOr<func::FuncOp> {
    return buildPackRows(builder, loc, PackRowsSpec{ShapedType::kDynamic, shape.k});
  });
  std::vector<Buffer> weights;
  SmallVector<int64_t> panels = used.panelShape();
  int64_t bytes = panels[0] * panels[1] * panels[2];
  for (int64_t i = 0; i < std::max<int64_t>(2, (256 << 20) / bytes); ++i)
    weights.push_back(quantisedNormals(panels));
  std::optional<Buffer> order; // of any: all are the same
  if (used.ordersSteps())
    order.emplace(stepOrderOf(weights[0], used));
  Buffer sums(ArrayRef<int64_t>(used.sumShape()).vec(), 4), zero({}, std::vector<char>{3});
  std::vector<float> ones(shape.n, 1e-4f);
  Buffer scale({shape.n}, ones), bias({shape.n}, ones);
  for (int64_t m : rows) {
    Buffer a = randomBytes({m, shape.k}), c({m, shape.n});
    Buffer packed({1, (m + 31) / 32, (shape.k + 63) / 64, 2048}, 1), rowSums({m}, 4);
    std::vector<const Buffer *> arguments = {&a, &weights[0], &sums, &zero};
    if (order)
      arguments.insert(arguments.begin() + 3, &*order);
    if (used.hasTiles)
      arguments.insert(arguments.begin() + 1, &packed);
    auto call = [&] {
      if (used.hasTiles)
        pack->call({&a, &packed, &rowSums});
      kernel->call(arguments);
    };
    if (shape.epilogue)
      arguments.insert(arguments.end(), {&scale, &bias});
    arguments.push_back(&c);
    const Buffer *&weight = arguments[used.hasTiles ? 2 : 1];
    size_t next = 0;
    double operations = 2e-9 * m * shape.n * shape.k;
    double hot = medianTime(0.15, call);
    double cold = medianTime(0.25, [&] {
      weight = &weights[++next % weights.size()];
      call();
    });
    const char *name = shape.epilogue ? shape.epilogue : "plain";
    const char *format = json
                             ? "{\"type\":\"bytes\",\"m\":%ld,\"n\":%ld,\"k\":%ld,\"epilogue\":\"%s\",\"peak_gf\":%.1f,"
                               "\"hot_gf\":%.1f,\"cold_gf\":%.1f,\"cold_gbs\":%.2f}\n"
                             : "%5ld %6ld %6ld %-7s | peak %5.0f GOP/s, hot %5.0f, cold %5.0f, %5.1f GB/s\n";
    std::printf(format, m, shape.n, shape.k, name, peak, operations / hot, operations / cold, 1e-9 * bytes / cold);
    std::fflush(stdout);
  }
}

} // namespace

int main(int argc, char **argv) {
  StringRef isa = hostRuns("amxint8")      ? "amxint8"
                  : hostRuns("avx512vnni") ? "avx512vnni"
                  : hostRuns("avxvnni")    ? "avxvnni"
                                           : "avx2";
  bool json = false;
  std::vector<int64_t> rows;
  for (int i = 1; i < argc; ++i) {
    int64_t m = 0;
    if (llvm::to_integer(argv[i], m))
      rows.push_back(m);
    else if (StringRef(argv[i]) == "--json")
      json = true;
    else
      isa = argv[i];
  }
  if (rows.empty())
    rows = {1, 8, 32, 50, 128, 197};
  if (!llvm::is_contained({"amxint8", "avx512vnni", "avxvnni", "avx2"}, isa) || !hostRuns(isa)) {
    std::fprintf(stderr,
                 "bench-integer-gemm: this machine does not run '%s'\n"
                 "usage: bench-integer-gemm [amxint8|avx512vnni|avxvnni|avx2] [--json] [M...]\n",
                 isa.str().c_str());
    return 1;
  }
  for (const Shape &shape : {Shape{384, 1536, nullptr}, Shape{768, 768, nullptr}, Shape{768, 768, "scaled"},
                             Shape{768, 3072, nullptr}, Shape{768, 3072, "gelu"}, Shape{3072, 768, "scaled"}})
    measure(isa, shape, rows, measureBytePeak(isa), json);
}
