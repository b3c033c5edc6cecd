// What the operators of a step for GPUs compute: there (the .cu files) and in plain C++ (reference.cpp).
// Numbers are fp16 where nothing else is said, and every sum is made in fp32.
#pragma once
#include <cstddef>
#include <cstdint>

namespace dragoman::device {

using Half = uint16_t;  // the bits of a number of fp16

// One query of each row against the keys of a slot, or of the slots of a history.
struct Attention {
  int rows, heads, head_dim, slots, places;
  int query_stride;  // numbers from a row's query to the next row's
  float scale;
  const Half* query;          // [rows, heads, head_dim]; of a history with the new keys and values behind it
  Half *keys, *values;        // [slots, heads, places, head_dim]; written where there is a history
  const int32_t* positions;   // [rows]: places before the new one, or the last place of the slot
  const int32_t* row_slots;   // [rows]
  const int32_t* history;     // [slots, places]: in whose slot each place of a hypothesis lies; or null
  Half* attended;             // [rows, heads, head_dim]
};

// The best tokens of each row.
struct BestLogits {
  int rows, width, columns, k;
  const Half* hidden;    // [rows, width]
  const Half* products;  // [rows, columns], rounded: hidden times weight
  const Half* weight;    // [columns, width]
  const Half* bias;      // [columns]
  int64_t* ids;          // [rows, k]
  float* log_probs;      // [rows, k]
  Half* logits;          // [rows, columns]
  void* scratch;         // scratch_bytes(...)
};

enum class Activation { none, relu, gelu, gelu_tanh, swish };

// Numbers of rows, or with a scale their norm (Ba et al. 2016, "Layer Normalization").
struct Normed {
  const Half* numbers;           // [rows, width]
  const Half *scale, *shift;     // [width]; or null
};

// A linear layer: activation(x weight^T + bias) + residual.
struct RowLinear {
  int rows, width, outputs;
  Activation activation;
  float epsilon;                 // of norms
  Normed x;                      // [rows, width]
  const Half* weight;            // [outputs, width]
  const Half* bias;              // [outputs]; or null
  Normed residual;               // [rows, outputs]; or null
  Half* y;                       // [rows, outputs]
};

// Tokens and their positions.
struct Embedding {
  int rows, width;
  float scale;                   // of tokens
  const int64_t* ids;            // [rows]
  const int32_t* positions;      // [rows]
  const Half *tokens, *places;   // [tokens, width], [places, width]; no places: null
  Half* embedded;                // [rows, width]
};

constexpr int most_candidates = 64;
constexpr int largest_head_dim = 256;

// Of the tokens whose rounded logits are best, so many are looked at again, their products summed in fp32.
constexpr int looked_at_again(int k) { return k <= 8 ? 16 : 96; }

namespace gpu {
// Enqueue kernels on a CUDA stream. Throw std::runtime_error with CUDA's own words.
void attend(const Attention& of, void* stream);
size_t scratch_bytes(const BestLogits& of);
void find(const BestLogits& of, void* stream);
void multiply(const RowLinear& of, void* stream);
void embed(const Embedding& of, void* stream);
}  // namespace gpu

namespace reference {
void attend(const Attention& of);
void find(const BestLogits& of);
void multiply(const RowLinear& of);
void embed(const Embedding& of);
}  // namespace reference

}  // namespace dragoman::device
