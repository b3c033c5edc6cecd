// Products of u8 and s8 by AVX2. vpmaddubsw multiplies u8 by s8 and adds two products in 16 bits, where sums of four u8
// times -128..127 fit as long as those add up to 256. So two of its results are added before they are widened: x comes
// in pairs of fours, 4 bytes that meet a step of the panel and 4 that meet the next one. The few fours that do not fit
// beside their neighbour come alone, at the end. Of a row that has many of those, no results are added.
//
// What a ReLU left, and other x whose zero is 0, is fed as it is. Else y = x - 128 is fed as |y| and, where it is
// negative, with the complement of the weight, ~w = -w - 1:
//   |y| * ~w = y * w - |y|
// so that the sum lacks |y| of every negative y, which no column changes and prepare() adds up once.
#pragma once
#include <immintrin.h>

#include "compute/ahead.h"
#include "compute/lanes.h"

namespace dragoman::ISA {

constexpr int most_together = 256;
constexpr int most_alone = 32;  // numbers of a row for each four that comes alone

// Of 4 numbers: their sizes and, where y is fed, their signs (0 or 255), in the bytes of a word.
template <bool SIGNED>
struct Four {
  uint32_t sizes, signs;

  static constexpr int bytes = SIGNED ? 8 : 4;

  MEMBER static Four of(const uint8_t* x) {
    Four four{0, 0};
    for (int i = 0; i < 4; i++) {
      const int y = SIGNED ? x[i] - 128 : x[i];
      four.sizes |= (uint32_t)(y < 0 ? -y : y) << 8 * i;
      four.signs |= y < 0 ? 255u << 8 * i : 0;
    }
    return four;
  }
  MEMBER Four half() const { return {sizes >> 1 & 0x7f7f7f7f, signs}; }
  MEMBER Four without(Four other) const { return {sizes - other.sizes, signs}; }
  MEMBER uint8_t* write(uint8_t* out) const {
    memcpy(out, &sizes, 4);
    if (SIGNED) memcpy(out + 4, &signs, 4);
    return out + bytes;
  }
  // The sizes of the numbers that meet in a sum of 16 bits: of the first two, and of the others behind them.
  MEMBER uint32_t sums() const { return (sizes & 0x00ff00ff) + (sizes >> 8 & 0x00ff00ff); }
};

INLINE bool fit(uint32_t sums) { return (sums & 65535) <= most_together && sums >> 16 <= most_together; }

// What a prepared row begins with. Pairs of fours follow, and then those that come alone, each behind the place in the
// panel that it meets.
struct alignas(16) PreparedRow {
  int32_t lacking, alone;
  bool is_signed, paired;
};

// Of the worst row: no four of unsigned numbers fits, so that all but one half of each pair come alone.
constexpr int most_prepared_bytes(int depth) { return (int)sizeof(PreparedRow) + 4 * depth + 16; }

template <bool SIGNED>
struct Preparing {
  bool paired;
  uint8_t *pairs, *alone;
  int32_t count = 0;  // of those that come alone

