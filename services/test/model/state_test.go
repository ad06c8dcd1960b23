package model

import (
	"reflect"
	"testing"
)

// Cores that differ must not compare as equal, or states would depend on the names of
// the cores. So the key must contain every field.
func TestCoresAreOrderedByEveryField(t *testing.T) {
	var walk func(v reflect.Value, path string, visit func(reflect.Value, string))
	walk = func(v reflect.Value, path string, visit func(reflect.Value, string)) {
		switch v.Kind() {
		case reflect.Struct:
			for i := range v.NumField() {
				walk(v.Field(i), path+"."+v.Type().Field(i).Name, visit)
			}
		case reflect.Array:
			for i := range v.Len() {
				walk(v.Index(i), path+"[]", visit)
			}
		default:
			visit(v, path)
		}
	}
	var k, zero Core
	walk(reflect.ValueOf(&k).Elem(), "Core", func(v reflect.Value, path string) {
		k = Core{}
		switch v.Kind() {
		case reflect.Uint8:
			v.SetUint(1)
		case reflect.Bool:
			v.SetBool(true)
		default:
			t.Fatalf("%s: no order for %s", path, v.Kind())
		}
		if k.compare(&zero) <= 0 || zero.compare(&k) >= 0 {
			t.Errorf("%s does not count in the order of cores", path)
		}
	})
}
