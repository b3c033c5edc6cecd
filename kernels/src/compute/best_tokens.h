// The best tokens of each row and their log-probabilities; logits are never stored.
//
// All tokens are looked at in 8 bits. With x = a (q - z) + e and w = s v + d, v the quantized weight,
//   w x = a s (q - z) v  +  e (s v)  +  x d,
// so that by the Cauchy-Schwarz inequality a logit is within |e| |s v| + |x| |d| of the look at it. Rounding adds to
// that: an fp32 sum of n products in 16 chains is within (n / 16 + 5) 2^-24 |x| |w| of the real one (Higham 2002,
// section 3.1), the look itself is rounded four times, and adding the bias once more. `rounding` below is twice that
// and some. A token is a candidate unless its upper bound is below the k-th largest lower bound. Candidates are
// computed exactly.
//
// A log-probability also wants the sum of all exp(logit). It is exact for the best looks, as far as they matter, and by
// looks the rest, whose errors are drawn from one distribution and cancel, but for what all have in common: the mean of
// x w - look over all tokens, which is x mean(w) - a (q - z) mean(s v).
#pragma once
#include <math.h>

#include "compute/coarse.h"

namespace dragoman::ISA {

constexpr int most_summed = 256;      // so many of the best looks at most are computed exactly for the sum
constexpr int summed_in_order = 32;   // the best ones, after each of which there may be enough
constexpr double much = 0.01;         // of the sum: more that is of looks is too much
constexpr float summed_depth = 12;    // no look so far below the best is
constexpr double rest_share = 0.001;  // of the sum, which may be of looks
constexpr int most_found = 4 * most_best + most_summed;

struct Found {
  float look, off;  // off: how far it may be from the logit
  int32_t id;
};

// What is known of a row while tokens go by.
struct RowSearch {
  Floats total;              // of e^(look - most)
  float most;                // the best look
  float error_norm, x_norm;  // with the rounding
  float last_kept;           // no look below it is wanted for the sum
  float common;              // what the looks are too low by, all together
  int count;
  bool whole;               // too many candidates: the row will be computed whole
  float lowers[most_best];  // the k largest lower bounds, largest first
  Found found[most_found];
};

static float nth_largest_look(const RowSearch& row, int n) {
  float x[most_found + 16];
  for (int i = 0; i < row.count; i++) x[i] = row.found[i].look;
  return nth_largest(x, row.count, n);
}

// Without branches, which no processor would foresee.
INLINE bool is_wanted(const RowSearch& row, int k, const Found& f) {
  return (f.look >= row.last_kept) | (f.look + f.off >= row.lowers[k - 1]);
}

static void sort_out(RowSearch& row, int k) {
  if (row.count > most_summed) {
    const float last = nth_largest_look(row, most_summed);
    row.last_kept = last > row.last_kept ? last : row.last_kept;
  }
  int kept = 0;
  for (int i = 0; i < row.count; i++) {
    const Found f = row.found[i];
    row.found[kept] = f;
    kept += is_wanted(row, k, f);
  }
  row.count = kept;
  row.whole = row.whole || kept > most_found - 32;
}

// Looks below it are of no interest, where no look is off by more than `off`.
INLINE float threshold(const RowSearch& row, int k, float off) {
  const float candidate = row.lowers[k - 1] - off;
  return candidate < row.last_kept ? candidate : row.last_kept;
}

INLINE void note_lower(RowSearch& row, int k, float lower) {
  int at = k - 1;
  if (!(lower > row.lowers[at])) return;
  for (; at > 0 && row.lowers[at - 1] < lower; at--) row.lowers[at] = row.lowers[at - 1];
  row.lowers[at] = lower;
}

// 16 looks, of which those from `least` on may be wanted. off_of(i): how far the i-th may be off. What is summed so far
// must not depend on how many tokens are wanted of the row, so `most` follows all looks.
template <class Id, class Off>
__attribute__((noinline)) static void consider(RowSearch& row, int k, Floats looks, float least, Id id_of,
                                               Off off_of) {
  const float best = largest(looks);
  if (best > row.most) {
    row.total = row.total * exponential(all(row.most - best));
    row.most = best;
    if (best - summed_depth > row.last_kept) row.last_kept = best - summed_depth;
  }
  float x[16];
  store(x, looks);
  for (uint32_t left = bits(looks >= all(least)); left && !row.whole; left &= left - 1) {
    const int i = __builtin_ctz(left);
    const Found f{x[i], off_of(i), id_of(i)};
    if (!is_wanted(row, k, f)) continue;
    note_lower(row, k, f.look - f.off);
    row.found[row.count++] = f;
    if (row.count == most_found) sort_out(row, k);
  }
}

INLINE float off(const RowSearch& row, const float* weight_norms, const float* rest_norms, const float* bias_slack,
                 int i) {
  return row.error_norm * weight_norms[i] + row.x_norm * rest_norms[i] + bias_slack[i];
}

// A panel of looks at a time.
struct LookAtPanels {
  const BestTokens& b;
  const int k;
  const float* row_scales;
  RowSearch* searches;

