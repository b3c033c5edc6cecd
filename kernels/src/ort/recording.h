// A run of a graph all of whose nodes are ours, so that it can be made again without ONNX Runtime: with the same kernels
// in the same order, on the same memory. What one node gives another lies in memory of the thread that makes it again.
#pragma once
#include <map>
#include <vector>

#include "ort/tensor.h"

namespace dragoman {

class Recording {
 public:
  // lasting: memory that outputs of the graph are bound to.
  explicit Recording(std::vector<const void*> lasting) : lasting_(std::move(lasting)) {}
  ~Recording() { end(); }
  Recording(const Recording&) = delete;

  void begin();  // of what this thread runs
  void end();
  static Recording* under_way();  // of this thread; null where nothing is recorded

  template <class Kernel>
  void run(const Kernel& kernel, OrtKernelContext* context) {
    Called called;
    kernel.run(Call(context, called));
    for (size_t i = 0; i < called.outputs.size(); i++) called.outputs[i].set_type(Kernel::outputs[i].type);
    const auto again = [](const void* again, const Call& call) { ((const Kernel*)again)->run(call); };
    add({Kernel::name, &kernel, again, std::move(called)});
  }

  int64_t nodes() const { return (int64_t)nodes_.size(); }
  void replay();  // throws what a kernel throws

 private:
  struct Node {
    const char* name;
    const void* kernel;
    void (*run)(const void* kernel, const Call&);
    Called called;
  };
  struct Block {
    size_t offset, bytes;
  };
  struct Place {
    Tensor* tensor;
    size_t offset;
  };

  void add(Node&& node);
  void keep(Tensor& output);

  std::vector<const void*> lasting_;
  std::vector<Node> nodes_;
  std::map<const void*, Block> blocks_;  // by where ONNX Runtime had what a node gave to others
  std::vector<Place> places_;            // of such tensors
  size_t bytes_ = 0;                     // of all blocks
  char* memory_ = nullptr;               // where they were the last time
};

}  // namespace dragoman
