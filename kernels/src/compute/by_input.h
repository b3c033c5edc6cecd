// Rows of u8 that are mostly zeros, as a ReLU leaves them, times a weight that lies by inputs: of those that are zero
// nothing is read. Sums are the same whole numbers as tile()'s.
#pragma once
#include "compute/product.h"

namespace dragoman::ISA {

// Panels whose sums fill the registers together: a stripe [depth][stripe * columns] of weights, or fewer in the last.
constexpr int stripe = 4;

// stripes: zeros, which stay where there are no weights.
static void pack_by_input(const int8_t* weight, int outputs, int inputs, int depth, int8_t* stripes) {
  const int panels = (outputs + columns - 1) / columns;
  for (int n = 0; n < outputs; n++) {
    const int panel = n / columns, first = panel / stripe * stripe;
    const int width = (panels - first < stripe ? panels - first : stripe) * columns;
    int8_t* column = stripes + (size_t)first * columns * depth + (panel - first) * columns + place_in_stripe(n % columns);
    for (int k = 0; k < inputs; k++) column[(size_t)k * width] = weight[(size_t)n * inputs + k];
  }
}

// Rows of u8, and memory for what is not zero of one of them.
struct BytesByInput {
  const uint8_t* rows;
  size_t stride;
  int32_t* inputs;
  uint8_t* values;

  MEMBER BytesByInput(const Bytes& x, int depth, Scratch& scratch)
      : rows(x.rows), stride(x.stride), inputs(scratch.take<int32_t>(depth + 16)),
        values(scratch.take<uint8_t>(depth + 16)) {}
};

template <int PANELS, class Each>
static inline void add_stripe(int panels, const PackedWeight& w, const BytesByInput& x, int count, int row, int panel,
                              int32_t* sums, Each& each) {
  if constexpr (PANELS > 1) {
    if (panels < PANELS) return add_stripe<PANELS - 1>(panels, w, x, count, row, panel, sums, each);
  }
  const int8_t* weights = w.weights + (size_t)panel * columns * w.depth;
  add_inputs<PANELS>(x.inputs, x.values, count, weights, w.start + panel * columns, sums);
  for (int p = 0; p < PANELS; p++) each(row, 1, panel + p, sums + p * columns);
}

// As of other rows: see compute/product.h.
template <class Each>
static void multiply(const PackedWeight& w, const BytesByInput& x, int rows, Each& each) {
  alignas(64) int32_t sums[stripe * columns];
  for (int row = 0; row < rows; row++) {
    int count = nonzero(x.rows + row * x.stride, w.depth, x.inputs, x.values);
    for (int i = count; i < count + 4 + inputs_ahead; i++) x.inputs[i] = x.values[i] = 0;
    count = (count + 3) / 4 * 4;
    for (int panel = 0; panel < w.panels; panel += stripe)
      add_stripe<stripe>(w.panels - panel, w, x, count, row, panel, sums, each);
  }
}

}  // namespace dragoman::ISA
