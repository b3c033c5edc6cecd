// From products with the output layer to the best tokens, in two kernels. The first cuts a row into parts, and keeps of
// each those that may be among the best, with the sum of all exp(logit). The second joins the parts of a row, sums the
// products of the best anew in fp32, because those of fp16 are off by up to 2^-7 where a logit is above 16, and puts
// them in order.
//
// A logit and its token are one number, so that no two are equal: the greater, the better, and of equal logits the
// lower token. The n best of some numbers are no less than the n-th best of the best of each thread; so all that are
// less are left out, and all of other threads: what is left is at most n times what a thread has. There, logits count
// as equal that differ by less than a 2^-15th, far less than what products are off by.
#include <cuda_fp16.h>

#include "follow.h"
#include "launch.h"

namespace dragoman::device {
namespace {

using Ranked = unsigned long long;

constexpr int threads = 256, warps = threads / 32;
constexpr int together = 8, rounds = 4;  // columns that a thread loads at once, and how often it does
constexpr int of_thread = together * rounds, part_columns = threads * of_thread;
constexpr int most_left = 1024;  // that the second kernel puts in order

__device__ Ranked ranked(float logit, int token) {
  const uint32_t bits = __float_as_uint(logit), order = bits ^ (bits >> 31 ? ~0u : 1u << 31);
  return (Ranked)order << 32 | (uint32_t)~token;
}
__device__ int token_of(Ranked number) { return (int)~(uint32_t)number; }
__device__ float logit_of(Ranked number) {
  const uint32_t order = (uint32_t)(number >> 32);
  return __uint_as_float(order ^ (order >> 31 ? 1u << 31 : ~0u));
}

// What the parts of a row found.
struct Parts {
  int count, kept;     // parts of a row; most that are kept of a part
  Ranked* numbers;     // [rows, count, kept]
  int* lengths;        // [rows, count]: how many there are
  float2* sums;        // [rows, count]: the greatest logit, and the sum of exp(logit - greatest)
};

__device__ float2 joined(float2 one, float2 other) {
  const float greatest = fmaxf(one.x, other.x);
  const float own = one.y == 0 ? 0 : one.y * __expf(one.x - greatest);
  return {greatest, own + (other.y == 0 ? 0 : other.y * __expf(other.x - greatest))};
}

// Of all threads, in one order whatever they do.
__device__ float2 of_block(float2 sum, float2* shared) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    sum = joined(sum, {__shfl_xor_sync(~0u, sum.x, step), __shfl_xor_sync(~0u, sum.y, step)});
  }
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = sum;
  __syncthreads();
  sum = shared[0];
  for (int warp = 1; warp < warps; warp++) sum = joined(sum, shared[warp]);
  return sum;
}

// Whether the best number of this thread is among the n best of all threads', and in `least` the n-th of those, rounded
// down; 0 where there are fewer.
__device__ bool among_best(Ranked best, int n, uint32_t* shared, Ranked* least) {
  const uint32_t own = best == 0 ? 0 : ((uint32_t)(best >> 32) & ~(threads - 1u)) | (threads - 1 - threadIdx.x);
  shared[threadIdx.x] = own;
  if (threadIdx.x == 0) *least = 0;
  __syncthreads();
  int better = 0;
  const uint4* others = reinterpret_cast<const uint4*>(shared);
#pragma unroll 8
  for (int i = 0; i < threads / 4; i++) {
    const uint4 four = others[i];
    better += (four.x > own) + (four.y > own) + (four.z > own) + (four.w > own);
  }
  if (better == n - 1) *least = (Ranked)(own & ~(threads - 1u)) << 32;
  __syncthreads();
  return better < n && best != 0;
}

