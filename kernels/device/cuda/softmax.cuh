// What both kinds of attention are made of: a softmax so far, of 8 numbers of a head in the registers of a lane.
#pragma once
#include "eight.cuh"

namespace dragoman::device {

constexpr float log2_e = 1.4426950408889634f;

// The product of a query and a key, whose numbers so many neighbouring lanes have. All lanes of a warp take part.
template <int lanes>
__device__ float product(const Eight& query, const Eight& key) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 8; i++) sum += query.at[i] * key.at[i];
#pragma unroll
  for (int step = lanes / 2; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  return sum;
}

// The softmax so far, in powers of two, and the values that it weighs.
struct Sum {
  float greatest = -INFINITY, weights = 0;
  Eight values{};

  __device__ void add(float score, const Eight& value) {
    const float now = fmaxf(greatest, score), kept = exp2f(greatest - now), weight = exp2f(score - now);
    greatest = now;
    weights = weights * kept + weight;
#pragma unroll
    for (int i = 0; i < 8; i++) values.at[i] = values.at[i] * kept + weight * value.at[i];
  }

  // An empty one has no weights, and must not make any.
  __device__ void join(float other_greatest, float other_weights, const Eight& other) {
    const float now = fmaxf(greatest, other_greatest);
    const float kept = weights == 0 ? 0 : exp2f(greatest - now);
    const float added = other_weights == 0 ? 0 : exp2f(other_greatest - now);
    greatest = now;
    weights = weights * kept + other_weights * added;
#pragma unroll
    for (int i = 0; i < 8; i++) values.at[i] = values.at[i] * kept + other.at[i] * added;
  }

  // Joins those of all groups of so many lanes of a warp: each has all of it then.
  template <int lanes>
  __device__ void join_warp() {
#pragma unroll
    for (int step = lanes; step < 32; step *= 2) {
      Eight other;
#pragma unroll
      for (int i = 0; i < 8; i++) other.at[i] = __shfl_xor_sync(~0u, values.at[i], step);
      const float other_greatest = __shfl_xor_sync(~0u, greatest, step);
      join(other_greatest, __shfl_xor_sync(~0u, weights, step), other);
    }
  }

  __device__ void store(Half* to) const {
    __half2 out[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
      out[i] = __floats2half2_rn(values.at[2 * i] / weights, values.at[2 * i + 1] / weights);
    }
    *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(out);
  }
};

}  // namespace dragoman::device
