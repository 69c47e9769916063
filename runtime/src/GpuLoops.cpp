// Loops among the launches of a run: as nodes of a graph, which the device repeats by itself, or step by step.

#include "Gpu.h"
#include "GpuLaunches.h"
#include "Pool.h"

#include <cstring>

using namespace attn::rt;

//===----------------------------------------------------------------------===//
// What is kept
//===----------------------------------------------------------------------===//

int GpuLaunches::beginLoop(Target &target) {
  if (isInLoop)
    return kCudaInvalidValue;
  Shape shape = {kLoopBegin, {}, {}, 0, 0, 0};
  // A loop lies in one piece of what is kept: room for both its ends, and what is inside makes its own.
  if (!reserve(4 * sizeof(Shape)))
    if (int code = flush(target))
      return code;
  isInLoop = true;
  return add(shape, nullptr, target);
}

int GpuLaunches::endLoop(DeviceAddress condition, Target &target) {
  if (!isInLoop)
    return kCudaInvalidValue;
  Shape shape = {kLoopEnd, {}, {}, 0, 0, sizeof(condition)};
  int code = add(shape, &condition, target);
  isInLoop = false;
  ++numLoops;
  return code;
}

/// The next loop from `at` on, from its beginning to its end; begins at `size`: none.
GpuLaunches::Range GpuLaunches::nextLoop(uint64_t at, DeviceAddress &condition) const {
  Range loop = {size, size};
  for (; at < size; at += bytesOf(shapeAt(at))) {
    int32_t kernel = shapeAt(at).kernel;
    if (kernel == kLoopBegin)
      loop.begin = at;
    if (kernel != kLoopEnd)
      continue;
    loop.end = at + bytesOf(shapeAt(at));
    memcpy(&condition, kept + at + sizeof(Shape), sizeof(condition));
    break;
  }
  return loop;
}

//===----------------------------------------------------------------------===//
// As a graph
//===----------------------------------------------------------------------===//

// The driver knows the function by itself; 64 bits at `flag` are the condition.
static constexpr char kSetterPtx[] = R"(.version 7.0
.target sm_80
.address_size 64
.extern .func cudaGraphSetConditional(.param .b64 handle, .param .b32 value);
.visible .entry attnrt_set_condition(.param .u64 attnrt_handle, .param .u64 attnrt_flag)
{
  .reg .pred %p<2>;
  .reg .b32 %r<2>;
  .reg .b64 %rd<5>;
  ld.param.u64 %rd1, [attnrt_handle];
  ld.param.u64 %rd2, [attnrt_flag];
  cvta.to.global.u64 %rd3, %rd2;
  ld.global.u64 %rd4, [%rd3];
  setp.ne.s64 %p1, %rd4, 0;
  selp.u32 %r1, 1, 0, %p1;
  {
    .param .b64 argument0;
    st.param.b64 [argument0], %rd1;
    .param .b32 argument1;
    st.param.b32 [argument1], %r1;
    call.uni cudaGraphSetConditional, (argument0, argument1);
  }
  ret;
}
)";

bool GpuLaunches::openSetter() {
  if (setter)
    return true;
  const CudaDriver &driver = *model.driver;
  if (driver.cuModuleLoadDataEx(&setterModule, kSetterPtx, 0, nullptr, nullptr)) {
    setterModule = nullptr;
    return false;
  }
  return !driver.cuModuleGetFunction(&setter, setterModule, "attnrt_set_condition");
}

/// The launches of a loop, one after the other, and at last the kernel that sets the condition.
bool GpuLaunches::fillBody(void *body, Range range, uint64_t handle, DeviceAddress condition) {
  const CudaDriver &driver = *model.driver;
  void *last = nullptr;
  auto add = [&](CudaKernelNode &node, const void *parameters, size_t bytes) {
    LaunchParameters given(parameters, bytes);
    if (given.find(driver, node.function))
      return false;
    node.parameters = given.each(), node.extra = given.extra();
    return !driver.cuGraphAddKernelNode_v2(&last, body, &last, last ? 1 : 0, &node);
  };
  for (uint64_t at = range.begin; at < range.end; at += bytesOf(shapeAt(at))) {
    Shape shape = shapeAt(at);
    if (shape.kernel < 0 || model.allowShared(shape.kernel, shape.shared))
      return false;
    CudaKernelNode node = {model.functions[uint64_t(shape.kernel)],
                           {shape.grid[0], shape.grid[1], shape.grid[2]},
                           {shape.block[0], shape.block[1], shape.block[2]},
                           shape.shared,
                           nullptr,
                           nullptr,
                           nullptr,
                           nullptr};
    if (!add(node, kept + at + sizeof(Shape), shape.parameterBytes))
      return false;
    constexpr int kCooperative = 2; // CU_LAUNCH_ATTRIBUTE_COOPERATIVE
    CudaLaunchAttribute cooperative = {kCooperative, {}, 1, {}};
    if (shape.cooperative && driver.cuGraphKernelNodeSetAttribute(last, kCooperative, &cooperative.value))
      return false;
  }
  uint64_t parameters[] = {handle, condition};
  CudaKernelNode node = {setter, {1, 1, 1}, {1, 1, 1}, 0, nullptr, nullptr, nullptr, nullptr};
  return add(node, parameters, sizeof(parameters));
}

