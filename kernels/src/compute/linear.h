// QuantLinear: products of rows of u8 or s16, and what is done with their sums.
#pragma once
#include "compute/norm.h"
#include "compute/product.h"
#include "compute/quantize.h"

namespace dragoman::ISA {

template <Activation A>
struct Of {
  static constexpr Activation activation = A;
};

// Calls `use` with an activation as a type.
template <class Use>
INLINE void with_activation(Activation activation, Use use) {
  switch (activation) {
    case Activation::none:
      return use(Of<Activation::none>{});
    case Activation::relu:
      return use(Of<Activation::relu>{});
    case Activation::gelu:
      return use(Of<Activation::gelu>{});
    case Activation::gelu_tanh:
      return use(Of<Activation::gelu_tanh>{});
    case Activation::swish:
      return use(Of<Activation::swish>{});
  }
}

template <Activation A>
INLINE Floats activated(Floats x) {
  if constexpr (A == Activation::relu) return relu(x);
  if constexpr (A == Activation::gelu) return gelu(x);
  if constexpr (A == Activation::gelu_tanh) return gelu_tanh(x);
  if constexpr (A == Activation::swish) return x * sigmoid(x);
  return x;
}

// sums * (scale of the column * scale of the row), 16 columns from `at` on.
INLINE Floats scaled(const int32_t* sums, const PackedWeight& w, int at, float row_scale) {
  return converted(load(sums)) * (load(w.scales + at) * all(row_scale));
}

// Of the high digits of x: kept for the low ones.
struct KeepHigh {
  const PackedWeight& w;
  float* out;

  MEMBER void operator()(int row, int count, int panel, const int32_t* sums) {
    for (int r = 0; r < count; r++)
      for (int c = 0; c < columns; c += 16) {
        const int at = panel * columns + c, n = w.outputs - at;
        if (n <= 0) break;
        store_up_to(out + (size_t)(row + r) * w.outputs + at, converted(load(sums + r * columns + c)) * all(256.f), n);
      }
  }
};

// The rest of the layer, to fp32. With `digits`, `out` holds the high ones' sums.
template <Activation A, bool DIGITS>
struct Finish {
  const Linear& l;
  const float *row_scales, *residual;
  float* out;

  MEMBER void operator()(int row, int count, int panel, const int32_t* sums) {
    const PackedWeight& w = l.weight;
    for (int c = 0; c < columns; c += 16) {
      const int at = panel * columns + c, n = w.outputs - at;
      if (n <= 0) break;
      const Floats scale = load(w.scales + at), bias = load(w.bias + at);
      const size_t width = w.outputs;
      size_t place = row * width + at;
      for (int r = 0; r < count; r++, place += width) {
        Floats y = converted(load(sums + r * columns + c));
        if constexpr (DIGITS) y = y + load_up_to(out + place, n);
        y = activated<A>(y * (scale * all(row_scales[row + r])) + bias);
        if (residual) y = y + load_up_to(residual + place, n);
        store_up_to(out + place, y, n);
      }
    }
  }
};

// Of rows of high digits, behind which those of the low ones come: in a panel a row's high sums come first.
template <Activation A>
struct FinishDigits {
  int rows;
  KeepHigh keep;
  Finish<A, true> finish;

