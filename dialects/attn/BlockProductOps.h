#ifndef DIALECTS_ATTN_BLOCKPRODUCTOPS_H
#define DIALECTS_ATTN_BLOCKPRODUCTOPS_H

#include "dialects/attn/AttnOps.h"

#define GET_OP_CLASSES
#include "dialects/attn/BlockProductOps.h.inc"

#endif // DIALECTS_ATTN_BLOCKPRODUCTOPS_H
