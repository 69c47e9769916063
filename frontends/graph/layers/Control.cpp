#include "frontends/graph/Layer.h"
#include "frontends/onnx/LoopImport.h"
#include "llvm/ADT/StringSwitch.h"

// repeat writes its layers out several times, each round with weights of its
// own; loop runs them, with one set of weights.

using namespace mlir;

namespace attn::graph {
namespace {

/// Checks that `next` names what `state` does.
bool checkNext(Layer &l, const Json *state, const Json *next) {
  if (state)
    for (const Json::Member &member : state->members)
      if (!next || !next->find(member.key)) {
        l.error(&member.value) << "'next' does not say what '" << member.key << "' becomes";
        return false;
      }
  if (next)
    for (const Json::Member &member : next->members)
      if (!state || !state->find(member.key)) {
        l.error(&member.value) << "'state' has no '" << member.key << "'";
        return false;
      }
  return true;
}

/// A name of the inner scope that something else already has.
bool checkFresh(Layer &l, const Scope &scope, const Json::Member &member) {
  if (!scope.find(member.key))
    return true;
  l.error(&member.value) << "there is a value '" << member.key << "' already";
  return false;
}

void buildRepeat(Layer &l) {
  const Json *state = l.json.find("state"), *next = l.json.find("next");
  if (!checkNext(l, state, next))
    return;
  std::vector<Tensor> carried;
  for (const Json::Member &member : state->members) {
    if (!checkFresh(l, l.scope, member))
      return;
    carried.push_back(l.lookup(member.value));
  }
  llvm::StringMap<Tensor> visible;
  for (int64_t round = 0; round < l.integer("times", 1) && !l.failed(); ++round) {
    std::string prefix = std::string(l.name()) + "." + std::to_string(round) + ".";
    Scope inner;
    inner.outer = &l.scope;
    inner.path = l.weightName("") + "." + std::to_string(round) + ".";
    inner.round = round;
    for (auto [n, member] : llvm::enumerate(state->members))
      inner.values[member.key] = carried[n];
    Layer at(l.graph, l.json, inner); // finds names of this round
    if (!l.graph.build(*l.json.find("layers"), inner)) {
      l.abandon();
      return;
    }
    for (auto [n, member] : llvm::enumerate(state->members))
      carried[n] = at.lookup(*next->find(member.key));
    if (at.failed()) {
      l.abandon();
      return;
    }
    for (const auto &value : inner.values)
      if (!state->find(value.first()))
        visible[prefix + value.first().str()] = value.second;
  }
  for (const auto &value : visible)
    l.scope.values[value.first()] = value.second;
  for (auto [n, member] : llvm::enumerate(state->members))
    l.set(carried[n], member.key);
  if (carried.size() == 1)
    l.set(carried[0]);
}

class LoopLayer {
public:
  explicit LoopLayer(Layer &l)
      : l(l), over(l.json.find("over")), state(l.json.find("state")), next(l.json.find("next")),
        collect(l.json.find("collect")) {}

  void build();

private:
  bool prepare(onnx::LoopImport &loop);
  FailureOr<std::vector<Tensor>> body(ArrayRef<Tensor> inputs);

