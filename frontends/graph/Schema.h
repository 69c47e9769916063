#ifndef FRONTENDS_GRAPH_SCHEMA_H
#define FRONTENDS_GRAPH_SCHEMA_H

#include "frontends/graph/Json.h"

namespace attn::graph {

/// What is wrong with a file, and the layer it stands in.
struct SchemaError {
  Position at;
  std::string message;
  const Json *layer = nullptr;
};

/// Checks `file` against schema.json, which is the one place that lists layers
/// and their fields: a reader of what passed need not look at kinds and keys
/// again. nullopt if it fits.
std::optional<SchemaError> checkSchema(const Json &file);

} // namespace attn::graph

#endif // FRONTENDS_GRAPH_SCHEMA_H
