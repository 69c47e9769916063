#include "test/kernels/GemmHarness.h"

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Parser/Parser.h"
#include "llvm/ADT/APFloat.h"
#include "llvm/Support/FormatVariadic.h"
#include <cstring>
#include <random>

using namespace mlir;

namespace attn::test {

std::vector<float> randomFloats(int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> values(count);
  for (float &value : values)
    value = uniform(random);
  return values;
}

Buffer packPanels(const std::vector<float> &b, int64_t k, int64_t n, int64_t width) {
  int64_t panels = (n + width - 1) / width;
  Buffer packed({panels, k, width});
  for (int64_t p = 0; p < panels; ++p)
    for (int64_t i = 0; i < k; ++i)
      for (int64_t j = 0; j < width; ++j)
        packed[(p * k + i) * width + j] = p * width + j < n ? b[i * n + p * width + j] : 0;
  return packed;
}

NarrowPanels::NarrowPanels(const std::vector<float> &b, int64_t k, int64_t n, const GemmSpec &spec)
    : panels(panelShape(spec), spec.storage == PanelStorage::I8 ? 1 : 2), scales(scaleShape(spec)), stored(b) {
  int64_t width = spec.panelWidth();
  std::memset(panels.data<char>(), 0, panels.size() * (spec.storage == PanelStorage::I8 ? 1 : 2));
  std::fill_n(scales.data(), scales.size(), 0.0f);
  for (int64_t j = 0; j < n; ++j)
    for (int64_t i = 0; i < k; ++i) {
      float &value = stored[i * n + j];
      if (spec.storage == PanelStorage::F16) {
        llvm::APFloat half(value);
        bool lost;
        half.convert(llvm::APFloat::IEEEhalf(), llvm::APFloat::rmNearestTiesToEven, &lost);
        panels.data<uint16_t>()[(j / width * k + i) * width + j % width] = half.bitcastToAPInt().getZExtValue();
        half.convert(llvm::APFloat::IEEEsingle(), llvm::APFloat::rmNearestTiesToEven, &lost);
        value = half.convertToFloat();
        continue;
      }
      if (spec.storage == PanelStorage::BF16) {
        // The nearest multiple of the last of 8 bits.
        int exponent;
        std::frexp(value, &exponent);
        value = std::ldexp(std::nearbyint(std::ldexp(value, 8 - exponent)), exponent - 8);
        uint32_t word;
        std::memcpy(&word, &value, sizeof word);
        int64_t at = (j / width * ((k + 1) / 2) + i / 2) * 2 * width + 2 * (j % width) + i % 2;
        panels.data<uint16_t>()[at] = word >> 16;
        continue;
      }
      int64_t begin = i / spec.group * spec.group;
      float most = 0;
      for (int64_t l = begin; l < std::min(k, begin + spec.group); ++l)
        most = std::max(most, std::fabs(b[l * n + j]));
      float scale = most / 127, step = std::nearbyint(value / scale);
      value = scale * step;
      scales[(j / width * spec.scaleShape()[1] + i / spec.group) * width + j % width] = scale;
      panels.data<int8_t>()[(j / width * k + i) * width + j % width] = static_cast<int8_t>(step);
    }
}
std::unique_ptr<Kernel> compileGemm(StringRef isa, const Problem &problem) {
  return Kernel::compile(isa, [&](OpBuilder &builder, Location loc) -> FailureOr<func::FuncOp> {
    GemmSpec spec = problem.spec(makeTarget(*builder.getContext(), isa), problem.m);
    OwningOpRef<ModuleOp> holder;
    if (const Epilogue *epilogue = problem.epilogue) {
      std::vector<std::string> names = {"%p0", "%p1"};
      names.resize(epilogue->operands.size());
      names.insert(names.begin() + epilogue->accumulator, "%sum");
      std::string ins, types, maps, args;
      for (const std::string &name : names) {
        ins += ins.empty() ? "%in" : ", %in";
        types += types.empty() ? "tensor<4xf32>" : ", tensor<4xf32>";
        maps += "affine_map<(i) -> (i)>, ";
        args += name + ": f32, ";
      }
      holder = parseSourceString<ModuleOp>("func.func @f(%in: tensor<4xf32>) { %g = linalg.generic {indexing_maps = [" +
                                               maps + "affine_map<(i) -> (i)>], iterator_types = [\"parallel\"]} ins(" +
                                               ins + " : " + types + ") outs(%in : tensor<4xf32>) { ^bb0(" + args +
                                               "%out: f32):\n" + epilogue->body + " } -> tensor<4xf32>\n return }",
                                           builder.getContext());
      if (!holder)
        return failure();
      holder->walk([&](linalg::GenericOp generic) { spec.epilogue = generic.getBody(); });
      spec.operands.assign(epilogue->operands.begin(), epilogue->operands.end());
      spec.accumulator = epilogue->accumulator;
    }
    return buildGemm(builder, loc, spec);
  });
}

namespace {

/// One problem with `m` rows, its operands in memory.
class GemmRun {
public:
  GemmRun(StringRef isa, const Problem &problem, int64_t m)
      : problem(problem), epilogue(problem.epilogue ? *problem.epilogue : identity()), m(m), k(problem.k), n(problem.n),
        aValues(randomFloats(m * k, 1)), bValues(randomFloats(k * n, 2)), a({m, k}, aValues), c({m, n}) {
    MLIRContext context;
    context.loadDialect<AttnDialect>();
    GemmSpec spec = problem.spec(makeTarget(context, isa), m);
    b.emplace(packPanels(bValues, k, n, spec.panelWidth()));
    if (problem.isNarrow())
      narrow.emplace(bValues, k, n, spec);
    makeExtras();
    if (problem.gathersRows)
      gatherRows();
    arguments = {problem.gathersRows ? &*rowsAt : &a, narrow ? &narrow->panels : &*b};
    if (problem.gathersRows)
      arguments.insert(arguments.end(), {&*depthAt, &*source});
    if (problem.storage == PanelStorage::I8)
      arguments.push_back(&narrow->scales);
    firstExtra = arguments.size();
    for (Buffer &extra : extras)
      arguments.push_back(&extra);
    if (!problem.next.empty())
      arguments.push_back(&next.emplace(problem.next));
    if (GemmSpec kernel = problem.spec(makeTarget(context, isa), problem.m); kernel.hasHalfTiles)
      arguments.push_back(&parts.emplace(std::vector<int64_t>{(m + 31) / 32, kernel.rowPartShape()[1]}, size_t(2)));
    arguments.push_back(&c);
  }