  MEMBER void operator()(int first, int count, int panel, const int32_t* sums) {
    constexpr int parts = columns / 16;
    const int at = panel * columns;
    const float* bounds = b.panel_bounds + 3 * panel;
    for (int r = 0; r < count; r++) {
      RowSearch& row = searches[first + r];
      const float least = threshold(row, k, off(row, bounds, bounds + 1, bounds + 2, 0));
      Floats looks[parts], best = all(lowest);
      for (int p = 0; p < parts; p++) {
        looks[p] = scaled(sums + r * columns + 16 * p, b.look, at + 16 * p, row_scales[first + r]) +
                   load(b.look.bias + at + 16 * p);
        best = larger(looks[p], best);
      }
      if (__builtin_expect(any(best >= all(least)), 0)) consider_panel(row, looks, least, at);
      const Floats most = all(row.most);
      Floats total = row.total;
      for (int p = 0; p < parts; p++) total = total + power_of_two((looks[p] - most) * all(log2_e));
      row.total = total;
    }
  }

  __attribute__((noinline)) void consider_panel(RowSearch& row, const Floats* looks, float least, int at) {
    for (int p = 0; p < columns / 16; p++, at += 16)
      if (any(looks[p] >= all(least)))
        consider(
            row, k, looks[p], least, [&](int i) { return at + i; },
            [&](int i) { return off(row, b.weight_norms, b.rest_norms, b.bias_slack, at + i); });
  }
};

constexpr int ahead = 24;  // tokens: the processor cannot foresee where those that have names lie

// What the look at a token reads.
INLINE void prefetch_look(const BestTokens& b, int32_t id) {
  const int8_t* weight = b.row_major + (size_t)id * b.table.width;
  for (int at = 0; at < b.table.width; at += 64) __builtin_prefetch(weight + at);
  __builtin_prefetch(b.look.scales + id);
  __builtin_prefetch(b.look.bias + id);
}

// Tokens by name, 16 at a time. q: the row in 8 bits.
static void look_at_allowed(const BestTokens& b, int k, RowSearch& row, const uint8_t* q, float row_scale,
                            const int32_t* allowed, int places, int16_t* centred) {
  const int width = b.table.width;
  for (int i = 0; i < width; i++) centred[i] = (int16_t)(q[i] - b.quantization.zero_point);
  int count = 0;
  while (count < places && allowed[count] >= 0) count++;
  for (int i = 0; i < ahead && i < count; i++) prefetch_look(b, allowed[i]);
  const float most_off = off(row, b.bounds, b.bounds + 1, b.bounds + 2, 0);
  for (int first = 0; first < count; first += 16) {
    const int32_t* ids = allowed + first;
    alignas(64) int32_t sums[16] = {};
    alignas(64) float scales[16] = {}, bias[16];
    for (int i = 0; i < 16; i++) bias[i] = -__builtin_inff();
    for (int i = 0; i < 16 && first + i < count; i++) {
      if (first + i + ahead < count) prefetch_look(b, ids[i + ahead]);
      const int8_t* weight = b.row_major + (size_t)ids[i] * width;
      int32_t total = 0;
      for (int j = 0; j < width; j++) total += centred[j] * weight[j];
      sums[i] = total;
      scales[i] = b.look.scales[ids[i]];
      bias[i] = b.look.bias[ids[i]];
    }
    const Floats looks = converted(load(sums)) * (load(scales) * all(row_scale)) + load(bias);
    const float least = threshold(row, k, most_off);
    if (any(looks >= all(least)))
      consider(
          row, k, looks, least, [&](int i) { return ids[i]; },
          [&](int i) { return off(row, b.weight_norms, b.rest_norms, b.bias_slack, ids[i]); });
    row.total = row.total + exponential(looks - all(row.most));
  }
}

// Brings the n-th best look to its place, where the better ones are at theirs already; of equal ones the lower id.
INLINE void place_look(RowSearch& row, int n) {
  int next = n;
  for (int i = n + 1; i < row.count; i++) {
    const Found &f = row.found[i], &best = row.found[next];
    if (f.look > best.look || (f.look == best.look && f.id < best.id)) next = i;
  }
  const Found other = row.found[n];
  row.found[n] = row.found[next];
  row.found[next] = other;
}

INLINE float logit(const BestTokens& b, const float* x, int32_t id) { return logit(b.table, b.look.bias, x, id); }

// Whole numbers, whose sum does not depend on their order: what else is wanted of a row changes that. x <= 1.
INLINE int64_t in_parts(double x) { return (int64_t)(x * 0x1p50); }

// Sums up what is known of a row exactly. How many looks are computed for it does not depend on k, or a row's score
// would depend on what others in the batch ask for: the best ones in their order, and where these are too little, all
// that may be. A rest that the rounding of fp32 may have made is none.
struct ExactSum {
  const BestTokens& b;
  RowSearch& row;
  const float* x;
  const double total;
  int count = 0;  // of the looks that were found, the first so many are computed
  float logits[most_summed] = {};
  double most = lowest;
  int64_t looks = 0;  // e^(look - the best), in parts

