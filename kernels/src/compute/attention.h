// Attention of rows to a slot's keys and values, and of sentences to themselves. Every sum has one order, however many
// rows are computed together: keys are compared in two chains of even and odd numbers, values are added up in two of
// even and odd positions.
#pragma once
#include "compute/functions.h"
#include "compute/table.h"

namespace dragoman::ISA {

// Keys of a head in blocks of 16 [head_dim, 16], and values [head_dim], each so many numbers after the one before.
template <class T>
struct Head {
  const T *keys, *values;
  size_t block_stride, value_stride;
  int length, head_dim;
  float scale;
  Bias bias;  // of this head
};

// One head's queries [head_dim] at positions that follow each other, and what they attend to [head_dim], each so many
// numbers after the one before.
struct Queries {
  const float* queries;
  size_t query_stride;
  int position;
  float* out;
  size_t out_stride;

  MEMBER const float* operator[](int r) const { return queries + r * query_stride; }
  MEMBER float* attended(int r) const { return out + r * out_stride; }
};

constexpr bool many_registers = native == 16;  // 32 of 16 numbers
constexpr int most_queries = many_registers ? 4 : 2;  // that are computed together: their sums fit the registers

// Products of ROWS queries with the keys of BLOCKS blocks, the first of which is at `keys`.
template <class T, int ROWS, int BLOCKS>
INLINE void compare(const Head<T>& head, const Queries& queries, const T* keys, Floats (&products)[ROWS][BLOCKS]) {
  Floats odd[ROWS][BLOCKS];
  for (int r = 0; r < ROWS; r++)
    for (int b = 0; b < BLOCKS; b++) products[r][b] = odd[r][b] = all(0.f);
  for (int d = 0; d < head.head_dim; d += 2)
    for (int b = 0; b < BLOCKS; b++) {
      const T* key = keys + b * head.block_stride + d * 16;
      const Floats even_key = load16(key), odd_key = load16(key + 16);
      for (int r = 0; r < ROWS; r++) {
        products[r][b] = products[r][b] + all(queries[r][d]) * even_key;
        odd[r][b] = odd[r][b] + all(queries[r][d + 1]) * odd_key;
      }
    }
  for (int r = 0; r < ROWS; r++)
    for (int b = 0; b < BLOCKS; b++) products[r][b] = products[r][b] + odd[r][b];
}

constexpr float count_up[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

// Of 16 keys, the first of which is so far behind the query.
INLINE Floats of_distance(const Bias& bias, int distance) {
  const int at = bias.middle + distance, last = bias.span - 1;
  if (at >= 0 && at + 15 <= last) return load(bias.values + at);
  float x[16];
  for (int i = 0; i < 16; i++) x[i] = bias.values[at + i < 0 ? 0 : at + i < last ? at + i : last];
  return load(x);
}

// Scores of 16 positions from `first` on: scaled, with the bias; those beyond the length are the lowest.
template <class T>
INLINE Floats score(Floats products, const Head<T>& head, int first, int position) {
  Floats s = products * all(head.scale);
  if (head.bias.values) s = s + of_distance(head.bias, first - position);
  const int valid = head.length - first;
  return valid >= 16 ? s : where(load(count_up) < all((float)valid), s, all(lowest));
}

template <class T, int ROWS, int BLOCKS>
INLINE void compare_blocks(const Head<T>& head, const Queries& queries, int first, float* const* scores, Floats* most) {
  Floats products[ROWS][BLOCKS];
  compare<T, ROWS, BLOCKS>(head, queries, head.keys + first / 16 * head.block_stride, products);
  for (int r = 0; r < ROWS; r++)
    for (int b = 0; b < BLOCKS; b++) {
      const Floats s = score(products[r][b], head, first + 16 * b, queries.position + r);
      store(scores[r] + first + 16 * b, s);
      most[r] = larger(s, most[r]);
    }
}

// Scores to e^(score - the largest). Returns 1 / their sum.
INLINE float weigh(float* scores, int length, Floats most) {
  const Floats shift = all(largest(most));
  Floats total = all(0.f);
  for (int t = 0; t < length; t += 16) {
    const Floats e = exponential(load(scores + t) - shift);
    store(scores + t, e);
    total = total + e;
  }
  return 1.f / sum(total);
}

// 16 * PARTS numbers of the values, weighed.
template <class T, int ROWS, int PARTS>
INLINE void add_up(const Head<T>& head, const float* const* weights, const float* inverse, int at,
                   const Queries& queries) {
  Floats even[ROWS][PARTS], odd[ROWS][PARTS];
  for (int r = 0; r < ROWS; r++)
    for (int p = 0; p < PARTS; p++) even[r][p] = odd[r][p] = all(0.f);
  const T* values = head.values + at;
  int t = 0;
  for (; t + 1 < head.length; t += 2, values += 2 * head.value_stride)
    for (int p = 0; p < PARTS; p++) {
      const Floats first = load16(values + 16 * p), second = load16(values + head.value_stride + 16 * p);
      for (int r = 0; r < ROWS; r++) {
        even[r][p] = even[r][p] + all(weights[r][t]) * first;
        odd[r][p] = odd[r][p] + all(weights[r][t + 1]) * second;
      }
    }
  if (t < head.length)
    for (int p = 0; p < PARTS; p++)
      for (int r = 0; r < ROWS; r++) even[r][p] = even[r][p] + all(weights[r][t]) * load16(values + 16 * p);
  for (int r = 0; r < ROWS; r++)
    for (int p = 0; p < PARTS; p++)
      store(queries.attended(r) + at + 16 * p, (even[r][p] + odd[r][p]) * all(inverse[r]));
}

INLINE float one_of(const float* p) { return *p; }
INLINE float one_of(const uint16_t* p) {
  uint16_t halves[16] = {*p};
  float x[16];
  store(x, load16(halves));
  return x[0];
}

// What is left where head_dim is no multiple of 16.
template <class T>
static void add_up_rest(const Head<T>& head, const float* weights, float inverse, int at, float* out) {
  for (int d = at; d < head.head_dim; d++) {
    float total = 0;
    for (int t = 0; t < head.length; t++) total += weights[t] * one_of(head.values + t * head.value_stride + d);
    out[d] = total * inverse;
  }
}

// Of ROWS queries. scores: [ROWS][length, rounded up to 16].
template <class T, int ROWS>
static void attend(const Head<T>& head, const Queries& queries, float* const* scores) {
  constexpr bool by_two = ROWS == 1 || many_registers;  // blocks of keys, and parts of values
  Floats most[ROWS];
  for (Floats& m : most) m = all(lowest);
  int t = 0;
  if constexpr (by_two)
    for (; t + 16 < head.length; t += 32) compare_blocks<T, ROWS, 2>(head, queries, t, scores, most);
  for (; t < head.length; t += 16) compare_blocks<T, ROWS, 1>(head, queries, t, scores, most);
  float inverse[ROWS];
  for (int r = 0; r < ROWS; r++) inverse[r] = weigh(scores[r], head.length, most[r]);
  int d = 0;
  if constexpr (by_two)
    for (; d + 32 <= head.head_dim; d += 32) add_up<T, ROWS, 2>(head, scores, inverse, d, queries);
  for (; d + 16 <= head.head_dim; d += 16) add_up<T, ROWS, 1>(head, scores, inverse, d, queries);
  if (d < head.head_dim)
    for (int r = 0; r < ROWS; r++) add_up_rest(head, scores[r], inverse[r], d, queries.attended(r));
}

// The same of so many of them.
template <class T, int ROWS = most_queries>
INLINE void attend_up_to(int rows, const Head<T>& head, const Queries& queries, float* const* scores) {
  if constexpr (ROWS > 1) {
    if (rows < ROWS) return attend_up_to<T, ROWS - 1>(rows, head, queries, scores);
  }
  attend<T, ROWS>(head, queries, scores);
}

INLINE int whole_blocks(int length) { return (length + 15) / 16 * 16; }

INLINE Bias of_head(Bias bias, int h) {
  if (bias.values) bias.values += (size_t)h * bias.span;
  return bias;
}

INLINE size_t width_of(const Cache& c) { return (size_t)c.heads * c.head_dim; }
INLINE size_t beginning_of(const Cache& c, int slot) { return (size_t)slot * c.capacity * width_of(c); }

template <class T>
INLINE Head<T> head_of(const Cache& c, int slot, int h, int length, float scale, Bias bias) {
  const size_t width = width_of(c), at = beginning_of(c, slot);
  const T *keys = (const T*)c.keys + at + h * 16 * c.head_dim, *values = (const T*)c.values + at + h * c.head_dim;
  return {keys, values, 16 * width, width, length, c.head_dim, scale, of_head(bias, h)};
}

// One number of a key or value.
INLINE void put(float* p, float x) { *p = x; }
INLINE void put(uint16_t* p, float x) {
  uint16_t halves[16];
  store16(halves, all(x));
  *p = halves[0];
}

// A token's key and value [head_dim] into its place.
template <class T>
INLINE void keep(const Cache& c, int slot, int h, int position, const float* key, const float* value) {
  const size_t width = width_of(c), at = beginning_of(c, slot);
  T* keys = (T*)c.keys + at + position / 16 * 16 * width + h * 16 * c.head_dim + position % 16;
  T* values = (T*)c.values + at + position * width + h * c.head_dim;
  int d = 0;
  for (; d + 16 <= c.head_dim; d += 16) {
    T part[16];
    store16(part, load(key + d));
    for (int i = 0; i < 16; i++) keys[(d + i) * 16] = part[i];
    store16(values + d, load(value + d));
  }
  for (; d < c.head_dim; d++) {
    put(keys + d * 16, key[d]);
    put(values + d, value[d]);
  }
}

// Asks for what a slot has, a share of it for each head of the row before. In the order of memory, which brings more
// than was asked for, and to the second cache: the first is full of that row.
template <class T>
INLINE void prefetch(const Cache& c, int slot, int length, int h) {
  const size_t bytes = whole_blocks(length) * width_of(c) * sizeof(T), share = (bytes / c.heads + 63) / 64 * 64;
  const size_t first = h * share, last = first + share < bytes ? first + share : bytes;
  const char* keys = (const char*)((const T*)c.keys + beginning_of(c, slot));
  const char* values = (const char*)((const T*)c.values + beginning_of(c, slot));
  for (size_t at = first; at < last; at += 64) __builtin_prefetch(keys + at, 0, 2);
  for (size_t at = first; at < last; at += 64) __builtin_prefetch(values + at, 0, 2);
}

template <class T>
static void attend_target(const Cache& c, const float* qkv, const int32_t* positions, const int32_t* slots, int rows,
                          float scale, Bias bias, float* out, Scratch& scratch) {
  const int width = c.heads * c.head_dim;
  float* scores = scratch.take<float>(c.capacity);
  for (int r = 0; r < rows; r++, qkv += 3 * width, out += width)
    for (int h = 0; h < c.heads; h++) {
      if (r + 1 < rows) prefetch<T>(c, slots[r + 1], positions[r + 1] + 1, h);
      const float* query = qkv + h * c.head_dim;
      keep<T>(c, slots[r], h, positions[r], query + width, query + 2 * width);
      const Head<T> head = head_of<T>(c, slots[r], h, positions[r] + 1, scale, bias);
      attend<T, 1>(head, {query, 0, positions[r], out + h * c.head_dim, 0}, &scores);
    }
}

template <class T>
static void attend_source(const Cache& c, const float* query, const int32_t* lengths, const int32_t* slots, int rows,
                          float scale, float* out, Scratch& scratch) {
  const size_t width = width_of(c);
  float* scores[most_queries];
  for (float*& of : scores) of = scratch.take<float>(c.capacity);
  for (int r = 0, after; r < rows; r = after) {
    for (after = r + 1; after < rows && after < r + most_queries; after++)
      if (slots[after] != slots[r] || lengths[after] != lengths[r]) break;
    for (int h = 0; h < c.heads; h++) {
      if (after < rows && slots[after] != slots[r]) prefetch<T>(c, slots[after], lengths[after], h);
      const Head<T> head = head_of<T>(c, slots[r], h, lengths[r], scale, Bias{});
      const size_t at = r * width + h * c.head_dim;
      attend_up_to<T>(after - r, head, {query + at, width, 0, out + at, width}, scores);
    }
  }
}

static void self_attention(const Cache& c, const float* qkv, const int32_t* positions, const int32_t* slots, int rows,
                           float scale, Bias bias, float* out, Scratch& scratch) {
  c.number == Number::float16 ? attend_target<uint16_t>(c, qkv, positions, slots, rows, scale, bias, out, scratch)
                              : attend_target<float>(c, qkv, positions, slots, rows, scale, bias, out, scratch);
}

static void source_attention(const Cache& c, const float* query, const int32_t* lengths, const int32_t* slots, int rows,
                             float scale, float* out, Scratch& scratch) {
  c.number == Number::float16 ? attend_source<uint16_t>(c, query, lengths, slots, rows, scale, out, scratch)
                              : attend_source<float>(c, query, lengths, slots, rows, scale, out, scratch);
}

// Keys [length, stride] of one head to blocks of 16.
INLINE void to_blocks(const float* keys, size_t stride, int length, int head_dim, float* blocks) {
  for (int t = 0; t < length; t++, keys += stride) {
    float* block = blocks + (size_t)(t / 16) * 16 * head_dim + t % 16;
    for (int d = 0; d < head_dim; d++) block[d * 16] = keys[d];
  }
}

static void packed_attention(const float* qkv, const int32_t* lengths, int sentences, int heads, int head_dim,
                             float scale, Bias bias, float* out, Scratch& scratch) {
  const size_t width = (size_t)heads * head_dim, stride = 3 * width;
  int longest = 0;
  for (int s = 0; s < sentences; s++) longest = lengths[s] > longest ? lengths[s] : longest;
  float* blocks = scratch.take<float>((size_t)whole_blocks(longest) * head_dim);
  memset(blocks, 0, (size_t)whole_blocks(longest) * head_dim * sizeof(float));
  float* scores[most_queries];
  for (float*& of : scores) of = scratch.take<float>(whole_blocks(longest));
  for (int s = 0; s < sentences; s++) {
    const int length = lengths[s];
    for (int h = 0; h < heads; h++) {
      const float *query = qkv + h * head_dim, *value = query + 2 * width;
      to_blocks(query + width, stride, length, head_dim, blocks);
      const Head<float> head{blocks, value, (size_t)16 * head_dim, stride, length, head_dim, scale, of_head(bias, h)};
      for (int t = 0; t < length; t += most_queries) {
        const Queries queries{query + t * stride, stride, t, out + t * width + h * head_dim, width};
        attend_up_to<float>(length - t, head, queries, scores);
      }
    }
    qkv += length * stride;
    out += length * width;
  }
}

// A sentence's cross keys and values [tokens, stride]: keys, then values, [heads * head_dim] each.
static void store_source(const Cache& c, const float* cross, size_t stride, int tokens, int slot) {
  const int width = c.heads * c.head_dim;
  for (int t = 0; t < tokens; t++, cross += stride)
    for (int h = 0; h < c.heads; h++) {
      const float* key = cross + h * c.head_dim;
      c.number == Number::float16 ? keep<uint16_t>(c, slot, h, t, key, key + width)
                                  : keep<float>(c, slot, h, t, key, key + width);
    }
}

}  // namespace dragoman::ISA
