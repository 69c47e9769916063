#include "test/kernels/AttentionFixture.h"

#include <algorithm>
#include <set>
#include <sys/mman.h>
#include <unistd.h>

using namespace attn::test;

// Masks that list, for each block of queries, the blocks of keys that it sees.
namespace {

class AttentionListsTest : public AttentionFixture {};

INSTANTIATE_TEST_SUITE_P(Isas, AttentionListsTest, testing::ValuesIn(kIsas), [](auto &info) { return info.param; });

/// Entry `n` of the operand of a term.
int64_t entryOf(const Operands &o, size_t term, int64_t n) {
  const std::string &type = o.attention.mask[term].type;
  return type == "i8"    ? o.mask[term].data<int8_t>()[n]
         : type == "i32" ? o.mask[term].data<int32_t>()[n]
                         : o.mask[term].data<int64_t>()[n];
}

void setEntry(const Operands &o, size_t term, int64_t n, int64_t entry) {
  const std::string &type = o.attention.mask[term].type;
  if (type == "i8")
    o.mask[term].data<int8_t>()[n] = static_cast<int8_t>(entry);
  else if (type == "i32")
    o.mask[term].data<int32_t>()[n] = static_cast<int32_t>(entry);
  else
    o.mask[term].data<int64_t>()[n] = entry;
}

/// `blocks<rows, columns>` with `entries` entries a list.
Attention::Term listTerm(int64_t rows, int64_t columns, int64_t entries, const char *type, const char *dims) {
  return {"blocks<" + std::to_string(rows) + ", " + std::to_string(columns) + ">", dims, type, rows, columns, entries};
}

/// Whether term `term` lists the block of the key, by the words of the dialect.
bool isListed(const Operands &o, size_t term, const At &at) {
  const Attention::Term &list = o.attention.mask[term];
  int64_t position = 0;
  for (char dim : list.dims) {
    int64_t size = dim == 'i' ? (o.sizes.at('i') + list.rows - 1) / list.rows : o.sizes.at(dim);
    position = position * size + (dim == 'i' ? at.at('i') / list.rows : at.at(dim));
  }
  auto holds = [&](auto *entries) {
    auto *first = entries + position * list.entries;
    return std::find(first, first + list.entries, at.at('j') / list.columns) != first + list.entries;
  };
  // Asked for every query and key: the type's name is read once.
  return list.type == "i8"    ? holds(o.mask[term].data<int8_t>())
         : list.type == "i32" ? holds(o.mask[term].data<int32_t>())
                              : holds(o.mask[term].data<int64_t>());
}

/// Each list of single keys as edges give it: ascending, without repetitions, then padding.
void sortLists(const Operands &o, size_t term) {
  int64_t entries = o.attention.mask[term].entries;
  for (int64_t first = 0; first < o.mask[term].size(); first += entries) {
    std::set<int64_t> keys;
    for (int64_t n = 0; n < entries; ++n)
      if (int64_t key = entryOf(o, term, first + n); key >= 0 && key < o.sizes.at('j'))
        keys.insert(key);
    for (int64_t n = 0; n < entries; ++n) {
      setEntry(o, term, first + n, keys.empty() ? -1 : *keys.begin());
      if (!keys.empty())
        keys.erase(keys.begin());
    }
  }
}

/// Ragged lists in no order: some blocks, repeated ones, padding, numbers far
/// beyond the last block; every fourth list is empty. Single keys stand in order for every other seed.
void fillLists(const Operands &o, size_t term, unsigned seed) {
  std::mt19937 random(seed);
  const Attention::Term &list = o.attention.mask[term];
  int64_t blocks = (o.sizes.at('j') + list.columns - 1) / list.columns, most = list.type == "i8" ? 127 : 1 << 30;
  for (int64_t n = 0; n < o.mask[term].size(); ++n) {
    int64_t own = random() % std::max<int64_t>(blocks, 1), kind = random() % 8;
    int64_t entry = kind == 0 ? -1 : kind == 1 ? -100 : kind == 2 ? most : std::min(own, most);
    if (list.type == "i64" && kind == 2)
      entry = random() % 2 ? INT64_MAX - random() % 3 : INT64_MIN;
    setEntry(o, term, n, n / std::max<int64_t>(list.entries, 1) % 4 == 3 ? -1 : entry);
  }
  if (list.rows == 1 && list.columns == 1 && seed % 2)
    sortLists(o, term);
}

double emptyRow(const std::string &policy) { return policy == "zero" ? 0 : policy == "uniform" ? INFINITY : NAN; }

/// All keys of which no query sees any hold NaN and infinities.
void poisonUnseen(const Operands &o, const Reference &reference) {
  At at;
  for (at['b'] = 0; at['b'] < o.sizes.at('b'); ++at['b'])
    for (at['h'] = 0; at['h'] < o.sizes.at('h'); ++at['h'])
      for (at['j'] = 0; at['j'] < o.sizes.at('j'); ++at['j']) {
        bool isSeen = false;
        for (at['i'] = 0; at['i'] < o.sizes.at('i') && !isSeen; ++at['i'])
          isSeen = reference.visible(at);
        for (at['e'] = 0; at['e'] < o.sizes.at('e') && !isSeen; ++at['e'])
          o.value[o.offset(o.attention.value, at, true)] = at['j'] % 2 ? NAN : INFINITY;
      }
}

struct ListCase {
  int64_t rows, columns, entries;
  const char *type, *dims, *policy;
};

// Blocks smaller and larger than a tile, of one query or key, lists of every length.
TEST_P(AttentionListsTest, Sizes) {
  std::vector<ListCase> cases{
      {1, 1, 5, "i32", "bhi", "zero"}, {1, 1, 290, "i32", "i", "uniform"},   {16, 16, 2, "i64", "hi", "nan"},
      {64, 64, 3, "i64", "i", "zero"}, {3, 5, 4, "i8", "bi", "uniform"},     {8, 12, 0, "i32", "i", "zero"},
      {100, 7, 9, "i64", "hi", "nan"}, {5, 100, 1, "i32", "bhi", "uniform"}, {1, 64, 40, "i64", "i", "zero"}};
  for (const ListCase &c : cases) {
    Attention a;
    a.score = kScale;
    a.maskedRows = c.policy;
    a.mask = {listTerm(c.rows, c.columns, c.entries, c.type, c.dims)};
    Sizes sizes = {{'b', 2}, {'h', 2}, {'i', 77}, {'j', 300}, {'d', 8}, {'e', 9}};
    Reference reference{scaled};
    reference.emptyRow = emptyRow(c.policy);
    auto check = [&](Kernel &kernel) {
      Operands o(a, sizes, sizes.at('i') + sizes.at('j'));
      fillLists(o, 0, sizes.at('i') * sizes.at('j') + c.rows);
      reference.visible = [&](const At &at) { return isListed(o, 0, at); };
      // The average of a row that sees nothing is one of all values.
      for (bool poisons : {false, reference.emptyRow != INFINITY}) {
        if (poisons)
          poisonUnseen(o, reference);
        ASSERT_TRUE(kernel.call(o.all(), 3));
        ASSERT_EQ(compareWithReference(o, reference), "")
            << c.rows << "x" << c.columns << ", " << c.entries << " " << c.type << ": " << sizes.at('i') << " queries, "
            << sizes.at('j') << " keys" << (poisons ? ", poisoned" : "");
      }
    };
    auto fixed = c.columns == 12 || c.columns == 5 ? compileAttention(isa, a, sizes) : nullptr;
    if (fixed)
      check(*fixed);
    a.dynamic = "ijl";
    auto kernel = compileAttention(isa, a, sizes);
    ASSERT_TRUE(kernel);
    for (int64_t i : {1, 3, 32, 77})
      for (int64_t j : {0, 9, 300, 700}) {
        sizes['i'] = i, sizes['j'] = j;
        check(*kernel);
      }
  }
}

// Together with every other term.
TEST_P(AttentionListsTest, Conjunctions) {
  struct Case {
    const char *name;
    std::vector<Attention::Term> others;
    std::function<bool(const Operands &, const At &)> visible;
  };
  auto number = [](const Operands &o, size_t term, int64_t n) { return o.mask[term].data<int64_t>()[n]; };
  std::vector<Case> cases{
      {"causal", {{"causal<3>", "", ""}}, [](const Operands &, const At &at) { return at.at('j') <= at.at('i') + 3; }},
      {"window and prefix",
       {{"window<40, 9>", "", ""}, {"prefix<20>", "", ""}},
       [](const Operands &, const At &at) {
         int64_t i = at.at('i'), j = at.at('j');
         return j < 20 || (j >= i - 40 && j <= i + 9);
       }},
      {"lengths",
       {{"lengths", "b", "i64"}},
       [&](const Operands &o, const At &at) { return at.at('j') < number(o, 1, at.at('b')); }},
      {"dense",
       {{"dense", "bij", "i8"}},
       [](const Operands &o, const At &at) { return o.mask[1].data<int8_t>()[o.offset("bij", at)] != 0; }},
      {"blocks", {listTerm(16, 9, 8, "i64", "hi")}, [](const Operands &o, const At &at) {
         return isListed(o, 1, at);
       }}};
  for (const Case &c : cases)
    for (const auto &[policy, list] :
         {std::pair("zero", listTerm(8, 20, 4, "i32", "hi")), std::pair("finite", listTerm(8, 20, 4, "i32", "hi")),
          std::pair("zero", listTerm(1, 1, 20, "i32", "hi"))}) {
      Attention a;
      a.score = kScale;
      a.maskedRows = policy;
      if (a.maskedRows == "finite")
        a.masked = "%c = arith.constant -1.0e+04 : f32\n%y = arith.addf %s, %c : f32";
      a.mask = {list};
      a.mask.insert(a.mask.end(), c.others.begin(), c.others.end());
      a.dynamic = "ij";
      Sizes sizes = {{'b', 2}, {'h', 2}, {'i', 1}, {'j', 1}, {'d', 8}, {'e', 9}};
      auto kernel = compileAttention(isa, a, sizes);
      ASSERT_TRUE(kernel) << c.name;
      for (int64_t i : {2, 70})
        for (int64_t j : {0, 33, 310}) {
          sizes['i'] = i, sizes['j'] = j;
          Operands o(a, sizes, i + j);
          for (size_t term = 0; term < a.mask.size(); ++term)
            if (a.mask[term].rows)
              fillLists(o, term, i + j + term);
          if (c.others[0].term == "lengths")
            o.mask[1].data<int64_t>()[0] = j - 7, o.mask[1].data<int64_t>()[1] = j / 3;
          if (c.others[0].term == "dense")
            for (int64_t n = 0; n < o.mask[1].size(); ++n)
              o.mask[1].data<int8_t>()[n] = n % 3 != 1 && n / 40 % 2;
          Reference reference{scaled};
          reference.visible = [&](const At &at) { return isListed(o, 0, at) && c.visible(o, at); };
          reference.emptyRow = emptyRow(policy);
          reference.masked = [](double s, const At &) { return static_cast<double>(static_cast<float>(s) - 1e4f); };
          if (a.maskedRows == "zero")
            poisonUnseen(o, reference);
          ASSERT_TRUE(kernel->call(o.all(), 3));
          ASSERT_EQ(compareWithReference(o, reference), "") << c.name << ": " << i << " queries, " << j << " keys";
        }
    }
}

// Other kinds, normalisers, element types and results.
TEST_P(AttentionListsTest, Kinds) {
  struct Case {
    const char *kind, *normalizer, *weight, *element;
    std::vector<std::pair<std::string, std::string>> extras;
    const char *policy;
  };
  constexpr char kTwice[] = "%k = arith.constant 2.0 : f32\n%y = arith.mulf %s, %k : f32";
  std::vector<Case> cases{{"given", "softmax", "", "f32", {}, "zero"},
                          {"additive", "softmax", "", "f32", {}, "zero"},
                          {"dot", "softmax", kTwice, "f32", {}, "zero"},
                          {"dot", "softmax", kTwice, "f32", {}, "nan"},
                          {"dot", "none", "", "f32", {}, "zero"},
                          {"dot", "softmax", "", "f16", {}, "zero"},
                          {"dot", "softmax", "", "f32", {{"lse", "bhi"}, {"weights", "bhij"}}, "zero"},
                          {"dot", "softmax", "", "f32", {{"lse", "bhi"}}, "zero"},
                          {"dot", "softmax", "", "f32", {{"masked_scores", "bhij"}}, "zero"}};
  std::vector<Attention::Term> lists{listTerm(12, 10, 3, "i64", "bi"), listTerm(1, 1, 19, "i64", "bi")};
  for (size_t n = 0; n != cases.size() * lists.size(); ++n) {
    const Case &c = cases[n / lists.size()];
    if (std::string(c.element) != "f32" && isa == "portable")
      continue;
    Attention a;
    a.kind = c.kind, a.normalizer = c.normalizer, a.weight = c.weight, a.element = c.element, a.extras = c.extras;
    if (a.kind == "given")
      a.query = "bhij";
    if (a.kind == "additive")
      a.activation = "%y = math.tanh %s : f32";
    a.score = kScale;
    a.maskedRows = c.policy;
    a.mask = {lists[n % lists.size()]};
    a.dynamic = "ij";
    Sizes sizes = {{'b', 2}, {'h', 2}, {'i', 1}, {'j', 1}, {'d', 12}, {'e', 9}};
    auto kernel = compileAttention(isa, a, sizes);
    ASSERT_TRUE(kernel) << c.kind;
    for (int64_t i : {2, 50})
      for (int64_t j : {11, 270}) {
        sizes['i'] = i, sizes['j'] = j;
        Operands o(a, sizes, i + j);
        fillLists(o, 0, i + j);
        Reference reference{scaled};
        if (a.kind == "additive")
          reference.activation = [](double x) { return std::tanh(x); };
        if (!a.weight.empty())
          reference.weight = [](double w, const At &) { return 2 * w; };
        reference.visible = [&](const At &at) { return isListed(o, 0, at); };
        reference.emptyRow = emptyRow(c.policy);
        if (a.element == "f32" && c.policy[0] == 'z')
          poisonUnseen(o, reference);
        ASSERT_TRUE(kernel->call(o.all(), 3));
        ASSERT_EQ(compareWithReference(o, reference), "")
            << c.kind << " " << c.normalizer << " " << c.element << ": " << i << " queries, " << j << " keys";
      }
  }
}

/// Takes the pages away that hold nothing but rows of `rows` outside [begin, end), and gives them back.
class HiddenPages {
public:
  HiddenPages(const Buffer &rows, int64_t width, int64_t begin, int64_t end) {
    auto *data = rows.data<char>();
    hide(data, data + begin * width * 4);
    hide(data + end * width * 4, data + rows.size() * 4);
  }
  ~HiddenPages() {
    for (auto [data, size] : hidden)
      mprotect(data, size, PROT_READ | PROT_WRITE);
  }

private:
  void hide(char *begin, char *end) {
    uintptr_t page = sysconf(_SC_PAGESIZE);
    uintptr_t first = (reinterpret_cast<uintptr_t>(begin) + page - 1) / page * page;
    uintptr_t last = reinterpret_cast<uintptr_t>(end) / page * page;
    if (first < last && mprotect(reinterpret_cast<void *>(first), last - first, PROT_NONE) == 0)
      hidden.push_back({reinterpret_cast<void *>(first), last - first});
  }
  std::vector<std::pair<void *, size_t>> hidden;
};

// What no list names is not read: one of 1024 blocks is there.
TEST_P(AttentionListsTest, ReadsWhatIsListed) {
  for (int64_t queries : {1, 64}) {
    Attention a;
    a.score = kScale;
    a.maskedRows = "zero";
    a.mask = {listTerm(64, 64, 1, "i64", "i")};
    Sizes sizes = {{'b', 1}, {'h', 1}, {'i', queries}, {'j', 1 << 16}, {'d', 16}, {'e', 16}};
    auto kernel = compileAttention(isa, a, sizes);
    ASSERT_TRUE(kernel);
    Operands o(a, sizes);
    for (int64_t n = 0; n < o.mask[0].size(); ++n)
      setEntry(o, 0, n, 900);
    {
      HiddenPages keys(o.key, 16, 900 * 64, 901 * 64), values(o.value, 16, 900 * 64, 901 * 64);
      ASSERT_TRUE(kernel->call(o.all()));
    }
    Reference reference{scaled};
    reference.visible = [](const At &at) { return at.at('j') / 64 == 900; };
    reference.emptyRow = 0;
    ASSERT_EQ(compareWithReference(o, reference), "") << queries;
  }
}

} // namespace
