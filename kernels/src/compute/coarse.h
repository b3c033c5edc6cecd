// The best tokens of each row by a coarse look: all tokens by products of few numbers, and exactly those that look
// good.
//
// With the mean c of what rows are and the mean m of the tokens' weights, a logit is
//   w x + b = (w - m) (x - c)  +  m (x - c)  +  w c + b.
// Query and key are projections of x - c and w - m to few numbers, whose product is near the first term; the second is
// common to all tokens, and the third is the bias of a token's key (SVD-softmax: Shim et al. 2017). No bound says how
// far a look is off: what a token must look like so that its logit is computed, `margin`, was measured where the
// package was made. It holds for rows like those that were seen there: of a row that has much of what a look leaves
// out, which a few sums of it tell, all logits are computed. What a row gets depends on nothing but the row: neither
// on its batch mates nor on how many tokens are wanted.
#pragma once
#include "compute/linear.h"
#include "compute/logits.h"

namespace dragoman::ISA {

constexpr int most_seen = 512, most_computed = 256, least_computed = 16;  // tokens of a row
constexpr float seen_depth = 12;                     // looks so far below the best are not summed

struct Seen {
  float look;
  int32_t id;
};

// What is known of a row while tokens go by.
struct CoarseRow {
  Floats total;  // of e^(look - most)
  float most;    // the best look
  float least;   // a panel of looks below it is of no interest
  float raised;  // so many were seen that looks below it are not kept
  int count;
  bool strange;            // its looks say little
  float bests[most_best];  // the best looks, best first: k, and `least_computed`
  Seen seen[most_seen];
};

// Looks from here on are those within the margin, or of the n best.
INLINE float least_of(const CoarseRow& row, float margin, int n) {
  const float near = row.most - margin, nth = row.bests[n - 1];
  return near < nth ? near : nth;
}

// Looks from here on are kept.
INLINE float least_kept(const CoarseRow& row, float margin, int kept) {
  const float least = least_of(row, margin, kept);
  return least > row.raised ? least : row.raised;
}

static float nth_largest_look(const Seen* seen, int count, int n) {
  float looks[most_seen];
  for (int i = 0; i < count; i++) looks[i] = seen[i].look;
  return nth_largest(looks, count, n);
}

// Forgets what is not wanted any more and, of many, all but the best.
static void sort_out(CoarseRow& row, float margin, int kept_best) {
  const float least = least_kept(row, margin, kept_best);
  int kept = 0;
  for (int i = 0; i < row.count; i++)
    if (row.seen[i].look >= least) row.seen[kept++] = row.seen[i];
  row.count = kept;
  if (kept <= most_computed) return;
  row.raised = nth_largest_look(row.seen, kept, most_computed);
  int above = 0;
  for (int i = 0; i < kept; i++) above += row.seen[i].look > row.raised;
  row.count = 0;
  for (int i = 0, equal = most_computed - above; i < kept; i++)
    if (row.seen[i].look > row.raised || (row.seen[i].look == row.raised && equal-- > 0))
      row.seen[row.count++] = row.seen[i];
}

INLINE void note_best(CoarseRow& row, float look, int kept) {
  int at = kept - 1;
  if (!(look > row.bests[at])) return;
  for (; at > 0 && row.bests[at - 1] < look; at--) row.bests[at] = row.bests[at - 1];
  row.bests[at] = look;
}

// A panel of looks at a time.
struct LookCoarsely {
  const CoarseLook& c;
  const int kept;  // so many of the best looks at least
  const float* row_scales;
  CoarseRow* found;
  static constexpr int parts = columns / 16;

  MEMBER void operator()(int first, int count, int panel, const int32_t* sums) {
    const int at = panel * columns;
    for (int r = 0; r < count; r++) {
      Floats looks[parts], best = all(-__builtin_inff());
      for (int p = 0; p < parts; p++) {
        looks[p] = scaled(sums + r * columns + 16 * p, c.keys, at + 16 * p, row_scales[first + r]) +
                   load(c.keys.bias + at + 16 * p);
        best = larger(looks[p], best);
      }
      CoarseRow& row = found[first + r];
      if (__builtin_expect(any(best >= all(row.least)), 0)) consider(row, looks, at);
    }
  }

