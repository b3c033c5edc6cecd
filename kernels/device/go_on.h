// How the rows of a step most probably go on, and so what the step after it is fed: on a GPU (go_on.cu) and in plain
// C++ (go_on.cpp).
#pragma once
#include <cstddef>
#include <cstdint>

namespace dragoman::device {

// What a step is told of each row in whole numbers, one array of `stride` rows after the other.
enum Number { position, source_last, slot, source_slot, parent, first, width, all_numbers };

// The rows of a search lie side by side, its best hypothesis first: `first` is the first of them, `width` how many
// there are. A greedy row is a search of width 1. Rows of width 0 fill up a step; they stay as they are.
struct GoOn {
  int rows, k, never_count, stride, slots, places;
  const int64_t* candidates;  // [rows, k], best first
  const float* log_probs;     // [rows, k]
  const int64_t* never;       // [never_count]: no hypothesis of several goes on with them
  const double* costs;        // [rows]: -sum(log p) of each hypothesis
  const int32_t* numbers;     // [all_numbers, stride]
  int32_t* history;           // [slots, places]: in whose slot each place of a slot's hypothesis lies; written
  int64_t* next_ids;          // [rows]
  double* next_costs;         // [rows]
  int32_t* next_numbers;      // [all_numbers, stride]

  const int32_t* of(Number number) const { return numbers + (size_t)number * stride; }
};

constexpr int most_beams = 16, most_extensions = most_beams * 64;

namespace gpu {
void go_on(const GoOn& of, void* stream);
}
namespace reference {
void go_on(const GoOn& of);
}

}  // namespace dragoman::device
