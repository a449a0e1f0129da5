/* The kernel, written once for vectors of any number of 128-bit lanes. _kernel.c includes this file
 * once per instruction set, after defining these macros:
 *
 *   NAME(x), TARGET, LANES   a suffix for names, the function attribute, 128-bit lanes of a vector
 *   VECTOR, LOAD, STORE      a vector of LANES * 2 words of 64 bits
 *   PAIR(p), WORD(w)         a vector with the two words at p in each lane; with w in each word
 *   XOR, XOR3, MAJORITY      bitwise; FLIP_AND_MASK(a, f, m) = (a ^ f) & m
 *   LEFT, RIGHT              shifts of each word
 *   LOW, HIGH(a, b)          in each lane, the low (high) words of a and b
 *   PRODUCT(a, b, h)         carry-less product in each lane; h = 0x01: high word of a, low of b
 *
 * Keys are handled in groups of LANES * 2. The powers of a group are held in two vectors, one of
 * its even keys and one of its odd keys, so that LOW and HIGH of two vectors of products are the
 * halves of the products in the order of the keys. */

#define GROUP (2 * LANES)
#define GROUPS (TILE / GROUP)

/* Reduces the products `even` and `odd` modulo t^64 + t^4 + t^3 + t + 1, in the order of the keys.
 * Uses shifts instead of products, because the multiplier is the bottleneck of the kernel. */
static inline TARGET VECTOR NAME(reduce)(VECTOR even, VECTOR odd)
{
    VECTOR low = LOW(even, odd), high = HIGH(even, odd);
    /* Folds bits of high * (t^4 + t^3 + t + 1) beyond the word back into its low end. */
    high = XOR3(high, RIGHT(high, 60), XOR(RIGHT(high, 61), RIGHT(high, 63)));
    low = XOR3(low, high, LEFT(high, 1));
    return XOR3(low, LEFT(high, 3), LEFT(high, 4));
}

/* Tabulates the powers of a tile of keys: for each group and each pair i the words
 * (x^(2i), x^(2i+1)), even keys then odd ones; `constant` = sum of x^(2i) x^(2i+1), Winograd's term
 * of the keys; `giant` = x^(2 pairs), the step from one chunk of coefficients to the next.
 *
 * Each power depends on the previous one, so two groups at a time keep the multiplier busy. */
static TARGET void NAME(tabulate)(const struct family *family, size_t num_groups,
                                  const struct scratch *scratch)
{
    const size_t stride = family->pairs * 2 * GROUP;
    for (size_t group = 0; group < num_groups; group += 2) {
        uint64_t *power = scratch->powers + group * stride;
        VECTOR key[2], square[2], even[2], odd[2], even_sum[2], odd_sum[2];
        for (size_t g = 0; g < 2; g++) {
            key[g] = LOAD(scratch->keys + (group + g) * GROUP);
            square[g] = NAME(reduce)(PRODUCT(key[g], key[g], 0x00), PRODUCT(key[g], key[g], 0x11));
            even[g] = LOW(WORD(1), key[g]);
            odd[g] = HIGH(WORD(1), key[g]);
            even_sum[g] = odd_sum[g] = WORD(0);
        }
        for (size_t i = 0; i < family->pairs; i++, power += 2 * GROUP)
            for (size_t g = 0; g < 2; g++) {
                STORE(power + g * stride, even[g]);
                STORE(power + g * stride + GROUP, odd[g]);
                even_sum[g] = XOR(even_sum[g], even[g]);
                odd_sum[g] = XOR(odd_sum[g], odd[g]);
                even[g] = NAME(reduce)(PRODUCT(even[g], square[g], 0x00),
                                       PRODUCT(even[g], square[g], 0x01));
                odd[g] = NAME(reduce)(PRODUCT(odd[g], square[g], 0x10),
                                      PRODUCT(odd[g], square[g], 0x11));
            }
        for (size_t g = 0; g < 2; g++) {
            /* sum of x^(4i+1) = x (sum of x^(2i))^2, because squaring is linear. */
            const VECTOR sum = LOW(even_sum[g], odd_sum[g]);
            const VECTOR squared = NAME(reduce)(PRODUCT(sum, sum, 0x00), PRODUCT(sum, sum, 0x11));
            STORE(scratch->constant + (group + g) * GROUP,
                  NAME(reduce)(PRODUCT(squared, key[g], 0x00), PRODUCT(squared, key[g], 0x11)));
            STORE(scratch->giant + (group + g) * GROUP, LOW(even[g], odd[g]));
        }
    }
}

