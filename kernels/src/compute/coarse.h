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
constexpr float seen_depth = 12;                                          // looks so far below the best are not summed

struct Seen {
  float look;
  int32_t id;
};

// What is known of a row while tokens go by.
struct CoarseRow {
  Floats total;     // of e^(look - most)
  float most;       // the best look
  float least;      // a panel of looks below it is of no interest
  float kept_from;  // looks below it are not kept
  float raised;     // because so many were seen
  int count;
  bool strange;                  // its looks say little
  Floats bests[most_best / 16];  // each lane the best of tokens of its own
  Seen seen[most_seen];
};

static float nth_largest_look(const Seen* seen, int count, int n) {
  float looks[most_seen + 16];
  for (int i = 0; i < count; i++) looks[i] = seen[i].look;
  return nth_largest(looks, count, n);
}

// Forgets what is not wanted any more and, of many, all but the best.
static void sort_out(CoarseRow& row) {
  int kept = 0;
  for (int i = 0; i < row.count; i++) {
    const Seen seen = row.seen[i];
    row.seen[kept] = seen;
    kept += seen.look >= row.kept_from;
  }
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

// A panel of looks at a time.
struct LookCoarsely {
  const CoarseLook& c;
  const int bests;  // vectors of them for each row: 1, 2 or 4, of which panels take turns
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
      if (__builtin_expect(any(best >= all(row.least)), 0)) consider(row, looks, best, panel);
    }
  }

  // What is kept too much, is forgotten later, and sums go 16 by 16: what comes of it does not depend on how many
  // columns a panel has, nor on how many tokens are wanted. best: the larger ones of the looks, lane by lane.
  __attribute__((noinline)) void consider(CoarseRow& row, const Floats* looks, Floats best, int panel) const {
    keep(row, looks, panel * columns);
    Floats& of_some = row.bests[panel & (bests - 1)];
    of_some = larger(best, of_some);
    Floats total = row.total, most = all(row.most);
    for (int p = 0; p < parts; p++) {
      if (__builtin_expect(any(looks[p] > most), 0)) {
        row.most = largest(looks[p]);
        total = total * exponential(most - all(row.most));
        most = all(row.most);
      }
      const Floats part = exponential(looks[p] - most);
      total = total + where(looks[p] >= most - all(seen_depth), part, all(0.f));
    }
    row.total = total;
    row.kept_from = least_kept(row);
    const float summed_from = row.most - seen_depth;
    row.least = row.kept_from < summed_from ? row.kept_from : summed_from;
  }

  MEMBER void keep(CoarseRow& row, const Floats* looks, int at) const {
    uint64_t kept = 0;
    for (int p = 0; p < parts; p++) kept |= (uint64_t)bits(looks[p] >= all(row.kept_from)) << 16 * p;
    if (!kept) return;
    if (row.count > most_seen - columns) sort_out(row);
    float x[columns];
    for (int p = 0; p < parts; p++) store(x + 16 * p, looks[p]);
    for (; kept; kept &= kept - 1) {
      const int i = __builtin_ctzll(kept);
      row.seen[row.count++] = {x[i], at + i};
    }
  }

  // Those within the margin are kept, and the best ones: no lane's best of `bests` is that of another.
  MEMBER float least_kept(const CoarseRow& row) const {
    Floats worst = row.bests[0];
    for (int i = 1; i < bests; i++) worst = smaller(row.bests[i], worst);
    const float near = row.most - c.margin, of_bests = smallest(worst), least = near < of_bests ? near : of_bests;
    return least > row.raised ? least : row.raised;
  }
};

INLINE int count_from(const CoarseRow& row, float least) {
  int count = 0;
  for (int i = 0; i < row.count; i++) count += row.seen[i].look >= least;
  return count;
}

