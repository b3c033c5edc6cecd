// RowLinear: activation(norm(x) weight^T + bias) + norm(residual), of few rows. Both norms, the bias and the residual
// may be left out.
#pragma once
#include "place.h"

namespace dragoman::device {

template <Place place>
class RowLinearOperator {
 public:
  static constexpr const char* name = "RowLinear";
  static constexpr const char* provider = provider_name<place>;
  static constexpr Port inputs[] = {{ort::float16},       {ort::float16},       {ort::float16, true},
                                    {ort::float16, true}, {ort::float16, true}, {ort::float16, true},
                                    {ort::float16, true}, {ort::float16, true}};
  static constexpr Port outputs[] = {{ort::float16}};

  explicit RowLinearOperator(const Node& node)
      : activation_(named(node.word("activation", "none"))), epsilon_(node.number("epsilon", 1e-5f)) {}

  void run(const Call& call) const {
    const Tensor x = call.input(0), weight = call.input(1), bias = call.input(2);
    expect_shape("x", x, {-1, -1});
    const int64_t rows = x.size(0), width = x.size(1);
    expect_shape("weight", weight, {-1, width});
    const int64_t outputs = weight.size(0);
    if (width % 8 != 0) refuse("x has the shape ", x.shape(), "; its width must be a multiple of 8");
    if (bias) expect_shape("bias", bias, {outputs});
    RowLinear of{};
    of.rows = (int)rows;
    of.width = (int)width;
    of.outputs = (int)outputs;
    of.activation = activation_;
    of.epsilon = epsilon_;
    of.x = normed("x", x, call.input(3), call.input(4));
    of.weight = weight.data<Half>();
    of.bias = bias ? bias.data<Half>() : nullptr;
    if (const Tensor residual = call.input(5)) {
      expect_shape("residual", residual, {rows, outputs});
      if (outputs % 8 != 0) refuse("residual has the shape ", residual.shape(), "; its width must be a multiple of 8");
      of.residual = normed("residual", residual, call.input(6), call.input(7));
    }
    of.y = call.output(0, {rows, outputs}).template data<Half>();
#ifdef GPU
    if constexpr (place == on_gpu) return gpu::multiply(of, call.stream());
#endif
    reference::multiply(of);
  }

 private:
  static Activation named(const std::string& word) {
    constexpr const char* names[] = {"none", "relu", "gelu", "gelu_tanh", "swish"};
    for (int i = 0; i < 5; i++)
      if (word == names[i]) return (Activation)i;
    refuse("activation is '", word, "'; it can be none, relu, gelu, gelu_tanh or swish");
  }

  static Normed normed(const char* name, const Tensor& of, const Tensor& scale, const Tensor& shift) {
    if (!scale != !shift) refuse("the norm of ", name, " has a scale or a shift alone; it takes both or none");
    if (!scale) return {of.data<Half>(), nullptr, nullptr};
    expect_shape("scale", scale, {of.size(1)});
    expect_shape("shift", shift, {of.size(1)});
    return {of.data<Half>(), scale.data<Half>(), shift.data<Half>()};
  }

  Activation activation_;
  float epsilon_;
};

}  // namespace dragoman::device
