// Tells callgrind where a section begins and where it ends. Outside of valgrind both do nothing.
#include <valgrind/callgrind.h>

void begin_section(void) {
  CALLGRIND_START_INSTRUMENTATION;
  CALLGRIND_ZERO_STATS;
}

void end_section(void) {
  CALLGRIND_DUMP_STATS;
  CALLGRIND_STOP_INSTRUMENTATION;
}
