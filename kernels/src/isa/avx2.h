// AVX2, FMA and F16C. What becomes of u8 and s8 is told in avx2_bytes.h.
//
// Weights that are multiples of 16 are stored as a sixteenth and 8 more, w' = 0..15, and multiply y itself: eight sums
// of two, 8 * 2 * 15 * -128 = -30720, fit 16 bits, so that few of them are widened. What 8 more make is the row's alone:
//   16 * (w' - 8) * y = 16 * (w' * y) - 128 * y
#pragma once
#define VECTOR_BYTES 32
#include <immintrin.h>

#include "compute/ahead.h"
#include "compute/lanes.h"
#include "compute/table.h"

namespace dragoman::ISA {

constexpr int columns = 32, group = 4, most_rows = 3, most_wide_rows = 3;
constexpr int float_columns = 32, most_float_rows = 3;
constexpr int most_nibble_rows = 5, nibble_offset = 8;
constexpr bool prepares = true;

constexpr int shift(Packed kind, int zero_point) { return kind == Packed::nibbles || zero_point ? 128 : 0; }

}  // namespace dragoman::ISA

#include "isa/avx2_bytes.h"

namespace dragoman::ISA {

// Of nibbles: y = x - 128, then -128 times the sum of y.
constexpr int prepared_bytes(Packed kind, int depth) {
  return ((kind == Packed::nibbles ? depth + 4 : most_prepared_bytes(depth)) + 63) / 64 * 64;
}

static void prepare_for_nibbles(const uint8_t* x, int depth, uint8_t* out) {
  int32_t sum = 0;
  for (int k = 0; k < depth; k++) {
    out[k] = x[k] ^ 128;
    sum += x[k] - 128;
  }
  const int32_t surplus = -128 * sum;
  memcpy(out + depth, &surplus, 4);
}

static void prepare(Packed kind, int shift, const uint8_t* x, int depth, uint8_t* out) {
  if (kind == Packed::nibbles) return prepare_for_nibbles(x, depth, out);
  if (shift) return prepare_bytes<true>(x, depth, out);
  prepare_bytes<false>(x, depth, out);
}

// vpmaddwd multiplies 2 s16 by 2 s16 and adds them to 32 bits: the other two instructions of a step run beside it.
template <int ROWS>
static void wide_tile(const uint8_t* x, size_t stride, const int8_t* panel, Ahead ahead, int depth, int32_t* sums) {
  constexpr int vectors = columns / 8;
  __m256i total[ROWS][vectors];
  unrolled<ROWS>([&](auto r) INLINED {
    unrolled<vectors>([&](auto v) INLINED { total[r][v] = _mm256_setzero_si256(); });
  });
  for (int k = 0; k < depth; k += group, panel += columns * group, x += group) {
    ahead.ask<columns * group>();
    __m256i two[ROWS];
    unrolled<ROWS>([&](auto r) INLINED { two[r] = spread(x + r * stride); });
    unrolled<vectors>([&](auto v) INLINED {
      const __m256i weight = _mm256_load_si256((const __m256i*)(panel + 32 * v));
      unrolled<ROWS>([&](auto r) INLINED {
        total[r][v] = _mm256_add_epi32(total[r][v], _mm256_madd_epi16(two[r], weight));
      });
    });
  }
  unrolled<ROWS>([&](auto r) INLINED {
    unrolled<vectors>([&](auto v) INLINED { _mm256_store_si256((__m256i*)(sums + r * columns + 8 * v), total[r][v]); });
  });
}

// 16 columns of a panel, from `at` on.
template <int ROWS>
INLINE void add_nibbles(const uint8_t* x, size_t stride, const int8_t* panel, Ahead ahead, int depth, int at,
                        int32_t* sums) {
  constexpr int step = 2 * group, fitting = 4 * step;
  const __m256i low = _mm256_set1_epi8(15);
  for (int first = 0; first < depth; first += fitting) {
    const int end = first + fitting < depth ? first + fitting : depth;
    __m256i part[ROWS][2];
    unrolled<ROWS>([&](auto r) INLINED { part[r][0] = part[r][1] = _mm256_setzero_si256(); });
    const auto add = [&](__m256i a, __m256i b, const uint8_t* from) INLINED {
      unrolled<ROWS>([&](auto r) INLINED {
        const __m256i y = spread(from + r * stride);
        part[r][0] = _mm256_add_epi16(part[r][0], _mm256_maddubs_epi16(a, y));
        part[r][1] = _mm256_add_epi16(part[r][1], _mm256_maddubs_epi16(b, y));
        asm("" : "+x"(part[r][0]), "+x"(part[r][1]));  // Else GCC adds up products first, and keeps parts in memory.
      });
    };
    for (int k = first; k < end; k += step, panel += columns * group, x += step) {
      ahead.ask<columns * group>();
      const __m256i a = _mm256_load_si256((const __m256i*)(panel + at * group));
      const __m256i b = _mm256_load_si256((const __m256i*)(panel + at * group + 32));
      add(_mm256_and_si256(a, low), _mm256_and_si256(b, low), x);
      add(_mm256_and_si256(_mm256_srli_epi16(a, 4), low), _mm256_and_si256(_mm256_srli_epi16(b, 4), low), x + group);
    }
    unrolled<ROWS>([&](auto r) INLINED {
      unrolled<2>([&](auto v) INLINED {
        __m256i* sum = (__m256i*)(sums + r * columns + at + 8 * v);
        _mm256_store_si256(sum, _mm256_add_epi32(*sum, _mm256_madd_epi16(part[r][v], _mm256_set1_epi16(16))));
      });
    });
  }
}

template <int ROWS>
static void tile_of_nibbles(const uint8_t* x, size_t stride, const int8_t* panel, Ahead ahead, const int32_t* start,
                            int depth, int32_t* sums) {
  for (int r = 0; r < ROWS; r++) {
    const __m256i surplus = spread(x + r * stride + depth);
    for (int c = 0; c < columns; c += 8) {
      const __m256i first = _mm256_add_epi32(_mm256_loadu_si256((const __m256i*)(start + c)), surplus);
      _mm256_store_si256((__m256i*)(sums + r * columns + c), first);
    }
  }
  add_nibbles<ROWS>(x, stride, panel, ahead, depth, 0, sums);
  add_nibbles<ROWS>(x, stride, panel, {}, depth, 16, sums);
}

template <int ROWS, Packed KIND>
static void tile(const uint8_t* x, size_t stride, const int8_t* panel, Ahead ahead, const int32_t* start, int depth,
                 int32_t* sums) {
  if constexpr (KIND == Packed::words) return wide_tile<ROWS>(x, stride, panel, ahead, depth, sums);
  if constexpr (KIND == Packed::nibbles) return tile_of_nibbles<ROWS>(x, stride, panel, ahead, start, depth, sums);
  bool is_signed = false, paired = true;  // all rows, or none, are signed
  for (int r = 0; r < ROWS; r++) {
    PreparedRow facts;
    memcpy(&facts, x + r * stride, sizeof facts);
    is_signed = facts.is_signed;
    paired &= facts.paired;
  }
  if (!is_signed) return tile_of_bytes<ROWS, false, true>(x, stride, panel, ahead, start, depth, sums);
  if (paired) return tile_of_bytes<ROWS, true, true>(x, stride, panel, ahead, start, depth, sums);
  tile_of_bytes<ROWS, true, false>(x, stride, panel, ahead, start, depth, sums);
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