  std::string check(Kernel &kernel) {
    if (!kernel.call(arguments))
      return "the arguments do not fit";
    if (!c.guardIntact())
      return "a write before C";
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j)
        if (std::string wrong = compare(i, j); !wrong.empty())
          return wrong;
    return checkCuts(kernel);
  }

private:
  static const Epilogue &identity() {
    static const Epilogue none{"", {}, [](double sum, double, double) { return sum; }};
    return none;
  }

  /// A as windows of one vector: each has steps of 1 and of 11, and begins 3 elements behind the one before.
  void gatherRows() {
    auto rowAt = [](int64_t i) { return 3 * i; };
    auto depthOf = [](int64_t l) { return l / 5 * 11 + l % 5; };
    int64_t length = m && k ? rowAt(m - 1) + depthOf(k - 1) + 1 : 0;
    source.emplace(std::vector<int64_t>{length}, randomFloats(length, 3));
    std::vector<int64_t> rowPlaces(m), depths(k);
    for (int64_t i = 0; i < m; ++i)
      rowPlaces[i] = rowAt(i);
    for (int64_t l = 0; l < k; ++l)
      depths[l] = depthOf(l);
    rowsAt.emplace(std::vector<int64_t>{m}, rowPlaces);
    depthAt.emplace(std::vector<int64_t>{k}, depths);
    for (int64_t i = 0; i < m; ++i)
      for (int64_t l = 0; l < k; ++l)
        aValues[i * k + l] = (*source)[rowAt(i) + depthOf(l)];
  }

