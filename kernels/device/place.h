// Where an operator runs.
#pragma once
#include "ort/tensor.h"

namespace dragoman::device {

enum Place { on_cpu, on_gpu };

template <Place place>
constexpr const char* provider_name = place == on_gpu ? "CUDAExecutionProvider" : "CPUExecutionProvider";

// Refuses numbers that the host can see and that are not below a limit.
template <class Number>
void expect_below(const char* name, const Tensor& numbers, int64_t limit) {
  for (int64_t i = 0; i < numbers.count(); i++) {
    const Number number = numbers.data<Number>()[i];
    if (number < 0 || number >= limit) refuse(name, " has ", number, " at ", i, "; there are ", limit);
  }
}

}  // namespace dragoman::device
