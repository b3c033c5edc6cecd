// Memory for the duration of a call, kept by the thread for the next.
#pragma once
#include <cstddef>

namespace dragoman {

class Scratch {
 public:
  Scratch();
  ~Scratch();
  Scratch(const Scratch&) = delete;

  // On 64 bytes, not zeroed.
  void* bytes(size_t count);

  template <class T>
  __attribute__((always_inline)) inline T* take(size_t count) {
    return (T*)bytes(count * sizeof(T));
  }
};

}  // namespace dragoman
