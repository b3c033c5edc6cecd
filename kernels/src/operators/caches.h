// What is checked of caches, slots and positions.
#pragma once
#include "compute/table.h"
#include "ort/tensor.h"

namespace dragoman {

// Of keys and values [slots, heads, capacity, head_dim], both fp32 or both fp16.
Cache cache_of(const Tensor& keys, const Tensor& values);

// `places` are positions, from 0 to below the capacity, or lengths, one more: `least` is 0 or 1.
void expect_places(const char* name, const Tensor& places, const Tensor& slots, int64_t rows, const Cache& cache,
                   int least);

void expect_slots(const Tensor& slots, int64_t rows, int64_t count);

// The engine binds an output to the memory of its input; ONNX Runtime would else give it memory of its own.
void expect_in_place(const char* name, const Tensor& input, const Tensor& output);

// [heads, span], or none: of keys before the query and at it; where keys come after it too, of as many after it.
Bias bias_of(const Tensor& bias, int heads, bool both_ways);

void expect_head_dim(int64_t head_dim);

float scale_of(float attribute, int head_dim);

}  // namespace dragoman
