// KeepSources: what an encoder run left of sources goes into slots of the cache, which is written in place.
#pragma once
#include "encoder.h"
#include "place.h"

namespace dragoman::device {

template <Place place>
struct KeepSources {
  static constexpr const char* name = "KeepSources";
  static constexpr const char* provider = provider_name<place>;
  static constexpr Port inputs[] = {{ort::float16}, {ort::int32}, {ort::int32}, {ort::int32}, {ort::float16}};
  static constexpr Port outputs[] = {{ort::float16}};

  explicit KeepSources(const Node&) {}

  void run(const Call& call) const {
    const Tensor cross = call.input(0), firsts = call.input(1), lengths = call.input(2), slots = call.input(3);
    const Tensor cache = call.input(4);
    expect_shape("cache", cache, {-1, -1, -1, -1, -1});
    expect_head_dim(cache.size(4));
    expect_shape("cross", cross, {-1, cache.size(0) * cache.size(2) * cache.size(4)});
    expect_shape("firsts", firsts, {-1});
    expect_shape("lengths", lengths, {firsts.size(0)});
    expect_shape("slots", slots, {firsts.size(0)});
    if constexpr (place == on_cpu) {
      expect_below("slots", slots, cache.size(1));
      expect_within(firsts, lengths, cross.size(0), cache.size(3));
    }
    if (call.output_like(0, cache).template data<char>() != cache.data<char>())
      refuse("cache must be bound in place: the output to the memory of the input");
    KeptSources of{};
    of.sources = (int)firsts.size(0);
    of.tensors = (int)cache.size(0);
    of.slots = (int)cache.size(1);
    of.heads = (int)cache.size(2);
    of.places = (int)cache.size(3);
    of.head_dim = (int)cache.size(4);
    of.cross = cross.data<Half>();
    of.firsts = firsts.data<int32_t>();
    of.lengths = lengths.data<int32_t>();
    of.to_slots = slots.data<int32_t>();
    of.cache = cache.data<Half>();
#ifdef GPU
    if constexpr (place == on_gpu) return gpu::keep(of, call.stream());
#endif
    reference::keep(of);
  }
};

}  // namespace dragoman::device
