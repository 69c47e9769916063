// Streams, events and graphs of the stand-in for libcuda. Nodes of a graph run one after the other, those last that
// were made first where their dependencies allow it, so that a dependency that lacks shows.

#include "test/gpu/FakeDriver.h"

#include <algorithm>

using namespace fake;

struct fake::Graph {
  struct Node {
    Work work;
    std::vector<const Node *> after;
    bool isKernel = false; ///< added as a kernel, with the other work if it is cooperative
    std::function<Result()> cooperative;
    std::shared_ptr<Graph> graph; ///< of a child node, or the body of a loop
    uint64_t condition = 0;       ///< of a loop
  };
  std::vector<std::shared_ptr<Node>> nodes;
  std::map<uint64_t, uint32_t> conditions; ///< and what they are at the start

  Node *add(Node node, void *const *after, size_t count) {
    for (size_t i = 0; i < count; ++i)
      node.after.push_back(static_cast<const Node *>(after[i]));
    nodes.push_back(std::make_shared<Node>(std::move(node)));
    return nodes.back().get();
  }
  bool has(const void *node) const {
    return std::any_of(nodes.begin(), nodes.end(), [&](auto &each) { return each.get() == node; });
  }
  /// Bodies of loops hold kernels alone.
  bool isSound(bool isBody) const {
    return std::all_of(nodes.begin(), nodes.end(), [&](auto &node) {
      return (!isBody || node->isKernel) && (!node->graph || node->graph->isSound(node->condition));
    });
  }
  Result run(std::map<uint64_t, uint32_t> &values) {
    constexpr int kMostSteps = 1 << 20;
    std::vector<const Node *> rest, done;
    for (auto &node : nodes)
      rest.push_back(node.get());
    auto isDone = [&](const Node *node) { return std::find(done.begin(), done.end(), node) != done.end(); };
    while (!rest.empty()) {
      size_t i = rest.size() - 1;
      while (!std::all_of(rest[i]->after.begin(), rest[i]->after.end(), isDone))
        --i; // earlier nodes depend on none of the later ones
      const Node *node = rest[i];
      rest.erase(rest.begin() + long(i));
      done.push_back(node);
      Result result = Success;
      if (node->condition) {
        for (int step = 0; !result && values[node->condition]; ++step)
          result = step < kMostSteps ? node->graph->run(values) : LaunchFailed;
      } else {
        result = node->graph ? node->graph->run(values) : node->work();
      }
      if (result)
        return result;
    }
    return Success;
  }
};

Result fake::enqueue(void *handle, Work work) {
  Stream &stream = streamOf(handle);
  if (stream.device != &device())
    return InvalidHandle;
  if (device().sticky)
    return device().sticky;
  if (!stream.capture) {
    stream.queue.push_back(std::move(work));
    return Success;
  }
  Graph &graph = *stream.capture;
  void *last = graph.nodes.empty() ? nullptr : graph.nodes.back().get();
  Graph::Node node;
  node.work = std::move(work);
  graph.add(std::move(node), &last, last ? 1 : 0);
  return Success;
}

//===----------------------------------------------------------------------===//
// Streams
//===----------------------------------------------------------------------===//

FAKE cuStreamCreate(void **handle, unsigned) {
  LOCKED;
  if (device().sticky)
    return device().sticky;
  auto *stream = new Stream{&device()};
  device().streams.push_back(stream);
  *handle = stream;
  return Success;
}
FAKE cuStreamDestroy_v2(void *handle) {
  LOCKED;
  auto *stream = static_cast<Stream *>(handle);
  Result result = stream->device->drain(*stream);
  auto &streams = stream->device->streams;
  for (size_t i = 0; i < streams.size(); ++i)
    if (streams[i] == stream)
      streams.erase(streams.begin() + long(i--));
  delete stream;
  return result;
}
FAKE cuStreamSynchronize(void *handle) {
  LOCKED;
  if (streamOf(handle).capture)
    return CaptureUnsupported;
  ++driver().synchronizations;
  return streamOf(handle).device->drain(streamOf(handle));
}
FAKE cuStreamGetCtx(void *handle, void **context) {
  LOCKED;
  *context = streamOf(handle).device;
  return Success;
}
FAKE cuStreamIsCapturing(void *handle, int *status) {
  LOCKED;
  *status = streamOf(handle).capture ? 1 : 0;
  return Success;
}
FAKE cuStreamBeginCapture_v2(void *handle, int) {
  LOCKED;
  if (long long refused = driver().setting("capture", 0))
    return Result(refused);
  Stream &stream = streamOf(handle);
  if (stream.capture)
    return CaptureUnsupported;
  if (device().sticky)
    return device().sticky;
  stream.capture = new Graph();
  return Success;
}
FAKE cuStreamEndCapture(void *handle, void **graph) {
  LOCKED;
  Stream &stream = streamOf(handle);
  if (!stream.capture)
    return InvalidValue;
  *graph = stream.capture;
  stream.capture = nullptr;
  return Success;
}
//===----------------------------------------------------------------------===//
// Graphs
//===----------------------------------------------------------------------===//

