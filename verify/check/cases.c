/* Inputs by pattern. Every element depends on (seed, operand, position) alone. Formats narrower
 * than float get what they can hold: codes without NaN, scales within 2^-47..2^43 (two of them and
 * a sum of products stay inside f32), records by quantising a row. */
#include "base/mem.h"
#include "base/num.h"
#include "frame.h"
#include "ops/fill.h"
#include "ops/quant.h"

const char *dsf_pattern_name(dsf_pattern p)
{
    static const char *const name[] = {
#define X(id, text) text,
        DSF_PATTERN_MAP(X)
#undef X
    };
    return (unsigned)p < DSF_N_PATTERNS ? name[p] : "?";
}

typedef struct {
    dsf_pattern pattern;
    uint64_t state;
    float constant; /* EQUAL */
    float largest;  /* EXTREME */
    float grain;    /* SUBNORMAL: the smallest number of the type */
} source;

static float uniform(uint64_t bits) { return (float)(bits >> 40) * 0x1p-23f - 1.0f; }

/* Four uniforms: bell-shaped, unit variance, no tail beyond 3.5. */
static float bell(uint64_t bits)
{
    float sum = 0;
    for (int i = 0; i < 4; i++) sum += (float)(bits >> (16 * i) & 0xFFFF);
    return (sum * 0x1p-16f - 2.0f) * 1.7320508f;
}

static float extreme(const source *s, uint64_t bits)
{
    const float value[8] = {s->largest, s->largest, 0x1p-126f, s->grain,
                            1.0f,       0.0f,       0x1p-60f,  3.0f};
    return bits & 8 ? value[bits & 7] : -value[bits & 7];
}

static float next_value(source *s)
{
    uint64_t bits = dsf_fill_next(&s->state);
    switch (s->pattern) {
    case DSF_PATTERN_UNIFORM:
        return uniform(bits);
    case DSF_PATTERN_MIXED: /* 40 binades */
        return ldexpf(bell(bits), (int)(dsf_fill_next(&s->state) % 41) - 20);
    case DSF_PATTERN_EQUAL:
        return s->constant;
    case DSF_PATTERN_INTEGERS: /* sums of products are exact in any order */
        return (float)((int)(bits >> 32 & 15) - 8);
    case DSF_PATTERN_ZEROS:
        return bits & 3 ? (bits & 4 ? -0.0f : 0.0f) : bell(bits);
    case DSF_PATTERN_SUBNORMAL:
        return (float)((int)(bits >> 32 & 255) - 128) * s->grain;
    case DSF_PATTERN_EXTREME:
        return extreme(s, bits);
    default:
        return bell(bits);
    }
}

static uint8_t next_e4m3(source *s)
{
    uint64_t bits = dsf_fill_next(&s->state);
    if (s->pattern == DSF_PATTERN_SUBNORMAL) return (uint8_t)(bits & 0x87);
    if (s->pattern == DSF_PATTERN_EXTREME) {
        static const uint8_t code[8] = {0x7E, 0xFE, 0x01, 0x81, 0x00, 0x80, 0x08, 0x38};
        return code[bits & 7];
    }
    s->state ^= bits;
    return dsf_f32_to_e4m3(next_value(s) * (s->pattern == DSF_PATTERN_INTEGERS ? 1.0f : 32.0f));
}

static uint8_t next_e8m0(source *s)
{
    uint64_t bits = dsf_fill_next(&s->state) >> 32;
    switch (s->pattern) {
    case DSF_PATTERN_UNIFORM:
        return (uint8_t)(120 + bits % 15);
    case DSF_PATTERN_EQUAL:
    case DSF_PATTERN_INTEGERS:
        return 127;
    case DSF_PATTERN_EXTREME:
        return bits & 1 ? 80 : 170;
    default:
        return (uint8_t)(100 + bits % 51);
    }
}

static uint8_t next_e2m1x2(source *s)
{
    uint64_t bits = dsf_fill_next(&s->state) >> 24;
    switch (s->pattern) {
    case DSF_PATTERN_ZEROS: /* nibbles 0 and 8 */
        return bits & 0x300 ? (uint8_t)(bits & 0x88) : (uint8_t)bits;
    case DSF_PATTERN_EXTREME:
        return (uint8_t)(bits | 0x77);
    case DSF_PATTERN_EQUAL:
        return 0x55;
    default:
        return (uint8_t)bits;
    }
}

/* One record row: bf16 values, each group of 32 moved by up to 6 binades, quantised. */
static void fill_record(source *s, const dsf_tensor *t, uint8_t *out, uint16_t *row)
{
    int64_t d = t->dim[t->rank - 1];
    bool spread = s->pattern == DSF_PATTERN_NORMAL || s->pattern == DSF_PATTERN_MIXED;
    for (int64_t i = 0; i < d; i += 32) {
        int shift = spread ? (int)(dsf_fill_next(&s->state) % 13) - 6 : 0;
        for (int64_t j = i; j < i + 32 && j < d; j++)
            row[j] = dsf_f32_to_bf16(ldexpf(next_value(s), shift));
    }
    if (t->dtype == DSF_Q8) dsf_q8_row(out, row, d);
    if (t->dtype == DSF_Q4X) dsf_q4x_row(out, row, d);
    if (t->dtype == DSF_Q4N) dsf_q4n_row(out, row, d);
}

