// Layers of fp32 against double precision.
#pragma once
#include <vector>

#include "check/trial.h"
#include "compute/float_linear.h"
#include "memory.h"

namespace dragoman::ISA {
namespace {

void check_float_layer(int rows, int outputs, int inputs, Random& random, Difference& difference) {
  const int panels = (outputs + float_columns - 1) / float_columns;
  std::vector<float> x((size_t)rows * inputs), weight((size_t)outputs * inputs), residual((size_t)rows * outputs);
  for (std::vector<float>* numbers : {&x, &weight, &residual})
    for (float& v : *numbers) v = random.real();
  Memory<float> packed((size_t)panels * float_columns * inputs), bias((size_t)panels * float_columns);
  for (int n = 0; n < outputs; n++) bias[n] = random.real();
  pack_floats(weight.data(), outputs, inputs, packed.get());
  Linear l{};
  l.weight = {outputs, inputs, 4 * inputs, panels, (int8_t*)packed.get(), nullptr, nullptr, bias.get(), Packed::floats};
  l.activation = Activation::relu;
  std::vector<float> out((size_t)rows * outputs), alone(outputs);
  linear_of_floats(l, x.data(), rows, residual.data(), out.data());
  for (int r = 0; r < rows; r++)
    for (int n = 0; n < outputs; n++) {
      double expected = bias[n];
      for (int k = 0; k < inputs; k++) expected += (double)x[(size_t)r * inputs + k] * weight[(size_t)n * inputs + k];
      difference.compare(out[(size_t)r * outputs + n],
                         std::fmax(expected, 0.) + residual[(size_t)r * outputs + n]);
    }
  linear_of_floats(l, &x[(size_t)(rows - 1) * inputs], 1, &residual[(size_t)(rows - 1) * outputs], alone.data());
  if (memcmp(alone.data(), &out[(size_t)(rows - 1) * outputs], outputs * sizeof(float)) != 0)
    failures++, printf("a row of %d is another than alone, [%d, %d] WRONG\n", rows, outputs, inputs);
}

void check_float_layers() {
  Random random;
  Difference difference{"linear layer of fp32", 5e-6};  // sums of 1,536 products, one by one
  const int shapes[][2] = {{1, 1}, {3, 5}, {16, 4}, {17, 7}, {63, 64}, {65, 66}, {129, 255}, {200, 1536}};
  for (const auto& shape : shapes)
    for (int rows : {1, 2, 3, 4, 5, 6, 7, 13}) check_float_layer(rows, shape[0], shape[1], random, difference);
  check_float_layer(400, 70, 1000, random, difference);  // more rows than a block
}

}  // namespace
}  // namespace dragoman::ISA
