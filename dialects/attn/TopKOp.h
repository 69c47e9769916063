#ifndef DIALECTS_ATTN_TOPKOP_H
#define DIALECTS_ATTN_TOPKOP_H

#include "dialects/attn/AttnOps.h"

#define GET_OP_CLASSES
#include "dialects/attn/TopKOp.h.inc"

#endif // DIALECTS_ATTN_TOPKOP_H
