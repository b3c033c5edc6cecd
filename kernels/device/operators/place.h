// Where an operator runs, and what both kinds of operators check alike.
#pragma once
#include "launch.h"
#include "ort/operator.h"

namespace dragoman::device {

enum Place { on_cpu, on_gpu };

template <Place place>
constexpr const char* provider_name = place == on_gpu ? "CUDAExecutionProvider" : "CPUExecutionProvider";

inline void expect_head_dim(int64_t head_dim) {
  if (head_dim < 8 || head_dim % 8 != 0 || head_dim > largest_head_dim)
    refuse("head_dim is ", head_dim, "; it must be a multiple of 8, and ", largest_head_dim, " at most");
}

// Indices that the host can see. On a GPU they are the engine's word.
template <class Number = int32_t>
void expect_below(const char* name, const Tensor& numbers, int64_t limit) {
  for (int64_t i = 0; i < numbers.count(); i++) {
    const Number number = numbers.data<Number>()[i];
    if (number < 0 || number >= limit) refuse(name, " has ", number, " at ", i, "; there are ", limit);
  }
}

// The same of stretches, each from its first to first + length - 1.
inline void expect_within(const Tensor& firsts, const Tensor& lengths, int64_t limit, int64_t longest) {
  for (int64_t i = 0; i < firsts.count(); i++) {
    const int64_t first = firsts.data<int32_t>()[i], length = lengths.data<int32_t>()[i];
    if (first < 0 || length < 1 || length > longest || first + length > limit)
      refuse("firsts and lengths have ", first, " and ", length, " at ", i, "; there are ", limit,
             " tokens, and the longest source has ", longest);
  }
}

}  // namespace dragoman::device