  MEMBER void add_alone(Four<SIGNED> four, int k) {
    const int32_t place = k * columns;
    memcpy(alone, &place, 4);
    alone = four.write(alone + 4);
    count++;
  }
  // One that does not fit by itself comes in halves, which do.
  MEMBER void add_last(Four<SIGNED> four, int k) {
    if (!fit(four.sums())) {
      add_alone(four.half(), k);
      four = four.without(four.half());
    }
    add_alone(four, k);
  }
  MEMBER void add_pair(Four<SIGNED> first, Four<SIGNED> second, int k) {
    if (paired && !fit(first.sums() + second.sums())) {
      add_last(second, k + group);
      second = {0, 0};
    }
    if (!fit(first.sums())) {
      add_alone(first.half(), k);
      first = first.without(first.half());
    }
    pairs = second.write(first.write(pairs));
  }
  // 16 numbers, if all of them fit: whether they do.
  MEMBER bool add_sixteen(__m128i sizes, __m128i signs) {
    const __m128i sums = _mm_maddubs_epi16(sizes, _mm_set1_epi8(1));
    const __m128i both = _mm_add_epi16(sums, _mm_shuffle_epi32(sums, 0xb1));
    if (paired && _mm_movemask_epi8(_mm_cmpgt_epi16(both, _mm_set1_epi16(most_together)))) return false;
    if (SIGNED) {
      _mm_storeu_si128((__m128i*)pairs, _mm_unpacklo_epi32(sizes, signs));
      _mm_storeu_si128((__m128i*)(pairs + 16), _mm_unpackhi_epi32(sizes, signs));
    } else {
      _mm_storeu_si128((__m128i*)pairs, sizes);
    }
    pairs += 4 * Four<SIGNED>::bytes;
    return true;
  }
};

// Of what is not signed a four may not even fit by itself: such rows are always `paired`.
template <bool SIGNED>
static void prepare_bytes(const uint8_t* x, int depth, uint8_t* out, bool paired = true) {
  typedef Four<SIGNED> Numbers;
  uint8_t* pairs = out + sizeof(PreparedRow);
  Preparing<SIGNED> row{paired, pairs, pairs + depth / (2 * group) * 2 * Numbers::bytes};
  __m128i lacking = _mm_setzero_si128();
  int k = 0;
  for (; k + 16 <= depth; k += 16) {
    __m128i sizes = _mm_loadu_si128((const __m128i*)(x + k)), signs = _mm_setzero_si128();
    if (SIGNED) {
      const __m128i y = _mm_xor_si128(sizes, _mm_set1_epi8(-128));
      sizes = _mm_abs_epi8(y);
      signs = _mm_cmpgt_epi8(_mm_setzero_si128(), y);
      lacking = _mm_add_epi64(lacking, _mm_sad_epu8(_mm_and_si128(sizes, signs), _mm_setzero_si128()));
    }
    if (row.add_sixteen(sizes, signs)) continue;
    for (int i = k; i < k + 16; i += 2 * group) row.add_pair(Numbers::of(x + i), Numbers::of(x + i + group), i);
  }
  int32_t in_all = _mm_cvtsi128_si32(lacking) + _mm_extract_epi32(lacking, 2);
  for (int i = k; SIGNED && i < depth; i++) in_all += x[i] < 128 ? 128 - x[i] : 0;
  for (; k + 2 * group <= depth; k += 2 * group) row.add_pair(Numbers::of(x + k), Numbers::of(x + k + group), k);
  if (k < depth) row.add_last(Numbers::of(x + k), k);
  if (SIGNED && paired && row.count > depth / most_alone) return prepare_bytes<SIGNED>(x, depth, out, false);
  const PreparedRow facts{in_all, row.count, SIGNED, paired};
  memcpy(out, &facts, sizeof facts);
}

// 4 bytes of x, which meet each column.
INLINE __m256i spread(const uint8_t* x) {
  int32_t four;
  memcpy(&four, x, 4);
  return _mm256_set1_epi32(four);
}

// A four, beside every column.
template <bool SIGNED>
struct SpreadFour {
  __m256i sizes, signs;

  MEMBER explicit SpreadFour(const uint8_t* four)
      : sizes(spread(four)), signs(SIGNED ? spread(four + 4) : _mm256_setzero_si256()) {}

  // Sums of two products. The weights, or their complements, are read anew for each row: in registers they would take
  // those of the sums.
  MEMBER __m256i times(const int8_t* weights) const {
    __m256i by = *(const __m256i*)weights;
    if constexpr (SIGNED) asm("vpxor %2, %1, %0" : "=x"(by) : "x"(signs), "m"(*(const __m256i*)weights));
    return _mm256_maddubs_epi16(sizes, by);
  }
};

INLINE __m256i added(__m256i total, __m256i pairs) {
  return _mm256_add_epi32(total, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

template <int ROWS, bool SIGNED, bool PAIRED>
static void tile_of_bytes(const uint8_t* x, size_t stride, const int8_t* panel, Ahead ahead, const int32_t* start,
                          int depth, int32_t* sums) {
  typedef SpreadFour<SIGNED> Spread;
  constexpr int vectors = columns / 8, four = Four<SIGNED>::bytes, step = columns * group;
  __m256i total[ROWS][vectors];
  int alone[ROWS];
  unrolled<ROWS>([&](auto r) INLINED {
    PreparedRow facts;
    memcpy(&facts, x + r * stride, sizeof facts);
    alone[r] = facts.alone;
    unrolled<vectors>([&](auto v) INLINED {
      total[r][v] = _mm256_add_epi32(_mm256_loadu_si256((const __m256i*)(start + 8 * v)),
                                     _mm256_set1_epi32(facts.lacking));
    });
  });
  const int8_t* weights = panel;
  x += sizeof(PreparedRow);
  for (int k = 0; k + 2 * group <= depth; k += 2 * group, weights += 2 * step, x += 2 * four) {
    ahead.ask<step>();
    ahead.ask<step>();
    unrolled<ROWS>([&](auto r) INLINED {
      const Spread first(x + r * stride), second(x + r * stride + four);
      unrolled<vectors>([&](auto v) INLINED {
        const __m256i two = first.times(weights + 32 * v), others = second.times(weights + step + 32 * v);
        total[r][v] = PAIRED ? added(total[r][v], _mm256_add_epi16(two, others))
                             : added(added(total[r][v], two), others);
      });
    });
  }
  unrolled<ROWS>([&](auto r) INLINED {
    const uint8_t* at = x + r * stride;
    for (int i = 0; i < alone[r]; i++, at += 4 + four) {
      int32_t place;
      memcpy(&place, at, 4);
      const Spread one(at + 4);
      unrolled<vectors>([&](auto v) INLINED { total[r][v] = added(total[r][v], one.times(panel + place + 32 * v)); });
    }
    unrolled<vectors>([&](auto v) INLINED { _mm256_store_si256((__m256i*)(sums + r * columns + 8 * v), total[r][v]); });
  });
}

}  // namespace dragoman::ISA