  Layer &l;
  const Json *over, *state, *next, *collect;
};

/// What a body makes, at most with the outer names.
FailureOr<std::vector<Tensor>> LoopLayer::body(ArrayRef<Tensor> inputs) {
  // Condition in front: the iteration, whether it goes on.
  Scope inner;
  inner.outer = &l.scope;
  inner.path = l.weightName("") + ".";
  inner.round = l.scope.round;
  size_t at = 2;
  if (const Json *index = l.json.find("index"))
    inner.values[index->text] = inputs[0];
  for (const Json *fields : {state, over})
    if (fields)
      for (const Json::Member &member : fields->members)
        inner.values[member.key] = inputs[at++];
  if (!l.graph.build(*l.json.find("layers"), inner))
    return failure();
  Layer names(l.graph, l.json, inner);
  std::vector<Tensor> outputs{inputs[1]};
  if (const Json *goesOn = l.json.find("while")) {
    Tensor condition = names.cast(names.lookup(*goesOn), DType::Bool);
    if (!names.expectRank(condition, 0, "the condition"))
      return failure();
    outputs[0] = condition;
  }
  if (state)
    for (const Json::Member &member : state->members)
      outputs.push_back(names.lookup(*next->find(member.key)));
  if (collect)
    for (const Json::Member &member : collect->members) {
      outputs.push_back(names.lookup(member.value));
      int64_t axis = l.integer("axis", 1);
      if (!names.failed() && axis > outputs.back().rank()) {
        names.error(&member.value) << "has " << outputs.back().rank() << " dimensions, and is to be collected in axis "
                                   << axis;
        return failure();
      }
    }
  if (names.failed())
    return failure();
  return outputs;
}

bool LoopLayer::prepare(onnx::LoopImport &loop) {
  int64_t axis = l.integer("axis", 1);
  if (const Json *steps = l.json.find("steps"))
    loop.trips = l.size(*steps);
  loop.condition = Expr(1);
  if (state)
    for (const Json::Member &member : state->members) {
      if (!checkFresh(l, l.scope, member))
        return false;
      loop.carried.emplace_back().init = l.lookup(member.value);
    }
  if (over)
    for (const Json::Member &member : over->members) {
      if (!checkFresh(l, l.scope, member))
        return false;
      if (state && state->find(member.key)) {
        l.error(&member.value) << "'" << member.key << "' is a state, too";
        return false;
      }
      Tensor t = l.lookup(member.value);
      if (!l.expectRank(t, axis + 1, 8, "what a loop runs over"))
        return false;
      if (!t.value) { // few elements, known: the loop needs them in memory
        if (failed(l.graph.operators.with("loop", l.name(), l.loc(), [&](onnx::Node &node) {
              t.value = node.value(t);
              return success();
            })))
          return false;
        t.elements.reset();
      }
      if (!loop.trips)
        loop.trips = t.shape[axis];
      if (failed(l.graph.operators.with("loop", l.name(), l.loc(), [&](onnx::Node &node) {
            return node.requireEqual(t.shape[axis], *loop.trips, "runs over {0} steps here and {1} there");
          }))) {
        l.abandon();
        return false;
      }
      loop.scanned.push_back({t, axis, false});
    }
  if (collect)
    for (const Json::Member &member : collect->members) {
      if (state && state->find(member.key)) {
        l.error(&member.value) << "'" << member.key << "' is a state, too";
        return false;
      }
      loop.gathered.emplace_back().axis = axis;
    }
  if (!l.failed() && !loop.trips)
    l.error() << "needs 'steps', or something to run 'over'";
  return !l.failed();
}

void LoopLayer::build() {
  if (!checkNext(l, state, next))
    return;
  if (const Json *index = l.json.find("index"); index && l.scope.find(index->text)) {
    l.error(index) << "there is a value '" << index->text << "' already";
    return;
  }
  FailureOr<std::vector<Tensor>> results = failure();
  (void)l.graph.operators.with("loop", l.name(), l.loc(), [&](onnx::Node &node) -> LogicalResult {
    onnx::LoopImport loop(node, [&](ArrayRef<Tensor> inputs) { return body(inputs); });
    if (!prepare(loop))
      return failure();
    results = loop.run();
    return success(succeeded(results));
  });
  if (failed(results)) {
    if (!l.graph.reporter.failed())
      l.error() << "cannot be imported";
    else
      l.abandon();
    return;
  }
  size_t at = 0;
  for (const Json *fields : {state, collect})
    if (fields)
      for (const Json::Member &member : fields->members)
        l.set((*results)[at++], member.key);
}

} // namespace

LayerFn findControlLayer(StringRef type) {
  return llvm::StringSwitch<LayerFn>(type)
      .Case("repeat", buildRepeat)
      .Case("loop", [](Layer &l) { LoopLayer(l).build(); })
      .Default(nullptr);
}

} // namespace attn::graph
