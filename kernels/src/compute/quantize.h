// fp32 rows to u8, or to s16.
#pragma once
#include "compute/functions.h"
#include "compute/table.h"

namespace dragoman::ISA {

struct RowFacts {
  float largest;  // absolute value
  bool finite;
};

// Absolute values are compared as whole numbers, whose order is theirs; beyond are infinity and what is no number.
static RowFacts row_facts(const float* x, int n) {
  Ints most = all((int32_t)0);
  for (int i = 0; i < n; i += 16) most = larger(as_ints(absolute(load_up_to(x + i, n - i))), most);
  const int32_t bits = largest(most);
  float value;
  memcpy(&value, &bits, 4);
  return {value, bits < 0x7f800000};
}

// The scale of a row, from its largest absolute value. A row of zeros gets a tiny one.
INLINE float row_scale(float largest, int zero_point) {
  return (largest > 1e-30f ? largest : 1e-30f) / (zero_point == 0 ? 255.f : 127.f);
}

// Whole numbers round(x / scale) + zero_point, kept within 0..most. With COUNTS, how many were not is added to
// `saturated`.
template <bool COUNTS>
INLINE Ints quantized(Floats x, Floats inverse, float zero_point, float most, Ints& saturated) {
  const Floats v = x * inverse, low = all(-zero_point), high = all(most - zero_point);
  if constexpr (COUNTS)
    saturated = saturated + ((v > high + all(0.5f)) & all((int32_t)1)) + ((v < low - all(0.5f)) & all((int32_t)1));
  const Floats kept = smaller(larger(v, low), high);
  return as_ints(kept + all(whole)) - as_ints(all(whole)) + all((int32_t)zero_point);
}

// The first n of the lowest bytes.
INLINE void store_bytes(uint8_t* p, Ints a, int n) {
  if (n >= 16) return narrow_all(a, p);
  uint8_t bytes[16];
  narrow_all(a, bytes);
  memcpy(p, bytes, n);
}

INLINE int64_t total(Ints a) {
  int32_t x[16];
  store(x, a);
  int64_t all = 0;
  for (int32_t lane : x) all += lane;
  return all;
}

template <bool COUNTS>
static int64_t quantize_into(const float* x, int n, Floats inverse, float zero_point, uint8_t* out) {
  Ints saturated = all((int32_t)0);
  for (int i = 0; i < n; i += 16)
    store_bytes(out + i, quantized<COUNTS>(load_up_to(x + i, n - i), inverse, zero_point, 255.f, saturated), n - i);
  return COUNTS ? total(saturated) : 0;
}

// One row to `depth` bytes, of which those beyond n are zero. Returns how many were beyond a scale that is `fixed`; one
// of the row itself reaches all.
static int64_t quantize_row(const float* x, int n, float scale, bool fixed, int zero_point, int depth, uint8_t* out) {
  const Floats inverse = all(1.f / scale);
  memset(out + n, 0, depth - n);
  return fixed ? quantize_into<true>(x, n, inverse, (float)zero_point, out)
               : quantize_into<false>(x, n, inverse, (float)zero_point, out);
}

// The same to two digits, `high` and `low`. 2^22 is the most that the rounding takes, and 65535 is less.
static int64_t quantize_row_finely(const float* x, int n, float scale, int zero_point, int depth, uint8_t* high,
                                   uint8_t* low) {
  const Floats inverse = all(257.f / scale);
  Ints saturated = all((int32_t)0);
  for (int i = 0; i < n; i += 16) {
    const Ints q = quantized<true>(load_up_to(x + i, n - i), inverse, 257.f * (float)zero_point, 65535.f, saturated);
    int32_t digits[16];
    store(digits, q);
    for (int j = 0; j < 16 && i + j < n; j++) {
      high[i + j] = (uint8_t)(digits[j] >> 8);
      low[i + j] = (uint8_t)digits[j];
    }
  }
  memset(high + n, 0, depth - n);
  memset(low + n, 0, depth - n);
  return total(saturated);
}

// By what a row is multiplied to become s16: so that its norm is at most `largest_norm`, and no number beyond 32767.
// Two such rows have a product, and any of its parts, of at most 2^31 - 1, by the Cauchy-Schwarz inequality.
static float word_factor(const float* x, int n, float largest) {
  const float most = largest > 1e-30f ? largest : 1e-30f;
  Floats squares = all(0.f);
  for (int i = 0; i < n; i += 16) {
    const Floats v = load_up_to(x + i, n - i) * all(1.f / most);
    squares = squares + v * v;
  }
  // Rounding moves each number by half of one at most; one more is for the sum of squares.
  const float room = largest_norm - 1.f - 0.5f * __builtin_sqrtf((float)n), norm = __builtin_sqrtf(sum(squares));
  return (norm * 32767.f > room ? room / norm : 32767.f) / most;
}

// One row to s16, filled up with zeros to `depth` bytes.
static void quantize_words(const float* x, int n, float factor, int depth, int16_t* out) {
  Ints saturated = all((int32_t)0);
  for (int i = 0; i < n; i += 16) {
    const Ints q = quantized<false>(load_up_to(x + i, n - i), all(factor), 32767.f, 65534.f, saturated) - all(32767);
    int16_t words[16];
    narrow_all(q, n - i >= 16 ? out + i : words);
    if (n - i < 16) memcpy(out + i, words, (n - i) * sizeof(int16_t));
  }
  memset(out + n, 0, depth - n * sizeof(int16_t));
}

}  // namespace dragoman::ISA
