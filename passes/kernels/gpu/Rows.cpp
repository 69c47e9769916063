#include "passes/kernels/gpu/Rows.h"

#include "passes/kernels/gpu/ThreadCode.h"
#include <limits>
#include <numeric>

using namespace mlir;

namespace attn {
namespace {

constexpr int64_t kWarp = 32;

Num greater(const Num &x, const Num &y) { return maximum(x, y); }
Num plus(const Num &x, const Num &y) { return x + y; }

/// How threads share a row: each takes groups of `width` elements side by side, and neighbours neighbouring groups.
struct RowForm {
  int64_t threads = kWarp; ///< of a row
  int64_t width = 1;       ///< divides the row's size
  int64_t groups = 1;      ///< of a thread at once
  bool isHeld = true;      ///< a row is read once and stays in registers; else it is read again and again, in rounds

  int64_t round() const { return threads * width * groups; }
};

/// For rows of `size` elements, of which an access takes `widest` at most.
RowForm chooseForm(int64_t size, int64_t widest) {
  // Few elements a thread make its code short, which is what counts where there are few rows; many of them keep enough
  // loads under way with fewer threads to wait for.
  constexpr int64_t kFew = 8, kMany = 16, kThreads = 256, kMostThreads = 512, kMost = 2 * kMany * kMostThreads;
  int64_t width = std::gcd(size, widest), groups = size / width;
  if (size == 0 || size > kMost)
    return {kMostThreads, width, kMany / width, /*isHeld=*/false};
  auto fullWarps = [](int64_t threads) { return static_cast<int64_t>(llvm::alignTo(threads, kWarp)); };
  int64_t threads = std::max(std::min(kThreads, fullWarps(llvm::divideCeil(size, kFew))),
                             std::min(kMostThreads, fullWarps(llvm::divideCeil(size, kMany))));
  // Rather more of them than some that idle in the last groups.
  for (int64_t more = threads; more <= std::min(2 * threads, kMostThreads); more += kWarp)
    if (groups % more == 0)
      return {more, width, groups / more};
  return {threads, width, static_cast<int64_t>(llvm::divideCeil(groups, threads))};
}

/// Rows of the trailing dimensions of buffers of one type, one at a time.
class RowEmitter {
public:
  RowEmitter(OpBuilder &b, Location loc, StringRef symbol, MemRefType type, int64_t axis)
      : f(b, loc, symbol), k(b, loc), type(type), axis(axis) {
    for (int64_t extent : type.getShape().drop_front(axis))
      known = ShapedType::isDynamic(known) || ShapedType::isDynamic(extent) ? ShapedType::kDynamic : known * extent;
  }

  /// `row` emits the work of a thread on a row of the first of buffers of `types`. The last is the result, the others
  /// have a row each.
  func::FuncOp emit(ArrayRef<MemRefType> types, llvm::function_ref<void()> row) {
    auto buffers = llvm::map_to_vector(types, [&](MemRefType type) { return f.buffer(type); });
    Index rows = k.index(1);
    size = k.index(1);
    for (int64_t n = 0; n < type.getRank(); ++n)
      (n < axis ? rows : size) = (n < axis ? rows : size) * buffers[0].dim(n);
    flat = llvm::map_to_vector(buffers, [](const Buffer &buffer) { return buffer.flat(); });
    int64_t widest = kVectorBytes * 8 / type.getElementTypeBitWidth();
    if (!ShapedType::isDynamic(known)) {
      launch(rows, chooseForm(known, widest), [&](const RowForm &form) { work(form, row); });
      return f.function;
    }
    // Threads choose, not the host: a loop whose steps are launches alone can stay on the device.
    RowForm wide{256, widest, 16 / widest}, any{256, 1, 4, /*isHeld=*/false};
    launch(rows, wide, [&](const RowForm &wide) {
      Mask isWide = (size % widest == 0) & (size > 0) & (size <= wide.round());
      k.when(isWide, [&] { work(wide, row); }, [&] { work(any, row); });
    });
    return f.function;
  }

