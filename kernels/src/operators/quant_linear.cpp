#include <cmath>

#include "counters.h"
#include "operators/operators.h"
#include "packing.h"

namespace dragoman {
namespace {

Activation activation_of(const std::string& word) {
  if (word == "none") return Activation::none;
  if (word == "relu") return Activation::relu;
  if (word == "gelu") return Activation::gelu;
  if (word == "gelu_tanh") return Activation::gelu_tanh;
  if (word == "swish") return Activation::swish;
  refuse("activation is \"", word, "\", not none, relu, gelu, gelu_tanh or swish");
}

// Inputs weight, scales, bias from `first` on.
Packing pack(const Node& node, size_t first, const Quantization& q) {
  const Tensor weight = node.constant(first, "weight"), scales = node.constant(first + 1, "scales");
  const Tensor bias = node.constant(first + 2, "bias");
  expect_shape("weight", weight, {-1, -1});
  expect_shape("scales", scales, {weight.size(0)});
  expect_shape("bias", bias, {weight.size(0)});
  const int outputs = (int)weight.size(0), inputs = (int)weight.size(1);
  if (weight.type() == ort::int8)
    return Packing(weight.data<int8_t>(), scales.data<float>(), bias.data<float>(), outputs, inputs, q.zero_point, 0.f);
  if (weight.type() != ort::int16)
    refuse("weight has elements of type ", (int)weight.type(), " (ONNX's numbers), not s8 or s16");
  if (q.scale != 0 || q.zero_point != 0 || q.bits != 16)
    refuse("scale, zero_point and bits are ", q.scale, ", ", q.zero_point, " and ", q.bits,
           "; of a weight of s16 they are 0, 0 and 16");
  return Packing(weight.data<int16_t>(), scales.data<float>(), bias.data<float>(), outputs, inputs);
}

// gamma and beta of `width`; without gamma there is no normalisation.
void read_norm(const Node& node, size_t gamma_input, int64_t width, Linear& linear) {
  const Tensor gamma = node.optional_constant(gamma_input), beta = node.optional_constant(gamma_input + 1);
  linear.norm = Norm::none;
  if (!gamma) return;
  const std::string norm = node.word("norm", "layer");
  if (norm != "layer" && norm != "rms") refuse("norm is \"", norm, "\", not layer or rms");
  expect_shape("gamma", gamma, {width});
  if (beta) expect_shape("beta", beta, {width});
  linear.norm = norm == "layer" ? Norm::layer : Norm::rms;
  linear.epsilon = node.number("epsilon", 1e-5f);
  linear.gamma = gamma.data<float>();
  linear.beta = beta ? beta.data<float>() : nullptr;
}

// What a layer gets, checked, and room for what it gives.
struct Given {
  Tensor x;
  int rows;
  const float* residual;  // or null
  float* out;

  // Inputs residual and gamma from `first` on.
  Given(const Call& call, const Linear& linear, size_t first) : x(call.input(0)), rows((int)x.size(0)) {
    const Tensor added = call.input(first);
    expect_shape("x", x, {-1, linear.weight.inputs});
    if (added) expect_shape("residual", added, {rows, linear.weight.outputs});
    if (linear.norm == Norm::none && call.input(first + 1)) refuse("input ", first + 1, " (gamma) must be a constant");
    residual = added ? added.data<float>() : nullptr;
    out = call.output(0, {rows, linear.weight.outputs}).data<float>();
  }
};

struct QuantLinear {
  static constexpr const char* name = "QuantLinear";
  static constexpr Port inputs[] = {{ort::any},           {ort::any},           {ort::float32},      {ort::float32},
                                    {ort::float32, true}, {ort::float32, true}, {ort::float32, true}};
  static constexpr Port outputs[] = {{ort::float32}};

  explicit QuantLinear(const Node& node) {
    linear_.quantization = quantization(node);
    packing_ = pack(node, 1, linear_.quantization);
    linear_.weight = packing_.weight();
    linear_.activation = activation_of(node.word("activation", "none"));
    read_norm(node, 5, linear_.weight.outputs, linear_);
  }

  void run(const Call& call) const {
    const auto [x, rows, residual, out] = Given(call, linear_, 4);
    if (rows == 0) return;  // kernels begin with a first row
    Scratch scratch;
    if (x.type() == ort::float32) {
      count(counters.saturated, kernels().linear(linear_, x.data<float>(), rows, residual, out, scratch));
    } else if (x.type() == ort::uint8) {
      if (linear_.quantization.scale == 0) refuse("x is u8, and its scale is 0; give the scale it was quantized with");
      if (linear_.quantization.bits != 8) refuse("x is u8, and bits is ", linear_.quantization.bits, ", not 8");
      kernels().linear_of_bytes(linear_, x.data<uint8_t>(), rows, residual, out, scratch);
    } else {
      refuse("x has elements of type ", (int)x.type(), " (ONNX's numbers), not fp32 or u8");
    }
  }

