// What the operators of an encoder for GPUs compute: there (encoder.cu) and in plain C++ (reference_encoder.cpp).
// Numbers are fp16 where nothing else is said, and every sum is made in fp32.
#pragma once
#include "launch.h"

namespace dragoman::device {

// Every token against those of its own source. Sources lie one behind another.
struct SourceTokens {
  int tokens, heads, head_dim;
  float scale;
  const Half* qkv;         // [tokens, 3, heads, head_dim]
  const int32_t* firsts;   // [tokens]: the first token of its source
  const int32_t* lengths;  // [tokens]: how many that has
  Half* attended;          // [tokens, heads, head_dim]
};

// Keys and values of sources, on their way from where an encoder run left them to slots of the cache.
struct KeptSources {
  int sources, tensors, slots, heads, places, head_dim;
  const Half* cross;          // [tokens, tensors, heads, head_dim]
  const int32_t* firsts;      // [sources]: the first token of each
  const int32_t* lengths;     // [sources]
  const int32_t* to_slots;    // [sources]
  Half* cache;                // [tensors, slots, heads, places, head_dim]
};

namespace gpu {
// Enqueue kernels on a CUDA stream. Throw std::runtime_error with CUDA's own words.
void attend(const SourceTokens& of, void* stream);
void keep(const KeptSources& of, void* stream);
}  // namespace gpu

namespace reference {
void attend(const SourceTokens& of);
void keep(const KeptSources& of);
}  // namespace reference

}  // namespace dragoman::device