/* Evaluates `width` (1 or 2) polynomials from `first` on, at two groups of keys from `group` on.
 * Each chunk of coefficients is an inner product with the powers, halved by Winograd's identity
 *     c0 x0 + c1 x1 = (c0 + x1)(c1 + x0) + c0 c1 + x0 x1,
 * whose 128-bit products are summed before one reduction; Horner's rule joins the chunks. */
static ALWAYS_INLINE TARGET void NAME(evaluate_groups)(
    const struct family *family, size_t first, int width, size_t group,
    const struct scratch *scratch)
{
    const size_t pairs = family->pairs, chunks = family->chunks;
    const uint64_t *coefficients = family->coefficients + first * chunks * pairs * 2;
    const uint64_t *constants = family->constants + first * chunks;
    const uint64_t *powers = scratch->powers + group * pairs * 2 * GROUP;
    VECTOR value[2][2] = {{WORD(0), WORD(0)}, {WORD(0), WORD(0)}};
    for (size_t chunk = 0; chunk < chunks; chunk++) {
        VECTOR sum[2][2][2];
        for (int p = 0; p < width; p++)
            for (int g = 0; g < 2; g++) {
                if (chunk == 0) {
                    sum[p][g][0] = sum[p][g][1] = WORD(0);
                } else {
                    const VECTOR giant = LOAD(scratch->giant + (group + (size_t)g) * GROUP);
                    sum[p][g][0] = PRODUCT(value[p][g], giant, 0x00);
                    sum[p][g][1] = PRODUCT(value[p][g], giant, 0x11);
                }
            }
        for (size_t i = 0; i < pairs; i++) {
            VECTOR pair[2];
            for (int p = 0; p < width; p++)
                pair[p] = PAIR(coefficients + (((size_t)p * chunks + chunk) * pairs + i) * 2);
            for (int g = 0; g < 2; g++)
                for (int odd = 0; odd < 2; odd++) {
                    const VECTOR power =
                        LOAD(powers + (((size_t)g * pairs + i) * 2 + (size_t)odd) * GROUP);
                    for (int p = 0; p < width; p++) {
                        const VECTOR factors = XOR(power, pair[p]);
                        sum[p][g][odd] = XOR(sum[p][g][odd], PRODUCT(factors, factors, 0x01));
                    }
                }
        }
        for (int p = 0; p < width; p++)
            for (int g = 0; g < 2; g++)
                value[p][g] = XOR3(NAME(reduce)(sum[p][g][0], sum[p][g][1]),
                                   LOAD(scratch->constant + (group + (size_t)g) * GROUP),
                                   WORD(constants[(size_t)p * chunks + chunk]));
    }
    for (int p = 0; p < width; p++)
        for (int g = 0; g < 2; g++)
            STORE(scratch->words + p * TILE + (group + (size_t)g) * GROUP, value[p][g]);
}

/* Evaluates one or two polynomials at every key of a tile, into scratch->words. */
static TARGET void NAME(evaluate)(const struct family *family, size_t first, size_t width,
                                  size_t num_groups, const struct scratch *scratch)
{
    if (width == 2)
        for (size_t group = 0; group < num_groups; group += 2)
            NAME(evaluate_groups)(family, first, 2, group, scratch);
    else
        for (size_t group = 0; group < num_groups; group += 2)
            NAME(evaluate_groups)(family, first, 1, group, scratch);
}

