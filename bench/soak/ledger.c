#include "bench/soak/ledger.h"

#include <pthread.h>
#include <string.h>

#include "base/mem.h"

enum { BUCKETS = 1 << 14, ENTRIES = 1 << 20, NONE = -1, GROUPS = 64 };

typedef struct {
    const void *block;
    const char *where, *phase;
    int64_t bytes;
    uint64_t serial;
    int32_t next; /* in its bucket, or among the unused */
} entry;

struct dsf_ledger {
    pthread_mutex_t lock;
    dsf_mem_watch watch;
    entry *entry; /* [ENTRIES], mapped: pages are touched as they come into use */
    int32_t used, unused;
    int32_t bucket[BUCKETS];
    bool hush;
    const char *phase;
    dsf_ledger_state state;
};

static uint32_t bucket_of(const void *block)
{
    uint64_t h = (uint64_t)(uintptr_t)block * 0x9E3779B97F4A7C15u;
    return (uint32_t)(h >> 50); /* 14 bits */
}
_Static_assert(BUCKETS == 1 << 14, "bucket_of takes the upper 14 bits");

/* Paths begin where the tree does, wherever the build folder lies. */
static const char *in_tree(const char *where)
{
    static const char *const top[] = {"engine/", "kernels/", "bench/", "verify/", "tools/"};
    for (size_t i = 0; i < sizeof top / sizeof *top; i++) {
        const char *at = strstr(where, top[i]);
        if (at && (at == where || at[-1] == '/')) return at;
    }
    return where;
}

static int32_t take_entry(dsf_ledger *l)
{
    int32_t i = l->unused;
    if (i != NONE)
        l->unused = l->entry[i].next;
    else if (l->used < ENTRIES)
        i = l->used++;
    return i;
}

static void on_taken(void *ud, const char *where, const void *block, size_t bytes)
{
    dsf_ledger *l = ud;
    dsf_ledger_state *s = &l->state;
    (void)pthread_mutex_lock(&l->lock);
    int32_t i = l->hush ? NONE : take_entry(l);
    if (i != NONE) {
        int32_t *head = &l->bucket[bucket_of(block)];
        l->entry[i] = (entry){block, where, l->phase, (int64_t)bytes, s->serial++, *head};
        *head = i;
        s->live += (int64_t)bytes;
        s->blocks++;
        s->taken++;
        if (s->live > s->peak) s->peak = s->live;
        if ((int64_t)bytes > s->largest.bytes)
            s->largest = (dsf_ledger_group){in_tree(where), l->phase, (int64_t)bytes, 1};
    } else if (!l->hush) {
        s->lost = true;
    }
    (void)pthread_mutex_unlock(&l->lock);
}

static void on_dropped(void *ud, const void *block)
{
    dsf_ledger *l = ud;
    (void)pthread_mutex_lock(&l->lock);
    int32_t *link = &l->bucket[bucket_of(block)];
    while (*link != NONE && l->entry[*link].block != block) link = &l->entry[*link].next;
    int32_t i = *link;
    if (i != NONE) {
        *link = l->entry[i].next;
        l->state.live -= l->entry[i].bytes;
        l->state.blocks--;
        l->entry[i].next = l->unused;
        l->entry[i].block = NULL;
        l->unused = i;
    }
    (void)pthread_mutex_unlock(&l->lock);
}

dsf_status dsf_ledger_open(dsf_ledger **out)
{
    dsf_ledger *l = NULL;
    void *entries = NULL;
    DSF_TRY(dsf_mem_map(&entries, sizeof(entry) * (size_t)ENTRIES));
    dsf_status st = dsf_mem_new(&l, 1, sizeof *l);
    if (st != DSF_OK) {
        dsf_mem_unmap(entries, sizeof(entry) * (size_t)ENTRIES);
        return dsf_error_pass(st, DSF_HERE);
    }
    l->entry = entries;
    l->unused = NONE;
    l->phase = "start";
    for (int i = 0; i < BUCKETS; i++) l->bucket[i] = NONE;
    (void)pthread_mutex_init(&l->lock, NULL);
    l->watch = (dsf_mem_watch){on_taken, on_dropped, l};
    dsf_mem_watch_by(&l->watch);
    *out = l;
    return DSF_OK;
}

void dsf_ledger_close(dsf_ledger *l)
{
    if (!l) return;
    dsf_mem_watch_by(NULL);
    (void)pthread_mutex_destroy(&l->lock);
    dsf_mem_unmap(l->entry, sizeof(entry) * (size_t)ENTRIES);
    dsf_mem_free(l);
}

void dsf_ledger_hush(dsf_ledger *l, bool hush)
{
    (void)pthread_mutex_lock(&l->lock);
    l->hush = hush;
    (void)pthread_mutex_unlock(&l->lock);
}

void dsf_ledger_mark(dsf_ledger *l, const char *phase)
{
    (void)pthread_mutex_lock(&l->lock);
    l->phase = phase;
    l->state.peak = l->state.live;
    l->state.taken = 0;
    l->state.largest = (dsf_ledger_group){NULL, NULL, 0, 0};
    (void)pthread_mutex_unlock(&l->lock);
}

/* The lock guards the counts, not what the caller sees as constant. */
static pthread_mutex_t *lock_of(const dsf_ledger *l) { return &((dsf_ledger *)(uintptr_t)l)->lock; }

dsf_ledger_state dsf_ledger_now(const dsf_ledger *l)
{
    (void)pthread_mutex_lock(lock_of(l));
    dsf_ledger_state s = l->state;
    (void)pthread_mutex_unlock(lock_of(l));
    return s;
}

int64_t dsf_ledger_at(const dsf_ledger *l, const void *block)
{
    int64_t bytes = 0;
    (void)pthread_mutex_lock(lock_of(l));
    for (int32_t i = block ? l->bucket[bucket_of(block)] : NONE; i != NONE; i = l->entry[i].next)
        if (l->entry[i].block == block) bytes = l->entry[i].bytes;
    (void)pthread_mutex_unlock(lock_of(l));
    return bytes;
}

/* Adds an entry to its group; groups beyond the room are gathered in the last. */
static int add_to_groups(dsf_ledger_group *g, int n, const entry *e)
{
    int i = 0;
    while (i < n && (g[i].where != in_tree(e->where) || g[i].phase != e->phase)) i++;
    if (i == GROUPS) i--;
    if (i == n) g[n++] = (dsf_ledger_group){in_tree(e->where), e->phase, 0, 0};
    g[i].bytes += e->bytes;
    g[i].blocks++;
    return n;
}

int dsf_ledger_since(const dsf_ledger *l, uint64_t serial, dsf_ledger_group *out, int n)
{
    dsf_ledger_group all[GROUPS];
    int groups = 0, kept = 0;
    (void)pthread_mutex_lock(lock_of(l));
    for (int32_t i = 0; i < l->used; i++)
        if (l->entry[i].block && l->entry[i].serial >= serial)
            groups = add_to_groups(all, groups, &l->entry[i]);
    (void)pthread_mutex_unlock(lock_of(l));
    for (; kept < n && kept < groups; kept++) {
        int most = kept;
        for (int i = kept; i < groups; i++)
            if (all[i].bytes > all[most].bytes) most = i;
        out[kept] = all[most];
        all[most] = all[kept];
    }
    return kept;
}
