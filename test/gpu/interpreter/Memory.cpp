#include "test/gpu/interpreter/Races.h"

#include <algorithm>

// Section 9.7.9: mov, ld, st, cvta, shfl, cp.async; 9.7.13.5: atom, red.

namespace ptx {
namespace {

//===----------------------------------------------------------------------===//
// mov (9.7.9.3, 9.7.9.4)
//===----------------------------------------------------------------------===//

template <typename T> void move(Step &s) {
  const Operand &to = s.operand(0), &from = s.operand(1);
  if (to.kind != Operand::Vector && from.kind != Operand::Vector) {
    Source value(s, 1);
    return s.each([&](unsigned lane) { return value.as<T>(lane); });
  }
  s.lanes([&](unsigned lane) {
    if (from.kind == Operand::Vector) {
      unsigned bits = 8 * sizeof(T) / unsigned(from.parts.size());
      uint64_t value = 0;
      for (size_t i = 0; i < from.parts.size(); ++i)
        value |= (s.read(from.parts[i], lane) & ((uint64_t(1) << bits) - 1)) << bits * i;
      s.write(to, lane, T(value));
    } else {
      unsigned bits = 8 * sizeof(T) / unsigned(to.parts.size());
      uint64_t value = s.as<T>(from, lane);
      for (size_t i = 0; i < to.parts.size(); ++i)
        s.write(to.parts[i], lane, value >> bits * i & ((uint64_t(1) << bits) - 1));
    }
  });
}

//===----------------------------------------------------------------------===//
// ld, st (9.7.9.8, 9.7.9.11)
//===----------------------------------------------------------------------===//

enum Space { Generic, Global, Shared, Local, Param };

template <Space S> void loadFrom(Step &s, unsigned lane, uint64_t address, void *to, uint32_t bytes, uint32_t align) {
  switch (S) {
  case Generic:
    return s.load(address, lane, to, bytes);
  case Global:
    memcpy(to, s.global(address, bytes, align), bytes);
    return;
  case Shared:
    return s.loadShared(address, to, bytes, align);
  case Local:
    memcpy(to, s.local(lane, address, bytes, align), bytes);
    return;
  case Param:
    if (address > s.launch.parameters.size() || bytes > s.launch.parameters.size() - address)
      s.fail("is out of bounds among the parameters");
    memcpy(to, &s.launch.parameters[address], bytes);
  }
}
template <Space S>
void storeTo(Step &s, unsigned lane, uint64_t address, const void *from, uint32_t bytes, uint32_t align) {
  switch (S) {
  case Generic:
    return s.store(address, lane, from, bytes);
  case Global:
    memcpy(s.global(address, bytes, align), from, bytes);
    return;
  case Shared:
    return s.storeShared(address, from, bytes, align);
  case Local:
    memcpy(s.local(lane, address, bytes, align), from, bytes);
    return;
  case Param:
    s.fail("stores to a parameter");
  }
}

/// The launch's record of accesses, if it keeps one and `address` is of global memory.
template <Space S> Races *racesOf(Step &s, uint64_t address) {
  return S == Global || (S == Generic && address < kSharedWindow) ? s.launch.races : nullptr;
}

// A narrow value is extended to the register by its sign (9.7.9.8).
template <typename T> uint64_t extend(T value) {
  return std::is_signed_v<T> ? uint64_t(int64_t(value)) : uint64_t(value);
}

const Operand &addressOperand(Step &s, size_t number) {
  const Operand &operand = s.operand(number);
  if (operand.kind != Operand::Address)
    s.fail("expects an address");
  return operand;
}

template <typename T, Space S, unsigned N> void load(Step &s) {
  const Operand &to = s.operand(0);
  if ((to.kind == Operand::Vector ? to.parts.size() : 1) != N)
    s.fail("has another number of registers than its vector");
  const Operand &place = addressOperand(s, 1);
  Source base(s, place.parts[0]);
  s.lanes([&](unsigned lane) {
    T values[N];
    uint64_t address = base.as<uint64_t>(lane) + uint64_t(place.offset);
    if (S == Generic && N > 1 && address % sizeof(values))
      s.fail("is misaligned");
    if (Races *races = racesOf<S>(s, address))
      races->load(s, address, sizeof(values));
    loadFrom<S>(s, lane, address, values, sizeof(values), sizeof(values));
    for (unsigned i = 0; i < N; ++i)
      s.write(N == 1 ? to : to.parts[i], lane, extend(values[i]));
  });
}
template <typename T, Space S, unsigned N> void store(Step &s) {
  const Operand &from = s.operand(1);
  if ((from.kind == Operand::Vector ? from.parts.size() : 1) != N)
    s.fail("has another number of registers than its vector");
  const Operand &place = addressOperand(s, 0);
  Source base(s, place.parts[0]);
  s.lanes([&](unsigned lane) {
    T values[N];
    for (unsigned i = 0; i < N; ++i)
      values[i] = s.as<T>(N == 1 ? from : from.parts[i], lane);
    uint64_t address = base.as<uint64_t>(lane) + uint64_t(place.offset);
    if (Races *races = racesOf<S>(s, address))
      races->store(s, address, sizeof(values));
    storeTo<S>(s, lane, address, values, sizeof(values), sizeof(values));
  });
}

template <typename T, Space S> void addAccess(Table &table, const std::string &space, const std::string &type) {
  // `.nc`, volatile, relaxed: memory is one here, accesses happen in order.
  std::vector<std::string> forms{"ld" + space, "ld.volatile" + space, "ld.weak" + space};
  if (S == Global)
    forms.insert(forms.end(),
                 {"ld.global.nc", "ld.relaxed.gpu.global", "ld.acquire.gpu.global", "ld.relaxed.sys.global"});
  for (const std::string &form : forms) {
    table[form + "." + type] = {load<T, S, 1>, false};
    table[form + ".v2." + type] = {load<T, S, 2>, false};
    if (sizeof(T) <= 4)
      table[form + ".v4." + type] = {load<T, S, 4>, false};
  }
  if (S == Param)
    return;
  forms = {"st" + space, "st.volatile" + space, "st.weak" + space};
  if (S == Global)
    forms.insert(forms.end(), {"st.relaxed.gpu.global", "st.release.gpu.global", "st.relaxed.sys.global"});
  for (const std::string &form : forms) {
    table[form + "." + type] = {store<T, S, 1>, false};
    table[form + ".v2." + type] = {store<T, S, 2>, false};
    if (sizeof(T) <= 4)
      table[form + ".v4." + type] = {store<T, S, 4>, false};
  }
}
template <Space S> void addSpace(Table &table, const std::string &space) {
  addAccess<uint8_t, S>(table, space, "b8"), addAccess<uint8_t, S>(table, space, "u8");
  addAccess<int8_t, S>(table, space, "s8"), addAccess<int16_t, S>(table, space, "s16");
  addAccess<uint16_t, S>(table, space, "b16"), addAccess<uint16_t, S>(table, space, "u16");
  addAccess<uint32_t, S>(table, space, "b32"), addAccess<uint32_t, S>(table, space, "u32");
  addAccess<int32_t, S>(table, space, "s32"), addAccess<uint32_t, S>(table, space, "f32");
  addAccess<uint64_t, S>(table, space, "b64"), addAccess<uint64_t, S>(table, space, "u64");
  addAccess<uint64_t, S>(table, space, "s64"), addAccess<uint64_t, S>(table, space, "f64");
}

//===----------------------------------------------------------------------===//
// cvta (9.7.9.20)
//===----------------------------------------------------------------------===//

template <int64_t Added> void convertAddress(Step &s) {
  s.lanes([&](unsigned lane) { s.write(s.operand(0), lane, s.as<uint64_t>(s.operand(1), lane) + uint64_t(Added)); });
}

//===----------------------------------------------------------------------===//
// shfl.sync (9.7.9.6), vote.sync (9.7.13.11), redux.sync (9.7.13.14)
//===----------------------------------------------------------------------===//

uint32_t checkMembers(Step &s, const Operand &mask) {
  uint32_t members = 0;
  s.lanes([&](unsigned lane) { members = s.as<uint32_t>(mask, lane); });
  if ((members & s.warp.alive) != s.mask)
    s.fail("is executed by other lanes than its member mask names");
  return members;
}

enum Shuffle { Up, Down, Butterfly, Index };
template <Shuffle M> void shuffle(Step &s) {
  checkMembers(s, s.operand(4));
  const Operand &to = s.operand(0);
  uint32_t values[kLanes];
  s.lanes([&](unsigned lane) { values[lane] = s.as<uint32_t>(s.operand(1), lane); });
  uint32_t result[kLanes];
  bool valid[kLanes];
  s.lanes([&](unsigned lane) {
    int b = int(s.as<uint32_t>(s.operand(2), lane) & 31);
    uint32_t c = s.as<uint32_t>(s.operand(3), lane), clamp = c & 31, segment = c >> 8 & 31;
    int last = int((lane & segment) | (clamp & ~segment)), first = int(lane & segment), from = int(lane);
    switch (M) {
    case Up:
      from -= b;
      valid[lane] = from >= last;
      break;
    case Down:
      from += b;
      valid[lane] = from <= last;
      break;
    case Butterfly:
      from ^= b;
      valid[lane] = from <= last;
      break;
    case Index:
      from = first | (b & int(~segment));
      valid[lane] = from <= last;
      break;
    }
    if (!valid[lane])
      from = int(lane);
    if (!(s.mask >> from & 1))
      s.fail("reads a lane that does not take part");
    result[lane] = values[from];
  });
  s.lanes([&](unsigned lane) {
    if (to.kind == Operand::Vector) {
      s.write(to.parts[0], lane, result[lane]);
      s.write(to.parts[1], lane, uint8_t(valid[lane]));
    } else {
      s.write(to, lane, result[lane]);
    }
  });
}

enum Vote { All, Any, Ballot };
template <Vote V> void vote(Step &s) {
  uint32_t members = checkMembers(s, s.operand(2)), votes = 0;
  s.lanes([&](unsigned lane) {
    const Operand &operand = s.operand(1);
    votes |= uint32_t(s.read(operand, lane) & 1) << lane;
  });
  s.lanes([&](unsigned lane) {
    if (V == Ballot)
      s.write(s.operand(0), lane, votes);
    else
      s.write(s.operand(0), lane, uint8_t(V == All ? votes == (members & s.mask) : votes != 0));
  });
}

template <typename T, T (*F)(T, T)> void reduceWarp(Step &s) {
  checkMembers(s, s.operand(2));
  bool isFirst = true;
  T total = 0;
  s.lanes([&](unsigned lane) {
    T value = s.as<T>(s.operand(1), lane);
    total = isFirst ? value : F(total, value);
    isFirst = false;
  });
  s.lanes([&](unsigned lane) { s.write(s.operand(0), lane, total); });
}

//===----------------------------------------------------------------------===//
// atom, red (9.7.13.5, 9.7.13.6)
//===----------------------------------------------------------------------===//

template <typename T> T addAtomic(T a, T b) { return T(a + b); }
template <typename T> T least(T a, T b) { return std::min(a, b); }
template <typename T> T greatest(T a, T b) { return std::max(a, b); }
template <typename T> T bitAnd(T a, T b) { return a & b; }
template <typename T> T bitOr(T a, T b) { return a | b; }
template <typename T> T exchange(T, T b) { return b; }
float addFloat(float a, float b) { return a + b; }

template <typename T, Space S, bool Returns, T (*F)(T, T)> void atomic(Step &s) {
  const Operand &place = s.operand(Returns ? 1 : 0), &value = s.operand(Returns ? 2 : 1);
  s.lanes([&](unsigned lane) {
    T old;
    uint64_t address = s.address(place, lane);
    if (Races *races = racesOf<S>(s, address))
      races->update(s, address);
    loadFrom<S>(s, lane, address, &old, sizeof(T), sizeof(T));
    T result = F(old, s.as<T>(value, lane));
    storeTo<S>(s, lane, address, &result, sizeof(T), sizeof(T));
    if (Returns)
      s.write(s.operand(0), lane, old);
  });
}
template <typename T, Space S> void compareAndSwap(Step &s) {
  s.lanes([&](unsigned lane) {
    T old;
    uint64_t address = s.address(s.operand(1), lane);
    if (Races *races = racesOf<S>(s, address))
      races->update(s, address);
    loadFrom<S>(s, lane, address, &old, sizeof(T), sizeof(T));
    if (old == s.as<T>(s.operand(2), lane)) {
      T value = s.as<T>(s.operand(3), lane);
      storeTo<S>(s, lane, address, &value, sizeof(T), sizeof(T));
    }
    s.write(s.operand(0), lane, old);
  });
}
template <typename T, Space S, T (*F)(T, T)>
void addAtomics(Table &table, const std::string &space, const std::string &operation) {
  for (const char *order : {"", ".relaxed.gpu", ".acq_rel.gpu", ".acquire.gpu", ".release.gpu", ".relaxed.sys",
                            ".acq_rel.sys", ".relaxed.cta"}) {
    table["atom" + std::string(order) + space + operation] = {atomic<T, S, true, F>, false};
    table["red" + std::string(order) + space + operation] = {atomic<T, S, false, F>, false};
  }
}
template <Space S> void addAtomicSpace(Table &table, const std::string &space) {
  addAtomics<uint32_t, S, addAtomic<uint32_t>>(table, space, ".add.u32");
  addAtomics<uint32_t, S, addAtomic<uint32_t>>(table, space, ".add.s32");
  addAtomics<uint64_t, S, addAtomic<uint64_t>>(table, space, ".add.u64");
  addAtomics<float, S, addFloat>(table, space, ".add.f32");
  addAtomics<uint32_t, S, least<uint32_t>>(table, space, ".min.u32");
  addAtomics<uint32_t, S, greatest<uint32_t>>(table, space, ".max.u32");
  addAtomics<int32_t, S, least<int32_t>>(table, space, ".min.s32");
  addAtomics<int32_t, S, greatest<int32_t>>(table, space, ".max.s32");
  addAtomics<uint32_t, S, bitAnd<uint32_t>>(table, space, ".and.b32");
  addAtomics<uint32_t, S, bitOr<uint32_t>>(table, space, ".or.b32");
  addAtomics<uint64_t, S, bitOr<uint64_t>>(table, space, ".or.b64");
  addAtomics<uint64_t, S, greatest<uint64_t>>(table, space, ".max.u64");
  addAtomics<uint32_t, S, exchange<uint32_t>>(table, space, ".exch.b32");
  addAtomics<uint64_t, S, exchange<uint64_t>>(table, space, ".exch.b64");
  for (const char *order : {"", ".relaxed.gpu", ".acq_rel.gpu", ".acquire.gpu", ".release.gpu", ".relaxed.sys"}) {
    table["atom" + std::string(order) + space + ".cas.b32"] = {compareAndSwap<uint32_t, S>, false};
    table["atom" + std::string(order) + space + ".cas.b64"] = {compareAndSwap<uint64_t, S>, false};
  }
}

//===----------------------------------------------------------------------===//
// cp.async (9.7.9.25.3)
//===----------------------------------------------------------------------===//

void perform(Step &s, const PendingCopy &copy) {
  uint8_t bytes[16] = {};
  if (copy.fromBytes)
    memcpy(bytes, s.global(copy.from, copy.fromBytes, copy.fromBytes == copy.bytes ? copy.bytes : 0), copy.fromBytes);
  s.storeShared(copy.to, bytes, copy.bytes, copy.bytes);
}
void copyAsync(Step &s) {
  s.lanes([&](unsigned lane) {
    PendingCopy copy{s.address(s.operand(0), lane), s.address(s.operand(1), lane), s.as<uint32_t>(s.operand(2), lane),
                     0};
    copy.fromBytes = s.numOperands() > 3 ? s.as<uint32_t>(s.operand(3), lane) : copy.bytes;
    if ((copy.bytes != 4 && copy.bytes != 8 && copy.bytes != 16) || copy.fromBytes > copy.bytes)
      s.fail("copies " + std::to_string(copy.fromBytes) + " of " + std::to_string(copy.bytes) + " bytes");
    if (!s.launch.options.lazy)
      return perform(s, copy);
    if (copy.to % copy.bytes)
      s.fail("is misaligned in shared memory");
    checkUnread(s, copy.to, copy.bytes);
    s.forgetShared(copy.to, copy.bytes); // until it is waited for
    s.warp.uncommitted[lane].push_back(copy);
  });
}
void commitCopies(Step &s) {
  s.lanes([&](unsigned lane) {
    s.warp.committed[lane].push_back(std::move(s.warp.uncommitted[lane]));
    s.warp.uncommitted[lane].clear();
  });
}
void waitFor(Step &s, unsigned lane, size_t pending) {
  auto &groups = s.warp.committed[lane];
  while (groups.size() > pending) {
    for (const PendingCopy &copy : groups.front())
      perform(s, copy);
    groups.erase(groups.begin());
  }
}
void waitCopies(Step &s) {
  s.lanes([&](unsigned lane) { waitFor(s, lane, s.as<uint32_t>(s.operand(0), lane)); });
}
void waitAllCopies(Step &s) {
  commitCopies(s);
  s.lanes([&](unsigned lane) { waitFor(s, lane, 0); });
}

} // namespace

void addMemoryInstructions(Table &table) {
  for (const char *type : {"b16", "u16", "s16"})
    table["mov." + std::string(type)] = {move<uint16_t>, false};
  for (const char *type : {"b32", "u32", "s32", "f32"})
    table["mov." + std::string(type)] = {move<uint32_t>, false};
  for (const char *type : {"b64", "u64", "s64", "f64"})
    table["mov." + std::string(type)] = {move<uint64_t>, false};
  table["mov.pred"] = {move<uint8_t>, false};

  addSpace<Generic>(table, ""), addSpace<Global>(table, ".global"), addSpace<Shared>(table, ".shared");
  addSpace<Local>(table, ".local"), addSpace<Param>(table, ".param"), addSpace<Global>(table, ".const");

  for (const char *space : {"global", "const"}) {
    table["cvta." + std::string(space) + ".u64"] = {convertAddress<0>, false};
    table["cvta.to." + std::string(space) + ".u64"] = {convertAddress<0>, false};
  }
  table["cvta.param.u64"] = {convertAddress<int64_t(kParamWindow)>, false};
  table["cvta.to.param.u64"] = {convertAddress<-int64_t(kParamWindow)>, false};
  table["cvta.shared.u64"] = {convertAddress<int64_t(kSharedWindow)>, false};
  table["cvta.to.shared.u64"] = {convertAddress<-int64_t(kSharedWindow)>, false};
  table["cvta.local.u64"] = {convertAddress<int64_t(kLocalWindow)>, false};
  table["cvta.to.local.u64"] = {convertAddress<-int64_t(kLocalWindow)>, false};

  table["shfl.sync.up.b32"] = {shuffle<Up>, true}, table["shfl.sync.down.b32"] = {shuffle<Down>, true};
  table["shfl.sync.bfly.b32"] = {shuffle<Butterfly>, true}, table["shfl.sync.idx.b32"] = {shuffle<Index>, true};
  table["vote.sync.all.pred"] = {vote<All>, true}, table["vote.sync.any.pred"] = {vote<Any>, true};
  table["vote.sync.ballot.b32"] = {vote<Ballot>, true};
  table["redux.sync.add.s32"] = {reduceWarp<uint32_t, addAtomic<uint32_t>>, true};
  table["redux.sync.max.s32"] = {reduceWarp<int32_t, greatest<int32_t>>, true};
  table["redux.sync.min.s32"] = {reduceWarp<int32_t, least<int32_t>>, true};

  addAtomicSpace<Generic>(table, ""), addAtomicSpace<Global>(table, ".global");
  addAtomicSpace<Shared>(table, ".shared");

  for (const char *form :
       {"cp.async.ca.shared.global", "cp.async.cg.shared.global", "cp.async.cg.shared.global.L2::128B"})
    table[form] = {copyAsync, false};
  table["cp.async.commit_group"] = {commitCopies, false};
  table["cp.async.wait_group"] = {waitCopies, false}, table["cp.async.wait_all"] = {waitAllCopies, false};
}

} // namespace ptx
