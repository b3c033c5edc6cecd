// Steps of a decoder, made again without ONNX Runtime: functions that the engine calls by ctypes (kernels/steps.py).
#include "calls.h"
#include "ort/recording.h"

namespace dragoman {

// What this thread runs from now on is recorded, until dragoman_end_recording. lasting: memory of the graph's outputs.
EXPORTED Recording* dragoman_record(const void* const* lasting, int64_t count) {
  Recording* recording = new Recording(std::vector<const void*>(lasting, lasting + count));
  recording->begin();
  return recording;
}

// Returns how many nodes were run.
EXPORTED int64_t dragoman_end_recording(Recording* recording) {
  recording->end();
  return recording->nodes();
}

EXPORTED const char* dragoman_replay(Recording* recording) {
  return told([&] { recording->replay(); });
}

EXPORTED void dragoman_forget(Recording* recording) { delete recording; }

}  // namespace dragoman
