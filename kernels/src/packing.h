// Weights, packed when a kernel is made and freed with it. ONNX Runtime's constant stays what it is: a file mapping.
#pragma once
#include "compute/table.h"
#include "memory.h"
#include "ort/tensor.h"

namespace dragoman {

// A PackedWeight and the memory that it points to.
class Packing {
 public:
  Packing() = default;
  // weight [outputs, inputs], of bytes or nibbles; scales and bias [outputs]. What fills the columns up has this bias.
  Packing(const int8_t* weight, const float* scales, const float* bias, int outputs, int inputs, int zero_point,
          float fill_bias, Packed kind = Packed::bytes);
  Packing(const int16_t* weight, const float* scales, const float* bias, int outputs, int inputs);
  Packing(const float* weight, const float* bias, int outputs, int inputs);

  const PackedWeight& weight() const { return packed_; }

 private:
  void fill(const int8_t* weight, const float* scales, const float* bias, int outputs, int inputs, Packed kind);

  PackedWeight packed_{};
  Memory<int8_t> weights_;
  Memory<int32_t> start_;
  Memory<float> scales_, bias_;
};

// Attributes scale, zero_point and bits.
Quantization quantization(const Node& node);

// Refuses a weight of no inputs, by which nothing can be divided.
void expect_width(int64_t inputs);

// Whether a tensor holds this type of number; refuses what is none of fp32, fp16 and (where `bytes`) s8.
Number number_of(const char* name, const Tensor& tensor, bool bytes);

// The output layer of a node that has its weight, scales and bias as inputs 2, 3 and 4.
Table output_layer(const Node& node);

}  // namespace dragoman
