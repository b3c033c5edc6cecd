// What is compiled for every instruction set, as a table of functions. dispatch.cpp chooses one when the library is
// loaded.
#pragma once
#include <cstddef>
#include <cstdint>

#include "scratch.h"

namespace dragoman {

enum class Activation { none, relu, gelu, gelu_tanh, swish };
enum class Norm { none, layer, rms };
enum class Number { float32, float16, int8 };

// How x becomes u8: q = round(x / scale) + zero_point. scale 0: a scale for each row. bits 16: two digits of u8,
// 256 * high + low - 257 * zero_point, with a 257th of the scale.
struct Quantization {
  float scale;
  int zero_point;
  int bits;
};

// The most that rows of s16 may have, and weights of an output: its square is not more than 2^31 - 1.
constexpr float largest_norm = 46340.f;

// Numbers of packed weights: s8; s16; multiples of 16 of s8, whose four bits share a byte with those of another; fp32.
enum class Packed { bytes, words, nibbles, floats };

// Bytes behind the last panel that a product may read, and multiply by zeros.
constexpr int read_behind = 8192;

// A weight [outputs, inputs] as the products want it: panels of such numbers, and facts of each column, filled up to
// whole panels.
struct PackedWeight {
  int outputs, inputs;
  int depth;  // bytes of a row of inputs, filled up with zeros
  int panels;
  const int8_t* weights;  // see isa/portable.h
  const int32_t* start;   // (shift - zero_point) * the sum of a column's weights; of s16 zeros; of fp32 null
  const float* scales;    // of fp32 null
  const float* bias;
  Packed kind = Packed::bytes;
  int shift = 0;  // what tile takes off every x
};

struct Linear {
  PackedWeight weight;
  Quantization quantization;
  Activation activation;
  Norm norm;
  float epsilon;
  const float *gamma, *beta;  // beta may be null
  float out_scale;            // of u8 results
};

// A matrix of rows of the output layer, as it is stored.
struct Table {
  Number number;
  const void* rows;     // [count, width]
  const float* scales;  // [count], of int8
  int64_t count;
  int width;
};

// Caches of these sizes. In a slot the positions lie one after another, so that what a row has is one piece: values
// [capacity, heads, head_dim], keys in blocks of 16 positions, [capacity / 16, heads, head_dim, 16].
struct Cache {
  Number number;
  void *keys, *values;
  int64_t slots;
  int heads, capacity, head_dim;
};

// What a score gets by the key's position less the query's, which is at `middle`; the ends are for all beyond.
struct Bias {
  const float* values;  // [heads, span]; null: none
  int span, middle;
};

// What tokens are looked at by where a look may miss: products of few numbers, see compute/coarse.h.
struct CoarseLook {
  PackedWeight keys;   // [tokens, numbers]; 0 outputs: there is none
  const float* query;  // [numbers + probes, width]
  const float* start;  // [numbers + probes], what is added to the query's product
  int probes;          // numbers that tell what a look leaves out
  float strange;       // a row of which it is more is computed whole
  float common;        // what is added to every look, beside the product of x with the mean weight
  float margin;        // logits of tokens whose looks are so far below the best are not computed
};

// The output layer. `look` is what all tokens are compared by, in 8 bits. A logit w x + b differs from it by at most
// |error of x| * weight_norm + |x| * rest_norm + bias_slack, of each token.
struct BestTokens {
  PackedWeight look;
  Quantization quantization;
  Table table;
  const int8_t* row_major;    // [count, width], the look's weights as they come; null where no tokens are named
  const float* weight_norms;  // |scale * quantized weight|. These three are filled up to whole panels
  const float* rest_norms;    // |weight - scale * quantized weight|
  const float* bias_slack;    // what adding it may round off
  const float* panel_bounds;  // [panels][3]: the largest of each in a panel
  float bounds[3];            // of all
  const float* mean_weight;   // [width], of the tokens that can be
  const float* mean_look;     // [width], of scale * quantized weight
  bool exact;
  CoarseLook coarse;
};

struct Counts {
  int64_t rows, whole_rows, saturated;
};

struct Kernels {
  const char* name;
  int columns, group, float_columns;
  // What a tile takes off every x.
  int (*shift)(Packed kind, int zero_point);

  // weight [outputs, inputs] -> panels of `columns`, inputs filled up to depth.
  void (*pack)(const int8_t* weight, int outputs, int inputs, int depth, int8_t* panels);
  void (*pack_words)(const int16_t* weight, int outputs, int inputs, int depth, int8_t* panels);
  // Of multiples of 16. Null where they are bytes like others.
  void (*pack_nibbles)(const int8_t* weight, int outputs, int inputs, int depth, int8_t* panels);
  // The same of fp32: panels of `float_columns`.
  void (*pack_floats)(const float* weight, int outputs, int inputs, float* panels);
  // Of x fp32 [rows, inputs], or u8. They return how many values were beyond a static range.
  int64_t (*linear)(const Linear&, const float* x, int rows, const float* residual, float* out, Scratch&);
  int64_t (*linear_of_bytes)(const Linear&, const uint8_t* x, int rows, const float* residual, float* out, Scratch&);
  int64_t (*linear_to_bytes)(const Linear&, const float* x, int rows, uint8_t* out, Scratch&);
  void (*residual_norm)(const float* x, const float* residual, int rows, int width, const Linear&, float* out);
  // x [rows, 2 * width]: the activated first half times the second.
  void (*gate)(const float* x, Activation, int rows, int width, float* out);
  void (*embed)(const Table&, float scale, const int64_t* ids, const int32_t* positions, const float* position_table,
                int rows, float* out);
  void (*self_attention)(const Cache&, const float* qkv, const int32_t* positions, const int32_t* slots, int rows,
                         float scale, Bias, float* out, Scratch&);
  void (*source_attention)(const Cache&, const float* query, const int32_t* lengths, const int32_t* slots, int rows,
                           float scale, float* out, Scratch&);
  void (*packed_attention)(const float* qkv, const int32_t* lengths, int sentences, int heads, int head_dim,
                           float scale, Bias, float* out, Scratch&);
  void (*recurrence)(const float* gates, float* state, const int32_t* slots, int rows, int width, float* out);
  void (*gated_unit)(const float* given, const float* kept, const float* state, int rows, int width, float* out);
  // keys, values [rows, capacity, width]; scores [rows, places] or null.
  void (*additive_attention)(const float* query, const float* weight, const float* keys, const float* values,
                             const int32_t* last, int rows, int capacity, int width, float* out, float* scores,
                             int places, Scratch&);
  void (*store_source)(const Cache&, const float* cross, size_t stride, int tokens, int slot);
  // allowed: [rows, places] or null.
  Counts (*best_tokens)(const BestTokens&, const float* x, int rows, int k, const int32_t* allowed, int places,
                        int64_t* ids, float* log_probs, float* normalisers, Scratch&);
  // Of logits [rows, vocabulary].
  void (*top_tokens)(const float* logits, int rows, int vocabulary, int k, int64_t* ids, float* log_probs);
  // The logits of some tokens of the output layer [rows, named]; -inf where an id is negative.
  void (*named_tokens)(const Table&, const float* bias, const float* x, int rows, const int64_t* ids, int named,
                       float* logits);
};

// The chosen one.
const Kernels& kernels();

}  // namespace dragoman
