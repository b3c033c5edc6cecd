// Runs kernels of one instruction set on the sizes of a small model, each between two marks of callgrind, which writes
// a file of instructions for every one: see bench/instructions/kernels.py.
#include ISA_HEADER

#include <valgrind/callgrind.h>

#include <cstdio>
#include <vector>

#include "compute/attention.h"
#include "compute/best_tokens.h"
#include "compute/linear.h"
#include "memory.h"

namespace dragoman::ISA {
namespace {

constexpr int width = 256, inner = 1536, vocabulary = 8000, heads = 8, places = 1000, tokens = 28, capacity = 32;

struct Random {  // Numerical Recipes' linear congruence: the same numbers everywhere
  uint32_t state = 15;
  uint32_t next() { return (state = state * 1664525u + 1013904223u) >> 8; }
  int8_t byte() { return (int8_t)((int)(next() % 255) - 127); }
  float real() { return (float)((int)(next() % 2001) - 1000) * 1e-3f; }
};

std::vector<float> reals(size_t count, Random& random) {
  std::vector<float> x(count);
  for (float& v : x) v = random.real();
  return x;
}

template <class Kernel>
void count(const char* name, int rows, Kernel&& kernel) {
  kernel();  // so that memory is there
  CALLGRIND_START_INSTRUMENTATION;
  CALLGRIND_ZERO_STATS;
  kernel();
  CALLGRIND_DUMP_STATS;
  CALLGRIND_STOP_INSTRUMENTATION;
  printf("%s, rows %d\n", name, rows);
}

// A random weight, packed.
struct Weight {
  std::vector<int8_t> rows;
  std::vector<float> scales, bias;
  Memory<int8_t> panels;
  Memory<int32_t> start;
  PackedWeight packed;

  Weight(int outputs, int inputs, Random& random)
      : rows((size_t)outputs * inputs), scales(outputs + columns, 1e-3f), bias(outputs + columns) {
    const int count = (outputs + columns - 1) / columns;
    panels = Memory<int8_t>((size_t)count * columns * inputs + read_behind);
    start = Memory<int32_t>((size_t)count * columns);
    for (int8_t& w : rows) w = random.byte();
    for (size_t i = 0; i < rows.size(); i++) start[i / inputs] += (shift(Packed::bytes, 128) - 128) * rows[i];
    pack(rows.data(), outputs, inputs, inputs, panels.get());
    packed = {outputs, inputs, inputs, count, panels.get(), start.get(), scales.data(), bias.data(),
              Packed::bytes, shift(Packed::bytes, 128)};
  }
};

void count_linear(int rows, int bits, const char* name, Random& random, Scratch& scratch) {
  const Weight weight(inner, width, random);
  const Linear linear_layer{weight.packed, {0.f, 128, bits}, Activation::relu, Norm::none, 0.f, nullptr, nullptr, 0.f};
  const std::vector<float> x = reals((size_t)rows * width, random);
  std::vector<float> out((size_t)rows * inner);
  count(name, rows, [&] { linear(linear_layer, x.data(), rows, nullptr, out.data(), scratch); });
}

void count_best_tokens(int rows, Random& random, Scratch& scratch) {
  const Weight weight(vocabulary, width, random);
  const std::vector<float> norms(vocabulary + columns, 1.2f), none(vocabulary + columns), mean(width);
  std::vector<float> bounds;
  for (int i = 0; i <= weight.packed.panels; i++) bounds.insert(bounds.end(), {1.2f, 0.f, 0.f});
  const Table table{Number::int8, weight.rows.data(), weight.scales.data(), vocabulary, width};
  const BestTokens best{weight.packed, {0.f, 128, 8}, table,         weight.rows.data(), norms.data(), none.data(),
                        none.data(),   bounds.data(), {1.2f}, mean.data(), mean.data(),        true};
  const std::vector<float> x = reals((size_t)rows * width, random);
  std::vector<int64_t> ids(rows);
  std::vector<float> log_probs(rows);
  std::vector<int32_t> allowed((size_t)rows * places);
  for (size_t i = 0; i < allowed.size(); i++) allowed[i] = (int32_t)(i % places * 8 + i / places % 8);
  const auto with = [&](const int32_t* listed) {
    best_tokens(best, x.data(), rows, 1, listed, places, ids.data(), log_probs.data(), nullptr, scratch);
  };
  count("best tokens of 8,000", rows, [&] { with(nullptr); });
  count("best tokens of 1,000 allowed", rows, [&] { with(allowed.data()); });
}

void count_attention(int rows, Random& random, Scratch& scratch) {
  Memory<uint16_t> keys((size_t)rows * width * capacity), values((size_t)rows * width * capacity);
  const Cache cache{Number::float16, keys.get(), values.get(), rows, heads, capacity, width / heads};
  const std::vector<float> qkv = reals((size_t)rows * 3 * width, random);
  const std::vector<int32_t> positions(rows, tokens - 1), lengths(rows, tokens);
  std::vector<int32_t> slots(rows);
  for (int r = 0; r < rows; r++) slots[r] = r;
  std::vector<float> out((size_t)rows * width);
  for (int r = 0; r < rows; r++)
    for (int t = 0; t < tokens; t++)
      for (int h = 0; h < heads; h++) {
        const float* x = qkv.data() + ((size_t)r * 3 * width + t + h);
        keep<uint16_t>(cache, r, h, t, x, x + width);
      }
  const float scale = 0.2f;
  count("self-attention to 28 tokens", rows, [&] {
    self_attention(cache, qkv.data(), positions.data(), slots.data(), rows, scale, Bias{}, out.data(), scratch);
  });
  count("source attention to 28 tokens", rows, [&] {
    source_attention(cache, qkv.data(), lengths.data(), slots.data(), rows, scale, out.data(), scratch);
  });
}

void count_all() {
  Random random;
  for (const int rows : {1, 32}) {
    Scratch scratch;
    count_linear(rows, 8, "linear 256 x 1536", random, scratch);
    count_linear(rows, 16, "linear 256 x 1536 of two digits", random, scratch);
    count_best_tokens(rows, random, scratch);
    count_attention(rows, random, scratch);
  }
}

}  // namespace
}  // namespace dragoman::ISA

int main() { dragoman::ISA::count_all(); }
