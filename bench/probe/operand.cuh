/* Operands of the probe on the host: encoding, random values, a batch's memory. */
#ifndef DSF_PROBE_OPERAND_CUH
#define DSF_PROBE_OPERAND_CUH

#include "product.cuh"

static constexpr int TILE_ROWS = 64;

/* Products of one instruction: 32 e4m3 or 16 bf16. */
int step_products(enum format format);

float decode(enum format format, const uint8_t *operands, size_t i);
void encode(enum format format, float x, uint8_t *operands, size_t i);

/* The values random operands are drawn from. */
enum spread {
    GAUSSIAN, /* amax of each step of a row near the format's top for e4m3, sigma 1 for bf16 */
    WIDE,     /* e4m3: every code but NaN alike; bf16: exponents -20..20 */
    TINY,     /* around the subnormals: e4m3 exponent fields 0..3; bf16 2^-70..2^-56 */
};

uint32_t random_word(uint64_t *state);
double random_normal(uint64_t *state);
void fill(enum format format, enum spread spread, uint8_t *operands, size_t n, uint64_t *state);

/* A zeroed batch with operands and d on the heap; free_batch frees them. */
struct batch make_batch(enum format format, int tiles, int n, int steps);
void free_batch(struct batch *batch);

/* Elements of a row, and the index of element k of a row of tile t. */
static inline size_t row_length(const struct batch *b)
{
    return (size_t)b->steps * step_products(b->format);
}
static inline size_t a_at(const struct batch *b, int t, int row, int k)
{
    return ((size_t)t * TILE_ROWS + row) * row_length(b) + k;
}
static inline size_t b_at(const struct batch *b, int t, int col, int k)
{
    return ((size_t)t * b->n + col) * row_length(b) + k;
}
static inline size_t d_at(const struct batch *b, int t, int row, int col)
{
    return ((size_t)t * TILE_ROWS + row) * b->n + col;
}

#endif
