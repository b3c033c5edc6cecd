// The operators of a device step in plain C++, on the CPU: what those of a GPU are compared with, and what an export
// verifies its graphs by, where there is no GPU.
#include <algorithm>
#include <cmath>
#include <vector>

#include "compute/halves.h"
#include "launch.h"

namespace dragoman::device {
namespace {

double dot(const Half* left, const Half* right, int count) {
  double sum = 0;
  for (int i = 0; i < count; i++) sum += (double)half_to_float(left[i]) * half_to_float(right[i]);
  return sum;
}

void attend_one(const Attention& of, int row, int head) {
  const int slot = of.row_slots[row], inner = of.heads * of.head_dim;
  const int old = of.history ? of.positions[row] : of.positions[row] + 1, places = old + (of.history != nullptr);
  const Half* query = of.query + (size_t)row * of.query_stride + head * of.head_dim;
  const auto place = [&](int of_slot, int at) {
    return (((size_t)of_slot * of.heads + head) * of.places + at) * of.head_dim;
  };
  if (of.history) {
    std::copy_n(query + inner, of.head_dim, of.keys + place(slot, old));
    std::copy_n(query + 2 * inner, of.head_dim, of.values + place(slot, old));
  }
  std::vector<double> weights(places), found(of.head_dim);
  std::vector<size_t> from(places);
  double greatest = -INFINITY, all = 0;
  for (int at = 0; at < places; at++) {
    from[at] = place(of.history && at < old ? of.history[(size_t)slot * of.places + at] : slot, at);
    weights[at] = of.scale * dot(query, of.keys + from[at], of.head_dim);
    greatest = std::fmax(greatest, weights[at]);
  }
  for (int at = 0; at < places; at++) {
    const double weight = std::exp(weights[at] - greatest);
    all += weight;
    for (int i = 0; i < of.head_dim; i++) found[i] += weight * half_to_float(of.values[from[at] + i]);
  }
  Half* attended = of.attended + (size_t)row * inner + head * of.head_dim;
  for (int i = 0; i < of.head_dim; i++) attended[i] = float_to_half((float)(found[i] / all));
}

struct Candidate {
  float logit;
  int token;
};

bool better(const Candidate& one, const Candidate& other) {
  return one.logit != other.logit ? one.logit > other.logit : one.token < other.token;
}

void find_one(const BestLogits& of, int row) {
  const size_t first = (size_t)row * of.columns;
  std::vector<Candidate> all(of.columns);
  float greatest = -INFINITY;
  bool finite = true;
  for (int token = 0; token < of.columns; token++) {
    const float logit = half_to_float(of.products[first + token]) + half_to_float(of.bias[token]);
    of.logits[first + token] = float_to_half(logit);
    all[token] = {std::isnan(logit) ? -INFINITY : logit, token};  // an order needs numbers
    finite = finite && !std::isnan(logit);
    greatest = std::fmax(greatest, logit);
  }
  double sum = finite ? 0 : NAN;
  for (const Candidate& one : all) sum += std::exp((double)one.logit - greatest);
  const int count = std::min(looked_at_again(of.k), of.columns);
  std::partial_sort(all.begin(), all.begin() + count, all.end(), better);
  for (int i = 0; i < count; i++) {
    Candidate& one = all[i];
    const float rounded = one.logit;
    const Half* weight = of.weight + (size_t)one.token * of.width;
    one.logit = (float)dot(of.hidden + (size_t)row * of.width, weight, of.width) + half_to_float(of.bias[one.token]);
    sum += std::exp((double)one.logit - greatest) - std::exp((double)rounded - greatest);
  }
  std::sort(all.begin(), all.begin() + count, better);
  for (int i = 0; i < of.k; i++) {
    of.ids[(size_t)row * of.k + i] = all[i].token;
    of.log_probs[(size_t)row * of.k + i] = (float)(all[i].logit - greatest - std::log(sum));
  }
}

// What the norm of a row makes of its numbers, rounded; or the numbers themselves.
std::vector<double> normed(const Normed& of, int row, int width, float epsilon) {
  const Half* numbers = of.numbers + (size_t)row * width;
  std::vector<double> found(width);
  double mean = 0, variance = 0;
  for (int i = 0; i < width; i++) mean += (found[i] = half_to_float(numbers[i])) / width;
  if (!of.scale) return found;
  for (double number : found) variance += (number - mean) * (number - mean) / width;
  const double by = 1 / std::sqrt(variance + epsilon);
  for (int i = 0; i < width; i++) {
    const double number = (found[i] - mean) * by * half_to_float(of.scale[i]) + half_to_float(of.shift[i]);
    found[i] = half_to_float(float_to_half((float)number));
  }
  return found;
}

double activated(double x, Activation activation) {
  switch (activation) {
    case Activation::relu: return x > 0 || std::isnan(x) ? x : 0;
    case Activation::gelu: return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
    case Activation::gelu_tanh: return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case Activation::swish: return x / (1 + std::exp(-x));
    default: return x;
  }
}

// So many outputs are summed up side by side: one alone would wait for each of its additions. In pairs, since compilers
// that are left to find some spend most instructions on putting numbers elsewhere.
constexpr int TOGETHER = 8, PAIRS = TOGETHER / 2;
typedef double Pair __attribute__((vector_size(2 * sizeof(double))));

// Outputs of every row from `first` on, added to what `y` has [rows][outputs].
void multiply_some(const RowLinear& of, int first, const std::vector<std::vector<double>>& x,
                   std::vector<std::vector<double>>& y) {
  const int count = std::min(TOGETHER, of.outputs - first);
  std::vector<Pair> weights((size_t)of.width * PAIRS);
  for (int at = 0; at < count; at++) {
    const Half* weight = of.weight + (size_t)(first + at) * of.width;
    for (int i = 0; i < of.width; i++) weights[(size_t)i * PAIRS + at / 2][at % 2] = half_to_float(weight[i]);
  }
  for (int row = 0; row < of.rows; row++) {
    Pair sums[PAIRS] = {};
    const Pair* weight = weights.data();
    for (double number : x[row])
      for (Pair& sum : sums) sum += number * *weight++;
    for (int at = 0; at < count; at++) {
      const double bias = of.bias ? half_to_float(of.bias[first + at]) : 0;
      y[row][first + at] += activated(bias + sums[at / 2][at % 2], of.activation);
    }
  }
}

}  // namespace

void reference::multiply(const RowLinear& of) {
  std::vector<std::vector<double>> x(of.rows), y(of.rows, std::vector<double>(of.outputs));
  for (int row = 0; row < of.rows; row++) {
    x[row] = normed(of.x, row, of.width, of.epsilon);
    if (of.residual.numbers) y[row] = normed(of.residual, row, of.outputs, of.epsilon);
  }
  for (int first = 0; first < of.outputs; first += TOGETHER) multiply_some(of, first, x, y);
  for (int row = 0; row < of.rows; row++)
    for (int i = 0; i < of.outputs; i++) of.y[(size_t)row * of.outputs + i] = float_to_half((float)y[row][i]);
}

void reference::embed(const Embedding& of) {
  const auto rounded = [](float number) { return half_to_float(float_to_half(number)); };
  for (int row = 0; row < of.rows; row++) {
    const Half* token = of.tokens + (size_t)of.ids[row] * of.width;
    for (int i = 0; i < of.width; i++) {
      float number = rounded(half_to_float(token[i]) * of.scale);
      if (of.places) number += half_to_float(of.places[(size_t)of.positions[row] * of.width + i]);
      of.embedded[(size_t)row * of.width + i] = float_to_half(number);
    }
  }
}

void reference::attend(const Attention& of) {
  for (int row = 0; row < of.rows; row++)
    for (int head = 0; head < of.heads; head++) attend_one(of, row, head);
}

void reference::find(const BestLogits& of) {
  for (int row = 0; row < of.rows; row++) find_one(of, row);
}

}  // namespace dragoman::device
