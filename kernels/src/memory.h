// Memory on 64 bytes that is freed with its owner.
#pragma once
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

namespace dragoman {

template <class T>
class Memory {
 public:
  Memory() = default;
  // Zeros.
  explicit Memory(size_t count) {
    const size_t bytes = (count * sizeof(T) + 63) / 64 * 64;
    data_.reset((T*)std::aligned_alloc(64, bytes));
    if (!data_) throw std::bad_alloc();
    std::memset(data_.get(), 0, bytes);
  }
  T* get() const { return data_.get(); }
  T& operator[](size_t i) { return data_.get()[i]; }
  const T& operator[](size_t i) const { return data_.get()[i]; }

 private:
  struct Free {
    void operator()(T* p) const { std::free(p); }
  };
  std::unique_ptr<T, Free> data_;
};

}  // namespace dragoman
