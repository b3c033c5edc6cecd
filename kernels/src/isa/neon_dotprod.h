// NEON with dot products: sdot multiplies 4 s8 by 4 s8, so x is wanted as x - 128: its highest bit turned.
#pragma once
#define VECTOR_BYTES 16
#include <arm_neon.h>

#include "compute/ahead.h"
#include "compute/lanes.h"
#include "compute/table.h"

namespace dragoman::ISA {

constexpr bool prepares = true;
constexpr int most_nibble_rows = 0, nibble_offset = 0;

constexpr int shift(Packed, int) { return 128; }
constexpr int prepared_bytes(Packed, int depth) { return (depth + 63) / 64 * 64; }
static void prepare(Packed, int, const uint8_t* x, int depth, uint8_t* out) {
  for (int k = 0; k < depth; k++) out[k] = x[k] ^ 0x80;
}

typedef int8x16_t Bytes16;
INLINE int32x4_t multiply_add(int32x4_t total, Bytes16 x, int8x16_t weight) { return vdotq_s32(total, x, weight); }

}  // namespace dragoman::ISA

#include "isa/neon.h"
