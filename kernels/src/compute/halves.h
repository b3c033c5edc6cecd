// Numbers of fp16 in plain C++. Static, as all of compute/: an instruction set must not get another's copy.
#pragma once
#include <cstdint>
#include <cstring>

namespace dragoman {

static inline float half_to_float(uint16_t half) {
  uint32_t magnitude = half & 0x7fff, sign = (uint32_t)(half & 0x8000) << 16, bits;
  float scaled;
  if (magnitude >= 0x7c00) {  // infinite, or not a number
    bits = (magnitude << 13) | 0x7f800000;
    memcpy(&scaled, &bits, 4);
  } else {  // the exponent's bias, by a product that also makes small ones normal
    bits = magnitude << 13;
    memcpy(&scaled, &bits, 4);
    scaled *= 0x1p112f;
    memcpy(&bits, &scaled, 4);
  }
  bits |= sign;
  memcpy(&scaled, &bits, 4);
  return scaled;
}

// Rounds to nearest, ties to even. Beyond 65504 it is infinite.
static inline uint16_t float_to_half(float x) {
  uint32_t bits;
  memcpy(&bits, &x, 4);
  uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
  bits &= 0x7fffffff;
  if (bits > 0x7f800000) return sign | 0x7e00;
  if (bits >= 0x477ff000) return sign | 0x7c00;
  if (bits < 0x38800000) {  // below the smallest normal one: adding 0.5 leaves the rounded bits at the bottom
    float small;
    memcpy(&small, &bits, 4);
    small += 0.5f;
    memcpy(&bits, &small, 4);
    return sign | (uint16_t)(bits - 0x3f000000);
  }
  return sign | (uint16_t)((bits + 0xfff + (bits >> 13 & 1) - 0x38000000) >> 13);
}

}  // namespace dragoman
