// How rows go on, in plain C++.
#include "go_on.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace dragoman::device {
namespace {

// The extensions of a search that live on, best first. Extension i * k + j is candidate j of its i-th row.
std::vector<int> best_extensions(const GoOn& of, int row, int beams) {
  if (beams == 1) return {0};
  std::vector<int> able;
  std::vector<double> costs(beams * of.k);
  for (int at = 0; at < beams * of.k; at++) {
    const double cost = of.costs[row + at / of.k] - (double)of.log_probs[(size_t)row * of.k + at];
    costs[at] = std::isnan(cost) ? INFINITY : cost;
    const int64_t id = of.candidates[(size_t)row * of.k + at];
    if (std::find(of.never, of.never + of.never_count, id) == of.never + of.never_count) able.push_back(at);
  }
  std::stable_sort(able.begin(), able.end(), [&](int one, int other) { return costs[one] < costs[other]; });
  for (int i = (int)able.size(); i < beams; i++) able.push_back(i * of.k);  // where there is nothing else
  able.resize(beams);
  return able;
}

void stay(const GoOn& of, int row) {
  of.next_ids[row] = 0;
  of.next_costs[row] = of.costs[row];
  for (size_t number = 0; number < all_numbers; number++)
    of.next_numbers[number * of.stride + row] = of.numbers[number * of.stride + row];
}

void go_on_one(const GoOn& of, int row, int beams) {
  const std::vector<int> chosen = best_extensions(of, row, beams);
  std::vector<int32_t> free;
  for (int i = 0; i < beams; i++)
    if (std::none_of(chosen.begin(), chosen.end(), [&](int at) { return at / of.k == i; }))
      free.push_back(of.of(slot)[row + i]);
  std::sort(free.begin(), free.end());
  auto next_free = free.begin();
  std::vector<bool> has_child(beams);
  for (int j = 0; j < beams; j++) {
    const int at = chosen[j], old = row + at / of.k, child = row + j;
    int32_t own = of.of(slot)[old];
    if (has_child[at / of.k]) {
      const int32_t* from = of.history + (size_t)own * of.places;
      own = *next_free++;
      int32_t* to = of.history + (size_t)own * of.places;
      for (int place = 0; place < of.places; place++) to[place] = place <= of.of(position)[old] ? from[place] : own;
    }
    has_child[at / of.k] = true;
    of.next_ids[child] = std::max<int64_t>(0, of.candidates[(size_t)row * of.k + at]);
    of.next_costs[child] = of.costs[old] - (double)of.log_probs[(size_t)row * of.k + at];
    const int32_t numbers[] = {of.of(position)[old] + 1, of.of(source_last)[old], own, of.of(source_slot)[old],
                               old, row, beams};
    for (size_t number = 0; number < all_numbers; number++)
      of.next_numbers[number * of.stride + child] = numbers[number];
  }
}

}  // namespace

void reference::go_on(const GoOn& of) {
  for (int row = 0; row < of.rows; row++) {
    if (of.of(first)[row] != row) continue;
    const int beams = of.of(width)[row];
    if (beams == 0) stay(of, row);
    else go_on_one(of, row, beams);
  }
}

}  // namespace dragoman::device