static dsf_status fill_records(source *s, const dsf_tensor *t)
{
    uint16_t *row = NULL;
    int64_t d = t->dim[t->rank - 1], bytes = dsf_dtype_bytes(t->dtype, d);
    s->largest = 0x1p40f; /* scales stay within the range of next_e8m0 */
    DSF_TRY(dsf_mem_new(&row, (size_t)d, sizeof *row));
    for (int64_t i = 0; i < dsf_tensor_rows(t); i++)
        fill_record(s, t, (uint8_t *)t->data + i * bytes, row);
    dsf_mem_free(row);
    return DSF_OK;
}

static dsf_status fill_operand(source *s, const dsf_tensor *t)
{
    int64_t n = dsf_tensor_count(t);
    uint8_t *bytes = t->data;
    switch (t->dtype) {
    case DSF_F32:
        for (int64_t i = 0; i < n; i++) ((float *)t->data)[i] = next_value(s);
        break;
    case DSF_BF16:
        for (int64_t i = 0; i < n; i++) ((uint16_t *)t->data)[i] = dsf_f32_to_bf16(next_value(s));
        break;
    case DSF_E4M3:
        for (int64_t i = 0; i < n; i++) bytes[i] = next_e4m3(s);
        break;
    case DSF_E8M0:
        for (int64_t i = 0; i < n; i++) bytes[i] = next_e8m0(s);
        break;
    case DSF_E2M1X2:
        for (int64_t i = 0; i < n; i++) bytes[i] = next_e2m1x2(s);
        break;
    case DSF_U8: /* flags */
        for (int64_t i = 0; i < n; i++) bytes[i] = dsf_fill_next(&s->state) >> 63 != 0;
        break;
    case DSF_Q8:
    case DSF_Q4X:
    case DSF_Q4N:
        return fill_records(s, t);
    default: /* indices and pointers: the op's fill() gives them meaning */
        memset(t->data, 0, (size_t)dsf_tensor_bytes(t));
    }
    return DSF_OK;
}

static source source_for(const dsf_frame *f, int operand, dsf_pattern p, uint64_t seed)
{
    source s = {.pattern = p, .state = seed + (uint64_t)operand * 0xD1342543DE82EF95u};
    bool bf16 = f->op->operand[operand].dtype == DSF_BF16;
    s.constant = 1.0f + uniform(dsf_fill_next(&s.state)) * 0.9f;
    s.grain = bf16 ? 0x1p-133f : 0x1p-149f;
    /* Where infinity is no legal input, a product of two must not become one. */
    s.largest = 0x1p60f;
    if (f->op->props & DSF_PROP_NAN)
        s.largest = bf16 ? dsf_bf16_to_f32(0x7F7F) : dsf_f32_from_bits(0x7F7FFFFF);
    return s;
}

/* One element of one floating input becomes NaN or an infinity. */
static void plant(const dsf_frame *f, dsf_pattern p, uint64_t seed)
{
    int candidate[DSF_FRAME_OPERANDS], n = 0;
    for (int i = 0; i < f->op->n_operands; i++) {
        const dsf_tensor *t = dsf_frame_tensor(f, i);
        if (f->op->operand[i].dir == DSF_OUT || t->rank == 0) continue;
        if (t->dtype == DSF_F32 || t->dtype == DSF_BF16) candidate[n++] = i;
    }
    if (n == 0) return;
    const dsf_tensor *t = dsf_frame_tensor(f, candidate[dsf_fill_below(&seed, n)]);
    int64_t at = dsf_fill_below(&seed, dsf_tensor_count(t));
    float v = p == DSF_PATTERN_NAN ? NAN : dsf_fill_below(&seed, 2) ? INFINITY : -INFINITY;
    if (t->dtype == DSF_F32)
        ((float *)t->data)[at] = v;
    else
        ((uint16_t *)t->data)[at] = dsf_f32_to_bf16(v);
}

dsf_status dsf_frame_generate(dsf_frame *f, dsf_pattern p, uint64_t seed)
{
    for (int i = 0; i < f->op->n_operands; i++) {
        const dsf_tensor *t = dsf_frame_tensor(f, i);
        if (t->rank == 0 || f->op->operand[i].dir == DSF_OUT) continue;
        source s = source_for(f, i, p, seed);
        DSF_TRY(fill_operand(&s, t));
    }
    if (p == DSF_PATTERN_NAN || p == DSF_PATTERN_INFINITY) plant(f, p, seed);
    if (f->op->fill) f->op->fill(f->args, &f->sizes, seed);
    return DSF_OK;
}
