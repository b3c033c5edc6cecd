// EmbedTokens: scale * tokens[ids] + places[positions]. The places may be left out.
#pragma once
#include "place.h"

namespace dragoman::device {

template <Place place>
class EmbedTokensOperator {
 public:
  static constexpr const char* name = "EmbedTokens";
  static constexpr const char* provider = provider_name<place>;
  static constexpr Port inputs[] = {{ort::int64}, {ort::int32}, {ort::float16}, {ort::float16, true}};
  static constexpr Port outputs[] = {{ort::float16}};

  explicit EmbedTokensOperator(const Node& node) : scale_(node.number("scale", 1)) {}

  void run(const Call& call) const {
    const Tensor ids = call.input(0), positions = call.input(1), tokens = call.input(2), places = call.input(3);
    expect_shape("ids", ids, {-1});
    const int64_t rows = ids.size(0);
    expect_shape("positions", positions, {rows});
    expect_shape("tokens", tokens, {-1, -1});
    const int64_t width = tokens.size(1);
    if (width % 8 != 0) refuse("tokens has the shape ", tokens.shape(), "; its width must be a multiple of 8");
    if (places) expect_shape("places", places, {-1, width});
    if constexpr (place == on_cpu) {  // on a GPU the host cannot see them: they are the engine's word
      expect_below<int64_t>("ids", ids, tokens.size(0));
      if (places) expect_below("positions", positions, places.size(0));
    }
    Embedding of{};
    of.rows = (int)rows;
    of.width = (int)width;
    of.scale = scale_;
    of.ids = ids.data<int64_t>();
    of.positions = positions.data<int32_t>();
    of.tokens = tokens.data<Half>();
    of.places = places ? places.data<Half>() : nullptr;
    of.embedded = call.output(0, {rows, width}).template data<Half>();
#ifdef GPU
    if constexpr (place == on_gpu) return gpu::embed(of, call.stream());
#endif
    reference::embed(of);
  }

 private:
  float scale_;
};

}  // namespace dragoman::device
