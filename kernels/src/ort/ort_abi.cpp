#include "ort/ort_abi.h"

#include <cstring>

namespace dragoman::ort {

Api api;

const char* load(const OrtApiBase* base) {
  if (std::strncmp(base->GetVersionString(), "1.", 2) != 0) return "dragoman's kernels are for ONNX Runtime 1.x";
  const OrtFunction* table = base->GetApi(api_version);
  if (table == nullptr) return "dragoman's kernels need ONNX Runtime 1.16 or newer";
#define TAKE(position, name, result, ...) api.name = (result (*)(__VA_ARGS__))table[position];
  ORT_FUNCTIONS(TAKE)
#undef TAKE
  OrtStatus* status = api.CreateStatus(failed, "probe");
  if (status == nullptr || std::strcmp(api.GetErrorMessage(status), "probe") != 0)
    return "ONNX Runtime's functions are not where dragoman's kernels look for them";
  api.ReleaseStatus(status);
  return nullptr;
}

}  // namespace dragoman::ort
