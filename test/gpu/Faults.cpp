// What can go wrong with a driver, each in turn in one process, on the stand-in
// for libcuda: a message each time, and the process works afterwards.
//     gpu-faults GPU-LIBRARY CPU-LIBRARY RECURRENT-GPU-LIBRARY PRODUCTS-LIBRARY LOOP-LIBRARY SEARCH-LIBRARY
#include "test/gpu/StandIn.h"

#include <cmath>
#include <sys/wait.h>
#include <unistd.h>

using namespace fake;

namespace {

uint64_t (*launchedGraphs)(), (*synchronizations)(), (*launches)();
void (*atLaunch)(long long, void (*)(void *), void *);
const char *(*givenImages)();
long long (*libraryProducts)(), (*libraryQuestions)();

/// A library works from loading to running, and leaves no more device memory
/// than there was.
void expectWorks(const char *path, const char *when) {
  attnrt_model *model = nullptr;
  attnrt_session *session = nullptr;
  uint64_t before = usedMemory();
  expect(attnrt_model_load(path, nullptr, &model) == ATTNRT_OK, when);
  if (!model)
    return;
  expect(attnrt_session_create(model, nullptr, &session) == ATTNRT_OK, when);
  if (session)
    for (int i = 0; i < 2; ++i)
      expect(runOnce(session, model) == ATTNRT_OK, when);
  attnrt_session_destroy(session);
  attnrt_model_release(model);
  expect(usedMemory() == before, "device memory is left");
}

/// Runs that repeat go as graphs, with the results of the first; other sizes and other contents get no stale ones; a
/// refusal is no error.
void checkGraphs(const char *path) {
  configure("");
  attnrt_model *model = nullptr;
  attnrt_session *session = nullptr;
  expect(attnrt_model_load(path, nullptr, &model) == ATTNRT_OK, "load for graphs");
  expect(attnrt_session_create(model, nullptr, &session) == ATTNRT_OK, "create for graphs");
  auto run = [&](int64_t fill, int64_t open) {
    std::vector<char> bytes;
    expect(runOnce(session, model, nullptr, fill, open, &bytes) == ATTNRT_OK, "a run for graphs");
    return bytes;
  };
  auto graphsOf = [&](int64_t fill, int64_t open, const std::vector<char> &want) {
    uint64_t before = launchedGraphs();
    expect(run(fill, open) == want, "the results of a run by a graph");
    return launchedGraphs() - before;
  };
  uint64_t before = launchedGraphs();
  std::vector<char> plain = run(0, 4);
  expect(launchedGraphs() == before, "no graph of a run that was not seen before");
  std::vector<char> filled = run(1, 4), larger = run(0, 5);
  expect(plain != filled && plain.size() < larger.size(), "inputs that matter");
  // The sizes of the session's own memory are settled now.
  run(0, 4);
  expect(graphsOf(0, 4, plain) == 1, "a graph of a run that was seen before");
  expect(graphsOf(1, 4, filled) == 1, "the same graph on other contents");
  graphsOf(0, 5, larger);
  expect(graphsOf(0, 5, larger) == 1, "a second graph for other sizes");
  expect(graphsOf(0, 4, plain) == 1, "the first one again");
  // More sizes than graphs are kept.
  for (int64_t open = 1; open <= 12; ++open)
    for (int i = 0; i < 3; ++i)
      run(0, open);
  expect(run(0, 4) == plain, "after many sizes");
  attnrt_session_destroy(session);
  for (const char *fault : {"capture=900", "instantiate=801", "instantiate=2"}) {
    expect(attnrt_session_create(model, nullptr, &session) == ATTNRT_OK, "create for refused graphs");
    configure(fault);
    uint64_t before = launchedGraphs();
    for (int i = 0; i < 4; ++i)
      expect(run(0, 4) == plain, "a run whose graph is refused");
    expect(launchedGraphs() == before, "no graph where it is refused");
    attnrt_session_destroy(session);
    configure("");
  }
  attnrt_model_release(model);
  printf("graphs: done\n");
}

/// A run that is cancelled while its kernels are under way starts a few more at most; the next one is whole.
void checkStops(const char *path) {
  configure("");
  attnrt_model *model = nullptr;
  attnrt_session *session = nullptr;
  attnrt_cancel *cancel = nullptr;
  expect(attnrt_model_load(path, nullptr, &model) == ATTNRT_OK, "load for stops");
  expect(attnrt_session_create(model, nullptr, &session) == ATTNRT_OK, "create for stops");
  expect(attnrt_cancel_create(&cancel) == ATTNRT_OK, "create a flag");
  std::vector<char> want, got;
  auto run = [&](std::vector<char> *bytes = nullptr) { return runOnce(session, model, nullptr, 0, 4, bytes, cancel); };
  expect(run(&want) == ATTNRT_OK, "a run that may stop");
  uint64_t all = launches(), few = 2 + 2 * 4;
  expect(all > 2 * few, "a model with many launches");
  configure("");
  atLaunch(2, [](void *flag) { attnrt_cancel_request(static_cast<attnrt_cancel *>(flag)); }, cancel);
  expectFailure("a run is cancelled at its second kernel", run(), ATTNRT_CANCELLED, "");
  expect(launches() <= few, "kernels begin behind a run that is cancelled");
  attnrt_cancel_destroy(cancel);
  expect(attnrt_cancel_create(&cancel) == ATTNRT_OK, "create a second flag");
  expect(run(&got) == ATTNRT_OK && got == want, "a run behind one that was cancelled");
  attnrt_session_destroy(session);
  attnrt_cancel_destroy(cancel);
  attnrt_model_release(model);
  printf("stops: done\n");
}

/// Products by cuBLASLt: the same numbers, the heuristic asked once a shape, graphs as ever; without the library, its
/// memory, its algorithms or against the caller's wish the code's own kernels; a failure is a message, and the next run
/// goes without it.
void checkProducts(const char *path) {
  configure("cublaslt=1");
  attnrt_model *model = nullptr;
  attnrt_session *session = nullptr;
  attnrt_session_options options = ATTNRT_SESSION_OPTIONS_INIT;
  expect(attnrt_model_load(path, nullptr, &model) == ATTNRT_OK, "load for products");
  auto create = [&] { expect(attnrt_session_create(model, &options, &session) == ATTNRT_OK, "create for products"); };
  auto run = [&](int64_t fill = 1) {
    std::vector<char> bytes;
    expect(runOnce(session, model, nullptr, fill, 12, &bytes) == ATTNRT_OK, "a run for products");
    std::vector<float> numbers(bytes.size() / 4);
    memcpy(numbers.data(), bytes.data(), 4 * numbers.size());
    return numbers;
  };
  options.own_products = 1;
  create();
  std::vector<float> want = run();
  expect(libraryQuestions() == 0, "own products ask nobody");
  attnrt_session_destroy(session);
  auto isNear = [&](const std::vector<float> &got) {
    bool holds = got.size() == want.size() && !got.empty();
    for (size_t i = 0; i < got.size() && holds; ++i)
      holds = std::abs(got[i] - want[i]) <= 1e-4f * (1 + std::abs(want[i]));
    return holds;
  };

  options.own_products = 0;
  create();
  expect(isNear(run()), "products by the library");
  long long questions = libraryQuestions(), products = libraryProducts();
  expect(questions > 0 && products >= questions, "the library makes products");
  uint64_t graphs = launchedGraphs();
  expect(isNear(run()) && isNear(run()) && isNear(run()), "products by the library again");
  expect(libraryQuestions() == questions, "the heuristic is asked once");
  expect(launchedGraphs() >= graphs + 2, "products of the library in a graph");
  attnrt_session_destroy(session);

  for (const char *fault : {"", "cublaslt=1,cublaslt_heuristic=15", "memory"}) {
    std::string settings = fault;
    create(); // before memory is short
    run();
    attnrt_session_destroy(session);
    create();
    if (settings == "memory")
      settings = "cublaslt=1,memory=" + std::to_string(usedMemory() + (16 << 20));
    configure(settings.c_str());
    products = libraryProducts();
    expect(isNear(run()) && libraryProducts() == products, "own kernels where the library cannot be used");
    attnrt_session_destroy(session);
    configure("cublaslt=1");
  }

  create();
  configure(("cublaslt=1,cublaslt_matmul=" + std::to_string(libraryProducts() + 2)).c_str());
  expectFailure("a product fails", runOnce(session, model, nullptr, 1, 12), ATTNRT_DEVICE,
                "cublasLtMatmul: CUBLAS_STATUS_EXECUTION_FAILED (13)");
  products = libraryProducts();
  expect(isNear(run()) && libraryProducts() == products, "the next run goes without the library");
  attnrt_session_destroy(session);
  attnrt_model_release(model);
  configure("");
  printf("products: done\n");
}

/// A loop that goes on without the host waits as often for any number of steps, and graphs of it are made once; one
/// that somebody may stop is asked after each step, and stops; errors in it are messages.
void checkLoops(const char *path) {
  configure("");
  attnrt_model *model = nullptr;
  attnrt_session *session = nullptr;
  attnrt_cancel *cancel = nullptr;
  expect(attnrt_model_load(path, nullptr, &model) == ATTNRT_OK, "load for loops");
  expect(attnrt_session_create(model, nullptr, &session) == ATTNRT_OK, "create for loops");
  expect(attnrt_cancel_create(&cancel) == ATTNRT_OK, "create a flag");
  // The steps are the model's integer input.
  auto run = [&](int64_t steps, uint64_t &waits, attnrt_cancel *flag = nullptr) {
    std::vector<char> bytes;
    uint64_t before = synchronizations();
    expect(runOnce(session, model, nullptr, steps, 4, &bytes, flag) == ATTNRT_OK, "a run with a loop");
    waits = synchronizations() - before;
    return bytes;
  };
  uint64_t few, many, asked;
  run(3, few);
  std::vector<char> want = run(60, many);
  expect(few == many && few > 0, "the host waits as often for 60 steps as for 3");
  uint64_t graphs = launchedGraphs();
  expect(run(60, many) == want && launchedGraphs() == graphs + 1 && many == few, "a graph that is known already");
  expect(run(60, asked, cancel) == want && asked >= few + 59, "the host asks after each step whether to stop");
  for (const char *fault : {"conditional=801", "setter=1"}) {
    attnrt_session_destroy(session);
    expect(attnrt_session_create(model, nullptr, &session) == ATTNRT_OK, "create for refused loops");
    configure(fault);
    expect(run(60, asked) == want && asked >= few + 59, "a loop that is refused");
    configure("");
  }
  attnrt_cancel_request(cancel);
  expectFailure("a loop is cancelled", runOnce(session, model, nullptr, 60, 4, nullptr, cancel), ATTNRT_CANCELLED, "");
  attnrt_session_destroy(session);
  expect(attnrt_session_create(model, nullptr, &session) == ATTNRT_OK, "create for faults in loops");
  run(60, many);
  configure("launch=40");
  expectFailure("a launch in a loop fails", runOnce(session, model, nullptr, 60), ATTNRT_DEVICE,
                "CUDA_ERROR_ILLEGAL_ADDRESS");
  attnrt_session_destroy(session);
  attnrt_cancel_destroy(cancel);
  attnrt_model_release(model);
  configure("");
  printf("loops: done\n");
}

/// The same of a search: the host waits once more when the steps have doubled; scores that are no numbers end it.
void checkSearch(const char *path) {
  configure("");
  attnrt_model *model = nullptr;
  attnrt_session *session = nullptr;
  attnrt_cancel *cancel = nullptr;
  expect(attnrt_model_load(path, nullptr, &model) == ATTNRT_OK, "load for searches");
  expect(attnrt_session_create(model, nullptr, &session) == ATTNRT_OK, "create for searches");
  expect(attnrt_cancel_create(&cancel) == ATTNRT_OK, "create a flag");
  // The greatest length is the model's integer input; no token ends the search.
  auto run = [&](int64_t steps, std::vector<char> *bytes = nullptr, attnrt_cancel *flag = nullptr) {
    return runOnce(session, model, nullptr, steps, 4, bytes, flag, "generate");
  };
  auto waitsOf = [&](int64_t steps, std::vector<char> &bytes, attnrt_cancel *flag = nullptr) {
    uint64_t before = synchronizations();
    expect(run(steps, &bytes, flag) == ATTNRT_OK, "a run with a search");
    return synchronizations() - before;
  };
  std::vector<char> few, want, again, asked, after;
  uint64_t least = waitsOf(3, few), most = waitsOf(60, want);
  expect(most <= least + 2, "the host waits twice more for 60 steps than for 3");
  uint64_t graphs = launchedGraphs();
  expect(waitsOf(60, again) == most && again == want && launchedGraphs() > graphs, "graphs of a search");
  expect(waitsOf(60, asked, cancel) >= 60 && asked == want, "the host asks after each step whether to stop");
  // The scores are roots of numbers below 0 then.
  expectFailure("a search without numbers", run(62), ATTNRT_INVALID_ARGUMENT,
                "search: in step 1 the scores of item 0 have a NaN");
  expect(waitsOf(60, after) <= most && after == want, "a search after one that failed");
  attnrt_cancel_request(cancel);
  expectFailure("a search is cancelled", run(60, nullptr, cancel), ATTNRT_CANCELLED, "");
  attnrt_session_destroy(session);
  expect(attnrt_session_create(model, nullptr, &session) == ATTNRT_OK, "create for faults in searches");
  configure("launch=40");
  expectFailure("a launch in a search fails", run(60), ATTNRT_DEVICE, "CUDA_ERROR_ILLEGAL_ADDRESS");
  attnrt_session_destroy(session);
  attnrt_cancel_destroy(cancel);
  attnrt_model_release(model);
  configure("");
  printf("searches: done\n");
}

/// A child of fork() gets messages for what is on the GPU, lets go of it, and can use the CPU.
void checkFork(const char *gpu, const char *cpu) {
  configure("");
  attnrt_model *model = nullptr, *other = nullptr;
  attnrt_session *session = nullptr, *none = nullptr;
  expect(attnrt_model_load(gpu, nullptr, &model) == ATTNRT_OK, "load for a fork");
  expect(attnrt_session_create(model, nullptr, &session) == ATTNRT_OK, "create for a fork");
  expect(runOnce(session, model) == ATTNRT_OK, "a run before a fork");
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    alarm(30); // instead of hanging
    problems = 0;
    expectFailure("a run in a child", runOnce(session, model), ATTNRT_DEVICE, "the GPU was opened before fork()");
    expectFailure("a session in a child", attnrt_session_create(model, nullptr, &none), ATTNRT_DEVICE,
                  "the GPU was opened before fork()");
    expect(attnrt_model_load(gpu, nullptr, &other) == ATTNRT_OK, "load in a child");
    expectFailure("a model in a child", attnrt_session_create(other, nullptr, &none), ATTNRT_DEVICE,
                  "the NVIDIA driver: the GPU was opened before fork()");
    attnrt_model_release(other);
    attnrt_session_destroy(session);
    attnrt_model_release(model);
    expect(attnrt_model_load(cpu, nullptr, &model) == ATTNRT_OK &&
               attnrt_session_create(model, nullptr, &session) == ATTNRT_OK && runOnce(session, model) == ATTNRT_OK,
           "a CPU library in a child");
    fflush(stdout);
    _exit(problems != 0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "a child of fork()");
  expect(runOnce(session, model) == ATTNRT_OK, "a run after a fork");
  attnrt_session_destroy(session);
  attnrt_model_release(model);
}

/// Which image each compute capability takes: the exact one on its own alone.
void checkImages(const char *path) {
  const struct {
    const char *settings, *images;
  } cases[] = {
      {"cc=80", "sm_80 "}, {"cc=89", "sm_80 "}, {"cc=90", "sm_90a "}, {"cc=100", "sm_80 "}, {"cc=120", "sm_80 "}};
  for (const auto &each : cases) {
    configure(each.settings);
    givenImages();
    expectWorks(path, each.settings);
    expect(!strcmp(givenImages(), each.images), each.settings);
  }
  // The best one is refused: the next one serves.
  for (const char *settings : {"cc=90,image=200", "cc=90,image=218", "cc=90,image=2"}) {
    configure(settings);
    givenImages();
    expectWorks(path, settings);
    expect(!strcmp(givenImages(), "refused sm_80 "), settings);
  }
}

/// What a driver may refuse when a session is made of the library `gpu`; each time the one for the CPU works.
void checkRefusals(const char *gpu, const char *cpu) {
  auto refuses = [&](const char *what, const char *settings, attnrt_status wanted, const char *text) {
    configure(settings);
    attnrt_model *model = nullptr;
    attnrt_session *none = nullptr;
    expect(attnrt_model_load(gpu, nullptr, &model) == ATTNRT_OK, "a library can be looked at without a GPU");
    expectFailure(what, attnrt_session_create(model, nullptr, &none), wanted, text);
    attnrt_model_release(model);
    expectWorks(cpu, "a CPU library after a fault");
  };
  refuses("no device", "init=100", ATTNRT_DEVICE, "CUDA_ERROR_NO_DEVICE");
  refuses("old driver", "version=11080", ATTNRT_DEVICE, "it serves CUDA 11.8, needed is 12.0");
  refuses("no GPU", "devices=0", ATTNRT_DEVICE, "finds no GPU");
  refuses("wrong architecture", "cc=75", ATTNRT_INCOMPATIBLE, "compute capability 7.5), only sm_90a");
  refuses("memory at load", "memory=100", ATTNRT_OUT_OF_MEMORY, "bytes for the weights");
  givenImages();
  refuses("the driver's compiler", "cc=80,image=218", ATTNRT_DEVICE,
          "its PTX for sm_80: cuModuleLoadDataEx: CUDA_ERROR_INVALID_PTX (218: a PTX JIT compilation failed): ptxas "
          "fatal: refused as asked");
  configure("");
  expectWorks(gpu, "the GPU library after these");
}

/// Blocks that wait for each other run all at once, or not at all.
void checkResidence(const char *path) {
  attnrt_model *model = nullptr;
  attnrt_session *session = nullptr;
  expect(attnrt_model_load(path, nullptr, &model) == ATTNRT_OK, "load a recurrent model");
  expect(attnrt_session_create(model, nullptr, &session) == ATTNRT_OK, "create a recurrent session");
  configure("resident=0");
  expectFailure("blocks that cannot all run at once", runOnce(session, model), ATTNRT_DEVICE,
                "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE");
  configure("");
  expect(runOnce(session, model) == ATTNRT_OK, "the same session with room");
  attnrt_session_destroy(session);
  attnrt_model_release(model);
}

/// A caller's stream that is being captured is refused, because a run waits for its work.
void checkStream(attnrt_session *session, attnrt_model *model) {
  auto *create = standIn<int(void **, unsigned)>("cuStreamCreate");
  auto *capture = standIn<int(void *, int)>("cuStreamBeginCapture_v2");
  auto *destroy = standIn<int(void *)>("cuStreamDestroy_v2");
  void *stream = nullptr;
  create(&stream, 0);
  expect(runOnce(session, model, stream) == ATTNRT_OK, "a run on the caller's stream");
  capture(stream, 0);
  expectFailure("a stream that is captured", runOnce(session, model, stream), ATTNRT_UNSUPPORTED, "being captured");
  destroy(stream);
}

/// What may fail in a run of `gpu`, last the error that stays.
void checkRuns(const char *gpu, const char *cpu, const char *recurrent) {
  attnrt_model *model = nullptr;
  attnrt_session *session = nullptr;
  configure("");
  expect(attnrt_model_load(gpu, nullptr, &model) == ATTNRT_OK, "load");
  expect(attnrt_session_create(model, nullptr, &session) == ATTNRT_OK, "create");
  configure(("memory=" + std::to_string(usedMemory() + 64)).c_str());
  expectFailure("memory in a run", runOnce(session, model), ATTNRT_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY");
  configure("");
  expect(runOnce(session, model) == ATTNRT_OK, "the same session with memory");
  expectFailure("an index out of range", runOnce(session, model, nullptr, 1 << 30), ATTNRT_OUT_OF_RANGE,
                "an index is out of range: 1073741824 in a dimension of size ");
  expect(runOnce(session, model) == ATTNRT_OK, "the same session with good indices");
  checkResidence(recurrent);
  checkStream(session, model);
  configure("launch=2");
  expectFailure("a kernel fails", runOnce(session, model), ATTNRT_DEVICE, "CUDA_ERROR_ILLEGAL_ADDRESS");
  configure("");
  expectFailure("the error stays", runOnce(session, model), ATTNRT_DEVICE, "CUDA_ERROR_ILLEGAL_ADDRESS");
  expectWorks(cpu, "a CPU library after a sticky error");
  attnrt_session_destroy(session);
  attnrt_model_release(model);
  expectWorks(gpu, "the GPU library, loaded again");
}

} // namespace

int main(int argc, char **argv) {
  if (argc != 7) {
    fprintf(stderr, "usage: gpu-faults GPU-LIBRARY CPU-LIBRARY RECURRENT-GPU-LIBRARY PRODUCTS-LIBRARY LOOP-GPU-LIBRARY "
                    "SEARCH-GPU-LIBRARY\n");
    return 1;
  }
  if (!openStandIn())
    return 1;
  launchedGraphs = standIn<uint64_t()>("attnFakeCudaGraphs");
  synchronizations = standIn<uint64_t()>("attnFakeCudaSynchronizations");
  launches = standIn<uint64_t()>("attnFakeCudaLaunches");
  atLaunch = standIn<void(long long, void (*)(void *), void *)>("attnFakeCudaAtLaunch");
  givenImages = standIn<const char *()>("attnFakeCudaImages");
  void *products = dlopen("libcublasLt.so.13", RTLD_NOW);
  libraryProducts = reinterpret_cast<long long (*)()>(dlsym(products, "attnFakeCublasLtProducts"));
  libraryQuestions = reinterpret_cast<long long (*)()>(dlsym(products, "attnFakeCublasLtQuestions"));
  const char *gpu = argv[1], *cpu = argv[2], *recurrent = argv[3];
  checkRefusals(gpu, cpu);
  checkImages(gpu);
  configure("");
  checkFork(gpu, cpu);

  configure("");
  uint64_t before = usedMemory();
  checkGraphs(gpu);
  checkGraphs(recurrent); // with launches whose blocks wait for each other
  expect(usedMemory() == before, "device memory is left by graphs");
  checkStops(gpu);
  expect(usedMemory() == before, "device memory is left by runs that stop");
  checkProducts(argv[4]);
  expect(usedMemory() == before, "device memory is left by products");
  checkLoops(argv[5]);
  expect(usedMemory() == before, "device memory is left by loops");
  checkSearch(argv[6]);
  expect(usedMemory() == before, "device memory is left by searches");
  checkRuns(gpu, cpu, recurrent);
  printf("%d problems\n", problems);
  return problems != 0;
}
