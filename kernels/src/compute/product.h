// Rows of u8, or of s16, times a packed weight, tile after tile.
#pragma once
#include "compute/table.h"

namespace dragoman::ISA {

constexpr bool takes_nibbles = most_nibble_rows > 0;

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

// The same of multiples of 16: number k of a column in the low half of a byte, number k + group in the high one.
static void pack_nibbles(const int8_t* weight, int outputs, int inputs, int depth, int8_t* panels) {
  // Both halves of every byte are zeros until they are weights.
  memset(panels, 17 * nibble_offset, (size_t)((outputs + columns - 1) / columns) * columns * depth / 2);
  for (int n = 0; n < outputs; n++) {
    int8_t* column = panels + (size_t)(n / columns) * depth / 2 * columns + n % columns * group;
    const int8_t* row = weight + (size_t)n * inputs;
    for (int k = 0; k < inputs; k++) {
      int8_t& both = column[(size_t)(k / (2 * group)) * group * columns + k % group];
      const int half = ((row[k] >> 4) + nibble_offset) & 15;
      both = (int8_t)(k / group % 2 ? (both & 15) | half << 4 : (both & 240) | half);
    }
  }
}

#ifdef MATRICES
constexpr bool splits_words = true;
#else  // every tile takes them as they are
constexpr bool splits_words = false;
INLINE void split_words(const int16_t*, int, int, uint8_t*) {}
#endif

// The same of s16, in two bytes each. Where they are split, four high ones come before their low ones.
static void pack_words(const int16_t* weight, int outputs, int inputs, int depth, int8_t* panels) {
  if (!splits_words) return pack((const int8_t*)weight, outputs, 2 * inputs, depth, panels);
  for (int n = 0; n < outputs; n++) {
    int8_t* column = panels + (size_t)(n / columns) * depth * columns + n % columns * group;
    for (int k = 0; k < inputs; k++) {
      const int16_t word = weight[(size_t)n * inputs + k];
      int8_t* high = column + (size_t)(k / group) * 2 * group * columns + k % group;
      high[0] = (int8_t)(word >> 8);
      high[group * columns] = (int8_t)word;
    }
  }
}

// Rows as tile() wants them where weights are of a kind: of u8, or s16. The stride counts bytes.
template <Packed KIND>
struct TileRows {
  static constexpr Packed kind = KIND;
  static constexpr int most = KIND == Packed::words     ? most_wide_rows
                              : KIND == Packed::nibbles ? most_nibble_rows
                                                        : most_rows;
  const uint8_t* rows;
  size_t stride;
};
typedef TileRows<Packed::bytes> Bytes;
typedef TileRows<Packed::words> Words;
typedef TileRows<Packed::nibbles> BytesByNibbles;

INLINE size_t padded(size_t bytes) { return (bytes + 63) / 64 * 64; }

// Memory for rows of u8 that meet a weight, and then what they become for tile().
struct ByteRows {
  const PackedWeight& weight;
  uint8_t* plain;
  uint8_t* prepared;
  size_t plain_stride, prepared_stride;

  MEMBER ByteRows(int rows, const PackedWeight& w, Scratch& scratch)
      : weight(w), plain_stride(padded(w.depth)), prepared_stride(padded(prepared_bytes(w.kind, w.depth))) {
    plain = scratch.take<uint8_t>(prepares ? plain_stride : rows * plain_stride);
    prepared = prepares ? scratch.take<uint8_t>(rows * prepared_stride) : nullptr;
  }
  MEMBER uint8_t* row(int r) { return prepares ? plain : plain + r * plain_stride; }
  MEMBER void done(int r) {
    if (prepares)
      prepare(weight.kind, weight.shift, plain, weight.depth, prepared + r * prepared_stride);
    else if (plain_stride > (size_t)weight.depth)
      memset(row(r) + weight.depth, 0, plain_stride - weight.depth);
  }
  template <class Kind = Bytes>
  MEMBER Kind bytes() const {
    return prepares ? Kind{prepared, prepared_stride} : Kind{plain, plain_stride};
  }
};

// The same for rows of s16.
struct WordRows {
  const PackedWeight& weight;
  size_t stride;
  uint8_t* rows;
  int16_t* plain;