  /// 1 / size
  Num perElement() {
    return ShapedType::isDynamic(known) ? 1.0 / convert(toNum(size, k.b.getI64Type()), k.b.getF32Type())
                                        : k.f32(1.0 / known);
  }
  /// `combine` over `of` each element of a row, the same in all threads.
  Num reduce(double start, Num (*combine)(const Num &, const Num &), llvm::function_ref<Num(Num)> of) {
    auto overRound = [&](const Round &round) {
      Nums parts;
      for (auto [group, elements] : llvm::zip_equal(round.groups, round.row)) {
        Num part = tree<Num>(llvm::map_to_vector<8>(elements, of), combine);
        parts.push_back(group.isInside ? select(*group.isInside, part, k.f32(start)) : part);
      }
      return tree<Num>(parts, combine);
    };
    Num mine = form.isHeld ? overRound(held) : k.loop(first, size, form.round(), k.f32(start), [&](Index at, Num now) {
      return combine(now, overRound(load(at, /*withOthers=*/false)));
    });
    Num all = k.acrossThreads(mine, kWarp, combine);
    int64_t warps = form.threads / kWarp;
    if (warps == 1)
      return all;
    // Each reduction has places of its own, so that none waits for readers of the last one.
    int64_t origin = placesOf(warps) * reductions++;
    k.when(thread % kWarp == 0, [&] { partial.set(all, thread / kWarp + origin); });
    if (int64_t idle = placesOf(warps) - warps)
      k.when(thread < idle, [&] { partial.set(k.f32(start), thread + (origin + warps)); });
    k.barrier();
    return tree<Num>(
        llvm::map_to_vector<16>(llvm::seq(placesOf(warps)), [&](int64_t n) { return partial(origin + n); }), combine);
  }
  /// Elements of the result by those of the row and of the other operands.
  void write(llvm::function_ref<Num(Num, ArrayRef<Num>)> of) {
    if (form.isHeld)
      return store(held, of);
    k.loop(first, size, form.round(), [&](Index at) { store(load(at, /*withOthers=*/true), of); });
  }

  /// The row's one result.
  void writeOne(const Num &x) {
    k.when(thread < 1, [&] { flat.back().set(x, number); });
  }

private:
  static constexpr int64_t kVectorBytes = 16, kReductions = 2;

  /// Of a reduction, an f32 each: four are read at once.
  static int64_t placesOf(int64_t warps) { return llvm::alignTo(warps, 4); }

  struct Group {
    Index at;                     ///< in the row
    std::optional<Mask> isInside; ///< null: it is
  };
  struct Round {
    SmallVector<Group> groups;
    SmallVector<Nums> row;                 ///< of each group; any elements where it lies outside
    SmallVector<SmallVector<Nums>> others; ///< of each other operand
  };

  /// `work` has a row of threads as in `form`.
  void launch(const Index &rows, const RowForm &form, llvm::function_ref<void(const RowForm &)> work) {
    int64_t warps = form.threads / kWarp, rowsOfBlock = warps == 1 ? 4 : 1;
    SmallVector<Buffer> shared =
        k.launch(ceilDiv(rows, rowsOfBlock), form.threads * rowsOfBlock,
                 warps == 1 ? ArrayRef<int64_t>() : ArrayRef<int64_t>(kReductions * placesOf(warps)));
    thread = warps > 1 ? k.thread : k.thread % kWarp;
    number = warps > 1 ? k.block : k.block * rowsOfBlock + k.thread / kWarp;
    base = number * size;
    if (warps > 1) {
      partial = shared[0];
      return work(form);
    }
    k.when(number < rows, [&] { work(form); }); // all of a warp or none
  }

  void work(const RowForm &chosen, llvm::function_ref<void()> row) {
    form = chosen, reductions = 0;
    first = thread * form.width;
    if (form.isHeld)
      held = load(first, /*withOthers=*/true);
    row();
  }

