// Prints GFLOP/s of the GEMM kernel on one thread, hot (one weight) and cold
// (rotating over 256 MB of weights, as a real network does), as a share of a bare
// FMA loop timed beside it.
//
//   bench-gemm [avx512bf16|avx512|avx2|portable] [f32|bf16|int8] [--json] [M...]
//
// bf16: both factors where the processor multiplies them (the peak stays that of
// f32), else the weights alone, as int8. --json: a line of JSON for each.
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

GemmSpec makeSpec(TargetAttr target, const Shape &shape, StringRef type) {
  GemmSpec spec = GemmSpec::forTarget(target, ShapedType::kDynamic, shape.k, shape.n);
  if (type == "bf16") {
    spec.storage = PanelStorage::BF16;
    spec.hasNarrowRows = hasNarrowProducts(target) && shape.k % 2 == 0;
  } else if (type == "int8") {
    spec.storage = PanelStorage::I8;
    spec.group = shape.k;
  }
  return spec;
}

void measure(StringRef isa, const Shape &shape, StringRef type, ArrayRef<int64_t> rows, double peak, bool json) {
  GemmSpec used;
  auto kernel = Kernel::compile(isa, [&](OpBuilder &builder, Location loc) -> FailureOr<func::FuncOp> {
    GemmSpec spec = makeSpec(makeTarget(*builder.getContext(), isa), shape, type);
    used = spec;
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
  int64_t element = type == "int8" ? 1 : type == "bf16" ? 2 : 4, bytes = element;
  SmallVector<int64_t> panelShape = used.panelShape(), scaleShape;
  for (int64_t size : panelShape)
    bytes *= size;
  auto filled = [](ArrayRef<int64_t> shape, int64_t element) {
    Buffer buffer({shape.begin(), shape.end()}, element);
    for (int64_t i = 0; i < buffer.size(); ++i) // 0.25 in each type, or a whole number
      if (element == 4)
        buffer[i] = 0.25f;
      else if (element == 2)
        buffer.data<uint16_t>()[i] = 0x3e80;
      else
        buffer.data<char>()[i] = 1;
    return buffer;
  };
  std::vector<Buffer> weights, scales;
  for (int64_t i = 0; i < std::max<int64_t>(2, (256 << 20) / bytes); ++i)
    weights.push_back(filled(panelShape, element));
  if (type == "int8")
    scales.push_back(filled(used.scaleShape(), 4));
  for (int64_t m : rows) {
    Buffer a = filled({m, shape.k}, used.hasNarrowRows ? 2 : 4), c({m, shape.n});
    std::vector<Buffer> extras;
    for (EpilogueOperand kind : shape.operands)
      extras.push_back(kind == EpilogueOperand::Full ? Buffer({m, shape.n}, std::vector<float>(m * shape.n, 0.5f))
                                                     : Buffer({shape.n}, std::vector<float>(shape.n, 0.5f)));
    std::vector<const Buffer *> arguments = {&a, &weights[0]};
    for (Buffer &scale : scales)
      arguments.push_back(&scale);
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
    if (json) {
      std::printf("{\"type\":\"%s\",\"m\":%ld,\"n\":%ld,\"k\":%ld,\"peak_gf\":%.1f,\"hot_gf\":%.1f,\"cold_gf\":%.1f,"
                  "\"cold_gbs\":%.2f}\n",
                  type.str().c_str(), m, shape.n, shape.k, peak, flops / hot, flops / cold, 1e-9 * bytes / cold);
      std::fflush(stdout);
      continue;
    }
    std::printf("%5ld %6ld %6ld %-9s | hot %6.1f GF %4.0f%% | cold %6.1f GF %4.0f%% %6.1f GB/s\n", m, shape.n, shape.k,
                shape.name, flops / hot, 100 * flops / hot / peak, flops / cold, 100 * flops / cold / peak,
                1e-9 * bytes / cold);
    std::fflush(stdout);
  }
}

} // namespace

int main(int argc, char **argv) {
  StringRef isa = hostRuns("avx512") ? "avx512" : hostRuns("avx2") ? "avx2" : "portable";
  StringRef type = "f32";
  bool json = false;
  std::vector<int64_t> rows;
  for (int i = 1; i < argc; ++i) {
    int64_t m = 0;
    if (llvm::to_integer(argv[i], m))
      rows.push_back(m);
    else if (StringRef(argv[i]) == "--json")
      json = true;
    else if (llvm::is_contained({"f32", "bf16", "int8"}, StringRef(argv[i])))
      type = argv[i];
    else if (StringRef(argv[i]).starts_with("-")) {
      std::fprintf(stderr, "usage: bench-gemm [avx512bf16|avx512|avx2|portable] [f32|bf16|int8] [--json] [M...]\n");
      return 1;
    } else {
      isa = argv[i];
    }
  }
  if (rows.empty())
    rows = {1, 32, 50, 128, 197};
  if (type == "bf16" && isa == "avx512" && hostRuns("avx512bf16"))
    isa = "avx512bf16";
  if ((!llvm::is_contained(kIsas, isa) && isa != "avx512bf16") || !hostRuns(isa)) {
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
                                               {768, 2304, "plain"},
                                               {768, 3072, "gelu", kGelu, {Kind::RowVector}},
                                               {3072, 768, "plain"}}) {
    double peak = measurePeak(isa == "avx512bf16" ? "avx512" : isa, lanes);
    if (!json)
      std::printf("%s %s peak %.0f GF\n", isa.str().c_str(), type.str().c_str(), peak);
    measure(isa, shape, type, rows, peak, json);
  }
}
