// The n-th largest of some numbers, against sorting them.
#pragma once
#include <algorithm>
#include <functional>
#include <vector>

#include "check/trial.h"
#include "compute/logits.h"

namespace dragoman::ISA {
namespace {

void check_nth_largest() {
  Random random;
  for (int count : {1, 2, 15, 16, 17, 257, 512})
    for (float size : {1e-30f, 1.f, 3e38f})
      for (bool equal_ones : {false, true}) {
        std::vector<float> x(count + 16), sorted(count);
        for (int i = 0; i < count; i++)
          sorted[i] = size * (equal_ones ? (float)random.whole(-2, 2) / 2 : random.real());
        std::copy(sorted.begin(), sorted.end(), x.begin());
        std::sort(sorted.begin(), sorted.end(), std::greater<float>());
        for (int n : {1, count / 2 + 1, count}) {
          const float found = nth_largest(x.data(), count, n);
          if (found != sorted[n - 1])
            failures++, printf("%d of %d largest is %g, not %g WRONG\n", n, count, found, sorted[n - 1]);
        }
      }
}

}  // namespace
}  // namespace dragoman::ISA
