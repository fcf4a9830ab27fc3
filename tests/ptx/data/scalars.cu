// Templates, switches, recursion, function pointers, printf.
#include <cstdio>
template <typename T, int N> __device__ T power(T x) { T y = 1; for (int i = 0; i < N; ++i) y *= x; return y; }
template <typename T> __global__ void polynomial(T *out, const T *in, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = power<T, 3>(in[i]) + power<T, 5>(in[i]) / (in[i] + T(2));
}
template __global__ void polynomial<float>(float *, const float *, int);
template __global__ void polynomial<double>(double *, const double *, int);
template __global__ void polynomial<long long>(long long *, const long long *, int);

__noinline__ __device__ unsigned ackermann(unsigned m, unsigned n) {
    if (m == 0) return n + 1;
    if (n == 0) return ackermann(m - 1, 1);
    return ackermann(m - 1, ackermann(m, n - 1));
}
__global__ void recursion(unsigned *out) { out[threadIdx.x] = ackermann(2, threadIdx.x & 3); }

typedef int (*Binary)(int, int);
__noinline__ __device__ int plus(int a, int b) { return a + b; }
__noinline__ __device__ int times(int a, int b) { return a * b; }
__device__ Binary operations[2] = {plus, times};
__global__ void pointers(int *out, int which) { out[threadIdx.x] = operations[which & 1](threadIdx.x, 7); }

__global__ void switches(int *out, int key) {
    int x = threadIdx.x;
    switch ((key + x) & 15) {
        case 0: x = x * 3; break;
        case 1: x = __popc(x); break;
        case 2: x = x ^ 0x5555; break;
        case 3: x = __clz(x); break;
        case 4: x = x / 7; break;
        case 5: x = x % 11; break;
        case 6: x = __brev(x); break;
        case 7: printf("lane %d of %s: %f\n", x, "seven", 1.5 * x); break;
        default: x = -x;
    }
    out[threadIdx.x] = x;
}
struct Pair { double first; int second; char name[12]; };
__noinline__ __device__ Pair swap(Pair p, int k) { Pair q = p; q.first = p.second * k; q.second = (int)p.first; q.name[k % 12] = 'x'; return q; }
__global__ void structures(Pair *p, const __grid_constant__ Pair init) { p[threadIdx.x] = swap(init, threadIdx.x); }
struct Shape { __device__ virtual float area() const { return 0; } };
struct Circle : Shape { float r; __device__ Circle(float r) : r(r) {} __device__ float area() const override { return 3.14159f * r * r; } };
__global__ void methods(float *out) { Circle c(out[0]); Shape *s = &c; if (out[1] > 0) { Shape plain; s = out[2] > 0 ? &plain : s; out[3] = s->area(); } else out[4] = s->area(); }
