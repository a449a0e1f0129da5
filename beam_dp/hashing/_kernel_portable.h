/* One lane in plain C, for machines without a carry-less multiplication. */

typedef struct {
    uint64_t word[2];
} portable_vector;

static inline portable_vector portable_load(const uint64_t *from)
{
    portable_vector v = {{from[0], from[1]}};
    return v;
}

static inline void portable_store(uint64_t *to, portable_vector v)
{
    to[0] = v.word[0];
    to[1] = v.word[1];
}

static inline portable_vector portable_both(uint64_t word)
{
    portable_vector v = {{word, word}};
    return v;
}

static inline portable_vector portable_xor(portable_vector a, portable_vector b)
{
    portable_vector v = {{a.word[0] ^ b.word[0], a.word[1] ^ b.word[1]}};
    return v;
}

static inline portable_vector portable_majority(portable_vector a, portable_vector b,
                                                portable_vector c)
{
    portable_vector v;
    for (int i = 0; i < 2; i++)
        v.word[i] = (a.word[i] & b.word[i]) | (c.word[i] & (a.word[i] ^ b.word[i]));
    return v;
}

static inline portable_vector portable_flip_and_mask(portable_vector a, portable_vector flip,
                                                     portable_vector mask)
{
    portable_vector v;
    for (int i = 0; i < 2; i++)
        v.word[i] = (a.word[i] ^ flip.word[i]) & mask.word[i];
    return v;
}

static inline portable_vector portable_low(portable_vector a, portable_vector b)
{
    portable_vector v = {{a.word[0], b.word[0]}};
    return v;
}

static inline portable_vector portable_high(portable_vector a, portable_vector b)
{
    portable_vector v = {{a.word[1], b.word[1]}};
    return v;
}

static inline portable_vector portable_left(portable_vector a, int bits)
{
    portable_vector v = {{a.word[0] << bits, a.word[1] << bits}};
    return v;
}

static inline portable_vector portable_right(portable_vector a, int bits)
{
    portable_vector v = {{a.word[0] >> bits, a.word[1] >> bits}};
    return v;
}

/* Returns the low 64 bits of a carry-less product, from integer products of numbers in which only
 * every fourth bit may be set. A column of such a product sums at most 15 ones (16 in the last group
 * of columns, whose carry leaves the word), so no carry reaches the next column that is kept. */
static inline uint64_t portable_low_product(uint64_t a, uint64_t b)
{
    const uint64_t holes = 0x1111111111111111u;
    uint64_t product = 0;
    for (int residue = 0; residue < 4; residue++) {
        uint64_t columns = 0;
        for (int i = 0; i < 4; i++)
            columns ^= (a & (holes << i)) * (b & (holes << ((residue - i) & 3)));
        product |= columns & (holes << residue);
    }
    return product;
}

static inline uint64_t portable_reverse(uint64_t a)
{
    a = ((a >> 1) & 0x5555555555555555u) | ((a & 0x5555555555555555u) << 1);
    a = ((a >> 2) & 0x3333333333333333u) | ((a & 0x3333333333333333u) << 2);
    a = ((a >> 4) & 0x0f0f0f0f0f0f0f0fu) | ((a & 0x0f0f0f0f0f0f0f0fu) << 4);
    a = ((a >> 8) & 0x00ff00ff00ff00ffu) | ((a & 0x00ff00ff00ff00ffu) << 8);
    a = ((a >> 16) & 0x0000ffff0000ffffu) | ((a & 0x0000ffff0000ffffu) << 16);
    return (a >> 32) | (a << 32);
}

/* A product of reversed factors is the reversed product: its low half holds the high half. */
static inline portable_vector portable_product(uint64_t a, uint64_t b)
{
    uint64_t reversed = portable_low_product(portable_reverse(a), portable_reverse(b));
    portable_vector v = {{portable_low_product(a, b), portable_reverse(reversed) >> 1}};
    return v;
}
