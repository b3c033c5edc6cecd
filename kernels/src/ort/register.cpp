// What ONNX Runtime looks for in the library.
#include "operators/operators.h"

namespace dragoman {
namespace {

OrtCustomOpDomain* domain() {
  static OrtCustomOpDomain* const made = [] {
    OrtCustomOpDomain* created = nullptr;
    check(ort::api.CreateCustomOpDomain("dragoman", &created));
    const auto add = [&](const OrtCustomOp* op) { check(ort::api.CustomOpDomain_Add(created, op)); };
    add(embed_operator());
    for (const OrtCustomOp* op : linear_operators()) add(op);
    for (const OrtCustomOp* op : attention_operators()) add(op);
    add(packed_attention_operator());
    add(recurrence_operator());
    add(gated_unit_operator());
    add(additive_attention_operator());
    add(best_tokens_operator());
    add(top_tokens_operator());
    add(named_tokens_operator());
    return created;
  }();
  return made;
}

}  // namespace
}  // namespace dragoman

extern "C" __attribute__((visibility("default"))) OrtStatus* RegisterCustomOps(OrtSessionOptions* options,
                                                                               const OrtApiBase* base) {
  return dragoman::register_operators(options, base, dragoman::domain);
}
