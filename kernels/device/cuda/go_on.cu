// A block of threads for each search. What it reads of rows and what it writes of them are different memory, and so are
// the histories: it reads those of slots that are kept, and writes those of slots that no row has kept.
#include "follow.h"
#include "go_on.h"

namespace dragoman::device {
namespace {

constexpr int threads = 128;

// A number of all rows.
__device__ const int32_t* all(const GoOn& of, Number number) { return of.numbers + (size_t)number * of.stride; }

__device__ bool is_never(const GoOn& of, int64_t id) {
  for (int i = 0; i < of.never_count; i++)
    if (of.never[i] == id) return true;
  return false;
}

// The slot of the j-th child. The first child of a row keeps its slot; the n-th of the others gets the n-th, by number,
// of those that nobody keeps.
__device__ int32_t slot_of(const int32_t* slots, const int* parents, int beams, int j, bool* keeps) {
  int others = 0;
  *keeps = true;
  for (int i = 0; i < j; i++) {
    bool kept = true;
    for (int before = 0; before < i; before++) kept = kept && parents[before] != parents[i];
    others += !kept;
    *keeps = *keeps && parents[i] != parents[j];
  }
  if (*keeps) return slots[parents[j]];
  const auto childless = [&](int row) {
    for (int i = 0; i < beams; i++)
      if (parents[i] == row) return false;
    return true;
  };
  for (int row = 0; row < beams; row++) {
    if (!childless(row)) continue;
    int lower = 0;
    for (int other = 0; other < beams; other++) lower += slots[other] < slots[row] && childless(other);
    if (lower == others) return slots[row];
  }
  return slots[parents[j]];  // not reached: there are as many slots as children
}

__global__ void __launch_bounds__(threads) go_on_kernel(const GoOn of) {
  __shared__ double ranked[most_extensions];
  __shared__ int chosen[most_beams], parents[most_beams];
  __shared__ int32_t next_slots[most_beams];
  __shared__ bool keeps[most_beams];
  follow();
  const int row = blockIdx.x, beams = all(of, width)[row], thread = threadIdx.x;
  if (all(of, first)[row] != row) return;
  if (beams == 0) {
    const size_t at = (size_t)thread * of.stride + row;
    if (thread < all_numbers) of.next_numbers[at] = of.numbers[at];
    if (thread == 0) {
      of.next_ids[row] = 0;
      of.next_costs[row] = of.costs[row];
    }
    return;
  }

  // In the order of cost; of equal ones the better parent's is first, then the better token's. NaN: not to be chosen.
  const int extensions = beams * of.k;
  for (int at = thread; at < extensions; at += threads) {
    const double cost = of.costs[row + at / of.k] - (double)of.log_probs[(size_t)row * of.k + at];
    const bool never = beams > 1 && is_never(of, of.candidates[(size_t)row * of.k + at]);
    ranked[at] = never ? NAN : isnan(cost) ? INFINITY : cost;
  }
  if (thread < beams) chosen[thread] = thread * of.k;  // where there is nothing else
  __syncthreads();
  for (int at = thread; at < extensions && beams > 1; at += threads) {
    const double own = ranked[at];
    if (isnan(own)) continue;
    int better = 0;
    for (int other = 0; other < extensions; other++)
      better += ranked[other] < own || (ranked[other] == own && other < at);
    if (better < beams) chosen[better] = at;
  }
  __syncthreads();

  if (thread < beams) parents[thread] = chosen[thread] / of.k;
  __syncthreads();
  if (thread < beams) {
    const int old = row + parents[thread], child = row + thread;
    const int64_t id = of.candidates[(size_t)row * of.k + chosen[thread]];
    const double cost = of.costs[old] - (double)of.log_probs[(size_t)row * of.k + chosen[thread]];
    const auto put = [&](Number number, int32_t value) { of.next_numbers[(size_t)number * of.stride + child] = value; };
    next_slots[thread] = slot_of(all(of, slot) + row, parents, beams, thread, &keeps[thread]);
    of.next_ids[child] = id < 0 ? 0 : id;
    of.next_costs[child] = cost;
    put(position, all(of, position)[old] + 1);
    put(source_last, all(of, source_last)[old]);
    put(slot, next_slots[thread]);
    put(source_slot, all(of, source_slot)[old]);
    put(parent, old);
    put(first, row);
    put(width, beams);
  }
  __syncthreads();
  for (int child = 0; child < beams; child++) {
    if (keeps[child]) continue;
    const int old = row + parents[child], shared = all(of, position)[old] + 1;
    const int32_t* from = of.history + (size_t)all(of, slot)[old] * of.places;
    int32_t* to = of.history + (size_t)next_slots[child] * of.places;
    for (int place = thread; place < of.places; place += threads)
      to[place] = place < shared ? from[place] : next_slots[child];
  }
}

}  // namespace

void gpu::go_on(const GoOn& of, void* stream) {
  if (of.rows > 0) launch_following(go_on_kernel, dim3(of.rows), threads, stream, of);
}

}  // namespace dragoman::device
