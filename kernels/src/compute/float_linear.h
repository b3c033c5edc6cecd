// Linear: products of rows of fp32 with a weight of fp32, and what is done with their sums at once.
//
// A sum begins with the bias and goes over the inputs in their order, whatever the other rows and columns are.
#pragma once
#include "compute/linear.h"

namespace dragoman::ISA {

constexpr int float_vectors = float_columns / native;
static_assert(float_columns % 16 == 0, "what comes after a product goes by 16 lanes");

// weight [outputs, inputs] to panels [inputs][float_columns]; these are zeros, which stay where there are no weights.
static void pack_floats(const float* weight, int outputs, int inputs, float* panels) {
  for (int n = 0; n < outputs; n++) {
    float* column = panels + (size_t)(n / float_columns) * inputs * float_columns + n % float_columns;
    for (int k = 0; k < inputs; k++) column[(size_t)k * float_columns] = weight[(size_t)n * inputs + k];
  }
}

template <int ROWS>
static void float_tile(const float* x, const float* panel, const float* bias, int inputs, float* sums) {
  typedef Lanes<float, native> Register;
  Register total[ROWS][float_vectors];
  unrolled<float_vectors>([&](auto v) INLINED {
    Register start;
    read(bias + v * native, start);
    unrolled<ROWS>([&](auto r) INLINED { total[r][v] = start; });
  });
  for (int k = 0; k < inputs; k++, panel += float_columns) {
    Register one[ROWS];
    unrolled<ROWS>([&](auto r) INLINED { spread(x[(size_t)r * inputs + k], one[r]); });
    unrolled<float_vectors>([&](auto v) INLINED {
      Register weight;
      read(panel + v * native, weight);
      keep_in_register(weight);  // else GCC loads it again for each row
      unrolled<ROWS>([&](auto r) INLINED { total[r][v] = total[r][v] + one[r] * weight; });
    });
  }
  unrolled<ROWS>([&](auto r) INLINED {
    unrolled<float_vectors>([&](auto v) INLINED { write(total[r][v], sums + r * float_columns + v * native); });
  });
}

template <int ROWS>
static inline void float_tile_of(int rows, const float* x, const float* panel, const float* bias, int inputs,
                                 float* sums) {
  if constexpr (ROWS > 1) {
    if (rows < ROWS) return float_tile_of<ROWS - 1>(rows, x, panel, bias, inputs, sums);
  }
  float_tile<ROWS>(x, panel, bias, inputs, sums);
}

// The sums of some rows in a panel of columns.
template <Activation A>
INLINE void finish_floats(const float* sums, int rows, int columns, const float* residual, int outputs, float* out) {
  for (int r = 0; r < rows; r++)
    for (int c = 0; c < columns; c += 16) {
      const size_t place = (size_t)r * outputs + c;
      Floats y = activated<A>(load(sums + r * float_columns + c));
      if (residual) y = y + load_up_to(residual + place, columns - c);
      store_up_to(out + place, y, columns - c);
    }
}

template <Activation A>
static void float_rows(const Linear& l, const float* x, int rows, const float* residual, float* out) {
  const PackedWeight& w = l.weight;
  const int tiles = (rows + most_float_rows - 1) / most_float_rows;
  alignas(64) float sums[most_float_rows * float_columns];
  for (int panel = 0; panel < w.panels; panel++) {
    const int at = panel * float_columns, left = w.outputs - at, columns = left < float_columns ? left : float_columns;
    const float* weights = (const float*)w.weights + (size_t)at * w.inputs;
    for (int tile = 0, row = 0; tile < tiles; tile++) {
      const int count = rows / tiles + (tile < rows % tiles);  // a tile of few rows takes as long as one of more
      float_tile_of<most_float_rows>(count, x + (size_t)row * w.inputs, weights, w.bias + at, w.inputs, sums);
      const size_t place = (size_t)row * w.outputs + at;
      finish_floats<A>(sums, count, columns, residual ? residual + place : nullptr, w.outputs, out + place);
      row += count;
    }
  }
}

// Rows go in blocks, and in a block a panel meets all rows before the next: more of them, and weights are read less often
// from memory; fewer, and rows stay nearer.
static void linear_of_floats(const Linear& l, const float* x, int rows, const float* residual, float* out) {
  constexpr int block = 384;
  const PackedWeight& w = l.weight;
  with_activation(l.activation, [&](auto of) {
    for (int row = 0; row < rows; row += block) {
      const int count = rows - row < block ? rows - row : block;
      const size_t place = (size_t)row * w.outputs;
      float_rows<of.activation>(l, x + (size_t)row * w.inputs, count, residual ? residual + place : nullptr,
                                out + place);
      for (int r = 0; l.norm != Norm::none && r < count; r++)
        normalise(out + place + (size_t)r * w.outputs, w.outputs, l);
    }
  });
}

// By the kind of its weight.
static int64_t any_linear(const Linear& l, const float* x, int rows, const float* residual, float* out,
                          Scratch& scratch) {
  if (l.weight.kind != Packed::floats) return linear(l, x, rows, residual, out, scratch);
  linear_of_floats(l, x, rows, residual, out);
  return 0;
}

}  // namespace dragoman::ISA
