// The operators of a step for GPUs and of an encoder for them, of fp16: HistoryAttention, SlotAttention and BestLogits
// here, the others in headers of their own. Each runs on the CPU provider in plain C++ and, where the library was built
// with nvcc, on CUDA's.
#include <algorithm>
#include <cmath>

#include "operators/embed_tokens_operator.h"
#include "operators/go_on_operator.h"
#include "operators/keep_sources_operator.h"
#include "operators/packed_attention_operator.h"
#include "operators/place.h"
#include "operators/row_linear_operator.h"

namespace dragoman::device {
namespace {

template <Place place>
void attend(const Attention& of, const Call& call) {
#ifdef GPU
  if constexpr (place == on_gpu) return gpu::attend(of, call.stream());
#endif
  (void)call;
  reference::attend(of);
}

Attention attention_of(const Tensor& keys, const Tensor& values) {
  expect_shape("keys", keys, {-1, -1, -1, -1});
  expect_shape("values", values, {keys.size(0), keys.size(1), keys.size(2), keys.size(3)});
  const int64_t head_dim = keys.size(3);
  expect_head_dim(head_dim);
  Attention of{};
  of.slots = (int)keys.size(0);
  of.heads = (int)keys.size(1);
  of.places = (int)keys.size(2);
  of.head_dim = (int)head_dim;
  of.keys = keys.data<Half>();
  of.values = values.data<Half>();
  return of;
}

// What both attentions do with a query of each row; `queries` of a row's numbers lie side by side.
template <Place place>
class Attending {
 protected:
  explicit Attending(const Node& node) : scale_(node.number("scale", 0)) {}

  void run(Attention of, const char* name, const Tensor& query, int queries, const char* positions_name,
           const Tensor& positions, const Tensor& slots, const Call& call) const {
    const int64_t inner = (int64_t)of.heads * of.head_dim, rows = query.size(0);
    expect_shape(name, query, {-1, queries * inner});
    expect_shape(positions_name, positions, {rows});
    expect_shape("slots", slots, {rows});
    if constexpr (place == on_cpu) {
      expect_below(positions_name, positions, of.places);
      expect_below("slots", slots, of.slots);
    }
    of.rows = (int)rows;
    of.query_stride = (int)(queries * inner);
    of.scale = scale_ == 0 ? 1 / std::sqrt((float)of.head_dim) : scale_;
    of.query = query.data<Half>();
    of.positions = positions.data<int32_t>();
    of.row_slots = slots.data<int32_t>();
    of.attended = call.output(0, {rows, inner}).template data<Half>();
    attend<place>(of, call);
  }

 private:
  float scale_;
};

template <Place place>
struct HistoryAttention : Attending<place> {
  static constexpr const char* name = "HistoryAttention";
  static constexpr const char* provider = provider_name<place>;
  static constexpr Port inputs[] = {{ort::float16}, {ort::float16}, {ort::float16},
                                    {ort::int32},   {ort::int32},   {ort::int32}};
  static constexpr Port outputs[] = {{ort::float16}, {ort::float16}, {ort::float16}};

  explicit HistoryAttention(const Node& node) : Attending<place>(node) {}

  void run(const Call& call) const {
    const Tensor keys = call.input(1), values = call.input(2), history = call.input(5);
    Attention of = attention_of(keys, values);
    expect_shape("history", history, {of.slots, of.places});
    if constexpr (place == on_cpu) expect_below("history", history, of.slots);
    for (int i = 1; i <= 2; i++)
      if (call.output_like(i, keys).template data<char>() != (i == 1 ? keys : values).template data<char>())
        refuse(i == 1 ? "keys" : "values", " must be bound in place: the output to the memory of the input");
    of.history = history.data<int32_t>();
    Attending<place>::run(of, "qkv", call.input(0), 3, "positions", call.input(3), call.input(4), call);
  }
};

template <Place place>
struct SlotAttention : Attending<place> {
  static constexpr const char* name = "SlotAttention";
  static constexpr const char* provider = provider_name<place>;
  static constexpr Port inputs[] = {{ort::float16}, {ort::float16}, {ort::float16}, {ort::int32}, {ort::int32}};
  static constexpr Port outputs[] = {{ort::float16}};

  explicit SlotAttention(const Node& node) : Attending<place>(node) {}

