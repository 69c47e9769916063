#include "tools/attn-run/runner/Npy.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <string_view>
#include <sys/stat.h>
#include <type_traits>
#include <unistd.h>

namespace attn::runner {
namespace {

constexpr char kMagic[] = "\x93NUMPY";
constexpr size_t kMagicSize = 6;
constexpr uint32_t kMaxHeader = 64 * 1024; // NumPy's own limit is 10,000 characters
constexpr size_t kMaxRank = 32;

struct Named {
  const char *descr;
  int32_t dtype;
};
constexpr Named kDescrs[] = {{"|b1", ATTNRT_BOOL}, {"|i1", ATTNRT_I8},  {"|u1", ATTNRT_U8},  {"<i2", ATTNRT_I16},
                             {"<u2", ATTNRT_U16},  {"<i4", ATTNRT_I32}, {"<u4", ATTNRT_U32}, {"<i8", ATTNRT_I64},
                             {"<u8", ATTNRT_U64},  {"<f2", ATTNRT_F16}, {"<f4", ATTNRT_F32}, {"<f8", ATTNRT_F64},
                             {"|V2", ATTNRT_BF16}, {"<V2", ATTNRT_BF16}};

class File {
public:
  explicit File(int fd) : fd(fd) {}
  ~File() {
    if (fd >= 0)
      ::close(fd);
  }
  File(const File &) = delete;
  bool close() {
    int old = fd;
    fd = -1;
    return ::close(old) == 0;
  }
  int get() const { return fd; }

private:
  int fd;
};

/// Moves all of `size` bytes by read(2) or write(2), whatever part a call takes.
template <typename Byte> bool moveAll(ssize_t (*move)(int, Byte *, size_t), int fd, Byte *data, uint64_t size) {
  auto *p = static_cast<std::conditional_t<std::is_const_v<Byte>, const char, char> *>(data);
  while (size) {
    ssize_t n = move(fd, p, std::min<uint64_t>(size, UINT64_C(1) << 30));
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0)
      return false;
    p += n;
    size -= static_cast<uint64_t>(n);
  }
  return true;
}

bool readAll(int fd, void *data, uint64_t size) { return moveAll<void>(read, fd, data, size); }
bool writeAll(int fd, const void *data, uint64_t size) { return moveAll<const void>(write, fd, data, size); }

/// The dictionary that np.save writes: {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }
class HeaderParser {
public:
  explicit HeaderParser(std::string_view text) : text(text) {}

  std::string descr;
  bool fortranOrder = false;
  std::vector<int64_t> shape;

