#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "counters.h"
#include "operators/operators.h"
#include "packing.h"

namespace dragoman {
namespace {

constexpr int most_tokens = 64;

float half_to_float(uint16_t half) {
  const int exponent = half >> 10 & 31, fraction = half & 1023;
  const float magnitude = exponent == 31  ? (fraction ? NAN : INFINITY)
                          : exponent == 0 ? std::ldexp((float)fraction, -24)
                                          : std::ldexp((float)(fraction + 1024), exponent - 25);
  return half & 0x8000 ? -magnitude : magnitude;
}

// The output layer in 8 bits, and what each of its rows may be off by.
class Screen {
 public:
  Screen(const Table& table, const float* bias) : table_(table) {
    const int columns = kernels().columns;
    panels_ = (int)((table.count + columns - 1) / columns);
    const size_t padded = (size_t)panels_ * columns;
    for (Memory<float>* facts : {&weight_norms_, &rest_norms_, &bias_slack_}) *facts = Memory<float>(padded);
    panel_bounds_ = Memory<float>((size_t)panels_ * 3);
    scales_ = Memory<float>(table.count);
    if (table.number != Number::int8) bytes_ = Memory<int8_t>((size_t)table.count * table.width);
    means_ = Memory<float>(2 * (size_t)table.width);
    sums_.assign(2 * (size_t)table.width, 0);
    Memory<float> row(table.width);
    int64_t possible = 0;
    for (int64_t v = 0; v < table.count; v++) {
      const bool can_be = std::isfinite(bias[v]);
      possible += can_be;
      if (table.number == Number::int8)
        take_bytes(v, can_be);
      else
        quantize(v, read(v, row.get()), can_be);
      bias_slack_[v] = std::isfinite(bias[v]) ? std::fabs(bias[v]) * 0x1p-21f : 0.f;
      note_bounds(v, columns);
    }
    if (table.number == Number::int8) std::copy_n(sums_.begin(), table.width, sums_.begin() + table.width);
    for (size_t i = 0; i < sums_.size(); i++) means_[i] = (float)(sums_[i] / (double)std::max<int64_t>(possible, 1));
  }

  const int8_t* bytes() const { return table_.number == Number::int8 ? (const int8_t*)table_.rows : bytes_.get(); }
  const float* scales() const { return scales_.get(); }
  void point(BestTokens& best) const {
    best.row_major = bytes();
    best.weight_norms = weight_norms_.get();
    best.rest_norms = rest_norms_.get();
    best.bias_slack = bias_slack_.get();
    best.panel_bounds = panel_bounds_.get();
    best.mean_weight = means_.get();
    best.mean_look = means_.get() + table_.width;
  }

 private:
  const float* read(int64_t v, float* row) const {
    if (table_.number == Number::float32) return (const float*)table_.rows + v * table_.width;
    for (int i = 0; i < table_.width; i++) row[i] = half_to_float(((const uint16_t*)table_.rows)[v * table_.width + i]);
    return row;
  }

  void quantize(int64_t v, const float* row, bool can_be) {
    float largest = 1e-30f;
    for (int i = 0; i < table_.width; i++) {
      if (!std::isfinite(row[i])) refuse("the output layer's weight of token ", v, " is ", row[i]);
      largest = std::max(largest, std::fabs(row[i]));
    }
    const float scale = largest / 127;
    double squares = 0, rests = 0;
    for (int i = 0; i < table_.width; i++) {
      const float q = std::min(127.f, std::max(-127.f, std::nearbyint(row[i] / scale)));
      bytes_[v * table_.width + i] = (int8_t)q;
      const double quantized = (double)q * scale, rest = row[i] - quantized;
      squares += quantized * quantized;
      rests += rest * rest;
      if (can_be) add(i, row[i], quantized);
    }
    scales_[v] = scale;
    weight_norms_[v] = (float)std::sqrt(squares) * 1.000001f;
    rest_norms_[v] = (float)std::sqrt(rests) * 1.000001f;
  }

  // A look is the weight.
  void take_bytes(int64_t v, bool can_be) {
    const int8_t* row = (const int8_t*)table_.rows + v * table_.width;
    const double scale = table_.scales[v];
    int64_t squares = 0;
    for (int i = 0; i < table_.width; i++) squares += row[i] * row[i];
    for (int i = 0; can_be && i < table_.width; i++) sums_[i] += row[i] * scale;
    scales_[v] = table_.scales[v];
    weight_norms_[v] = (float)(std::sqrt((double)squares) * std::fabs(table_.scales[v])) * 1.000001f;
  }

  void add(int i, double weight, double look) {
    sums_[i] += weight;
    sums_[table_.width + i] += look;
  }

  void note_bounds(int64_t v, int columns) {
    float* bounds = panel_bounds_.get() + v / columns * 3;
    bounds[0] = std::max(bounds[0], weight_norms_[v]);
    bounds[1] = std::max(bounds[1], rest_norms_[v]);
    bounds[2] = std::max(bounds[2], bias_slack_[v]);
  }

