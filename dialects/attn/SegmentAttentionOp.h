#ifndef DIALECTS_ATTN_SEGMENTATTENTIONOP_H
#define DIALECTS_ATTN_SEGMENTATTENTIONOP_H

#include "dialects/attn/AttnOps.h"

#define GET_OP_CLASSES
#include "dialects/attn/SegmentAttentionOp.h.inc"

#endif // DIALECTS_ATTN_SEGMENTATTENTIONOP_H
