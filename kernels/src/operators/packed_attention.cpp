#include "operators/caches.h"
#include "operators/operators.h"

namespace dragoman {
namespace {

struct PackedAttention {
  static constexpr const char* name = "PackedAttention";
  static constexpr Port inputs[] = {{ort::float32}, {ort::int32}, {ort::float32, true}};
  static constexpr Port outputs[] = {{ort::float32}};

  explicit PackedAttention(const Node& node)
      : heads_((int)node.integer("heads", 0)), scale_(node.number("scale", 0.f)) {
    if (heads_ < 1) refuse("heads is ", heads_, "; it must be at least 1");
  }

  void run(const Call& call) const {
    const Tensor qkv = call.input(0), lengths = call.input(1), bias = call.input(2);
    expect_shape("qkv", qkv, {-1, -1});
    expect_shape("lengths", lengths, {-1});
    const int64_t tokens = qkv.size(0), width = qkv.size(1) / 3;
    if (qkv.size(1) % (3 * heads_) != 0) refuse("qkv has the shape ", qkv.shape(), " for ", heads_, " heads");
    expect_head_dim(width / heads_);
    int64_t total = 0;
    for (int64_t s = 0; s < lengths.size(0); s++) {
      const int32_t length = lengths.data<int32_t>()[s];
      if (length < 1) refuse("sentence ", s, " has a length of ", length);
      total += length;
    }
    if (total != tokens) refuse("lengths add up to ", total, ", and qkv has ", tokens, " tokens");
    float* out = call.output(0, {tokens, width}).data<float>();
    if (tokens == 0) return;  // kernels begin with a first sentence
    const int head_dim = (int)(width / heads_);
    Scratch scratch;
    kernels().packed_attention(qkv.data<float>(), lengths.data<int32_t>(), (int)lengths.size(0), heads_, head_dim,
                               scale_of(scale_, head_dim), bias_of(bias, heads_, true), out, scratch);
  }

 private:
  int heads_;
  float scale_;
};

}  // namespace

const OrtCustomOp* packed_attention_operator() { return custom_operator<PackedAttention>(); }

}  // namespace dragoman
