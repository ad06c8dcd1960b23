package openai

import (
	"encoding/json"
	"slices"
	"strings"
)

// schemaName is the name of an answer's schema, which the API requires.
const schemaName = "answer"

// maxSchemaDepth bounds the nesting of a schema that is sent as strict.
const maxSchemaDepth = 10

// strictKeywords are the keywords that a schema may have if the API enforces it.
var strictKeywords = []string{
	"type", "properties", "required", "additionalProperties", "items", "enum", "const", "anyOf", "$ref", "$defs",
	"definitions", "$schema", "title", "description", "pattern", "format", "minimum", "maximum", "exclusiveMinimum",
	"exclusiveMaximum", "multipleOf", "minItems", "maxItems",
}

var strictFormats = []string{
	"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid",
}

// fitsStrict reports whether the API can enforce a schema. It refuses one with strict set
// that does not follow its rules: the root is an object, each object lists all of its
// properties as required and allows no others, and only some keywords are known.
func fitsStrict(schema json.RawMessage) bool {
	var root map[string]any
	if json.Unmarshal(schema, &root) != nil || root["type"] != "object" || root["anyOf"] != nil {
		return false
	}
	return strictNode(root, maxSchemaDepth)
}

func strictNode(v any, depth int) bool {
	node, ok := v.(map[string]any)
	if !ok || depth == 0 {
		return false
	}
	for k := range node {
		if !slices.Contains(strictKeywords, k) {
			return false
		}
	}
	if format, ok := node["format"].(string); ok && !slices.Contains(strictFormats, format) {
		return false
	}
	return strictType(node) && strictObject(node) && strictChildren(node, depth-1)
}

// strictType reports whether a node says what it is.
func strictType(node map[string]any) bool {
	if ref, ok := node["$ref"].(string); ok {
		return strings.HasPrefix(ref, "#")
	}
	if hasType(node, "array") && node["items"] == nil {
		return false
	}
	return node["type"] != nil || node["anyOf"] != nil || node["enum"] != nil || node["const"] != nil
}

func hasType(node map[string]any, name string) bool {
	if list, ok := node["type"].([]any); ok {
		return slices.Contains(list, any(name))
	}
	return node["type"] == name
}

// strictObject reports whether a node that is an object is closed, and requires all of its
// properties.
func strictObject(node map[string]any) bool {
	if !hasType(node, "object") && node["properties"] == nil {
		return true
	}
	properties, listed := node["properties"].(map[string]any)
	required, ok := node["required"].([]any)
	for name := range properties {
		if !slices.Contains(required, any(name)) {
			return false
		}
	}
	return listed && ok && node["additionalProperties"] == false && len(required) == len(properties)
}

func strictChildren(node map[string]any, depth int) bool {
	var children []any
	for _, k := range []string{"properties", "$defs", "definitions"} {
		named, _ := node[k].(map[string]any)
		for _, child := range named {
			children = append(children, child)
		}
	}
	if items, ok := node["items"]; ok {
		children = append(children, items)
	}
	alternatives, _ := node["anyOf"].([]any)
	for _, child := range append(children, alternatives...) {
		if !strictNode(child, depth) {
			return false
		}
	}
	return true
}
