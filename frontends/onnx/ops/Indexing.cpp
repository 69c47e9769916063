#include "frontends/onnx/Importer.h"

void attn::onnx::registerIndexingOps(OpRegistry &) {}
