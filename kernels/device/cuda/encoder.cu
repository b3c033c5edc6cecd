// Attention of a token to those of its source: a warp for each token and head. The warps of a block have neighbouring
// tokens, which mostly look at the same keys and values, so that these come from the first-level cache. As in
// attention.cu, groups of lanes walk over the tokens of the source side by side.
#include "encoder.h"
#include "follow.h"
#include "softmax.cuh"

namespace dragoman::device {
namespace {

constexpr int threads = 128, warps = threads / 32;
constexpr int together = 4;  // keys and values of a group that are asked for before any is used

template <int lanes>
__global__ void __launch_bounds__(threads) attend_kernel(const SourceTokens of) {
  constexpr int groups = 32 / lanes;
  follow();
  const int lane = threadIdx.x % 32, part = lane % lanes, group = lane / lanes;
  const int token = blockIdx.x * warps + threadIdx.x / 32, head = blockIdx.y;
  if (token >= of.tokens) return;
  const bool has_numbers = part * 8 < of.head_dim;
  const int inner = of.heads * of.head_dim, number = head * of.head_dim + part * 8, length = of.lengths[token];
  const size_t of_token = 3 * (size_t)inner;
  const Half* keys = of.qkv + of.firsts[token] * of_token + inner + number;

  Eight query{};
  if (has_numbers) query = load(of.qkv + token * of_token + number);
#pragma unroll
  for (int i = 0; i < 8; i++) query.at[i] *= of.scale * log2_e;

  Sum sum;
  for (int first = 0; first < length; first += groups * together) {
    uint4 key[together]{}, value[together]{};  // not numbers yet: these take twice the registers
#pragma unroll
    for (int i = 0; i < together; i++) {
      const int at = first + i * groups + group;
      if (!has_numbers || at >= length) continue;
      key[i] = bits_of(keys + at * of_token);
      value[i] = bits_of(keys + at * of_token + inner);
    }
#pragma unroll
    for (int i = 0; i < together; i++) {
      const float score = product<lanes>(query, numbers_of(key[i]));
      if (first + i * groups + group < length) sum.add(score, numbers_of(value[i]));
    }
  }
  sum.join_warp<lanes>();
  if (group == 0 && has_numbers) sum.store(of.attended + (size_t)token * inner + number);
}

template <int lanes>
void launch(const SourceTokens& of, void* stream) {
  launch_following(attend_kernel<lanes>, dim3((of.tokens + warps - 1) / warps, of.heads), threads, stream, of);
}

// A block for each head of each tensor, and each source: what it writes lies together.
__global__ void __launch_bounds__(threads) keep_kernel(const KeptSources of) {
  follow();
  const int part = blockIdx.x, parts = gridDim.x, source = blockIdx.y, eights = of.head_dim / 8;
  const int tensor = part / of.heads, head = part % of.heads, count = of.lengths[source] * eights;
  const size_t slot = (size_t)tensor * of.slots + of.to_slots[source], of_token = (size_t)parts * eights;
  const uint4* from = reinterpret_cast<const uint4*>(of.cross) + of.firsts[source] * of_token + part * eights;
  uint4* to = reinterpret_cast<uint4*>(of.cache) + (slot * of.heads + head) * of.places * eights;
  for (int i = threadIdx.x; i < count; i += threads) to[i] = from[i / eights * of_token + i % eights];
}

}  // namespace

void gpu::attend(const SourceTokens& of, void* stream) {
  if (of.tokens == 0) return;
  if (of.head_dim <= 32) launch<4>(of, stream);
  else if (of.head_dim <= 64) launch<8>(of, stream);
  else if (of.head_dim <= 128) launch<16>(of, stream);
  else launch<32>(of, stream);
}

void gpu::keep(const KeptSources& of, void* stream) {
  if (of.sources > 0) launch_following(keep_kernel, dim3(of.tensors * of.heads, of.sources), threads, stream, of);
}

}  // namespace dragoman::device
