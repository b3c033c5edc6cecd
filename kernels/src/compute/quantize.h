// fp32 rows to u8.
#pragma once
#include "compute/functions.h"
#include "compute/table.h"

namespace dragoman::ISA {

struct RowFacts {
  float largest;  // absolute value
  bool finite;
};

static RowFacts row_facts(const float* x, int n) {
  Floats most = all(0.f), zeros = all(0.f);
  for (int i = 0; i < n; i += 16) {
    const Floats v = load_up_to(x + i, n - i);
    most = larger(absolute(v), most);
    zeros = zeros + v * all(0.f);  // not a number where v is none, or infinite
  }
  return {largest(most), sum(zeros) == 0.f};
}

// The scale of a row, from its largest absolute value. A row of zeros gets a tiny one.
INLINE float row_scale(float largest, int zero_point) {
  return (largest > 1e-30f ? largest : 1e-30f) / (zero_point == 0 ? 255.f : 127.f);
}

// Whole numbers round(x / scale) + zero_point, kept within 0..most. How many were not is added to `saturated`.
INLINE Ints quantized(Floats x, Floats inverse, float zero_point, float most, Ints& saturated) {
  const Floats v = x * inverse, low = all(-zero_point), high = all(most - zero_point);
  saturated = saturated + ((v > high + all(0.5f)) & all((int32_t)1)) + ((v < low - all(0.5f)) & all((int32_t)1));
  const Floats kept = smaller(larger(v, low), high);
  return as_ints(kept + all(whole)) - as_ints(all(whole)) + all((int32_t)zero_point);
}

// The lowest bytes. A loop over memory: compilers make packing instructions of it.
INLINE void to_bytes(const int32_t* x, int n, uint8_t* out) {
  for (int i = 0; i < n; i++) out[i] = (uint8_t)x[i];
}

INLINE int64_t total(Ints a) {
  int32_t x[16];
  store(x, a);
  int64_t all = 0;
  for (int32_t lane : x) all += lane;
  return all;
}

constexpr int at_once = 256;

// One row to `depth` bytes, of which those beyond n are zero.
static int64_t quantize_row(const float* x, int n, float scale, int zero_point, int depth, uint8_t* out) {
  alignas(64) int32_t whole_numbers[at_once];
  const Floats inverse = all(1.f / scale);
  Ints saturated = all((int32_t)0);
  for (int first = 0; first < n; first += at_once) {
    const int count = n - first < at_once ? n - first : at_once;
    for (int i = 0; i < count; i += 16)
      store(whole_numbers + i,
            quantized(load_up_to(x + first + i, count - i), inverse, (float)zero_point, 255.f, saturated));
    to_bytes(whole_numbers, count, out + first);
  }
  memset(out + n, 0, depth - n);
  return total(saturated);
}

// The same to two digits, `high` and `low`. 2^22 is the most that the rounding takes, and 65535 is less.
static int64_t quantize_row_finely(const float* x, int n, float scale, int zero_point, int depth, uint8_t* high,
                                   uint8_t* low) {
  const Floats inverse = all(257.f / scale);
  Ints saturated = all((int32_t)0);
  for (int i = 0; i < n; i += 16) {
    const Ints q = quantized(load_up_to(x + i, n - i), inverse, 257.f * (float)zero_point, 65535.f, saturated);
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

}  // namespace dragoman::ISA
