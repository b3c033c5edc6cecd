// Intel's header, and in plain C++ what isa/amx.h, isa/avx512vnni.h and isa/avxvnni.h use of AMX, AVX512 and VNNI, as
// the manual says it (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, LDTILECFG, TILELOADD,
// TILESTORED, TILEZERO, TDPBUSD, VPDPBUSD and VPDPWSSD). Here AVX512 is off.
#pragma once
#include_next <immintrin.h>

#include <cstdint>
#include <cstring>

template <class Vector>
inline void emulated_wide_multiply_add(Vector& total, Vector x, Vector weight) {
  int16_t a[sizeof(Vector) / 2], b[sizeof(Vector) / 2];
  int32_t sums[sizeof(Vector) / 4];
  memcpy(a, &x, sizeof a);
  memcpy(b, &weight, sizeof b);
  memcpy(sums, &total, sizeof sums);
  for (size_t i = 0; i < sizeof(Vector) / 2; i++) sums[i / 2] += a[i] * b[i];
  memcpy(&total, sums, sizeof sums);
}

template <bool WIDE, class Vector>
inline void emulated_multiply_add(Vector& total, Vector x, Vector weight) {
  if (WIDE) return emulated_wide_multiply_add(total, x, weight);
  uint8_t u[sizeof(Vector)];
  int8_t s[sizeof(Vector)];
  int32_t sums[sizeof(Vector) / 4];
  memcpy(u, &x, sizeof u);
  memcpy(s, &weight, sizeof s);
  memcpy(sums, &total, sizeof sums);
  for (size_t i = 0; i < sizeof u; i++) sums[i / 4] += u[i] * s[i];
  memcpy(&total, sums, sizeof sums);
}

// The registers of AMX: rows of 64 bytes, of which some count.
struct EmulatedMatrices {
  uint8_t bytes[8][16][64];
  int rows[8], row_bytes[8];
};
inline thread_local EmulatedMatrices emulated_matrices;

inline void emulated_load_shapes(const void* shapes) {
  EmulatedMatrices& m = emulated_matrices;
  memset(m.bytes, 0, sizeof m.bytes);
  for (int i = 0; i < 8; i++) {
    uint16_t row_bytes;
    memcpy(&row_bytes, (const char*)shapes + 16 + 2 * i, sizeof row_bytes);
    m.row_bytes[i] = row_bytes;
    m.rows[i] = ((const uint8_t*)shapes)[48 + i];
  }
}
inline void emulated_load_matrix(int to, const void* from, size_t stride) {
  EmulatedMatrices& m = emulated_matrices;
  memset(m.bytes[to], 0, sizeof m.bytes[to]);
  for (int r = 0; r < m.rows[to]; r++) memcpy(m.bytes[to][r], (const char*)from + r * stride, m.row_bytes[to]);
}
inline void emulated_store_matrix(int from, void* to, size_t stride) {
  const EmulatedMatrices& m = emulated_matrices;
  for (int r = 0; r < m.rows[from]; r++) memcpy((char*)to + r * stride, m.bytes[from][r], m.row_bytes[from]);
}
inline void emulated_clear_matrix(int of) {
  memset(emulated_matrices.bytes[of], 0, sizeof emulated_matrices.bytes[of]);
}
inline int emulated_number(uint8_t byte, bool is_signed) { return is_signed ? (int8_t)byte : byte; }
inline void emulated_multiply_matrices(int total, int x, bool x_signed, int weight, bool weight_signed) {
  EmulatedMatrices& m = emulated_matrices;
  for (int r = 0; r < m.rows[total]; r++)
    for (int c = 0; c < m.row_bytes[total] / 4; c++) {
      uint32_t sum;
      memcpy(&sum, m.bytes[total][r] + 4 * c, 4);
      for (int k = 0; k < m.row_bytes[x]; k++)
        sum += emulated_number(m.bytes[x][r][k], x_signed) *
               emulated_number(m.bytes[weight][k / 4][4 * c + k % 4], weight_signed);
      memcpy(m.bytes[total][r] + 4 * c, &sum, 4);
    }
}

struct Emulated512 {
  int32_t lanes[16];
};
typedef float EmulatedFloats __attribute__((vector_size(64)));

inline Emulated512 emulated_load(const void* p) {
  Emulated512 out;
  memcpy(&out, p, 64);
  return out;
}
inline Emulated512 emulated_spread(int32_t x) {
  Emulated512 out;
  for (int32_t& lane : out.lanes) lane = x;
  return out;
}
inline Emulated512 emulated_and(Emulated512 a, Emulated512 b) {
  for (int i = 0; i < 16; i++) a.lanes[i] &= b.lanes[i];
  return a;
}
inline Emulated512 emulated_shifted(Emulated512 a, int bits) {
  for (int32_t& lane : a.lanes) lane = (int32_t)((uint32_t)lane << bits);
  return a;
}
inline int emulated_mask(Emulated512 a) {
  int mask = 0;
  for (int i = 0; i < 16; i++) mask |= (a.lanes[i] < 0) << i;
  return mask;
}
inline EmulatedFloats emulated_floats(__m256i halves) {
  const __m256 low = _mm256_cvtph_ps(_mm256_castsi256_si128(halves)),
               high = _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1));
  EmulatedFloats out;
  memcpy(&out, &low, 32);
  memcpy((char*)&out + 32, &high, 32);
  return out;
}
inline __m256i emulated_halves(EmulatedFloats x) {
  __m256 low, high;
  memcpy(&low, &x, 32);
  memcpy(&high, (char*)&x + 32, 32);
  return _mm256_set_m128i(_mm256_cvtps_ph(high, _MM_FROUND_TO_NEAREST_INT),
                          _mm256_cvtps_ph(low, _MM_FROUND_TO_NEAREST_INT));
}

inline Emulated512 emulated_widened(__m128i bytes) {
  int8_t s[16];
  Emulated512 out;
  memcpy(s, &bytes, 16);
  for (int i = 0; i < 16; i++) out.lanes[i] = s[i];
  return out;
}
template <class Vector, class Number>
inline Vector emulated_narrowed(Emulated512 a) {
  Number numbers[16];
  Vector out;
  for (int i = 0; i < 16; i++) numbers[i] = (Number)a.lanes[i];
  memcpy(&out, numbers, sizeof out);
  return out;
}

#define __m512i Emulated512
#define _mm512_loadu_si512(p) emulated_load(p)
#define _mm512_load_si512(p) emulated_load(p)
#define _mm512_store_si512(p, a) memcpy(p, &(a), 64)
#define _mm512_cvtepi8_epi32(a) emulated_widened(a)
#define _mm512_cvtepi32_epi16(a) emulated_narrowed<__m256i, int16_t>(a)
#define _mm512_cvtepi32_epi8(a) emulated_narrowed<__m128i, int8_t>(a)
#define _mm512_set1_epi32(x) emulated_spread(x)
#define _mm512_and_si512(a, b) emulated_and(a, b)
#define _mm512_slli_epi32(a, bits) emulated_shifted(a, bits)
#define _mm512_cvtph_ps(a) emulated_floats(a)
#define _mm512_cvtps_ph(a, rounding) emulated_halves(a)
#define _mm512_movepi32_mask(a) emulated_mask(a)
