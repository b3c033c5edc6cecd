#include "operators/operators.h"
#include "packing.h"

namespace dragoman {
namespace {

struct NamedTokens {
  static constexpr const char* name = "NamedTokens";
  static constexpr Port inputs[] = {{ort::float32}, {ort::int64}, {ort::any}, {ort::float32, true}, {ort::float32}};
  static constexpr Port outputs[] = {{ort::float32}};

  explicit NamedTokens(const Node& node)
      : table_(output_layer(node)), bias_(node.constant(4, "bias").data<float>()) {}

  void run(const Call& call) const {
    const Tensor x = call.input(0), tokens = call.input(1);
    const int64_t rows = x.size(0), named = tokens.size(1);
    expect_shape("x", x, {-1, table_.width});
    expect_shape("tokens", tokens, {rows, -1});
    const int64_t* ids = tokens.data<int64_t>();
    for (int64_t i = 0; i < tokens.count(); i++)
      if (ids[i] >= table_.count) refuse("row ", i / named, ": token ", ids[i], " of ", table_.count);
    kernels().named_tokens(table_, bias_, x.data<float>(), (int)rows, ids, (int)named,
                           call.output(0, {rows, named}).data<float>());
  }

 private:
  Table table_;
  const float* bias_;
};

}  // namespace

const OrtCustomOp* named_tokens_operator() { return custom_operator<NamedTokens>(); }

}  // namespace dragoman
