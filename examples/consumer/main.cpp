// A program that uses an installed Heddle: builds a graph, compiles it once, runs it.
#include <heddle/heddle.h>

#include <cstdio>
#include <exception>
#include <vector>

namespace hd = heddle;

int main() {
  try {
    hd::Graph graph;
    hd::Tensor a = graph.placeholder(hd::f32, {1, 3}, "a");
    hd::Tensor b = graph.placeholder(hd::f32, {2, 1}, "b");
    hd::Executable add = graph.compile({.feeds = {a, b}, .targets = {a + b}}, hd::default_device());

    hd::Array x = hd::Array::from<float>({1, 3}, {1, 2, 3});
    hd::Array y = hd::Array::from<float>({2, 1}, {10, 20});
    std::vector<float> sum = add.run({x, y})[0].to_vector<float>();

    for (float value : sum) std::printf("%g ", value);
    std::printf("\n");
    return sum == std::vector<float>{11, 12, 13, 21, 22, 23} ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}
