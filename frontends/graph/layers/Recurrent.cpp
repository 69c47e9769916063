#include "frontends/graph/Layer.h"
#include "llvm/ADT/StringSwitch.h"
#include <cstring>

// Recurrent layers and single steps of them. Weights have PyTorch's names, and
// its order of gates; the operators have another one.

using namespace mlir;

namespace attn::graph {
namespace {

class Recurrent {
public:
  explicit Recurrent(Layer &l) : l(l), kind(l.type().split('_').first), isCell(l.type().ends_with("_cell")) {}

  void build() {
    Tensor x = l.value("input");
    if (!l.expectRank(x, isCell ? 2 : 3, "its input") || !l.expectFloat(x, "its input"))
      return;
    if (isCell)
      buildCell(x);
    else
      buildStack(x);
  }

private:
  int64_t gates() const { return kind == "lstm" ? 4 : kind == "gru" ? 3 : 1; }
  /// Gate n of the operator is gate order[n] of PyTorch.
  ArrayRef<int64_t> order() const {
    static constexpr int64_t lstm[] = {0, 3, 1, 2}, gru[] = {1, 0, 2}, rnn[] = {0};
    return kind == "lstm" ? ArrayRef<int64_t>(lstm) : kind == "gru" ? ArrayRef<int64_t>(gru) : ArrayRef<int64_t>(rnn);
  }

  /// The weights `names`, each with its gates in the operator's order, one
  /// behind the other as [directions, ...].
  Tensor gather(StringRef symbol, ArrayRef<std::string> names, ArrayRef<int64_t> shape, DType dtype,
                int64_t directions);
  /// One operator; results: all states, the last state, the last cell.
  std::vector<Tensor> layer(const Tensor &x, StringRef suffix, int64_t directions, std::optional<Tensor> lengths,
                            std::optional<Tensor> state, std::optional<Tensor> cell);
  void buildCell(const Tensor &x);
  void buildStack(Tensor x);

