// Kernels that overlap: the next one is launched while the last one runs, and may read what never changes, such as
// weights, before it waits (CUDA C++ Programming Guide, "Programmatic Dependent Launch and Synchronization").
#pragma once
#include <cuda_runtime.h>

#include "checked.h"

namespace dragoman::device {

// Waits for the kernel before, and lets the one behind be launched: not earlier, so that no more than two overlap.
// Nothing that a kernel of the stream writes may be read, and nothing written, before it.
__device__ inline void follow() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;\n griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

inline bool overlaps() {
  int device = 0, major = 0;
  checked(cudaGetDevice(&device));
  checked(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  return major >= 9;
}

// Launches a kernel that begins with `follow`, or calls it before it touches what others write.
template <class... Parameters, class... Arguments>
void launch_following(void (*kernel)(Parameters...), dim3 grid, int threads, void* stream, Arguments... arguments) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(threads);
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = &attribute;
  config.numAttrs = overlaps() ? 1 : 0;
  checked(cudaLaunchKernelEx(&config, kernel, arguments...));
}

}  // namespace dragoman::device
