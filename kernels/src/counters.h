// Counts of the process, for the engine's metrics.
#pragma once
#include <atomic>
#include <cstdint>

namespace dragoman {

struct Counters {
  std::atomic<int64_t> rows{0};        // that BestTokens looked at
  std::atomic<int64_t> whole_rows{0};  // of them, computed whole
  std::atomic<int64_t> saturated{0};   // values beyond a static range
};

inline Counters counters;

inline void count(std::atomic<int64_t>& counter, int64_t n) {
  if (n != 0) counter.fetch_add(n, std::memory_order_relaxed);
}

}  // namespace dragoman
