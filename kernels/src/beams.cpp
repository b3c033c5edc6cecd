// Which extensions of hypotheses live on, for the engine's beam searches (kernels/beams.py).
#include <algorithm>
#include <limits>
#include <vector>

#include "beams.h"
#include "calls.h"
#include "ort/refuse.h"

namespace dragoman {
namespace {

constexpr int64_t not_finite = -1, no_token = -2;  // as engine/decoder.py and engine/search/score.py have them
constexpr double infinite = std::numeric_limits<double>::infinity();

struct Extension {
  double cost;
  int64_t parent, token;
};

// The best extensions of a search, best first; of equal ones the better parent's is first, then the better token's.
// Returns whether the model's numbers are finite.
bool rank(const BeamStep& step, int64_t search, std::vector<Extension>& best) {
  const size_t wanted = (size_t)step.wanted[search];
  bool finite = true;
  best.clear();
  for (int64_t parent = 0; parent < step.width; parent++) {
    const double cost = step.costs[search * step.width + parent];
    const int64_t row = step.row[search * step.width + parent];
    if (cost == infinite) continue;
    if (row < 0 || row >= step.rows) refuse("row ", row, " of ", step.rows);
    finite &= step.token_ids[row * step.candidates] != not_finite;
    for (int64_t at = row * step.candidates; at < (row + 1) * step.candidates; at++) {
      const Extension one{cost - (double)step.log_probs[at], parent, step.token_ids[at]};
      const double limit = best.size() < wanted ? infinite : wanted ? best.back().cost : -infinite;
      if (!(one.cost < limit)) continue;
      if (best.size() == wanted) best.pop_back();
      const auto costs_less = [](const Extension& left, const Extension& right) { return left.cost < right.cost; };
      best.insert(std::upper_bound(best.begin(), best.end(), one, costs_less), one);
    }
  }
  return finite;
}

// Returns whether there is nothing else to do than to go on with these.
bool extend(const BeamStep& step, int64_t search, std::vector<Extension>& best) {
  const int64_t first = search * step.width, *special = step.special + search * step.specials;
  const bool finite = rank(step, search, best);
  bool plain = finite && (int64_t)best.size() == step.wanted[search];
  best.resize(step.width, Extension{infinite, 0, no_token});
  for (int64_t place = 0; place < step.width; place++) {
    const Extension& one = best[place];
    step.parents[first + place] = one.parent;
    step.tokens[first + place] = one.token;
    step.next_costs[first + place] = one.cost;
    step.parent_rows[first + place] = step.row[first + one.parent];
    plain &= one.token == no_token || std::find(special, special + step.specials, one.token) == special + step.specials;
  }
  return plain;
}

}  // namespace

void extend_beams(BeamStep& step) {
  static thread_local std::vector<Extension> best;
  if (step.candidates < 1) refuse("no candidates");
  step.unusual_searches = 0;
  for (int64_t search = 0; search < step.searches; search++) {
    if (step.wanted[search] < 0 || step.wanted[search] > step.width)
      refuse(step.wanted[search], " hypotheses of a search that has room for ", step.width);
    step.unusual[search] = !extend(step, search, best);
    step.unusual_searches += step.unusual[search];
  }
}

EXPORTED const char* dragoman_extend_beams(BeamStep* step) {
  return told([&] { extend_beams(*step); });
}

}  // namespace dragoman
