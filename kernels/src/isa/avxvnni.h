// AVX2 and AVX-VNNI: vpdpbusd and vpdpwssd as of AVX512, on 32 bytes.
#pragma once
#define VECTOR_BYTES 32
#include <immintrin.h>

#include "compute/ahead.h"
#include "compute/lanes.h"
#include "compute/table.h"

namespace dragoman::ISA {

constexpr int columns = 32, group = 4, most_rows = 3, most_wide_rows = 3;
constexpr int float_columns = 32, most_float_rows = 3;
constexpr bool prepares = false;
constexpr int most_nibble_rows = 0, nibble_offset = 0;

constexpr int shift(Packed, int) { return 0; }
constexpr int prepared_bytes(Packed, int depth) { return depth; }
INLINE void prepare(Packed, int, const uint8_t*, int, uint8_t*) {}

template <Packed KIND>
INLINE void multiply_add(__m256i& total, __m256i x, __m256i weight) {
#ifdef EMULATED
  emulated_multiply_add<KIND == Packed::words>(total, x, weight);
#else  // as assembly, so that compilers need not know it
  if constexpr (KIND == Packed::words)
    asm("%{vex%} vpdpwssd %2, %1, %0" : "+x"(total) : "x"(x), "x"(weight));
  else
    asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(total) : "x"(x), "x"(weight));
#endif
}

template <int ROWS, Packed KIND>
static void tile(const uint8_t* x, size_t stride, const int8_t* panel, Ahead ahead, const int32_t* start, int depth,
                 int32_t* sums) {
  constexpr int vectors = columns / 8;
  __m256i total[ROWS][vectors];
  unrolled<ROWS>([&](auto r) INLINED {
    unrolled<vectors>([&](auto v) INLINED { total[r][v] = _mm256_loadu_si256((const __m256i*)(start + 8 * v)); });
  });
  for (int k = 0; k < depth; k += group, panel += columns * group, x += group) {
    ahead.ask<columns * group>();
    __m256i spread[ROWS];
    unrolled<ROWS>([&](auto r) INLINED {
      int32_t four;
      memcpy(&four, x + r * stride, 4);
      spread[r] = _mm256_set1_epi32(four);
    });
    unrolled<vectors>([&](auto v) INLINED {
      const __m256i weight = _mm256_load_si256((const __m256i*)(panel + 32 * v));
      unrolled<ROWS>([&](auto r) INLINED { multiply_add<KIND>(total[r][v], spread[r], weight); });
    });
  }
  unrolled<ROWS>([&](auto r) INLINED {
    unrolled<vectors>([&](auto v) INLINED { _mm256_store_si256((__m256i*)(sums + r * columns + 8 * v), total[r][v]); });
  });
}

INLINE uint32_t bits(Lanes<int32_t, native> mask) { return _mm256_movemask_ps((__m256)mask.v); }
INLINE void widen(const int8_t* p, Lanes<int32_t, native>& out) {
  out.v = (NativeInts)_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i*)p));
}
INLINE void narrow(Lanes<int32_t, native> a, int16_t* p) {
  const __m256i x = (__m256i)a.v;
  _mm_storeu_si128((__m128i*)p, _mm_packs_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1)));
}
INLINE void narrow(Lanes<int32_t, native> a, uint8_t* p) {
  const __m256i x = (__m256i)a.v;
  const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
  _mm_storel_epi64((__m128i*)p, _mm_packus_epi16(words, words));
}
INLINE void load_halves(const uint16_t* p, Lanes<float, native>& out) {
  out.v = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p));
}
INLINE void store_halves(Lanes<float, native> a, uint16_t* p) {
  _mm_storeu_si128((__m128i*)p, _mm256_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT));
}

}  // namespace dragoman::ISA
