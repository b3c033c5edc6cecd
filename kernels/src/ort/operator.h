// From a class to a custom operator. A kernel class has
//   static constexpr const char* name;
//   static constexpr Port inputs[], outputs[];
//   static constexpr const char* provider; // where it runs; the CPU's, if it has none
//   explicit Kernel(const Node&);          // may throw: then the session is not made
//   void run(const Call&) const;           // may throw: then the run fails; many threads may be in it
#pragma once
#include <exception>
#include <iterator>

#include "ort/recording.h"

namespace dragoman {

struct Port {
  ort::ElementType type;
  bool optional = false;
};

inline OrtStatus* failure(ort::ErrorCode code, const char* name, const char* message) {
  return ort::api.CreateStatus(code, (std::string("dragoman.") + name + ": " + message).c_str());
}

// Every exception becomes a status: none may leave through ONNX Runtime's frames.
template <class Function>
OrtStatus* guarded(const char* name, Function&& function) {
  try {
    function();
    return nullptr;
  } catch (const Refused& error) {
    return failure(ort::invalid_argument, name, error.what());
  } catch (const std::exception& error) {
    return failure(ort::failed, name, error.what());
  } catch (...) {
    return failure(ort::failed, name, "it failed");
  }
}

template <class Kernel>
constexpr auto provider_of(int) -> decltype(Kernel::provider) {
  return Kernel::provider;
}
template <class Kernel>
constexpr const char* provider_of(long) {
  return nullptr;
}

template <class Kernel>
const OrtCustomOp* custom_operator() {
  static const OrtCustomOp made = [] {
    OrtCustomOp op{};
    op.version = ort::api_version;
    op.GetName = [](const OrtCustomOp*) { return Kernel::name; };
    op.GetExecutionProviderType = [](const OrtCustomOp*) -> const char* { return provider_of<Kernel>(0); };
    op.GetInputTypeCount = [](const OrtCustomOp*) { return std::size(Kernel::inputs); };
    op.GetInputType = [](const OrtCustomOp*, size_t i) -> int { return Kernel::inputs[i].type; };
    op.GetInputCharacteristic = [](const OrtCustomOp*, size_t i) -> int { return Kernel::inputs[i].optional; };
    op.GetInputMemoryType = [](const OrtCustomOp*, size_t) { return 0; };
    op.GetOutputTypeCount = [](const OrtCustomOp*) { return std::size(Kernel::outputs); };
    op.GetOutputType = [](const OrtCustomOp*, size_t i) -> int { return Kernel::outputs[i].type; };
    op.GetOutputCharacteristic = [](const OrtCustomOp*, size_t i) -> int { return Kernel::outputs[i].optional; };
    op.CreateKernelV2 = [](const OrtCustomOp*, const OrtFunction*, const OrtKernelInfo* info, void** kernel) {
      return guarded(Kernel::name, [&] { *kernel = new Kernel(Node(info)); });
    };
    op.KernelComputeV2 = [](void* kernel, OrtKernelContext* context) {
      return guarded(Kernel::name, [&] {
        if (Recording* recording = Recording::under_way())
          recording->run(*(const Kernel*)kernel, context);
        else
          ((const Kernel*)kernel)->run(Call(context));
      });
    };
    op.KernelDestroy = [](void* kernel) { delete (Kernel*)kernel; };
    return op;
  }();
  return &made;
}

// What a library's RegisterCustomOps does. domain: makes it, once loaded.
template <class Function>
OrtStatus* register_operators(OrtSessionOptions* options, const OrtApiBase* base, Function&& domain) {
  if (const char* wrong = ort::load(base)) {
    // CreateStatus has been the first function of the first version.
    const OrtFunction* table = base->GetApi(1);
    return table ? ((OrtStatus * (*)(int, const char*)) table[0])(ort::failed, wrong) : nullptr;
  }
  return guarded("RegisterCustomOps", [&] { check(ort::api.AddCustomOpDomain(options, domain())); });
}

}  // namespace dragoman
