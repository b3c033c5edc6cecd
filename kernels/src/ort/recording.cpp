#include "ort/recording.h"

#include <algorithm>

#include "memory.h"

namespace dragoman {
namespace {

thread_local Recording* recording = nullptr;

// Of a thread, for whichever of its recordings is played.
char* memory_of(size_t bytes) {
  static thread_local Memory<char> memory;
  static thread_local size_t size = 0;
  if (bytes > size) memory = Memory<char>(size = bytes);
  return memory.get();
}

int64_t bytes_of(ort::ElementType type) {
  switch (type) {
    case ort::uint8:
    case ort::int8:
      return 1;
    case ort::int16:
    case ort::float16:
      return 2;
    case ort::float32:
    case ort::int32:
      return 4;
    case ort::int64:
    case ort::float64:
      return 8;
    default:
      refuse("a result has elements of type ", (int)type, " (ONNX's numbers), whose size is not known");
  }
}

}  // namespace

void Recording::begin() { recording = this; }

void Recording::end() {
  if (recording == this) recording = nullptr;
}

Recording* Recording::under_way() { return recording; }

void Recording::add(Node&& node) {
  nodes_.push_back(std::move(node));
  Called& called = nodes_.back().called;
  for (Tensor& input : called.inputs) {
    const auto block = blocks_.find(input.data<void>());
    if (block != blocks_.end()) places_.push_back({&input, block->second.offset});
  }
  for (Tensor& output : called.outputs)
    if (output && std::find(lasting_.begin(), lasting_.end(), output.data<void>()) == lasting_.end()) keep(output);
}

// ONNX Runtime's memory is another's after the run. Where it lends a place again, so is the block.
void Recording::keep(Tensor& output) {
  const size_t bytes = (size_t)((output.count() * bytes_of(output.type()) + 63) / 64 * 64);
  Block& block = blocks_[output.data<void>()];
  if (block.bytes < bytes) {
    block = {bytes_, bytes};
    bytes_ += bytes;
  }
  places_.push_back({&output, block.offset});
}

void Recording::replay() {
  char* memory = memory_of(bytes_);
  if (memory != memory_)
    for (const Place& place : places_) place.tensor->move_to(memory + place.offset);
  memory_ = memory;
  for (const Node& node : nodes_) {
    try {
      node.run(node.kernel, Call(node.called));
    } catch (const std::exception& error) {
      refuse("dragoman.", node.name, ": ", error.what());
    }
  }
}

}  // namespace dragoman
