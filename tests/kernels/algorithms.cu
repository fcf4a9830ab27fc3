// Algorithms: radix sort, graph search, sparse matrices, FFT, n-body, convolution, quantisation, compaction, hashing, dynamic programming.
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include <cstdint>
// least significant digit first, 4 bits a pass, one CTA of 256 for n <= 1024; stable by ballot
extern "C" __global__ void __launch_bounds__(256) radix_sort(uint32_t *keys, uint32_t *values, int n)
{
  __shared__ uint32_t k[2][1024], v[2][1024]; __shared__ int count[8][16], base[16];
  int t = threadIdx.x, w = t / 32, l = t % 32, from = 0;
  for (int i = t; i < n; i += 256) { k[0][i] = keys[i]; v[0][i] = values[i]; }
  for (int shift = 0; shift < 32; shift += 4, from ^= 1) {
    __syncthreads();
    if (t < 16) { int s = 0; base[t] = 0; for (int i = 0; i < n; i++) s += (k[from][i] >> shift & 15) < t; base[t] = s; }
    __syncthreads();
    for (int i0 = 0; i0 < n; i0 += 256) {
      int i = i0 + t; bool ok = i < n; uint32_t key = ok ? k[from][i] : 0, d = ok ? key >> shift & 15 : 16; unsigned peers = __match_any_sync(~0u, d); int rank = __popc(peers & ((1u << l) - 1));
      if (t < 128) count[t / 16][t % 16] = 0;
      __syncthreads();
      if (ok && rank == 0) count[w][d] = __popc(peers);
      __syncthreads();
      if (ok) { int at = base[d] + rank; for (int j = 0; j < w; j++) at += count[j][d]; k[from ^ 1][at] = key; v[from ^ 1][at] = v[from][i]; }
      __syncthreads();
      if (t < 16) for (int j = 0; j < 8; j++) base[t] += count[j][t];
      __syncthreads();
    }
  }
  for (int i = t; i < n; i += 256) { keys[i] = k[0][i]; values[i] = v[0][i]; }
}
extern "C" __global__ void bfs_level(const int *offset, const int *edge, int *distance, const int *frontier, int size, int *next, int *next_size, int level)
{
  int warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
  for (int f = warp; f < size; f += gridDim.x * blockDim.x / 32) { int u = frontier[f]; for (int e = offset[u] + lane; e < offset[u + 1]; e += 32) { int v = edge[e]; if (atomicCAS(distance + v, -1, level) == -1) next[atomicAdd(next_size, 1)] = v; } }
}
// whole search in one launch of one CTA
extern "C" __global__ void bfs(const int *offset, const int *edge, int *distance, int n)
{
  extern __shared__ int queue[]; __shared__ int size[2]; int t = threadIdx.x; int *q[2] = {queue, queue + n};
  for (int i = t; i < n; i += blockDim.x) distance[i] = i ? -1 : 0;
  if (t == 0) { q[0][0] = 0; size[0] = 1; size[1] = 0; } __syncthreads();
  for (int level = 1, p = 0; size[p]; level++, p ^= 1) { for (int f = t; f < size[p]; f += blockDim.x) { int u = q[p][f]; for (int e = offset[u]; e < offset[u + 1]; e++) if (atomicCAS(distance + edge[e], -1, level) == -1) q[p ^ 1][atomicAdd(&size[p ^ 1], 1)] = edge[e]; } __syncthreads(); if (t == 0) size[p] = 0; __syncthreads(); }
}
extern "C" __global__ void spmv(const int *row, const int *col, const float *val, const float *x, float *y, int n)
{
  int r = (blockIdx.x * blockDim.x + threadIdx.x) / 8, l = threadIdx.x % 8; float s = 0; if (r < n) for (int e = row[r] + l; e < row[r + 1]; e += 8) s = fmaf(__ldg(val + e), __ldg(x + col[e]), s);
  for (int w = 4; w; w /= 2) s += __shfl_down_sync(~0u, s, w, 8); if (r < n && l == 0) y[r] = s;
}
extern "C" __global__ void __launch_bounds__(128) fft256(const float2 *x, float2 *y)
{
  __shared__ float2 s[256]; int t = threadIdx.x; x += blockIdx.x * 256; y += blockIdx.x * 256;
  for (int i = t; i < 256; i += 128) s[__brev(i) >> 24] = x[i];
  for (int half = 1; half < 256; half *= 2) { __syncthreads(); int k = t % half, i = (t / half) * 2 * half + k; float sn, cs; sincospif(-(float)k / half, &sn, &cs); float2 a = s[i], b = s[i + half], c = {b.x * cs - b.y * sn, b.x * sn + b.y * cs}; __syncwarp(); s[i] = {a.x + c.x, a.y + c.y}; s[i + half] = {a.x - c.x, a.y - c.y}; }
  __syncthreads(); for (int i = t; i < 256; i += 128) y[i] = s[i];
}
extern "C" __global__ void nbody(const float4 *p, float4 *a, int n)
{
  extern __shared__ float4 tile[]; int i = blockIdx.x * blockDim.x + threadIdx.x; float4 me = i < n ? p[i] : float4{}; float3 f = {0, 0, 0};
  for (int b = 0; b < n; b += blockDim.x) { tile[threadIdx.x] = b + threadIdx.x < n ? p[b + threadIdx.x] : float4{0, 0, 0, 0}; __syncthreads();
#pragma unroll 8
    for (int j = 0; j < blockDim.x; j++) { float dx = tile[j].x - me.x, dy = tile[j].y - me.y, dz = tile[j].z - me.z, r = rsqrtf(dx * dx + dy * dy + dz * dz + 0.01f), w = tile[j].w * r * r * r; f.x += dx * w; f.y += dy * w; f.z += dz * w; } __syncthreads(); }
  if (i < n) a[i] = {f.x, f.y, f.z, 0};
}
__constant__ float filter[25] = {-0.625f, 0.25f, -0.25f, 0.625f, 0.125f, -0.375f, 0.5f, 0.0f, -0.5f, 0.375f, -0.125f, -0.625f, 0.25f, -0.25f, 0.625f, 0.125f, -0.375f, 0.5f, 0.0f, -0.5f, 0.375f, -0.125f, -0.625f, 0.25f, -0.25f};
extern "C" __global__ void conv5x5(const float *x, float *y, int h, int w)
{
  __shared__ float s[20][36]; int bx = blockIdx.x * 32, by = blockIdx.y * 16;
  for (int i = threadIdx.y * 32 + threadIdx.x; i < 20 * 36; i += 256) { int r = by + i / 36 - 2, c = bx + i % 36 - 2; s[i / 36][i % 36] = r >= 0 && r < h && c >= 0 && c < w ? x[r * w + c] : 0; }
  __syncthreads();
  for (int k = 0; k < 2; k++) { int r = threadIdx.y + 8 * k; float a = 0;
#pragma unroll
    for (int i = 0; i < 25; i++) a = fmaf(filter[i], s[r + i / 5][threadIdx.x + i % 5], a);
    if (by + r < h && bx + threadIdx.x < w) y[(by + r) * w + bx + threadIdx.x] = a; }
}
// rows to int8 with one scale each; int4 weights (eight in a word, groups of 64) times a vector; GELU and a rotary step fused
extern "C" __global__ void quantise(const __nv_bfloat16 *x, int8_t *q, float *scale, int n)
{
  __shared__ float m[8]; float most = 0; x += (size_t)blockIdx.x * n; q += (size_t)blockIdx.x * n; for (int i = threadIdx.x * 2; i < n; i += blockDim.x * 2) { float2 v = __bfloat1622float2(*(const __nv_bfloat162 *)(x + i)); most = fmaxf(most, fmaxf(fabsf(v.x), fabsf(v.y))); }
  most = __uint_as_float(__reduce_max_sync(~0u, __float_as_uint(most))); if (threadIdx.x % 32 == 0) m[threadIdx.x / 32] = most; __syncthreads(); for (int i = 0; i < blockDim.x / 32; i++) most = fmaxf(most, m[i]);
  float s = most / 127, r = most > 0 ? 127 / most : 0; if (threadIdx.x == 0) scale[blockIdx.x] = s; for (int i = threadIdx.x; i < n; i += blockDim.x) q[i] = (int8_t)__float2int_rn(fminf(fmaxf(__bfloat162float(x[i]) * r, -128), 127));
}
extern "C" __global__ void int4_matvec(const uint32_t *w, const __half *scales, const __half *x, float *y, int k)
{
  int row = blockIdx.x * 4 + threadIdx.x / 32, l = threadIdx.x % 32; float s = 0;
  for (int i = l; i < k / 8; i += 32) { uint32_t p = w[row * (k / 8) + i]; __half sc = scales[row * (k / 64) + i / 8]; __half2 a = {0, 0}; const __half2 *v = (const __half2 *)(x + i * 8);
#pragma unroll
    for (int j = 0; j < 4; j++) { uint32_t h; asm("lop3.b32 %0, %1, 0x000f000f, 0x64006400, 0xea;" : "=r"(h) : "r"(p >> (4 * j))); __half2 z = __hsub2(*(__half2 *)&h, __half2{__float2half(1032), __float2half(1032)}); a = __hfma2(z, __halves2half2(v[j / 2 * 2 + (j & 1)].x, v[j].y), a); }
    s += __low2float(a) * __half2float(sc) + __high2float(a) * __half2float(sc); }
  for (int o = 16; o; o /= 2) s += __shfl_xor_sync(~0u, s, o); if (l == 0) y[row] = s;
}
extern "C" __global__ void gelu_rotary(const float *x, float *y, int n, float theta)
{
  int i = blockIdx.x * blockDim.x + threadIdx.x; if (2 * i + 1 >= n) return; float2 v = ((const float2 *)x)[i]; float f = (i / 8) * __powf(theta, -(i % 8) / 8.f), s, c; sincosf(f, &s, &c); float2 r = {v.x * c - v.y * s, v.x * s + v.y * c}; r.x = 0.5f * r.x * (1 + erff(r.x * 0.70710678f)); r.y = 0.5f * r.y * (1 + tanhf(0.7978845608f * (r.y + 0.044715f * r.y * r.y * r.y))); ((float2 *)y)[i] = r;
}
// open addressing by compare and swap, then a look-up by every thread
extern "C" __global__ void hash_insert(unsigned long long *table, int slots, const uint32_t *keys, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return; uint32_t h = keys[i] * 0x9E3779B1u; unsigned long long kv = (unsigned long long)keys[i] << 32 | i; for (;; h++) { unsigned long long old = atomicCAS(table + h % slots, ~0ull, kv); if (old == ~0ull) break; if (old >> 32 == keys[i]) { atomicMin(table + h % slots, kv); break; } } }
extern "C" __global__ void hash_find(const unsigned long long *table, int slots, const uint32_t *keys, int *found, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return; uint32_t h = keys[i] * 0x9E3779B1u; for (;; h++) { unsigned long long kv = table[h % slots]; if (kv == ~0ull) { found[i] = -1; return; } if (kv >> 32 == keys[i]) { found[i] = (int)kv; return; } } }
extern "C" __global__ void levenshtein(const char *a, int n, const char *b, int m, int *d)
{
  __shared__ int row[3][129]; int t = threadIdx.x;
  for (int k = 0; k <= n + m; k++) { int *now = row[k % 3], *one = row[(k + 2) % 3], *two = row[(k + 1) % 3]; if (t <= n && k - t >= 0 && k - t <= m) { int j = k - t; now[t] = t == 0 ? j : j == 0 ? t : min(min(one[t - 1], one[t]) + 1, two[t - 1] + (a[t - 1] != b[j - 1])); } __syncthreads(); }
  if (t == 0) *d = row[(n + m) % 3][n];
}
extern "C" __global__ void components(const int2 *edges, int m, int *parent) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= m) return; int a = edges[i].x, b = edges[i].y; for (;;) { while (a != (int)atomicAdd(parent + a, 0)) a = atomicAdd(parent + a, 0); while (b != (int)atomicAdd(parent + b, 0)) b = atomicAdd(parent + b, 0); if (a == b) return; if (a < b) { int c = a; a = b; b = c; } if (atomicCAS(parent + a, a, b) == a) return; } }
extern "C" __global__ void sha256(const uint32_t *block, uint32_t *digest)
{
  static __constant__ const uint32_t K[64] = {0x428a2f98,0x71374491,0xb5c0fbcf,0xe9b5dba5,0x3956c25b,0x59f111f1,0x923f82a4,0xab1c5ed5,0xd807aa98,0x12835b01,0x243185be,0x550c7dc3,0x72be5d74,0x80deb1fe,0x9bdc06a7,0xc19bf174,0xe49b69c1,0xefbe4786,0x0fc19dc6,0x240ca1cc,0x2de92c6f,0x4a7484aa,0x5cb0a9dc,0x76f988da,0x983e5152,0xa831c66d,0xb00327c8,0xbf597fc7,0xc6e00bf3,0xd5a79147,0x06ca6351,0x14292967,0x27b70a85,0x2e1b2138,0x4d2c6dfc,0x53380d13,0x650a7354,0x766a0abb,0x81c2c92e,0x92722c85,0xa2bfe8a1,0xa81a664b,0xc24b8b70,0xc76c51a3,0xd192e819,0xd6990624,0xf40e3585,0x106aa070,0x19a4c116,0x1e376c08,0x2748774c,0x34b0bcb5,0x391c0cb3,0x4ed8aa4a,0x5b9cca4f,0x682e6ff3,0x748f82ee,0x78a5636f,0x84c87814,0x8cc70208,0x90befffa,0xa4506ceb,0xbef9a3f7,0xc67178f2};
  uint32_t w[64], s[8] = {0x6a09e667,0xbb67ae85,0x3c6ef372,0xa54ff53a,0x510e527f,0x9b05688c,0x1f83d9ab,0x5be0cd19}, v[8]; for (int i = 0; i < 16; i++) w[i] = block[threadIdx.x * 16 + i];
  auto R = [](uint32_t x, int n) { return __funnelshift_r(x, x, n); };
  for (int i = 16; i < 64; i++) w[i] = w[i - 16] + (R(w[i - 15], 7) ^ R(w[i - 15], 18) ^ w[i - 15] >> 3) + w[i - 7] + (R(w[i - 2], 17) ^ R(w[i - 2], 19) ^ w[i - 2] >> 10);
  for (int i = 0; i < 8; i++) v[i] = s[i];
  for (int i = 0; i < 64; i++) { uint32_t t1 = v[7] + (R(v[4], 6) ^ R(v[4], 11) ^ R(v[4], 25)) + (v[4] & v[5] ^ ~v[4] & v[6]) + K[i] + w[i], t2 = (R(v[0], 2) ^ R(v[0], 13) ^ R(v[0], 22)) + (v[0] & v[1] ^ v[0] & v[2] ^ v[1] & v[2]); for (int k = 7; k; k--) v[k] = v[k - 1]; v[4] += t1; v[0] = t1 + t2; }
  for (int i = 0; i < 8; i++) digest[threadIdx.x * 8 + i] = s[i] + v[i];
}
extern "C" __global__ void mandelbrot(uint8_t *out, int w, int h) { int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y; if (x >= w || y >= h) return; double cr = -2.0 + 3.0 * x / w, ci = -1.0 + 2.0 * y / h, r = 0, i = 0; int n = 0; while (n < 200 && r * r + i * i < 4) { double t = r * r - i * i + cr; i = 2 * r * i + ci; r = t; n++; } out[y * w + x] = n; }
extern "C" __global__ void black_scholes(const float *s, const float *k, const float *t, float *call, float *put, float r, float v, int n) { for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) { float q = sqrtf(t[i]), d1 = (logf(s[i] / k[i]) + (r + 0.5f * v * v) * t[i]) / (v * q), d2 = d1 - v * q, e = expf(-r * t[i]); call[i] = s[i] * normcdff(d1) - k[i] * e * normcdff(d2); put[i] = call[i] - s[i] + k[i] * e; } }
extern "C" __global__ void __launch_bounds__(64) cholesky(double *a, int n) { a += (size_t)blockIdx.x * n * n; int t = threadIdx.x; for (int j = 0; j < n; j++) { if (t == 0) a[j * n + j] = sqrt(a[j * n + j]); __syncthreads(); for (int i = j + 1 + t; i < n; i += 64) a[i * n + j] /= a[j * n + j]; __syncthreads(); for (int i = j + 1 + t; i < n; i += 64) for (int k = j + 1; k <= i; k++) a[i * n + k] -= a[i * n + j] * a[k * n + j]; __syncthreads(); } }
// decoupled look-back with a ticket for the order of CTAs; state words of {value, flag} in 64 bits
extern "C" __global__ void __launch_bounds__(128) look_back(const int *x, int *y, unsigned long long *state, unsigned *ticket, int n)
{
  __shared__ int tile, prefix, warps[4]; if (threadIdx.x == 0) tile = atomicAdd(ticket, 1); __syncthreads();
  int i = tile * 128 + threadIdx.x, v = i < n ? x[i] : 0, s = v, l = threadIdx.x % 32, w = threadIdx.x / 32; for (int o = 1; o < 32; o *= 2) { int u = __shfl_up_sync(~0u, s, o); if (l >= o) s += u; } if (l == 31) warps[w] = s; __syncthreads(); for (int k = 0; k < w; k++) s += warps[k];
  if (w == 0) { int total = warps[0] + warps[1] + warps[2] + warps[3]; if (l == 0) { unsigned long long word = (unsigned long long)(unsigned)total << 32 | (tile ? 1 : 2); asm volatile("st.release.gpu.global.u64 [%0], %1;" ::"l"(state + tile), "l"(word) : "memory"); }
    int run = 0; for (int at = tile - 1; at >= 0; at -= 32) { unsigned long long word = 2; int mine = at - l; if (mine >= 0) do asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(word) : "l"(state + mine) : "memory"); while (!(word & 3)); unsigned full = __ballot_sync(~0u, (word & 3) == 2); int stop = full ? __ffs(full) - 1 : 31; run += __reduce_add_sync(~0u, l <= stop && mine >= 0 ? (int)(word >> 32) : 0); if (full) break; }
    if (l == 0) { prefix = run; if (tile) { unsigned long long word = (unsigned long long)(unsigned)(run + total) << 32 | 2; asm volatile("st.release.gpu.global.u64 [%0], %1;" ::"l"(state + tile), "l"(word) : "memory"); } } }
  __syncthreads(); if (i < n) y[i] = s + prefix;
}
extern "C" __global__ void heap_lists(int *y) { struct Node { int v; Node *next; }; Node *head = nullptr; for (int i = 0; i <= threadIdx.x % 5; i++) { Node *n = (Node *)malloc(sizeof(Node)); n->v = i * threadIdx.x; n->next = head; head = n; } int s = 0; while (head) { s = s * 3 + head->v; Node *n = head->next; free(head); head = n; } y[threadIdx.x] = s; }
extern "C" __global__ void __launch_bounds__(256) topk(const float *x, float *y, int *index, int n)
{
  __shared__ float v[256]; __shared__ int at[256]; int t = threadIdx.x; float best = -INFINITY; int b = -1; for (int i = t; i < n; i += 256) if (x[blockIdx.x * n + i] > best) { best = x[blockIdx.x * n + i]; b = i; } v[t] = best; at[t] = b;
  for (int k = 2; k <= 256; k *= 2) for (int j = k / 2; j; j /= 2) { __syncthreads(); int o = t ^ j; if (o > t && ((t & k) == 0) == (v[t] < v[o])) { float f = v[t]; v[t] = v[o]; v[o] = f; int c = at[t]; at[t] = at[o]; at[o] = c; } }
  __syncthreads(); if (t < 8) { y[blockIdx.x * 8 + t] = v[t]; index[blockIdx.x * 8 + t] = at[t]; }
}
