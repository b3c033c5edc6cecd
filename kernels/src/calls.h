// What the engine calls by ctypes returns null, or what is wrong, in memory of the thread that holds until its next call.
#pragma once
#include <exception>
#include <string>

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace dragoman {

template <class Function>
const char* told(Function&& function) {
  static thread_local std::string message;
  try {
    function();
    return nullptr;
  } catch (const std::exception& error) {
    message = error.what();
    return message.c_str();
  }
}

}  // namespace dragoman
