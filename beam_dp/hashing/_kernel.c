/* Evaluates many polynomials over GF(2^64) at many keys, and adds up the signs that they give.
 *
 * The field is GF(2)[t] modulo t^64 + t^4 + t^3 + t + 1; bit i of a word is the coefficient of t^i.
 * Everything here is exact integer arithmetic, so every backend gives the same bits as
 * evaluation.py, which also explains what is computed and why. Python draws the coefficients and
 * lays them out; this file sees arrays only. Sums wrap modulo 2^64: they are exact whenever the
 * true sums fit, that is, when the absolute weights sum to less than 2^63.
 */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define TILE 128 /* keys per tile: their powers fit in the cache, a count in a byte */
#define MAX_PAIRS 4096

#ifdef __GNUC__
#define ALWAYS_INLINE inline __attribute__((always_inline))
#else
#define ALWAYS_INLINE inline
#endif

/* `count` polynomials. Each has `chunks` chunks, the highest first; each chunk has `pairs` pairs of
 * coefficients (odd, even). `constants` contains Winograd's term of each chunk. */
struct family {
    const uint64_t *coefficients, *constants;
    size_t count, chunks, pairs;
};

struct scratch {
    uint64_t *keys;                      /* a tile of keys, padded with zeros */
    uint64_t *powers, *constant, *giant; /* computed from these keys by tabulate */
    uint64_t *words;                     /* the values of two polynomials at these keys */
};

/* The weights of a tile by binary digit: weight = (flip ? -1 : 1) * sum of mask << shift. */
struct weights {
    uint64_t flip[TILE];
    uint64_t mask[64][TILE];
    uint64_t total[64]; /* the number of keys in each mask */
    int shift[64];
    int num_planes;
};

struct backend {
    const char *name;
    size_t group;
    void (*tabulate)(const struct family *, size_t, const struct scratch *);
    void (*evaluate)(const struct family *, size_t, size_t, size_t, const struct scratch *);
    void (*add_signs)(size_t, size_t, const struct weights *, const struct scratch *, uint64_t *);
    uint64_t (*products)(uint64_t, uint64_t *);
};

/* spread_bits[v]: eight bytes of 0 or 1, the bits of v in the order of memory. */
static uint64_t spread_bits[256];

#include "_kernel_portable.h"

#define BACKEND_NAME "portable"
#define NAME(x) x##_portable
#define TARGET
#define LANES 1
#define VECTOR portable_vector
#define LOAD portable_load
#define STORE portable_store
#define PAIR portable_load
#define WORD portable_both
#define XOR portable_xor
#define XOR3(a, b, c) portable_xor(a, portable_xor(b, c))
#define MAJORITY portable_majority
#define FLIP_AND_MASK portable_flip_and_mask
#define LEFT portable_left
#define RIGHT portable_right
#define LOW portable_low
#define HIGH portable_high
#define PRODUCT(a, b, half) portable_product((a).word[(half) & 1], (b).word[(half) >> 4])
#include "_kernel_lanes.h"

#if defined(__x86_64__) && defined(__GNUC__)
#define HAVE_X86 1
#include "_kernel_x86.h"
#endif

/* The backends that this machine can run, the fastest first. */
static const struct backend *available[4];
static int num_available;

