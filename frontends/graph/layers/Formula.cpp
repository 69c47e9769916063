#include "dialects/attn/NodeLocation.h"
#include "frontends/graph/Layer.h"
#include "frontends/graph/Limits.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"
#include <cmath>

// Elementwise expressions over values in scope: "sigmoid(o) * tanh(cell)".
//
//   sum     = product {("+" | "-") product}
//   product = unary {("*" | "/") unary}
//   unary   = "-" unary | number | name | name "(" sum {"," sum} ")" | "(" sum ")"

using namespace mlir;

namespace attn::graph {
namespace {

struct Function {
  StringLiteral name, op;
  unsigned arguments;
};

constexpr Function functions[] = {
    {"abs", "Abs", 1},         {"cos", "Cos", 1},         {"elu", "Elu", 1},     {"exp", "Exp", 1},
    {"floor", "Floor", 1},     {"gelu", "Gelu", 1},       {"log", "Log", 1},     {"not", "Not", 1},
    {"relu", "Relu", 1},       {"sigmoid", "Sigmoid", 1}, {"sin", "Sin", 1},     {"softplus", "Softplus", 1},
    {"sqrt", "Sqrt", 1},       {"tanh", "Tanh", 1},       {"and", "And", 2},     {"equal", "Equal", 2},
    {"greater", "Greater", 2}, {"less", "Less", 2},       {"max", "Max", 2},     {"min", "Min", 2},
    {"or", "Or", 2},           {"pow", "Pow", 2},         {"where", "Where", 3}, {"leaky_relu", "LeakyRelu", 2},
};

class Formula {
public:
  explicit Formula(Layer &l) : l(l), field(*l.json.find("value")), text(field.text) {}

  void build() {
    Operand result = sum(0);
    if (skip(), !l.failed() && next < text.size())
      fail() << "expected an operator, found '" << printableName(text.substr(next, 1)) << "'";
    if (!l.failed() && result.literal)
      fail() << "a formula of numbers alone has no type; a fill has";
    l.set(result.tensor);
  }

private:
  /// A tensor, or a number that takes the type of what it meets.
  struct Operand {
    Tensor tensor;
    std::optional<double> literal;
  };

  InFlightDiagnostic fail() {
    // The column within the string holds while it has no escapes.
    Json at = field;
    at.at.column += next + 1;
    return l.error(&at);
  }
  void skip() {
    while (next < text.size() && llvm::isSpace(text[next]))
      ++next;
  }
  bool take(char c) {
    skip();
    if (next >= text.size() || text[next] != c)
      return false;
    ++next;
    return true;
  }

  /// The operands in one type.
  bool unify(MutableArrayRef<Operand> operands) {
    const Tensor *typed = nullptr;
    for (Operand &operand : operands)
      if (!operand.literal && !typed)
        typed = &operand.tensor;
    for (Operand &operand : operands) {
      if (l.failed())
        return false;
      if (!operand.literal) {
        if (operand.tensor.dtype != typed->dtype)
          fail() << "joins " << onnx::dtypeName(typed->dtype) << " and " << onnx::dtypeName(operand.tensor.dtype)
                 << "; a cast makes them one type";
        continue;
      }
      if (typed && !onnx::isFloat(typed->dtype) &&
          (*operand.literal != std::trunc(*operand.literal) || std::abs(*operand.literal) > 9e15))
        fail() << "joins " << onnx::dtypeName(typed->dtype) << " and a number that is no integer of it";
      else if (typed)
        operand.tensor = Layer::scalar(typed->dtype, *operand.literal);
    }
    return !l.failed();
  }

  Operand apply(StringRef op, Operand a, Operand b) {
    if (a.literal && b.literal) {
      double x = *a.literal, y = *b.literal;
      return {{}, op == "Add" ? x + y : op == "Sub" ? x - y : op == "Mul" ? x * y : x / y};
    }
    Operand both[] = {std::move(a), std::move(b)};
    if (!unify(both))
      return {};
    return {l.op(op, {both[0].tensor, both[1].tensor}), std::nullopt};
  }

  Operand sum(unsigned depth) {
    Operand result = product(depth);
    while (!l.failed()) {
      StringRef op = take('+') ? "Add" : take('-') ? "Sub" : "";
      if (op.empty())
        break;
      result = apply(op, std::move(result), product(depth));
    }
    return result;
  }

  Operand product(unsigned depth) {
    Operand result = unary(depth);
    while (!l.failed()) {
      StringRef op = take('*') ? "Mul" : take('/') ? "Div" : "";
      if (op.empty())
        break;
      result = apply(op, std::move(result), unary(depth));
    }
    return result;
  }