  void makeExtras() {
    for (auto [index, kind] : llvm::enumerate(epilogue.operands)) {
      std::vector<int64_t> shape;
      if (kind == EpilogueOperand::Column || kind == EpilogueOperand::Full)
        shape.push_back(m);
      if (kind == EpilogueOperand::RowVector || kind == EpilogueOperand::Full)
        shape.push_back(n);
      int64_t count = 1;
      for (int64_t size : shape)
        count *= size;
      extras.emplace_back(shape, randomFloats(count, 10 + index));
    }
  }

  double extra(size_t index, int64_t i, int64_t j) {
    if (index >= extras.size())
      return 0;
    switch (epilogue.operands[index]) {
    case EpilogueOperand::Scalar:
      return extras[index][0];
    case EpilogueOperand::RowVector:
      return extras[index][j];
    case EpilogueOperand::Column:
      return extras[index][i];
    case EpilogueOperand::Full:
      return extras[index][i * n + j];
    }
    return 0;
  }

  /// What is wrong with one element.
  std::string compare(int64_t i, int64_t j) {
    const std::vector<float> &stored = narrow ? narrow->stored : bValues;
    // Of the weights as stored; `lost` bounds what storing them may change.
    double sum = 0, size = 0, exact = 0, lost = 0;
    for (int64_t l = 0; l < k; ++l) {
      double factor = aValues[i * k + l], product = factor * stored[l * n + j];
      sum += product;
      size += std::fabs(product);
      exact += factor * bValues[l * n + j];
      lost += std::fabs(factor) * problem.rounding(bValues[l * n + j]);
    }
    if (std::fabs(sum - exact) > lost)
      return llvm::formatv("m {0} k {1} n {2}: [{3},{4}] loses {5}", m, k, n, i, j, sum - exact);
    double expected = epilogue.reference(sum, extra(0, i, j), extra(1, i, j));
    // A scale is one more rounding, of each product or of the sum.
    double bound = epilogue.slope * std::ldexp((problem.group ? 4 : 2) + 4 * std::sqrt(k), -24) * size +
                   epilogue.error * (1 + std::fabs(expected)) + std::ldexp(std::fabs(expected), -23);
    if (!(std::fabs(c[i * n + j] - expected) <= bound))
      return llvm::formatv("m {0} k {1} n {2}: c[{3},{4}] is {5}, expects {6} within {7}", m, k, n, i, j, c[i * n + j],
                           expected, bound);
    return "";
  }

  /// The same bits for any cut of the work, and with C in place of a residual.
  std::string checkCuts(Kernel &kernel) {
    std::vector<float> whole = c.values();
    for (int64_t pieces : {2, 3, 7}) {
      c.poison();
      kernel.call(arguments, pieces);
      if (whole != c.values())
        return "other bits in " + std::to_string(pieces) + " pieces";
    }
    auto full = llvm::find(epilogue.operands, EpilogueOperand::Full);
    if (full == epilogue.operands.end())
      return "";
    size_t index = full - epilogue.operands.begin();
    arguments[firstExtra + index] = &c;
    std::copy_n(extras[index].data(), m * n, c.data());
    kernel.call(arguments, 3);
    return whole == c.values() ? "" : "other bits when a full operand is C itself";
  }

  const Problem &problem;
  const Epilogue &epilogue;
  int64_t m, k, n;
  std::vector<float> aValues, bValues;
  Buffer a, c;
  std::optional<Buffer> b, next; ///< next is too small for what is asked for: a prefetch never faults
  std::optional<Buffer> parts;   ///< of A, which the kernel writes
  std::optional<Buffer> rowsAt, depthAt, source;
  std::optional<NarrowPanels> narrow;
  std::vector<Buffer> extras;
  std::vector<const Buffer *> arguments;
  size_t firstExtra = 0;
};

} // namespace

std::string checkGemm(Kernel &kernel, StringRef isa, const Problem &problem, int64_t m) {
  return GemmRun(isa, problem, m).check(kernel);
}

} // namespace attn::test
