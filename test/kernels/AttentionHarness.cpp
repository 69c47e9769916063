#include "test/kernels/AttentionHarness.h"

#include "mlir/Parser/Parser.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;

namespace attn::test {

std::string Attention::text(const Sizes &sizes) const {
  auto type = [&](const std::string &dims, StringRef element, bool isGrouped) {
    std::string text = "tensor<";
    for (char dim : dims)
      if (llvm::is_contained(dynamic, dim))
        text += "?x";
      else
        text += std::to_string(dim == 'h' && isGrouped ? sizes.at('h') / group : sizes.at(dim)) + "x";
    return text + element.str() + ">";
  };
  auto map = [&](const std::string &dims, bool isGrouped) {
    std::string text;
    for (char dim : dims) {
      text += text.empty() ? "" : ", ";
      text += dim;
      if (dim == 'h' && isGrouped && group > 1)
        text += " floordiv " + std::to_string(group);
    }
    return "affine_map<(b, h, i, j, d, e) -> (" + text + ")>";
  };
  std::string q = type(query, "f32", false), k = type(key, "f32", true), v = type(value, "f32", true),
              o = type(result, "f32", false), maps, args, values, types, inputs;
  for (auto &[dims, capture] : captures)
    maps += map(dims, false) + ", ";
  for (auto [n, capture] : llvm::enumerate(captures)) {
    args += llvm::formatv(", %c{0}: {1}", n, capture.second);
    values += llvm::formatv("{0}%M{1}", n ? ", " : "", n);
    types += (n ? ", " : "") + type(capture.first, capture.second, false);
    inputs += llvm::formatv(", %M{0}: {1}", n, type(capture.first, capture.second, false));
  }
  std::string text = "func.func @f(%Q: " + q + ", %K: " + k + ", %V: " + v + inputs + ") -> " + o + " {\n";
  text += "  %O = attn.attention masked_rows " + maskedRows + " maps [" + map(query, false) + ", " + map(key, true) +
          ", " + map(value, true) + ", " + maps + map(result, false) + "] ins(%Q, %K, %V : " + q + ", " + k + ", " + v +
          ")";
  if (!captures.empty())
    text += " captures(" + values + " : " + types + ")";
  text += " -> " + o;
  for (auto &[name, body] : {std::pair<std::string, std::string>("score", score), {"weight", weight}})
    if (name == "score" || !body.empty())
      text += " " + name + " {\n  ^bb0(%s: f32" + args + "):\n" + body + "\nattn.yield %y : f32\n}";
  return text + "\n  return %O : " + o + "\n}\n";
}

std::unique_ptr<Kernel> compileAttention(StringRef isa, const Attention &attention, const Sizes &sizes) {
  return Kernel::compile(isa, [&](OpBuilder &builder, Location loc) -> FailureOr<func::FuncOp> {
    auto module = parseSourceString<ModuleOp>(attention.text(sizes), builder.getContext());
    if (!module)
      return failure();
    FailureOr<func::FuncOp> kernel = failure();
    TargetAttr target = makeTarget(*builder.getContext(), isa);
    module->walk([&](AttentionOp op) { kernel = buildAttention(builder, loc, AttentionSpec::get(op, target)); });
    return kernel;
  });
}

static std::vector<int64_t> shapeOf(const std::string &dims, const Sizes &sizes, int64_t group) {
  std::vector<int64_t> shape;
  for (char dim : dims)
    shape.push_back(dim == 'h' ? sizes.at('h') / group : sizes.at(dim));
  return shape;
}

static void fill(const Buffer &buffer, unsigned seed, float scale) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, scale);
  for (int64_t n = 0; n < buffer.size(); ++n)
    buffer[n] = normal(random);
}

static size_t elementSize(StringRef type) {
  unsigned bits = 32;
  type.drop_front().getAsInteger(10, bits);
  return bits / 8;
}

