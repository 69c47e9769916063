#include "test/gpu/interpreter/Scanner.h"

#include "test/gpu/interpreter/Ptx.h"

#include <cctype>
#include <cstdlib>

namespace ptx {

bool isDigit(char c) { return c >= '0' && c <= '9'; }
static bool isNamePart(char c) {
  return isDigit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '$';
}
bool isNameStart(char c) { return c == '%' || (isNamePart(c) && !isDigit(c)); }

static std::string stripComments(const std::string &in) {
  std::string out;
  out.reserve(in.size());
  for (size_t i = 0; i < in.size(); ++i) {
    if (in[i] != '/') {
      out += in[i];
    } else if (in.compare(i, 2, "//") == 0) {
      while (i < in.size() && in[i] != '\n')
        ++i;
      out += '\n';
    } else if (in.compare(i, 2, "/*") == 0) {
      for (i += 2; i < in.size() && in.compare(i, 2, "*/") != 0; ++i)
        if (in[i] == '\n')
          out += '\n';
      ++i;
    } else {
      out += in[i];
    }
  }
  return out;
}

Scanner::Scanner(const std::string &text) : text(stripComments(text)) {}

void Scanner::error(const std::string &message) { throw Error("ptx line " + std::to_string(line) + ": " + message); }

void Scanner::skipSpace() {
  for (; at < text.size() && isspace(uint8_t(text[at])); ++at)
    line += text[at] == '\n';
}

bool Scanner::take(char c) {
  skipSpace();
  if (at == text.size() || text[at] != c)
    return false;
  ++at;
  return true;
}

void Scanner::expect(char c) {
  if (!take(c))
    error(std::string("expected '") + c + "' at '" + text.substr(at, 20) + "'");
}

std::string Scanner::word() {
  skipSpace();
  size_t begin = at;
  while (at < text.size() && (isNamePart(text[at]) || text[at] == '.' || text[at] == '%' ||
                              (text[at] == ':' && at + 1 < text.size() && text[at + 1] == ':')))
    at += text[at] == ':' ? 2 : 1;
  return text.substr(begin, at - begin);
}

std::string Scanner::name() {
  skipSpace();
  size_t begin = at;
  if (at < text.size() && isNameStart(text[at]))
    for (++at; at < text.size() && isNamePart(text[at]); ++at) {
    }
  if (begin == at)
    error("expected a name at '" + text.substr(at, 20) + "'");
  return text.substr(begin, at - begin);
}

int64_t Scanner::integer() {
  skipSpace();
  char *end;
  const char *begin = text.c_str() + at;
  int64_t value = *begin == '-' ? strtoll(begin, &end, 0) : int64_t(strtoull(begin, &end, 0));
  if (end == begin)
    error("expected a number at '" + text.substr(at, 20) + "'");
  if (*end == 'U')
    ++end;
  at += size_t(end - begin);
  return value;
}

uint64_t Scanner::immediate() {
  skipSpace();
  if (text[at] == '0' && (text[at + 1] == 'f' || text[at + 1] == 'd' || text[at + 1] == 'F' || text[at + 1] == 'D')) {
    at += 2;
    size_t begin = at;
    while (isxdigit(uint8_t(text[at])))
      ++at;
    return strtoull(text.substr(begin, at - begin).c_str(), nullptr, 16);
  }
  return uint64_t(integer());
}

} // namespace ptx
