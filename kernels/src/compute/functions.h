// Functions of 16 lanes, and parts of 16.
#pragma once
#include "compute/lanes.h"

namespace dragoman::ISA {

constexpr float lowest = -3.4e38f;

// The first n numbers, then zeros.
INLINE Floats load_part(const float* p, int n) {
  float x[16] = {};
  memcpy(x, p, n * sizeof(float));
  return load(x);
}
INLINE void store_part(float* p, Floats a, int n) {
  float x[16];
  store(x, a);
  memcpy(p, x, n * sizeof(float));
}
INLINE Floats load_up_to(const float* p, int n) { return n >= 16 ? load(p) : load_part(p, n); }
INLINE void store_up_to(float* p, Floats a, int n) { n >= 16 ? store(p, a) : store_part(p, a, n); }

// A bit for each lane of a mask, the first is the lowest.
template <int N>
INLINE uint32_t bits(Lanes<int32_t, N> mask) {
  return bits(mask.low) | bits(mask.high) << N / 2;
}
INLINE bool any(Lanes<int32_t, native> mask) { return bits(mask) != 0; }
template <int N>
INLINE bool any(Lanes<int32_t, N> mask) {
  return any(mask.low | mask.high);
}

INLINE Floats load16(const float* p) { return load(p); }
INLINE void load_all_halves(const uint16_t* p, Lanes<float, native>& out) { load_halves(p, out); }
template <int N>
INLINE void load_all_halves(const uint16_t* p, Lanes<float, N>& out) {
  load_all_halves(p, out.low);
  load_all_halves(p + N / 2, out.high);
}
INLINE Floats load16(const uint16_t* p) {
  Floats out;
  load_all_halves(p, out);
  return out;
}
INLINE void store_all_halves(Lanes<float, native> a, uint16_t* p) { store_halves(a, p); }
template <int N>
INLINE void store_all_halves(Lanes<float, N> a, uint16_t* p) {
  store_all_halves(a.low, p);
  store_all_halves(a.high, p + N / 2);
}
INLINE void store16(float* p, Floats a) { store(p, a); }
INLINE void store16(uint16_t* p, Floats a) { store_all_halves(a, p); }

INLINE void widen_all(const int8_t* p, Lanes<int32_t, native>& out) { widen(p, out); }
template <int N>
INLINE void widen_all(const int8_t* p, Lanes<int32_t, N>& out) {
  widen_all(p, out.low);
  widen_all(p + N / 2, out.high);
}
// The lowest bytes of each lane, as many as a T has.
template <class T>
INLINE void narrow_all(Lanes<int32_t, native> a, T* p) {
  narrow(a, p);
}
template <class T, int N>
INLINE void narrow_all(Lanes<int32_t, N> a, T* p) {
  narrow_all(a.low, p);
  narrow_all(a.high, p + N / 2);
}
INLINE Floats load16(const int8_t* p) {
  Ints x;
  widen_all(p, x);
  return converted(x);
}

INLINE Floats absolute(Floats a) { return as_floats(as_ints(a) & all((int32_t)0x7fffffff)); }

// To the nearest whole number, ties to even, of |a| < 2^22: adding 1.5 * 2^23 leaves it in the lowest bits.
constexpr float whole = 12582912.f;

// 2^x for x in -126..126, and 2^-126 below, is 2^n (1 + more), where n is the nearest whole number: a polynomial of the
// smallest largest error between halves. Not a number stays so.
struct Power {
  Ints n;  // where a float has its exponent
  Floats more;
};
INLINE Power split_power_of_two(Floats x) {
  const Floats power = larger(all(-126.f), x), moved = power + all(whole), part = power - (moved - all(whole));
  Floats p = all(1.3264709e-3f);
  p = p * part + all(9.6715115e-3f);
  p = p * part + all(5.5507338e-2f);
  p = p * part + all(2.4022242e-1f);
  p = p * part + all(6.9314698e-1f);
  return {shifted_left<23>(as_ints(moved)), p * part};
}
INLINE Floats raised(Floats a, Ints n) { return as_floats(as_ints(a) + n); }
INLINE Floats power_of_two(Floats x) {
  const Power p = split_power_of_two(x);
  return raised(p.more + all(1.f), p.n);
}

// e^x, within 3e-7 + 6e-8 |x| of it, relative. Below e^-87 it is about 1e-38.
constexpr float log2_e = 1.44269504f;
INLINE Floats exponential(Floats x) { return power_of_two(smaller(all(126.f), x * all(log2_e))); }

INLINE Floats sigmoid(Floats x) { return all(1.f) / (all(1.f) + exponential(all(0.f) - x)); }

// (e^2x - 1) / (e^2x + 1), within 2e-7 of it, and within 1e-6 relative: near 0 nothing is subtracted from 1.
INLINE Floats hyperbolic_tangent(Floats x) {
  const Power p = split_power_of_two(smaller(all(126.f), x * all(2 * log2_e)));
  const Floats power = raised(all(1.f), p.n), less_one = p.more * power + (power - all(1.f));
  return less_one / (less_one + all(2.f));
}

// x / 2 * (1 + erf(x / sqrt 2)), with erf of Abramowitz and Stegun 7.1.26, within 1.5e-7.
INLINE Floats gelu(Floats x) {
  const Floats z = absolute(x) * all(0.70710678f), t = all(1.f) / (all(1.f) + all(0.3275911f) * z);
  Floats p = all(1.061405429f);
  p = p * t - all(1.453152027f);
  p = p * t + all(1.421413741f);
  p = p * t - all(0.284496736f);
  p = p * t + all(0.254829592f);
  const Floats tail = p * t * exponential(all(0.f) - z * z);  // 1 - erf(|x| / sqrt 2)
  return all(0.5f) * x * where(x < all(0.f), tail, all(2.f) - tail);
}

// The same by its approximation, x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))).
INLINE Floats gelu_tanh(Floats x) {
  return x * sigmoid(all(1.59576912f) * (x + all(0.044715f) * x * x * x));
}

// Of these and larger(): what is not a number must stay so, hence the order of arguments.
INLINE Floats relu(Floats x) { return larger(all(0.f), x); }

}  // namespace dragoman::ISA
