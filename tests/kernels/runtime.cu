// The device runtime: printf, assert, malloc and free, new and delete, trap.
#include <cassert>
#include <cstdio>

extern "C" __global__ void print(int n, double x)
{
    if (threadIdx.x % 16 == 0)
        printf("thread %d of %u: n=%5d x=%.3f %s %c 0x%llx %p\n", threadIdx.x, blockDim.x, n, x, n > 3 ? "large" : "small", 'a' + threadIdx.x / 16, 1ull << 40, (void *)0);
    if (threadIdx.x == 1 && blockIdx.x == 1) printf("plain\n");
}

extern "C" __global__ void check(const int *x, int limit)
{
    assert(x[threadIdx.x] < limit && "too large");
}

struct Node { int value; Node *next; };

extern "C" __global__ void lists(int *y)
{
    Node *head = nullptr;
    for (int k = 0; k <= threadIdx.x % 7; k++) {
        Node *node = (Node *)malloc(sizeof(Node));
        node->value = k * 10 + threadIdx.x;
        node->next = head;
        head = node;
    }
    int sum = 0;
    while (head) {
        sum += head->value;
        Node *next = head->next;
        free(head);
        head = next;
    }
    y[threadIdx.x] = sum;
}

extern "C" __global__ void objects(int *y, int n)
{
    __shared__ int *block;
    if (threadIdx.x == 0) block = new int[n];
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) block[i] = i * i;
    __syncthreads();
    y[threadIdx.x] = block[n - 1 - threadIdx.x];
    __syncthreads();
    if (threadIdx.x == 0) delete[] block;
}

extern "C" __global__ void stop(const int *x) { if (x[threadIdx.x] == 5) __trap(); }
