package selection

import (
	"reflect"
	"strings"
	"testing"

	"skandha.dev/services/sandbox/deps"
)

// One environment configures the service and its proxy.
func TestTheProxyHasTheServicesVariables(t *testing.T) {
	service := map[string]string{}
	for f := range fields[Flags]() {
		service[f.Tag.Get("env")] = f.Tag.Get("default")
	}
	for f := range fields[Allowed]() {
		name := f.Tag.Get("env")
		if strings.HasPrefix(name, "SKANDHA_ENGINE_") { // the proxy's own
			continue
		}
		if value, there := service[name]; !there || value != f.Tag.Get("default") {
			t.Errorf("%s is by default %q, for the service %q", name, f.Tag.Get("default"), value)
		}
	}
}

func fields[T any]() func(func(reflect.StructField) bool) {
	return func(yield func(reflect.StructField) bool) {
		for _, f := range reflect.VisibleFields(reflect.TypeFor[T]()) {
			if !yield(f) {
				return
			}
		}
	}
}

func TestTheProxyIsHeldToTheServicesLimits(t *testing.T) {
	c := Allowed{Memory: 512, Packages: true, Index: "https://packages.example.com/simple"}.Proxy()
	if want := (Flags{Memory: 512}).Limits(); c.Limits != want {
		t.Errorf("the limits are %+v, want %+v", c.Limits, want)
	}
	if err := c.Install([]string{"-c", "print(1)"}); err == nil {
		t.Error("any program is an installation")
	}
	c = Allowed{}.Proxy()
	if err := c.Install(nil); err == nil || !strings.Contains(err.Error(), "SKANDHA_SANDBOX_PACKAGES") {
		t.Errorf("without packages: %v", err)
	}
	if err := (deps.Config{}).Recognize(nil); err == nil {
		t.Error("nothing is an installation")
	}
}
