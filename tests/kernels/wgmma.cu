// wgmma of types that the other kernels have not: e4m3/e5m2 from shared memory, tf32, s8 with A in registers, f16 accumulators, K-major and MN-major B.
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cstdint>
__device__ __forceinline__ uint32_t sm(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }
__device__ __forceinline__ uint64_t desc(const void *p, int lead, int stride, uint64_t swizzle) { return (uint64_t)((sm(p) & 0x3ffff) >> 4) | (uint64_t)(lead >> 4) << 16 | (uint64_t)(stride >> 4) << 32 | swizzle << 62; }
__device__ __forceinline__ void begin() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); __syncthreads(); asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void end() { asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;" ::: "memory"); }
// no swizzle, K-major: core matrices of 8 rows x 16 bytes, 128 bytes each; [k chunk][row group]
template <class T> __device__ void fill(T *to, const T *from, int rows, int cols, int ld)
{
  constexpr int E = 16 / sizeof(T);
  for (int i = threadIdx.x; i < rows * cols; i += blockDim.x) { int r = i / cols, c = i % cols; to[(c / E) * (rows * E) + r * E + c % E] = from[(size_t)r * ld + c]; }
}
extern "C" __global__ void __launch_bounds__(128) fp8_64x32(const uint8_t *a, const uint8_t *b, float *d, int k)
{
  __shared__ alignas(1024) uint8_t sa[64 * 32], sb[32 * 32];
  float c[16] = {};
  for (int k0 = 0; k0 < k; k0 += 32) {
    fill(sa, a + k0, 64, 32, k); fill(sb, b + k0, 32, 32, k);
    begin();
    asm volatile("wgmma.mma_async.sync.aligned.m64n32k32.f32.e4m3.e5m2 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}, %16, %17, 1, 1, 1;"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7]), "+f"(c[8]), "+f"(c[9]), "+f"(c[10]), "+f"(c[11]), "+f"(c[12]), "+f"(c[13]), "+f"(c[14]), "+f"(c[15]) : "l"(desc(sa, 1024, 128, 0)), "l"(desc(sb, 512, 128, 0)));
    end(); __syncthreads();
  }
  int w = threadIdx.x / 32, l = threadIdx.x % 32;
  for (int j = 0; j < 4; j++) for (int e = 0; e < 4; e++) d[(w * 16 + l / 4 + e / 2 * 8) * 32 + j * 8 + l % 4 * 2 + e % 2] = c[j * 4 + e];
}
extern "C" __global__ void __launch_bounds__(128) tf32_64x16(const float *a, const float *b, float *d, int k)
{
  __shared__ alignas(1024) float sa[64 * 8], sb[16 * 8];
  float c[8] = {};
  for (int k0 = 0; k0 < k; k0 += 8) {
    fill(sa, a + k0, 64, 8, k); fill(sb, b + k0, 16, 8, k);
    begin();
    asm volatile("wgmma.mma_async.sync.aligned.m64n16k8.f32.tf32.tf32 {%0,%1,%2,%3,%4,%5,%6,%7}, %8, %9, 1, 1, -1;" : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7]) : "l"(desc(sa, 1024, 128, 0)), "l"(desc(sb, 256, 128, 0)));
    end(); __syncthreads();
  }
  int w = threadIdx.x / 32, l = threadIdx.x % 32;
  for (int j = 0; j < 2; j++) for (int e = 0; e < 4; e++) d[(w * 16 + l / 4 + e / 2 * 8) * 16 + j * 8 + l % 4 * 2 + e % 2] = c[j * 4 + e];
}
extern "C" __global__ void __launch_bounds__(128) s8_64x24_registers(const int8_t *a, const int8_t *b, int *d, int k)
{
  __shared__ alignas(1024) int8_t sb[24 * 32];
  int w = threadIdx.x / 32, l = threadIdx.x % 32, c[12] = {};
  for (int k0 = 0; k0 < k; k0 += 32) {
    fill(sb, b + k0, 24, 32, k);
    uint32_t r[4];
    for (int i = 0; i < 4; i++) r[i] = *(const uint32_t *)(a + (size_t)(w * 16 + l / 4 + i % 2 * 8) * k + k0 + l % 4 * 4 + i / 2 * 16);
    begin();
    asm volatile("wgmma.mma_async.sync.aligned.m64n24k32.s32.s8.s8.satfinite {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11}, {%12,%13,%14,%15}, %16, 1;" : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3]), "+r"(c[4]), "+r"(c[5]), "+r"(c[6]), "+r"(c[7]), "+r"(c[8]), "+r"(c[9]), "+r"(c[10]), "+r"(c[11]) : "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]), "l"(desc(sb, 384, 128, 0)));
    end(); __syncthreads();
  }
  for (int j = 0; j < 3; j++) for (int e = 0; e < 4; e++) d[(w * 16 + l / 4 + e / 2 * 8) * 24 + j * 8 + l % 4 * 2 + e % 2] = c[j * 4 + e];
}
// f16 accumulators; A is MN-major (transposed) without swizzle
extern "C" __global__ void __launch_bounds__(128) f16_64x8_transposed(const __half *at, const __half *b, __half *d, int k)
{
  __shared__ alignas(1024) __half sa[16 * 64], sb[8 * 16];
  uint32_t c[2] = {};
  for (int k0 = 0; k0 < k; k0 += 16) {
    // core matrices of 8 k x 8 m; [k group][m group]
    for (int i = threadIdx.x; i < 16 * 64; i += 128) { int kk = i / 64, m = i % 64; sa[(kk / 8) * 512 + (m / 8) * 64 + kk % 8 * 8 + m % 8] = at[(size_t)(k0 + kk) * 64 + m]; }
    fill(sb, b + k0, 8, 16, k);
    begin();
    asm volatile("{.reg .pred p; setp.ne.s32 p, %4, 0;\nwgmma.mma_async.sync.aligned.m64n8k16.f16.f16.f16 {%0,%1}, %2, %3, p, 1, 1, 1, 0;}" : "+r"(c[0]), "+r"(c[1]) : "l"(desc(sa, 1024, 128, 0)), "l"(desc(sb, 128, 128, 0)), "r"(k0));
    end(); __syncthreads();
  }
  int w = threadIdx.x / 32, l = threadIdx.x % 32;
  for (int e = 0; e < 2; e++) *(uint32_t *)(d + (w * 16 + l / 4 + e * 8) * 8 + l % 4 * 2) = c[e];
}
