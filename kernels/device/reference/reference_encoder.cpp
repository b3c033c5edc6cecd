// The operators of an encoder for GPUs in plain C++, on the CPU: see reference.cpp.
#include <algorithm>
#include <cmath>
#include <vector>

#include "compute/halves.h"
#include "encoder.h"

namespace dragoman::device {
namespace {

void attend_one(const SourceTokens& of, int token, int head) {
  const int length = of.lengths[token], inner = of.heads * of.head_dim;
  const auto numbers = [&](int of_token, int part) {
    return of.qkv + ((size_t)of_token * 3 + part) * inner + (size_t)head * of.head_dim;
  };
  std::vector<float> query(of.head_dim);
  for (int i = 0; i < of.head_dim; i++) query[i] = half_to_float(numbers(token, 0)[i]);
  std::vector<double> weights(length), found(of.head_dim);
  double greatest = -INFINITY, all = 0;
  for (int at = 0; at < length; at++) {
    const Half* key = numbers(of.firsts[token] + at, 1);
    double score = 0;
    for (int i = 0; i < of.head_dim; i++) score += (double)query[i] * half_to_float(key[i]);
    weights[at] = of.scale * score;
    greatest = std::fmax(greatest, weights[at]);
  }
  for (int at = 0; at < length; at++) {
    const Half* value = numbers(of.firsts[token] + at, 2);
    const double weight = std::exp(weights[at] - greatest);
    all += weight;
    for (int i = 0; i < of.head_dim; i++) found[i] += weight * half_to_float(value[i]);
  }
  Half* attended = of.attended + (size_t)token * inner + (size_t)head * of.head_dim;
  for (int i = 0; i < of.head_dim; i++) attended[i] = float_to_half((float)(found[i] / all));
}

}  // namespace

void reference::attend(const SourceTokens& of) {
  for (int token = 0; token < of.tokens; token++)
    for (int head = 0; head < of.heads; head++) attend_one(of, token, head);
}

void reference::keep(const KeptSources& of) {
  const int parts = of.tensors * of.heads;
  for (int source = 0; source < of.sources; source++)
    for (int part = 0; part < parts; part++) {
      const size_t tensor = part / of.heads, head = part % of.heads;
      Half* to = of.cache + ((tensor * of.slots + of.to_slots[source]) * of.heads + head) * of.places * of.head_dim;
      for (int at = 0; at < of.lengths[source]; at++) {
        const Half* from = of.cross + ((size_t)(of.firsts[source] + at) * parts + part) * of.head_dim;
        std::copy_n(from, of.head_dim, to + (size_t)at * of.head_dim);
      }
    }
}

}  // namespace dragoman::device