  bool parse(std::string &error) {
    bool seen[3] = {};
    if (!take('{'))
      return fail(error, "the header is no dictionary");
    while (!take('}')) {
      std::string key;
      if (!quoted(key) || !take(':'))
        return fail(error, "the header is damaged");
      bool good;
      int which = key == "descr" ? 0 : key == "fortran_order" ? 1 : key == "shape" ? 2 : 3;
      if (which == 3 || seen[which])
        return fail(error, (which == 3 ? "the header has an unknown key '" : "the header repeats '") + key + "'");
      seen[which] = true;
      if (which == 0) {
        if (peek() == '[')
          return fail(error, "arrays of records are not supported");
        good = quoted(descr);
      } else if (which == 1) {
        fortranOrder = word("True");
        good = fortranOrder || word("False");
      } else {
        good = tuple();
      }
      if (!good)
        return fail(error, "the header's '" + key + "' is damaged");
      if (!take(',') && peek() != '}')
        return fail(error, "the header is damaged");
    }
    skipSpace();
    if (at != text.size())
      return fail(error, "the header has text after its dictionary");
    if (!seen[0] || !seen[1] || !seen[2])
      return fail(error, "the header lacks descr, fortran_order or shape");
    return true;
  }

private:
  static bool fail(std::string &error, std::string what) {
    error = std::move(what);
    return false;
  }
  void skipSpace() {
    while (at < text.size() && (text[at] == ' ' || text[at] == '\n'))
      ++at;
  }
  char peek() {
    skipSpace();
    return at < text.size() ? text[at] : '\0';
  }
  bool take(char c) {
    if (peek() != c)
      return false;
    ++at;
    return true;
  }
  bool word(std::string_view expected) {
    skipSpace();
    if (text.substr(at, expected.size()) != expected)
      return false;
    at += expected.size();
    return true;
  }
  bool quoted(std::string &value) {
    char quote = peek();
    if (quote != '\'' && quote != '"')
      return false;
    size_t end = text.find(quote, ++at);
    if (end == std::string_view::npos)
      return false;
    value = text.substr(at, end - at);
    at = end + 1;
    return true;
  }
  bool integer(int64_t &value) {
    skipSpace();
    size_t begin = at;
    value = 0;
    for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at)
      if (__builtin_mul_overflow(value, int64_t(10), &value) || __builtin_add_overflow(value, text[at] - '0', &value))
        return false;
    return at > begin;
  }
  bool tuple() {
    if (!take('('))
      return false;
    bool comma = true;
    while (!take(')')) {
      int64_t dim;
      if (!comma || !integer(dim) || shape.size() == kMaxRank)
        return false;
      shape.push_back(dim);
      comma = take(',');
    }
    return shape.size() != 1 || comma; // "(3)" is no tuple
  }

  std::string_view text;
  size_t at = 0;
};

/// Row-major `to` from column-major `from`.
void transpose(const char *from, char *to, const std::vector<int64_t> &shape, uint64_t count, uint64_t size) {
  std::vector<uint64_t> stride(shape.size()), index(shape.size());
  uint64_t step = 1;
  for (size_t d = 0; d < shape.size(); ++d) {
    stride[d] = step;
    step *= static_cast<uint64_t>(shape[d]);
  }
  uint64_t source = 0;
  for (uint64_t i = 0; i < count; ++i) {
    std::memcpy(to + i * size, from + source * size, size);
    for (size_t d = shape.size(); d-- > 0;) {
      source += stride[d];
      if (++index[d] < static_cast<uint64_t>(shape[d]))
        break;
      source -= stride[d] * static_cast<uint64_t>(shape[d]);
      index[d] = 0;
    }
  }
}

std::string header(const Tensor &tensor) {
  std::string descr = "|V1";
  for (const Named &named : kDescrs)
    if (named.dtype == tensor.dtype() && descr == "|V1")
      descr = named.descr;
  std::string text = "{'descr': '" + descr + "', 'fortran_order': False, 'shape': (";
  for (size_t d = 0; d < tensor.shape().size(); ++d)
    text += (d ? " " : "") + std::to_string(tensor.shape()[d]) +
            (tensor.shape().size() == 1 || d + 1 < tensor.shape().size() ? "," : "");
  text += "), }";
  // Magic, version, length and header end at a multiple of 64, in a newline.
  size_t total = (10 + text.size() + 1 + 63) / 64 * 64;
  text.resize(total - 10 - 1, ' ');
  text += '\n';
  std::string result(kMagic, kMagicSize);
  result += {'\1', '\0', static_cast<char>(text.size() & 0xff), static_cast<char>(text.size() >> 8)};
  return result + text;
}

} // namespace

