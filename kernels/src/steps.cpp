// Steps of a decoder, made without ONNX Runtime and without the interpreter (kernels/steps.py).
#include <algorithm>

#include "beams.h"
#include "cache.h"
#include "calls.h"
#include "ort/recording.h"
#include "ort/refuse.h"

namespace dragoman {

// Steps of rows that go on by themselves, as kernels/steps.py declares them.
struct Steps {
  Recording* recording;  // of one step
  Rows* rows;
  int64_t* ids;  // [rows->room]: what each row is fed
  const Buffer* buffers;
  int64_t buffer_count;
  const int64_t* token_ids;  // [rows->live, candidates]: what a step finds, best first
  const float* log_probs;    // [rows->live, candidates]
  int64_t candidates;
  int64_t most;  // steps
  const int64_t* arrivals;
  int64_t arrived;  // no step is begun where arrivals are others; null: never mind
  int64_t made, copied_rows, copied_bytes;
};

// Of greedy searches, as kernels/steps.py declares them.
struct BestSteps {
  int64_t room, specials;
  int64_t* tokens;         // [steps, room]: what each row gets
  double* log_probs;       // [steps, room]
  const int64_t* special;  // [room, specials]: tokens that a search does not merely append
  int64_t met;             // whether some row has got one of its own
};

namespace {

// Until a search has something to see to, or enough steps are made. append: notes what a step has found, and says
// whether the search goes on by itself. go_on: feeds the rows, which another step follows.
template <class Append, class GoOn>
void follow(Steps& steps, Append&& append, GoOn&& go_on) {
  Rows& rows = *steps.rows;
  steps.made = steps.copied_rows = steps.copied_bytes = 0;
  const auto undisturbed = [&] {
    return steps.arrivals == nullptr || __atomic_load_n(steps.arrivals, __ATOMIC_RELAXED) == steps.arrived;
  };
  while (true) {
    steps.recording->replay();
    for (int64_t row = 0; row < rows.live; row++) rows.positions[row]++;
    steps.made++;
    if (!append() || steps.made >= steps.most || !undisturbed()) return;
    go_on();
  }
}

// Returns whether no row has got a special token.
bool append_best(const Steps& steps, BestSteps& best) {
  const int64_t at = (steps.made - 1) * best.room;
  best.met = 0;
  for (int64_t row = 0; row < steps.rows->live; row++) {
    const int64_t token = steps.token_ids[row * steps.candidates], *special = best.special + row * best.specials;
    best.tokens[at + row] = token;
    best.log_probs[at + row] = steps.log_probs[row * steps.candidates];
    best.met |= std::find(special, special + best.specials, token) != special + best.specials;
  }
  return !best.met;
}

// Rows continue the hypotheses of a step, and the next step's memory lies behind this one's.
void continue_beams(Steps& steps, BeamStep& beams) {
  const Taken taken = take_rows(*steps.rows, beams.parent_rows, steps.rows->live, steps.buffers, steps.buffer_count);
  steps.copied_rows += taken.rows;
  steps.copied_bytes += taken.bytes;
  std::copy_n(beams.tokens, steps.rows->live, steps.ids);
  const int64_t of_step = 4 * beams.searches * beams.width;
  beams.costs = beams.next_costs;
  for (int64_t** of : {&beams.parents, &beams.tokens, &beams.parent_rows}) *of += of_step;
  beams.next_costs += of_step;
  beams.at++;
}

}  // namespace

EXPORTED const char* dragoman_follow_best(Steps* steps, BestSteps* best) {
  return told([&] {
    const int64_t live = steps->rows->live;
    if (live > best->room) refuse(live, " rows, where there is room for ", best->room);
    follow(*steps, [&] { return append_best(*steps, *best); },
           [&] { std::copy_n(best->tokens + (steps->made - 1) * best->room, live, steps->ids); });
  });
}

EXPORTED const char* dragoman_follow_beams(Steps* steps, BeamStep* beams) {
  return told([&] {
    if (beams->searches * beams->width != steps->rows->live)
      refuse(beams->searches, " searches of ", beams->width, " hypotheses are not ", steps->rows->live, " rows");
    follow(*steps,
           [&] {
             extend_beams(*beams);
             return beams->unusual_searches == 0;
           },
           [&] { continue_beams(*steps, *beams); });
  });
}

// What this thread runs from now on is recorded, until dragoman_end_recording. lasting: memory of the graph's outputs.
EXPORTED Recording* dragoman_record(const void* const* lasting, int64_t count) {
  Recording* recording = new Recording(std::vector<const void*>(lasting, lasting + count));
  recording->begin();
  return recording;
}

// Returns how many nodes were run.
EXPORTED int64_t dragoman_end_recording(Recording* recording) {
  recording->end();
  return recording->nodes();
}

EXPORTED const char* dragoman_replay(Recording* recording) {
  return told([&] { recording->replay(); });
}

EXPORTED void dragoman_forget(Recording* recording) { delete recording; }

}  // namespace dragoman
