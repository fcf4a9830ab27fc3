// Attention forward, one warp per 16 rows: cp.async, ldmatrix, mma.sync m16n8k16, online softmax; and a GEMM with two stages of cp.async.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cstdint>
__device__ __forceinline__ uint32_t sm(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }
__device__ __forceinline__ void cp16(void *d, const void *s) { asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(sm(d)), "l"(s)); }
__device__ __forceinline__ void cp16z(void *d, const void *s, bool ok) { asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(sm(d)), "l"(s), "r"(ok ? 16 : 0)); }
__device__ __forceinline__ void ldm4(uint32_t *r, const void *p) { asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(sm(p))); }
__device__ __forceinline__ void ldm4t(uint32_t *r, const void *p) { asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(sm(p))); }
__device__ __forceinline__ void mma(float *c, const uint32_t *a, uint32_t b0, uint32_t b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};" : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1)); }
__device__ __forceinline__ uint32_t pack(float a, float b) { __nv_bfloat162 v = __floats2bfloat162_rn(a, b); return *(uint32_t *)&v; }

constexpr int D = 64, BM = 64, BN = 32, LD = D + 8;
// grid (n / BM, heads), 128 threads; q, k, v, o of [head][n][D]; causal if asked for.
extern "C" __global__ void __launch_bounds__(128) attention(const __nv_bfloat16 *q, const __nv_bfloat16 *k, const __nv_bfloat16 *v, __nv_bfloat16 *o, float *lse, int n, float scale, int causal)
{
  __shared__ alignas(16) __nv_bfloat16 sq[BM * LD], sk[2][BN * LD], sv[2][BN * LD];
  int t = threadIdx.x, warp = t / 32, lane = t % 32, row0 = blockIdx.x * BM;
  size_t head = (size_t)blockIdx.y * n * D;
  q += head; k += head; v += head; o += head; lse += (size_t)blockIdx.y * n;
  for (int i = t; i < BM * D / 8; i += 128) { int r = i / (D / 8), c = i % (D / 8) * 8; cp16(sq + r * LD + c, q + (size_t)(row0 + r) * D + c); }
  auto fetch = [&](int tile, int at) {
    for (int i = t; i < BN * D / 8; i += 128) { int r = i / (D / 8), c = i % (D / 8) * 8, row = tile * BN + r; bool ok = row < n; row = ok ? row : 0;
      cp16z(sk[at] + r * LD + c, k + (size_t)row * D + c, ok); cp16z(sv[at] + r * LD + c, v + (size_t)row * D + c, ok); }
    asm volatile("cp.async.commit_group;"); };
  int tiles = (n + BN - 1) / BN;
  if (causal) tiles = min(tiles, (row0 + BM + BN - 1) / BN);
  fetch(0, 0);
  float acc[D / 8][4] = {}, m[2] = {-INFINITY, -INFINITY}, l[2] = {0, 0};
  uint32_t qa[D / 16][4];
  for (int j = 0; j < tiles; j++) {
    if (j + 1 < tiles) { fetch(j + 1, (j + 1) & 1); asm volatile("cp.async.wait_group 1;"); } else asm volatile("cp.async.wait_group 0;");
    __syncthreads();
    if (j == 0)
      for (int d = 0; d < D / 16; d++) ldm4(qa[d], sq + (warp * 16 + lane % 16) * LD + d * 16 + lane / 16 * 8);
    float s[BN / 8][4] = {};
#pragma unroll
    for (int d = 0; d < D / 16; d++)
#pragma unroll
      for (int b = 0; b < BN / 16; b++) { uint32_t f[4]; ldm4(f, sk[j & 1] + (b * 16 + lane % 8 + lane / 16 * 8) * LD + d * 16 + lane / 8 % 2 * 8); mma(s[2 * b], qa[d], f[0], f[1]); mma(s[2 * b + 1], qa[d], f[2], f[3]); }
    float mx[2] = {m[0], m[1]};
#pragma unroll
    for (int b = 0; b < BN / 8; b++)
#pragma unroll
      for (int e = 0; e < 4; e++) { int col = j * BN + b * 8 + lane % 4 * 2 + (e & 1), row = row0 + warp * 16 + lane / 4 + e / 2 * 8;
        s[b][e] = col >= n || (causal && col > row) ? -INFINITY : s[b][e] * scale; mx[e / 2] = fmaxf(mx[e / 2], s[b][e]); }
#pragma unroll
    for (int h = 0; h < 2; h++) { mx[h] = fmaxf(mx[h], __shfl_xor_sync(~0u, mx[h], 1)); mx[h] = fmaxf(mx[h], __shfl_xor_sync(~0u, mx[h], 2));
      float c = exp2f(m[h] - mx[h]); m[h] = mx[h]; l[h] *= c;
#pragma unroll
      for (int d = 0; d < D / 8; d++) { acc[d][2 * h] *= c; acc[d][2 * h + 1] *= c; } }
    uint32_t p[BN / 8][2];
#pragma unroll
    for (int b = 0; b < BN / 8; b++) { float e0 = exp2f(s[b][0] - m[0]), e1 = exp2f(s[b][1] - m[0]), e2 = exp2f(s[b][2] - m[1]), e3 = exp2f(s[b][3] - m[1]);
      l[0] += e0 + e1; l[1] += e2 + e3; p[b][0] = pack(e0, e1); p[b][1] = pack(e2, e3); }
#pragma unroll
    for (int b = 0; b < BN / 16; b++) { uint32_t a[4] = {p[2 * b][0], p[2 * b][1], p[2 * b + 1][0], p[2 * b + 1][1]};
#pragma unroll
      for (int d = 0; d < D / 16; d++) { uint32_t f[4]; ldm4t(f, sv[j & 1] + (b * 16 + lane % 16) * LD + d * 16 + lane / 16 * 8); mma(acc[2 * d], a, f[0], f[1]); mma(acc[2 * d + 1], a, f[2], f[3]); } }
    __syncthreads();
  }
#pragma unroll
  for (int h = 0; h < 2; h++) { l[h] += __shfl_xor_sync(~0u, l[h], 1); l[h] += __shfl_xor_sync(~0u, l[h], 2); int row = row0 + warp * 16 + lane / 4 + h * 8;
    if (row < n) { if (lane % 4 == 0) lse[row] = m[h] + log2f(l[h]);
#pragma unroll
      for (int d = 0; d < D / 8; d++) *(uint32_t *)(o + (size_t)row * D + d * 8 + lane % 4 * 2) = pack(acc[d][2 * h] / l[h], acc[d][2 * h + 1] / l[h]); } }
}

