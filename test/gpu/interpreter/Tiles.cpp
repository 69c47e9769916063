#include "test/gpu/interpreter/Machine.h"

// Section 9.7.9.27.1.2 (cp.async.bulk.tensor), 5.5 (tensors), and the driver's cuTensorMapEncodeTiled: what the
// library's kernels ask of them.

namespace ptx {
namespace {

constexpr uint64_t kMark = 0x70616d2073656c69, kElement = 2, kPiece = 16;
// After so many bytes the exchange of pieces repeats (5.5.6).
constexpr uint64_t kPattern = 1024;

/// The map whose generic address an instruction names.
const TileMap &mapAt(Step &s, uint64_t address) {
  const std::vector<uint8_t> &parameters = s.launch.parameters;
  if (address < kParamWindow || address - kParamWindow + kTileMapBytes > parameters.size())
    s.fail("names a tensor map that is no parameter of the kernel");
  uint64_t place = address - kParamWindow;
  if (place % kTileMapAlignment)
    s.fail("names a tensor map that is not aligned to 64 bytes");
  auto *map = reinterpret_cast<const TileMap *>(&parameters[place]);
  if (map->mark != kMark)
    s.fail("names a parameter that is no tensor map");
  return *map;
}

/// cp.async.bulk.tensor.Nd... [to], [map, {innermost coordinate, ...}], [mbarrier]
template <uint32_t Rank> void copyTensor(Step &s) {
  s.lanes([&](unsigned lane) {
    const Operand &from = s.operand(1);
    if (from.parts.size() != 2 || from.parts[1].parts.size() != Rank)
      s.fail("expects a tensor map and " + std::to_string(Rank) + " coordinates");
    const TileMap &map = mapAt(s, s.address(from, lane));
    if (map.rank != Rank)
      s.fail("names a map of " + std::to_string(map.rank) + " dimensions");
    uint32_t bytes = kElement;
    for (uint32_t n = 0; n < Rank; ++n)
      bytes *= map.tile[n];
    PendingCopy copy{s.address(s.operand(0), lane), 0, bytes, bytes, &map};
    for (uint32_t n = 0; n < Rank; ++n)
      copy.at[n] = s.as<int32_t>(from.parts[1].parts[n], lane);
    if (copy.to % kPattern)
      s.fail("copies to " + std::to_string(copy.to) + ", which is no multiple of 1024 as the swizzle wants it");
    startCopy(s, barrierAt(s, s.address(s.operand(2), lane)), copy);
  });
}

} // namespace

void copyTile(Step &s, const PendingCopy &copy) {
  const TileMap &map = *copy.tiles;
  const uint64_t rowBytes = map.tile[0] * kElement, pieces = rowBytes / kPiece;
  for (uint64_t number = 0; number < copy.bytes / kPiece; ++number) {
    uint64_t rest = number / pieces, address = map.tensor;
    bool isInside = true;
    for (uint32_t n = 1; n < map.rank; rest /= map.tile[n++]) {
      int64_t at = int64_t(copy.at[n]) + int64_t(rest % map.tile[n]);
      isInside &= at >= 0 && uint64_t(at) < map.sizes[n];
      address += uint64_t(at) * map.pitches[n - 1];
    }
    uint16_t values[kPiece / kElement] = {};
    int64_t x = int64_t(copy.at[0]) + int64_t(number % pieces * kPiece / kElement);
    for (uint16_t &value : values) {
      if (isInside && x >= 0 && uint64_t(x) < map.sizes[0])
        memcpy(&value, s.global(address + uint64_t(x) * kElement, kElement, kElement), kElement);
      ++x;
    }
    uint64_t place = copy.to + number * kPiece;
    s.storeSharedAsync(place ^ (place >> 7 & 7) << 4, values, kPiece);
  }
}

std::string encodeTileMap(const TileMapRequest &request, void *to) {
  constexpr int kUInt16 = 1, kFloat16 = 6, kBfloat16 = 9, kSwizzle128 = 3;
  constexpr uint64_t kMostSize = uint64_t(1) << 32, kMostPitch = uint64_t(1) << 40, kRowBytes = 128, kMostTile = 256;
  if (request.type != kUInt16 && request.type != kFloat16 && request.type != kBfloat16)
    return "elements that are not of 16 bits";
  if (request.rank < 2 || request.rank > kMaxMapRank)
    return "a tensor of other than 2 to 5 dimensions";
  if (request.interleave || request.swizzle != kSwizzle128 || request.fill)
    return "another layout than rows of 128 bytes, swizzled, with zeros beyond";
  if (reinterpret_cast<uintptr_t>(to) % kTileMapAlignment)
    return "a map that is not aligned to 64 bytes";
  if (!request.tensor || request.tensor % kPiece)
    return "a tensor that is not aligned to 16 bytes";
  TileMap map = {kMark, request.tensor, {}, {}, {}, request.rank};
  for (uint32_t n = 0; n < request.rank; ++n) {
    map.sizes[n] = request.sizes[n], map.tile[n] = request.tile[n];
    if (!map.sizes[n] || map.sizes[n] > kMostSize)
      return "sizes beyond 1 to 2^32";
    if (!map.tile[n] || map.tile[n] > kMostTile || map.tile[0] * kElement != kRowBytes)
      return "tiles of other than 1 to 256 elements along a dimension, in rows of 128 bytes";
    if (request.steps[n] != 1)
      return "steps between elements";
    if (n + 1 == request.rank)
      break;
    uint64_t pitch = map.pitches[n] = request.pitches[n];
    if (pitch % kPiece || pitch >= kMostPitch || (n && pitch % map.pitches[n - 1]))
      return "a pitch that is no multiple of 16, nor of the one before, below 2^40";
  }
  static_assert(sizeof(map) <= kTileMapBytes);
  memset(to, 0, kTileMapBytes);
  memcpy(to, &map, sizeof(map));
  return "";
}

void addTileInstructions(Table &table) {
  const Execute forms[] = {copyTensor<2>, copyTensor<3>, copyTensor<4>, copyTensor<5>};
  for (uint32_t rank = 2; rank <= kMaxMapRank; ++rank)
    table["cp.async.bulk.tensor." + std::to_string(rank) + "d.shared::cluster.global.mbarrier::complete_tx::bytes"] = {
        forms[rank - 2], false};
}

} // namespace ptx
