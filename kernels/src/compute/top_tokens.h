// The best tokens of rows of logits that are there, and their log-probabilities.
#pragma once
#include <math.h>

#include "compute/logits.h"

namespace dragoman::ISA {

// Of 16 tokens from `first` on, those beyond the vocabulary minus infinity.
INLINE Floats logits_from(const float* row, int first, int vocabulary) {
  if (vocabulary - first >= 16) return load(row + first);
  float x[16];
  for (int i = 0; i < 16; i++) x[i] = first + i < vocabulary ? row[first + i] : -__builtin_inff();
  return load(x);
}

static void add_larger(Best& best, Floats logits, int first) {
  float x[16];
  store(x, logits);
  for (int i = 0; i < 16; i++) best.add(x[i], first + i);
}

// logits [rows, vocabulary] -> the k best of each, best first; of equal ones the lower id.
static void top_tokens(const float* logits, int rows, int vocabulary, int k, int64_t* ids, float* log_probs) {
  for (int r = 0; r < rows; r++, logits += vocabulary, ids += k, log_probs += k) {
    Best best{k, 0, {}, {}};
    for (int i = 0; i < vocabulary; i += 16) {
      const Floats x = logits_from(logits, i, vocabulary);
      if (best.count < k || any(x > all(best.logits[k - 1]))) add_larger(best, x, i);
    }
    Floats total = all(0.f);
    const Floats most = all(best.logits[0]);
    for (int i = 0; i < vocabulary; i += 16) total = total + exponential(logits_from(logits, i, vocabulary) - most);
    const double log_total = best.logits[0] + log((double)sum(total));
    best.count > 0 && log_total == log_total ? write_best(best, log_total, ids, log_probs)
                                             : write_none(k, ids, log_probs);
  }
}

}  // namespace dragoman::ISA
