// ONNX Runtime's C ABI, as much of it as custom operators need. Its tables are append-only (onnxruntime_c_api.h
// promises that a position never changes), so the few functions are declared by their positions, and no header is
// needed.
#pragma once
#include <cstddef>
#include <cstdint>

extern "C" {
struct OrtStatus;
struct OrtValue;
struct OrtKernelInfo;
struct OrtKernelContext;
struct OrtTensorTypeAndShapeInfo;
struct OrtSessionOptions;
struct OrtCustomOpDomain;
typedef void (*OrtFunction)();

struct OrtApiBase {
  const OrtFunction* (*GetApi)(uint32_t version);  // null: the runtime is older
  const char* (*GetVersionString)();
};

// As of version 16 of the API, the first whose kernels may fail with a status.
struct OrtCustomOp {
  uint32_t version;
  void* (*CreateKernel)(const OrtCustomOp*, const OrtFunction*, const OrtKernelInfo*);
  const char* (*GetName)(const OrtCustomOp*);
  const char* (*GetExecutionProviderType)(const OrtCustomOp*);
  int (*GetInputType)(const OrtCustomOp*, size_t);
  size_t (*GetInputTypeCount)(const OrtCustomOp*);
  int (*GetOutputType)(const OrtCustomOp*, size_t);
  size_t (*GetOutputTypeCount)(const OrtCustomOp*);
  void (*KernelCompute)(void*, OrtKernelContext*);
  void (*KernelDestroy)(void*);
  int (*GetInputCharacteristic)(const OrtCustomOp*, size_t);
  int (*GetOutputCharacteristic)(const OrtCustomOp*, size_t);
  int (*GetInputMemoryType)(const OrtCustomOp*, size_t);
  OrtFunction variadic[4];
  OrtStatus* (*CreateKernelV2)(const OrtCustomOp*, const OrtFunction*, const OrtKernelInfo*, void**);
  OrtStatus* (*KernelComputeV2)(void*, OrtKernelContext*);
  OrtFunction later[16];  // read only where `version` says that they are there
};
}

namespace dragoman::ort {

constexpr uint32_t api_version = 16;
enum ElementType {
  any = 0, float32 = 1, uint8 = 2, int8 = 3, int16 = 5, int32 = 6, int64 = 7, float16 = 10, float64 = 11
};
enum ErrorCode { failed = 1, invalid_argument = 2 };

// position, name, result, arguments
#define ORT_FUNCTIONS(F)                                                                                    \
  F(0, CreateStatus, OrtStatus*, int, const char*)                                                          \
  F(2, GetErrorMessage, const char*, const OrtStatus*)                                                      \
  F(26, CreateCustomOpDomain, OrtStatus*, const char*, OrtCustomOpDomain**)                                 \
  F(27, CustomOpDomain_Add, OrtStatus*, OrtCustomOpDomain*, const OrtCustomOp*)                             \
  F(28, AddCustomOpDomain, OrtStatus*, OrtSessionOptions*, OrtCustomOpDomain*)                              \
  F(51, GetTensorMutableData, OrtStatus*, OrtValue*, void**)                                                \
  F(60, GetTensorElementType, OrtStatus*, const OrtTensorTypeAndShapeInfo*, int*)                           \
  F(61, GetDimensionsCount, OrtStatus*, const OrtTensorTypeAndShapeInfo*, size_t*)                          \
  F(62, GetDimensions, OrtStatus*, const OrtTensorTypeAndShapeInfo*, int64_t*, size_t)                      \
  F(65, GetTensorTypeAndShape, OrtStatus*, const OrtValue*, OrtTensorTypeAndShapeInfo**)                    \
  F(85, KernelInfoGetAttribute_float, OrtStatus*, const OrtKernelInfo*, const char*, float*)                \
  F(86, KernelInfoGetAttribute_int64, OrtStatus*, const OrtKernelInfo*, const char*, int64_t*)              \
  F(87, KernelInfoGetAttribute_string, OrtStatus*, const OrtKernelInfo*, const char*, char*, size_t*)       \
  F(88, KernelContext_GetInputCount, OrtStatus*, const OrtKernelContext*, size_t*)                          \
  F(89, KernelContext_GetOutputCount, OrtStatus*, const OrtKernelContext*, size_t*)                         \
  F(90, KernelContext_GetInput, OrtStatus*, const OrtKernelContext*, size_t, const OrtValue**)              \
  F(91, KernelContext_GetOutput, OrtStatus*, OrtKernelContext*, size_t, const int64_t*, size_t, OrtValue**) \
  F(93, ReleaseStatus, void, OrtStatus*)                                                                    \
  F(99, ReleaseTensorTypeAndShapeInfo, void, OrtTensorTypeAndShapeInfo*)                                    \
  F(193, KernelContext_GetGPUComputeStream, OrtStatus*, const OrtKernelContext*, void**)                    \
  F(249, KernelInfoGetConstantInput_tensor, OrtStatus*, const OrtKernelInfo*, size_t, int*, const OrtValue**)

struct Api {
#define DECLARE(position, name, result, ...) result (*name)(__VA_ARGS__);
  ORT_FUNCTIONS(DECLARE)
#undef DECLARE
};

// Of the process; load() fills it.
extern Api api;

// Takes the functions from their positions and tries one. Returns null, or what is wrong with this ONNX Runtime.
const char* load(const OrtApiBase* base);

}  // namespace dragoman::ort