  MEMBER double rest() const {
    const double left = total - (double)looks * 0x1p-50;
    return count > 0 && left < 4e-6 * total ? 0 : left;
  }
  MEMBER bool wanted(double share) const { return count < row.count && rest() > share * total; }

  // The i-th look will be computed.
  MEMBER void take(int i) {
    const Found f = row.found[i];
    row.found[i] = row.found[count];
    row.found[count] = f;
    looks += in_parts(exp((double)f.look - row.most));
    count++;
  }

  // Those from `first` on that were taken.
  MEMBER void compute(int first) {
    int32_t ids[most_summed];
    for (int i = first; i < count; i++) ids[i] = row.found[i].id;
    logits_of(b.table, b.look.bias, x, ids + first, count - first, logits + first);
    for (int i = first; i < count; i++) most = logits[i] > most ? logits[i] : most;
  }

  MEMBER void add_all() {
    float least = lowest;  // exclusive
    while (count < summed_in_order && wanted(rest_share)) {
      place_look(row, count);
      least = row.found[0].look - summed_depth;
      if (row.found[count].look < least) return;
      take(count);
      compute(count - 1);
    }
    if (!wanted(much)) return;
    if (row.count > most_summed) {
      const float next = nth_largest_look(row, most_summed + 1);
      least = next > least ? next : least;
    }
    const int first = count;
    for (int i = first; i < row.count; i++)
      if (row.found[i].look > least) {
        prefetch_row(b.table, row.found[i].id);
        take(i);
      }
    compute(first);
  }

