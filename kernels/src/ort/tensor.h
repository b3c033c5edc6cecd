// Tensors of ONNX Runtime, and what a kernel may ask of its node and of a call.
#pragma once
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "ort/ort_abi.h"
#include "ort/refuse.h"

namespace dragoman {

void check(OrtStatus* status);  // throws what it says

class Tensor {
 public:
  Tensor() = default;  // an input that was left out
  explicit Tensor(const OrtValue* value);
  Tensor(OrtValue* value, const int64_t* shape, size_t rank);  // an output, of the shape that it was asked for with

  explicit operator bool() const { return given_; }
  ort::ElementType type() const { return type_; }
  void set_type(ort::ElementType type) { type_ = type; }
  int rank() const { return (int)rank_; }
  int64_t size(int axis) const { return axis < (int)rank_ ? shape_[axis] : 1; }
  int64_t count() const;
  std::string shape() const;  // "[2, 3]"

  template <class T>
  T* data() const {
    return (T*)data_;
  }
  void move_to(void* data) { data_ = data; }

 private:
  bool given_ = false;
  void* data_ = nullptr;
  ort::ElementType type_ = ort::any;
  size_t rank_ = 0;
  std::array<int64_t, 5> shape_{};
};

// Refuses a tensor whose shape is another; -1 stands for any size.
void expect_shape(const char* name, const Tensor& tensor, std::initializer_list<int64_t> shape);

// A node while its kernel is made.
class Node {
 public:
  explicit Node(const OrtKernelInfo* info) : info_(info) {}

  Tensor constant(size_t input, const char* name) const;  // refused where it is none
  Tensor optional_constant(size_t input) const;
  float number(const char* attribute, float otherwise) const;
  int64_t integer(const char* attribute, int64_t otherwise) const;
  std::string word(const char* attribute, const char* otherwise) const;

 private:
  const OrtKernelInfo* info_;
};

// What a call of a kernel was given.
struct Called {
  std::vector<Tensor> inputs, outputs;
};

// A call of a kernel.
class Call {
 public:
  explicit Call(OrtKernelContext* context);
  Call(OrtKernelContext* context, Called& noted);         // the same, which is noted
  explicit Call(const Called& again) : again_(&again) {}  // with what an earlier one was given

  Tensor input(size_t index) const;  // empty where it was left out
  Tensor output(size_t index, std::initializer_list<int64_t> shape) const;
  Tensor optional_output(size_t index, std::initializer_list<int64_t> shape) const;  // empty where nobody wants it
  Tensor output_like(size_t index, const Tensor& tensor) const;
  void* stream() const;  // on which a GPU's kernels are to run

 private:
  Tensor output(size_t index, const int64_t* shape, size_t rank) const;

  OrtKernelContext* context_ = nullptr;
  size_t inputs_ = 0, outputs_ = 0;
  Called* noted_ = nullptr;
  const Called* again_ = nullptr;
};

}  // namespace dragoman