static void find_backends(void)
{
#ifdef HAVE_X86
    __builtin_cpu_init();
    if (__builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("avx512f"))
        available[num_available++] = &backend_vpclmulqdq512;
    if (__builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("avx2"))
        available[num_available++] = &backend_vpclmulqdq256;
    if (__builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1"))
        available[num_available++] = &backend_pclmulqdq;
#endif
    available[num_available++] = &backend_portable;
}

struct job {
    const struct backend *backend;
    struct family family;
    const uint64_t *keys, *weights; /* without weights (NULL), computes values, not sums */
    size_t num_keys;
    uint64_t *output;
    size_t num_blocks; /* 0 unless this is a block projection */
    int bucket_bits;
};

struct memory {
    struct scratch scratch;
    struct weights weights;
    uint64_t area[]; /* the memory that scratch points into */
};

static struct memory *allocate_memory(size_t pairs)
{
    const size_t words = (5 + 2 * pairs) * TILE + 8;
    struct memory *memory = calloc(1, sizeof *memory + words * 8);
    if (memory) {
        /* Loading a vector that crosses a cache line takes twice as long. */
        uint64_t *area = memory->area + (64 - (uintptr_t)memory->area % 64) / 8;
        const struct scratch scratch = {
            area, area + 5 * TILE, area + TILE, area + 2 * TILE, area + 3 * TILE,
        };
        memory->scratch = scratch;
    }
    return memory;
}

static void split_weights(const uint64_t *values, size_t count, struct weights *split)
{
    uint64_t magnitude[TILE] = {0}, digits = 0;
    for (size_t i = 0; i < TILE; i++) {
        const uint64_t value = i < count ? values[i] : 0;
        split->flip[i] = 0 - (value >> 63);
        magnitude[i] = (value ^ split->flip[i]) - split->flip[i];
        digits |= magnitude[i];
    }
    split->num_planes = 0;
    for (int shift = 0; shift < 64; shift++) {
        if (!(digits >> shift & 1))
            continue;
        const int plane = split->num_planes++;
        split->shift[plane] = shift;
        split->total[plane] = 0;
        for (size_t i = 0; i < TILE; i++) {
            const uint64_t bit = magnitude[i] >> shift & 1;
            split->mask[plane][i] = 0 - bit;
            split->total[plane] += bit;
        }
    }
}

/* Adds each key to one row of each block whose bits polynomial `p` provides. */
static void add_to_blocks(const struct job *job, size_t p, const uint64_t *words,
                          const uint64_t *weights, size_t count)
{
    const int bits = job->bucket_bits + 1;
    const size_t blocks_per_word = 64 / (size_t)bits;
    const size_t first = p * blocks_per_word;
    const uint64_t bucket_mask = ((uint64_t)1 << job->bucket_bits) - 1;
    for (size_t block = first; block < first + blocks_per_word && block < job->num_blocks;
         block++) {
        uint64_t *rows = job->output + (block << job->bucket_bits);
        const int shift = (int)(block - first) * bits;
        for (size_t i = 0; i < count; i++) {
            const uint64_t field = words[i] >> shift;
            const uint64_t sign = 0 - (field & 1);
            rows[field >> 1 & bucket_mask] += (weights[i] ^ sign) - sign;
        }
    }
}

/* Loops over tiles of keys, and over polynomials two at a time. */
static void run(const struct job *job, struct memory *memory)
{
    const struct backend *backend = job->backend;
    const struct scratch *scratch = &memory->scratch;
    for (size_t start = 0; start < job->num_keys; start += TILE) {
        const size_t left = job->num_keys - start, count = left < TILE ? left : TILE;
        memset(scratch->keys, 0, TILE * 8);
        memcpy(scratch->keys, job->keys + start, count * 8);
        /* Groups are evaluated two at a time. */
        const size_t step = 2 * backend->group, num_groups = (count + step - 1) / step * 2;
        backend->tabulate(&job->family, num_groups, scratch);
        const int dense = job->weights && !job->num_blocks;
        if (dense)
            split_weights(job->weights + start, count, &memory->weights);
        for (size_t p = 0; p < job->family.count; p += 2) {
            const size_t width = job->family.count - p < 2 ? 1 : 2;
            backend->evaluate(&job->family, p, width, num_groups, scratch);
            if (dense) {
                backend->add_signs(p, width, &memory->weights, scratch, job->output);
                continue;
            }
            for (size_t i = 0; i < width; i++) {
                const uint64_t *words = scratch->words + i * TILE;
                if (job->num_blocks)
                    add_to_blocks(job, p + i, words, job->weights + start, count);
                else
                    memcpy(job->output + (p + i) * job->num_keys + start, words, count * 8);
            }
        }
    }
}

/* ---- Python ---- */

struct array {
    Py_buffer view;
    uint64_t *words;
    size_t count;
};

/* Opens a contiguous array of 64-bit integers with at least one dimension. */
static int open_array(PyObject *object, const char *name, int writable, struct array *array)
{
    const int flags = PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (writable ? PyBUF_WRITABLE : 0);
    if (PyObject_GetBuffer(object, &array->view, flags) < 0)
        return -1;
    const char *format = array->view.format;
    if (array->view.itemsize != 8 || !format || !strchr("lLqQ", format[0]) || format[1] ||
        (uintptr_t)array->view.buf % 8) {
        PyBuffer_Release(&array->view);
        PyErr_Format(PyExc_TypeError, "%s: must be an aligned array of 64-bit integers", name);
        return -1;
    }
    array->words = array->view.buf;
    array->count = (size_t)array->view.len / 8;
    return 0;
}

static const struct backend *find_backend(const char *name)
{
    for (int i = 0; i < num_available; i++)
        if (!strcmp(available[i]->name, name))
            return available[i];
    PyErr_Format(PyExc_ValueError, "backend: '%s' is not available on this machine", name);
    return NULL;
}

/* run(backend, coefficients, constants, pairs, keys, weights or None, output, num_blocks,
 * bucket_bits): without weights, fills `output`, shape (count, keys), with values of polynomials;
 * with weights, adds the weighted keys to all rows of each polynomial, or to one row per block. */
static PyObject *python_run(PyObject *module, PyObject *arguments)
{
    const char *name;
    PyObject *objects[5];
    unsigned long long pairs, num_blocks, bucket_bits;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "sOOKOOOKK", &name, &objects[0], &objects[1], &pairs,
                          &objects[2], &objects[3], &objects[4], &num_blocks, &bucket_bits))
        return NULL;
    const struct backend *backend = find_backend(name);
    if (!backend)
        return NULL;
    static const char *const names[5] = {"coefficients", "constants", "keys", "weights", "output"};
    struct array arrays[5] = {{{0}, NULL, 0}};
    int opened = 0;
    struct memory *memory = NULL;
    PyObject *result = NULL;
    for (; opened < 5; opened++)
        if (objects[opened] != Py_None &&
            open_array(objects[opened], names[opened], opened == 4, &arrays[opened]) < 0)
            goto close;

    const size_t num_keys = arrays[2].count, num_constants = arrays[1].count;
    const int weighted = arrays[3].words != NULL;
    size_t count, expected;
    if (pairs < 1 || pairs > MAX_PAIRS || num_constants < 1 || bucket_bits > 62 ||
        arrays[0].count != num_constants * 2 * (size_t)pairs) {
        PyErr_SetString(PyExc_ValueError, "coefficients: must be (constants, pairs, 2)");
        goto close;
    }
    /* The size of the output determines the number of polynomials. */
    if (!weighted)
        count = num_keys ? arrays[4].count / num_keys : num_constants;
    else if (!num_blocks)
        count = arrays[4].count / 64;
    else
        count = ((size_t)num_blocks - 1) / (64 / ((size_t)bucket_bits + 1)) + 1;
    expected = !weighted ? count * num_keys : count * 64;
    if (weighted && num_blocks)
        expected = num_blocks <= SIZE_MAX >> bucket_bits ? (size_t)num_blocks << bucket_bits : 0;
    if (!count || num_constants % count || arrays[4].count != expected ||
        (weighted && arrays[3].count != num_keys)) {
        PyErr_SetString(PyExc_ValueError, "output: its size does not fit the other arrays");
        goto close;
    }
    const struct job job = {
        backend,
        {arrays[0].words, arrays[1].words, count, num_constants / count, (size_t)pairs},
        arrays[2].words, arrays[3].words, num_keys, arrays[4].words, (size_t)num_blocks,
        (int)bucket_bits,
    };
    memory = allocate_memory((size_t)pairs);
    if (!memory) {
        PyErr_NoMemory();
        goto close;
    }
    Py_BEGIN_ALLOW_THREADS
    run(&job, memory);
    Py_END_ALLOW_THREADS
    result = Py_NewRef(Py_None);