// Of e^(x - most), for those x that are no less than `least`; behind n is room for 16.
static float sum_of_exponentials(float* x, int n, float most, float least) {
  for (int i = 0; i < 16; i++) x[n + i] = -__builtin_inff();
  Floats total = all(0.f);
  for (int i = 0; i < n; i += 16) {
    const Floats part = load(x + i);
    total = total + where(part >= all(least), exponential(part - all(most)), all(0.f));
  }
  return sum(total);
}

// The best of what was seen. Those within the margin, and the 16 that look best, go by their logits; where they are
// fewer than are wanted, others follow by their looks. Returns the logarithm of the sum of all exponentials: exact for
// the former, of looks for the rest. common: what looks are too low by, all together.
static double choose_of_seen(const BestTokens& b, CoarseRow& row, const float* x, float common, Best& best) {
  sort_out(row);
  float least = row.most - b.coarse.margin;
  int near = count_from(row, least);
  if (near < least_computed) {
    least = row.count < least_computed ? lowest : nth_largest_look(row.seen, row.count, least_computed);
    near = count_from(row, least);
  }
  // Of too many those above the last, which may be one of many equal ones.
  if (near >= most_computed)
    least = __builtin_nextafterf(nth_largest_look(row.seen, row.count, most_computed), __builtin_inff());
  int32_t ids[most_seen];
  float looks[most_seen + 16], logits[most_seen + 16], most = lowest;
  int computed = 0, others = 0;
  for (int i = 0; i < row.count; i++) {
    const Seen seen = row.seen[i];
    if (seen.look >= least) {
      prefetch_row(b.table, seen.id);
      looks[computed] = seen.look;
      ids[computed++] = seen.id;
    } else {
      row.seen[others++] = seen;
    }
  }
  logits_of(b.table, b.look.bias, x, ids, computed, logits);
  for (int i = 0; i < computed; i++) {
    best.add(logits[i], ids[i]);
    most = logits[i] > most ? logits[i] : most;
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
  const float total = sum(row.total), summed_from = row.most - seen_depth;
  float rest = total - sum_of_exponentials(looks, computed, row.most, summed_from);
  if (rest < 4e-6f * total) rest = 0;  // what the rounding of fp32 may have made
  const float most_of_rest = row.most + common;
  if (rest > 0 && most_of_rest > most) most = most_of_rest;
  const double of_rest = rest > 0 ? rest * exp((double)most_of_rest - most) : 0;
  return most + log(of_rest + sum_of_exponentials(logits, computed, most, lowest));
}

// The query of a row. Returns whether it is like those that the margin is of.
static bool find_query(const CoarseLook& c, const float* x, int width, float* query) {
  const int numbers = c.keys.inputs;
  float left_out = 0;
  const auto take = [&](int i, float product) INLINED {
    const float number = product + c.start[i];
    if (i < numbers)
      query[i] = number;
    else
      left_out += number * number;
  };
  dots_of(x, width, numbers + c.probes, [&](int i) INLINED { return c.query + (size_t)i * width; }, take);
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
  const int bests = k > 32 ? 4 : k > 16 ? 2 : 1;
  ByteRows bytes(rows, c.keys, scratch);
  for (int r = 0; r < rows; r++) {
    const bool known = find_query(c, x + (size_t)r * width, width, query);
    scales[r] = scale_of(query, c.keys, by_row);
    quantize_row(query, numbers, scales[r], false, by_row.zero_point, c.keys.depth, bytes.row(r));
    bytes.done(r);
    CoarseRow& row = found[r];
    row.total = all(0.f);
    row.most = row.least = row.kept_from = row.raised = lowest;
    row.count = 0;
    row.strange = !known;
    for (int i = 0; i < bests; i++) row.bests[i] = all(lowest);
  }
  LookCoarsely each{c, bests, scales, found};
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
                                   : choose_of_seen(b, found[r], x, common, best);
      write_best(best, log_total, ids, log_probs);
    } else {
      write_none(k, ids, log_probs);
    }
    if (normalisers) normalisers[r] = (float)log_total;
  }
  return {rows, strange, 0};
}

}  // namespace dragoman::ISA
