// What a product asks memory for while it computes.
#pragma once
#include <cstdint>

#include "compute/lanes.h"

namespace dragoman::ISA {

// The panel that will be wanted next. A step of a tile reads some lines of its own panel, and asks for those in their
// place here, or for some of them: the tiles that share a panel can share the asking.
struct Ahead {
  const int8_t* panel;  // null: there is none
  bool first_cache;     // bring it there, else to the second
  int first, last;      // of a step's lines

  // STEP: bytes that a step reads.
  template <int STEP>
  MEMBER void ask() {
    if (!panel) return;
    if (first_cache)
      for (int at = 0; at < STEP; at += 64) __builtin_prefetch(panel + at, 0, 3);
    else
      for (int line = first; line < last; line++) __builtin_prefetch(panel + 64 * line, 0, 2);
    panel += STEP;
  }
};

}  // namespace dragoman::ISA
