#include "test/kernels/AttentionHarness.h"

#include "dialects/attn/CacheOps.h"
#include "mlir/Parser/Parser.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MathExtras.h"
#include <cstdlib>
#include <iterator>

using namespace mlir;

namespace attn::test {

static std::vector<int64_t> shapeOf(const std::string &dims, const Sizes &sizes, int64_t group,
                                    const Attention::Term *list = nullptr) {
  std::vector<int64_t> shape;
  bool isList = list && list->rows;
  for (char dim : dims)
    shape.push_back(dim == 'h'             ? sizes.at('h') / group
                    : dim == 'i' && isList ? llvm::divideCeil(sizes.at('i'), list->rows)
                                           : sizes.at(dim));
  if (isList)
    shape.push_back(list->entries);
  return shape;
}

static std::string typeOf(const Attention &attention, const Sizes &sizes, const std::string &dims, StringRef element,
                          bool isGrouped, const Attention::Term *list = nullptr) {
  std::string text = "tensor<";
  std::vector<int64_t> shape = shapeOf(dims, sizes, isGrouped ? attention.group : 1, list);
  for (auto [dim, size] : llvm::zip_equal(dims + (list && list->rows ? "l" : ""), shape))
    text += llvm::is_contained(attention.dynamic, dim) ? "?x" : std::to_string(size) + "x";
  return text + element.str() + ">";
}

static std::string mapOf(const Attention &attention, const std::string &dims, bool isGrouped,
                         const Attention::Term *list = nullptr) {
  std::string text;
  for (char dim : dims) {
    text += text.empty() ? "" : ", ";
    text += dim;
    if (dim == 'h' && isGrouped && attention.group > 1)
      text += " floordiv " + std::to_string(attention.group);
    if (dim == 'i' && list && list->rows > 1)
      text += " floordiv " + std::to_string(list->rows);
  }
  return "affine_map<(b, h, i, j, d, e) -> (" + text + ")>";
}

std::string Attention::text(const Sizes &sizes) const {
  std::string maps, inputs, terms, extraTypes, extraNames, names = "%O", extraAttrs;
  struct List {
    std::string values, types;
  };
  auto add = [&](List &list, const std::string &name, const std::string &dims, StringRef element, bool isGrouped,
                 const Term *term = nullptr) {
    std::string separator = list.values.empty() ? "" : ", ",
                tensor = typeOf(*this, sizes, dims, element, isGrouped, term);
    list.values += separator + name;
    list.types += separator + tensor;
    inputs += (inputs.empty() ? "" : ", ") + name + ": " + tensor;
    maps += (maps.empty() ? "" : ", ") + mapOf(*this, dims, isGrouped, term);
  };
  List ins, captured, masks;
  add(ins, "%Q", query, element, false);
  if (kind != "given")
    add(ins, "%K", key, element, true);
  add(ins, "%V", value, element, true);
  if (kind == "additive")
    add(ins, "%A", alignment, element, false);
  std::string args;
  for (auto [n, capture] : llvm::enumerate(captures)) {
    args += llvm::formatv(", %c{0}: {1}", n, capture.second);
    add(captured, llvm::formatv("%M{0}", n), capture.first, capture.second, false);
  }
  for (auto [n, term] : llvm::enumerate(mask)) {
    terms += (n ? ", #attn." : "#attn.") + term.term;
    if (!term.type.empty())
      add(masks, llvm::formatv("%T{0}", n), term.dims, term.type, false, &term);
  }
  std::string o = typeOf(*this, sizes, result, element, false), results = o;
  maps += ", " + mapOf(*this, result, false);
  for (auto [n, extra] : llvm::enumerate(extras)) {
    std::string tensor = typeOf(*this, sizes, extra.second, "f32", false), separator = n ? ", " : "";
    extraAttrs += separator + "#attn.extra<" + extra.first + ">";
    extraTypes += separator + tensor;
    results += ", " + tensor;
    names += llvm::formatv(", %O{0}", n);
    maps += ", " + mapOf(*this, extra.second, false);
  }
  std::string text = "func.func @f(" + inputs + ") -> (" + results + ") {\n  " + names + " = attn.attention";
  if (kind != "dot")
    text += " kind " + kind;
  if (normalizer != "softmax")
    text += " normalizer " + normalizer;
  text += " masked_rows " + maskedRows;
  if (!terms.empty())
    text += " mask [" + terms + "]";
  text += " maps [" + maps + "] ins(" + ins.values + " : " + ins.types + ")";
  if (!captures.empty())
    text += " captures(" + captured.values + " : " + captured.types + ")";
  if (!masks.values.empty())
    text += " mask_operands(" + masks.values + " : " + masks.types + ")";
  text += " -> " + o;
  if (!extras.empty())
    text += " extras [" + extraAttrs + "] : " + extraTypes;
  for (auto &[name, body] : {std::pair<std::string, std::string>("score", score),
                             {"weight", weight},
                             {"activation", activation},
                             {"masked", masked}})
    if (name == "score" || !body.empty())
      text += " " + name + " {\n  ^bb0(%s: f32" + (name == "activation" ? "" : args) + "):\n" + body +
              "\nattn.yield %y : f32\n}";
  return text + "\n  return " + names + " : " + results + "\n}\n";
}

std::unique_ptr<Kernel> compileAttention(StringRef isa, const Attention &attention, const Sizes &sizes) {
  return Kernel::compile(isa, [&](OpBuilder &builder, Location loc) -> FailureOr<func::FuncOp> {
    auto module = parseSourceString<ModuleOp>(attention.text(sizes), builder.getContext());
    if (!module)
      return failure();
    FailureOr<func::FuncOp> kernel = failure();
    TargetAttr target = makeTarget(*builder.getContext(), isa);
    module->walk([&](AttentionOp op) {
      SmallVector<Value> operands(op->getOperands());
      Type stored = attention.stored == "f16"    ? Type(builder.getF16Type())
                    : attention.stored == "bf16" ? Type(builder.getBF16Type())
                                                 : Type();
      bool isInBytes = attention.stored == "bytes";
      OpBuilder before(op);
      if (stored || isInBytes)
        for (Value &operand : MutableArrayRef(operands).slice(1, attention.kind == "given" ? 1 : 2)) {
          auto wide = cast<RankedTensorType>(operand.getType());
          Type type = isInBytes ? getNarrowType(wide, builder.getI8Type()) : wide.clone(stored);
          operand = UnrealizedConversionCastOp::create(before, loc, type, operand).getResult(0);
        }
      auto spec = AttentionSpec::get(op, target, /*narrow=*/isa == "avx512bf16", operands);
      std::string reason;
      if (canBuildAttention(spec, &reason))
        kernel = buildAttention(builder, loc, spec);
      else
        emitError(loc) << reason;
    });
    return kernel;
  });
}

double readFloat(const Buffer &buffer, const std::string &type, int64_t n) {
  if (type == "f16")
    return static_cast<double>(buffer.data<_Float16>()[n]);
  if (type != "bf16")
    return buffer[n];
  uint32_t bits = static_cast<uint32_t>(buffer.data<uint16_t>()[n]) << 16;
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

static void fill(const Buffer &buffer, const std::string &type, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 1);
  for (int64_t n = 0; n < buffer.size(); ++n) {
    float value = normal(random);
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    if (type == "f16")
      buffer.data<_Float16>()[n] = static_cast<_Float16>(value);
    else if (type == "bf16")
      buffer.data<uint16_t>()[n] = bits >> 16;
    else
      buffer[n] = value;
  }
}

/// Rows of `width` codes, each with a scale behind it.
static void fillBytes(const Buffer &buffer, int64_t width, unsigned seed) {
  std::mt19937 random(seed);
  for (int64_t row = 0; row < buffer.size(); row += width + kScaleBytes) {
    for (int64_t n = 0; n < width; ++n)
      buffer.data<int8_t>()[row + n] = static_cast<int8_t>(static_cast<int>(random() % 255) - 127);
    float scale = static_cast<float>(1 + random() % 1000) / 50000;
    std::memcpy(buffer.data<int8_t>() + row + width, &scale, sizeof(scale));
  }
}

static size_t elementSize(StringRef type) {
  if (type == "bytes")
    return 1;
  if (type == "index")
    return 8;
  unsigned bits = 32;
  type.drop_front(type.starts_with("bf") ? 2 : 1).getAsInteger(10, bits);
  return bits / 8;
}

/// Of keys or values.
static std::vector<int64_t> storedShape(const Attention &a, const std::string &dims, const Sizes &sizes) {
  std::vector<int64_t> shape = shapeOf(dims, sizes, a.group);
  if (a.stored == "bytes" && !shape.empty())
    shape.back() += kScaleBytes;
  return shape;
}

Operands::Operands(const Attention &a, const Sizes &sizes, unsigned seed)
    : attention(a), sizes(sizes), query(shapeOf(a.query, sizes, 1), elementSize(a.element)),
      key(storedShape(a, a.kind == "given" ? "" : a.key, sizes), elementSize(a.storedElement())),
      value(storedShape(a, a.value, sizes), elementSize(a.storedElement())),
      alignment(shapeOf(a.kind == "additive" ? a.alignment : "", sizes, 1), elementSize(a.element)),
      result(shapeOf(a.result, sizes, 1), elementSize(a.element)) {
  fill(query, a.element, seed);
  if (a.stored == "bytes") {
    fillBytes(key, sizes.at('d'), seed + 1);
    fillBytes(value, sizes.at('e'), seed + 2);
  } else {
    fill(key, a.storedElement(), seed + 1);
    fill(value, a.storedElement(), seed + 2);
  }
  fill(alignment, a.element, seed + 3);
  for (auto &[dims, type] : a.captures) {
    captures.emplace_back(shapeOf(dims, sizes, 1), elementSize(type));
    if (type == "f32")
      fill(captures.back(), type, seed + 3 + captures.size());
    else
      std::memset(captures.back().data<char>(), 0, captures.back().size() * elementSize(type));
  }
  for (const Attention::Term &term : a.mask) {
    mask.emplace_back(shapeOf(term.dims, sizes, 1, &term), term.type.empty() ? 1 : elementSize(term.type));
    std::memset(mask.back().data<char>(), 0, mask.back().size() * elementSize(term.type.empty() ? "i8" : term.type));
  }
  for (auto &[source, dims] : a.extras)
    extras.emplace_back(shapeOf(dims, sizes, 1));
}

int64_t Operands::offset(const std::string &dims, const At &at, bool isGrouped) const {
  int64_t group = isGrouped ? attention.group : 1, position = 0;
  for (char dim : dims)
    position =
        dim == 'h' ? position * (sizes.at('h') / group) + at.at('h') / group : position * sizes.at(dim) + at.at(dim);
  return position;
}

std::vector<const Buffer *> Operands::all() const {
  std::vector<const Buffer *> all = {&query};
  if (attention.kind != "given")
    all.push_back(&key);
  all.push_back(&value);
  if (attention.kind == "additive")
    all.push_back(&alignment);
  for (const Buffer &capture : captures)
    all.push_back(&capture);
  for (auto [term, buffer] : llvm::zip_equal(attention.mask, mask))
    if (!term.type.empty())
      all.push_back(&buffer);
  all.push_back(&result);
  for (const Buffer &extra : extras)
    all.push_back(&extra);
  return all;
}

namespace {

/// The operands as numbers: each element is read once, not in each row of the reference.
struct Numbers {
  explicit Numbers(const Operands &o);
  std::vector<double> query, key, value, alignment;
};

std::vector<double> floatsOf(const Buffer &buffer, const std::string &type) {
  std::vector<double> numbers(buffer.size());
  for (int64_t n = 0; n < buffer.size(); ++n)
    numbers[n] = readFloat(buffer, type, n);
  return numbers;
}

/// Keys or values, whose rows are `width` elements.
std::vector<double> storedOf(const Buffer &buffer, const Attention &a, int64_t width) {
  if (a.stored != "bytes")
    return floatsOf(buffer, a.storedElement());
  std::vector<double> numbers;
  for (int64_t at = 0; at < buffer.size(); at += width + kScaleBytes) {
    const int8_t *row = buffer.data<int8_t>() + at;
    float scale;
    std::memcpy(&scale, row + width, sizeof(scale));
    for (int64_t n = 0; n < width; ++n)
      numbers.push_back(static_cast<double>(row[n]) * scale);
  }
  return numbers;
}

Numbers::Numbers(const Operands &o)
    : query(floatsOf(o.query, o.attention.element)), value(storedOf(o.value, o.attention, o.sizes.at('e'))) {
  if (o.attention.kind != "given")
    key = storedOf(o.key, o.attention, o.sizes.at('d'));
  if (o.attention.kind == "additive")
    alignment = floatsOf(o.alignment, o.attention.element);
}

/// The elements of an operand along `dim`, from `at` on.
class Line {
public:
  Line(const Operands &o, const std::vector<double> &numbers, const std::string &dims, At at, char dim,
       bool isGrouped = false)
      : numbers(numbers) {
    at[dim] = 0;
    first = o.offset(dims, at, isGrouped);
    at[dim] = 1;
    step = o.offset(dims, at, isGrouped) - first;
  }
  double operator[](int64_t n) const { return numbers[first + n * step]; }

private:
  const std::vector<double> &numbers;
  int64_t first, step;
};

/// One row of the reference: all in fp64, stage by stage.
struct Row {
  const Operands &o;
  const Attention &a;
  const Numbers &numbers;
  const Reference &reference;
  std::vector<double> raw, scores, masked, weights, final;
  double largest = 0, sum = 0, top = -INFINITY, magnitude = 0;
  bool isEmpty = false, isNan = false;