__global__ void __launch_bounds__(threads) scan_kernel(const BestLogits of, const Parts parts, int n) {
  __shared__ __align__(16) uint32_t bests[threads];
  __shared__ Ranked least;
  __shared__ float2 sums[warps];
  __shared__ int length;
  const int part = blockIdx.x, row = blockIdx.y, first = part * part_columns + threadIdx.x * together;
  if (threadIdx.x == 0) length = 0;
  follow();

  float logits[of_thread];
  float2 sum = {-INFINITY, 0};
  Ranked best = 0;
#pragma unroll
  for (int round = 0; round < rounds; round++) {
    const int column = first + round * threads * together;
    if (column >= of.columns) break;
    const size_t at = (size_t)row * of.columns + column;
    const uint4 product_bits = *reinterpret_cast<const uint4*>(of.products + at);
    const uint4 bias_bits = *reinterpret_cast<const uint4*>(of.bias + column);
    const __half* product = reinterpret_cast<const __half*>(&product_bits);
    const __half* bias = reinterpret_cast<const __half*>(&bias_bits);
    __align__(16) __half rounded[together];
#pragma unroll
    for (int i = 0; i < together; i++) {
      const float logit = __half2float(product[i]) + __half2float(bias[i]);
      logits[round * together + i] = logit;
      rounded[i] = __float2half_rn(logit);
      best = max(best, ranked(logit, column + i));
      sum.x = fmaxf(sum.x, logit);
    }
    *reinterpret_cast<uint4*>(of.logits + at) = *reinterpret_cast<const uint4*>(rounded);
  }
#pragma unroll
  for (int i = 0; i < of_thread; i++) {
    const int column = first + i / together * threads * together;
    if (column < of.columns) sum.y += __expf(logits[i] - sum.x);
  }
  sum = of_block(sum, sums);
  const bool chosen = among_best(best, n, bests, &least);
  const size_t index = (size_t)row * parts.count + part;
  if (chosen) {
#pragma unroll
    for (int i = 0; i < of_thread; i++) {
      const int column = first + i / together * threads * together;
      if (column >= of.columns) continue;
      const Ranked number = ranked(logits[i], column + i % together);
      if (number >= least) parts.numbers[index * parts.kept + atomicAdd(&length, 1)] = number;
    }
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    parts.lengths[index] = length;
    parts.sums[index] = sum;
  }
}

// Calls it with every number of a row's parts that is this thread's.
template <class Function>
__device__ void each(const Parts& parts, int row, Function function) {
  for (int part = threadIdx.x / 32; part < parts.count; part += warps) {
    const size_t index = (size_t)row * parts.count + part;
    const int length = parts.lengths[index];
    for (int i = threadIdx.x % 32; i < length; i += 32) function(parts.numbers[index * parts.kept + i]);
  }
}

// The n-th best of a row, bit by bit: for rows with too many that may be among the best.
__device__ Ranked exact_threshold(const Parts& parts, int row, int n) {
  Ranked least = 0;
  for (int bit = 63; bit >= 0; bit--) {
    const Ranked tried = least | 1ull << bit;
    int own = 0;
    each(parts, row, [&](Ranked number) { own += number >= tried; });
    __shared__ int count;
    __syncthreads();
    if (threadIdx.x == 0) count = 0;
    __syncthreads();
    atomicAdd(&count, own);
    __syncthreads();
    if (count >= n) least = tried;
  }
  return least;
}

__device__ int collect(const Parts& parts, int row, Ranked worst, Ranked* left, int* length) {
  __syncthreads();
  if (threadIdx.x == 0) *length = 0;
  __syncthreads();
  each(parts, row, [&](Ranked number) {
    if (number < worst) return;
    const int at = atomicAdd(length, 1);
    if (at < most_left) left[at] = number;
  });
  __syncthreads();
  return *length;
}

// A warp's sum of the products of a row of the output layer, in one order.
__device__ float product(const Half* hidden, const Half* weight, int width) {
  float sum = 0;
  for (int i = threadIdx.x % 32; i < width / 8; i += 32) {
    const uint4 left_bits = reinterpret_cast<const uint4*>(hidden)[i];
    const uint4 right_bits = reinterpret_cast<const uint4*>(weight)[i];
    const __half2* left = reinterpret_cast<const __half2*>(&left_bits);
    const __half2* right = reinterpret_cast<const __half2*>(&right_bits);
#pragma unroll
    for (int j = 0; j < 4; j++) {
      const float2 a = __half22float2(left[j]), b = __half22float2(right[j]);
      sum += a.x * b.x + a.y * b.y;
    }
  }
#pragma unroll
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  return sum;
}

