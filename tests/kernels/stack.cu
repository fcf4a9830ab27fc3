// Memory that a function takes from its stack while it runs: alloca in an entry, in a loop, in a callee and in a recursion.
extern "C" __global__ void reverse(const int *x, int *y, int n)
{
    int *p = (int *)alloca(n * sizeof(int));
    for (int i = 0; i < n; i++) p[i] = x[threadIdx.x * n + i];
    for (int i = 0; i < n; i++) y[threadIdx.x * n + i] = p[n - 1 - i];
}
__device__ __noinline__ int recurse(int n)
{
    volatile int *p = (volatile int *)alloca((n + 1) * sizeof(int));
    for (int i = 0; i <= n; i++) p[i] = i;
    int below = n ? recurse(n - 1) : 0, sum = 0;
    for (int i = 0; i <= n; i++) sum += p[i];
    return below + sum;
}
extern "C" __global__ void nested(int *y) { 
    int total = 0;
    for (int k = 0; k < 40; k++) total += recurse(threadIdx.x % 8);
    y[threadIdx.x] = total; }
