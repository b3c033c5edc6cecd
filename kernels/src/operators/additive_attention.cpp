#include <algorithm>

#include "operators/operators.h"

namespace dragoman {
namespace {

struct AdditiveAttention {
  static constexpr const char* name = "AdditiveAttention";
  static constexpr Port inputs[] = {{ort::float32}, {ort::float32}, {ort::float32}, {ort::float32}, {ort::int32}};
  static constexpr Port outputs[] = {{ort::float32}, {ort::float32, true}};

  explicit AdditiveAttention(const Node&) {}

  void run(const Call& call) const {
    const Tensor query = call.input(0), weight = call.input(1), keys = call.input(2), values = call.input(3);
    const Tensor last = call.input(4);
    expect_shape("query", query, {-1, -1});
    const int64_t rows = query.size(0), width = query.size(1);
    expect_shape("weight", weight, {width});
    expect_shape("keys", keys, {rows, 1, -1, width});
    const int64_t capacity = keys.size(2);
    expect_shape("values", values, {rows, 1, capacity, width});
    const int places = longest(last, rows, capacity);
    float* out = call.output(0, {rows, width}).data<float>();
    const Tensor scores = call.optional_output(1, {rows, places});
    Scratch scratch;
    kernels().additive_attention(query.data<float>(), weight.data<float>(), keys.data<float>(), values.data<float>(),
                                 last.data<int32_t>(), (int)rows, (int)capacity, (int)width, out,
                                 scores ? scores.data<float>() : nullptr, places, scratch);
  }

 private:
  static int longest(const Tensor& last, int64_t rows, int64_t capacity) {
    expect_shape("last", last, {rows});
    int32_t most = -1;
    for (int64_t r = 0; r < rows; r++) {
      const int32_t place = last.data<int32_t>()[r];
      if (place < 0 || place >= capacity) refuse("row ", r, ": last ", place, " with a capacity of ", capacity);
      most = std::max(most, place);
    }
    return most + 1;
  }
};

}  // namespace

const OrtCustomOp* additive_attention_operator() { return custom_operator<AdditiveAttention>(); }

}  // namespace dragoman
