#ifndef DIALECTS_ATTN_SEARCHOP_H
#define DIALECTS_ATTN_SEARCHOP_H

#include "dialects/attn/AttnOps.h"

#define GET_OP_CLASSES
#include "dialects/attn/SearchOp.h.inc"

#endif // DIALECTS_ATTN_SEARCHOP_H
