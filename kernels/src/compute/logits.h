// Logits of single tokens, exactly, and the best of them.
#pragma once
#include "compute/embed.h"

namespace dragoman::ISA {

constexpr int most_best = 64;

// Products of x with some rows, in 16 chains each, so that none depends on how many there are.
template <int ROWS, class T>
INLINE void dots(const float* x, const T* const* rows, int n, float* products) {
  Floats total[ROWS];
  unrolled<ROWS>([&](auto r) INLINED { total[r] = all(0.f); });
  int i = 0;
  for (; i + 16 <= n; i += 16) {
    const Floats part = load(x + i);
    unrolled<ROWS>([&](auto r) INLINED { total[r] = total[r] + part * load16(rows[r] + i); });
  }
  if (i < n) {
    const Floats part = load_part(x + i, n - i);
    unrolled<ROWS>([&](auto r) INLINED { total[r] = total[r] + part * load_numbers(rows[r] + i, n - i); });
  }
  unrolled<ROWS>([&](auto r) INLINED { products[r] = sum(total[r]); });
}

template <class T>
static float dot(const float* x, const T* w, int n) {
  float product;
  dots<1>(x, &w, n, &product);
  return product;
}

// What logit() will read.
INLINE void prefetch_row(const Table& t, int64_t id) {
  const size_t bytes = (size_t)t.width * (t.number == Number::float32 ? 4 : t.number == Number::float16 ? 2 : 1);
  for (size_t at = 0; at < bytes; at += 64) __builtin_prefetch((const char*)t.rows + (size_t)id * bytes + at);
}

// each(i, product of x and row(i)), four at a time, which wait for memory and for sums together.
template <class Row, class Each>
INLINE void dots_of(const float* x, int width, int count, const Row& row, const Each& each) {
  int i = 0;
  for (; i + 4 <= count; i += 4) {
    const decltype(row(0)) rows[] = {row(i), row(i + 1), row(i + 2), row(i + 3)};
    float products[4];
    dots<4>(x, rows, width, products);
    for (int j = 0; j < 4; j++) each(i + j, products[j]);
  }
  for (; i < count; i++) each(i, dot(x, row(i), width));
}

template <class T>
INLINE const T* row_of(const Table& t, int32_t id) {
  return (const T*)t.rows + (size_t)id * t.width;
}

static void logits_of(const Table& t, const float* bias, const float* x, const int32_t* ids, int count, float* logits) {
  const auto plain = [&](int i, float product) INLINED { logits[i] = product + bias[ids[i]]; };
  const auto scaled = [&](int i, float product) INLINED { logits[i] = product * t.scales[ids[i]] + bias[ids[i]]; };
  switch (t.number) {
    case Number::float32:
      return dots_of(x, t.width, count, [&](int i) INLINED { return row_of<float>(t, ids[i]); }, plain);
    case Number::float16:
      return dots_of(x, t.width, count, [&](int i) INLINED { return row_of<uint16_t>(t, ids[i]); }, plain);
    case Number::int8:
      return dots_of(x, t.width, count, [&](int i) INLINED { return row_of<int8_t>(t, ids[i]); }, scaled);
  }
}

INLINE float logit(const Table& t, const float* bias, const float* x, int32_t id) {
  float y;
  logits_of(t, bias, x, &id, 1, &y);
  return y;
}

// Best first; of equal ones the lower id, as torch.argmax.
struct Best {
  int k, count;
  float logits[most_best];
  int32_t ids[most_best];

