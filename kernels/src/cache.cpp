// Functions that the engine calls by ctypes, on the memory of its caches (kernels/library.py). They return null, or
// what is wrong, in memory of the thread that holds until the next call.
#include <cstring>
#include <string>
#include <vector>

#include "compute/table.h"
#include "counters.h"
#include "ort/refuse.h"

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace dragoman {
namespace {

template <class Function>
const char* told(Function&& function) {
  static thread_local std::string message;
  try {
    function();
    return nullptr;
  } catch (const std::exception& error) {
    message = error.what();
    return message.c_str();
  }
}

void expect_slot(int64_t slot, int64_t slots) {
  if (slot < 0 || slot >= slots) refuse("slot ", slot, " of ", slots);
}

}  // namespace

// A cache of many tensors: [tensors, slots, heads, capacity, head_dim], `element` bytes each.
struct Buffer {
  char* memory;
  int64_t tensors, slots, heads, capacity, head_dim, element;
  int64_t tensor_stride, slot_stride;  // bytes; within a slot everything lies together

  char* slot(int64_t tensor, int64_t at) const { return memory + tensor * tensor_stride + at * slot_stride; }
};

EXPORTED const char* dragoman_store_source(const Buffer* b, const float* cross, int64_t stride, int64_t tokens,
                                           int64_t slot) {
  return told([&] {
    expect_slot(slot, b->slots);
    if (tokens > b->capacity) refuse(tokens, " tokens do not fit into a capacity of ", b->capacity);
    for (int64_t t = 0; t + 1 < b->tensors; t += 2) {
      const Cache cache{b->element == 2 ? Number::float16 : Number::float32,
                        b->slot(t, slot),
                        b->slot(t + 1, slot),
                        1,
                        (int)b->heads,
                        (int)b->capacity,
                        (int)b->head_dim};
      kernels().store_source(cache, cross + t * b->heads * b->head_dim, (size_t)stride, (int)tokens, 0);
    }
  });
}

EXPORTED const char* dragoman_copy_rows(const Buffer* b, const int32_t* sources, const int32_t* targets,
                                        const int32_t* lengths, int64_t rows, int64_t* copied) {
  return told([&] {
    *copied = 0;
    for (int64_t r = 0; r < rows; r++) {
      expect_slot(sources[r], b->slots);
      expect_slot(targets[r], b->slots);
      if (lengths[r] < 0 || lengths[r] > b->capacity) refuse("length ", lengths[r], " of a capacity of ", b->capacity);
    }
    std::vector<bool> is_source(b->slots);
    for (int64_t r = 0; r < rows; r++) is_source[sources[r]] = true;
    for (int64_t r = 0; r < rows; r++)
      if (is_source[targets[r]]) refuse("slot ", targets[r], " is a target and a source");
    for (int64_t t = 0; t < b->tensors; t++)
      for (int64_t r = 0; r < rows; r++) {
        const int64_t whole = (lengths[r] + 15) / 16 * 16, places = whole < b->capacity ? whole : b->capacity;
        const int64_t bytes = places * b->head_dim * b->element, head = b->capacity * b->head_dim * b->element;
        for (int64_t h = 0; h < b->heads; h++)
          std::memcpy(b->slot(t, targets[r]) + h * head, b->slot(t, sources[r]) + h * head, (size_t)bytes);
        *copied += b->heads * bytes;
      }
  });
}

EXPORTED void dragoman_counters(int64_t* out) {
  out[0] = counters.rows;
  out[1] = counters.whole_rows;
  out[2] = counters.saturated;
}

}  // namespace dragoman