 private:
  Packing packing_;
  Linear linear_{};
};

struct QuantLinearU8 {
  static constexpr const char* name = "QuantLinearU8";
  static constexpr Port inputs[] = {{ort::float32}, {ort::int8}, {ort::float32}, {ort::float32}};
  static constexpr Port outputs[] = {{ort::uint8}};

  explicit QuantLinearU8(const Node& node) {
    linear_.quantization = quantization(node);
    if (linear_.quantization.bits != 8) refuse("bits is ", linear_.quantization.bits, ", not 8");
    const std::string word = node.word("activation", "relu");
    if (word != "relu") refuse("activation is \"", word, "\"; u8 results take relu");
    linear_.activation = Activation::relu;
    linear_.out_scale = node.number("out_scale", 0.f);
    if (!(linear_.out_scale > 0) || !std::isfinite(linear_.out_scale))
      refuse("out_scale is ", linear_.out_scale, "; it must be positive");
    packing_ = pack(node, 1, linear_.quantization);
    linear_.weight = packing_.weight();
  }

  void run(const Call& call) const {
    const Tensor x = call.input(0);
    const int64_t rows = x.size(0);
    expect_shape("x", x, {-1, linear_.weight.inputs});
    uint8_t* out = call.output(0, {rows, linear_.weight.outputs}).data<uint8_t>();
    if (rows == 0) return;
    Scratch scratch;
    count(counters.saturated, kernels().linear_to_bytes(linear_, x.data<float>(), (int)rows, out, scratch));
  }

 private:
  Packing packing_;
  Linear linear_{};
};

struct FloatLinear {
  static constexpr const char* name = "Linear";
  static constexpr Port inputs[] = {{ort::float32},       {ort::float32},       {ort::float32},
                                    {ort::float32, true}, {ort::float32, true}, {ort::float32, true}};
  static constexpr Port outputs[] = {{ort::float32}};

  explicit FloatLinear(const Node& node) {
    const Tensor weight = node.constant(1, "weight"), bias = node.constant(2, "bias");
    expect_shape("weight", weight, {-1, -1});
    expect_shape("bias", bias, {weight.size(0)});
    packing_ = Packing(weight.data<float>(), bias.data<float>(), (int)weight.size(0), (int)weight.size(1));
    linear_.weight = packing_.weight();
    linear_.activation = activation_of(node.word("activation", "none"));
    read_norm(node, 4, linear_.weight.outputs, linear_);
  }

  void run(const Call& call) const {
    const auto [x, rows, residual, out] = Given(call, linear_, 3);
    Scratch scratch;
    kernels().linear(linear_, x.data<float>(), rows, residual, out, scratch);
  }

 private:
  Packing packing_;
  Linear linear_{};
};

struct ResidualNorm {
  static constexpr const char* name = "ResidualNorm";
  static constexpr Port inputs[] = {{ort::float32}, {ort::float32, true}, {ort::float32}, {ort::float32, true}};
  static constexpr Port outputs[] = {{ort::float32}};

  explicit ResidualNorm(const Node& node) {
    width_ = node.constant(2, "gamma").size(0);
    read_norm(node, 2, width_, linear_);
  }

  void run(const Call& call) const {
    const Tensor x = call.input(0), residual = call.input(1);
    const int64_t rows = x.size(0);
    expect_shape("x", x, {-1, width_});
    if (residual) expect_shape("residual", residual, {rows, width_});
    float* out = call.output(0, {rows, width_}).data<float>();
    const float* added = residual ? residual.data<float>() : nullptr;
    kernels().residual_norm(x.data<float>(), added, (int)rows, (int)width_, linear_, out);
  }

 private:
  int64_t width_;
  Linear linear_{};
};

struct Gate {
  static constexpr const char* name = "Gate";
  static constexpr Port inputs[] = {{ort::float32}};
  static constexpr Port outputs[] = {{ort::float32}};

  explicit Gate(const Node& node) : activation_(activation_of(node.word("activation", "none"))) {}

  void run(const Call& call) const {
    const Tensor x = call.input(0);
    expect_shape("x", x, {-1, -1});
    const int64_t rows = x.size(0), width = x.size(1) / 2;
    if (x.size(1) % 2 != 0) refuse("x has the shape ", x.shape(), ", whose width has no two halves");
    float* out = call.output(0, {rows, width}).data<float>();
    kernels().gate(x.data<float>(), activation_, (int)rows, (int)width, out);
  }

 private:
  Activation activation_;
};

}  // namespace

std::vector<const OrtCustomOp*> linear_operators() {
  return {custom_operator<FloatLinear>(), custom_operator<QuantLinear>(), custom_operator<QuantLinearU8>(),
          custom_operator<ResidualNorm>(), custom_operator<Gate>()};
}

}  // namespace dragoman
