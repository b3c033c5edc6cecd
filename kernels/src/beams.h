// A step of beam searches.
#pragma once
#include <cstdint>

namespace dragoman {

// A hypothesis that a step has finished.
struct Ended {
  int64_t step, search, parent, token;
  double cost;
};

// A step of many searches, as kernels/beams.py declares it.
struct BeamStep {
  int64_t searches, width, rows, candidates, specials;
  const int64_t* token_ids;  // [rows, candidates], best first
  const float* log_probs;    // [rows, candidates]
  const int64_t* row;        // [searches, width]: of each hypothesis
  const double* costs;       // [searches, width]: -sum(log p), infinite where there is none
  const int64_t* wanted;     // [searches]: so many are to live on
  const int64_t* special;    // [searches, specials]: tokens that a search does not merely append
  int64_t *parents, *tokens, *parent_rows;  // [searches, width]: what becomes of it
  double* next_costs;                       // [searches, width]
  uint8_t* unusual;                         // [searches]: whether a search must see to that itself
  int64_t unusual_searches;
  // Of steps that follow each other:
  const int64_t* ends;  // [searches]: so many of a search's special tokens, the first ones, end hypotheses
  int64_t* spare;       // [searches]: so many may end before the search must see to it
  int64_t at, plain;    // which step it is; hypotheses may end in those before `plain`
  Ended* ended;         // [ended_room]
  int64_t ended_room, ended_count;
};

// Finds the best extensions of every search's hypotheses.
void extend_beams(BeamStep& step);

}  // namespace dragoman
