// Which instructions are taken: asked once.
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

const Kernels* best() {
#define X(name) \
  if (processor::has_##name()) return &name::table;
  INSTRUCTION_SETS
#undef X
  return nullptr;
}

const Kernels* chosen = best();

}  // namespace

const Kernels& kernels() { return *chosen; }

// Null: the processor has none of them, and nothing else may be called.
extern "C" __attribute__((visibility("default"))) const char* dragoman_isa() {
  return chosen ? chosen->name : nullptr;
}

// Takes others than the best, to try them: before the first kernel is made. Returns whether they are there and can be
// run.
extern "C" __attribute__((visibility("default"))) int dragoman_use(const char* isa) {
#define X(name)                                                  \
  if (std::strcmp(isa, #name) == 0 && processor::has_##name()) { \
    chosen = &name::table;                                       \
    return 1;                                                    \
  }
  INSTRUCTION_SETS
#undef X
  return 0;
}

extern "C" __attribute__((visibility("default"))) int dragoman_operators() { return 2; }
extern "C" __attribute__((visibility("default"))) int dragoman_layout() { return 3; }

}  // namespace dragoman
