// THE SEAM: what kernels/src/compute needs of an instruction set. Plain C++; the other headers here do the same faster.
//
// Every source in compute/ is compiled once for each instruction set, with -DISA=<name> and
// -DISA_HEADER='"isa/<name>.h"' and the -m flags that the Makefile gives it, into the namespace dragoman::<name>. A
// header defines VECTOR_BYTES, includes compute/lanes.h, and defines in its namespace, all of it constexpr, static or
// INLINE:
//
//   columns, group   A panel of packed weights is s8 [depth / group][columns][group]: for each column, `group` weights
//                    that meet `group` neighbouring numbers of x. Panels lie one after another, on 64 bytes.
//                    columns % 16 == 0. Weights of s16 lie in the same bytes, half as many to a group.
//   most_rows        tile<ROWS, KIND> is made for 1..most_rows, or, of words, 1..most_wide_rows.
//   shift(kind, zero_point)   What tile takes off every x, by the kind of the weights and the zero point of x: 0, or
//                    128 for instructions that want x signed.
//   prepares         Whether tile wants rows of x changed first, by prepare(kind, shift, x, depth, out), which writes
//                    at most prepared_bytes(kind, depth) bytes.
//   most_nibble_rows The same as most_rows where weights that are multiples of 16 share bytes (pack_nibbles): worth it
//                    where products take them apart faster than memory brings twice as many, or are faster for
//                    numbers so small. 0: there they are bytes like others.
//   float_columns, most_float_rows   The same of fp32, whose panels are [inputs][float_columns]: as many as there are
//                    registers for, and a multiple of 16.
//   nibble_offset    What a sixteenth of such a weight is stored with: 0, or 8, so that none is negative.
//   tile<ROWS, KIND> sums[r][c] = start[c] + sum over k of (x[r][k] - shift) * weight[k][c], exactly, for every u8 x
//                    and every weight in -127..127. Of words: sum over k of x[r][k] * weight[k][c] of s16, x
//                    within -32767..32767, where all sums of some of these products fit 32 bits; `start` is zeros,
//                    and rows are not prepared.
//   MATRICES         A macro, where the set has instructions that multiply matrices: isa/amx.h says what else it has,
//                    and compute/matrices.h uses it.
//   bits             Of a mask, whose lanes have all bits or none: a bit for each lane, the first lane's is the lowest.
//   load_halves, store_halves: a register of floats from and to fp16 in memory.
//   widen, narrow    A register of i32 from s8 in memory, and to u8 or s16 that can hold them. GCC 12 makes no
//                    instruction of a loop or of a conversion: it moves numbers one by one, through memory.
//
// Nothing of std:: may be called here that could be left as a function of its own: the linker would take one
// instruction set's copy for all.
#pragma once
#define VECTOR_BYTES 16
#include "compute/halves.h"
#include "compute/ahead.h"
#include "compute/lanes.h"
#include "compute/table.h"

namespace dragoman::ISA {

constexpr int columns = 16, group = 4, most_rows = 4, most_wide_rows = 4;
constexpr int float_columns = 16, most_float_rows = 2;
constexpr bool prepares = false;
constexpr int most_nibble_rows = 0, nibble_offset = 0;

constexpr int shift(Packed, int) { return 0; }
constexpr int prepared_bytes(Packed, int depth) { return depth; }
INLINE void prepare(Packed, int, const uint8_t*, int, uint8_t*) {}

template <int ROWS>
static void wide_tile(const uint8_t* x, size_t stride, const int8_t* panel, int depth, int32_t* sums) {
  memset(sums, 0, ROWS * columns * sizeof(int32_t));
  for (int k = 0; k < depth; k += group, panel += columns * group)
    for (int r = 0; r < ROWS; r++) {
      int16_t two[2], weights[columns * 2];
      memcpy(two, x + r * stride + k, sizeof two);
      memcpy(weights, panel, sizeof weights);
      for (int c = 0; c < columns; c++) sums[r * columns + c] += two[0] * weights[2 * c] + two[1] * weights[2 * c + 1];
    }
}

// x: [ROWS][stride] bytes, prepared or u8 as it is, of which `depth` numbers count (a multiple of `group`); or s16 in
// `depth` bytes. panel: as above. ahead: of the panel that will be wanted next.
// start: i32 [columns]. sums: i32 [ROWS][columns], on 64 bytes.
template <int ROWS, Packed KIND>
static void tile(const uint8_t* x, size_t stride, const int8_t* panel, Ahead ahead, const int32_t* start, int depth,
                 int32_t* sums) {
  (void)ahead;
  if constexpr (KIND == Packed::words) return wide_tile<ROWS>(x, stride, panel, depth, sums);
  for (int r = 0; r < ROWS; r++) memcpy(sums + r * columns, start, columns * sizeof(int32_t));
  for (int k = 0; k < depth; k += group, panel += columns * group)
    for (int r = 0; r < ROWS; r++)
      for (int c = 0; c < columns; c++)
        for (int i = 0; i < group; i++) sums[r * columns + c] += x[r * stride + k + i] * panel[c * group + i];
}

INLINE uint32_t bits(Lanes<int32_t, native> mask) {
  uint32_t out = 0;
  for (int i = 0; i < native; i++) out |= (uint32_t)(mask.v[i] & 1) << i;
  return out;
}

INLINE void widen(const int8_t* p, Lanes<int32_t, native>& out) {
  for (int i = 0; i < native; i++) out.v[i] = p[i];
}
template <class T>
INLINE void narrow(Lanes<int32_t, native> a, T* p) {
  for (int i = 0; i < native; i++) p[i] = (T)a.v[i];
}
INLINE void load_halves(const uint16_t* p, Lanes<float, native>& out) {
  for (int i = 0; i < native; i++) out.v[i] = half_to_float(p[i]);
}
INLINE void store_halves(Lanes<float, native> a, uint16_t* p) {
  for (int i = 0; i < native; i++) p[i] = float_to_half(a.v[i]);
}

}  // namespace dragoman::ISA