  MEMBER void operator()(int row, int count, int panel, const int32_t* sums) {
    const int before = rows - row, high = before < 0 ? 0 : before < count ? before : count;
    if (high > 0) keep(row, high, panel, sums);
    if (high < count) finish(row + high - rows, count - high, panel, sums + high * columns);
  }
};

INLINE void normalise_rows(const Linear& l, int rows, float* out) {
  if (l.norm == Norm::none) return;
  for (int r = 0; r < rows; r++) normalise(out + (size_t)r * l.weight.outputs, l.weight.outputs, l);
}

template <class Rows>
static void finish(const Linear& l, const Rows& x, int rows, const float* row_scales, const float* residual,
                   float* out) {
  with_activation(l.activation, [&](auto of) {
    Finish<of.activation, false> each{l, row_scales, residual, out};
    multiply(l.weight, x, rows, each);
  });
  normalise_rows(l, rows, out);
}

// The scale of a row; not a number where the row is not finite, so that all that is made of it is none either.
INLINE float scale_of(const float* x, const PackedWeight& w, const Quantization& q) {
  const RowFacts facts = row_facts(x, w.inputs);
  const float scale = q.scale > 0 ? q.scale : row_scale(facts.largest, q.zero_point);
  return facts.finite ? scale : __builtin_nanf("");
}

static int64_t quantize_rows(const PackedWeight& w, const Quantization& q, const float* x, int rows, float* scales,
                             ByteRows& bytes) {
  int64_t saturated = 0;
  for (int r = 0; r < rows; r++) {
    const float* row = x + (size_t)r * w.inputs;
    scales[r] = scale_of(row, w, q);
    saturated += quantize_row(row, w.inputs, scales[r], q.scale > 0, q.zero_point, w.depth, bytes.row(r));
    bytes.done(r);
  }
  return saturated;
}

static int64_t linear_of_digits(const Linear& l, const float* x, int rows, const float* residual, float* out,
                                Scratch& scratch) {
  const PackedWeight& w = l.weight;
  float* scales = scratch.take<float>(rows);
  ByteRows bytes(2 * rows, w, scratch);
  uint8_t* low = scratch.take<uint8_t>(w.depth);
  int64_t saturated = 0;
  for (int r = 0; r < rows; r++) {
    const float* row = x + (size_t)r * w.inputs;
    const float scale = scale_of(row, w, l.quantization);
    const int64_t beyond =
        quantize_row_finely(row, w.inputs, scale, l.quantization.zero_point, w.depth, bytes.row(r), low);
    if (l.quantization.scale > 0) saturated += beyond;
    scales[r] = scale / 257.f;
    bytes.done(r);
    memcpy(bytes.row(rows + r), low, w.depth);
    bytes.done(rows + r);
  }
  with_activation(l.activation, [&](auto of) {
    FinishDigits<of.activation> each{rows, {w, out}, {l, scales, residual, out}};
    multiply(w, bytes.bytes(), 2 * rows, each);
  });
  normalise_rows(l, rows, out);
  return saturated;
}

// Each row by the scale that lets its products fit. Of one that is not finite, all that is made is not a number.
static int64_t linear_of_words(const Linear& l, const float* x, int rows, const float* residual, float* out,
                               Scratch& scratch) {
  const PackedWeight& w = l.weight;
  float* scales = scratch.take<float>(rows);
  WordRows words(rows, w, scratch);
  for (int r = 0; r < rows; r++) {
    const float* row = x + (size_t)r * w.inputs;
    const RowFacts facts = row_facts(row, w.inputs);
    const float factor = facts.finite ? word_factor(row, w.inputs, facts.largest) : 0.f;
    scales[r] = facts.finite ? 1.f / factor : __builtin_nanf("");
    quantize_words(row, w.inputs, factor, w.depth, words.row(r));
    words.done(r);
  }
  finish(l, words.words(), rows, scales, residual, out);
  return 0;
}

static int64_t linear(const Linear& l, const float* x, int rows, const float* residual, float* out, Scratch& scratch) {
  if (l.weight.kind == Packed::words) return linear_of_words(l, x, rows, residual, out, scratch);
  if (l.quantization.bits == 16) return linear_of_digits(l, x, rows, residual, out, scratch);
  float* scales = scratch.take<float>(rows);
  ByteRows bytes(rows, l.weight, scratch);
  const int64_t saturated = quantize_rows(l.weight, l.quantization, x, rows, scales, bytes);
  finish(l, bytes.bytes(), rows, scales, residual, out);
  return saturated;
}

static int64_t linear_of_bytes(const Linear& l, const uint8_t* x, int rows, const float* residual, float* out,
                               Scratch& scratch) {
  const PackedWeight& w = l.weight;
  float* scales = scratch.take<float>(rows);
  ByteRows bytes(rows, w, scratch);
  for (int r = 0; r < rows; r++) {
    scales[r] = l.quantization.scale;
    memcpy(bytes.row(r), x + (size_t)r * w.inputs, w.inputs);
    memset(bytes.row(r) + w.inputs, 0, w.depth - w.inputs);
    bytes.done(r);
  }
  finish(l, bytes.bytes(), rows, scales, residual, out);
  return 0;
}

static void gate(const float* x, Activation activation, int rows, int width, float* out) {
  with_activation(activation, [&](auto of) {
    for (int r = 0; r < rows; r++, x += 2 * width, out += width)
      for (int i = 0; i < width; i += 16) {
        const int n = width - i;
        store_up_to(out + i, activated<of.activation>(load_up_to(x + i, n)) * load_up_to(x + width + i, n), n);
      }
  });
}

// With ReLU, and quantized for the next layer.
struct FinishBytes {
  const Linear& l;
  const float* row_scales;
  uint8_t* out;
  Ints saturated;

  MEMBER void operator()(int row, int count, int panel, const int32_t* sums) {
    const PackedWeight& w = l.weight;
    const Floats inverse = all(1.f / l.out_scale);
    const int at = panel * columns, n = w.outputs - at < columns ? w.outputs - at : columns;
    for (int r = 0; r < count; r++) {
      uint8_t* bytes = out + (size_t)(row + r) * w.outputs + at;
      for (int c = 0; c < n; c += 16) {
        const Floats y = relu(scaled(sums + r * columns + c, w, at + c, row_scales[row + r]) + load(w.bias + at + c));
        store_bytes(bytes + c, quantized<true>(y, inverse, 0.f, 255.f, saturated), n - c);
      }
    }
  }
};

static int64_t linear_to_bytes(const Linear& l, const float* x, int rows, uint8_t* out, Scratch& scratch) {
  float* scales = scratch.take<float>(rows);
  ByteRows bytes(rows, l.weight, scratch);
  const int64_t saturated = quantize_rows(l.weight, l.quantization, x, rows, scales, bytes);
  FinishBytes each{l, scales, out, all((int32_t)0)};
  multiply(l.weight, bytes.bytes(), rows, each);
  return saturated + total(each.saturated);
}

}  // namespace dragoman::ISA
