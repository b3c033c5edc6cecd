// Rows of tables, and the recurrence.
#pragma once
#include "compute/functions.h"
#include "compute/table.h"

namespace dragoman::ISA {

template <class T>
INLINE Floats load_numbers(const T* p, int n) {
  if (n >= 16) return load16(p);
  T x[16] = {};
  memcpy(x, p, n * sizeof(T));
  return load16(x);
}

template <class T>
static void embed_from(const T* rows, const float* scales, int width, float scale, const int64_t* ids,
                       const int32_t* positions, const float* position_table, int count, float* out) {
  for (int r = 0; r < count; r++, out += width) {
    const T* row = rows + (size_t)ids[r] * width;
    const float* place = position_table ? position_table + (size_t)positions[r] * width : nullptr;
    const Floats times = all(scales ? scales[ids[r]] * scale : scale);
    for (int i = 0; i < width; i += 16) {
      const Floats token = load_numbers(row + i, width - i) * times;
      store_up_to(out + i, place ? token + load_up_to(place + i, width - i) : token, width - i);
    }
  }
}

static void embed(const Table& t, float scale, const int64_t* ids, const int32_t* positions,
                  const float* position_table, int rows, float* out) {
  switch (t.number) {
    case Number::float32:
      return embed_from((const float*)t.rows, nullptr, t.width, scale, ids, positions, position_table, rows, out);
    case Number::float16:
      return embed_from((const uint16_t*)t.rows, nullptr, t.width, scale, ids, positions, position_table, rows, out);
    case Number::int8:
      return embed_from((const int8_t*)t.rows, t.scales, t.width, scale, ids, positions, position_table, rows, out);
  }
}

// gates [rows, 2 * width]: forget, candidate. c = f c' + (1 - f) candidate, with f = sigmoid(forget); out = relu(c).
static void recurrence(const float* gates, float* states, const int32_t* slots, int rows, int width, float* out) {
  for (int r = 0; r < rows; r++, gates += 2 * width, out += width) {
    float* state = states + (size_t)slots[r] * width;
    for (int i = 0; i < width; i += 16) {
      const int n = width - i;
      const Floats keep = sigmoid(load_up_to(gates + i, n));
      const Floats added = (all(1.f) - keep) * load_up_to(gates + width + i, n);
      const Floats next = keep * load_up_to(state + i, n) + added;
      store_up_to(state + i, next, n);
      store_up_to(out + i, relu(next), n);
    }
  }
}

}  // namespace dragoman::ISA
