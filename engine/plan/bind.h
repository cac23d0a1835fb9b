/* How steps are written down: STEP(plan, operation, arguments, AT(name, field, value), ...). */
#ifndef DSF_PLAN_BIND_H
#define DSF_PLAN_BIND_H

#include "plan/plan.h"

/* The value for a field of dsf_<oper>_args. */
#define AT(oper, field, v)                                                                         \
    {                                                                                              \
        offsetof(dsf_##oper##_args, field), (v)                                                    \
    }
#define STEP(p, oper, args, ...)                                                                   \
    do {                                                                                           \
        const dsf_bind binds[] = {__VA_ARGS__};                                                    \
        dsf_plan_step((p), (oper), (args), binds, (int)(sizeof binds / sizeof *binds));            \
    } while (0)

#endif
