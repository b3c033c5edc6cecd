// AVX512 with VNNI: vpdpbusd multiplies 4 u8 by 4 s8 and adds them to 32 bits, exactly; vpdpwssd 2 s16 by 2 s16.
#pragma once
#define VECTOR_BYTES 64
#include <immintrin.h>

#include "compute/ahead.h"
#include "compute/lanes.h"
#include "compute/table.h"

namespace dragoman::ISA {

constexpr int columns = 64, group = 4, most_rows = 6, most_wide_rows = 6;
constexpr int float_columns = 64, most_float_rows = 6;
constexpr int most_nibble_rows = 6, nibble_offset = 0;
constexpr bool prepares = false;

constexpr int shift(Packed, int) { return 0; }
constexpr int prepared_bytes(Packed, int depth) { return depth; }
INLINE void prepare(Packed, int, const uint8_t*, int, uint8_t*) {}

// GCC 12 copies registers around the intrinsic.
template <Packed KIND>
INLINE void multiply_add(__m512i& total, __m512i x, __m512i weight) {
#ifdef EMULATED
  emulated_multiply_add<KIND == Packed::words>(total, x, weight);
#else
  if constexpr (KIND == Packed::words)
    asm("vpdpwssd %2, %1, %0" : "+v"(total) : "v"(x), "v"(weight));
  else
    asm("vpdpbusd %2, %1, %0" : "+v"(total) : "v"(x), "v"(weight));
#endif
}

// Of bytes that hold two: each as s8, 16 times as large.
INLINE __m512i high_nibbles(__m512i both) { return _mm512_and_si512(both, _mm512_set1_epi32((int32_t)0xf0f0f0f0)); }
INLINE __m512i low_nibbles(__m512i both) { return high_nibbles(_mm512_slli_epi32(both, 4)); }

template <int ROWS, Packed KIND>
static void tile(const uint8_t* x, size_t stride, const int8_t* panel, Ahead ahead, const int32_t* start, int depth,
                 int32_t* sums) {
  constexpr int vectors = columns / 16;
  __m512i total[ROWS][vectors];
  unrolled<ROWS>([&](auto r) INLINED {
    unrolled<vectors>([&](auto v) INLINED { total[r][v] = _mm512_loadu_si512(start + 16 * v); });
  });
  const auto add = [&](__m512i(&weight)[vectors], const uint8_t* from) INLINED {
#ifndef EMULATED  // Else GCC loads them again for each row.
    asm volatile("" : "+v"(weight[0]), "+v"(weight[1]), "+v"(weight[2]), "+v"(weight[3]));
#endif
    unrolled<ROWS>([&](auto r) INLINED {
      int32_t four;
      memcpy(&four, from + r * stride, 4);
      const __m512i spread = _mm512_set1_epi32(four);
      unrolled<vectors>([&](auto v) INLINED { multiply_add<KIND>(total[r][v], spread, weight[v]); });
    });
  };
  constexpr int numbers = KIND == Packed::nibbles ? 2 * group : group;
  for (int k = 0; k < depth; k += numbers, panel += columns * group, x += numbers) {
    __m512i weight[vectors];
    unrolled<vectors>([&](auto v) INLINED { weight[v] = _mm512_load_si512(panel + 64 * v); });
    ahead.ask<columns * group>();
    if constexpr (KIND == Packed::nibbles) {
      __m512i low[vectors];
      unrolled<vectors>([&](auto v) INLINED { low[v] = low_nibbles(weight[v]); });
      add(low, x);
      unrolled<vectors>([&](auto v) INLINED { low[v] = high_nibbles(_mm512_load_si512(panel + 64 * v)); });
      add(low, x + group);
    } else {
      add(weight, x);
    }
  }
  unrolled<ROWS>([&](auto r) INLINED {
    unrolled<vectors>([&](auto v) INLINED { _mm512_store_si512(sums + r * columns + 16 * v, total[r][v]); });
  });
}

INLINE uint32_t bits(Lanes<int32_t, native> mask) {
  return _mm512_movepi32_mask(__builtin_bit_cast(__m512i, mask.v));
}
INLINE void widen(const int8_t* p, Lanes<int32_t, native>& out) {
  out.v = __builtin_bit_cast(NativeInts, _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i*)p)));
}
INLINE void narrow(Lanes<int32_t, native> a, int16_t* p) {
  _mm256_storeu_si256((__m256i*)p, _mm512_cvtepi32_epi16(__builtin_bit_cast(__m512i, a.v)));
}
INLINE void narrow(Lanes<int32_t, native> a, uint8_t* p) {
  _mm_storeu_si128((__m128i*)p, _mm512_cvtepi32_epi8(__builtin_bit_cast(__m512i, a.v)));
}
INLINE void load_halves(const uint16_t* p, Lanes<float, native>& out) {
  out.v = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p));
}
INLINE void store_halves(Lanes<float, native> a, uint16_t* p) {
  _mm256_storeu_si256((__m256i*)p, _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT));
}

}  // namespace dragoman::ISA
