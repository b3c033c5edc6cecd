#include "operators/operators.h"
#include "packing.h"

namespace dragoman {
namespace {

struct Embed {
  static constexpr const char* name = "Embed";
  static constexpr Port inputs[] = {{ort::int64}, {ort::int32}, {ort::any}, {ort::float32, true},
                                    {ort::float32, true}};
  static constexpr Port outputs[] = {{ort::float32}};

  explicit Embed(const Node& node) : scale_(node.number("scale", 1.f)) {
    const Tensor table = node.constant(2, "table"), positions = node.optional_constant(4);
    table_ = {number_of("table", table, true), table.data<void>(), nullptr, table.size(0), (int)table.size(1)};
    expect_shape("table", table, {-1, -1});
    if (table_.number == Number::int8) {
      const Tensor scales = node.constant(3, "table_scales");
      expect_shape("table_scales", scales, {table.size(0)});
      table_.scales = scales.data<float>();
    }
    if (!positions) return;
    expect_shape("position_table", positions, {-1, table.size(1)});
    position_table_ = positions.data<float>();
    places_ = positions.size(0);
  }

  void run(const Call& call) const {
    const Tensor ids = call.input(0), positions = call.input(1);
    const int64_t rows = ids.size(0);
    expect_shape("ids", ids, {-1});
    expect_shape("positions", positions, {rows});
    for (int64_t r = 0; r < rows; r++) {
      const int64_t id = ids.data<int64_t>()[r], position = positions.data<int32_t>()[r];
      if (id < 0 || id >= table_.count) refuse("row ", r, ": token ", id, " of a table of ", table_.count);
      if (position_table_ && (position < 0 || position >= places_))
        refuse("row ", r, ": position ", position, " of ", places_);
    }
    const Tensor out = call.output(0, {rows, table_.width});
    kernels().embed(table_, scale_, ids.data<int64_t>(), positions.data<int32_t>(), position_table_, (int)rows,
                    out.data<float>());
  }

 private:
  Table table_{};
  float scale_;
  const float* position_table_ = nullptr;
  int64_t places_ = 0;
};

}  // namespace

const OrtCustomOp* embed_operator() { return custom_operator<Embed>(); }

}  // namespace dragoman