  Row(const Operands &o, const Numbers &numbers, const Reference &reference, At at);
  double rawScore(At at);
  std::string compare(const std::string &what, const At &at, double got, double expected, double scale,
                      const std::string &element);
  std::string compareResult(At at);
  std::string compareExtras(At at);
};

double Row::rawScore(At at) {
  if (a.kind == "given")
    return numbers.query[o.offset(a.query, at)];
  Line q(o, numbers.query, a.query, at, 'd'), k(o, numbers.key, a.key, at, 'd', true);
  int64_t width = o.sizes.at('d');
  double sum = 0;
  if (a.kind == "dot") {
    for (int64_t d = 0; d < width; ++d)
      sum += q[d] * k[d];
  } else if (a.kind == "distance") {
    for (int64_t d = 0; d < width; ++d)
      sum += (q[d] - k[d]) * (q[d] - k[d]);
  } else {
    Line v(o, numbers.alignment, a.alignment, at, 'd');
    for (int64_t d = 0; d < width; ++d) {
      sum += v[d] * (reference.activation ? reference.activation(q[d] + k[d]) : q[d] + k[d]);
      magnitude = std::fmax(magnitude, std::fabs(v[d])); // how far the terms reach
    }
  }
  return sum;
}

Row::Row(const Operands &o, const Numbers &numbers, const Reference &reference, At at)
    : o(o), a(o.attention), numbers(numbers), reference(reference) {
  bool isSoftmax = a.normalizer == "softmax";
  int64_t keys = o.sizes.at('j');
  auto isVisible = [&](const At &at) { return !reference.visible || reference.visible(at); };
  for (at['j'] = 0; at['j'] < keys; ++at['j']) {
    raw.push_back(rawScore(at));
    scores.push_back(reference.score ? reference.score(raw.back(), at) : raw.back());
    masked.push_back(isVisible(at) ? scores.back() : isSoftmax ? -INFINITY : 0);
    top = std::fmax(top, masked.back());
    sum += masked.back();
    isNan |= std::isnan(masked.back());
  }
  isEmpty = !isNan && (isSoftmax ? top == -INFINITY : a.normalizer == "sum" && sum == 0);
  if (isEmpty && a.maskedRows == "finite" && reference.visible)
    for (at['j'] = 0; at['j'] < keys; ++at['j'])
      if (!isVisible(at)) {
        masked[at['j']] = reference.masked ? reference.masked(scores[at['j']], at) : scores[at['j']];
        top = std::fmax(top, masked[at['j']]);
        isEmpty = false;
      }
  if (isSoftmax)
    sum = 0;
  for (int64_t j = 0; j < keys; ++j) {
    if (masked[j] > top - 200)
      largest = std::fmax(largest, std::fabs(masked[j]));
    weights.push_back(isSoftmax ? (isEmpty ? 0 : std::exp(masked[j] - top)) : masked[j]);
    if (isSoftmax)
      sum += weights[j];
  }
  for (at['j'] = 0; at['j'] < keys; ++at['j']) {
    double &w = weights[at['j']];
    if (isEmpty)
      w = std::isinf(reference.emptyRow) ? 1.0 / keys : reference.emptyRow;
    else if (a.normalizer != "none")
      w /= sum;
    bool isHidden = !isVisible(at) && w == 0;
    final.push_back(reference.weight && !isHidden ? reference.weight(w, at) : w);
  }
}

std::string Row::compare(const std::string &what, const At &at, double got, double expected, double scale,
                         const std::string &element) {
  double bound = std::ldexp(4 + largest, -21) * scale + 1e-37;
  if (element != "f32")
    bound += std::ldexp(scale + std::fabs(expected), element == "f16" ? -11 : -8);
  if (a.kind == "additive") // sums of terms that do not cancel
    bound += 3e-6 * magnitude * std::sqrt(static_cast<double>(o.sizes.at('d'))) * scale;
  bool agrees = std::isnan(expected)   ? std::isnan(got)
                : std::isinf(expected) ? got == expected
                                       : std::fabs(got - expected) <= bound;
  if (agrees)
    return "";
  return llvm::formatv("{0} at b={1} h={2} i={3} j={4} e={5}: got {6:f9}, expected {7:f9} within {8}e-9", what,
                       at.at('b'), at.at('h'), at.at('i'), at.at('j'), at.at('e'), got, expected, bound * 1e9);
}

std::string Row::compareResult(At at) {
  int64_t keys = o.sizes.at('j');
  std::vector<bool> counts(keys);
  for (at['j'] = 0; at['j'] < keys; ++at['j']) {
    // A hidden key's NaN does not count, nor does that of one whose weight is 0 in f32.
    double weight = final[at['j']];
    bool isHidden = weight == 0 && (isEmpty || (reference.visible && !reference.visible(at)));
    bool isZero = !reference.weight && !isEmpty && std::fabs(weights[at['j']] * sum) < 1e-45;
    counts[at['j']] = !isHidden && !isZero;
  }
  for (at['e'] = 0; at['e'] < o.sizes.at('e'); ++at['e']) {
    double expected = 0, scale = 0;
    Line values(o, numbers.value, a.value, at, 'j', true);
    for (int64_t j = 0; j < keys; ++j) {
      if (!counts[j])
        continue;
      double term = final[j] * values[j];
      expected += term;
      scale += std::fabs(term);
    }
    if (isNan)
      expected = NAN;
    else if (isEmpty && keys && !std::isinf(reference.emptyRow) && !reference.weight)
      expected = reference.emptyRow;
    at['j'] = 0;
    double got = readFloat(o.result, a.element, o.offset(a.result, at));
    if (std::string text = compare("result", at, got, expected, scale, a.element); !text.empty())
      return text;
  }
  return "";
}

std::string Row::compareExtras(At at) {
  for (auto [n, extra] : llvm::enumerate(a.extras)) {
    const std::string &source = extra.first;
    const std::vector<double> &expected = source == "raw_scores"      ? raw
                                          : source == "scores"        ? scores
                                          : source == "masked_scores" ? masked
                                          : source == "weights"       ? weights
                                                                      : final;
    int64_t count = source == "lse" ? 1 : o.sizes.at('j');
    for (at['j'] = 0; at['j'] < count; ++at['j']) {
      double got = o.extras[n][o.offset(extra.second, at)];
      double e = source == "lse" ? (isEmpty ? -INFINITY : top + std::log(sum)) : expected[at['j']];
      double scale = source.find("weights") != std::string::npos ? std::fabs(e) : 1 + std::fabs(e);
      if (source.find("weights") != std::string::npos && std::fabs(e) < 1e-36)
        scale = 0;
      if (std::string text = compare(source, at, got, e, scale, "f32"); !text.empty())
        return text;
    }
  }
  return "";
}

} // namespace

std::string compareWithReference(const Operands &o, const Reference &reference) {
  for (const Buffer *buffer : o.all())
    if (!buffer->guardIntact())
      return "a guard byte has changed";
  Numbers numbers(o);
  At at;
  for (at['b'] = 0; at['b'] < o.sizes.at('b'); ++at['b'])
    for (at['h'] = 0; at['h'] < o.sizes.at('h'); ++at['h'])
      for (at['i'] = 0; at['i'] < o.sizes.at('i'); ++at['i']) {
        Row row(o, numbers, reference, at);
        if (std::string difference = row.compareResult(at); !difference.empty())
          return difference;
        if (std::string difference = row.compareExtras(at); !difference.empty())
          return difference;
      }
  return "";
}

bool isInThisRun(llvm::StringRef test, llvm::StringRef isa) {
  if (std::getenv("ATTNC_FULL"))
    return true;
  unsigned sum = 0;
  for (char c : test.split('/').first)
    sum += static_cast<unsigned char>(c);
  size_t chosen = sum % std::size(kIsas);
  while (chosen > 0 && !hostRuns(kIsas[chosen]))
    --chosen;
  return isa == kIsas[chosen];
}

} // namespace attn::test