  Operand unary(unsigned depth) {
    if (depth == kMaxFormulaDepth) {
      fail() << "the formula is nested deeper than " << kMaxFormulaDepth;
      return {};
    }
    if (take('-')) {
      Operand inner = unary(depth + 1);
      if (inner.literal)
        return {{}, -*inner.literal};
      return {l.op("Neg", {inner.tensor}), std::nullopt};
    }
    if (take('(')) {
      Operand inner = sum(depth + 1);
      close();
      return inner;
    }
    skip();
    if (next < text.size() && (llvm::isDigit(text[next]) || text[next] == '.'))
      return number();
    return nameOrCall(depth);
  }

  void close() {
    if (!l.failed() && !take(')'))
      fail() << "expected ')'";
  }

  Operand number() {
    size_t end = next;
    while (end < text.size() &&
           (llvm::isAlnum(text[end]) || text[end] == '.' ||
            ((text[end] == '-' || text[end] == '+') && (text[end - 1] == 'e' || text[end - 1] == 'E'))))
      ++end;
    double value = 0;
    if (text.slice(next, end).getAsDouble(value) || !std::isfinite(value))
      fail() << "'" << printableName(text.slice(next, end)) << "' is not a number";
    next = end;
    return {{}, value};
  }

  Operand nameOrCall(unsigned depth) {
    size_t end = next;
    while (end < text.size() && (llvm::isAlnum(text[end]) || StringRef("_.{}").contains(text[end])))
      ++end;
    StringRef name = text.slice(next, end);
    if (name.empty()) {
      InFlightDiagnostic diagnostic = fail();
      diagnostic << "expected a value, found ";
      if (next < text.size())
        diagnostic << "'" << printableName(text.substr(next, 1)) << "'";
      else
        diagnostic << "the end of the formula";
      return {};
    }
    Json at = field;
    at.at.column += next + 1;
    next = end;
    if (take('('))
      return call(name, at, depth);
    return {l.lookup(name, at), std::nullopt};
  }

  Operand call(StringRef name, const Json &at, unsigned depth) {
    const Function *function = llvm::find_if(functions, [&](const Function &f) { return f.name == name; });
    if (function == std::end(functions)) {
      l.error(&at) << "there is no function '" << printableName(name) << "'";
      return {};
    }
    SmallVector<Operand, 3> arguments;
    do
      arguments.push_back(sum(depth + 1));
    while (!l.failed() && take(','));
    close();
    if (l.failed())
      return {};
    if (arguments.size() != function->arguments) {
      l.error(&at) << "'" << name << "' takes " << function->arguments << " arguments, not " << arguments.size();
      return {};
    }
    return {evaluate(*function, arguments, at), std::nullopt};
  }

  Tensor evaluate(const Function &function, MutableArrayRef<Operand> arguments, const Json &at) {
    MutableArrayRef<Operand> unified = arguments;
    if (function.name == "where")
      unified = arguments.drop_front();
    if (function.name == "leaky_relu") {
      if (!arguments[1].literal || arguments[0].literal) {
        l.error(&at) << "'leaky_relu' takes a value and a number, its slope";
        return {};
      }
      return l.op(function.op, {arguments[0].tensor}, {{"alpha", *arguments[1].literal}});
    }
    if (llvm::all_of(unified, [](const Operand &operand) { return operand.literal.has_value(); }) ||
        arguments[0].literal) {
      if (function.name == "where" && !arguments[0].literal) { // numbers chosen: float32
        for (Operand &operand : unified)
          operand.tensor = Layer::scalar(DType::F32, *operand.literal), operand.literal.reset();
      } else if (llvm::all_of(unified, [](const Operand &operand) { return operand.literal.has_value(); }) ||
                 function.name == "where") {
        l.error(&at) << "'" << function.name << "' of numbers alone has no type";
        return {};
      }
    }
    if (!unify(unified))
      return {};
    std::vector<std::optional<Tensor>> operands;
    for (Operand &operand : arguments)
      operands.push_back(operand.tensor);
    if (function.name == "where")
      operands[0] = l.cast(*operands[0], DType::Bool);
    return l.op(function.op, operands);
  }

  Layer &l;
  const Json &field;
  StringRef text;
  size_t next = 0;
};

} // namespace

LayerFn findFormulaLayer(StringRef type) {
  return type == "formula" ? LayerFn([](Layer &l) { Formula(l).build(); }) : nullptr;
}

} // namespace attn::graph
