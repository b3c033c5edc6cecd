// Errors with numbers in them.
#pragma once
#include <sstream>
#include <stdexcept>

namespace dragoman {

// What was given cannot be computed with.
struct Refused : std::runtime_error {
  using std::runtime_error::runtime_error;
};

template <class... Parts>
[[noreturn]] void refuse(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  throw Refused(text.str());
}

}  // namespace dragoman
