// The gradient of a convolution's weights and biases of 16-bit floats (bfloat16), for processors that multiply pairs of
// them (AVX512_BF16).
//
// Two images at a time lie in the two halves of 32-bit numbers, so that one instruction multiplies 16 gradients of each
// with one pixel of each, and sums in float32. Nothing else is laid out anew, and sums stay in registers over an image.
// The pixels of one row of a kernel, with their channels, are one run of numbers ("reach").

#include <immintrin.h>
#include <omp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef uint16_t bf16;

struct Shape {
    long images, height, width, channels, out_height, out_width, filters, kernel_height, kernel_width;
    long stride_height, stride_width;
    long reach() const { return kernel_width * channels; }
    long weights() const { return kernel_height * reach(); }
};

// Threads and what they lay out share no cache line.
static long padded(long size) { return (size + 15) & ~15L; }

// The numbers of two images as halves; those of a second that is missing are zeros.
static void pair(const bf16 *low, const bf16 *high, long size, uint32_t *out) {
    long i = 0;
    for (; i + 16 <= size; i += 16) {
        __m512i lower = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(low + i)));
        __m512i upper = high ? _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(high + i)))
                             : _mm512_setzero_si512();
        _mm512_storeu_si512(out + i, _mm512_or_si512(lower, _mm512_slli_epi32(upper, 16)));
    }
    for (; i < size; i++) out[i] = low[i] | (high ? (uint32_t)high[i] << 16 : 0);
}

// Adds to the sums of WEIGHTS weights that follow each other, each of 16 * VECTORS filters.
template <int VECTORS, int WEIGHTS>
static void add(const Shape &s, const uint32_t *images, const uint32_t *gradients, float *sums) {
    __m512 sum[WEIGHTS][VECTORS];
    for (int j = 0; j < WEIGHTS; j++)
        for (int i = 0; i < VECTORS; i++) sum[j][i] = _mm512_loadu_ps(sums + j * s.filters + 16 * i);
    for (long y = 0; y < s.out_height; y++) {
        const uint32_t *pixel = images + y * s.stride_height * s.width * s.channels;
        for (long x = 0; x < s.out_width; x++, pixel += s.stride_width * s.channels, gradients += s.filters) {
            __m512bh gradient[VECTORS];
            for (int i = 0; i < VECTORS; i++) gradient[i] = (__m512bh)_mm512_loadu_si512(gradients + 16 * i);
            for (int j = 0; j < WEIGHTS; j++) {
                __m512bh both = (__m512bh)_mm512_set1_epi32((int)pixel[j]);
                for (int i = 0; i < VECTORS; i++) sum[j][i] = _mm512_dpbf16_ps(sum[j][i], gradient[i], both);
            }
        }
    }
    for (int j = 0; j < WEIGHTS; j++)
        for (int i = 0; i < VECTORS; i++) _mm512_storeu_ps(sums + j * s.filters + 16 * i, sum[j][i]);
}

// All weights of 16 * VECTORS filters, as many at a time as registers hold.
template <int VECTORS, int WEIGHTS>
static void add_all(const Shape &s, const uint32_t *images, const uint32_t *gradients, float *sums) {
    for (long y = 0; y < s.kernel_height; y++) {
        const uint32_t *row = images + y * s.width * s.channels;
        float *of_row = sums + y * s.reach() * s.filters;
        long k = 0;
        for (; k + WEIGHTS <= s.reach(); k += WEIGHTS)
            add<VECTORS, WEIGHTS>(s, row + k, gradients, of_row + k * s.filters);
        for (; k + 4 <= s.reach(); k += 4) add<VECTORS, 4>(s, row + k, gradients, of_row + k * s.filters);
        for (; k < s.reach(); k++) add<VECTORS, 1>(s, row + k, gradients, of_row + k * s.filters);
    }
}

static void add_biases(const Shape &s, const uint32_t *gradients, float *sums) {
    __m512bh ones = (__m512bh)_mm512_set1_epi32(0x3f803f80);
    for (long i = 0; i < s.filters; i += 16) {
        __m512 sum = _mm512_loadu_ps(sums + i);
        for (long pixel = 0; pixel < s.out_height * s.out_width; pixel++)
            sum = _mm512_dpbf16_ps(sum, (__m512bh)_mm512_loadu_si512(gradients + pixel * s.filters + i), ones);
        _mm512_storeu_ps(sums + i, sum);
    }
}

// `images` (images, height, width, channels), `gradients` (images, out_height, out_width, filters); `weights`
// (filters, kernel_height, kernel_width, channels) and `biases` (filters) are written. Returns 0, or 1 for want of
// memory.
extern "C" int weight_gradient(
    const bf16 *images, const bf16 *gradients, float *weights, float *biases, const Shape *shape, int threads) {
    const Shape s = *shape;
    const long image = s.height * s.width * s.channels, gradient = s.out_height * s.out_width * s.filters;
    const long sums = padded((s.weights() + 1) * s.filters), room = sums + padded(image) + padded(gradient);
    const long pairs = (s.images + 1) / 2;
    if (threads > pairs) threads = (int)pairs;
    float *memory = (float *)aligned_alloc(64, (size_t)(room * threads) * sizeof(float));
    if (!memory) return 1;
#pragma omp parallel num_threads(threads)
    {
        const int thread = omp_get_thread_num(), all = omp_get_num_threads();
        float *own = memory + thread * room, *own_biases = own + s.weights() * s.filters;
        uint32_t *two = (uint32_t *)(own + sums), *two_gradients = two + padded(image);
        memset(own, 0, (size_t)sums * sizeof(float));
        for (long i = pairs * thread / all; i < pairs * (thread + 1) / all; i++) {
            bool both = 2 * i + 1 < s.images;
            pair(images + 2 * i * image, both ? images + (2 * i + 1) * image : nullptr, image, two);
            pair(gradients + 2 * i * gradient, both ? gradients + (2 * i + 1) * gradient : nullptr, gradient,
                 two_gradients);
            add_biases(s, two_gradients, own_biases);
            long first = 0;
            for (; first + 64 <= s.filters; first += 64) add_all<4, 6>(s, two, two_gradients + first, own + first);
            for (; first + 32 <= s.filters; first += 32) add_all<2, 8>(s, two, two_gradients + first, own + first);
            for (; first < s.filters; first += 16) add_all<1, 16>(s, two, two_gradients + first, own + first);
        }
#pragma omp barrier
        for (long k = (s.weights() + 1) * thread / all; k < (s.weights() + 1) * (thread + 1) / all; k++)
            for (long filter = 0; filter < s.filters; filter++) {
                float sum = 0;
                for (int i = 0; i < all; i++) sum += memory[i * room + k * s.filters + filter];
                (k < s.weights() ? weights[filter * s.weights() + k] : biases[filter]) = sum;
            }
    }
    free(memory);
    return 0;
}
