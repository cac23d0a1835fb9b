/* Two dumps are comparable when they are of one model: every value of their configs is equal. */
#ifndef DSF_DIFF_BIND_H
#define DSF_DIFF_BIND_H

#include "verify/dump/reader.h"

/* EINVAL names the first field that differs, with both values. A side without config_json says
 * nothing. Layout, order of members and spelling of numbers do not count. */
DSF_MUST dsf_status dsf_bind_configs(const dsf_dump_info *reference, const dsf_dump_info *ours);

#endif
