#ifndef DIALECTS_ATTN_INTEGERPRODUCTOP_H
#define DIALECTS_ATTN_INTEGERPRODUCTOP_H

#include "dialects/attn/AttnOps.h"

#define GET_OP_CLASSES
#include "dialects/attn/IntegerProductOp.h.inc"

#endif // DIALECTS_ATTN_INTEGERPRODUCTOP_H
