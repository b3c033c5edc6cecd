// Functions that the engine calls by ctypes, on the memory of its caches (kernels/library.py).
#include <algorithm>
#include <cstring>
#include <vector>

#include "cache.h"
#include "calls.h"
#include "compute/table.h"
#include "counters.h"
#include "ort/refuse.h"

namespace dragoman {
namespace {

void expect_slot(int64_t slot, int64_t slots) {
  if (slot < 0 || slot >= slots) refuse("slot ", slot, " of ", slots);
}

}  // namespace

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

namespace {

// The first positions of a slot, in whole blocks; a state has but one. Returns the bytes.
int64_t copy_slot(const Buffer& b, int32_t source, int32_t target, int64_t positions) {
  if (b.capacity == 1) positions = 1;
  if (positions < 0 || positions > b.capacity) refuse(positions, " positions of a capacity of ", b.capacity);
  const int64_t places = std::min((positions + 15) / 16 * 16, b.capacity);
  const int64_t bytes = b.heads * places * b.head_dim * b.element;
  for (int64_t t = 0; t < b.tensors; t++) std::memcpy(b.slot(t, target), b.slot(t, source), (size_t)bytes);
  return b.tensors * bytes;
}

// The slot of each child: its parent's for the first one, a free one for every other.
std::vector<int32_t> slots_of(const Rows& rows, const int64_t* parents, int64_t count) {
  std::vector<bool> taken(rows.room), has_child(rows.live);
  std::vector<int32_t> slots(rows.room, -1);
  for (int64_t child = 0; child < count; child++) {
    const int64_t parent = parents[child];
    if (has_child[parent]) continue;
    has_child[parent] = true;
    slots[child] = rows.slots[parent];
    taken[slots[child]] = true;
  }
  int32_t free = 0;
  for (int32_t& slot : slots) {
    if (slot >= 0) continue;
    while (taken[free]) free++;
    slot = free++;
  }
  return slots;
}

}  // namespace

Taken take_rows(Rows& rows, const int64_t* parents, int64_t count, const Buffer* buffers, int64_t buffer_count) {
  if (count > rows.room) refuse(count, " rows, where there is room for ", rows.room);
  for (int64_t i = 0; i < rows.room; i++) expect_slot(rows.slots[i], rows.room);
  for (int64_t b = 0; b < buffer_count; b++)
    if (buffers[b].slots < rows.room) refuse(rows.room, " rows of a cache with ", buffers[b].slots, " slots");
  for (int64_t child = 0; child < count; child++)
    if (parents[child] < 0 || parents[child] >= rows.live) refuse("row ", parents[child], " of ", rows.live);
  const std::vector<int32_t> slots = slots_of(rows, parents, count);
  Taken taken{};
  std::vector<int32_t> old(rows.positions, rows.positions + rows.live);
  for (int64_t child = 0; child < count; child++) {
    const int64_t parent = parents[child];
    rows.positions[child] = old[parent];
    taken.furthest = std::max<int64_t>(taken.furthest, old[parent]);
    if (slots[child] == rows.slots[parent]) continue;
    taken.rows++;
    for (int64_t b = 0; b < buffer_count; b++)
      taken.bytes += copy_slot(buffers[b], rows.slots[parent], slots[child], old[parent]);
  }
  for (int32_t* numbers : {rows.source_slots, rows.source_lengths}) {
    old.assign(numbers, numbers + rows.live);
    for (int64_t child = 0; child < count; child++) numbers[child] = old[parents[child]];
  }
  std::copy(slots.begin(), slots.end(), rows.slots);
  rows.live = count;
  return taken;
}

EXPORTED const char* dragoman_take_rows(Rows* rows, const int64_t* parents, int64_t count, const Buffer* buffers,
                                        int64_t buffer_count, Taken* taken) {
  return told([&] { *taken = take_rows(*rows, parents, count, buffers, buffer_count); });
}

EXPORTED void dragoman_counters(int64_t* out) {
  out[0] = counters.rows;
  out[1] = counters.whole_rows;
  out[2] = counters.saturated;
}

}  // namespace dragoman
