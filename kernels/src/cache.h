// The memory of a running batch: where its rows are kept, and what they have decoded.
#pragma once
#include <cstdint>

namespace dragoman {

// A cache of many tensors of such sizes, `element` bytes each number.
struct Buffer {
  char* memory;
  int64_t tensors, slots, heads, capacity, head_dim, element;
  int64_t tensor_stride, slot_stride;  // bytes; within a slot everything lies together

  char* slot(int64_t tensor, int64_t at) const { return memory + tensor * tensor_stride + at * slot_stride; }
};

// The rows of a running batch, as kernels/rows.py declares them. The slots behind those of live rows are free.
struct Rows {
  int64_t room, live;
  int32_t *positions, *slots, *source_slots, *source_lengths;  // [room]
};

// What it took to make rows continue others, as kernels/rows.py declares it.
struct Taken {
  int64_t rows;  // that were copied
  int64_t bytes;
  int64_t furthest;  // the most positions of a row
};

// Row i continues old row parents[i]: with its slot, or with a copy.
Taken take_rows(Rows& rows, const int64_t* parents, int64_t count, const Buffer* buffers, int64_t buffer_count);

}  // namespace dragoman
