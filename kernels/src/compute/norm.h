// Layer normalisation, and by the root of the mean square.
#pragma once
#include "compute/functions.h"
#include "compute/table.h"

namespace dragoman::ISA {

INLINE Floats masked(Floats a, int n) {
  if (n >= 16) return a;
  float x[16] = {};
  store_part(x, a, n);
  return load(x);
}

static float mean_of(const float* x, int n) {
  Floats total = all(0.f);
  for (int i = 0; i < n; i += 16) total = total + load_up_to(x + i, n - i);
  return sum(total) / (float)n;
}

static float mean_square_of(const float* x, int n, float mean) {
  Floats total = all(0.f);
  for (int i = 0; i < n; i += 16) {
    const Floats v = masked(load_up_to(x + i, n - i) - all(mean), n - i);
    total = total + v * v;
  }
  return sum(total) / (float)n;
}

// A row in place.
static void normalise(float* x, int n, const Linear& l) {
  const float mean = l.norm == Norm::layer ? mean_of(x, n) : 0.f;
  const float inverse = 1.f / __builtin_sqrtf(mean_square_of(x, n, mean) + l.epsilon);
  for (int i = 0; i < n; i += 16) {
    Floats v = (load_up_to(x + i, n - i) - all(mean)) * all(inverse) * load_up_to(l.gamma + i, n - i);
    if (l.beta) v = v + load_up_to(l.beta + i, n - i);
    store_up_to(x + i, v, n - i);
  }
}

// residual may be null.
static void residual_norm(const float* x, const float* residual, int rows, int width, const Linear& l, float* out) {
  for (int r = 0; r < rows; r++, x += width, out += width) {
    for (int i = 0; i < width; i += 16) {
      const Floats v = load_up_to(x + i, width - i);
      store_up_to(out + i, residual ? v + load_up_to(residual + i, width - i) : v, width - i);
    }
    normalise(out, width, l);
    if (residual) residual += width;
  }
}

}  // namespace dragoman::ISA
