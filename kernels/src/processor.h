// What an x86 processor and its operating system can do, by cpuid: __builtin_cpu_supports answers no to everything in a
// library that zig has linked.
#pragma once
#if defined(__x86_64__)
#include <cpuid.h>

namespace dragoman::processor {

// A bit of a leaf of cpuid. Intel 64 Software Developer's Manual, volume 2A, CPUID.
struct Feature {
  unsigned leaf, subleaf;
  enum { a, b, c, d } word;
  unsigned bit;

  bool there() const {
    unsigned words[4] = {};
    return __get_cpuid_count(leaf, subleaf, &words[0], &words[1], &words[2], &words[3]) && (words[word] >> bit & 1);
  }
};

constexpr Feature fma{1, 0, Feature::c, 12}, saves_registers{1, 0, Feature::c, 27}, f16c{1, 0, Feature::c, 29};
constexpr Feature avx2{7, 0, Feature::b, 5}, avx512f{7, 0, Feature::b, 16}, avx512dq{7, 0, Feature::b, 17};
constexpr Feature avx512bw{7, 0, Feature::b, 30}, avx512vl{7, 0, Feature::b, 31}, avx512vnni{7, 0, Feature::c, 11};
constexpr Feature avxvnni{7, 1, Feature::a, 4};

// Whether the operating system keeps these registers over a switch of threads: 6 for the halves of 256 bits, 0xe6 for
// all of AVX512.
inline bool keeps(unsigned registers) {
  if (!saves_registers.there()) return false;
  unsigned low, high;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (low & registers) == registers;
}

}  // namespace dragoman::processor
#endif
