package toolschema

import "github.com/santhosh-tekuri/jsonschema/v6"

// maxHops bounds how many schemas may apply to one value through
// $ref and allOf: a $ref cycle that consumes nothing must not loop forever.
const maxHops = 32

// applyDefaults fills in absent properties, in place. Of anyOf and oneOf nothing
// is applied, since it is open which of them will match; a default that is itself an
// object is used unchanged.
//
// It ends because [checkSize] bounds the number of schemas at one level.
func applyDefaults(s *jsonschema.Schema, value any, hops int) {
	if s == nil || hops > maxHops {
		return
	}
	applyDefaults(s.Ref, value, hops+1)
	for _, a := range s.AllOf {
		applyDefaults(a, value, hops+1)
	}
	switch v := value.(type) {
	case map[string]any:
		for name, p := range s.Properties {
			if have, ok := v[name]; ok {
				applyDefaults(p, have, 0)
			} else if d := defaultOf(p); d != nil {
				v[name] = clone(*d)
			}
		}
	case []any:
		if items, ok := s.Items.(*jsonschema.Schema); ok {
			applyToItems(items, v)
		}
		applyToItems(s.Items2020, v)
	}
}

func applyToItems(s *jsonschema.Schema, items []any) {
	if s == nil {
		return
	}
	for _, e := range items {
		applyDefaults(s, e, 0)
	}
}

func defaultOf(s *jsonschema.Schema) *any {
	for range maxHops {
		if s == nil {
			return nil
		}
		if s.Default != nil {
			return s.Default
		}
		s = s.Ref
	}
	return nil
}

// clone copies a JSON value: a default must not be shared between two calls.
func clone(v any) any {
	switch x := v.(type) {
	case map[string]any:
		m := make(map[string]any, len(x))
		for k, e := range x {
			m[k] = clone(e)
		}
		return m
	case []any:
		l := make([]any, len(x))
		for i, e := range x {
			l[i] = clone(e)
		}
		return l
	default:
		return v
	}
}