  void run(const Call& call) const {
    const Attention of = attention_of(call.input(1), call.input(2));
    Attending<place>::run(of, "query", call.input(0), 1, "last", call.input(3), call.input(4), call);
  }
};

template <Place place>
struct BestLogitsOperator {
  static constexpr const char* name = "BestLogits";
  static constexpr const char* provider = provider_name<place>;
  static constexpr Port inputs[] = {{ort::float16}, {ort::float16}, {ort::float16}, {ort::float16}, {ort::int64}};
  static constexpr Port outputs[] = {{ort::int64}, {ort::float32}, {ort::float16}, {ort::uint8}};

  explicit BestLogitsOperator(const Node&) {}

  void run(const Call& call) const {
    const Tensor hidden = call.input(0), products = call.input(1), weight = call.input(2), bias = call.input(3);
    const int64_t rows = hidden.size(0), width = hidden.size(1), columns = weight.size(0), k = call.input(4).count();
    expect_shape("hidden", hidden, {-1, -1});
    expect_shape("weight", weight, {-1, width});
    expect_shape("products", products, {rows, columns});
    expect_shape("bias", bias, {columns});
    if (k < 1 || k > most_candidates || k > columns)
      refuse(k, " tokens are asked for; 1 to ", std::min<int64_t>(most_candidates, columns), " can be found");
    if (width % 8 != 0 || columns % 8 != 0)
      refuse("weight has the shape ", weight.shape(), "; both sizes must be multiples of 8");
    BestLogits of{};
    of.rows = (int)rows;
    of.width = (int)width;
    of.columns = (int)columns;
    of.k = (int)k;
    of.hidden = hidden.data<Half>();
    of.products = products.data<Half>();
    of.weight = weight.data<Half>();
    of.bias = bias.data<Half>();
    of.ids = call.output(0, {rows, k}).template data<int64_t>();
    of.log_probs = call.output(1, {rows, k}).template data<float>();
    of.logits = call.output(2, {rows, columns}).template data<Half>();
#ifdef GPU
    if constexpr (place == on_gpu) {
      of.scratch = call.output(3, {(int64_t)gpu::scratch_bytes(of)}).template data<void>();
      return gpu::find(of, call.stream());
    }
#endif
    call.output(3, {0});
    reference::find(of);
  }
};

OrtCustomOpDomain* domain() {
  static OrtCustomOpDomain* const made = [] {
    OrtCustomOpDomain* created = nullptr;
    check(ort::api.CreateCustomOpDomain("dragoman", &created));
    const auto add = [&](const OrtCustomOp* op) { check(ort::api.CustomOpDomain_Add(created, op)); };
#ifdef GPU
    add(custom_operator<HistoryAttention<on_gpu>>());
    add(custom_operator<SlotAttention<on_gpu>>());
    add(custom_operator<BestLogitsOperator<on_gpu>>());
    add(custom_operator<RowLinearOperator<on_gpu>>());
    add(custom_operator<EmbedTokensOperator<on_gpu>>());
    add(custom_operator<PackedAttention<on_gpu>>());
    add(custom_operator<KeepSources<on_gpu>>());
    add(custom_operator<GoOnOperator<true>>());
#endif
    add(custom_operator<HistoryAttention<on_cpu>>());
    add(custom_operator<SlotAttention<on_cpu>>());
    add(custom_operator<BestLogitsOperator<on_cpu>>());
    add(custom_operator<RowLinearOperator<on_cpu>>());
    add(custom_operator<EmbedTokensOperator<on_cpu>>());
    add(custom_operator<PackedAttention<on_cpu>>());
    add(custom_operator<KeepSources<on_cpu>>());
    add(custom_operator<GoOnOperator<false>>());
    return created;
  }();
  return made;
}

}  // namespace
}  // namespace dragoman::device

extern "C" __attribute__((visibility("default"))) OrtStatus* RegisterCustomOps(OrtSessionOptions* options,
                                                                               const OrtApiBase* base) {
  return dragoman::register_operators(options, base, dragoman::device::domain);
}

extern "C" __attribute__((visibility("default"))) int dragoman_device_operators() { return 2; }
// Whether there are kernels for a GPU in it.
extern "C" __attribute__((visibility("default"))) int dragoman_device_has_gpu() {
#ifdef GPU
  return 1;
#else
  return 0;
#endif
}
