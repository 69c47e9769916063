"""JSON Schema as far as schema.json goes, written apart from the reader's own check."""
import re

KINDS = {"object": dict, "array": list, "string": str, "boolean": bool}
KNOWN = {"$schema", "title", "description", "$defs", "$ref", "type", "enum", "const", "required", "properties", "propertyNames", "pattern",
         "additionalProperties", "items", "minItems", "maxItems", "minimum", "maximum", "minProperties", "maxProperties", "allOf", "if", "then"}


def is_kind(value, kind):
    if kind == "integer":
        return isinstance(value, int) and not isinstance(value, bool)
    if kind == "number":
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    return isinstance(value, KINDS[kind])


def complaint(value, schema, root, where="$"):
    """What of `value` breaks `schema`, or None."""
    assert schema.keys() <= KNOWN, f"keywords that nobody checks: {schema.keys() - KNOWN}"
    if "$ref" in schema and (found := complaint(value, root["$defs"][schema["$ref"].removeprefix("#/$defs/")], root, where)):
        return found
    kinds = schema.get("type", [])
    if kinds and not any(is_kind(value, k) for k in ([kinds] if isinstance(kinds, str) else kinds)):
        return f"{where}: not {kinds}"
    if "const" in schema and value != schema["const"] or "enum" in schema and value not in schema["enum"]:
        return f"{where}: {value}"
    if isinstance(value, str) and "pattern" in schema and not re.search(schema["pattern"], value):
        return f"{where}: {value}"
    if is_kind(value, "number") and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        return f"{where}: {value}"
    if isinstance(value, list):
        if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
            return f"{where}: {len(value)} items"
        for i, item in enumerate(value):
            if found := complaint(item, schema.get("items", {}), root, f"{where}[{i}]"):
                return found
    if isinstance(value, dict):
        if not schema.get("minProperties", 0) <= len(value) <= schema.get("maxProperties", len(value)):
            return f"{where}: {len(value)} members"
        if missing := set(schema.get("required", [])) - value.keys():
            return f"{where}: no {missing}"
        for key, item in value.items():
            if "propertyNames" in schema and (found := complaint(key, schema["propertyNames"], root, where)):
                return found
            part = schema.get("properties", {}).get(key, schema.get("additionalProperties", {}))
            if part is False:
                return f"{where}: unknown {key}"
            if found := complaint(item, {} if part is True else part, root, f"{where}.{key}"):
                return found
    for part in schema.get("allOf", []):
        if complaint(value, part["if"], root, where) is None and (found := complaint(value, part["then"], root, where)):
            return found
    return None
