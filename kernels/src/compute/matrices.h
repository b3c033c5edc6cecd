// Rows of u8, or of s16, times a packed weight, by instructions that multiply matrices.
#pragma once
#include "compute/table.h"

namespace dragoman::ISA {

constexpr int most_spread_depth = 256;  // two panels of it are in the first cache

template <Packed KIND>
INLINE bool takes_matrices(const PackedWeight& w, int rows) {
  return KIND != Packed::nibbles || (rows >= least_spread_rows && w.depth <= most_spread_depth);
}

// The panels of a weight as bytes. Each is asked for, in parts, while the one before it is multiplied, where the weight
// is so large that a model of such weights is read from memory: its products take as little as half of the time then.
// Where all of a model is in the third cache they would take a tenth more.
template <Packed KIND>
struct BytePanels {
  static constexpr size_t least_asked = 1 << 20;  // bytes of a weight

  const PackedWeight& weight;

  MEMBER const int8_t* operator[](int panel) const { return panel_of<KIND>(weight, panel); }
  MEMBER void prepare(int panel, int part, int parts) const {
    const size_t bytes = (size_t)weight.depth * columns;
    if (bytes * weight.panels < least_asked || panel == weight.panels) return;
    const int8_t* next = panel_of<KIND>(weight, panel);
    for (size_t at = bytes * part / parts, end = bytes * (part + 1) / parts; at < end; at += 64)
      __builtin_prefetch(next + at, 0, 2);
  }
};

// Those whose numbers share bytes are spread in the first cache, each in parts while the one before it is multiplied.
template <>
struct BytePanels<Packed::nibbles> {
  const PackedWeight& weight;
  alignas(64) int8_t spread[2][most_spread_depth * columns];

  MEMBER explicit BytePanels(const PackedWeight& w) : weight(w) { prepare(0, 0, 1); }
  MEMBER const int8_t* operator[](int panel) const { return spread[panel % 2]; }
  MEMBER void prepare(int panel, int part, int parts) {
    if (panel == weight.panels) return;
    const int steps = weight.depth / (2 * group), first = steps * part / parts, last = steps * (part + 1) / parts;
    const size_t panel_bytes = (size_t)weight.depth * columns / 2;
    spread_nibbles(panel_of<Packed::nibbles>(weight, panel), panel_bytes, first, last, spread[panel % 2]);
  }
};

// As `multiply` does. Rows are shared out evenly to matrices; where that leaves a remainder, the last one of a block
// takes rows again that the one before it has taken, and their sums go to `each` once.
template <class Rows, class Each>
static void multiply_by_matrices(const PackedWeight& w, const Rows& x, int rows, Each& each) {
  alignas(64) int32_t sums[2 * matrix_rows * columns];
  const int most = ((int)(196608 / x.stride) / matrix_rows + 1) * matrix_rows, blocks = (rows + most - 1) / most;
  for (int block = 0, first = 0; block < blocks; block++) {
    const int count = rows / blocks + (block < rows % blocks), all = (count + matrix_rows - 1) / matrix_rows;
    const int size = (count + all - 1) / all;
    const auto begin = [&](int matrix) INLINED { return first + (matrix < all - 1 ? matrix * size : count - size); };
    const auto use = [&](int matrix, int panel, const int32_t* of) INLINED {
      const int row = first + matrix * size, again = row - begin(matrix);
      each(row, size - again, panel, of + again * columns);
    };
    BytePanels<Rows::kind> panels{w};
    shape_matrices(size);
    for (int panel = 0; panel < w.panels; panel++) {
      const int8_t* weights = panels[panel];
      const int32_t* start = w.start + panel * columns;
      int matrix = 0;
      const auto meanwhile = [&](int part, int parts) INLINED {
        if (matrix == 0) panels.prepare(panel + 1, part, parts);
      };
      if constexpr (Rows::kind == Packed::words) {
        for (; matrix < all; matrix++) {
          multiply_panel_of_words(size, x.rows + begin(matrix) * x.stride, x.stride, weights, w.depth, sums, meanwhile);
          use(matrix, panel, sums);
        }
        continue;
      }
      for (; matrix + 1 < all; matrix += 2) {
        int32_t* others = sums + size * columns;
        multiply_panel(x.rows + begin(matrix) * x.stride, x.rows + begin(matrix + 1) * x.stride, x.stride, weights,
                       start, w.depth, sums, others, meanwhile);
        use(matrix, panel, sums);
        use(matrix + 1, panel, others);
      }
      if (matrix == all) continue;
      multiply_panel(x.rows + begin(matrix) * x.stride, x.stride, weights, start, w.depth, sums, meanwhile);
      use(matrix, panel, sums);
    }
    first += count;
  }
  release_matrices();
}

}  // namespace dragoman::ISA
