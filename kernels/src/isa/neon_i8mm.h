// NEON with I8MM: usdot multiplies 4 u8 by 4 s8 and adds them to 32 bits, exactly.
#pragma once
#define VECTOR_BYTES 16
#include <arm_neon.h>

#include "compute/ahead.h"
#include "compute/lanes.h"
#include "compute/table.h"

namespace dragoman::ISA {

constexpr bool prepares = false;
constexpr int most_nibble_rows = 0, nibble_offset = 0;

constexpr int shift(Packed, int) { return 0; }
constexpr int prepared_bytes(Packed, int depth) { return depth; }
INLINE void prepare(Packed, int, const uint8_t*, int, uint8_t*) {}

typedef uint8x16_t Bytes16;
INLINE int32x4_t multiply_add(int32x4_t total, Bytes16 x, int8x16_t weight) { return vusdotq_s32(total, x, weight); }

}  // namespace dragoman::ISA

#include "isa/neon.h"