  Table table_;
  int panels_;
  Memory<int8_t> bytes_;
  Memory<float> scales_, weight_norms_, rest_norms_, bias_slack_, panel_bounds_, means_;
  std::vector<double> sums_;
};

// Keys of all tokens, and what makes a row their query. See compute/coarse.h.
class CoarseKeys {
 public:
  CoarseKeys() = default;
  CoarseKeys(const Node& node, const Table& table, const float* bias, const float* mean_weight)
      : query_(node.constant(6, "coarse_query")),
        margin_(node.number("margin", 0.f)),
        strange_(node.number("strange", 0.f)) {
    const Tensor key = node.constant(7, "coarse_key"), centre = node.constant(8, "coarse_centre");
    numbers_ = (int)key.size(0);
    const int rows = (int)query_.size(0);
    expect_shape("coarse_query", query_, {-1, table.width});
    expect_shape("coarse_key", key, {-1, table.width});
    if (numbers_ > rows) refuse("coarse_query has ", rows, " rows for the ", numbers_, " numbers of coarse_key");
    expect_shape("coarse_centre", centre, {table.width});
    if (table.number != Number::int8) refuse("a coarse look is for weights of 8 bits");
    if (!(margin_ > 0) || !std::isfinite(margin_)) refuse("margin is ", margin_, "; it must be positive");
    if (!(strange_ >= 0)) refuse("strange is ", strange_, "; it must not be negative");
    std::vector<float> biases(table.count);
    std::vector<int64_t> tokens(table.count);
    std::iota(tokens.begin(), tokens.end(), 0);
    kernels().named_tokens(table, bias, centre.data<float>(), 1, tokens.data(), (int)table.count, biases.data());
    make_keys(table, key.data<float>(), biases.data(), mean_weight);
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
  void make_keys(const Table& table, const float* key, const float* biases, const float* mean_weight) {
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
        key_scales[first + r] = quantize(numbers, numbers_, keys.data() + (first + r) * numbers_);
      }
    }
    keys_ = Packing(keys.data(), key_scales.data(), biases, (int)table.count, numbers_, 128,
                    -std::numeric_limits<float>::infinity());
  }

  static float quantize(const float* x, int n, int8_t* out) {
    float largest = 1e-30f;
    for (int i = 0; i < n; i++) largest = std::max(largest, std::fabs(x[i]));
    const float inverse = 127 / largest;
    for (int i = 0; i < n; i++) out[i] = (int8_t)std::lrintf(x[i] * inverse);
    return largest / 127;
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

struct BestTokensOperator {
  static constexpr const char* name = "BestTokens";
  static constexpr Port inputs[] = {{ort::float32},       {ort::int64},         {ort::any},
                                    {ort::float32, true}, {ort::float32},       {ort::int32, true},
                                    {ort::float32, true}, {ort::float32, true}, {ort::float32, true}};
  static constexpr Port outputs[] = {{ort::int64}, {ort::float32}, {ort::float32, true}};

  explicit BestTokensOperator(const Node& node) {
    best_.table = output_layer(node);
    const float* bias = node.constant(4, "bias").data<float>();
    best_.exact = node.integer("exact", 1) != 0;
    best_.quantization = quantization(node);
    if (best_.quantization.bits != 8) refuse("bits is ", best_.quantization.bits, ", not 8");
    screen_ = std::make_unique<Screen>(best_.table, bias);
    screen_->point(best_);
    if (node.optional_constant(6)) {
      coarse_ = CoarseKeys(node, best_.table, bias, best_.mean_weight);
      coarse_.point(best_);
      best_.look = {(int)best_.table.count, best_.table.width, best_.table.width, 0, nullptr, nullptr, screen_->scales(), bias};
      return;
    }
    packing_ = Packing(screen_->bytes(), screen_->scales(), bias, (int)best_.table.count, best_.table.width,
                       best_.quantization.zero_point, -std::numeric_limits<float>::infinity());
    best_.look = packing_.weight();
  }

  void run(const Call& call) const {
    const Tensor x = call.input(0), ranks = call.input(1), allowed = call.input(5);
    const int64_t rows = x.size(0), k = ranks.count();
    expect_shape("x", x, {-1, best_.table.width});
    if (k < 1 || k > most_tokens) refuse(k, " tokens are asked for; 1 to ", most_tokens, " can be found");
    if (allowed) expect_allowed(allowed, rows);
    int64_t* ids = call.output(0, {rows, k}).data<int64_t>();
    float* log_probs = call.output(1, {rows, k}).data<float>();
    const Tensor normaliser = call.optional_output(2, {rows});
    Scratch scratch;
    const Counts counts =
        kernels().best_tokens(best_, x.data<float>(), (int)rows, (int)k, allowed ? allowed.data<int32_t>() : nullptr,
                              allowed ? (int)allowed.size(1) : 0, ids, log_probs,
                              normaliser ? normaliser.data<float>() : nullptr, scratch);
    count(counters.rows, counts.rows);
    count(counters.whole_rows, counts.whole_rows);
    count(counters.saturated, counts.saturated);
  }

 private:
  void expect_allowed(const Tensor& allowed, int64_t rows) const {
    expect_shape("allowed", allowed, {rows, -1});
    for (int64_t i = 0; i < allowed.count(); i++) {
      const int32_t id = allowed.data<int32_t>()[i];
      if (id < -1 || id >= best_.table.count)
        refuse("row ", i / allowed.size(1), ": allowed token ", id, " of ", best_.table.count);
    }
  }

  BestTokens best_{};
  std::unique_ptr<Screen> screen_;
  Packing packing_;
  CoarseKeys coarse_;
};

}  // namespace

const OrtCustomOp* best_tokens_operator() { return custom_operator<BestTokensOperator>(); }

}  // namespace dragoman
