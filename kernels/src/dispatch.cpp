// Which instructions the processor has, asked once.
#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif
#include <cstring>

#include "compute/table.h"
#include "processor.h"

// The Makefile gives INSTRUCTION_SETS, best first: X(avx512vnni) X(avx2) ... X(portable).
namespace dragoman {

#define X(name)               \
  namespace name {            \
  extern const Kernels table; \
  }
INSTRUCTION_SETS
#undef X

namespace {

// A function `has_<name>` for each: whether processor and operating system have what its -m flags in the Makefile say.
[[maybe_unused]] bool has_portable() { return true; }

#if defined(__x86_64__)
[[maybe_unused]] bool has_avx2() {
  return processor::keeps(0x6) && processor::avx2.there() && processor::fma.there() && processor::f16c.there();
}
[[maybe_unused]] bool has_avx512vnni() {
  return has_avx2() && processor::keeps(0xe6) && processor::avx512f.there() && processor::avx512bw.there() &&
         processor::avx512vl.there() && processor::avx512dq.there() && processor::avx512vnni.there();
}
[[maybe_unused]] bool has_avxvnni() { return has_avx2() && processor::avxvnni.there(); }
#elif defined(__aarch64__) && defined(__linux__)
[[maybe_unused]] bool has_neon_dotprod() { return (getauxval(AT_HWCAP) & 1ul << 20) != 0; }
[[maybe_unused]] bool has_neon_i8mm() { return has_neon_dotprod() && (getauxval(AT_HWCAP2) & 1ul << 13) != 0; }
#endif

const Kernels* best() {
#define X(name) \
  if (has_##name()) return &name::table;
  INSTRUCTION_SETS
#undef X
  return nullptr;
}

const Kernels* chosen = best();

}  // namespace

const Kernels& kernels() { return *chosen; }

extern "C" __attribute__((visibility("default"))) const char* dragoman_isa() { return chosen->name; }

// Takes others than the best, to try them: before the first kernel is made. Returns whether they are there and can be
// run.
extern "C" __attribute__((visibility("default"))) int dragoman_use(const char* isa) {
#define X(name)                                       \
  if (std::strcmp(isa, #name) == 0 && has_##name()) { \
    chosen = &name::table;                            \
    return 1;                                         \
  }
  INSTRUCTION_SETS
#undef X
  return 0;
}

extern "C" __attribute__((visibility("default"))) int dragoman_operators() { return 1; }

}  // namespace dragoman