  // The logarithm of the sum of all exponentials.
  MEMBER double logarithm() {
    const double most_of_rest = (double)row.most + row.common, left = rest();
    if (left > 0 && most_of_rest > most) most = most_of_rest;
    int64_t exactly = 0;
    for (int i = 0; i < count; i++) exactly += in_parts(exp(logits[i] - most));
    return most + log((left > 0 ? left * exp(most_of_rest - most) : 0) + (double)exactly * 0x1p-50);
  }
};

// What was found, exactly where it is wanted. Returns the logarithm of the sum of all exponentials.
static double choose(const BestTokens& b, RowSearch& row, const float* x, Best& best) {
  ExactSum summed{b, row, x, sum(row.total)};
  if (b.exact) summed.add_all();
  for (int i = 0; i < row.count; i++) {
    const Found& f = row.found[i];
    if (i < summed.count)
      best.add(summed.logits[i], f.id);
    else if (!b.exact)
      best.add(f.look, f.id);
    else if (f.look + f.off >= row.lowers[best.k - 1])
      best.add(logit(b, x, f.id), f.id);
  }
  return summed.logarithm();
}

INLINE void begin(RowSearch& row, int k, const BestTokens& b, const float* x, const uint8_t* q, float scale) {
  const int n = b.table.width;
  Floats squares = all(0.f), errors = all(0.f), common = all(0.f);
  for (int i = 0; i < n; i += 16) {
    const Floats v = load_up_to(x + i, n - i);
    int32_t back[16] = {};
    for (int j = 0; j < 16 && i + j < n; j++) back[j] = q[i + j] - b.quantization.zero_point;
    const Floats looked_at = converted(load(back)) * all(scale), error = v - looked_at;
    squares = squares + v * v;
    errors = errors + error * error;
    common = common + v * load_up_to(b.mean_weight + i, n - i) - looked_at * load_up_to(b.mean_look + i, n - i);
  }
  const float rounding = (float)(n / 16 + 24) * 0x1p-23f;
  const float x_norm = __builtin_sqrtf(sum(squares)) * 1.00001f;
  const float error_norm = __builtin_sqrtf(sum(errors)) * 1.00001f + x_norm * 0x1p-22f;
  row.x_norm = x_norm + rounding * (x_norm + error_norm);
  row.error_norm = error_norm + rounding * (x_norm + error_norm);
  if (!b.exact) row.x_norm = row.error_norm = 0;  // the look is the answer
  row.common = b.exact ? sum(common) : 0.f;  // else it is in both, the logits and their sum
  row.total = all(0.f);
  row.most = row.last_kept = lowest;
  for (int i = 0; i < k; i++) row.lowers[i] = lowest;
  row.count = 0;
  row.whole = false;
}

// The logarithm of the sum for a row that is computed whole because many tokens are wanted: what it is where one is, or
// a row's score would depend on what others in the batch ask for.
static double total_where_one_is_wanted(const BestTokens& b, const float* x, float scale, const int32_t* allowed,
                                        int places, RowSearch& row, ByteRows& bytes, int16_t* centred) {
  quantize_row(x, b.table.width, scale, false, b.quantization.zero_point, b.look.depth, bytes.row(0));
  begin(row, 1, b, x, bytes.row(0), scale);
  if (allowed) {
    row.common = 0;
    look_at_allowed(b, 1, row, bytes.row(0), scale, allowed, places, centred);
  } else {
    bytes.done(0);
    LookAtPanels each{b, 1, &scale, &row};
    multiply(b.look, bytes.bytes(), 1, each);
  }
  sort_out(row, 1);
  Best best{1, 0, {}, {}};
  return row.whole ? choose_from_all(b.table, b.look.bias, x, allowed, places, best) : choose(b, row, x, best);
}

// normalisers: the logarithm of the sum of each row's exponentials [rows]; null where nobody wants them.
static Counts best_tokens(const BestTokens& b, const float* x, int rows, int k, const int32_t* allowed, int places,
                          int64_t* ids, float* log_probs, float* normalisers, Scratch& scratch) {
  if (b.coarse.keys.outputs && !allowed)
    return best_tokens_coarsely(b, x, rows, k, ids, log_probs, normalisers, scratch);
  const int width = b.table.width;
  Counts counts{rows, 0, 0};
  float* scales = scratch.take<float>(rows);
  RowSearch* searches = scratch.take<RowSearch>(rows);
  int16_t* centred = scratch.take<int16_t>(width);
  ByteRows bytes(rows, b.look, scratch), again(1, b.look, scratch);
  RowSearch* one = scratch.take<RowSearch>(1);
  for (int r = 0; r < rows; r++) {
    const float* row = x + (size_t)r * width;
    scales[r] = scale_of(row, b.look, b.quantization);
    const Quantization& q = b.quantization;
    counts.saturated += quantize_row(row, width, scales[r], q.scale > 0, q.zero_point, b.look.depth, bytes.row(r));
    begin(searches[r], k, b, row, bytes.row(r), scales[r]);
    if (allowed) {
      searches[r].common = 0;  // it is that of all tokens
      look_at_allowed(b, k, searches[r], bytes.row(r), scales[r], allowed + (size_t)r * places, places, centred);
    } else {
      bytes.done(r);
    }
  }
  if (!allowed) {
    LookAtPanels each{b, k, scales, searches};
    multiply(b.look, bytes.bytes(), rows, each);
  }
  for (int r = 0; r < rows; r++, x += width, ids += k, log_probs += k) {
    Best best{k, 0, {}, {}};
    if (scales[r] == scales[r]) {
      sort_out(searches[r], k);
      counts.whole_rows += searches[r].whole;
      const int32_t* named = allowed ? allowed + (size_t)r * places : nullptr;
      double log_total =
          searches[r].whole ? choose_from_all(b.table, b.look.bias, x, named, places, best)
                            : choose(b, searches[r], x, best);
      if (searches[r].whole && k > 1)
        log_total = total_where_one_is_wanted(b, x, scales[r], named, places, *one, again, centred);
      write_best(best, log_total, ids, log_probs);
      if (normalisers) normalisers[r] = (float)log_total;
    } else {
      if (normalisers) normalisers[r] = __builtin_nanf("");
      write_none(k, ids, log_probs);
    }
  }
  return counts;
}

}  // namespace dragoman::ISA
