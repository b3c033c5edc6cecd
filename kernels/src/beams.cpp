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

// So many of the best extensions of a search, best first; of equal ones the better parent's is first, then the better
// token's. Returns whether the model's numbers are finite.
bool rank(const BeamStep& step, int64_t search, size_t wanted, std::vector<Extension>& best) {
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

// Which of a search's special tokens it is: the first of them end hypotheses. `step.specials`: none.
int64_t special_place(const BeamStep& step, int64_t search, int64_t token) {
  const int64_t* special = step.special + search * step.specials;
  return std::find(special, special + step.specials, token) - special;
}

// Those that end among the best are finished, as engine/search/beam.py says, and the best of the others go on. Returns
// whether that is all: nothing is changed where it is not.
bool end_some(BeamStep& step, int64_t search, std::vector<Extension>& best) {
  const int64_t wanted = step.wanted[search];
  if (step.at >= step.plain || step.spare[search] < 1 || !rank(step, search, 2 * (size_t)wanted, best)) return false;
  int64_t going = 0, ending = 0;
  for (int64_t place = 0; going < wanted; place++) {
    if (place == (int64_t)best.size()) return false;
    const Extension one = best[place];
    const int64_t special = special_place(step, search, one.token);
    if (special == step.specials) {
      best[going++] = one;
    } else if (special >= step.ends[search]) {
      return false;
    } else if (place < wanted) {
      if (ending == step.spare[search] || step.ended_count + ending == step.ended_room) return false;
      step.ended[step.ended_count + ending++] = {step.at, search, one.parent, one.token, one.cost};
    }
  }
  best.resize(wanted);
  step.spare[search] -= ending;
  step.ended_count += ending;
  return true;
}

// Returns whether there is nothing else to do than to go on with these.
bool extend(BeamStep& step, int64_t search, std::vector<Extension>& best) {
  const int64_t first = search * step.width;
  const auto merely_appended = [&](const Extension& one) {
    return special_place(step, search, one.token) == step.specials;
  };
  bool plain = rank(step, search, (size_t)step.wanted[search], best) && (int64_t)best.size() == step.wanted[search];
  if (plain && !std::all_of(best.begin(), best.end(), merely_appended)) {
    static thread_local std::vector<Extension> others;
    plain = end_some(step, search, others);
    if (plain) best = others;
  }
  best.resize(step.width, Extension{infinite, 0, no_token});
  for (int64_t place = 0; place < step.width; place++) {
    const Extension& one = best[place];
    step.parents[first + place] = one.parent;
    step.tokens[first + place] = one.token;
    step.next_costs[first + place] = one.cost;
    step.parent_rows[first + place] = step.row[first + one.parent];
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
