#include <cmath>

#include "operators/caches.h"
#include "operators/operators.h"

namespace dragoman {
namespace {

// Caches of fp32 and of fp16 are two operators of one name: ONNX Runtime infers an output's type from its declaration.
template <ort::ElementType TYPE>
struct SelfAttention {
  static constexpr const char* name = "SelfAttention";
  static constexpr Port inputs[] = {{ort::float32}, {TYPE}, {TYPE}, {ort::int32}, {ort::int32}, {ort::float32, true}};
  static constexpr Port outputs[] = {{ort::float32}, {TYPE}, {TYPE}};

  explicit SelfAttention(const Node& node) : scale_(node.number("scale", 0.f)) {}

  void run(const Call& call) const {
    const Tensor qkv = call.input(0), keys = call.input(1), values = call.input(2);
    const Tensor positions = call.input(3), slots = call.input(4), bias = call.input(5);
    const Cache cache = cache_of(keys, values);
    const int64_t rows = qkv.size(0), width = (int64_t)cache.heads * cache.head_dim;
    expect_shape("qkv", qkv, {-1, 3 * width});
    expect_places("position", positions, slots, rows, cache, 0);
    expect_in_place("keys", keys, call.output_like(1, keys));
    expect_in_place("values", values, call.output_like(2, values));
    float* out = call.output(0, {rows, width}).data<float>();
    Scratch scratch;
    kernels().self_attention(cache, qkv.data<float>(), positions.data<int32_t>(), slots.data<int32_t>(), (int)rows,
                             scale_of(scale_, cache.head_dim), bias_of(bias, cache.heads, false), out, scratch);
  }

 private:
  float scale_;
};

struct SourceAttention {
  static constexpr const char* name = "SourceAttention";
  static constexpr Port inputs[] = {{ort::float32}, {ort::any}, {ort::any}, {ort::int32}, {ort::int32}};
  static constexpr Port outputs[] = {{ort::float32}};

  explicit SourceAttention(const Node& node) : scale_(node.number("scale", 0.f)) {}

  void run(const Call& call) const {
    const Tensor query = call.input(0), lengths = call.input(3), slots = call.input(4);
    const Cache cache = cache_of(call.input(1), call.input(2));
    const int64_t rows = query.size(0), width = (int64_t)cache.heads * cache.head_dim;
    expect_shape("query", query, {-1, width});
    expect_places("length", lengths, slots, rows, cache, 1);
    float* out = call.output(0, {rows, width}).data<float>();
    Scratch scratch;
    kernels().source_attention(cache, query.data<float>(), lengths.data<int32_t>(), slots.data<int32_t>(), (int)rows,
                               scale_of(scale_, cache.head_dim), out, scratch);
  }

 private:
  float scale_;
};

}  // namespace

std::vector<const OrtCustomOp*> attention_operators() {
  return {custom_operator<SelfAttention<ort::float32>>(), custom_operator<SelfAttention<ort::float16>>(),
          custom_operator<SourceAttention>()};
}

}  // namespace dragoman
