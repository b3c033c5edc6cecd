// Says which of INSTRUCTION_SETS this processor has, best first, a line each.
#include <cstdio>

#include "processor.h"

int main() {
#define X(name) \
  if (dragoman::processor::has_##name()) std::puts(#name);
  INSTRUCTION_SETS
}
