// Tokens at their positions: [rows, width]. A block for each row.
#include <cuda_fp16.h>

#include "follow.h"
#include "launch.h"

namespace dragoman::device {
namespace {

constexpr int threads = 128;

__global__ void __launch_bounds__(threads) embed_kernel(const Embedding of) {
  follow();
  const int row = blockIdx.x;
  const Half* token = of.tokens + (size_t)of.ids[row] * of.width;
  const Half* place = of.places ? of.places + (size_t)of.positions[row] * of.width : nullptr;
  for (int k = threadIdx.x * 2; k < of.width; k += threads * 2) {
    // Each product and sum is rounded, as operators of their own would do it.
    float2 numbers = __half22float2(*reinterpret_cast<const __half2*>(token + k));
    __half2 scaled = __floats2half2_rn(numbers.x * of.scale, numbers.y * of.scale);
    if (place) {
      const float2 plus = __half22float2(*reinterpret_cast<const __half2*>(place + k));
      numbers = __half22float2(scaled);
      scaled = __floats2half2_rn(numbers.x + plus.x, numbers.y + plus.y);
    }
    *reinterpret_cast<__half2*>(of.embedded + (size_t)row * of.width + k) = scaled;
  }
}

}  // namespace

void gpu::embed(const Embedding& of, void* stream) {
  if (of.rows > 0) launch_following(embed_kernel, dim3(of.rows), threads, stream, of);
}

}  // namespace dragoman::device
