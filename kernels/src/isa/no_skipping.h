// For instruction sets that multiply by zeros as by other numbers.
#pragma once
#include <cstdint>

namespace dragoman::ISA {

constexpr bool skips_zeros = false;
constexpr int inputs_ahead = 0;

inline int place_in_stripe(int column) { return column; }
inline int nonzero(const uint8_t*, int, int32_t*, uint8_t*) { return 0; }
template <int PANELS>
inline void add_inputs(const int32_t*, const uint8_t*, int, const int8_t*, const int32_t*, int32_t*) {}

}  // namespace dragoman::ISA