/* Counts, for each of the 64 bits, the words of a tile that have it, into 64 bytes. Carry-save
 * adders turn the GROUPS vectors into one vector for each binary digit of their sums; then the
 * words of these vectors are added to each other, still digit by digit. */
static TARGET void NAME(count_bits)(const uint64_t *words, const uint64_t *flip,
                                    const uint64_t *mask, uint8_t *counts)
{
    VECTOR row[GROUPS];
    for (int i = 0; i < GROUPS; i++)
        row[i] = FLIP_AND_MASK(LOAD(words + i * GROUP), LOAD(flip + i * GROUP),
                               LOAD(mask + i * GROUP));
    uint64_t digits[8][GROUP]; /* TILE = 128 has 8 binary digits */
    int num_digits = 0;
    for (int rows = GROUPS; rows > 0; rows /= 2) {
        VECTOR ones = rows == 1 ? row[0] : WORD(0);
        for (int i = 0; i < rows / 2; i++) {
            const VECTOR a = row[2 * i], b = row[2 * i + 1];
            row[i] = MAJORITY(ones, a, b);
            ones = XOR3(ones, a, b);
        }
        STORE(digits[num_digits++], ones);
    }
    for (int half = GROUP / 2; half > 0; half /= 2) {
        uint64_t carry[GROUP] = {0};
        for (int d = 0; d < num_digits; d++)
            for (int i = 0; i < half; i++) {
                const uint64_t a = digits[d][i], b = digits[d][i + half], both = a ^ b;
                digits[d][i] = both ^ carry[i];
                carry[i] = (a & b) | (carry[i] & both);
            }
        for (int i = 0; i < half; i++)
            digits[num_digits][i] = carry[i];
        num_digits++;
    }
    uint64_t sums[8] = {0};
    for (int d = 0; d < num_digits; d++)
        for (int byte = 0; byte < 8; byte++)
            sums[byte] += spread_bits[digits[d][0] >> (8 * byte) & 255] << d;
    memcpy(counts, sums, 64);
}

/* Adds a tile of weighted keys to the rows of `width` polynomials from `first` on. */
static TARGET void NAME(add_signs)(size_t first, size_t width, const struct weights *weights,
                                   const struct scratch *scratch, uint64_t *accumulators)
{
    for (size_t p = 0; p < width; p++)
        for (int plane = 0; plane < weights->num_planes; plane++) {
            uint8_t counts[64];
            NAME(count_bits)(scratch->words + p * TILE, weights->flip, weights->mask[plane], counts);
            const uint64_t total = weights->total[plane];
            const int shift = weights->shift[plane];
            uint64_t *row = accumulators + (first + p) * 64;
            for (int bit = 0; bit < 64; bit++)
                row[bit] += (total - 2 * (uint64_t)counts[bit]) << shift;
        }
}

/* A loop of independent products only: measures the highest throughput of the multiplier. */
static TARGET uint64_t NAME(products)(uint64_t iterations, uint64_t *sink)
{
    VECTOR value[8];
    for (int i = 0; i < 8; i++)
        value[i] = WORD((uint64_t)i * 77777 + iterations);
    for (uint64_t n = 0; n < iterations; n++) {
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++)
            value[i] = PRODUCT(value[i], value[i], 0x01);
    }
    VECTOR sum = value[0];
    for (int i = 1; i < 8; i++)
        sum = XOR(sum, value[i]);
    uint64_t words[GROUP];
    STORE(words, sum);
    *sink = words[0];
    return iterations * 8 * LANES;
}

static const struct backend NAME(backend) = {
    BACKEND_NAME, GROUP, NAME(tabulate), NAME(evaluate), NAME(add_signs), NAME(products),
};

#undef GROUP
#undef GROUPS
#undef BACKEND_NAME
#undef NAME
#undef TARGET
#undef LANES
#undef VECTOR
#undef LOAD
#undef STORE
#undef PAIR
#undef WORD
#undef XOR
#undef XOR3
#undef MAJORITY
#undef FLIP_AND_MASK
#undef LEFT
#undef RIGHT
#undef LOW
#undef HIGH
#undef PRODUCT