static Graph &graphOf(void *handle) { return *static_cast<Graph *>(handle); }
static bool areIn(void *graph, void *const *nodes, size_t count) {
  return std::all_of(nodes, nodes + count, [&](void *node) { return graphOf(graph).has(node); });
}

FAKE cuGraphCreate(void **graph, unsigned flags) {
  *graph = new Graph();
  return flags ? InvalidValue : Success;
}
FAKE cuGraphAddKernelNode_v2(void **node, void *graph, void *const *after, size_t count,
                             const attn::rt::CudaKernelNode *wanted) {
  LOCKED;
  LaunchRequest request = {static_cast<Function *>(wanted->function),
                           dim3(wanted->grid),
                           dim3(wanted->block),
                           wanted->shared,
                           wanted->parameters,
                           wanted->extra};
  Graph::Node made;
  made.isKernel = true;
  Result result = areIn(graph, after, count) ? prepare(request, /*isCooperative=*/false, made.work) : InvalidValue;
  if (result)
    return result;
  Work together;
  Result refused = prepare(request, /*isCooperative=*/true, together);
  made.cooperative = [=] { return refused ? refused : together(); };
  *node = graphOf(graph).add(std::move(made), after, count);
  return Success;
}
FAKE cuGraphKernelNodeSetAttribute(void *handle, int attribute, const int *value) {
  constexpr int kCooperative = 2;
  auto &node = *static_cast<Graph::Node *>(handle);
  if (!node.isKernel || attribute != kCooperative || *value != 1)
    return InvalidValue;
  node.work = node.cooperative;
  return Success;
}
FAKE cuGraphAddChildGraphNode(void **node, void *graph, void *const *after, size_t count, void *child) {
  Graph::Node made;
  made.graph = std::make_shared<Graph>(graphOf(child));
  if (!areIn(graph, after, count))
    return InvalidValue;
  *node = graphOf(graph).add(std::move(made), after, count);
  return Success;
}
FAKE cuGraphConditionalHandleCreate(uint64_t *handle, void *graph, void *context, unsigned value, unsigned flags) {
  LOCKED;
  constexpr unsigned kAssignDefault = 1;
  if (long long refused = driver().setting("conditional", 0))
    return Result(refused);
  if (context != &device() || flags != kAssignDefault)
    return InvalidValue;
  static uint64_t next = 0x1000;
  graphOf(graph).conditions[ *handle = ++next] = value;
  return Success;
}
FAKE cuGraphAddNode(void **node, void *graph, void *const *after, size_t count, attn::rt::CudaConditionalNode *wanted) {
  constexpr int kConditional = 13, kWhile = 1;
  if (!areIn(graph, after, count) || wanted->type != kConditional || wanted->kind != kWhile || wanted->size != 1 ||
      wanted->context != &device() || !graphOf(graph).conditions.count(wanted->handle))
    return InvalidValue;
  Graph::Node made;
  made.graph = std::make_shared<Graph>();
  made.condition = wanted->handle;
  static void *body;
  body = made.graph.get();
  wanted->graphs = &body;
  *node = graphOf(graph).add(std::move(made), after, count);
  return Success;
}

/// A graph that can be launched outlives its handle: launches may be under way.
using Executable = std::shared_ptr<Graph>;

FAKE cuGraphInstantiateWithFlags(void **exec, void *graph, unsigned long long) {
  LOCKED;
  if (long long refused = driver().setting("instantiate", 0))
    return Result(refused);
  if (device().sticky)
    return device().sticky;
  if (!graphOf(graph).isSound(/*isBody=*/false))
    return InvalidValue;
  *exec = new Executable(std::make_shared<Graph>(graphOf(graph)));
  return Success;
}
FAKE cuGraphLaunch(void *exec, void *stream) {
  LOCKED;
  ++driver().graphs;
  return enqueue(stream, [graph = *static_cast<Executable *>(exec)] {
    std::map<uint64_t, uint32_t> values = graph->conditions;
    driver().conditions = &values;
    Result result = graph->run(values);
    driver().conditions = nullptr;
    return result;
  });
}
FAKE cuGraphDestroy(void *graph) {
  delete static_cast<Graph *>(graph);
  return Success;
}
FAKE cuGraphExecDestroy(void *exec) {
  delete static_cast<Executable *>(exec);
  return Success;
}

//===----------------------------------------------------------------------===//
// Events
//===----------------------------------------------------------------------===//

FAKE cuEventCreate(void **event, unsigned) {
  *event = new Event();
  return Success;
}
FAKE cuEventRecord(void *event, void *stream) {
  LOCKED;
  return enqueue(stream, [event] {
    static_cast<Event *>(event)->time = driver().clock;
    return Result(Success);
  });
}
FAKE cuEventSynchronize(void *) {
  LOCKED;
  return device().drainAll();
}
FAKE cuEventElapsedTime(float *milliseconds, void *begin, void *end) {
  *milliseconds = float(static_cast<Event *>(end)->time - static_cast<Event *>(begin)->time);
  return Success;
}
FAKE cuEventDestroy_v2(void *event) {
  delete static_cast<Event *>(event);
  return Success;
}
