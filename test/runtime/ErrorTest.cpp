#include "Error.h"
#include "gtest/gtest.h"

#include <string>

using namespace attn::rt;

namespace {
TEST(TextTest, DropsWhatDoesNotFit) {
  Text text;
  text.add("%s", std::string(600, 'a').c_str()).add("b");
  EXPECT_EQ(text.str(), std::string(511, 'a'));
  text.addShape(0, nullptr);
  EXPECT_EQ(text.str(), std::string(511, 'a'));
}
} // namespace
