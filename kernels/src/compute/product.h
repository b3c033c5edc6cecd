// Rows of u8, or of s16, times a packed weight, tile after tile.
#pragma once
#include "compute/table.h"

namespace dragoman::ISA {

// panels: zeros, which stay where there are no weights.
static void pack(const int8_t* weight, int outputs, int inputs, int depth, int8_t* panels) {
  for (int n = 0; n < outputs; n++) {
    int8_t* column = panels + (size_t)(n / columns) * depth * columns + n % columns * group;
    const int8_t* row = weight + (size_t)n * inputs;
    int k = 0;
    for (; k + group <= inputs; k += group) memcpy(column + (size_t)k * columns, row + k, group);
    memcpy(column + (size_t)k * columns, row + k, inputs - k);
  }
}

// Rows as tile() wants them, of u8.
struct Bytes {
  static constexpr bool wide = false;
  static constexpr int most = most_rows;
  const uint8_t* rows;
  size_t stride;
};

// Of s16. The stride counts bytes.
struct Words {
  static constexpr bool wide = true;
  static constexpr int most = most_wide_rows;
  const uint8_t* rows;
  size_t stride;
};

INLINE size_t padded(size_t bytes) { return (bytes + 63) / 64 * 64; }

// Memory for rows of u8, and then what they become for tile().
struct ByteRows {
  uint8_t* plain;
  uint8_t* prepared;
  size_t plain_stride, prepared_stride;

  MEMBER ByteRows(int rows, int depth, Scratch& scratch)
      : plain_stride(padded(depth)), prepared_stride(padded(prepared_bytes(depth))) {
    plain = scratch.take<uint8_t>(prepares ? plain_stride : rows * plain_stride);
    prepared = prepares ? scratch.take<uint8_t>(rows * prepared_stride) : nullptr;
  }
  MEMBER uint8_t* row(int r) { return prepares ? plain : plain + r * plain_stride; }
  MEMBER void done(int r, int depth) {
    if (prepares) prepare(plain, depth, prepared + r * prepared_stride);
  }
  MEMBER Bytes bytes() const { return prepares ? Bytes{prepared, prepared_stride} : Bytes{plain, plain_stride}; }
};

template <int ROWS, class Rows, class Each>
static inline void tile_and_use(int rows, const Rows& x, int row, const PackedWeight& w, int panel,
                                const int8_t* ahead, int32_t* sums, Each& each) {
  if constexpr (ROWS > 1) {
    if (rows < ROWS) return tile_and_use<ROWS - 1>(rows, x, row, w, panel, ahead, sums, each);
  }
  const int8_t* weights = w.weights + (size_t)panel * w.depth * columns;
  tile<ROWS, Rows::wide>(x.rows + row * x.stride, x.stride, weights, ahead, w.start + panel * columns, w.depth, sums);
  each(row, ROWS, panel, sums);
}

// each(row, count, panel, sums [count][columns]) for all rows and panels; of a row the panels come in order. Rows go in
// blocks that stay in the second cache, and in a block a panel meets all rows before the next.
template <class Rows, class Each>
static void multiply(const PackedWeight& w, const Rows& x, int rows, Each& each) {
  alignas(64) int32_t sums[Rows::most * columns];
  const int fitting = (int)(196608 / x.stride), most = fitting > Rows::most ? fitting : Rows::most;
  const int blocks = (rows + most - 1) / most;
  for (int block = 0, first = 0; block < blocks; block++) {
    const int count = rows / blocks + (block < rows % blocks), tiles = (count + Rows::most - 1) / Rows::most;
    for (int panel = 0; panel < w.panels; panel++) {
      const int8_t* next = w.weights + (size_t)(panel + 1) * w.depth * columns;
      for (int t = 0, row = first; t < tiles; t++) {
        const int size = count / tiles + (t < count % tiles);
        const int8_t* ahead = t == tiles - 1 && panel + 1 < w.panels ? next : nullptr;
        tile_and_use<Rows::most>(size, x, row, w, panel, ahead, sums, each);
        row += size;
      }
    }
    first += count;
  }
}

}  // namespace dragoman::ISA
