// What the two headers of NEON share. They define before it, in their namespace, Bytes16 (16 numbers of x, as their
// instruction wants them) and multiply_add.
#pragma once

namespace dragoman::ISA {

constexpr int columns = 16, group = 4, most_rows = 6;

template <int ROWS>
static void tile(const uint8_t* x, size_t stride, const int8_t* panel, const int8_t* ahead, const int32_t* start,
                 int depth, int32_t* sums) {
  constexpr int vectors = columns / 4;
  int32x4_t total[ROWS][vectors];
  unrolled<ROWS>([&](auto r) INLINED {
    unrolled<vectors>([&](auto v) INLINED { total[r][v] = vld1q_s32(start + 4 * v); });
  });
  for (int k = 0; k < depth; k += group, panel += columns * group, x += group) {
    int8x16_t weight[vectors];
    unrolled<vectors>([&](auto v) INLINED { weight[v] = vld1q_s8(panel + 16 * v); });
    if (ahead) {
      __builtin_prefetch(ahead);
      ahead += columns * group;
    }
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

INLINE bool any(Lanes<int32_t, native> mask) { return vmaxvq_u32((uint32x4_t)mask.v) != 0; }
INLINE void load_halves(const uint16_t* p, Lanes<float, native>& out) {
  out.v = (NativeFloats)vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}
INLINE void store_halves(Lanes<float, native> a, uint16_t* p) {
  vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32((float32x4_t)a.v)));
}

}  // namespace dragoman::ISA
