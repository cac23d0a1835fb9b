/* Whether the numbers of a noise floor belong together: a limit that was edited by hand does not
 * follow from what the file says was measured. */
#ifndef DSF_DIFF_FLOOR_RULE_H
#define DSF_DIFF_FLOOR_RULE_H

#include <stddef.h>

#include "base/json.h"

/* Recomputes the limits of the injected mode. A project floor: `measured` is the largest of its
 * results without a flipped selection, a limit 4 x that, at least 2e-4 / 1e-4 (float32 taps 2e-6 /
 * 1e-6), rounded up to one digit. The official one was measured on more than its file holds and
 * rounded to the nearest digit: `measured` is not below its results, limits are within 0.6 to 1.5
 * of the rule. EINVAL names the tap, both numbers. `path` opens messages. */
DSF_MUST dsf_status dsf_floor_check_limits(const char *path, const dsf_json *root, bool official);

/* The file (n bytes at `data`) is the one that golden's MANIFEST.json lists, where there is one in
 * the file's folder or the one above and it lists the file. EINVAL with both digests. */
DSF_MUST dsf_status dsf_floor_check_manifest(const char *path, const void *data, size_t n);

#endif
