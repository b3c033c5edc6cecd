#include "operators/operators.h"

namespace dragoman {
namespace {

struct GatedUnit {
  static constexpr const char* name = "GatedUnit";
  static constexpr Port inputs[] = {{ort::float32}, {ort::float32}, {ort::float32}};
  static constexpr Port outputs[] = {{ort::float32}};

  explicit GatedUnit(const Node&) {}

  void run(const Call& call) const {
    const Tensor given = call.input(0), kept = call.input(1), state = call.input(2);
    expect_shape("state", state, {-1, -1});
    const int64_t rows = state.size(0), width = state.size(1);
    expect_shape("given", given, {rows, 3 * width});
    expect_shape("kept", kept, {rows, 3 * width});
    float* out = call.output(0, {rows, width}).data<float>();
    kernels().gated_unit(given.data<float>(), kept.data<float>(), state.data<float>(), (int)rows, (int)width, out);
  }
};

}  // namespace

const OrtCustomOp* gated_unit_operator() { return custom_operator<GatedUnit>(); }

}  // namespace dragoman
