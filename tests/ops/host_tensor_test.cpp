// Host tensors against the definition of each format, and the registry's promises.
#include "ops/host_tensor.h"
#include "ops/opdef.h"

#include <heddle/error.h>

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

namespace heddle {
namespace {

using ops::HostTensor;

template <class T>
std::vector<std::byte> bytes_of(const std::vector<T>& values) {
  auto raw = std::as_bytes(std::span(values));
  return {raw.begin(), raw.end()};
}

TEST(HostTensor, EveryPatternOfSmallFormatsComesBack) {
  for (int d = 1; d < kDTypeCount; ++d) {
    auto dtype = static_cast<DType>(d);
    int width = bit_width(dtype);
    if (width > 16 || dtype == DType::boolean) continue;
    int64_t count = int64_t{1} << width;
    std::vector<std::byte> bytes(static_cast<size_t>(byte_size(dtype, count)));
    for (int64_t v = 0; v < count; ++v) {
      if (width < 8)
        bytes[static_cast<size_t>(v * width / 8)] |= static_cast<std::byte>(v << (v * width % 8));
      else
        std::memcpy(&bytes[static_cast<size_t>(v * width / 8)], &v, static_cast<size_t>(width / 8));
    }
    HostTensor t = ops::from_bytes(dtype, {count}, bytes);
    HostTensor rounded = t;
    ops::round_to_dtype(rounded);
    HostTensor back = ops::from_bytes(dtype, {count}, ops::to_bytes(rounded));
    for (size_t k = 0; k < static_cast<size_t>(count); ++k) {
      if (t.is_float()) {
        bool same = std::isnan(t.f[k])
                        ? std::isnan(back.f[k])
                        : t.f[k] == back.f[k] && std::signbit(t.f[k]) == std::signbit(back.f[k]);
        ASSERT_TRUE(same) << name(dtype) << " pattern " << k;
      } else {
        ASSERT_EQ(t.i[k], back.i[k]) << name(dtype) << " pattern " << k;
      }
    }
  }
}

TEST(HostTensor, KnownBytes) {
  HostTensor four(DType::i4, {3});
  four.i = {1, -2, 7};
  EXPECT_EQ(ops::to_bytes(four), bytes_of<uint8_t>({0xe1, 0x07}));
  HostTensor half(f16, {2});
  half.f = {1.0, -65520.0};  // rounds to infinity
  EXPECT_EQ(ops::to_bytes(half), bytes_of<uint16_t>({0x3c00, 0xfc00}));
  HostTensor brain(bf16, {1});
  brain.f = {1.0 + 1.0 / 256};  // a tie: to even
  EXPECT_EQ(ops::to_bytes(brain), bytes_of<uint16_t>({0x3f80}));
  HostTensor pair(c64, {1});
  pair.c = {{1.5, -2.0}};
  EXPECT_EQ(ops::to_bytes(pair), bytes_of<float>({1.5f, -2.0f}));
  HostTensor wide(u64, {1});
  wide.i = {-1};
  EXPECT_EQ(ops::to_bytes(wide), bytes_of<uint64_t>({UINT64_MAX}));
}

TEST(HostTensor, IntegersWrap) {
  HostTensor t(i8, {3});
  t.i = {200, -129, 256};
  ops::round_to_dtype(t);
  EXPECT_EQ(t.i, (std::vector<int64_t>{-56, 127, 0}));
  HostTensor u(u16, {2});
  u.i = {-1, 65536};
  ops::round_to_dtype(u);
  EXPECT_EQ(u.i, (std::vector<int64_t>{65535, 0}));
  HostTensor b(bool_, {2});
  b.i = {0, 4};
  ops::round_to_dtype(b);
  EXPECT_EQ(b.i, (std::vector<int64_t>{0, 1}));
}

TEST(HostTensor, FloatsRoundOnce) {
  HostTensor t(f16, {1});
  // Just above a tie of f16: by way of f32 it would become the tie and round down.
  t.f = {1.0 + std::ldexp(1.0, -11) + std::ldexp(1.0, -40)};
  ops::round_to_dtype(t);
  EXPECT_EQ(t.f[0], 1.0 + std::ldexp(1.0, -10));
}

TEST(Literal, HasANormalForm) {
  auto a = ir::make_literal(DType::i4, {1}, bytes_of<uint8_t>({0xf3})),
       b = ir::make_literal(DType::i4, {1}, bytes_of<uint8_t>({0x03}));
  EXPECT_TRUE(*a == *b);
  EXPECT_EQ(a->content_hash, b->content_hash);
  auto c = ir::make_literal(bool_, {1}, bytes_of<uint8_t>({7})),
       d = ir::make_literal(bool_, {1}, bytes_of<uint8_t>({1}));
  EXPECT_TRUE(*c == *d);
  EXPECT_FALSE(*ir::make_literal(f32, {1}, bytes_of<float>({0.0f})) ==
               *ir::make_literal(f32, {1}, bytes_of<float>({-0.0f})));
}

TEST(Attrs, CompareByBits) {
  double nan = std::nan("");
  EXPECT_TRUE((ir::Attrs{{"a", nan}} == ir::Attrs{{"a", nan}}));
  EXPECT_FALSE((ir::Attrs{{"a", 0.0}} == ir::Attrs{{"a", -0.0}}));
  EXPECT_FALSE((ir::Attrs{{"a", int64_t{1}}} == ir::Attrs{{"a", true}}));
  EXPECT_EQ((ir::Attrs{{"b", true}, {"a", int64_t{1}}}.items()[0].first), "a");
  EXPECT_THROW((ir::Attrs{{"a", 1.0}}.get<int64_t>("a")), InternalError);
}

TEST(Registry, EntriesAreComplete) {
  for (const ops::OpDef* def : ops::all_ops()) {
    EXPECT_EQ(ops::find_op(def->name), def);
    for (const ops::OperandSpec& spec : def->operands) EXPECT_NE(spec.dtypes, 0u) << def->name;
    for (const ops::AttrSpec& spec : def->attrs) {
      EXPECT_FALSE(spec.doc.empty()) << def->name << "." << spec.name;
      EXPECT_TRUE(spec.fallback || spec.type >= 0)
          << def->name << "." << spec.name << " has no type";
    }
    bool computes = def->kind != ops::Kind::source && def->kind != ops::Kind::structural;
    EXPECT_TRUE(!computes || !def->samples.empty()) << def->name << " has no samples";
    EXPECT_TRUE(def->gradient || def->no_gradient || !computes || def->decompose)
        << def->name << " says nothing of its gradient";
  }
  EXPECT_THROW(ops::Register(ops::OpDef{}), InternalError);
}

}  // namespace
}  // namespace heddle