template <int n>
__global__ void __launch_bounds__(threads) finish_kernel(const BestLogits of, const Parts parts) {
  __shared__ __align__(16) uint32_t bests[threads];
  __shared__ Ranked least, left[most_left], chosen[n], exact[n];
  __shared__ float2 sums[warps];
  __shared__ int length;
  const int row = blockIdx.x;
  follow();

  float2 sum = {-INFINITY, 0};
  for (int part = threadIdx.x; part < parts.count; part += threads)
    sum = joined(sum, parts.sums[(size_t)row * parts.count + part]);
  sum = of_block(sum, sums);

  Ranked best = 0;
  each(parts, row, [&](Ranked number) { best = max(best, number); });
  among_best(best, n, bests, &least);
  int found = collect(parts, row, least, left, &length);
  if (found > most_left) found = collect(parts, row, exact_threshold(parts, row, n), left, &length);
  for (int i = threadIdx.x; i < found; i += threads) {
    int better = 0;
    for (int other = 0; other < found; other++) better += left[other] > left[i];
    if (better < n) chosen[better] = left[i];
  }
  __syncthreads();
  found = min(found, n);

  for (int i = threadIdx.x / 32; i < found; i += warps) {
    const int token = token_of(chosen[i]);
    const float bias = __half2float(reinterpret_cast<const __half*>(of.bias)[token]);
    const float logit = product(of.hidden + (size_t)row * of.width, of.weight + (size_t)token * of.width, of.width);
    if (threadIdx.x % 32 == 0) exact[i] = ranked(logit + bias, token);
  }
  __syncthreads();
  float mended = sum.y;
  for (int i = 0; i < found; i++) mended += __expf(logit_of(exact[i]) - sum.x) - __expf(logit_of(chosen[i]) - sum.x);
  const float normaliser = sum.x + logf(mended);
  for (int i = threadIdx.x; i < found; i += threads) {
    int better = 0;
    for (int other = 0; other < found; other++) better += exact[other] > exact[i];
    if (better >= of.k) continue;
    of.ids[(size_t)row * of.k + better] = token_of(exact[i]);
    of.log_probs[(size_t)row * of.k + better] = logit_of(exact[i]) - normaliser;
  }
}

size_t rounded_up(size_t bytes) { return (bytes + 255) / 256 * 256; }

Parts layout(const BestLogits& of, size_t* bytes) {
  Parts parts{};
  parts.count = (of.columns + part_columns - 1) / part_columns;
  parts.kept = looked_at_again(of.k) * of_thread;
  const size_t all = (size_t)of.rows * parts.count;
  char* at = static_cast<char*>(of.scratch);
  parts.numbers = reinterpret_cast<Ranked*>(at);
  at += rounded_up(all * parts.kept * sizeof(Ranked));
  parts.lengths = reinterpret_cast<int*>(at);
  at += rounded_up(all * sizeof(int));
  parts.sums = reinterpret_cast<float2*>(at);
  at += rounded_up(all * sizeof(float2));
  *bytes = at - static_cast<char*>(of.scratch);
  return parts;
}

}  // namespace

size_t gpu::scratch_bytes(const BestLogits& of) {
  size_t bytes = 0;
  layout(of, &bytes);
  return bytes;
}

void gpu::find(const BestLogits& of, void* stream) {
  if (of.rows == 0) return;
  size_t bytes = 0;
  const Parts parts = layout(of, &bytes);
  launch_following(scan_kernel, dim3(parts.count, of.rows), threads, stream, of, parts, looked_at_again(of.k));
  const auto finish = of.k <= 8 ? finish_kernel<looked_at_again(8)> : finish_kernel<looked_at_again(most_candidates)>;
  launch_following(finish, dim3(of.rows), threads, stream, of, parts);
}

}  // namespace dragoman::device
