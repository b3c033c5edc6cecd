// CUDA's errors as exceptions.
#pragma once
#include <cuda_runtime_api.h>

#include <stdexcept>

namespace dragoman::device {

inline void checked(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

}  // namespace dragoman::device
