// Control flow and the C++ that people write: jump tables, lambdas, virtual functions, recursion, alloca, variadic printf, assembly with labels.
#include <cstdio>
#include <cstdint>
extern "C" __global__ void jump_table(const int *op, const float *x, float *y)
{
  int i = blockIdx.x * blockDim.x + threadIdx.x; float v = x[i];
  switch (op[i]) {
  case 0: v = sqrtf(fabsf(v)); break; case 1: v = v * v + 1; break; case 2: v = __shfl_xor_sync(__activemask(), v, 0); break; case 3: for (int k = 0; k < 5; k++) v = v * 0.5f + k; break; case 4: v = rintf(v); // falls through
  case 5: v += 7; break; case 6: return; case 7: asm volatile("add.f32 %0, %0, 0f40000000;" : "+f"(v)); break; case 8: if (v > 0) { v = -v; goto out; } v = 3; break; case 9: v = fmaf(v, v, v); break; case 10: v = fminf(v, 0.25f); break; case 11: v = (float)__float2int_rz(v); break; case 12: v = v / 3; break; default: v = op[i];
  }
  v += 100;
out:
  y[i] = v;
}
struct Base { int k; __device__ virtual int f(int x) const = 0; __device__ virtual ~Base() {} };
struct Add : Base { __device__ Add(int n) { k = n; } __device__ int f(int x) const override { return x + k; } };
struct Twice : Base { const Base *in; __device__ Twice(const Base *b) : in(b) { k = 2; } __device__ int f(int x) const override { return in->f(in->f(x)) * k; } };
template <class F> __device__ __noinline__ int apply(F f, int n) { int s = 0; for (int i = 0; i < n; i++) s += f(i); return s; }
template <class... A> __device__ int fold(A... a) { return (0 + ... + a); }
__device__ __noinline__ int collatz(unsigned n, int depth) { return n == 1 || depth > 200 ? depth : n & 1 ? collatz(3 * n + 1, depth + 1) : collatz(n / 2, depth + 1); }
extern "C" __global__ void language(int *y)
{
  int t = threadIdx.x; Add a(t); Twice w(&a); const Base *b = t % 3 ? (const Base *)&a : &w; int captured = t * 3;
  y[t] = b->f(5) + 1000 * apply([=](int i) { return i * captured; }, 4) + fold(t, 2, t * t) + 7 * collatz(t + 1, 0) + apply([&](int i) { captured += i; return captured; }, 3);
}
__device__ __noinline__ int walk(int *p, int n) { int s = 0; for (int i = 0; i < n; i++) s = s * 31 + p[(i * 7) % n]; return s; }
extern "C" __global__ void stack_memory(int *y, int n)
{
  int m = 4 + threadIdx.x % n; int *p = (int *)alloca(m * sizeof(int)); for (int i = 0; i < m; i++) p[i] = i * threadIdx.x; double local[9]; for (int i = 0; i < 9; i++) local[(i * 4 + threadIdx.x) % 9] = i; y[threadIdx.x] = walk(p, m) + (int)local[threadIdx.x % 9];
}
extern "C" __global__ void print(const char *text, long long big)
{
  if (threadIdx.x == 3) { printf("%d %u %x %X %o %c %s %%|%5d|%-5d|%05d|%+d|%lld %llu %llx\n", -1, 4000000000u, 255, 255, 8, 'z', text, 42, 42, 42, 42, -big, (unsigned long long)big, big); printf("%f %.3e %g %10.2f %a %hd %hhd %zu %p\n", 1.5, 12345.678, 1e-7, -3.14159, 1.0, (short)-7, (signed char)-3, sizeof(int), (void *)0x1234); printf("no arguments\n"); printf("%s%s%*d\n", "", "(nil)", 6, 5); }
}
// loops of all kinds with irreducible entries
extern "C" __global__ void tangled(const int *x, int *y, int n)
{
  int i = threadIdx.x, s = x[i], k = 0;
  if (s & 1) goto middle;
top:
  s += 3; if (++k > n) goto done;
middle:
  s = s * 2 - k; for (int j = 0; j < (i & 3); j++) { if (j == s % 3) continue; s ^= j; if (s > 100000) goto done; do { s -= 1; } while (s % 5); }
  if (s < 5000) goto top;
  if (++k < n) goto middle;
done:
  y[i] = s * 16 + k;
}
extern "C" __global__ void assembly(const unsigned *x, unsigned *y)
{
  unsigned v = x[threadIdx.x], r, c; asm volatile("{\n\t.reg .pred p, q; .reg .b32 t<3>;\n\tmov.u32 t0, 0; mov.u32 %1, 0;\nagain_%=:\n\tand.b32 t1, %2, 1; setp.ne.u32 p, t1, 0; @p add.u32 t0, t0, 1; shr.u32 t2, %2, %1; add.u32 %1, %1, 1; setp.lt.u32 q, %1, 20; xor.b32 t0, t0, t2;\n\t@q bra again_%=;\n\tmov.u32 %0, t0;\n\t}" : "=r"(r), "=&r"(c) : "r"(v));
  unsigned long long clock0; asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(clock0)); unsigned lane; asm("mov.u32 %0, %%laneid;" : "=r"(lane)); y[threadIdx.x] = r * 3 + c + lane + (clock0 == 0);
}
__constant__ int table[64] = {-7, -6, -3, 2, 9, 18, 29, 42, 57, 74, 93, 114, 137, 162, 189, 218, 249, 282, 317, 354, 393, 434, 477, 522, 569, 618, 669, 722, 777, 834, 893, 954, 1017, 1082, 1149, 1218, 1289, 1362, 1437, 1514, 1593, 1674, 1757, 1842, 1929, 2018, 2109, 2202, 2297, 2394, 2493, 2594, 2697, 2802, 2909, 3018, 3129, 3242, 3357, 3474, 3593, 3714, 3837, 3962}; __constant__ float weights[3][3] = {{1, 2, 1}, {2, 4, 2}, {1, 2, 1}}; __device__ int counter = 40; __device__ const char *const names[] = {"alpha", "beta", "gamma"}; __device__ int (*const functions[])(unsigned, int) = {collatz, collatz};
struct Big { int v[900]; float scale; const int *p; };
extern "C" __global__ void constants(const __grid_constant__ Big big, int *y) { int t = threadIdx.x; y[t] = table[t % 64] + (int)(weights[t % 3][t / 3 % 3] * big.scale) + big.v[(t * 13) % 900] + big.p[t % 4] + names[t % 3][t % 4] + functions[t & 1](t + 2, 0); if (t == 0) atomicAdd(&counter, 2); }
