// Package bounds reads the defaults and the bounds of a configuration from the tags of its
// fields, so that both are declared once:
//
//	Slots   int           `default:"16" min:"1" max:"4096"`
//	Body    int64         `yaml:"max_body" default:"2 MiB" min:"1" max:"4 MiB"`
//	Timeout time.Duration `default:"30s" min:"0"`
//
// A field has its YAML key as name, or its own name in snake case. Zero means the default,
// if there is one. What is declared below a field that is a struct counts, too, with the
// field's name before it. A tag that cannot be read is a mistake of the program: it panics.
package bounds

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// Filled returns the configuration with the defaults of fields that are zero.
func Filled[T any](config T) T {
	fill(reflect.ValueOf(&config).Elem())
	return config
}

func fill(v reflect.Value) {
	for f, value := range v.Fields() {
		text, ok := f.Tag.Lookup("default")
		switch {
		case !f.IsExported():
		case ok && value.IsZero():
			value.Set(parse(f, text))
		case !ok && nested(f):
			fill(value)
		}
	}
}

// nested reports whether the tags below the field count.
func nested(f reflect.StructField) bool { return f.Type.Kind() == reflect.Struct }

// Check reports every field that is out of its bounds. Names begin with the prefix, such as
// "retry.".
func Check(prefix string, config any) error {
	return errors.Join(check(prefix, reflect.ValueOf(config))...)
}

func check(prefix string, v reflect.Value) (errs []error) {
	for f, value := range v.Fields() {
		if !f.IsExported() {
			continue
		}
		name := prefix + name(f)
		if nested(f) {
			below := name + "."
			if f.Anonymous {
				below = prefix
			}
			errs = append(errs, check(below, value)...)
			continue
		}
		_, hasDefault := f.Tag.Lookup("default")
		if unset := hasDefault && value.IsZero(); !unset && !within(f, value) {
			errs = append(errs, fmt.Errorf("%s is %v, want %s", name, value, wanted(f.Tag)))
		}
	}
	return errs
}

func within(f reflect.StructField, value reflect.Value) bool {
	if text, ok := f.Tag.Lookup("min"); ok && less(value, parse(f, text)) {
		return false
	}
	text, ok := f.Tag.Lookup("max")
	return !ok || !less(parse(f, text), value)
}

func less(a, b reflect.Value) bool {
	if a.CanFloat() {
		return !(a.Float() >= b.Float()) // true for NaN
	}
	return a.Int() < b.Int()
}

// name returns what a field is called in a file and in errors.
func name(f reflect.StructField) string {
	if name, _, _ := strings.Cut(f.Tag.Get("yaml"), ","); name != "" {
		return name
	}
	var b strings.Builder
	for i, r := range f.Name {
		if i > 0 && unicode.IsUpper(r) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// Describe says what the tags declare, for people: "default 2 MiB; 1 to 4 MiB".
func Describe(tag reflect.StructTag) string {
	text, fallback := span(tag), tag.Get("default")
	switch {
	case fallback == "":
		return text
	case text == "" || text == "0 or more":
		return "default " + fallback
	}
	return "default " + fallback + "; " + text
}

// wanted says which values a field may have.
func wanted(tag reflect.StructTag) string {
	text, fallback := span(tag), tag.Get("default")
	switch {
	case fallback == "":
		return text
	case text == "0 or more":
		return "0 (default) or more"
	}
	return text + ", or 0 for " + fallback
}

func span(tag reflect.StructTag) string {
	least, most := tag.Get("min"), tag.Get("max")
	switch {
	case least == "" && most == "":
		return ""
	case least == "":
		return "at most " + most
	case most != "":
		return least + " to " + most
	case least == "0":
		return "0 or more"
	}
	return "at least " + least
}

var units = map[string]int64{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}

// parse reads the text of a tag as a value of the field.
func parse(f reflect.StructField, text string) reflect.Value {
	out := reflect.New(f.Type).Elem()
	var err error
	switch {
	case f.Type == reflect.TypeFor[time.Duration]():
		var d time.Duration
		d, err = time.ParseDuration(text)
		out.SetInt(int64(d))
	case out.CanInt():
		digits, unit, has := strings.Cut(text, " ")
		var n int64
		if n, err = strconv.ParseInt(digits, 10, 64); has {
			n *= units[unit]
		}
		out.SetInt(n)
	case out.CanFloat():
		var n float64
		n, err = strconv.ParseFloat(text, 64)
		out.SetFloat(n)
	case out.Kind() == reflect.String:
		out.SetString(text)
	default:
		err = errors.New("want a number, a duration or text")
	}
	if err != nil {
		panic(fmt.Sprintf("bounds: field %s: %q: %v", f.Name, text, err))
	}
	return out
}
