package toolschema

import (
	"fmt"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// maxNodes bounds how many schemas a schema unrolls to. A few hundred bytes of
// $ref can unroll to billions, and a tool's schema may come from a stranger.
const maxNodes = 20_000

func checkSize(s *jsonschema.Schema) error {
	c := counter{onPath: map[*jsonschema.Schema]bool{}}
	c.walk(s)
	if c.n > maxNodes {
		return fmt.Errorf("it unrolls to more than %d schemas: use fewer $ref inside allOf, anyOf and oneOf", maxNodes)
	}
	return nil
}

type counter struct {
	n      int
	onPath map[*jsonschema.Schema]bool
}

func (c *counter) walk(s *jsonschema.Schema) {
	if s == nil || c.n > maxNodes {
		return
	}
	c.n++
	if c.onPath[s] {
		return
	}
	c.onPath[s] = true
	defer delete(c.onPath, s)
	for _, p := range s.Properties {
		c.walk(p)
	}
	for _, p := range s.PatternProperties {
		c.walk(p)
	}
	for _, p := range s.DependentSchemas {
		c.walk(p)
	}
	for _, p := range s.Dependencies {
		c.walkAny(p)
	}
	for _, list := range [][]*jsonschema.Schema{s.AllOf, s.AnyOf, s.OneOf, s.PrefixItems} {
		for _, p := range list {
			c.walk(p)
		}
	}
	for _, p := range []*jsonschema.Schema{
		s.Ref, s.RecursiveRef, s.Not, s.If, s.Then, s.Else, s.PropertyNames,
		s.UnevaluatedProperties, s.Contains, s.Items2020, s.UnevaluatedItems,
	} {
		c.walk(p)
	}
	if s.DynamicRef != nil {
		c.walk(s.DynamicRef.Ref)
	}
	c.walkAny(s.Items)
	c.walkAny(s.AdditionalItems)
	c.walkAny(s.AdditionalProperties)
}

// walkAny walks what is a schema or a list of them by draft.
func (c *counter) walkAny(v any) {
	switch x := v.(type) {
	case *jsonschema.Schema:
		c.walk(x)
	case []*jsonschema.Schema:
		for _, s := range x {
			c.walk(s)
		}
	}
}
