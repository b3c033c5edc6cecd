// The keys of a coarse look, made when a kernel is made.
#pragma once
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "packing.h"

namespace dragoman {

// Keys of all tokens, and what makes a row their query. See compute/coarse.h.
class CoarseKeys {
 public:
  CoarseKeys() = default;
  CoarseKeys(const Node& node, const Table& table, const float* bias, const float* mean_weight)
      : query_(node.constant(6, "coarse_query")),
        margin_(node.number("margin", 0.f)),
        strange_(node.number("strange", 0.f)) {
    const int64_t bits = node.integer("key_bits", 8);
    if (bits != 4 && bits != 8) refuse("key_bits is ", bits, "; it must be 4 or 8");
    const Tensor key = node.constant(7, "coarse_key"), centre = node.constant(8, "coarse_centre");
    numbers_ = (int)key.size(0);
    const int rows = (int)query_.size(0);
    expect_shape("coarse_query", query_, {-1, table.width});
    expect_shape("coarse_key", key, {-1, table.width});
    if (numbers_ < 1 || numbers_ > rows)
      refuse("coarse_query has ", rows, " rows for the ", numbers_, " numbers of coarse_key");
    expect_shape("coarse_centre", centre, {table.width});
    if (table.number != Number::int8) refuse("a coarse look is for weights of 8 bits");
    if (!(margin_ > 0) || !std::isfinite(margin_)) refuse("margin is ", margin_, "; it must be positive");
    if (!(strange_ >= 0)) refuse("strange is ", strange_, "; it must not be negative");
    std::vector<float> biases(table.count);
    std::vector<int64_t> tokens(table.count);
    std::iota(tokens.begin(), tokens.end(), 0);
    kernels().named_tokens(table, bias, centre.data<float>(), 1, tokens.data(), (int)table.count, biases.data());
    make_keys(table, key.data<float>(), biases.data(), mean_weight, bits == 4);
    start_ = Memory<float>(rows);
    for (int i = 0; i < rows; i++)
      start_[i] = -product(query_.data<float>() + (size_t)i * table.width, centre.data<float>(), table.width);
    common_ = -product(mean_weight, centre.data<float>(), table.width);
  }

  void point(BestTokens& best) const {
    const int probes = (int)query_.size(0) - numbers_;
    best.coarse = {keys_.weight(), query_.data<float>(), start_.get(), probes, strange_, common_, margin_};
  }

 private:
  // Products with whole rows of the table, as bytes: key (w - m).
  void make_keys(const Table& table, const float* key, const float* biases, const float* mean_weight, bool nibbles) {
    constexpr int rows = 256;
    const int width = table.width;
    std::vector<int8_t> bytes((size_t)numbers_ * width), keys((size_t)table.count * numbers_);
    std::vector<float> scales(numbers_), none(numbers_), of_mean(numbers_), found((size_t)rows * numbers_),
        key_scales(table.count);
    for (int i = 0; i < numbers_; i++) {
      scales[i] = quantize(key + (size_t)i * width, width, bytes.data() + (size_t)i * width);
      of_mean[i] = product(key + (size_t)i * width, mean_weight, width);
    }
    const Packing packing(bytes.data(), scales.data(), none.data(), numbers_, width, 128, 0.f);
    const Linear linear{packing.weight(), {1.f, 128, 8}, Activation::none, Norm::none, 0.f, nullptr, nullptr, 0.f};
    Memory<uint8_t> x((size_t)rows * width);
    Scratch scratch;
    for (int64_t first = 0; first < table.count; first += rows) {
      const int count = (int)std::min<int64_t>(rows, table.count - first);
      const int8_t* weights = (const int8_t*)table.rows + first * width;
      for (int i = 0; i < count * width; i++) x[i] = (uint8_t)(weights[i] ^ 128);
      kernels().linear_of_bytes(linear, x.get(), count, nullptr, found.data(), scratch);
      for (int r = 0; r < count; r++) {
        float* numbers = found.data() + (size_t)r * numbers_;
        for (int i = 0; i < numbers_; i++) numbers[i] = numbers[i] * table.scales[first + r] - of_mean[i];
        key_scales[first + r] =
            (nibbles ? quantize_coarsely : quantize)(numbers, numbers_, keys.data() + (first + r) * numbers_);
      }
    }
    keys_ = Packing(keys.data(), key_scales.data(), biases, (int)table.count, numbers_, 128,
                    -std::numeric_limits<float>::infinity(), nibbles ? Packed::nibbles : Packed::bytes);
  }

  static float quantize(const float* x, int n, int8_t* out) {
    float largest = 1e-30f;
    for (int i = 0; i < n; i++) largest = std::max(largest, std::fabs(x[i]));
    const float inverse = 127 / largest;
    for (int i = 0; i < n; i++) out[i] = (int8_t)std::lrintf(x[i] * inverse);
    return largest / 127;
  }

  // To multiples of 16, from -112 to 112. Of normally distributed numbers 15 steps of this size leave the smallest
  // squared error (Max 1960, "Quantizing for Minimum Distortion").
  static float quantize_coarsely(const float* x, int n, int8_t* out) {
    constexpr float step = 0.3534f;
    float largest = 1e-30f, squares = 0;
    for (int i = 0; i < n; i++) {
      largest = std::max(largest, std::fabs(x[i]));
      squares += x[i] * x[i];
    }
    const float scale = std::min(largest / 7, std::max(step * std::sqrt(squares / (float)n), 1e-30f));
    const float inverse = 1 / scale;
    for (int i = 0; i < n; i++) out[i] = (int8_t)(16 * std::lrintf(std::min(7.f, std::max(-7.f, x[i] * inverse))));
    return scale / 16;
  }

  static float product(const float* x, const float* y, int n) {
    double total = 0;
    for (int i = 0; i < n; i++) total += (double)x[i] * y[i];
    return (float)total;
  }

  Tensor query_;
  int numbers_ = 0;
  float margin_ = 0, strange_ = 0, common_ = 0;
  Memory<float> start_;
  Packing keys_;
};

}  // namespace dragoman
