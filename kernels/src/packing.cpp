#include "packing.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>

namespace dragoman {

// Of the sizes of an output's weights of s8: each is multiplied by at most 255.
constexpr int64_t largest_sum = INT32_MAX / 255;

void Packing::fill(const int8_t* weight, const float* scales, const float* bias, int outputs, int inputs,
                   Packed kind) {
  expect_width(inputs);
  const Kernels& k = kernels();
  if (kind == Packed::nibbles && k.pack_nibbles == nullptr) kind = Packed::bytes;
  const bool halves = kind == Packed::nibbles;
  const int row_bytes = kind == Packed::words ? 2 * inputs : inputs;
  const int numbers = kind == Packed::bytes ? k.group : 2 * k.group;
  const int depth = (row_bytes + numbers - 1) / numbers * numbers;
  const int panels = (outputs + k.columns - 1) / k.columns;
  const size_t columns = (size_t)panels * k.columns;
  weights_ = Memory<int8_t>((halves ? columns * depth / 2 : columns * depth) + read_behind);
  start_ = Memory<int32_t>(columns);
  scales_ = Memory<float>(columns);
  bias_ = Memory<float>(columns);
  if (kind == Packed::words)
    k.pack_words((const int16_t*)weight, outputs, inputs, depth, weights_.get());
  else
    (halves ? k.pack_nibbles : k.pack)(weight, outputs, inputs, depth, weights_.get());
  std::copy_n(scales, outputs, scales_.get());
  std::copy_n(bias, outputs, bias_.get());
  packed_ = {outputs, inputs, depth, panels, weights_.get(), start_.get(), scales_.get(), bias_.get(), kind};
}

Packing::Packing(const int8_t* weight, const float* scales, const float* bias, int outputs, int inputs, int zero_point,
                 float fill_bias, Packed kind) {
  fill(weight, scales, bias, outputs, inputs, kind);
  packed_.shift = kernels().shift(packed_.kind, zero_point);
  for (int n = 0; n < outputs; n++) {
    const int8_t* row = weight + (size_t)n * inputs;
    int32_t total = 0, least = 0;
    int64_t sizes = 0;
    for (int i = 0; i < inputs; i++) {
      total += row[i];
      sizes += std::abs(row[i]);
      least = std::min<int32_t>(least, row[i]);
    }
    if (least == -128)
      refuse("weight of output ", n, ", input ", std::find(row, row + inputs, -128) - row,
             " is -128; quantize within -127..127");
    if (sizes > largest_sum)
      refuse("weight of output ", n, " has sizes that add up to ", sizes, "; of s8 it is ", largest_sum,
             " at most, so that sums of products fit 32 bits");
    start_[n] = (packed_.shift - zero_point) * total;
  }
  for (int n = outputs; n < packed_.panels * kernels().columns; n++) bias_[n] = fill_bias;
}

Packing::Packing(const int16_t* weight, const float* scales, const float* bias, int outputs, int inputs) {
  fill((const int8_t*)weight, scales, bias, outputs, inputs, Packed::words);
  for (int n = 0; n < outputs; n++) {
    const int16_t* row = weight + (size_t)n * inputs;
    double squares = 0;
    for (int i = 0; i < inputs; i++) squares += (double)row[i] * row[i];
    if (squares > (double)largest_norm * largest_norm)
      refuse("weight of output ", n, " has the norm ", std::sqrt(squares), "; of s16 it is ", largest_norm,
             " at most, so that sums of products fit 32 bits");
  }
}

Packing::Packing(const float* weight, const float* bias, int outputs, int inputs) {
  expect_width(inputs);
  const int columns = kernels().float_columns, panels = (outputs + columns - 1) / columns;
  weights_ = Memory<int8_t>((size_t)panels * columns * inputs * sizeof(float));
  bias_ = Memory<float>((size_t)panels * columns);
  kernels().pack_floats(weight, outputs, inputs, (float*)weights_.get());
  std::copy_n(bias, outputs, bias_.get());
  const int depth = inputs * (int)sizeof(float);
  packed_ = {outputs, inputs, depth, panels, weights_.get(), nullptr, nullptr, bias_.get(), Packed::floats};
}

void expect_width(int64_t inputs) {
  if (inputs < 1) refuse("weight has ", inputs, " inputs; it must have at least 1");
}

Quantization quantization(const Node& node) {
  const Quantization q{node.number("scale", 0.f), (int)node.integer("zero_point", 128), (int)node.integer("bits", 8)};
  if (!(q.scale >= 0) || !std::isfinite(q.scale))
    refuse("scale is ", q.scale, "; it must be positive, or 0 for one of each row");
  if (q.zero_point < 0 || q.zero_point > 255) refuse("zero_point is ", q.zero_point, ", not within 0..255");
  if (q.scale == 0 && q.zero_point != 0 && q.zero_point != 128)
    refuse("zero_point is ", q.zero_point, "; with a scale for each row it is 0 or 128");
  if (q.bits != 8 && q.bits != 16) refuse("bits is ", q.bits, ", not 8 or 16");
  return q;
}

Number number_of(const char* name, const Tensor& tensor, bool bytes) {
  if (tensor.type() == ort::float32) return Number::float32;
  if (tensor.type() == ort::float16) return Number::float16;
  if (tensor.type() == ort::int8 && bytes) return Number::int8;
  refuse(name, " has elements of type ", (int)tensor.type(), " (ONNX's numbers), not fp32, fp16",
         bytes ? " or s8" : "");
}

Table output_layer(const Node& node) {
  const Tensor weight = node.constant(2, "weight"), bias = node.constant(4, "bias");
  expect_shape("weight", weight, {-1, -1});
  expect_shape("bias", bias, {weight.size(0)});
  expect_width(weight.size(1));
  Table table{number_of("weight", weight, true), weight.data<void>(), nullptr, weight.size(0), (int)weight.size(1)};
  if (table.number == Number::int8) {
    const Tensor scales = node.constant(3, "scales");
    expect_shape("scales", scales, {weight.size(0)});
    table.scales = scales.data<float>();
  }
  return table;
}

}  // namespace dragoman