close:
    free(memory);
    for (int i = 0; i < opened; i++)
        if (arrays[i].words)
            PyBuffer_Release(&arrays[i].view);
    return result;
}

static PyObject *python_backends(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    PyObject *names = PyTuple_New(num_available);
    for (int i = 0; names && i < num_available; i++) {
        PyObject *name = PyUnicode_FromString(available[i]->name);
        if (!name || PyTuple_SetItem(names, i, name) < 0)
            Py_CLEAR(names);
    }
    return names;
}

static PyObject *python_products(PyObject *module, PyObject *arguments)
{
    const char *name;
    unsigned long long iterations;
    uint64_t products, sink;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "sK", &name, &iterations))
        return NULL;
    const struct backend *backend = find_backend(name);
    if (!backend)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    products = backend->products(iterations, &sink);
    Py_END_ALLOW_THREADS
    return Py_BuildValue("KK", products, sink);
}

static PyMethodDef methods[] = {
    {"run", python_run, METH_VARARGS, "Evaluates polynomials, or adds weighted keys to rows."},
    {"backends", python_backends, METH_NOARGS, "Names of what this machine can run."},
    {"products", python_products, METH_VARARGS, "Runs independent products; returns how many."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_kernel", "Polynomials over GF(2^64), compiled.", -1, methods,
    NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__kernel(void)
{
    if (!num_available) {
        find_backends();
        for (int value = 0; value < 256; value++)
            for (int bit = 0; bit < 8; bit++)
                ((uint8_t *)&spread_bits[value])[bit] = (uint8_t)(value >> bit & 1);
    }
    return PyModule_Create(&definition);
}
