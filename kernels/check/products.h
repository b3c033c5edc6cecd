// Products of whole numbers against plain C++, and what is quantized for them.
#pragma once
#include <vector>

#include "check/trial.h"
#include "compute/linear.h"
#include "memory.h"

namespace dragoman::ISA {
namespace {

enum Fill { random_numbers, largest_positive, largest_negative, alternating, just_fitting, zeros, fills };

uint8_t byte_of(Fill fill, Random& random, int i) {
  switch (fill) {
    case random_numbers:
      return (uint8_t)random.whole(0, 255);
    case zeros:
      return 0;
    case alternating:
      return i % 2 ? 255 : 0;
    case just_fitting:  // four of them, or four of 128 less, are what AVX2 adds up in 16 bits; 65 is too much
      return i % 97 == 96 ? (uint8_t)random.whole(63, 65) : 64;
    default:
      return 255;
  }
}
int8_t weight_of(Fill fill, Random& random, int i) {
  switch (fill) {
    case random_numbers:
      return (int8_t)random.whole(-127, 127);
    case largest_negative:
      return -127;
    case alternating:
      return i % 2 ? -127 : 127;
    case just_fitting:
      return i / 8 % 2 ? -127 : 127;
    default:
      return 127;
  }
}

struct KeepSums {
  std::vector<int32_t>& sums;
  int outputs;
  void operator()(int row, int count, int panel, const int32_t* tile_sums) {
    for (int r = 0; r < count; r++)
      for (int c = 0; c < columns && panel * columns + c < outputs; c++)
        sums[(size_t)(row + r) * outputs + panel * columns + c] = tile_sums[r * columns + c];
  }
};

// Sums of (x - zero_point) * weight by the tiles, against plain C++. SIXTEENS: of weights that may share bytes.
template <bool SIXTEENS>
void check_product(int rows, int outputs, int inputs, int zero_point, Fill fill, Random& random, Scratch& scratch) {
  constexpr bool nibbles = SIXTEENS && takes_nibbles;
  typedef TileRows<nibbles ? Packed::nibbles : Packed::bytes> Rows;
  const int off = shift(Rows::kind, zero_point);
  constexpr int numbers = nibbles ? 2 * group : group;
  const int depth = (inputs + numbers - 1) / numbers * numbers, panels = (outputs + columns - 1) / columns;
  std::vector<int8_t> weight((size_t)outputs * inputs);
  for (size_t i = 0; i < weight.size(); i++) {
    weight[i] = weight_of(fill, random, (int)i % inputs);
    if (SIXTEENS) weight[i] = (int8_t)(weight[i] / 16 * 16);
  }
  Memory<int8_t> packed((size_t)panels * columns * depth + read_behind);
  Memory<int32_t> start((size_t)panels * columns);
  (nibbles ? pack_nibbles : pack)(weight.data(), outputs, inputs, depth, packed.get());
  for (int n = 0; n < outputs; n++) {
    int32_t total = 0;
    for (int k = 0; k < inputs; k++) total += weight[(size_t)n * inputs + k];
    start[n] = (off - zero_point) * total;
  }
  const PackedWeight w{outputs, inputs, depth, panels, packed.get(), start.get(), nullptr, nullptr, Rows::kind, off};
  std::vector<uint8_t> x((size_t)rows * inputs);
  ByteRows bytes(rows, w, scratch);
  for (int r = 0; r < rows; r++) {
    for (int k = 0; k < inputs; k++) x[(size_t)r * inputs + k] = byte_of(fill, random, k);
    memset(bytes.row(r), 0, depth);
    memcpy(bytes.row(r), &x[(size_t)r * inputs], inputs);
    bytes.done(r);
  }
  std::vector<int32_t> sums((size_t)rows * outputs);
  KeepSums keep{sums, outputs};
  multiply(w, bytes.bytes<Rows>(), rows, keep);
  int wrong = 0;
  for (int r = 0; r < rows; r++)
    for (int n = 0; n < outputs; n++) {
      int32_t expected = 0;
      for (int k = 0; k < inputs; k++)
        expected += (x[(size_t)r * inputs + k] - zero_point) * weight[(size_t)n * inputs + k];
      wrong += expected != sums[(size_t)r * outputs + n];
    }
  if (wrong > 0) {
    failures++;
    printf("product of %d rows, [%d, %d], zero point %d, fill %d, kind %d: %d sums WRONG\n", rows, outputs, inputs,
           zero_point, fill, (int)Rows::kind, wrong);
  }
  add_to_hash(sums.data(), sums.size() * sizeof(int32_t));
}

// Numbers of s16 whose norm is `largest_norm` at most, and may be just that.
std::vector<int16_t> words(size_t n, Fill fill, Random& random) {
  const int most = (int)std::fmin(32767., largest_norm / std::sqrt((double)n));
  std::vector<int16_t> found(n);
  for (size_t i = 0; i < n; i++) {
    const int sign = fill == largest_negative || (fill == alternating && i % 2) ? -1 : 1;
    found[i] = (int16_t)(fill == random_numbers ? random.whole(-most, most) : fill == zeros ? 0 : sign * most);
  }
  return found;
}

// Sums of products of s16 by the tiles, against plain C++.
void check_wide_product(int rows, int outputs, int inputs, Fill fill, Random& random, Scratch& scratch) {
  const int depth = (inputs + group - 1) / group * 2 * group, panels = (outputs + columns - 1) / columns;
  std::vector<int16_t> weight, x;
  for (int n = 0; n < outputs; n++) {
    const auto row = words(inputs, n % 2 ? fill : random_numbers, random);
    weight.insert(weight.end(), row.begin(), row.end());
  }
  Memory<int8_t> packed((size_t)panels * columns * depth + read_behind);
  Memory<int32_t> start((size_t)panels * columns);
  pack_words(weight.data(), outputs, inputs, depth, packed.get());
  const PackedWeight w{outputs, inputs, depth, panels, packed.get(), start.get(), nullptr, nullptr, Packed::words};
  WordRows numbers(rows, w, scratch);
  for (int r = 0; r < rows; r++) {
    const auto row = words(inputs, fill, random);
    memset(numbers.row(r), 0, depth);
    memcpy(numbers.row(r), row.data(), 2 * inputs);
    numbers.done(r);
    x.insert(x.end(), row.begin(), row.end());
  }
  std::vector<int32_t> sums((size_t)rows * outputs);
  KeepSums keep{sums, outputs};
  multiply(w, numbers.words(), rows, keep);
  for (int r = 0; r < rows; r++)
    for (int n = 0; n < outputs; n++) {
      int64_t expected = 0;
      for (int k = 0; k < inputs; k++) expected += (int64_t)x[(size_t)r * inputs + k] * weight[(size_t)n * inputs + k];
      if (expected != sums[(size_t)r * outputs + n])
        failures++, printf("wide product of [%d, %d] WRONG\n", outputs, inputs);
    }
  add_to_hash(sums.data(), sums.size() * sizeof(int32_t));
}

// A layer of s16 against double precision: a row, and a weight, are off by their own rounding alone.
void check_wide_layer(Scratch& scratch) {
  Difference difference{"linear layer of s16", 1e-4};
  Random random;
  for (int inputs : {1, 15, 16, 33, 384, 1536})
    for (float size : {1e-3f, 1.f, 1e20f}) {
      const int outputs = 37;
      std::vector<float> x(inputs), scales(64, 1e-3f), bias(64), out(outputs);
      for (float& v : x) v = size * random.real();
      std::vector<int16_t> weight;
      for (int n = 0; n < outputs; n++) {
        const auto row = words(inputs, random_numbers, random);
        weight.insert(weight.end(), row.begin(), row.end());
      }
      const int depth = (inputs + group - 1) / group * 2 * group, panels = (outputs + columns - 1) / columns;
      Memory<int8_t> packed((size_t)panels * columns * depth + read_behind);
      Memory<int32_t> start((size_t)panels * columns);
      pack_words(weight.data(), outputs, inputs, depth, packed.get());
      Linear l{};
      l.weight = {outputs, inputs, depth, panels, packed.get(), start.get(), scales.data(), bias.data(), Packed::words};
      linear(l, x.data(), 1, nullptr, out.data(), scratch);
      for (int n = 0; n < outputs; n++) {
        double expected = 0, norm = 0;
        for (int k = 0; k < inputs; k++) {
          expected += (double)x[k] * weight[(size_t)n * inputs + k] * 1e-3;
          norm += (double)x[k] * x[k];
        }
        const double largest = std::sqrt(norm) * largest_norm * 1e-3;
        difference.compare(out[n] / largest, expected / largest);
      }
      x[inputs / 2] = NAN;
      linear(l, x.data(), 1, nullptr, out.data(), scratch);
      for (float y : out)
        if (y == y) failures++, printf("a row that is not finite has a number WRONG\n");
    }
}

void check_products(Scratch& scratch) {
  Random random;
  const int shapes[][2] = {{1, 1}, {3, 5}, {16, 4}, {17, 7}, {63, 64}, {65, 66}, {129, 255}, {200, 1536}};
  for (const auto& shape : shapes)
    for (int rows : {1, 2, 3, 4, 5, 6, 7, 13, 18, 37})
      for (int zero_point : {0, 128, 255, 77})
        for (int fill = 0; fill < fills; fill++) {
          check_product<false>(rows, shape[0], shape[1], zero_point, (Fill)fill, random, scratch);
          check_product<true>(rows, shape[0], shape[1], zero_point, (Fill)fill, random, scratch);
        }
  check_product<false>(700, 70, 1000, 128, random_numbers, random, scratch);  // more rows than a block
  check_product<true>(900, 200, 200, 128, random_numbers, random, scratch);
  for (const auto& shape : shapes)
    for (int rows : {1, 2, 3, 4, 5, 6, 7, 13, 18, 37})
      for (int fill = 0; fill < fills; fill++)
        check_wide_product(rows, shape[0], shape[1], (Fill)fill, random, scratch);
}

void check_quantization() {
  Random random;
  for (int n : {1, 15, 16, 17, 255, 256, 300, 1536})
    for (int zero_point : {0, 77, 128}) {
      std::vector<float> x(n);
      for (float& v : x) v = 3.f * random.real();
      x[0] = 1e30f;
      const int depth = (n + group - 1) / group * group;
      std::vector<uint8_t> q(depth), high(depth), low(depth);
      const int64_t beyond = quantize_row(x.data(), n, 0.02f, true, zero_point, depth, q.data());
      quantize_row_finely(x.data(), n, 0.02f, zero_point, depth, high.data(), low.data());
      for (int i = 0; i < n; i++) {
        const float least = (float)-zero_point, kept = std::fmin(255.f + least, std::fmax(least, x[i] * (1.f / 0.02f)));
        const float v = std::nearbyint(kept);
        if (q[i] != (int)v + zero_point) failures++, printf("quantized %d of %d: %d WRONG\n", i, n, q[i]);
      }
      add_to_hash(q.data(), n);
      add_to_hash(high.data(), n);
      add_to_hash(low.data(), n);
      add_to_hash(&beyond, sizeof beyond);
    }
}

}  // namespace
}  // namespace dragoman::ISA
