#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "compute/halves.h"
#include "counters.h"
#include "operators/coarse_keys.h"
#include "operators/operators.h"
#include "packing.h"

namespace dragoman {
namespace {

constexpr int most_tokens = 64;

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
    std::copy_n(bounds_, 3, best.bounds);
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
    for (float* bounds : {panel_bounds_.get() + v / columns * 3, bounds_}) {
      bounds[0] = std::max(bounds[0], weight_norms_[v]);
      bounds[1] = std::max(bounds[1], rest_norms_[v]);
      bounds[2] = std::max(bounds[2], bias_slack_[v]);
    }
  }

  Table table_;
  int panels_;
  Memory<int8_t> bytes_;
  Memory<float> scales_, weight_norms_, rest_norms_, bias_slack_, panel_bounds_, means_;
  float bounds_[3] = {};
  std::vector<double> sums_;
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
      const Table& table = best_.table;  // named tokens are looked at by their rows: there are no panels
      best_.look = {(int)table.count, table.width, table.width, 0, nullptr, nullptr, screen_->scales(), bias};
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
    if (rows == 0) return;  // kernels begin with a first row
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
    const int32_t* ids = allowed.data<int32_t>();
    const int64_t count = allowed.count();
    int32_t least = 0, most = 0;
    for (int64_t i = 0; i < count; i++) {
      least = std::min(least, ids[i]);
      most = std::max(most, ids[i]);
    }
    if (least >= -1 && most < best_.table.count) return;
    const int64_t wrong =
        std::find_if(ids, ids + count, [&](int32_t id) { return id < -1 || id >= best_.table.count; }) - ids;
    refuse("row ", wrong / allowed.size(1), ": allowed token ", ids[wrong], " of ", best_.table.count);
  }

  BestTokens best_{};
  std::unique_ptr<Screen> screen_;
  Packing packing_;
  CoarseKeys coarse_;
};

}  // namespace

const OrtCustomOp* best_tokens_operator() { return custom_operator<BestTokensOperator>(); }

}  // namespace dragoman
