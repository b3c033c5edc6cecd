#include "operators/caches.h"

#include <cmath>

#include "packing.h"

namespace dragoman {

Cache cache_of(const Tensor& keys, const Tensor& values) {
  expect_shape("keys", keys, {-1, -1, -1, -1});
  expect_shape("values", values, {keys.size(0), keys.size(1), keys.size(2), keys.size(3)});
  if (keys.type() != values.type())
    refuse("keys have elements of type ", (int)keys.type(), " and values of ", (int)values.type(), " (ONNX's numbers)");
  if (keys.size(2) % 16 != 0) refuse("the capacity is ", keys.size(2), ", which is no multiple of 16");
  expect_head_dim(keys.size(3));
  return {number_of("keys", keys, false),
          keys.data<void>(),
          values.data<void>(),
          keys.size(0),
          (int)keys.size(1),
          (int)keys.size(2),
          (int)keys.size(3)};
}

void expect_head_dim(int64_t head_dim) {
  if (head_dim < 8 || head_dim % 8 != 0) refuse("head_dim is ", head_dim, ", which is no multiple of 8");
}

void expect_slots(const Tensor& slots, int64_t rows, int64_t count) {
  expect_shape("slots", slots, {rows});
  for (int64_t r = 0; r < rows; r++) {
    const int32_t slot = slots.data<int32_t>()[r];
    if (slot < 0 || slot >= count) refuse("row ", r, ": slot ", slot, " of ", count);
  }
}

void expect_places(const char* name, const Tensor& places, const Tensor& slots, int64_t rows, const Cache& cache,
                   int least) {
  expect_slots(slots, rows, cache.slots);
  expect_shape(name, places, {rows});
  for (int64_t r = 0; r < rows; r++) {
    const int32_t place = places.data<int32_t>()[r];
    if (place < least || place >= cache.capacity + least)
      refuse("row ", r, ": ", name, " ", place, " with a capacity of ", cache.capacity);
  }
}

void expect_in_place(const char* name, const Tensor& input, const Tensor& output) {
  if (input.data<char>() != output.data<char>())
    refuse(name, " must be bound in place: the output to the memory of the input");
}

Bias bias_of(const Tensor& bias, int heads, bool both_ways) {
  if (!bias) return {};
  expect_shape("bias", bias, {heads, -1});
  if (bias.size(1) < 1) refuse("bias has the shape ", bias.shape(), "; its span must be at least 1");
  if (both_ways && bias.size(1) % 2 == 0)
    refuse("bias has the shape ", bias.shape(), "; its span must be odd, with as many places on both sides");
  const int span = (int)bias.size(1);
  return {bias.data<float>(), span, both_ways ? span / 2 : span - 1};
}

float scale_of(float attribute, int head_dim) { return attribute != 0 ? attribute : 1.f / std::sqrt((float)head_dim); }

}  // namespace dragoman
