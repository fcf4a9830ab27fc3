// Functions: recursion, mutual recursion, pointers, virtual calls, structures by value, switches, early returns, static data.
struct Big { int v[12]; double scale; };
struct Pair { float a, b; };

__device__ __noinline__ Pair swap_scale(Pair p, float s) { return Pair{p.b * s, p.a * s}; }
__device__ __noinline__ int pick(Big b, int i) { return b.v[i] + (int)b.scale; }
__device__ __noinline__ Big bump(Big b, int by) { for (int k = 0; k < 12; k++) b.v[k] += by * k; b.scale *= 2; return b; }

extern "C" __global__ void structures(const float *x, float *y, Big b)
{
    int t = threadIdx.x;
    Pair p = swap_scale(Pair{x[t], x[t] + 1}, 2.0f);
    Big c = bump(b, t);
    y[t] = p.a - p.b * 3 + pick(c, t % 12) + pick(b, (t + 1) % 12);
}

__device__ int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
__device__ __noinline__ int ackermann(int m, int n) { return m == 0 ? n + 1 : n == 0 ? ackermann(m - 1, 1) : ackermann(m - 1, ackermann(m, n - 1)); }
__device__ __noinline__ bool is_odd(unsigned n);
__device__ __noinline__ bool is_even(unsigned n) { return n == 0 ? true : is_odd(n - 1); }
__device__ __noinline__ bool is_odd(unsigned n) { return n == 0 ? false : is_even(n - 1); }

extern "C" __global__ void recursion(int *y)
{
    int t = threadIdx.x;
    y[t] = fib(t % 10) * 1000 + ackermann(t % 3, t % 4) * 10 + (is_even(t) ? 1 : 0);
}

__device__ void quicksort(int *a, int low, int high)
{
    while (low < high) {
        int pivot = a[(low + high) / 2], i = low, j = high;
        while (i <= j) {
            while (a[i] < pivot) i++;
            while (a[j] > pivot) j--;
            if (i <= j) { int s = a[i]; a[i++] = a[j]; a[j--] = s; }
        }
        if (j - low < high - i) { quicksort(a, low, j); low = i; } else { quicksort(a, i, high); high = j; }
    }
}

extern "C" __global__ void sort_rows(int *x, int n) { quicksort(x + (blockIdx.x * blockDim.x + threadIdx.x) * n, 0, n - 1); }

typedef float (*Unary)(float);
__device__ float increment(float x) { return x + 1; }
__device__ float twice(float x) { return x * 2; }
__device__ float root(float x) { return sqrtf(x); }
__device__ float halve(float x) { return x / 2; }
__device__ Unary table[4] = {increment, twice, root, halve};

extern "C" __global__ void pointers(const int *which, const float *x, float *y)
{
    Unary f = table[which[threadIdx.x]];
    y[threadIdx.x] = f(f(x[threadIdx.x]));
}

extern "C" __global__ void choose_function(Unary *out, int which) { *out = which ? twice : increment; }
extern "C" __global__ void call_from_memory(const Unary *f, float *y) { y[threadIdx.x] = (*f)(y[threadIdx.x]); }

struct Shape { __device__ virtual float area() const = 0; __device__ virtual float edge(int k) const { return 4.0f * k; } };
struct Square : Shape { float a; __device__ float area() const override { return a * a; } };
struct Circle : Shape { float r; __device__ float area() const override { return 3.0f * r * r; } __device__ float edge(int k) const override { return 6 * r + k; } };
struct Frame : Shape { Shape *inner; __device__ float area() const override { return 100 - inner->area(); } };

extern "C" __global__ void virtual_calls(float *y)
{
    int t = threadIdx.x;
    Square s; s.a = t;
    Circle c; c.r = t % 5;
    Frame f; f.inner = t & 1 ? (Shape *)&s : (Shape *)&c;
    Shape *p = t % 3 == 0 ? (Shape *)&s : t % 3 == 1 ? (Shape *)&c : (Shape *)&f;
    y[t] = p->area() + p->edge(t);
}

extern "C" __global__ void interpreter(const unsigned char *code, const int *length, int *y)
{
    int accumulator = threadIdx.x, other = 1, steps = length[threadIdx.x];
    for (int pc = 0; pc < steps; pc++) {
        switch (code[pc]) {
        case 0: accumulator += 3; break;
        case 1: accumulator *= 5; break;
        case 2: other = accumulator; break;
        case 3: accumulator -= other; break;
        case 4: accumulator ^= pc << 3; break;
        case 5: if (accumulator & 1) accumulator >>= 1; break;
        case 6: { int swap = accumulator; accumulator = other; other = swap; break; }
        case 7: accumulator = ~accumulator; // falls through
        case 8: accumulator += other << 1; break;
        case 9: y[threadIdx.x] = accumulator; return;
        case 10: accumulator = min(accumulator, 1000); break;
        default: accumulator = -pc;
        }
    }
    y[threadIdx.x] = accumulator + other;
}

__device__ __noinline__ int first_over(const int *x, int n, int limit)
{
    for (int i = 0; i < n; i++) {
        if (x[i] > limit) return i;
        if (x[i] < 0) return -2;
    }
    return -1;
}

extern "C" __global__ void early_returns(const int *x, int n, int *y)
{
    int found = first_over(x, n, threadIdx.x * 8);
    int meeting = __shfl_sync(0xffffffffu, found, 31);
    y[threadIdx.x] = found + 1000 * meeting;
}

__device__ int next_number() { __shared__ int numbers; if (threadIdx.x == 0) numbers = 40; __syncthreads(); return atomicAdd(&numbers, 1); }
extern "C" __global__ void shared_in_a_function(int *y) { y[next_number() - 40] = threadIdx.x + 1; }
