// Logits of single tokens, exactly, and the best of them.
#pragma once
#include "compute/embed.h"

namespace dragoman::ISA {

constexpr int most_best = 64;

template <class T>
static float dot(const float* x, const T* w, int n) {
  Floats total = all(0.f);
  for (int i = 0; i < n; i += 16) total = total + load_up_to(x + i, n - i) * load_numbers(w + i, n - i);
  return sum(total);
}

// What logit() will read.
INLINE void prefetch_row(const Table& t, int64_t id) {
  const size_t bytes = (size_t)t.width * (t.number == Number::float32 ? 4 : t.number == Number::float16 ? 2 : 1);
  for (size_t at = 0; at < bytes; at += 64) __builtin_prefetch((const char*)t.rows + (size_t)id * bytes + at);
}

static float logit(const Table& t, const float* bias, const float* x, int64_t id) {
  const size_t at = (size_t)id * t.width;
  switch (t.number) {
    case Number::float32:
      return dot(x, (const float*)t.rows + at, t.width) + bias[id];
    case Number::float16:
      return dot(x, (const uint16_t*)t.rows + at, t.width) + bias[id];
    case Number::int8:
      return dot(x, (const int8_t*)t.rows + at, t.width) * t.scales[id] + bias[id];
  }
  return 0;
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

// The n-th largest of x (Hoare 1961, algorithm 65), which is left in another order.
static float nth_largest(float* x, int count, int n) {
  for (int first = 0, last = count - 1; first < last;) {
    const float pivot = x[(first + last) / 2];
    int i = first, j = last;
    while (i <= j) {
      while (x[i] > pivot) i++;
      while (x[j] < pivot) j--;
      if (i > j) break;
      const float other = x[i];
      x[i++] = x[j];
      x[j--] = other;
    }
    if (n - 1 <= j)
      last = j;
    else if (n - 1 >= i)
      first = i;
    else
      break;
  }
  return x[n - 1];
}

// Every token exactly: those allowed, or all.
static double choose_from_all(const Table& table, const float* bias, const float* x, const int32_t* allowed, int places,
                              Best& best) {
  double total = 0;
  float most = lowest;
  const int64_t n = allowed ? places : table.count;
  for (int64_t i = 0; i < n; i++) {
    if (allowed && allowed[i] < 0) break;
    const int32_t id = allowed ? allowed[i] : (int32_t)i;
    const float y = logit(table, bias, x, id);
    if (y > most) {
      total *= exp((double)most - y);
      most = y;
    }
    total += exp((double)y - most);
    best.add(y, id);
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
    for (int i = 0; i < named; i++, ids++) *logits++ = *ids < 0 ? -__builtin_inff() : logit(table, bias, x, *ids);
}

}  // namespace dragoman::ISA