Operands::Operands(const Attention &attention, const Sizes &sizes, unsigned seed)
    : attention(attention), sizes(sizes), query(shapeOf(attention.query, sizes, 1)),
      key(shapeOf(attention.key, sizes, attention.group)), value(shapeOf(attention.value, sizes, attention.group)),
      result(shapeOf(attention.result, sizes, 1)) {
  fill(query, seed, 1);
  fill(key, seed + 1, 1);
  fill(value, seed + 2, 1);
  for (auto &[dims, type] : attention.captures) {
    captures.emplace_back(shapeOf(dims, sizes, 1), elementSize(type));
    if (type == "f32")
      fill(captures.back(), seed + 3 + captures.size(), 1);
    else
      std::memset(captures.back().data<char>(), 0, captures.back().size() * elementSize(type));
  }
}

int64_t Operands::offset(const std::string &dims, const At &at, bool isGrouped) const {
  int64_t group = isGrouped ? attention.group : 1, position = 0;
  for (char dim : dims)
    position =
        dim == 'h' ? position * (sizes.at('h') / group) + at.at('h') / group : position * sizes.at(dim) + at.at(dim);
  return position;
}

std::vector<const Buffer *> Operands::all() const {
  std::vector<const Buffer *> all = {&query, &key, &value};
  for (const Buffer &capture : captures)
    all.push_back(&capture);
  all.push_back(&result);
  return all;
}

static std::string compareRow(const Operands &o, const Region &score, const Region &weight, double emptyRow, At at) {
  const Attention &a = o.attention;
  int64_t keys = o.sizes.at('j');
  std::vector<double> scores(keys), weights(keys);
  double top = -INFINITY, sum = 0, largest = 0;
  for (int64_t j = 0; j < keys; ++j) {
    at['j'] = j;
    double dot = 0;
    for (at['d'] = 0; at['d'] < o.sizes.at('d'); ++at['d'])
      dot += static_cast<double>(o.query[o.offset(a.query, at)]) * o.key[o.offset(a.key, at, true)];
    scores[j] = score(dot, at);
    top = std::fmax(top, scores[j]);
  }
  bool isEmpty = top == -INFINITY, isNan = false;
  for (int64_t j = 0; j < keys; ++j) {
    weights[j] = isEmpty ? 0 : std::exp(scores[j] - top);
    if (isEmpty && std::isinf(emptyRow))
      weights[j] = 1;
    isNan |= std::isnan(scores[j]);
    sum += weights[j];
    if (scores[j] > top - 200)
      largest = std::fmax(largest, std::fabs(scores[j]));
  }
  for (at['e'] = 0; at['e'] < o.sizes.at('e'); ++at['e']) {
    double reference = 0, magnitude = 0;
    for (int64_t j = 0; j < keys; ++j) {
      at['j'] = j;
      double w = weights[j] / sum;
      w = weight ? weight(w, at) : w;
      if (weights[j] < 1e-45 * (weight == nullptr))
        continue; // a masked key's NaN does not count
      double v = o.value[o.offset(a.value, at, true)];
      reference += w * v;
      magnitude += std::fabs(w * v);
    }
    if (isNan)
      reference = NAN;
    else if (isEmpty && keys && !std::isinf(emptyRow) && !weight)
      reference = emptyRow;
    double got = o.result[o.offset(a.result, at)];
    double bound = std::ldexp(4 + largest, -21) * magnitude + 1e-37;
    bool agrees = std::isnan(reference)   ? std::isnan(got)
                  : std::isinf(reference) ? got == reference
                                          : std::fabs(got - reference) <= bound;
    if (!agrees)
      return llvm::formatv("b={0} h={1} i={2} e={3}: got {4:f9}, expected {5:f9} within {6}e-9", at['b'], at['h'],
                           at['i'], at['e'], got, reference, bound * 1e9);
  }
  return "";
}

std::string compareWithReference(const Operands &o, const Region &score, const Region &weight, double emptyRow) {
  for (const Buffer *buffer : o.all())
    if (!buffer->guardIntact())
      return "a guard byte has changed";
  At at;
  for (at['b'] = 0; at['b'] < o.sizes.at('b'); ++at['b'])
    for (at['h'] = 0; at['h'] < o.sizes.at('h'); ++at['h'])
      for (at['i'] = 0; at['i'] < o.sizes.at('i'); ++at['i'])
        if (std::string difference = compareRow(o, score, weight, emptyRow, at); !difference.empty())
          return difference;
  return "";
}

} // namespace attn::test
