#ifndef DIALECTS_ATTN_ATTNOPS_TD
#define DIALECTS_ATTN_ATTNOPS_TD

include "dialects/attn/AttentionOp.td"
include "dialects/attn/GraphOps.td"
include "dialects/attn/KernelOps.td"
include "dialects/attn/RecurrentOps.td"
include "dialects/attn/RuntimeOps.td"
include "dialects/attn/WeightOps.td"

#endif // DIALECTS_ATTN_ATTNOPS_TD
