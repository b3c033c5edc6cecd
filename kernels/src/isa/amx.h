// AMX beside AVX512 with VNNI: tdpbusd multiplies a matrix of 16 rows of 64 u8 by one of 64 rows of 16 s8, and adds the
// products to 16 x 16 sums of 32 bits, exactly; tdpbssd, tdpbsud and tdpbuud do so with other signs. Matrices are in 8
// registers of the thread, whose shapes are loaded first (Intel 64 and IA-32 Architectures Optimization Reference
// Manual, chapter 20).
//
// Of s16 there are two bytes, w = 256 high + low, of which low is not negative. So a product is four products of bytes,
// and their sums come out right, since the whole sum fits 32 bits. Weights of s16 are packed as they are split: of four
// numbers the high bytes, then the low ones.
#pragma once
#define MATRICES
#include "isa/avx512vnni.h"

namespace dragoman::ISA {

constexpr int matrix_rows = 16, matrix_depth = 64, least_spread_rows = 7;

enum class Signs { us, uu, ss, su };  // whether x, and the weight, are signed

#ifdef EMULATED
template <int TO>
INLINE void load_matrix(const void* from, size_t stride) {
  emulated_load_matrix(TO, from, stride);
}
template <int FROM>
INLINE void store_matrix(void* to, size_t stride) {
  emulated_store_matrix(FROM, to, stride);
}
template <int TOTAL, int X, int WEIGHT, Signs SIGNS = Signs::us>
INLINE void multiply_matrices() {
  constexpr bool x_signed = SIGNS == Signs::ss || SIGNS == Signs::su;
  emulated_multiply_matrices(TOTAL, X, x_signed, WEIGHT, SIGNS == Signs::ss || SIGNS == Signs::us);
}
template <int OF>
INLINE void clear_matrix() {
  emulated_clear_matrix(OF);
}
INLINE void load_shapes(const void* shapes) { emulated_load_shapes(shapes); }
INLINE void release_matrices() {}
#else  // as assembly: GCC 12 does not know that its intrinsics read memory
template <int TO>
INLINE void load_matrix(const void* from, size_t stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(TO) : "memory");
}
template <int FROM>
INLINE void store_matrix(void* to, size_t stride) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(stride), "i"(FROM) : "memory");
}
template <int TOTAL, int X, int WEIGHT, Signs SIGNS = Signs::us>
INLINE void multiply_matrices() {
#define MULTIPLY(signs)                  \
  if constexpr (SIGNS == Signs::signs) \
    asm volatile("tdpb" #signs "d %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(TOTAL), "i"(X), "i"(WEIGHT));
  MULTIPLY(us)
  MULTIPLY(uu)
  MULTIPLY(ss)
  MULTIPLY(su)
#undef MULTIPLY
}
template <int OF>
INLINE void clear_matrix() {
  asm volatile("tilezero %%tmm%c0" ::"i"(OF));
}
INLINE void load_shapes(const void* shapes) { asm volatile("ldtilecfg %0" ::"m"(*(const char(*)[64])shapes)); }
INLINE void release_matrices() { asm volatile("tilerelease"); }
#endif

// Registers 0 to 3 are for sums, 4 and 5 for x, 6 and 7 for the weight. rows: of x and of the sums, 1..16. Whoever
// calls it releases them when all is done: a thread that has none is switched faster.
INLINE void shape_matrices(int rows) {
  struct alignas(64) {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
  } shapes{};
  shapes.palette = 1;
  for (int i = 0; i < 8; i++) {
    shapes.row_bytes[i] = 64;
    shapes.rows[i] = (uint8_t)(i < 6 ? rows : 16);
  }
  load_shapes(&shapes);
}

// Numbers of a panel that share bytes, as a panel of bytes: its steps from one on to another. Asks for the next panel,
// so many bytes behind it: those that go through registers wait for memory, unlike matrices.
INLINE void spread_nibbles(const int8_t* panel, size_t panel_bytes, int first, int last, int8_t* out) {
  constexpr int step = columns * group;
  for (int i = first; i < last; i++)
    for (int c = 0; c < step; c += 64) {
      __builtin_prefetch(panel + panel_bytes + i * step + c);
      const __m512i both = _mm512_load_si512(panel + i * step + c);
      const __m512i low = low_nibbles(both), high = high_nibbles(both);
      _mm512_store_si512(out + 2 * i * step + c, low);
      _mm512_store_si512(out + (2 * i + 1) * step + c, high);
    }
}

// The sums of some rows of x in a panel: [rows][columns]. x is zeros from `depth` on, up to a multiple of 64; what it
// meets there may be anything. meanwhile(part, parts): what else is done, a part behind each step.
template <class Meanwhile>
INLINE void multiply_panel(const uint8_t* x, size_t stride, const int8_t* panel, const int32_t* start, int depth,
                           int32_t* sums, Meanwhile meanwhile) {
  constexpr size_t step = columns * group, row = columns * sizeof(int32_t);
  load_matrix<0>(start, 0);
  load_matrix<1>(start + 16, 0);
  load_matrix<2>(start + 32, 0);
  load_matrix<3>(start + 48, 0);
  const int steps = (depth + matrix_depth - 1) / matrix_depth;
  for (int i = 0; i < steps; i++, x += matrix_depth, panel += matrix_depth * columns) {
    load_matrix<4>(x, stride);
    load_matrix<6>(panel, step);
    multiply_matrices<0, 4, 6>();
    load_matrix<7>(panel + 64, step);
    multiply_matrices<1, 4, 7>();
    load_matrix<6>(panel + 128, step);
    multiply_matrices<2, 4, 6>();
    load_matrix<7>(panel + 192, step);
    multiply_matrices<3, 4, 7>();
    meanwhile(i, steps);
  }
  store_matrix<0>(sums, row);
  store_matrix<1>(sums + 16, row);
  store_matrix<2>(sums + 32, row);
  store_matrix<3>(sums + 48, row);
}

// The same of twice as many rows, the second half of them from `other` on: half of a panel at a time.
template <class Meanwhile>
INLINE void multiply_panel(const uint8_t* x, const uint8_t* other, size_t stride, const int8_t* panel,
                           const int32_t* start, int depth, int32_t* sums, int32_t* other_sums, Meanwhile meanwhile) {
  constexpr size_t step = columns * group, row = columns * sizeof(int32_t);
  const int steps = (depth + matrix_depth - 1) / matrix_depth;
  for (int half = 0; half < 2; half++, start += 32, panel += 32 * group, sums += 32, other_sums += 32) {
    load_matrix<0>(start, 0);
    load_matrix<1>(start + 16, 0);
    load_matrix<2>(start, 0);
    load_matrix<3>(start + 16, 0);
    for (int i = 0; i < steps; i++) {
      const int8_t* weight = panel + (size_t)i * matrix_depth * columns;
      load_matrix<4>(x + i * matrix_depth, stride);
      load_matrix<6>(weight, step);
      multiply_matrices<0, 4, 6>();
      load_matrix<7>(weight + 64, step);
      multiply_matrices<1, 4, 7>();
      load_matrix<5>(other + i * matrix_depth, stride);
      multiply_matrices<2, 5, 6>();
      multiply_matrices<3, 5, 7>();
      meanwhile(half * steps + i, 2 * steps);
    }
    store_matrix<0>(sums, row);
    store_matrix<1>(sums + 16, row);
    store_matrix<2>(other_sums, row);
    store_matrix<3>(other_sums + 16, row);
  }
}

// A row of s16 to high bytes and, `half` behind them, low ones. Both are filled up with zeros.
INLINE void split_words(const int16_t* x, int count, int half, uint8_t* out) {
  for (int k = 0; k < count; k++) {
    out[k] = (uint8_t)(x[k] >> 8);
    out[half + k] = (uint8_t)x[k];
  }
  memset(out + count, 0, half - count);
  memset(out + half + count, 0, half - count);
}

// The sums of some rows of s16 in a panel, by 16 columns at a time. x: as `split_words` leaves it; depth: of its bytes.
template <class Meanwhile>
INLINE void multiply_panel_of_words(int rows, const uint8_t* x, size_t stride, const int8_t* panel, int depth,
                                    int32_t* sums, Meanwhile meanwhile) {
  constexpr size_t step = 2 * columns * group;  // bytes of a group's high and low halves
  alignas(64) int32_t parts[4][matrix_rows * 16];
  for (int c = 0; c < columns; c += 16) {
    unrolled<4>([&](auto i) INLINED { clear_matrix<i>(); });
    const int8_t* weight = panel + c * group;
    const int steps = (depth / 2 + matrix_depth - 1) / matrix_depth;
    for (int i = 0; i < steps; i++, weight += matrix_depth / group * step) {
      const int k = i * matrix_depth;
      load_matrix<4>(x + k, stride);
      load_matrix<6>(weight, step);
      multiply_matrices<0, 4, 6, Signs::ss>();
      load_matrix<7>(weight + columns * group, step);
      multiply_matrices<1, 4, 7, Signs::su>();
      load_matrix<5>(x + stride / 2 + k, stride);
      multiply_matrices<2, 5, 6, Signs::us>();
      multiply_matrices<3, 5, 7, Signs::uu>();
      meanwhile(c / 16 * steps + i, columns / 16 * steps);
    }
    unrolled<4>([&](auto i) INLINED { store_matrix<i>(parts[i], 64); });
    for (int r = 0; r < rows; r++)
      for (int i = 0; i < 16; i++) {
        const int at = 16 * r + i;
        const uint32_t high = parts[0][at], middle = (uint32_t)parts[1][at] + (uint32_t)parts[2][at];
        sums[r * columns + c + i] = (int32_t)((high << 16) + (middle << 8) + (uint32_t)parts[3][at]);
      }
  }
}

}  // namespace dragoman::ISA
