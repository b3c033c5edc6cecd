// PackedAttention: attention within sources that lie one behind another, without padding.
#pragma once
#include <cmath>

#include "encoder.h"
#include "place.h"

namespace dragoman::device {

template <Place place>
struct PackedAttention {
  static constexpr const char* name = "PackedAttention";
  static constexpr const char* provider = provider_name<place>;
  static constexpr Port inputs[] = {{ort::float16}, {ort::int32}, {ort::int32}};
  static constexpr Port outputs[] = {{ort::float16}};

  explicit PackedAttention(const Node& node)
      : heads_((int)node.integer("heads", 0)), scale_(node.number("scale", 0)) {
    if (heads_ < 1) refuse("heads is ", heads_, "; it must be at least 1");
  }

  void run(const Call& call) const {
    const Tensor qkv = call.input(0), firsts = call.input(1), lengths = call.input(2);
    expect_shape("qkv", qkv, {-1, -1});
    const int64_t tokens = qkv.size(0), inner = qkv.size(1) / 3, head_dim = inner / heads_;
    if (qkv.size(1) != 3 * heads_ * head_dim) refuse("qkv has the shape ", qkv.shape(), " for ", heads_, " heads");
    expect_head_dim(head_dim);
    expect_shape("firsts", firsts, {tokens});
    expect_shape("lengths", lengths, {tokens});
    if constexpr (place == on_cpu) expect_within(firsts, lengths, tokens, tokens);
    SourceTokens of{};
    of.tokens = (int)tokens;
    of.heads = heads_;
    of.head_dim = (int)head_dim;
    of.scale = scale_ == 0 ? 1 / std::sqrt((float)head_dim) : scale_;
    of.qkv = qkv.data<Half>();
    of.firsts = firsts.data<int32_t>();
    of.lengths = lengths.data<int32_t>();
    of.attended = call.output(0, {tokens, inner}).template data<Half>();
#ifdef GPU
    if constexpr (place == on_gpu) return gpu::attend(of, call.stream());
#endif
    reference::attend(of);
  }

 private:
  int heads_;
  float scale_;
};

}  // namespace dragoman::device
