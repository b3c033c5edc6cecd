// GoOn: from the candidates of a step to what the next one is fed, as every search will most probably choose.
#pragma once
#include "go_on.h"
#include "ort/operator.h"

namespace dragoman::device {

template <bool on_a_gpu>
struct GoOnOperator {
  static constexpr const char* name = "GoOn";
  static constexpr const char* provider = on_a_gpu ? "CUDAExecutionProvider" : "CPUExecutionProvider";
  static constexpr Port inputs[] = {{ort::int64},   {ort::float32}, {ort::int64},
                                    {ort::float64}, {ort::int32},   {ort::int32}};
  static constexpr Port outputs[] = {{ort::int64}, {ort::float64}, {ort::int32}, {ort::int32}};

  explicit GoOnOperator(const Node&) {}

  void run(const Call& call) const {
    const Tensor candidates = call.input(0), log_probs = call.input(1), never = call.input(2), costs = call.input(3);
    const Tensor numbers = call.input(4), history = call.input(5);
    const int64_t rows = candidates.size(0), k = candidates.size(1);
    expect_shape("candidates", candidates, {-1, -1});
    expect_shape("log_probs", log_probs, {rows, k});
    expect_shape("never", never, {-1});
    expect_shape("costs", costs, {rows});
    expect_shape("numbers", numbers, {all_numbers, -1});
    expect_shape("history", history, {-1, -1});
    if (numbers.size(1) < rows) refuse("numbers has ", numbers.size(1), " rows; there are ", rows);
    if (k < 1 || k > most_extensions / most_beams)
      refuse(k, " candidates; 1 to ", most_extensions / most_beams, " can be looked at");
    GoOn of{};
    of.rows = (int)rows;
    of.k = (int)k;
    of.never_count = (int)never.count();
    of.stride = (int)numbers.size(1);
    of.slots = (int)history.size(0);
    of.places = (int)history.size(1);
    of.candidates = candidates.data<int64_t>();
    of.log_probs = log_probs.data<float>();
    of.never = never.data<int64_t>();
    of.costs = costs.data<double>();
    of.numbers = numbers.data<int32_t>();
    of.next_ids = call.output(0, {rows}).template data<int64_t>();
    of.next_costs = call.output(1, {rows}).template data<double>();
    of.next_numbers = call.output_like(2, numbers).template data<int32_t>();
    of.history = call.output_like(3, history).template data<int32_t>();
    if (of.history != history.data<int32_t>())
      refuse("history must be bound in place: the output to the memory of the input");
#ifdef GPU
    if constexpr (on_a_gpu) return gpu::go_on(of, call.stream());
#endif
    expect_searches(of);
    reference::go_on(of);
  }

 private:
  // What the host can see. On a GPU it is the engine's word.
  static void expect_searches(const GoOn& of) {
    for (int row = 0; row < of.rows; row++) {
      const int start = of.of(first)[row], beams = of.of(width)[row];
      if (beams < 0 || beams > most_beams) refuse("row ", row, " is one of ", beams, "; ", most_beams, " at most");
      if (start < 0 || start > row || row - start >= (beams ? beams : 1) || start + beams > of.rows)
        refuse("row ", row, " cannot be one of ", beams, " that begin at ", start);
      if (of.of(slot)[row] < 0 || of.of(slot)[row] >= of.slots)
        refuse("row ", row, " has slot ", of.of(slot)[row], "; there are ", of.slots);
    }
  }
};

}  // namespace dragoman::device