  /// The thread's groups from `at` on. All accesses stand in front of the first use, without branches: a group that
  /// lies outside is another one instead.
  Round load(const Index &at, bool withOthers) {
    Round round;
    Indices from;
    for (int64_t n = 0; n < form.groups; ++n) {
      Group group{at + n * form.threads * form.width, {}};
      bool isCertain = form.isHeld ? !ShapedType::isDynamic(known) && (n + 1) * form.threads * form.width <= known : !n;
      if (!isCertain)
        group.isInside = group.at < size;
      from.push_back(isCertain ? group.at : select(*group.isInside, group.at, form.isHeld ? k.index(0) : at));
      round.groups.push_back(group);
    }
    auto read = [&](const Buffer &buffer, const Index &origin) {
      return llvm::map_to_vector(from, [&](Index n) { return k.loadWide(buffer, origin + n, form.width); });
    };
    round.row = read(flat.front(), base);
    if (withOthers)
      for (const Buffer &other : ArrayRef(flat).drop_front().drop_back())
        round.others.push_back(read(other, k.index(0)));
    return round;
  }

  void store(const Round &round, llvm::function_ref<Num(Num, ArrayRef<Num>)> of) {
    for (size_t n = 0; n < round.groups.size(); ++n) {
      const Group &group = round.groups[n];
      Nums results;
      for (int64_t e = 0; e < form.width; ++e) {
        auto others = llvm::map_to_vector<2>(round.others, [&](auto &other) { return other[n][e]; });
        results.push_back(of(round.row[n][e], others));
      }
      auto write = [&] { k.storeFew(results, flat.back(), base + group.at); };
      group.isInside ? k.when(*group.isInside, write) : write();
    }
  }

  KernelFunction f;
  ThreadCode k;
  MemRefType type;
  int64_t axis, known = 1; ///< the size of a row
  RowForm form;
  Index size, number, base, thread, first; ///< `thread` of those of the row, whose first group is at `first`
  SmallVector<Buffer> flat;
  Round held;
  Buffer partial; ///< of each warp, for each reduction
  int64_t reductions = 0;
};

} // namespace

bool canBuildGpuRows(MemRefType type, std::string &reason) {
  Type element = type.getElementType();
  if (element.isF32() || element.isF16() || element.isBF16())
    return true;
  reason = "only f32, f16 and bf16 have a kernel so far";
  return false;
}

func::FuncOp buildGpuRowSoftmax(OpBuilder &builder, Location loc, StringRef symbol, const SoftmaxSpec &spec) {
  RowEmitter rows(builder, loc, symbol, spec.type, spec.type.getRank() - 1);
  return rows.emit({spec.type, spec.type}, [&] {
    Num top = rows.reduce(-std::numeric_limits<double>::infinity(), greater, [](Num x) { return x; });
    Num sum = rows.reduce(0, plus, [&](Num x) { return exp(x - top); });
    Num last = spec.log ? log(sum) : 1.0 / sum;
    // (x - max) - log(sum), not x - (max + log(sum)): a large maximum cancels.
    rows.write([&](Num x, ArrayRef<Num>) { return spec.log ? x - top - last : exp(x - top) * last; });
  });
}

func::FuncOp buildGpuLayerNorm(OpBuilder &builder, Location loc, StringRef symbol, const LayerNormSpec &spec) {
  RowEmitter rows(builder, loc, symbol, spec.type, spec.axis);
  SmallVector<MemRefType> types{spec.type, spec.scaleType};
  if (spec.biasType)
    types.push_back(spec.biasType);
  types.push_back(spec.type);
  return rows.emit(types, [&] {
    Num share = rows.perElement();
    Num mean = rows.reduce(0, plus, [](Num x) { return x; }) * share;
    Num variance = rows.reduce(0, plus, [&](Num x) { return (x - mean) * (x - mean); }) * share;
    Num factor = 1.0 / sqrt(variance + static_cast<double>(spec.epsilon));
    rows.write([&](Num x, ArrayRef<Num> scaleAndBias) {
      Num normal = (x - mean) * factor;
      return spec.biasType ? fma(normal, scaleAndBias[0], scaleAndBias[1]) : normal * scaleAndBias[0];
    });
  });
}

func::FuncOp buildGpuRowMagnitudes(OpBuilder &builder, Location loc, StringRef symbol, MemRefType type) {
  RowEmitter rows(builder, loc, symbol, type, type.getRank() - 1);
  auto result = MemRefType::get(type.getShape().drop_back(), builder.getF32Type());
  return rows.emit({type, result}, [&] { rows.writeOne(rows.reduce(0, greater, [](Num x) { return abs(x); })); });
}

} // namespace attn
