// What the two headers of NEON share. They define before it, in their namespace, Bytes16 (16 numbers of x, as their
// instruction wants them) and multiply_add.
#pragma once

namespace dragoman::ISA {

constexpr int columns = 16, group = 4, most_rows = 6, most_wide_rows = 6;
constexpr int float_columns = 16, most_float_rows = 6;

// Products of s16, 8 columns after the other 8, so that their sums stay in registers: those of the even and of the odd
// two of four columns apart, until the end.
template <int ROWS>
static void wide_tile(const uint8_t* x, size_t stride, const int8_t* panel, int depth, int32_t* sums) {
  for (int first = 0; first < columns; first += 8) {
    int32x4_t low[ROWS][2], high[ROWS][2];
    unrolled<ROWS>([&](auto r) INLINED {
      unrolled<2>([&](auto v) INLINED { low[r][v] = high[r][v] = vdupq_n_s32(0); });
    });
    const int8_t* weights = panel + first * group;
    for (int k = 0; k < depth; k += group, weights += columns * group) {
      int16x8_t weight[2];
      unrolled<2>([&](auto v) INLINED { weight[v] = vreinterpretq_s16_s8(vld1q_s8(weights + 16 * v)); });
      unrolled<ROWS>([&](auto r) INLINED {
        int32_t two;
        memcpy(&two, x + r * stride + k, 4);
        const int16x8_t spread = vreinterpretq_s16_s32(vdupq_n_s32(two));
        unrolled<2>([&](auto v) INLINED {
          low[r][v] = vmlal_s16(low[r][v], vget_low_s16(weight[v]), vget_low_s16(spread));
          high[r][v] = vmlal_high_s16(high[r][v], weight[v], spread);
        });
      });
    }
    unrolled<ROWS>([&](auto r) INLINED {
      unrolled<2>([&](auto v) INLINED {
        vst1q_s32(sums + r * columns + first + 4 * v, vpaddq_s32(low[r][v], high[r][v]));
      });
    });
  }
}

template <int ROWS, Packed KIND>
static void tile(const uint8_t* x, size_t stride, const int8_t* panel, Ahead ahead, const int32_t* start, int depth,
                 int32_t* sums) {
  if constexpr (KIND == Packed::words) return wide_tile<ROWS>(x, stride, panel, depth, sums);
  constexpr int vectors = columns / 4;
  int32x4_t total[ROWS][vectors];
  unrolled<ROWS>([&](auto r) INLINED {
    unrolled<vectors>([&](auto v) INLINED { total[r][v] = vld1q_s32(start + 4 * v); });
  });
  for (int k = 0; k < depth; k += group, panel += columns * group, x += group) {
    int8x16_t weight[vectors];
    unrolled<vectors>([&](auto v) INLINED { weight[v] = vld1q_s8(panel + 16 * v); });
    ahead.ask<columns * group>();
    unrolled<ROWS>([&](auto r) INLINED {
      int32_t four;
      memcpy(&four, x + r * stride, 4);
      const Bytes16 spread = (Bytes16)vdupq_n_s32(four);
      unrolled<vectors>([&](auto v) INLINED { total[r][v] = multiply_add(total[r][v], spread, weight[v]); });
    });
  }
  unrolled<ROWS>([&](auto r) INLINED {
    unrolled<vectors>([&](auto v) INLINED { vst1q_s32(sums + r * columns + 4 * v, total[r][v]); });
  });
}

INLINE uint32_t bits(Lanes<int32_t, native> mask) {
  const uint32_t each[4] = {1, 2, 4, 8};
  return vaddvq_u32(vandq_u32((uint32x4_t)mask.v, vld1q_u32(each)));
}
INLINE void widen(const int8_t* p, Lanes<int32_t, native>& out) {
  int32_t four;
  memcpy(&four, p, 4);
  out.v = (NativeInts)vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_s32(vdup_n_s32(four)))));
}
INLINE void narrow(Lanes<int32_t, native> a, int16_t* p) { vst1_s16(p, vmovn_s32((int32x4_t)a.v)); }
INLINE void narrow(Lanes<int32_t, native> a, uint8_t* p) {
  const int16x4_t words = vmovn_s32((int32x4_t)a.v);
  const int8x8_t bytes = vmovn_s16(vcombine_s16(words, words));
  memcpy(p, &bytes, 4);
}
INLINE void load_halves(const uint16_t* p, Lanes<float, native>& out) {
  out.v = (NativeFloats)vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}
INLINE void store_halves(Lanes<float, native> a, uint16_t* p) {
  vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32((float32x4_t)a.v)));
}

}  // namespace dragoman::ISA
