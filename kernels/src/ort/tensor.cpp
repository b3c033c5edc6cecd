#include "ort/tensor.h"

#include <algorithm>

namespace dragoman {

using ort::api;

void check(OrtStatus* status) {
  if (status == nullptr) return;
  std::string message = api.GetErrorMessage(status);
  api.ReleaseStatus(status);
  throw std::runtime_error(message);
}

Tensor::Tensor(const OrtValue* value) : given_(value != nullptr) {
  if (value == nullptr) return;
  OrtTensorTypeAndShapeInfo* info;
  check(api.GetTensorTypeAndShape(value, &info));
  int type = 0;
  OrtStatus* status = api.GetTensorElementType(info, &type);
  if (status == nullptr) status = api.GetDimensionsCount(info, &rank_);
  if (status == nullptr && rank_ <= shape_.size()) status = api.GetDimensions(info, shape_.data(), rank_);
  api.ReleaseTensorTypeAndShapeInfo(info);
  check(status);
  if (rank_ > shape_.size()) refuse("a tensor has ", rank_, " axes; at most ", shape_.size(), " are understood");
  type_ = (ort::ElementType)type;
  check(api.GetTensorMutableData((OrtValue*)value, &data_));
}

Tensor::Tensor(OrtValue* value, const int64_t* shape, size_t rank) : given_(value != nullptr), rank_(rank) {
  if (value == nullptr) return;
  std::copy_n(shape, rank, shape_.begin());
  check(api.GetTensorMutableData(value, &data_));
}

int64_t Tensor::count() const {
  int64_t product = 1;
  for (size_t i = 0; i < rank_; i++) product *= shape_[i];
  return product;
}

std::string Tensor::shape() const {
  std::string text = "[";
  for (size_t i = 0; i < rank_; i++) text += (i ? ", " : "") + std::to_string(shape_[i]);
  return text + "]";
}

void expect_shape(const char* name, const Tensor& tensor, std::initializer_list<int64_t> shape) {
  bool same = tensor.rank() == (int)shape.size();
  int axis = 0;
  for (int64_t size : shape) same = (tensor.size(axis++) == size || size < 0) && same;
  if (same) return;
  std::string wanted;
  for (int64_t size : shape)
    wanted += (wanted.empty() ? "[" : ", ") + (size < 0 ? std::string("any") : std::to_string(size));
  refuse(name, " has the shape ", tensor.shape(), ", not ", wanted, "]");
}

Tensor Node::optional_constant(size_t input) const {
  int is_constant = 0;
  const OrtValue* value = nullptr;
  if (OrtStatus* status = api.KernelInfoGetConstantInput_tensor(info_, input, &is_constant, &value)) {
    api.ReleaseStatus(status);  // the node has fewer inputs
    return {};
  }
  return is_constant ? Tensor(value) : Tensor();
}

Tensor Node::constant(size_t input, const char* name) const {
  Tensor tensor = optional_constant(input);
  if (!tensor) refuse("input ", input, " (", name, ") must be a constant");
  return tensor;
}

float Node::number(const char* attribute, float otherwise) const {
  float value = otherwise;
  if (OrtStatus* status = api.KernelInfoGetAttribute_float(info_, attribute, &value)) {
    api.ReleaseStatus(status);
    return otherwise;
  }
  return value;
}

int64_t Node::integer(const char* attribute, int64_t otherwise) const {
  int64_t value = otherwise;
  if (OrtStatus* status = api.KernelInfoGetAttribute_int64(info_, attribute, &value)) {
    api.ReleaseStatus(status);
    return otherwise;
  }
  return value;
}

std::string Node::word(const char* attribute, const char* otherwise) const {
  char text[64];
  size_t size = sizeof(text);
  if (OrtStatus* status = api.KernelInfoGetAttribute_string(info_, attribute, text, &size)) {
    api.ReleaseStatus(status);
    return otherwise;
  }
  return text;
}

Call::Call(OrtKernelContext* context) : context_(context) {
  check(api.KernelContext_GetInputCount(context, &inputs_));
  check(api.KernelContext_GetOutputCount(context, &outputs_));
}

Call::Call(OrtKernelContext* context, Called& noted) : Call(context) {
  for (size_t i = 0; i < inputs_; i++) noted.inputs.push_back(input(i));
  noted.outputs.resize(outputs_);
  noted_ = &noted;
}

Tensor Call::input(size_t index) const {
  if (again_) return index < again_->inputs.size() ? again_->inputs[index] : Tensor();
  if (index >= inputs_) return {};
  const OrtValue* value = nullptr;
  check(api.KernelContext_GetInput(context_, index, &value));
  return Tensor(value);
}

Tensor Call::output(size_t index, const int64_t* shape, size_t rank) const {
  if (again_) return again_->outputs.at(index);
  OrtValue* value = nullptr;
  check(api.KernelContext_GetOutput(context_, index, shape, rank, &value));
  const Tensor tensor(value, shape, rank);
  if (noted_) noted_->outputs.at(index) = tensor;
  return tensor;
}

Tensor Call::output(size_t index, std::initializer_list<int64_t> shape) const {
  return output(index, shape.begin(), shape.size());
}

Tensor Call::optional_output(size_t index, std::initializer_list<int64_t> shape) const {
  return index < (again_ ? again_->outputs.size() : outputs_) ? output(index, shape) : Tensor();
}

void* Call::stream() const {
  void* stream = nullptr;
  check(api.KernelContext_GetGPUComputeStream(context_, &stream));
  return stream;
}

Tensor Call::output_like(size_t index, const Tensor& tensor) const {
  int64_t shape[5] = {};
  for (int axis = 0; axis < tensor.rank(); axis++) shape[axis] = tensor.size(axis);
  return output(index, shape, tensor.rank());
}

}  // namespace dragoman
