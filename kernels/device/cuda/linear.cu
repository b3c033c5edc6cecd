// Linear layers over the rows of a step, with what stands before and behind them: the norm of their input, their bias,
// an activation, a residual and its norm. One kernel in place of four; at so few rows each takes about as long as it
// takes to start it.
//
// A block computes some outputs of some rows. Its warps divide the outputs by 16, and the width among them: each keeps
// the products of its share in registers, by matrix instructions of 16 outputs x 8 rows x 16 numbers, and their sums
// are joined in the end, in one order. Which numbers of a row are multiplied in one instruction is free, as long as
// both sides agree: each lane takes eight that lie side by side, so that it loads 16 bytes at once.
#include "eight.cuh"
#include "follow.h"

namespace dragoman::device {
namespace {

constexpr int threads = 256, warps = threads / 32;
constexpr int chunk = 32;  // numbers of a row that four lanes load at once

__device__ float to_float(Half bits) { return __half2float(*reinterpret_cast<const __half*>(&bits)); }
__device__ Half to_half(float number) {
  const __half half = __float2half_rn(number);
  return *reinterpret_cast<const Half*>(&half);
}
__device__ float rounded(float number) { return __half2float(__float2half_rn(number)); }
__device__ uint32_t word(const uint4& of, int i) { return reinterpret_cast<const uint32_t*>(&of)[i]; }

#if __CUDA_ARCH__ < 800
// sums += weights [16, 8] times x [8, 8].
__device__ void multiply_eight(float (&sums)[4], uint32_t upper, uint32_t lower, uint32_t x) {
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
               : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
               : "r"(upper), "r"(lower), "r"(x));
}
#endif

// sums += weights [16, 16] times x [16, 8], of fp16, in fp32.
__device__ void multiply(float (&sums)[4], const uint4 (&weights)[2], const uint4& x, int half) {
  const uint32_t upper = word(weights[0], 2 * half), lower = word(weights[1], 2 * half);
  const uint32_t next_upper = word(weights[0], 2 * half + 1), next_lower = word(weights[1], 2 * half + 1);
  const uint32_t numbers = word(x, 2 * half), next_numbers = word(x, 2 * half + 1);
#if __CUDA_ARCH__ >= 800
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(upper), "r"(lower), "r"(next_upper), "r"(next_lower), "r"(numbers), "r"(next_numbers));
#else  // in two parts
  multiply_eight(sums, upper, lower, numbers);
  multiply_eight(sums, next_upper, next_lower, next_numbers);
#endif
}

__device__ float activated(float x, Activation activation) {
  switch (activation) {
    case Activation::relu: return x > 0 ? x : (x != x ? x : 0);
    case Activation::gelu: return 0.5f * x * (1 + erff(x * 0.70710678f));
    case Activation::gelu_tanh: return 0.5f * x * (1 + tanhf(0.79788456f * (x + 0.044715f * x * x * x)));
    case Activation::swish: return x / (1 + expf(-x));
    default: return x;
  }
}

// The mean of each row, and what its distances from it are multiplied with. Sums are of distances from the row's first
// number: so their squares are about as large as the variance, and nothing is lost when the mean is subtracted.
template <int at_once>
__device__ void measure(const Normed& of, int first_row, int rows, int width, float epsilon, float2* norms) {
  constexpr int each = at_once / warps;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const Half* numbers = of.numbers + (size_t)first_row * width;
  float begins[each]{}, sums[each]{}, squares[each]{};
#pragma unroll
  for (int i = 0; i < each; i++) {
    const int row = i * warps + warp;
    if (row < rows) begins[i] = to_float(numbers[(size_t)row * width]);
  }
  for (int k = lane * 8; k < width; k += 256) {
    uint4 loaded[each]{};
#pragma unroll
    for (int i = 0; i < each; i++) {
      const int row = i * warps + warp;
      if (row < rows) loaded[i] = bits_of(numbers + (size_t)row * width + k);
    }
#pragma unroll
    for (int i = 0; i < each; i++) {
      const Eight eight = numbers_of(loaded[i]);
#pragma unroll
      for (int j = 0; j < 8; j++) {
        const float distance = eight.at[j] - begins[i];
        sums[i] += distance;
        squares[i] += distance * distance;
      }
    }
  }
#pragma unroll
  for (int i = 0; i < each; i++) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
      sums[i] += __shfl_xor_sync(~0u, sums[i], step);
      squares[i] += __shfl_xor_sync(~0u, squares[i], step);
    }
    const float mean = sums[i] / width, variance = fmaxf(squares[i] / width - mean * mean, 0);
    if (lane == 0) norms[i * warps + warp] = {begins[i] + mean, rsqrtf(variance + epsilon)};
  }
}

