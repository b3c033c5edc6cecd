#include "compute/table.h"
#include "operators/operators.h"

namespace dragoman {
namespace {

constexpr int most_top_tokens = 64;

struct TopTokens {
  static constexpr const char* name = "TopTokens";
  static constexpr Port inputs[] = {{ort::float32}, {ort::int64}};
  static constexpr Port outputs[] = {{ort::int64}, {ort::float32}};

  explicit TopTokens(const Node&) {}

  void run(const Call& call) const {
    const Tensor logits = call.input(0), ranks = call.input(1);
    expect_shape("logits", logits, {-1, -1});
    const int64_t rows = logits.size(0), k = ranks.count();
    if (k < 1 || k > most_top_tokens) refuse(k, " tokens are asked for; 1 to ", most_top_tokens, " can be found");
    int64_t* ids = call.output(0, {rows, k}).data<int64_t>();
    float* log_probs = call.output(1, {rows, k}).data<float>();
    kernels().top_tokens(logits.data<float>(), (int)rows, (int)logits.size(1), (int)k, ids, log_probs);
  }
};

}  // namespace

const OrtCustomOp* top_tokens_operator() { return custom_operator<TopTokens>(); }

}  // namespace dragoman