bool readNpy(int fd, Tensor &tensor, std::string &error) {
  auto fail = [&error](std::string what) {
    error = std::move(what);
    return false;
  };
  struct stat info;
  if (fstat(fd, &info) != 0)
    return fail(std::strerror(errno));
  if (!S_ISREG(info.st_mode))
    return fail("not a regular file");
  auto fileSize = static_cast<uint64_t>(info.st_size);

  unsigned char start[12];
  if (lseek(fd, 0, SEEK_SET) != 0 || fileSize < 10 || !readAll(fd, start, 10) ||
      std::memcmp(start, kMagic, kMagicSize) != 0)
    return fail("not an .npy file");
  unsigned major = start[6];
  if (major < 1 || major > 3)
    return fail(".npy version " + std::to_string(major) + " is not supported, 1 to 3 are");
  uint64_t prefix = 10;
  uint32_t length = start[8] | uint32_t(start[9]) << 8;
  if (major > 1) {
    prefix = 12;
    if (!readAll(fd, start + 10, 2))
      return fail("cut short in its header");
    length |= uint32_t(start[10]) << 16 | uint32_t(start[11]) << 24;
  }
  if (length > kMaxHeader)
    return fail("its header of " + std::to_string(length) + " bytes is longer than " + std::to_string(kMaxHeader));
  std::string header(length, '\0');
  if (!readAll(fd, header.data(), length))
    return fail("cut short in its header");
  HeaderParser parser(header);
  if (!parser.parse(error))
    return false;

  int32_t dtype = -1;
  for (const Named &named : kDescrs)
    if (parser.descr == named.descr)
      dtype = named.dtype;
  if (dtype < 0 && parser.descr.size() > 1 && parser.descr[0] == '>')
    return fail("dtype '" + parser.descr + "' is big-endian; save it with .astype('<" + parser.descr.substr(1) + "')");
  if (dtype < 0)
    return fail("dtype '" + parser.descr + "' is not supported");

  uint64_t count;
  if (!countElements(parser.shape, dtype, count))
    return fail("the shape " + printShape(parser.shape) + " has too many elements");
  uint64_t bytes = count * attnrt_dtype_size(dtype), present = fileSize - std::min(fileSize, prefix + length);
  if (bytes != present)
    return fail("holds " + std::to_string(present) + " bytes of data, the shape " + printShape(parser.shape) + " of " +
                attnrt_dtype_name(dtype) + " takes " + std::to_string(bytes));
  if (!Tensor::create(dtype, parser.shape, tensor, error))
    return false;
  bool rearrange = parser.fortranOrder && parser.shape.size() > 1 && count;
  Tensor columns;
  if (rearrange && !Tensor::create(dtype, parser.shape, columns, error))
    return false;
  if (!readAll(fd, rearrange ? columns.data() : tensor.data(), bytes))
    return fail("cut short in its data");
  if (rearrange)
    transpose(static_cast<const char *>(columns.data()), static_cast<char *>(tensor.data()), parser.shape, count,
              attnrt_dtype_size(dtype));
  if (dtype == ATTNRT_BOOL) {
    // Compiled code relies on 0 and 1.
    auto *values = static_cast<uint8_t *>(tensor.data());
    for (uint64_t i = 0; i < count; ++i)
      values[i] = values[i] != 0;
  }
  return true;
}

bool readNpy(const std::string &path, Tensor &tensor, std::string &error) {
  // Not blocking: opening a pipe must not wait for its writer, it is refused anyway.
  File file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) {
    error = path + ": " + std::strerror(errno);
    return false;
  }
  if (readNpy(file.get(), tensor, error))
    return true;
  error = path + ": " + error;
  return false;
}

bool writeNpy(const std::string &path, const Tensor &tensor, std::string &error) {
  struct stat info;
  bool device = stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode);
  std::string target = path;
  if (!device)
    target += ".tmp" + std::to_string(getpid());
  File file(open(target.c_str(), device ? O_WRONLY | O_CLOEXEC : O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  std::string start = header(tensor);
  if (file.get() < 0 || !writeAll(file.get(), start.data(), start.size()) ||
      !writeAll(file.get(), tensor.data(), tensor.bytes()) || !file.close() ||
      (!device && rename(target.c_str(), path.c_str()) != 0)) {
    error = "cannot write '" + path + "': " + std::strerror(errno);
    if (!device)
      unlink(target.c_str());
    return false;
  }
  return true;
}

} // namespace attn::runner
