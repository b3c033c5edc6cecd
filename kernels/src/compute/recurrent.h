// A step of recurrent decoders: gates, and additive attention to a row's own source.
#pragma once
#include "compute/attention.h"
#include "compute/functions.h"
#include "compute/table.h"

namespace dragoman::ISA {

// given, kept [rows, 3 * width]: z, r, n of the input and of the state, biases included. state [rows, width].
//   z = sigmoid(z + z'), r = sigmoid(r + r'), n = tanh(n + r n'), out = n + z (state - n)
static void gated_unit(const float* given, const float* kept, const float* state, int rows, int width, float* out) {
  for (int r = 0; r < rows; r++, given += 3 * width, kept += 3 * width, state += width, out += width)
    for (int i = 0; i < width; i += 16) {
      const int n = width - i;
      const auto both = [&](int gate) INLINED {
        return load_up_to(given + gate * width + i, n) + load_up_to(kept + gate * width + i, n);
      };
      const Floats update = sigmoid(both(0)), reset = sigmoid(both(1));
      const Floats kept_new = reset * load_up_to(kept + 2 * width + i, n);
      const Floats fresh = hyperbolic_tangent(load_up_to(given + 2 * width + i, n) + kept_new);
      store_up_to(out + i, fresh + update * (load_up_to(state + i, n) - fresh), n);
    }
}

// weight . tanh(query + key)
INLINE float additive_score(const float* query, const float* weight, const float* key, int width) {
  Floats total = all(0.f);
  for (int i = 0; i < width; i += 16) {
    const int n = width - i;
    const Floats sums = load_up_to(query + i, n) + load_up_to(key + i, n);
    total = total + load_up_to(weight + i, n) * hyperbolic_tangent(sums);
  }
  return sum(total);
}

// The mean of values [length, width] by weights that are not normalised yet.
INLINE void mean_of_values(const float* values, const float* weights, float inverse, int length, int width,
                           float* out) {
  for (int i = 0; i < width; i += 16) {
    Floats total = all(0.f);
    const int n = width - i;
    for (int t = 0; t < length; t++)
      total = total + all(weights[t]) * load_up_to(values + (size_t)t * width + i, n);
    store_up_to(out + i, total * all(inverse), n);
  }
}

// Keys and values [rows, capacity, width]; each row looks at its first last + 1 places. scores [rows, places] or null:
// as they are before their softmax, and the lowest behind a row's own places.
static void additive_attention(const float* query, const float* weight, const float* keys, const float* values,
                               const int32_t* last, int rows, int capacity, int width, float* out, float* scores,
                               int places, Scratch& scratch) {
  float* weights = scratch.take<float>(whole_blocks(capacity));
  const size_t stride = (size_t)capacity * width;
  for (int r = 0; r < rows; r++, query += width, keys += stride, values += stride, out += width) {
    const int length = last[r] + 1;
    for (int t = 0; t < length; t++) weights[t] = additive_score(query, weight, keys + (size_t)t * width, width);
    for (int t = length; t < whole_blocks(length); t++) weights[t] = lowest;
    for (int t = 0; scores && t < places; t++) scores[(size_t)r * places + t] = t < length ? weights[t] : lowest;
    Floats most = all(lowest);
    for (int t = 0; t < length; t += 16) most = larger(load(weights + t), most);
    const float inverse = weigh(weights, length, most);
    mean_of_values(values, weights, inverse, length, width, out);
  }
}

}  // namespace dragoman::ISA
