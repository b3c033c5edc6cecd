// What all checks share: failures, a hash of whole numbers, numbers by chance, differences of floats.
#pragma once
#include ISA_HEADER

#include <cmath>
#include <cstdint>
#include <cstdio>

namespace dragoman::ISA {
namespace {

int failures = 0;
uint64_t hash = 14695981039346656037u;  // FNV-1a

void add_to_hash(const void* p, size_t bytes) {
  for (size_t i = 0; i < bytes; i++) hash = (hash ^ ((const uint8_t*)p)[i]) * 1099511628211u;
}

struct Random {  // Numerical Recipes' linear congruence: the same numbers everywhere
  uint32_t state = 15;
  uint32_t next() { return (state = state * 1664525u + 1013904223u) >> 8; }
  int whole(int low, int high) { return low + (int)(next() % (uint32_t)(high - low + 1)); }
  float real() { return (float)whole(-1000000, 1000000) * 1e-6f; }
};

// Differences relative to the largest reference.
struct Difference {
  const char* name;
  double bound, largest = 0, scale = 0;

  void compare(double value, double reference) {
    const double away = std::fabs(value - reference);
    largest = away <= largest ? largest : away;  // also where it is not a number
    scale = std::fmax(scale, std::fabs(reference));
  }
  ~Difference() {
    const double relative = largest / std::fmax(scale, 1e-30);
    const bool good = relative <= bound;
    failures += !good;
    printf("float %s %.3g of at most %.3g%s\n", name, relative, bound, good ? "" : " WRONG");
  }
};

}  // namespace
}  // namespace dragoman::ISA