/// All that is kept as nodes of `graph`.
bool GpuLaunches::fill(void *graph, void *captureStream) {
  constexpr int kConditional = 13, kWhile = 1; // CU_GRAPH_NODE_TYPE_CONDITIONAL, CU_GRAPH_COND_TYPE_WHILE
  constexpr unsigned kAssignDefault = 1;
  const CudaDriver &driver = *model.driver;
  void *last = nullptr;
  for (uint64_t at = 0; at < size;) {
    DeviceAddress condition = 0;
    Range loop = nextLoop(at, condition);
    if (at < loop.begin) {
      void *straight = captureSource({at, loop.begin}, captureStream);
      if (!straight)
        return false;
      int code = driver.cuGraphAddChildGraphNode(&last, graph, &last, last ? 1 : 0, straight);
      driver.cuGraphDestroy(straight);
      if (code)
        return false;
    }
    at = loop.end;
    if (loop.begin == size)
      break;
    CudaConditionalNode node = {kConditional, {}, 0, kWhile, 1, nullptr, model.context, {}};
    if (driver.cuGraphConditionalHandleCreate(&node.handle, graph, model.context, 1, kAssignDefault) ||
        driver.cuGraphAddNode(&last, graph, &last, last ? 1 : 0, &node))
      return false;
    Range body = {loop.begin + sizeof(Shape), loop.end - sizeof(Shape) - sizeof(condition)};
    if (!fillBody(node.graphs[0], body, node.handle, condition))
      return false;
  }
  return true;
}

/// `known` keeps its graph, or none where the driver refuses any step.
void GpuLaunches::build(Known &known, void *captureStream) {
  const CudaDriver &driver = *model.driver;
  void *graph = nullptr, *executable = nullptr;
  if (!openSetter() || driver.cuGraphCreate(&graph, 0))
    return;
  if (!fill(graph, captureStream) || driver.cuGraphInstantiateWithFlags(&executable, graph, 0)) {
    driver.cuGraphDestroy(graph);
    return;
  }
  known.source = graph;
  known.graph = executable;
}

//===----------------------------------------------------------------------===//
// Step by step
//===----------------------------------------------------------------------===//

/// A loop whose condition the host reads after each step, of which all but the first are graphs.
int GpuLaunches::runSteps(Range body, DeviceAddress condition, Target &target) {
  const CudaDriver &driver = *model.driver;
  uint64_t hash = hashOf(kept + body.begin, body.end - body.begin);
  Known *step = nullptr;
  bool isBrief = !target.mayStop;
  for (bool isFirst = true;; isFirst = false) {
    int64_t start = monotonicNow();
    if (step && step->graph && isBrief) {
      target.kernel = last;
      target.call = "cuGraphLaunch";
      if (int code = driver.cuGraphLaunch(step->graph, target.stream))
        return code;
    } else {
      if (int code = launchAll(body, target))
        return code;
    }
    int64_t goesOn = 0;
    target.call = "cuMemcpyDtoH";
    int code = driver.cuMemcpyDtoHAsync_v2(&goesOn, condition, sizeof(goesOn), target.stream);
    if (!code)
      code = driver.cuStreamSynchronize(target.stream);
    if (code || !goesOn || target.isToStop(target.run))
      return code;
    isBrief = !target.mayStop || monotonicNow() - start < kBriefNs;
    if (!isFirst || refuses || trace.isOn())
      continue;
    step = find(body, hash);
    if (!step)
      step = remember(body, hash);
    if (!step)
      continue;
    step->lastUse = runs;
    if (!step->graph) {
      step->graph = capture(body, target.captureStream);
      refuses = !step->graph;
    }
  }
}

int GpuLaunches::runLoops(Target &target) {
  const CudaDriver &driver = *model.driver;
  if (driver.hasLoops && !refusesLoops && !target.mayStop && !trace.isOn()) {
    uint64_t hash = hashOf(kept, size);
    Known *whole = find(all(), hash);
    if (!whole)
      whole = remember(all(), hash);
    if (whole && !whole->graph) {
      build(*whole, target.captureStream);
      refusesLoops = !whole->graph;
    }
    if (whole && whole->graph) {
      whole->lastUse = runs;
      target.kernel = last;
      target.call = "cuGraphLaunch";
      return driver.cuGraphLaunch(whole->graph, target.stream);
    }
  }
  for (uint64_t at = 0; at < size;) {
    DeviceAddress condition = 0;
    Range loop = nextLoop(at, condition);
    if (int code = launchAll({at, loop.begin}, target))
      return code;
    at = loop.end;
    if (loop.begin == size || (target.mayStop && target.isToStop(target.run)))
      break;
    Range body = {loop.begin + sizeof(Shape), loop.end - sizeof(Shape) - sizeof(condition)};
    if (int code = runSteps(body, condition, target))
      return code;
  }
  return kCudaSuccess;
}