  MEMBER WordRows(int count, const PackedWeight& w, Scratch& scratch)
      : weight(w), stride(splits_words ? 2 * padded(w.depth / 2) : padded(w.depth)) {
    rows = scratch.take<uint8_t>(count * stride);
    plain = splits_words ? scratch.take<int16_t>(w.depth / 2) : nullptr;
  }
  MEMBER int16_t* row(int r) { return splits_words ? plain : (int16_t*)(rows + r * stride); }
  MEMBER void done(int r) {
    if (splits_words) split_words(plain, weight.depth / 2, (int)stride / 2, rows + r * stride);
  }
  MEMBER Words words() const { return {rows, stride}; }
};

template <Packed KIND>
INLINE const int8_t* panel_of(const PackedWeight& w, int panel) {
  const size_t bytes = (size_t)w.depth * columns;
  return w.weights + panel * (KIND == Packed::nibbles ? bytes / 2 : bytes);
}

template <int ROWS, class Rows, class Each>
static inline void tile_and_use(int rows, const Rows& x, int row, const PackedWeight& w, int panel,
                                const Ahead& ahead, int32_t* sums, Each& each) {
  if constexpr (ROWS > 1) {
    if (rows < ROWS) return tile_and_use<ROWS - 1>(rows, x, row, w, panel, ahead, sums, each);
  }
  tile<ROWS, Rows::kind>(x.rows + row * x.stride, x.stride, panel_of<Rows::kind>(w, panel), ahead,
                         w.start + panel * columns, w.depth, sums);
  each(row, ROWS, panel, sums);
}

#ifdef MATRICES
}  // namespace dragoman::ISA

#include "compute/matrices.h"

namespace dragoman::ISA {
#endif

constexpr int step_lines = columns * group / 64;

// What one of so many tiles that share a panel asks for of the next. The last brings it into the first cache, where it
// would have driven out the panel that the others read; they have brought it from memory to the second, a part each.
INLINE Ahead ahead_of(const int8_t* next, int tile, int tiles) {
  if (tile == tiles - 1) return {next, true, 0, step_lines};
  const int first = step_lines * tile / (tiles - 1), last = step_lines * (tile + 1) / (tiles - 1);
  return {first < last ? next : nullptr, false, first, last};
}

// each(row, count, panel, sums [count][columns]) for all rows and panels; of a row the panels come in order. Rows go in
// blocks that stay in the second cache, and in a block a panel meets all rows before the next.
template <class Rows, class Each>
static void multiply(const PackedWeight& w, const Rows& x, int rows, Each& each) {
#ifdef MATRICES
  if (takes_matrices<Rows::kind>(w, rows)) return multiply_by_matrices(w, x, rows, each);
#endif
  alignas(64) int32_t sums[Rows::most * columns];
  const int fitting = (int)(196608 / x.stride), most = fitting > Rows::most ? fitting : Rows::most;
  const int blocks = (rows + most - 1) / most;
  for (int block = 0, first = 0; block < blocks; block++) {
    const int count = rows / blocks + (block < rows % blocks), tiles = (count + Rows::most - 1) / Rows::most;
    for (int panel = 0; panel < w.panels; panel++) {
      const int8_t* next = panel + 1 < w.panels ? panel_of<Rows::kind>(w, panel + 1) : nullptr;
      for (int t = 0, row = first; t < tiles; t++) {
        const int size = count / tiles + (t < count % tiles);
        tile_and_use<Rows::most>(size, x, row, w, panel, ahead_of(next, t, tiles), sums, each);
        row += size;
      }
    }
    first += count;
  }
}

}  // namespace dragoman::ISA