  Layer &l;
  StringRef kind;
  bool isCell;
};

Tensor Recurrent::gather(StringRef symbol, ArrayRef<std::string> names, ArrayRef<int64_t> shape, DType dtype,
                         int64_t directions) {
  std::string key = l.weightName(symbol);
  if (auto known = l.graph.reordered.find(key); known != l.graph.reordered.end())
    return l.constant(key, known->second);
  auto bytes = std::make_shared<std::vector<char>>();
  onnx::Payload result;
  result.dtype = dtype;
  for (const std::string &name : names) {
    std::optional<onnx::Payload> part = l.payload(name, shape, dtype);
    if (!part)
      return Layer::scalar(dtype, 0);
    ArrayRef<char> source = part->data.bytes;
    size_t gate = source.size() / gates();
    for (int64_t n : order())
      bytes->insert(bytes->end(), source.begin() + n * gate, source.begin() + (n + 1) * gate);
    result.shape.assign(part->shape.begin(), part->shape.end());
  }
  // Biases of one direction follow each other in one row.
  result.shape[0] *= int64_t(names.size()) / directions;
  result.shape.insert(result.shape.begin(), directions);
  result.data = {ArrayRef<char>(bytes->data(), bytes->size()), bytes};
  Tensor t = l.constant(key, result);
  l.graph.reordered[key] = std::move(result);
  return t;
}

std::vector<Tensor> Recurrent::layer(const Tensor &x, StringRef suffix, int64_t directions,
                                     std::optional<Tensor> lengths, std::optional<Tensor> state,
                                     std::optional<Tensor> cell) {
  int64_t width = l.constantDim(x, 2, "its input"), all = -1;
  std::vector<std::string> input, recurrent, biases;
  for (int64_t d = 0; d < directions; ++d) {
    std::string end = suffix.str() + (d ? "_reverse" : "");
    input.push_back("weight_ih" + end);
    recurrent.push_back("weight_hh" + end);
    biases.push_back("bias_ih" + end);
    biases.push_back("bias_hh" + end);
  }
  // The state's width is that of the recurrent weights.
  if (const Safetensors::Entry *entry = l.graph.weights.find(l.weightName(recurrent[0]));
      entry && entry->shape.size() == 2)
    all = gates() * entry->shape[1];
  int64_t hidden = all > 0 ? all / gates() : -1;
  if (int64_t units = l.integer("units", hidden); !l.failed() && hidden > 0 && units != hidden) {
    l.error() << "has " << units << " units, its recurrent weights " << hidden;
    return std::vector<Tensor>(3, x);
  }
  auto name = [&](StringRef what) { return (what + suffix).str(); };
  Tensor w = gather(name("weight_ih"), input, {all, width}, x.dtype, directions);
  Tensor r = gather(name("weight_hh"), recurrent, {all, hidden}, x.dtype, directions);
  std::optional<Tensor> b;
  if (l.flag("bias", true))
    b = gather(name("bias"), biases, {all}, x.dtype, directions);
  if (l.failed())
    return std::vector<Tensor>(3, x);
  bool isReverse = l.text("direction") == "reverse";
  SmallVector<OpAttribute> attributes{{"hidden_size", hidden},
                                      {"layout", int64_t(1)},
                                      {"direction", std::string(directions == 2 ? "bidirectional"
                                                                : isReverse     ? "reverse"
                                                                                : "forward")}};
  if (kind == "gru")
    attributes.push_back({"linear_before_reset", int64_t(l.text("reset", "after") == "after")});
  if (kind == "rnn")
    attributes.push_back({"activations", SmallVector<std::string>(
                                             directions, l.text("activation", "tanh") == "tanh" ? "Tanh" : "Relu")});
  if (kind == "lstm")
    return l.ops("LSTM", {x, w, r, b, lengths, state, cell}, attributes, 3);
  return l.ops(kind == "gru" ? "GRU" : "RNN", {x, w, r, b, lengths, state}, attributes, 2);
}

void Recurrent::buildCell(const Tensor &x) {
  Tensor state = l.value("state");
  std::optional<Tensor> cell;
  if (kind == "lstm")
    cell = l.value("cell");
  if (!l.expectRank(state, 2, "its state") || (cell && !l.expectRank(*cell, 2, "its cell")))
    return;
  std::optional<Tensor> cellRow;
  if (cell)
    cellRow = l.unsqueeze(*cell, {1});
  std::vector<Tensor> results = layer(l.unsqueeze(x, {1}), "", 1, std::nullopt, l.unsqueeze(state, {1}), cellRow);
  if (l.failed())
    return;
  l.set(l.squeeze(results[1], {1}));
  if (cell)
    l.set(l.squeeze(results[2], {1}), "cell");
}

void Recurrent::buildStack(Tensor x) {
  int64_t directions = l.text("direction") == "bidirectional" ? 2 : 1, count = l.integer("stack", 1);
  bool isSingle = directions * count == 1;
  std::optional<Tensor> initial = l.optional("state"), initialCell = l.optional("cell"),
                        lengths = l.optional("lengths");
  for (const auto &given : {initial, initialCell})
    if (given && !l.expectRank(*given, isSingle ? 2 : 3, "its initial state"))
      return;
  if (lengths)
    lengths = l.cast(*lengths, DType::I32);
  // [stack * directions, batch, units], or [batch, units] of a single one, for
  // round n as [batch, directions, units].
  auto part = [&](const std::optional<Tensor> &all, int64_t n) -> std::optional<Tensor> {
    if (!all)
      return std::nullopt;
    if (isSingle)
      return l.unsqueeze(*all, {1});
    return l.transpose(l.slice(*all, 0, Expr(n * directions), Expr((n + 1) * directions)), {1, 0, 2});
  };
  std::vector<std::optional<Tensor>> states, cells;
  for (int64_t n = 0; n < count && !l.failed(); ++n) {
    std::vector<Tensor> results =
        layer(x, "_l" + std::to_string(n), directions, lengths, part(initial, n), part(initialCell, n));
    if (l.failed())
      return;
    // [batch, time, directions, units]
    int64_t units = l.constantDim(results[0], 3, "its result");
    x = l.reshape(results[0], {Layer::dim(x, 0), Layer::dim(x, 1), Expr(directions * units)});
    auto keep = [&](std::vector<std::optional<Tensor>> &list, const Tensor &t) {
      list.push_back(isSingle ? l.squeeze(t, {1}) : l.transpose(t, {1, 0, 2}));
    };
    keep(states, results[1]);
    if (kind == "lstm")
      keep(cells, results[2]);
  }
  auto join = [&](const std::vector<std::optional<Tensor>> &list) {
    return list.size() == 1 ? *list[0] : l.op("Concat", list, {{"axis", int64_t(0)}});
  };
  if (l.failed())
    return;
  l.set(x);
  l.set(join(states), "state");
  if (kind == "lstm")
    l.set(join(cells), "cell");
}

} // namespace

LayerFn findRecurrentLayer(StringRef type) {
  return llvm::StringSwitch<LayerFn>(type)
      .Cases("lstm", "gru", "rnn", "lstm_cell", "gru_cell", "rnn_cell", [](Layer &l) { Recurrent(l).build(); })
      .Default(nullptr);
}

} // namespace attn::graph
