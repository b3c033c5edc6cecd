// Eight numbers of fp16 that lie side by side, which a thread loads at once.
#pragma once
#include <cuda_fp16.h>

#include "launch.h"

namespace dragoman::device {

struct Eight {
  float at[8];
};

inline __device__ uint4 bits_of(const Half* from) { return *reinterpret_cast<const uint4*>(from); }

inline __device__ Eight numbers_of(const uint4 bits) {
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

inline __device__ Eight load(const Half* from) { return numbers_of(bits_of(from)); }

}  // namespace dragoman::device
