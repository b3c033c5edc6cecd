// A function `has_<name>` for each instruction set: whether processor and operating system have what its -m flags in
// the Makefile say. On x86 by cpuid: __builtin_cpu_supports answers no to everything in a library that zig has linked.
#pragma once
#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

namespace dragoman::processor {

inline bool has_portable() { return true; }

#if defined(__x86_64__)
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
constexpr Feature amx_tile{7, 0, Feature::d, 24}, amx_int8{7, 0, Feature::d, 25};

// Whether the operating system keeps these registers over a switch of threads: 6 for the halves of 256 bits, 0xe6 for
// all of AVX512.
inline bool keeps(unsigned registers) {
  if (!saves_registers.there()) return false;
  unsigned low, high;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (low & registers) == registers;
}

inline bool has_avx2() { return keeps(0x6) && avx2.there() && fma.there() && f16c.there(); }
// Whether Linux lets this process have the registers of AMX, which it gives to those that ask: arch/x86/xstate in its
// documentation. Threads that a process has already must have room for them on their stacks for signals.
inline bool may_use_matrices() {
#if defined(__linux__)
  constexpr long request_permission = 0x1023, tile_data = 18;
  return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
#else
  return false;
#endif
}

#ifdef EMULATED
inline bool has_amx() { return has_avx2(); }
inline bool has_avx512vnni() { return has_avx2(); }
inline bool has_avxvnni() { return has_avx2(); }
#else
inline bool has_avx512vnni() {
  return has_avx2() && keeps(0xe6) && avx512f.there() && avx512bw.there() && avx512vl.there() && avx512dq.there() &&
         avx512vnni.there();
}
inline bool has_amx() {
  return has_avx512vnni() && keeps(0x60000) && amx_tile.there() && amx_int8.there() && may_use_matrices();
}
inline bool has_avxvnni() { return has_avx2() && avxvnni.there(); }
#endif
#elif defined(__aarch64__) && defined(__linux__)
inline bool has_neon_dotprod() { return (getauxval(AT_HWCAP) & 1ul << 20) != 0; }
inline bool has_neon_i8mm() { return has_neon_dotprod() && (getauxval(AT_HWCAP2) & 1ul << 13) != 0; }
#endif

}  // namespace dragoman::processor
