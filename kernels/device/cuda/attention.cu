// One query a row: a block for each row and head. A key is read by so many lanes that each has 8 of its numbers. The
// groups of lanes walk over the places side by side, each with a softmax of its own so far (Milakov and Gimelshein
// 2018, "Online normalizer calculation for softmax"); in the end they are joined, in one order.
#include "follow.h"
#include "softmax.cuh"

namespace dragoman::device {
namespace {

constexpr int threads = 128, warps = threads / 32;
constexpr int together = 2;  // places of a group whose keys and values are asked for before any is used

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
      const float score = product<lanes>(q, keys[i]);
      if (first + i * groups + group < places) sum.add(score, values[i]);
    }
  }
  if (remembers && group == 0 && has_numbers) {
    const size_t to = place(slot, old);
    *reinterpret_cast<uint4*>(of.keys + to) = *reinterpret_cast<const uint4*>(fresh_key);
    *reinterpret_cast<uint4*>(of.values + to) = *reinterpret_cast<const uint4*>(fresh_value);
  }

  sum.join_warp<lanes>();
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
  sum.store(of.attended + (size_t)row * inner + number);
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