  // 16 by 16: what comes of it does not depend on how many columns a panel has.
  __attribute__((noinline)) void consider(CoarseRow& row, const Floats* looks, int at) {
    float least = least_kept(row, c.margin, kept);
    for (int p = 0; p < parts; p++) {
      if (any(looks[p] > all(row.most))) {
        const float best = largest(looks[p]);
        row.total = row.total * exponential(all(row.most - best));
        row.most = best;
        least = least_kept(row, c.margin, kept);
      }
      if (any(looks[p] >= all(row.most - seen_depth))) row.total = row.total + exponential(looks[p] - all(row.most));
      uint32_t left = bits(looks[p] >= all(least));
      if (!left) continue;
      float x[16];
      store(x, looks[p]);
      for (; left; left &= left - 1) {
        const int i = __builtin_ctz(left);
        if (!(x[i] >= least)) continue;
        note_best(row, x[i], kept);
        row.seen[row.count++] = {x[i], at + 16 * p + i};
        if (row.count == most_seen) sort_out(row, c.margin, kept);
        least = least_kept(row, c.margin, kept);
      }
    }
    const float summed = row.most - seen_depth;
    row.least = least < summed ? least : summed;
  }
};

// The best of what was seen. Those within the margin, and the 16 that look best, go by their logits; where they are
// fewer than are wanted, others follow by their looks. Returns the logarithm of the sum of all exponentials: exact for
// the former, of looks for the rest. common: what looks are too low by, all together.
static double choose_of_seen(const BestTokens& b, CoarseRow& row, const float* x, float common, int kept, Best& best) {
  sort_out(row, b.coarse.margin, kept);
  const float least = least_of(row, b.coarse.margin, least_computed);
  int near = 0;
  for (int i = 0; i < row.count; i++) near += row.seen[i].look >= least;
  // Of too many those above the last, which may be one of many equal ones.
  const bool many = near >= most_computed;
  const float cut = many ? nth_largest_look(row.seen, row.count, most_computed) : least;
  const double total = sum(row.total);
  double rest = total, most = lowest;
  float logits[most_seen];
  int others = 0;
  near = 0;
  const auto wanted = [&](const Seen& seen) INLINED { return many ? seen.look > cut : seen.look >= cut; };
  for (int i = 0; i < row.count; i++)
    if (wanted(row.seen[i])) prefetch_row(b.table, row.seen[i].id);
  for (int i = 0; i < row.count; i++) {
    const Seen seen = row.seen[i];
    if (wanted(seen)) {
      const float y = logit(b.table, b.look.bias, x, seen.id);
      best.add(y, seen.id);
      if (seen.look >= row.most - seen_depth) rest -= exp((double)seen.look - row.most);
      most = y > most ? y : most;
      logits[near++] = y;
    } else {
      row.seen[others++] = seen;
    }
  }
  for (int i = 0; best.count < best.k && i < others; i++) {
    int next = i;
    for (int j = i + 1; j < others; j++) {
      const Seen &one = row.seen[j], &other = row.seen[next];
      if (one.look > other.look || (one.look == other.look && one.id < other.id)) next = j;
    }
    const Seen taken = row.seen[next];
    row.seen[next] = row.seen[i];
    best.ids[best.count] = taken.id;
    best.logits[best.count++] = logit(b.table, b.look.bias, x, taken.id);
  }
  if (rest < 4e-6 * total) rest = 0;  // what the rounding of fp32 may have made
  const double most_of_rest = (double)row.most + common;
  if (rest > 0 && most_of_rest > most) most = most_of_rest;
  double exactly = rest > 0 ? rest * exp(most_of_rest - most) : 0;
  for (int i = 0; i < near; i++) exactly += exp(logits[i] - most);
  return most + log(exactly);
}

// The query of a row. Returns whether it is like those that the margin is of.
static bool find_query(const CoarseLook& c, const float* x, int width, float* query) {
  const int numbers = c.keys.inputs;
  float left_out = 0;
  for (int i = 0; i < numbers + c.probes; i++) {
    const float number = dot(x, c.query + (size_t)i * width, width) + c.start[i];
    if (i < numbers)
      query[i] = number;
    else
      left_out += number * number;
  }
  return left_out <= c.strange * c.strange;
}

static Counts best_tokens_coarsely(const BestTokens& b, const float* x, int rows, int k, int64_t* ids,
                                   float* log_probs, float* normalisers, Scratch& scratch) {
  const CoarseLook& c = b.coarse;
  const Quantization by_row{0.f, 128, 8};
  const int width = b.table.width, numbers = c.keys.inputs;
  float* scales = scratch.take<float>(rows);
  float* query = scratch.take<float>(numbers);
  CoarseRow* found = scratch.take<CoarseRow>(rows);
  const int kept = k > least_computed ? k : least_computed;
  ByteRows bytes(rows, c.keys.depth, scratch);
  for (int r = 0; r < rows; r++) {
    const bool known = find_query(c, x + (size_t)r * width, width, query);
    scales[r] = scale_of(query, c.keys, by_row);
    quantize_row(query, numbers, scales[r], false, by_row.zero_point, c.keys.depth, bytes.row(r));
    bytes.done(r, c.keys.depth);
    CoarseRow& row = found[r];
    row.total = all(0.f);
    row.most = row.least = row.raised = lowest;
    row.count = 0;
    row.strange = !known;
    for (int i = 0; i < kept; i++) row.bests[i] = lowest;
  }
  LookCoarsely each{c, kept, scales, found};
  if constexpr (takes_nibbles) {
    if (c.keys.kind == Packed::nibbles) multiply(c.keys, bytes.bytes<BytesByNibbles>(), rows, each);
  }
  if (c.keys.kind == Packed::bytes) multiply(c.keys, bytes.bytes(), rows, each);
  int64_t strange = 0;
  for (int r = 0; r < rows; r++, x += width, ids += k, log_probs += k) {
    double log_total = __builtin_nan("");
    if (scales[r] == scales[r]) {
      Best best{k, 0, {}, {}};
      strange += found[r].strange;
      const float common = dot(x, b.mean_weight, width) + c.common;
      log_total = found[r].strange ? choose_from_all(b.table, b.look.bias, x, nullptr, 0, best)
                                   : choose_of_seen(b, found[r], x, common, kept, best);
      write_best(best, log_total, ids, log_probs);
    } else {
      write_none(k, ids, log_probs);
    }
    if (normalisers) normalisers[r] = (float)log_total;
  }
  return {rows, strange, 0};
}

}  // namespace dragoman::ISA
