// Prints GFLOP/s of the GEMM kernel on one thread, hot (one weight) and cold
// (rotating over 256 MB of weights, as a real network does), as a share of a bare
// FMA loop timed beside it.
//
//   bench-gemm [avx512|avx2|portable] [M...]
#include "passes/kernels/cpu/Gemm.h"
#include "test/kernels/Measure.h"

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Parser/Parser.h"
#include "llvm/ADT/StringExtras.h"
#include <cstdio>

using namespace mlir;
using namespace attn;
using namespace attn::test;

namespace {

const char *const kGelu = R"(func.func @f(%t: tensor<4xf32>) {
  %one = arith.constant 1.0 : f32
  %half = arith.constant 0.5 : f32
  %r = arith.constant 0.707106769 : f32
  %g = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
      iterator_types = ["parallel"]} ins(%t, %t : tensor<4xf32>, tensor<4xf32>) outs(%t : tensor<4xf32>) {
  ^bb0(%sum: f32, %p: f32, %o: f32):
    %x = arith.addf %sum, %p : f32
    %s = arith.mulf %x, %r : f32
    %e = math.erf %s : f32
    %u = arith.addf %e, %one : f32
    %h = arith.mulf %x, %half : f32
    %y = arith.mulf %h, %u : f32
    linalg.yield %y : f32
  } -> tensor<4xf32>
  return
})";
const char *const kResidual = R"(func.func @f(%t: tensor<4xf32>) {
  %g = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>, affine_map<(i) -> (i)>,
      affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%t, %t, %t : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) outs(%t : tensor<4xf32>) {
  ^bb0(%sum: f32, %p: f32, %q: f32, %o: f32):
    %x = arith.addf %sum, %p : f32
    %y = arith.addf %x, %q : f32
    linalg.yield %y : f32
  } -> tensor<4xf32>
  return
})";

struct Shape {
  int64_t k, n;
  const char *name;
  const char *epilogue = nullptr;
  std::vector<EpilogueOperand> operands = {};
};

void measure(StringRef isa, const Shape &shape, ArrayRef<int64_t> rows, double peak) {
  int64_t width = 0;
  auto kernel = Kernel::compile(isa, [&](OpBuilder &builder, Location loc) -> FailureOr<func::FuncOp> {
    GemmSpec spec = GemmSpec::forTarget(makeTarget(*builder.getContext(), isa), ShapedType::kDynamic, shape.k, shape.n);
    width = spec.panelWidth();
    OwningOpRef<ModuleOp> holder;
    if (shape.epilogue) {
      holder = parseSourceString<ModuleOp>(shape.epilogue, builder.getContext());
      holder->walk([&](linalg::GenericOp generic) { spec.epilogue = generic.getBody(); });
      spec.operands.assign(shape.operands.begin(), shape.operands.end());
    }
    return buildGemm(builder, loc, spec);
  });
  if (!kernel)
    return;
  int64_t panels = (shape.n + width - 1) / width, floats = panels * shape.k * width;
  std::vector<Buffer> weights;
  for (int64_t i = 0; i < std::max<int64_t>(2, (256 << 20) / (4 * floats)); ++i)
    weights.emplace_back(std::vector<int64_t>{panels, shape.k, width}, std::vector<float>(floats, 0.25f));
  for (int64_t m : rows) {
    Buffer a({m, shape.k}, std::vector<float>(m * shape.k, 0.5f)), c({m, shape.n});
    std::vector<Buffer> extras;
    for (EpilogueOperand kind : shape.operands)
      extras.push_back(kind == EpilogueOperand::Full ? Buffer({m, shape.n}, std::vector<float>(m * shape.n, 0.5f))
                                                     : Buffer({shape.n}, std::vector<float>(shape.n, 0.5f)));
    std::vector<const Buffer *> arguments = {&a, &weights[0]};
    for (Buffer &extra : extras)
      arguments.push_back(&extra);
    arguments.push_back(&c);
    size_t next = 0;
    double flops = 2e-9 * m * shape.n * shape.k;
    double hot = medianTime(0.15, [&] { kernel->call(arguments); });
    double cold = medianTime(0.25, [&] {
      arguments[1] = &weights[++next % weights.size()];
      kernel->call(arguments);
    });
    std::printf("%5ld %6ld %6ld %-9s | hot %6.1f GF %4.0f%% | cold %6.1f GF %4.0f%% %6.1f GB/s\n", m, shape.n, shape.k,
                shape.name, flops / hot, 100 * flops / hot / peak, flops / cold, 100 * flops / cold / peak,
                4e-9 * floats / cold);
    std::fflush(stdout);
  }
}

} // namespace

int main(int argc, char **argv) {
  StringRef isa = hostRuns("avx512") ? "avx512" : hostRuns("avx2") ? "avx2" : "portable";
  std::vector<int64_t> rows;
  for (int i = 1; i < argc; ++i) {
    int64_t m = 0;
    if (llvm::to_integer(argv[i], m))
      rows.push_back(m);
    else
      isa = argv[i];
  }
  if (rows.empty())
    rows = {1, 32, 50, 128, 197};
  if (!llvm::is_contained(kIsas, isa) || !hostRuns(isa)) {
    std::fprintf(stderr, "bench-gemm: this machine does not run '%s'\n", isa.str().c_str());
    return 1;
  }
  MLIRContext context;
  context.loadDialect<AttnDialect>();
  int64_t lanes = makeTarget(context, isa).getF32Lanes();
  using Kind = EpilogueOperand;
  for (const Shape &shape : std::vector<Shape>{{384, 384, "plain"},
                                               {384, 384, "residual", kResidual, {Kind::RowVector, Kind::Full}},
                                               {384, 1536, "plain"},
                                               {384, 1536, "gelu", kGelu, {Kind::RowVector}},
                                               {1536, 384, "plain"},
                                               {768, 768, "plain"},
                                               {768, 3072, "gelu", kGelu, {Kind::RowVector}},
                                               {3072, 768, "plain"}}) {
    double peak = measurePeak(isa, lanes);
    std::printf("%s peak %.0f GF\n", isa.str().c_str(), peak);
    measure(isa, shape, rows, peak);
  }
}
