// One query a row: a block for each row and head. A key is read by so many lanes that each has 8 of its numbers. The
// groups of lanes walk over the places side by side, each with a softmax of its own so far (Milakov and Gimelshein
// 2018, "Online normalizer calculation for softmax"); in the end they are joined, in one order.
#include <cuda_fp16.h>

#include "follow.h"
#include "launch.h"

namespace dragoman::device {
namespace {

constexpr int threads = 128, warps = threads / 32;
constexpr int together = 2;  // places of a group whose keys and values are asked for before any is used
constexpr float log2_e = 1.4426950408889634f;

struct Eight {
  float at[8];
};

__device__ Eight load(const Half* from) {
  const uint4 bits = *reinterpret_cast<const uint4*>(from);
  const __half2* pairs = reinterpret_cast<const __half2*>(&bits);
  Eight numbers;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const float2 pair = __half22float2(pairs[i]);
    numbers.at[2 * i] = pair.x;
    numbers.at[2 * i + 1] = pair.y;
  }
  return numbers;
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
};

template <int lanes>
__global__ void __launch_bounds__(threads) attend_kernel(const Attention of) {
  constexpr int groups = threads / lanes;
  follow();
  const int head = blockIdx.x, row = blockIdx.y, part = threadIdx.x % lanes, group = threadIdx.x / lanes;
  const bool has_numbers = part * 8 < of.head_dim;
  const int slot = of.row_slots[row], inner = of.heads * of.head_dim, number = head * of.head_dim + part * 8;
  const bool remembers = of.history != nullptr;
  const int old = remembers ? of.positions[row] : of.positions[row] + 1, places = old + remembers;
  const Half* query = of.query + (size_t)row * of.query_stride + number;
  const Half *fresh_key = query + inner, *fresh_value = query + 2 * inner;
  const auto place = [&](int of_slot, int at) {
    return (((size_t)of_slot * of.heads + head) * of.places + at) * of.head_dim + part * 8;
  };

  Eight q{};
  if (has_numbers) q = load(query);
#pragma unroll
  for (int i = 0; i < 8; i++) q.at[i] *= of.scale * log2_e;

  Sum sum;
  for (int first = 0; first < places; first += groups * together) {
    Eight keys[together]{}, values[together]{};
#pragma unroll
    for (int i = 0; i < together; i++) {
      const int at = first + i * groups + group;
      if (!has_numbers || at >= places) continue;
      if (at < old) {
        const size_t from = place(remembers ? of.history[(size_t)slot * of.places + at] : slot, at);
        keys[i] = load(of.keys + from);
        values[i] = load(of.values + from);
      } else {
        keys[i] = load(fresh_key);
        values[i] = load(fresh_value);
      }
    }
#pragma unroll
    for (int i = 0; i < together; i++) {
      float score = 0;
#pragma unroll
      for (int j = 0; j < 8; j++) score += q.at[j] * keys[i].at[j];
#pragma unroll
      for (int step = lanes / 2; step > 0; step /= 2) score += __shfl_xor_sync(~0u, score, step);
      if (first + i * groups + group < places) sum.add(score, values[i]);
    }
  }
  if (remembers && group == 0 && has_numbers) {
    const size_t to = place(slot, old);
    *reinterpret_cast<uint4*>(of.keys + to) = *reinterpret_cast<const uint4*>(fresh_key);
    *reinterpret_cast<uint4*>(of.values + to) = *reinterpret_cast<const uint4*>(fresh_value);
  }

#pragma unroll
  for (int step = lanes; step < 32; step *= 2) {
    Eight other;
#pragma unroll
    for (int i = 0; i < 8; i++) other.at[i] = __shfl_xor_sync(~0u, sum.values.at[i], step);
    const float greatest = __shfl_xor_sync(~0u, sum.greatest, step);
    sum.join(greatest, __shfl_xor_sync(~0u, sum.weights, step), other);
  }
  __shared__ float greatest[warps], weights[warps];
  __shared__ Eight joined[warps][lanes];
  const int warp = threadIdx.x / 32;
  if (threadIdx.x % 32 < lanes) {
    joined[warp][part] = sum.values;
    greatest[warp] = sum.greatest;
    weights[warp] = sum.weights;
  }
  __syncthreads();
  if (threadIdx.x >= lanes || !has_numbers) return;
  for (int other = 1; other < warps; other++) sum.join(greatest[other], weights[other], joined[other][part]);
  __half2 out[4];
#pragma unroll
  for (int i = 0; i < 4; i++) {
    out[i] = __floats2half2_rn(sum.values.at[2 * i] / sum.weights, sum.values.at[2 * i + 1] / sum.weights);
  }
  *reinterpret_cast<uint4*>(of.attended + (size_t)row * inner + number) = *reinterpret_cast<const uint4*>(out);
}

template <int lanes>
void launch(const Attention& of, void* stream) {
  launch_following(attend_kernel<lanes>, dim3(of.heads, of.rows), threads, stream, of);
}

}  // namespace

void gpu::attend(const Attention& of, void* stream) {
  if (of.rows == 0) return;
  if (of.head_dim <= 32) launch<4>(of, stream);
  else if (of.head_dim <= 64) launch<8>(of, stream);
  else if (of.head_dim <= 128) launch<16>(of, stream);
  else launch<32>(of, stream);
}

}  // namespace dragoman::device
