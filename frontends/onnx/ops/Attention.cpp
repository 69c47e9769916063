#include "frontends/onnx/Importer.h"

void attn::onnx::registerAttentionOps(OpRegistry &) {}
