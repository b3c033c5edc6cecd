// What one core can do at most: multiply-adds a second, and bytes read a second from working sets of given sizes.
//
//   peak BYTES ...
//
// Prints a line for each: a name, a space, a number. Every loop has independent chains, enough to hide latencies.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

// The best of many short tries, in operations a second: one of them is not interrupted.
#define PRINT_BEST(name, rounds, operations, body)                     \
  do {                                                                 \
    double best = 1e9;                                                 \
    for (int attempt = 0; attempt < 200; attempt++) {                  \
      double began = now();                                            \
      for (int round = 0; round < (rounds); round++) body              \
      double taken = now() - began;                                    \
      if (taken < best) best = taken;                                  \
    }                                                                  \
    printf("%s %.4g\n", name, (double)(rounds) * (operations) / best); \
  } while (0)

#define CHAINS(statement) \
  statement(0) statement(1) statement(2) statement(3) statement(4) statement(5) statement(6) statement(7)

#if defined(__x86_64__)
#include <immintrin.h>

// Chains are variables, not an array, so that they stay in registers; assembly, so that nothing is left out.
__attribute__((target("avx2,fma"))) static void peak_avx2(int has_vnni) {
  __m256i left = _mm256_set1_epi8(1), right = _mm256_set1_epi8(2), ones = _mm256_set1_epi16(1);
  __m256 factor = _mm256_set1_ps(1.0f), zero = _mm256_setzero_ps();
#define START(i) __m256i sum##i = _mm256_setzero_si256(), pair##i = sum##i; __m256 total##i = zero;
  CHAINS(START)
#define MULTIPLY_ADD(i)                                                              \
  __asm__ volatile("vpmaddubsw %1, %2, %0" : "=x"(pair##i) : "x"(right), "x"(left)); \
  __asm__ volatile("vpmaddwd %1, %0, %0" : "+x"(pair##i) : "x"(ones));               \
  __asm__ volatile("vpaddd %1, %0, %0" : "+x"(sum##i) : "x"(pair##i));
#define VNNI(i) __asm__ volatile("%{vex%} vpdpbusd %1, %2, %0" : "+x"(sum##i) : "x"(right), "x"(left));
#define FMA(i) __asm__ volatile("vfmadd231ps %1, %2, %0" : "+x"(total##i) : "x"(factor), "x"(zero));
  PRINT_BEST("u8s8_avx2", 20000, 8 * 32, { CHAINS(MULTIPLY_ADD) });
  if (has_vnni) PRINT_BEST("u8s8_avxvnni", 20000, 8 * 32, { CHAINS(VNNI) });
  PRINT_BEST("fp32_avx2", 20000, 8 * 8, { CHAINS(FMA) });
}

__attribute__((target("avx512f"))) static void peak_avx512(int has_vnni) {
  __m512i left = _mm512_set1_epi32(1), right = _mm512_set1_epi32(2);
  __m512 factor = _mm512_set1_ps(1.0f), zero = _mm512_setzero_ps();
#define START512(i) __m512i sum##i = _mm512_setzero_si512(); __m512 total##i = zero;
  CHAINS(START512)
#define VNNI512(i) __asm__ volatile("vpdpbusd %1, %2, %0" : "+v"(sum##i) : "v"(right), "v"(left));
#define FMA512(i) __asm__ volatile("vfmadd231ps %1, %2, %0" : "+v"(total##i) : "v"(factor), "v"(zero));
  if (has_vnni) PRINT_BEST("u8s8_avx512vnni", 20000, 8 * 64, { CHAINS(VNNI512) });
  PRINT_BEST("fp32_avx512", 20000, 8 * 16, { CHAINS(FMA512) });
}

#if HAS_AMX
#include <sys/syscall.h>
#include <unistd.h>

static void peak_amx(void) {
  const long request_permission = 0x1023, tile_data = 18;
  if (syscall(SYS_arch_prctl, request_permission, tile_data) != 0) return;
  struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
  } shapes = {.palette = 1};
  for (int i = 0; i < 8; i++) shapes.row_bytes[i] = 64, shapes.rows[i] = 16;
  __asm__ volatile("ldtilecfg %0" ::"m"(shapes));
#define MATRICES(i) __asm__ volatile("tdpbusd %tmm7, %tmm6, %tmm" #i);
  PRINT_BEST("u8s8_amx", 5000, 4 * 16 * 16 * 64, { MATRICES(0) MATRICES(1) MATRICES(2) MATRICES(3) });
  __asm__ volatile("tilerelease");
}
#else
static void peak_amx(void) {}
#endif

static void multiply(void) {
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2")) peak_avx2(HAS_AVXVNNI);
  if (__builtin_cpu_supports("avx512f")) peak_avx512(__builtin_cpu_supports("avx512vnni"));
  peak_amx();
}

#elif defined(__aarch64__)
#include <arm_neon.h>

static void multiply(void) {
  int8x16_t left = vdupq_n_s8(1), right = vdupq_n_s8(2);
  float32x4_t factor = vdupq_n_f32(1.0f), zero = vdupq_n_f32(0.0f);
#define START(i) int32x4_t sum##i = vdupq_n_s32(0); float32x4_t total##i = zero;
  CHAINS(START)
#define DOT(i) __asm__ volatile("sdot %0.4s, %1.16b, %2.16b" : "+w"(sum##i) : "w"(left), "w"(right));
#define MATRIX(i) __asm__ volatile("usmmla %0.4s, %1.16b, %2.16b" : "+w"(sum##i) : "w"(left), "w"(right));
#define FMLA(i) __asm__ volatile("fmla %0.4s, %1.4s, %2.4s" : "+w"(total##i) : "w"(factor), "w"(zero));
#ifdef __ARM_FEATURE_DOTPROD
  PRINT_BEST("u8s8_dotprod", 20000, 8 * 16, { CHAINS(DOT) });
#endif
#ifdef __ARM_FEATURE_MATMUL_INT8
  PRINT_BEST("u8s8_i8mm", 20000, 8 * 32, { CHAINS(MATRIX) });
#endif
  PRINT_BEST("fp32_neon", 20000, 8 * 4, { CHAINS(FMLA) });
}

#else
static void multiply(void) {}
#endif

// Reads a working set over and over; the compiler makes vectors of it.
static void read_bytes(size_t bytes) {
  size_t words = bytes / sizeof(uint64_t) / 32 * 32;
  uint64_t* memory = aligned_alloc(1 << 21, (bytes + (1 << 21) - 1) >> 21 << 21);
  if (!memory) return;
  for (size_t i = 0; i < words; i++) memory[i] = i;
  double best = 1e9;
  uint64_t lanes[32] = {0};
  int times = bytes < (8u << 20) ? (int)((8u << 20) / bytes) : 1;
  for (int attempt = 0; attempt < 40; attempt++) {
    double began = now();
    for (int time = 0; time < times; time++)
      for (size_t i = 0; i < words; i += 32)
        for (int lane = 0; lane < 32; lane++) lanes[lane] ^= memory[i + lane];
    double taken = (now() - began) / times;
    if (taken < best) best = taken;
  }
  volatile uint64_t sink = 0;
  for (int lane = 0; lane < 32; lane++) sink ^= lanes[lane];
  printf("read_%zu %.4g\n", bytes, (double)words * sizeof(uint64_t) / best);
  free(memory);
}

int main(int count, char** sizes) {
  multiply();
  for (int i = 1; i < count; i++) read_bytes(strtoull(sizes[i], NULL, 10));
  return 0;
}