// at_once: rows of a block. across: its warps side by side, of 16 outputs each; the others share their width. ahead:
// chunks of weights that a warp has asked for before it needs them, the first of them before the rows are there.
template <int at_once, int across, int ahead>
__global__ void __launch_bounds__(threads, 2) linear_kernel(const RowLinear of) {
  constexpr int shares = warps / across, outputs = 16 * across, stride = outputs + 4, columns = at_once / 8;
  constexpr int of_thread = (outputs * at_once + threads - 1) / threads;
  __shared__ float sums[shares][at_once * stride];
  __shared__ float2 x_norms[at_once], residual_norms[at_once];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = lane / 4, part = lane % 4;
  const int first_row = blockIdx.y * at_once, rows = min(at_once, of.rows - first_row);
  const int output = blockIdx.x * outputs + warp % across * 16 + group, share = warp / across;

  uint4 weights[ahead][2];
  const auto fetch = [&](int i, int at) {
    const int k = at * chunk + part * 8;
#pragma unroll
    for (int j = 0; j < 2; j++) {
      const bool there = k < of.width && output + 8 * j < of.outputs;
      weights[i][j] = there ? bits_of(of.weight + (size_t)(output + 8 * j) * of.width + k) : uint4{};
    }
  };
#pragma unroll
  for (int i = 0; i < ahead; i++) fetch(i, share + i * shares);
  // What this thread writes in the end: one output of some rows.
  const int own = threadIdx.x % outputs, written = blockIdx.x * outputs + own, own_row = threadIdx.x / outputs;
  const bool writes = written < of.outputs;
  const float bias = writes && of.bias ? to_float(of.bias[written]) : 0;
  const bool normed = of.residual.scale != nullptr;
  const float scale = writes && normed ? to_float(of.residual.scale[written]) : 1;
  const float shift = writes && normed ? to_float(of.residual.shift[written]) : 0;
  follow();

  Half residuals[of_thread]{};
#pragma unroll
  for (int i = 0; i < of_thread; i++) {
    const int row = own_row + i * (threads / outputs);
    if (of.residual.numbers && writes && row < rows)
      residuals[i] = of.residual.numbers[(size_t)(first_row + row) * of.outputs + written];
  }
  if (of.x.scale) measure<at_once>(of.x, first_row, rows, of.width, of.epsilon, x_norms);
  if (normed) measure<at_once>(of.residual, first_row, rows, of.outputs, of.epsilon, residual_norms);
  if (of.x.scale) __syncthreads();

  float found[columns][4]{};
  const int chunks = (of.width + chunk - 1) / chunk;
  for (int at = share; at < chunks; at += ahead * shares) {
    uint4 x[ahead][columns];
#pragma unroll
    for (int i = 0; i < ahead; i++) {
      const int k = (at + i * shares) * chunk + part * 8;
#pragma unroll
      for (int j = 0; j < columns; j++) {
        const int row = j * 8 + group;
        x[i][j] = row < rows && k < of.width ? bits_of(of.x.numbers + (size_t)(first_row + row) * of.width + k) : uint4{};
      }
    }
    if (of.x.scale) {
#pragma unroll
      for (int i = 0; i < ahead; i++) {
        const int k = (at + i * shares) * chunk + part * 8;
        if (k >= of.width) continue;
        const Eight by = load(of.x.scale + k), plus = load(of.x.shift + k);
#pragma unroll
        for (int j = 0; j < columns; j++) {
          const float2 norm = x_norms[j * 8 + group];
          const Eight given = numbers_of(x[i][j]);
          __half2* pairs = reinterpret_cast<__half2*>(&x[i][j]);
#pragma unroll
          for (int m = 0; m < 4; m++) {
            pairs[m] = __floats2half2_rn((given.at[2 * m] - norm.x) * norm.y * by.at[2 * m] + plus.at[2 * m],
                                         (given.at[2 * m + 1] - norm.x) * norm.y * by.at[2 * m + 1] + plus.at[2 * m + 1]);
          }
        }
      }
    }
#pragma unroll
    for (int i = 0; i < ahead; i++)
#pragma unroll
      for (int half = 0; half < 2; half++)
#pragma unroll
        for (int j = 0; j < columns; j++) multiply(found[j], weights[i], x[i][j], half);
#pragma unroll
    for (int i = 0; i < ahead; i++) fetch(i, at + (ahead + i) * shares);
  }

  float* const mine = sums[share] + warp % across * 16 + group;
#pragma unroll
  for (int j = 0; j < columns; j++) {
    float* const at = mine + (j * 8 + 2 * part) * stride;
    at[0] = found[j][0];
    at[stride] = found[j][1];
    at[8] = found[j][2];
    at[stride + 8] = found[j][3];
  }
  __syncthreads();
  if (!writes) return;
#pragma unroll
  for (int i = 0; i < of_thread; i++) {
    const int row = own_row + i * (threads / outputs);
    if (row >= rows) break;
    float sum = bias;
#pragma unroll
    for (int j = 0; j < shares; j++) sum += sums[j][row * stride + own];
    sum = activated(sum, of.activation);
    if (of.residual.numbers) {
      const float residual = to_float(residuals[i]);
      const float2 norm = normed ? residual_norms[row] : float2{0, 1};
      sum += normed ? rounded((residual - norm.x) * norm.y * scale + shift) : residual;
    }
    of.y[(size_t)(first_row + row) * of.outputs + written] = to_half(sum);
  }
}

template <int at_once, int across, int ahead>
void launch(const RowLinear& of, void* stream) {
  constexpr int outputs = 16 * across;
  const dim3 grid((of.outputs + outputs - 1) / outputs, (of.rows + at_once - 1) / at_once);
  launch_following(linear_kernel<at_once, across, ahead>, grid, threads, stream, of);
}

constexpr int most_at_once = 32;
constexpr int enough = 96;  // blocks, for the processors of a GPU

}  // namespace

void gpu::multiply(const RowLinear& of, void* stream) {
  if (of.rows == 0) return;
  if (of.rows <= 8) return launch<8, 1, 4>(of, stream);
  if (of.rows <= 16) return launch<16, 1, 4>(of, stream);
  // Blocks as wide as leaves enough of them: each reads its rows anew.
  const int blocks = (of.outputs + 15) / 16 * ((of.rows + most_at_once - 1) / most_at_once);
  if (blocks / 4 >= enough) launch<most_at_once, 4, 2>(of, stream);
  else if (blocks / 2 >= enough) launch<most_at_once, 2, 2>(of, stream);
  else launch<most_at_once, 1, 2>(of, stream);
}

}  // namespace dragoman::device
