// SPDX-License-Identifier: Apache-2.0
//
// Instructions of sm_90a that CUDA C++ has no words for. Addresses of shared memory are 32 bits.
#pragma once

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace ooospec {

__device__ __forceinline__ std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

// --- barriers in shared memory
// --------------------------------------------------------------------

__device__ __forceinline__ void init_barrier(std::uint32_t barrier, int num_arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(num_arrivals));
}

// Makes initialised barriers known to the cluster and to the copy engine.
__device__ __forceinline__ void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async.shared::cta;" ::: "memory");
}

__device__ __forceinline__ void arrive(std::uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Arrives, and lets the phase end only when `num_bytes` have been stored too.
__device__ __forceinline__ void arrive_expecting(std::uint32_t barrier, int num_bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier),
               "r"(num_bytes)
               : "memory");
}

__device__ __forceinline__ void wait_phase(std::uint32_t barrier, int parity) {
  asm volatile(
      "{\n.reg .pred done;\nagain:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@!done bra again;\n}" ::"r"(
          barrier),
      "r"(parity)
      : "memory");
}

// --- copies
// ---------------------------------------------------------------------------------------

// Returns a policy for lines of the L2: read once, or kept.
__device__ __forceinline__ std::uint64_t read_once() {
  std::uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
__device__ __forceinline__ std::uint64_t keep() {
  std::uint64_t policy;
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

// Starts the copy of a box of a matrix, whose first element is (row, col).
__device__ __forceinline__ void copy_box(std::uint32_t to, const CUtensorMap* map, int row, int col,
                                         std::uint32_t barrier, std::uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to),
      "l"(map), "r"(col), "r"(row), "r"(barrier), "l"(policy)
      : "memory");
}

// --- launches and clusters
// ------------------------------------------------------------------------

// Lets the launch behind this one begin, as soon as all blocks have said so.
__device__ __forceinline__ void launch_dependents() {
  asm volatile("griddepcontrol.launch_dependents;");
}

// Waits until the launches ahead have ended and what they wrote can be read.
__device__ __forceinline__ void wait_for_launches_ahead() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}

__device__ __forceinline__ int rank_in_cluster() {
  std::uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return static_cast<int>(rank);
}

// Waits for all threads of the cluster. Orders no memory accesses.
__device__ __forceinline__ void meet_cluster() {
  asm volatile("barrier.cluster.arrive.relaxed;\nbarrier.cluster.wait;" ::: "memory");
}

// Returns what `address` is in the block of `rank`, as seen from here.
__device__ __forceinline__ std::uint32_t address_at(std::uint32_t address, int rank) {
  std::uint32_t mapped;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(address), "r"(rank));
  return mapped;
}

// Stores two numbers in a block of the cluster and counts their bytes there.
__device__ __forceinline__ void send(std::uint32_t to, float first, float second,
                                     std::uint32_t barrier) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%0], {%1, %2}, [%3];" ::"r"(
          to),
      "r"(__float_as_uint(first)), "r"(__float_as_uint(second)), "r"(barrier)
      : "memory");
}

__device__ __forceinline__ float4 load_shared(std::uint32_t address) {
  float4 v;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(address)
               : "memory");
  return v;
}

// --- matrix products
// ------------------------------------------------------------------------------

// Describes an operand: rows of 64 numbers of 2 bytes, swizzled as a copy with a swizzle of 128
// bytes leaves them. The next 16 numbers of each row are 2 further.
__device__ __forceinline__ std::uint64_t operand(std::uint32_t address) {
  constexpr std::uint64_t kSwizzle128 = 1, kRowsApart = 8 * 128 / 16;
  return (address & 0x3FFFF) / 16 | std::uint64_t{1} << 16 | kRowsApart << 32 | kSwizzle128 << 62;
}

__device__ __forceinline__ void begin_products() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void commit_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int kLeft>
__device__ __forceinline__ void wait_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory");
}

// sum[64, N] += x[64, 16] @ w[N, 16]^T, by four warps.
// Of row 16 * warp + lane / 4 + 8 * h and column 8 * j + 2 * (lane % 4) + i: sum[4 * j + 2 * h +
// i].
template <int N, typename T>
struct Product;

#define OOOSPEC_SUMS_16 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define OOOSPEC_SUMS_24 OOOSPEC_SUMS_16 ",%16,%17,%18,%19,%20,%21,%22,%23"
#define OOOSPEC_SUMS_32 OOOSPEC_SUMS_24 ",%24,%25,%26,%27,%28,%29,%30,%31"
#define OOOSPEC_IO_4(i) "+f"(sum[i]), "+f"(sum[i + 1]), "+f"(sum[i + 2]), "+f"(sum[i + 3])
#define OOOSPEC_IO_16 OOOSPEC_IO_4(0), OOOSPEC_IO_4(4), OOOSPEC_IO_4(8), OOOSPEC_IO_4(12)
#define OOOSPEC_IO_24 OOOSPEC_IO_16, OOOSPEC_IO_4(16), OOOSPEC_IO_4(20)
#define OOOSPEC_IO_32 OOOSPEC_IO_24, OOOSPEC_IO_4(24), OOOSPEC_IO_4(28)
#define OOOSPEC_PRODUCT_OF(N, SUMS, T, TYPE, X, W)                                                 \
  template <>                                                                                      \
  struct Product<N, T> {                                                                           \
    static __device__ __forceinline__ void add(float* sum, std::uint64_t x, std::uint64_t w) {     \
      asm volatile(                                                                                \
          "{\n.reg .pred adds;\nsetp.eq.u32 adds, 0, 0;\n"                                         \
          "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" OOOSPEC_SUMS_##SUMS \
          "}, " X ", " W ", adds, 1, 1, 0, 0;\n}\n"                                                \
          : OOOSPEC_IO_##SUMS                                                                      \
          : "l"(x), "l"(w));                                                                       \
    }                                                                                              \
  };
#define OOOSPEC_PRODUCT(N, SUMS, X, W)                     \
  OOOSPEC_PRODUCT_OF(N, SUMS, __nv_bfloat16, "bf16", X, W) \
  OOOSPEC_PRODUCT_OF(N, SUMS, __half, "f16", X, W)
OOOSPEC_PRODUCT(32, 16, "%16", "%17")
OOOSPEC_PRODUCT(48, 24, "%24", "%25")
OOOSPEC_PRODUCT(64, 32, "%32", "%33")

}  // namespace ooospec
