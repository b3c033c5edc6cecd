// 16 numbers at once, whatever the width of a register. Vectors of GCC and Clang that are wider than a register live in
// memory, so 16 lanes are halves of halves down to `NativeFloats`, which fill one.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#define MEMBER inline __attribute__((always_inline))  // of a class
#define INLINE static MEMBER
#define INLINED __attribute__((always_inline))  // of a lambda

namespace dragoman::ISA {

constexpr int native = VECTOR_BYTES / 4;  // lanes of a register
typedef float NativeFloats __attribute__((vector_size(VECTOR_BYTES)));
typedef int32_t NativeInts __attribute__((vector_size(VECTOR_BYTES)));

template <class T>
struct Register;
template <>
struct Register<float> {
  typedef NativeFloats type;
};
template <>
struct Register<int32_t> {
  typedef NativeInts type;
};

// each(i) for i = 0..N-1, each a constant of its own type: an array that is indexed by nothing else stays in registers.
// GCC unrolls a loop too late for that.
template <int N>
struct Constant {
  MEMBER constexpr operator int() const { return N; }
};
template <int N, class Each>
INLINE void unrolled(const Each& each) {
  if constexpr (N > 0) {
    unrolled<N - 1>(each);
    each(Constant<N - 1>{});
  }
}

template <class T, int N>
struct Lanes {
  Lanes<T, N / 2> low, high;
};
template <class T>
struct Lanes<T, native> {
  typename Register<T>::type v;
};

// Where it is read once, a compiler that knows better would read it again for each use.
template <class T>
INLINE void keep_in_register([[maybe_unused]] Lanes<T, native>& a) {
#if defined(__x86_64__) && !defined(EMULATED)  // emulated ones are wider than a register
  asm("" : "+v"(a.v));
#elif defined(__aarch64__)
  asm("" : "+w"(a.v));
#endif
}

typedef Lanes<float, 16> Floats;
typedef Lanes<int32_t, 16> Ints;

#define LANES_BINARY(op)                                                        \
  template <class T>                                                            \
  INLINE Lanes<T, native> operator op(Lanes<T, native> a, Lanes<T, native> b) { \
    return {a.v op b.v};                                                        \
  }                                                                             \
  template <class T, int N>                                                     \
  INLINE Lanes<T, N> operator op(Lanes<T, N> a, Lanes<T, N> b) {                \
    return {a.low op b.low, a.high op b.high};                                  \
  }
LANES_BINARY(+)
LANES_BINARY(-)
LANES_BINARY(*)
LANES_BINARY(/)
LANES_BINARY(&)
LANES_BINARY(|)
#undef LANES_BINARY

// Comparisons give all bits of a lane, or none.
#define LANES_COMPARE(op)                                                                     \
  INLINE Lanes<int32_t, native> operator op(Lanes<float, native> a, Lanes<float, native> b) { \
    return {(NativeInts)(a.v op b.v)};                                                        \
  }                                                                                           \
  template <int N>                                                                            \
  INLINE Lanes<int32_t, N> operator op(Lanes<float, N> a, Lanes<float, N> b) {                \
    return {a.low op b.low, a.high op b.high};                                                \
  }
LANES_COMPARE(>)
LANES_COMPARE(>=)
LANES_COMPARE(<)
#undef LANES_COMPARE

// The larger, and `b` where either is not a number: the rule of x86's maxps, which so becomes one instruction.
template <class Vector>
INLINE Vector larger(Vector a, Vector b) {
  return a > b ? a : b;
}
template <class T>
INLINE Lanes<T, native> larger(Lanes<T, native> a, Lanes<T, native> b) {
  return {larger(a.v, b.v)};
}
template <class Vector>
INLINE Vector smaller(Vector a, Vector b) {
  return a < b ? a : b;
}
INLINE Lanes<float, native> smaller(Lanes<float, native> a, Lanes<float, native> b) { return {smaller(a.v, b.v)}; }
INLINE Lanes<float, native> where(Lanes<int32_t, native> mask, Lanes<float, native> a, Lanes<float, native> b) {
  return {mask.v ? a.v : b.v};
}
INLINE Lanes<float, native> as_floats(Lanes<int32_t, native> a) { return {(NativeFloats)a.v}; }
INLINE Lanes<int32_t, native> as_ints(Lanes<float, native> a) { return {(NativeInts)a.v}; }
INLINE Lanes<float, native> converted(Lanes<int32_t, native> a) { return {__builtin_convertvector(a.v, NativeFloats)}; }
template <int BITS>
INLINE Lanes<int32_t, native> shifted_left(Lanes<int32_t, native> a) {
  return {a.v << BITS};
}
INLINE void spread(float x, Lanes<float, native>& out) { out.v = x - NativeFloats{}; }
INLINE void spread(int32_t x, Lanes<int32_t, native>& out) { out.v = x - NativeInts{}; }
template <class T>
INLINE void read(const T* p, Lanes<T, native>& out) {
  memcpy(&out.v, p, VECTOR_BYTES);
}
template <class T>
INLINE void write(Lanes<T, native> a, T* p) {
  memcpy(p, &a.v, VECTOR_BYTES);
}
template <class T, int N>
INLINE Lanes<T, N> larger(Lanes<T, N> a, Lanes<T, N> b) {
  return {larger(a.low, b.low), larger(a.high, b.high)};
}
template <int N>
INLINE Lanes<float, N> smaller(Lanes<float, N> a, Lanes<float, N> b) {
  return {smaller(a.low, b.low), smaller(a.high, b.high)};
}
template <int N>
INLINE Lanes<float, N> where(Lanes<int32_t, N> mask, Lanes<float, N> a, Lanes<float, N> b) {
  return {where(mask.low, a.low, b.low), where(mask.high, a.high, b.high)};
}
template <int N>
INLINE Lanes<float, N> as_floats(Lanes<int32_t, N> a) {
  return {as_floats(a.low), as_floats(a.high)};
}
template <int N>
INLINE Lanes<int32_t, N> as_ints(Lanes<float, N> a) {
  return {as_ints(a.low), as_ints(a.high)};
}
template <int N>
INLINE Lanes<float, N> converted(Lanes<int32_t, N> a) {
  return {converted(a.low), converted(a.high)};
}
template <int BITS, int N>
INLINE Lanes<int32_t, N> shifted_left(Lanes<int32_t, N> a) {
  return {shifted_left<BITS>(a.low), shifted_left<BITS>(a.high)};
}
template <class T, int N>
INLINE void spread(T x, Lanes<T, N>& out) {
  spread(x, out.low);
  spread(x, out.high);
}
template <class T, int N>
INLINE void read(const T* p, Lanes<T, N>& out) {
  read(p, out.low);
  read(p + N / 2, out.high);
}
template <class T, int N>
INLINE void write(Lanes<T, N> a, T* p) {
  write(a.low, p);
  write(a.high, p + N / 2);
}
INLINE Floats load(const float* p) {
  Floats out;
  read(p, out);
  return out;
}
INLINE Ints load(const int32_t* p) {
  Ints out;
  read(p, out);
  return out;
}
INLINE void store(float* p, Floats a) { write(a, p); }
INLINE void store(int32_t* p, Ints a) { write(a, p); }
INLINE Floats all(float x) {
  Floats out;
  spread(x, out);
  return out;
}
INLINE Ints all(int32_t x) {
  Ints out;
  spread(x, out);
  return out;
}

// Joins the lanes: neighbours at a distance of 8, then 4, 2, 1. The order is the same on every processor.
template <class T, int N>
struct Vector {
  typedef T type __attribute__((vector_size(N * sizeof(T)))), half __attribute__((vector_size(N / 2 * sizeof(T))));
};
template <class T, int N, int... I>
INLINE void halve(typename Vector<T, N>::type v, typename Vector<T, N>::half& low, typename Vector<T, N>::half& high,
                  std::integer_sequence<int, I...>) {
#if __has_builtin(__builtin_shufflevector)
  low = __builtin_shufflevector(v, v, I...);
  high = __builtin_shufflevector(v, v, (N / 2 + I)...);
#else  // GCC before 12. A sum that memory is copied from, it keeps there while it grows.
  ((low[I] = v[I], high[I] = v[N / 2 + I]), ...);
#endif
}
template <class T, int N, class Join>
INLINE T joined_vector(typename Vector<T, N>::type v, Join join) {
  if constexpr (N == 2) {
    return join(v[0], v[1]);
  } else {
    typename Vector<T, N>::half low, high;
    halve<T, N>(v, low, high, std::make_integer_sequence<int, N / 2>{});
    return joined_vector<T, N / 2>(join(low, high), join);
  }
}
template <class T, int N, class Join>
INLINE T joined(Lanes<T, N> a, Join join) {
  if constexpr (N == native)
    return joined_vector<T, native>(a.v, join);
  else
    return joined(join(a.low, a.high), join);
}
INLINE float sum(Floats a) {
  return joined(a, [](auto x, auto y) INLINED { return x + y; });
}
INLINE float smallest(Floats a) {
  return joined(a, [](auto x, auto y) INLINED { return smaller(x, y); });
}
template <class T>
INLINE T largest(Lanes<T, 16> a) {
  return joined(a, [](auto x, auto y) INLINED { return larger(x, y); });
}

}  // namespace dragoman::ISA