  MEMBER bool before(float y, int32_t id, int i) const { return y > logits[i] || (y == logits[i] && id < ids[i]); }
  MEMBER void add(float y, int32_t id) {
    if (!(y > -__builtin_inff()) || (count == k && !before(y, id, k - 1))) return;
    int at = count < k ? count++ : k - 1;
    for (; at > 0 && before(y, id, at - 1); at--) {
      logits[at] = logits[at - 1];
      ids[at] = ids[at - 1];
    }
    logits[at] = y;
    ids[at] = id;
  }
};

// Whole numbers in the order of the numbers, as far apart as there are others between them. Its own inverse.
INLINE int32_t rank(int32_t bits) { return bits < 0 ? bits ^ 0x7fffffff : bits; }
INLINE int32_t rank(float x) {
  int32_t bits;
  memcpy(&bits, &x, 4);
  return rank(bits);
}
INLINE float of_rank(int32_t number) {
  const int32_t bits = rank(number);
  float x;
  memcpy(&x, &bits, 4);
  return x;
}

// How many are no less than `least`. x: filled up to 16 with what is.
INLINE int count_from(const float* x, int count, float least) {
  Ints counts = all(0);
  for (int i = 0; i < count; i += 16) counts = counts - (load(x + i) >= all(least));
  return joined(counts, [](auto a, auto b) INLINED { return a + b; });
}

// The n-th largest of x, behind which is room for 16: halves what it may be. Nothing is moved, so nothing depends on
// what a processor cannot foresee.
static float nth_largest(float* x, int count, int n) {
  for (int i = 0; i < 16; i++) x[count + i] = -__builtin_inff();
  Floats most = load(x), least = all(x[0]);
  for (int i = 0; i < count; i += 16) {
    const Floats some = load(x + i);
    most = larger(some, most);
    least = smaller(where(some >= all(lowest), some, least), least);
  }
  int32_t low = rank(smallest(least)), high = rank(largest(most));
  while (low < high) {
    const int32_t middle = (int32_t)(low + ((int64_t)high - low + 1) / 2);
    if (count_from(x, count, of_rank(middle)) >= n)
      low = middle;
    else
      high = middle - 1;
  }
  return of_rank(low);
}

// Every token exactly: those allowed, or all.
static double choose_from_all(const Table& table, const float* bias, const float* x, const int32_t* allowed, int places,
                              Best& best) {
  double total = 0;
  float most = lowest;
  const int64_t tokens = allowed ? places : table.count;
  for (int64_t first = 0; first < tokens; first += 16) {
    int32_t ids[16];
    float logits[16];
    int count = 0;
    for (; count < 16 && first + count < tokens; count++) {
      ids[count] = allowed ? allowed[first + count] : (int32_t)(first + count);
      if (ids[count] < 0) break;
    }
    for (int i = 0; i < 16; i++) logits[i] = -__builtin_inff();
    logits_of(table, bias, x, ids, count, logits);
    const Floats some = load(logits);
    if (best.count < best.k || any(some >= all(best.logits[best.k - 1])))
      for (int i = 0; i < count; i++) best.add(logits[i], ids[i]);
    const float largest_of_some = largest(some);
    if (largest_of_some > most) {
      total *= exp((double)most - largest_of_some);
      most = largest_of_some;
    }
    total += sum(exponential(some - all(most)));
    if (count < 16) break;
  }
  return most + log(total);
}

static void write_best(const Best& best, double log_total, int64_t* ids, float* log_probs) {
  for (int i = 0; i < best.k; i++) {
    ids[i] = i < best.count ? best.ids[i] : -1;
    log_probs[i] = i < best.count ? (float)(best.logits[i] - log_total) : -__builtin_inff();
  }
}

// Of a row that is not finite.
static void write_none(int k, int64_t* ids, float* log_probs) {
  for (int i = 0; i < k; i++) {
    ids[i] = -1;
    log_probs[i] = __builtin_nanf("");
  }
}

// The logits of some tokens, to the last bit as best_tokens has them.
static void named_tokens(const Table& table, const float* bias, const float* x, int rows, const int64_t* ids, int named,
                         float* logits) {
  for (int r = 0; r < rows; r++, x += table.width)
    for (int i = 0; i < named; i++, ids++)
      *logits++ = *ids < 0 ? -__builtin_inff() : logit(table, bias, x, (int32_t)*ids);
}

}  // namespace dragoman::ISA
