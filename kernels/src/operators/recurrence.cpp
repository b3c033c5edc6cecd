#include "operators/caches.h"
#include "operators/operators.h"

namespace dragoman {
namespace {

struct SimpleRecurrence {
  static constexpr const char* name = "SimpleRecurrence";
  static constexpr Port inputs[] = {{ort::float32}, {ort::float32}, {ort::int32}};
  static constexpr Port outputs[] = {{ort::float32}, {ort::float32}};

  explicit SimpleRecurrence(const Node&) {}

  void run(const Call& call) const {
    const Tensor gates = call.input(0), state = call.input(1), slots = call.input(2);
    expect_shape("state", state, {-1, -1});
    const int64_t rows = gates.size(0), width = state.size(1);
    expect_shape("gates", gates, {-1, 2 * width});
    expect_slots(slots, rows, state.size(0));
    expect_in_place("state", state, call.output_like(1, state));
    float* out = call.output(0, {rows, width}).data<float>();
    kernels().recurrence(gates.data<float>(), state.data<float>(), slots.data<int32_t>(), (int)rows, (int)width, out);
  }
};

}  // namespace

const OrtCustomOp* recurrence_operator() { return custom_operator<SimpleRecurrence>(); }

}  // namespace dragoman
