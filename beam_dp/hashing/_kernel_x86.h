/* x86-64 carry-less multiplication in three vector widths. Each function declares its target, so
 * the file compiles for the oldest processor; _kernel.c checks the actual processor at run time. */

#include <immintrin.h>

#define BACKEND_NAME "pclmulqdq"
#define NAME(x) x##_pclmulqdq
#define TARGET __attribute__((target("pclmul,sse4.1")))
#define LANES 1
#define VECTOR __m128i
#define LOAD(p) _mm_loadu_si128((const __m128i *)(p))
#define STORE(p, v) _mm_storeu_si128((__m128i *)(p), v)
#define PAIR LOAD
#define WORD(w) _mm_set1_epi64x((long long)(w))
#define XOR _mm_xor_si128
#define XOR3(a, b, c) _mm_xor_si128(a, _mm_xor_si128(b, c))
#define MAJORITY(a, b, c) _mm_or_si128(_mm_and_si128(a, b), _mm_and_si128(c, _mm_xor_si128(a, b)))
#define FLIP_AND_MASK(a, f, m) _mm_and_si128(_mm_xor_si128(a, f), m)
#define LEFT _mm_slli_epi64
#define RIGHT _mm_srli_epi64
#define LOW _mm_unpacklo_epi64
#define HIGH _mm_unpackhi_epi64
#define PRODUCT _mm_clmulepi64_si128
#include "_kernel_lanes.h"

#define BACKEND_NAME "vpclmulqdq256"
#define NAME(x) x##_vpclmulqdq256
#define TARGET __attribute__((target("vpclmulqdq,avx2")))
#define LANES 2
#define VECTOR __m256i
#define LOAD(p) _mm256_loadu_si256((const __m256i *)(p))
#define STORE(p, v) _mm256_storeu_si256((__m256i *)(p), v)
#define PAIR(p) _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(p)))
#define WORD(w) _mm256_set1_epi64x((long long)(w))
#define XOR _mm256_xor_si256
#define XOR3(a, b, c) _mm256_xor_si256(a, _mm256_xor_si256(b, c))
#define MAJORITY(a, b, c) \
    _mm256_or_si256(_mm256_and_si256(a, b), _mm256_and_si256(c, _mm256_xor_si256(a, b)))
#define FLIP_AND_MASK(a, f, m) _mm256_and_si256(_mm256_xor_si256(a, f), m)
#define LEFT _mm256_slli_epi64
#define RIGHT _mm256_srli_epi64
#define LOW _mm256_unpacklo_epi64
#define HIGH _mm256_unpackhi_epi64
#define PRODUCT _mm256_clmulepi64_epi128
#include "_kernel_lanes.h"

#define BACKEND_NAME "vpclmulqdq512"
#define NAME(x) x##_vpclmulqdq512
#define TARGET __attribute__((target("vpclmulqdq,avx512f")))
#define LANES 4
#define VECTOR __m512i
#define LOAD(p) _mm512_loadu_si512((const void *)(p))
#define STORE(p, v) _mm512_storeu_si512((void *)(p), v)
#define PAIR(p) _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(p)))
#define WORD(w) _mm512_set1_epi64((long long)(w))
#define XOR _mm512_xor_si512
#define XOR3(a, b, c) _mm512_ternarylogic_epi64(a, b, c, 0x96)
#define MAJORITY(a, b, c) _mm512_ternarylogic_epi64(a, b, c, 0xe8)
#define FLIP_AND_MASK(a, f, m) _mm512_ternarylogic_epi64(a, f, m, 0x28)
#define LEFT _mm512_slli_epi64
#define RIGHT _mm512_srli_epi64
#define LOW _mm512_unpacklo_epi64
#define HIGH _mm512_unpackhi_epi64
#define PRODUCT _mm512_clmulepi64_epi128
#include "_kernel_lanes.h"
