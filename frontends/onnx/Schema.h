#ifndef FRONTENDS_ONNX_SCHEMA_H
#define FRONTENDS_ONNX_SCHEMA_H

// The generated messages, with none of their symbols exported.
#include <google/protobuf/arena.h>
#include <google/protobuf/extension_set.h>
#include <google/protobuf/generated_enum_util.h>
#include <google/protobuf/generated_message_util.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/message_lite.h>
#include <google/protobuf/metadata_lite.h>
#include <google/protobuf/repeated_field.h>

#pragma GCC visibility push(hidden)
#include "frontends/onnx/attnc_onnx.pb.h"
#pragma GCC visibility pop

namespace attn::onnx {
namespace proto = ::attnc_onnx_proto;
} // namespace attn::onnx

#endif // FRONTENDS_ONNX_SCHEMA_H