// Split attention for one query (decoding): each CTA takes a chunk of the keys in f16, the last one to finish combines.
extern "C" __global__ void __launch_bounds__(128) decode(const __half *q, const __half *k, const __half *v, float *o, float *part, unsigned *ticket, int n, int chunk, float scale)
{
  __shared__ float red[4], score[256]; __shared__ bool last;
  int t = threadIdx.x, c0 = blockIdx.x * chunk, c1 = min(n, c0 + chunk);
  float mine = -INFINITY;
  for (int i = c0 + t; i < c1; i += 128) { float2 s = {0, 0}; const __half2 *a = (const __half2 *)q, *b = (const __half2 *)(k + (size_t)i * 64);
    for (int d = 0; d < 32; d++) { float2 x = __half22float2(a[d]), y = __half22float2(b[d]); s.x = fmaf(x.x, y.x, s.x); s.y = fmaf(x.y, y.y, s.y); }
    score[i - c0] = (s.x + s.y) * scale; mine = fmaxf(mine, score[i - c0]); }
  for (int w = 16; w; w /= 2) mine = fmaxf(mine, __shfl_xor_sync(~0u, mine, w));
  if (t % 32 == 0) red[t / 32] = mine;
  __syncthreads();
  float m = fmaxf(fmaxf(red[0], red[1]), fmaxf(red[2], red[3])), l = 0, acc = 0;
  for (int i = c0; i < c1; i++) { float p = __expf(score[i - c0] - m); l += p; if (t < 64) acc = fmaf(p, __half2float(v[(size_t)i * 64 + t]), acc); }
  float *mine_part = part + blockIdx.x * 66;
  if (t < 64) mine_part[t] = acc;
  if (t == 64) { mine_part[64] = m; mine_part[65] = l; }
  __threadfence(); __syncthreads();
  if (t == 0) last = atomicInc(ticket, gridDim.x - 1) == gridDim.x - 1;
  __syncthreads();
  if (!last) return;
  __threadfence();
  float top = -INFINITY, sum = 0, out = 0;
  for (int b = 0; b < gridDim.x; b++) top = fmaxf(top, __ldcg(part + b * 66 + 64));
  for (int b = 0; b < gridDim.x; b++) { float w = __expf(__ldcg(part + b * 66 + 64) - top); sum += w * __ldcg(part + b * 66 + 65); if (t < 64) out += w * __ldcg(part + b * 66 + t); }
  if (t < 64) o[t] = out / sum;
}
