/* Suite choices: which experts, entries and blocks were chosen (verification.md 14). On golden
 * scores the choice is exact; on own scores it may differ where the reference's margin is noise. */
#ifndef DSF_VERIFY_SUITE_CHOICES_H
#define DSF_VERIFY_SUITE_CHOICES_H

#include "verify/diff/diff.h"
#include "verify/dump/reader.h"
#include "verify/suite/suite.h"

/* r: the golden file against an injected dump, with rows. */
void dsf_choices_own(const dsf_diff_report *r, dsf_suite_check *c);
/* r: the golden file against a dump made operation by operation; f: the golden file, which holds
 * the scores that the choices were made on. */
void dsf_choices_golden(const dsf_diff_report *r, const dsf_dump_file *f, dsf_suite_check *c);
/* Is dataset i of the file a choice whose scores the file holds too? */
bool dsf_choices_scored(const dsf_dump_file *f, int64_t i);
/* The same for what the scores are computed from: the layer's input for all rows, or the scores. */
bool dsf_choices_makeable(const dsf_dump_file *f, int64_t i);

#endif
