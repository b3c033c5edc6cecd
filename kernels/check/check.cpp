// Tries one instruction set against plain C++ and double precision, without ONNX Runtime. Prints a hash of all whole
// numbers and the largest difference of each float kernel; exits with 1 where anything is wrong.
#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <vector>

#include "check/floats.h"
#include "check/products.h"
#include "check/selection.h"
#include "compute/attention.h"
#include "compute/best_tokens.h"
#include "compute/norm.h"
#include "compute/recurrent.h"
#include "compute/top_tokens.h"
#include "processor.h"

namespace dragoman::ISA {
namespace {

void check_halves() {
  Random random;
  std::vector<float> x = {0.f, -0.f, 65504.f, 65519.f, 1e6f, 6e-8f, 2.9e-8f, 1e-5f, 6.1e-5f, 1.f / 3, 2049.f, 2051.f};
  while (x.size() < 4096) x.push_back(random.real() * std::ldexp(1.f, random.whole(-30, 17)));
  for (size_t i = 0; i < x.size(); i += 16) {
    uint16_t halves[16];
    float back[16];
    store16(halves, load(&x[i]));
    store(back, load16(halves));
    add_to_hash(halves, sizeof halves);
    add_to_hash(back, sizeof back);
  }
}

// e^x is held relative to itself and to 1 + |x|, since x / log 2 is rounded before it is split.
void check_functions() {
  Difference exponent{"exponential", 3e-7}, gaussian{"gelu", 1e-6}, logistic{"sigmoid", 1e-6};
  for (float first = -80.f; first < 8.f; first += 0.37f) {
    float x[16], y[16];
    for (int i = 0; i < 16; i++) x[i] = first + 0.021f * (float)i;
    store(y, exponential(load(x)));
    for (int i = 0; i < 16; i++) {
      const double relative = y[i] / std::exp((double)x[i]) - 1.;
      exponent.compare(1. + relative / (1. + std::fabs(x[i])), 1.);
    }
    store(y, gelu(load(x)));
    for (int i = 0; i < 16; i++) gaussian.compare(y[i], 0.5 * x[i] * std::erfc(-x[i] * std::sqrt(0.5)));
    store(y, sigmoid(load(x)));
    for (int i = 0; i < 16; i++) logistic.compare(y[i], 1. / (1. + std::exp(-(double)x[i])));
  }
}

// Over -20..20, and relative to itself from 1e-8 to 1.
void check_hyperbolic_tangent() {
  Difference absolute{"tanh", 2e-7}, relative{"tanh, relative to itself", 1e-6};
  float x[16], y[16];
  for (float first = -20.f; first < 20.f; first += 0.0029f) {
    for (int i = 0; i < 16; i++) x[i] = std::fmin(20.f, first + 0.00017f * (float)i);
    store(y, hyperbolic_tangent(load(x)));
    for (int i = 0; i < 16; i++) absolute.compare(y[i], std::tanh((double)x[i]));
  }
  for (float first = 1e-8f; first < 1.f; first *= 1.01f) {
    for (int i = 0; i < 16; i++) x[i] = (i % 2 ? -first : first) * (1.f + 0.0006f * (float)i);
    store(y, hyperbolic_tangent(load(x)));
    for (int i = 0; i < 16; i++) relative.compare(y[i] / std::tanh((double)x[i]), 1.);
  }
  for (int i = 0; i < 16; i++) x[i] = 0.f;
  x[1] = 100.f, x[2] = -100.f, x[3] = 3e38f, x[4] = -3e38f, x[5] = INFINITY, x[6] = -INFINITY, x[7] = NAN;
  store(y, hyperbolic_tangent(load(x)));
  for (int i = 0; i < 16; i++)
    if (i == 7 ? y[i] == y[i] : y[i] != std::tanh(x[i])) failures++, printf("tanh of %g is %g WRONG\n", x[i], y[i]);
}

void check_norms() {
  Difference difference{"norm", 2e-6};
  Random random;
  for (int n : {1, 8, 16, 31, 256, 500})
    for (Norm norm : {Norm::layer, Norm::rms}) {
      std::vector<float> x(n), residual(n), gamma(n), beta(n), out(n);
      std::vector<double> sum(n);
      double mean = 0, squares = 0;
      for (int i = 0; i < n; i++) {
        x[i] = random.real(), residual[i] = random.real(), gamma[i] = random.real(), beta[i] = random.real();
        sum[i] = (double)x[i] + residual[i];
        mean += sum[i] / n;
      }
      if (norm == Norm::rms) mean = 0;
      for (double v : sum) squares += (v - mean) * (v - mean) / n;
      Linear l{};
      l.norm = norm, l.epsilon = 1e-3f, l.gamma = gamma.data(), l.beta = beta.data();
      residual_norm(x.data(), residual.data(), 1, n, l, out.data());
      for (int i = 0; i < n; i++)
        difference.compare(out[i], (sum[i] - mean) / std::sqrt(squares + l.epsilon) * gamma[i] + beta[i]);
    }
}

void check_attention(Scratch& scratch) {
  Difference difference{"attention", 2e-6};
  Random random;
  const int heads = 2;
  for (int head_dim : {8, 24, 32, 64})
    for (int length : {1, 2, 15, 16, 17, 33, 50}) {
      const int width = heads * head_dim;
      std::vector<float> qkv((size_t)length * 3 * width), out((size_t)length * width);
      for (float& v : qkv) v = 2.f * random.real();
      const float scale = 1.f / std::sqrt((float)head_dim);
      packed_attention(qkv.data(), &length, 1, heads, head_dim, scale, Bias{}, out.data(), scratch);
      for (int r = 0; r < length; r++)
        for (int h = 0; h < heads; h++) {
          std::vector<double> weights(length);
          double total = 0;
          for (int t = 0; t < length; t++) {
            double product = 0;
            for (int d = 0; d < head_dim; d++)
              product += (double)qkv[(size_t)r * 3 * width + h * head_dim + d] *
                         qkv[(size_t)t * 3 * width + width + h * head_dim + d];
            total += weights[t] = std::exp(product * scale);
          }
          for (int d = 0; d < head_dim; d++) {
            double value = 0;
            for (int t = 0; t < length; t++)
              value += weights[t] / total * qkv[(size_t)t * 3 * width + 2 * width + h * head_dim + d];
            difference.compare(out[(size_t)r * width + h * head_dim + d], value);
          }
        }
    }
}

double logistic(double x) { return 1. / (1. + std::exp(-x)); }

std::vector<float> reals(size_t count, float size, Random& random) {
  std::vector<float> x(count);
  for (float& v : x) v = size * random.real();
  return x;
}

// Whether a row of numbers, and it alone, is none.
void expect_only_row(const char* name, int wanted, const std::vector<float>& x, const std::vector<float>& before) {
  const size_t width = x.size() / 3;
  for (size_t i = 0; i < x.size(); i++)
    if ((int)(i / width) == wanted ? x[i] == x[i] : x[i] != before[i])
      failures++, printf("%s: a number of row %d WRONG\n", name, (int)(i / width));
}

// Gates of 100 are all but 0 and 1.
void check_gated_unit() {
  Difference difference{"gated unit", 1e-6};
  Random random;
  const int rows = 3;
  for (int width : {1, 15, 16, 17, 20, 64, 250})
    for (float size : {0.01f, 1.f, 10.f, 100.f}) {
      std::vector<float> given = reals((size_t)rows * 3 * width, size, random);
      const std::vector<float> kept = reals(given.size(), 1.f, random);
      std::vector<float> state = reals((size_t)rows * width, 1.f, random), out(state.size());
      gated_unit(given.data(), kept.data(), state.data(), rows, width, out.data());
      for (int r = 0; r < rows; r++)
        for (int i = 0; i < width; i++) {
          const size_t z = (size_t)r * 3 * width + i, reset = z + width, n = reset + width;
          const double update = logistic((double)given[z] + kept[z]);
          const double kept_new = logistic((double)given[reset] + kept[reset]) * kept[n];
          const double fresh = std::tanh(given[n] + kept_new), old = state[(size_t)r * width + i];
          difference.compare(out[(size_t)r * width + i], fresh + update * (old - fresh));
        }
      for (int i = 0; i < width; i++) given[(size_t)(3 + i % 3) * width + i] = NAN;
      gated_unit(given.data(), kept.data(), state.data(), rows, width, state.data());
      expect_only_row("gated unit in place", 1, state, out);
    }
}

// Keys and values behind a row's own places are no numbers.
void check_additive_attention(Scratch& scratch) {
  Difference means{"additive attention", 2e-6}, found{"its scores, of the weight's sum", 1e-6};
  Random random;
  const int capacity = 33;
  for (int width : {1, 15, 16, 17, 20, 64, 250})
    for (const std::vector<int32_t>& last : {std::vector<int32_t>{0, 14, 15}, {16, 32, 31}, {16, 0, 7}}) {
      const int rows = 3, places = *std::max_element(last.begin(), last.end()) + 1;
      std::vector<float> query = reals((size_t)rows * width, 2.f, random);
      const std::vector<float> weight = reals(width, 2.f, random);
      std::vector<float> keys = reals((size_t)rows * capacity * width, 2.f, random);
      std::vector<float> values = reals(keys.size(), 1.f, random);
      for (int r = 0; r < rows; r++)
        for (size_t i = (size_t)(last[r] + 1) * width; i < (size_t)capacity * width; i++)
          keys[(size_t)r * capacity * width + i] = values[(size_t)r * capacity * width + i] = NAN;
      std::vector<float> scores((size_t)rows * places), out(query.size()), again(query.size());
      const auto attend = [&](float* attended, float* scored) {
        additive_attention(query.data(), weight.data(), keys.data(), values.data(), last.data(), rows, capacity, width,
                           attended, scored, places, scratch);
      };
      attend(out.data(), scores.data());
      double most = 0;
      for (float w : weight) most += std::fabs(w);
      for (int r = 0; r < rows; r++) {
        const float* row_keys = &keys[(size_t)r * capacity * width];
        std::vector<double> weights(last[r] + 1), mean(width);
        double total = 0;
        for (int t = 0; t < places; t++) {
          const float scored = scores[(size_t)r * places + t];
          if (t > last[r] && scored != lowest) failures++, printf("a score behind a row's places WRONG\n");
          if (t > last[r]) continue;
          double score = 0;
          for (int i = 0; i < width; i++)
            score += weight[i] * std::tanh((double)query[(size_t)r * width + i] + row_keys[(size_t)t * width + i]);
          found.compare(scored / most, score / most);
          total += weights[t] = std::exp(score);
        }
        for (int t = 0; t <= last[r]; t++)
          for (int i = 0; i < width; i++)
            mean[i] += weights[t] / total * values[((size_t)r * capacity + t) * width + i];
        for (int i = 0; i < width; i++) means.compare(out[(size_t)r * width + i], mean[i]);
      }
      query[width] = NAN;  // of row 1
      attend(again.data(), nullptr);
      expect_only_row("additive attention without scores", 1, again, out);
    }
}

enum Logits { random_logits, equal, of_five_sizes, some_left_out, none_there, not_a_number, infinite, kinds_of_logits };

std::vector<float> logits_of(int kind, int vocabulary, Random& random) {
  std::vector<float> x = reals(vocabulary, 20.f, random);
  const int place = random.whole(0, vocabulary - 1);
  for (int i = 0; i < vocabulary; i++) {
    if (kind == equal) x[i] = -7.25f;
    if (kind == of_five_sizes) x[i] = (float)random.whole(-2, 2);
    if (kind == none_there || (kind == some_left_out && i != place && random.whole(0, 2) > 0)) x[i] = -INFINITY;
    if (i == place && kind == not_a_number) x[i] = NAN;
    if (i == place && kind == infinite) x[i] = INFINITY;
  }
  return x;
}

// The best of a row of logits, of equal ones the first; minus infinity is of tokens that cannot be.
void expect_top_tokens(std::vector<float> logits, bool finite, int k, const int64_t* ids, const float* log_probs,
                       Difference& difference) {
  double total = 0;
  for (float x : logits) total += std::exp((double)x);
  for (int i = 0; i < k; i++) {
    const int best = (int)(std::max_element(logits.begin(), logits.end()) - logits.begin());
    const bool there = finite && logits[best] > -INFINITY;
    bool good = ids[i] == (there ? best : -1);
    if (!there) good = good && (finite ? log_probs[i] == -INFINITY : log_probs[i] != log_probs[i]);
    if (!good) failures++, printf("token %d of %d is %" PRId64 ", %g WRONG\n", i, k, ids[i], log_probs[i]);
    if (there) difference.compare(log_probs[i], logits[best] - std::log(total));
    if (there) logits[best] = -INFINITY;
  }
}

void check_top_tokens() {
  Difference difference{"log-probabilities of logits", 1e-6};
  Random random;
  for (int vocabulary : {1, 3, 15, 16, 17, 63, 64, 65, 1003})
    for (int k : {1, 5, 64}) {
      std::vector<float> logits, log_probs(kinds_of_logits * k);
      std::vector<int64_t> ids(kinds_of_logits * k);
      for (int kind = 0; kind < kinds_of_logits; kind++) {
        const std::vector<float> row = logits_of(kind, vocabulary, random);
        logits.insert(logits.end(), row.begin(), row.end());
      }
      top_tokens(logits.data(), kinds_of_logits, vocabulary, k, ids.data(), log_probs.data());
      for (int kind = 0; kind < kinds_of_logits; kind++)
        expect_top_tokens({&logits[kind * vocabulary], &logits[kind * vocabulary] + vocabulary}, kind < none_there, k,
                          &ids[kind * k], &log_probs[kind * k], difference);
      add_to_hash(ids.data(), ids.size() * sizeof(int64_t));
    }
}

// A token's logit, by its name, and what there is where none is named.
void expect_named(const BestTokens& b, const float* x, int64_t token, double logit, Difference& difference) {
  const int64_t named[] = {-1, token};
  float found[2];
  named_tokens(b.table, b.look.bias, x, 1, named, 2, found);
  difference.compare(found[1], logit);
  if (found[0] != -INFINITY) failures++, printf("token -1 has a logit WRONG\n");
}

// The output layer's tokens, best first, and their log-probabilities: of all, or of one in so many.
void expect_best_tokens(const char* name, const BestTokens& b, const std::vector<float>& x, int k, Scratch& scratch,
                        int one_in = 1) {
  Difference difference{name, 1e-3};
  const int count = (int)b.table.count, width = b.table.width, rows = (int)x.size() / width;
  const int8_t* weight = (const int8_t*)b.table.rows;
  std::vector<float> log_probs(rows * k), normalisers(rows);
  std::vector<int64_t> ids(rows * k);
  std::vector<int32_t> allowed(rows * count, -1);
  for (int i = 0; i < rows * count; i++)
    if (i % count * one_in < count) allowed[i] = i % count * one_in;
  const Counts counts = best_tokens(b, x.data(), rows, k, one_in > 1 ? allowed.data() : nullptr, count, ids.data(),
                                    log_probs.data(), normalisers.data(), scratch);
  for (int r = 0; r < rows; r++) {
    std::vector<double> logits(count);
    double total = 0;
    for (int n = 0; n < count; n++) {
      for (int i = 0; i < width; i++) logits[n] += (double)x[(size_t)r * width + i] * weight[(size_t)n * width + i];
      logits[n] = n % one_in ? -1e30 : logits[n] * b.table.scales[n] + b.look.bias[n];
      total += std::exp(logits[n]);
    }
    for (int i = 0; i < k; i++) {
      int best = 0;
      for (int n = 1; n < count; n++) best = logits[n] > logits[best] ? n : best;
      if (ids[r * k + i] != best) {
        failures++;
        printf("row %d: token %" PRId64 " is not %d WRONG\n", r, ids[r * k + i], best);
      }
      difference.compare(log_probs[r * k + i], logits[best] - std::log(total));
      difference.compare(log_probs[r * k + i] + normalisers[r], logits[best]);
      expect_named(b, x.data() + (size_t)r * width, ids[r * k + i], logits[best], difference);
      logits[best] = -1e30;
    }
  }
  printf("%s: %d rows, %d of them whole\n", name, rows, (int)counts.whole_rows);
  add_to_hash(ids.data(), ids.size() * sizeof(int64_t));
}

// The look is the weight itself. The sum of all exponentials is of looks but for the best ones.
void check_best_tokens(Scratch& scratch) {
  Random random;
  const int count = 1003, width = 72, rows = 7, k = 4, panels = (count + columns - 1) / columns, all = panels * columns;
  std::vector<int8_t> weight((size_t)count * width);
  for (int8_t& w : weight) w = (int8_t)random.whole(-127, 127);
  Memory<int8_t> packed((size_t)all * width + read_behind);
  Memory<int32_t> start(all);
  Memory<float> scales(all), bias(all), norms(all), rest(all), slack(all), bounds(3 * panels);
  pack(weight.data(), count, width, width, packed.get());
  BestTokens b{};
  for (int n = 0; n < all; n++) {
    int32_t total = 0;
    double squares = 0;
    for (int i = 0; n < count && i < width; i++) {
      total += weight[(size_t)n * width + i];
      squares += (double)weight[(size_t)n * width + i] * weight[(size_t)n * width + i];
    }
    start[n] = (shift(Packed::bytes, 128) - 128) * total;
    scales[n] = 0.01f;
    bias[n] = n < count ? random.real() : -1e30f;
    norms[n] = (float)(std::sqrt(squares) * 0.01 * 1.0001);
    rest[n] = 1e-6f;
    slack[n] = 1e-5f;
    float* of_panel = bounds.get() + 3 * (n / columns);
    of_panel[0] = std::fmax(of_panel[0], norms[n]), of_panel[1] = rest[n], of_panel[2] = slack[n];
    b.bounds[0] = std::fmax(b.bounds[0], norms[n]), b.bounds[1] = rest[n], b.bounds[2] = slack[n];
  }
  b.look = {count, width, width, panels, packed.get(), start.get(), scales.get(), bias.get()};
  b.look.shift = shift(Packed::bytes, 128);
  b.quantization = {0.f, 128, 8};
  b.table = {Number::int8, weight.data(), scales.get(), count, width};
  b.weight_norms = norms.get(), b.rest_norms = rest.get(), b.bias_slack = slack.get(), b.panel_bounds = bounds.get();
  std::vector<float> mean(width);
  for (int n = 0; n < count; n++)
    for (int i = 0; i < width; i++) mean[i] += 0.01f * weight[(size_t)n * width + i] / count;
  b.mean_weight = b.mean_look = mean.data();
  b.exact = true;
  std::vector<float> x((size_t)rows * width);
  for (float& v : x) v = random.real();
  expect_best_tokens("best_tokens", b, x, k, scratch);
  b.row_major = weight.data();
  expect_best_tokens("best_tokens of some", b, x, k, scratch, 3);
  // A coarse look that leaves nothing out: each number of a row is one of its query.
  std::vector<float> query((size_t)width * width), none(width);
  for (int i = 0; i < width; i++) query[(size_t)i * width + i] = 1.f;
  b.mean_weight = none.data();
  b.coarse = {b.look, query.data(), none.data(), 0, 0.f, 0.f, 2.f};
  expect_best_tokens("best_tokens by a coarse look", b, x, k, scratch);
}

int check() {
  Scratch scratch;
  check_products(scratch);
  printf("products %016" PRIx64 "\n", hash);
  check_float_layers();
  check_quantization();
  check_halves();
  check_best_tokens(scratch);
  check_top_tokens();
  check_functions();
  check_hyperbolic_tangent();
  check_nth_largest();
  check_norms();
  check_attention(scratch);
  check_gated_unit();
  check_additive_attention(scratch);
  check_wide_layer(scratch);
  printf("whole numbers %016" PRIx64 "\n", hash);
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace dragoman::ISA

#define JOINED(a, b) a##b
#define HAS(isa) JOINED(has_, isa)

int main() {
  if (!dragoman::processor::HAS(ISA)()) {
    std::puts("this processor has no such instructions");
    return 2;
  }
  return dragoman::ISA::check();
}
