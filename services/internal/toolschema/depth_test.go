package toolschema_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/toolschema"
)

const recursive = `{"type":"object","properties":{"c":{"$ref":"#"},"l":{"type":"array","items":{"type":"string"}}},"additionalProperties":false}`

// nested returns objects inside each other, levels deep.
func nested(levels int) json.RawMessage {
	return json.RawMessage(strings.Repeat(`{"c":`, levels-1) + "{}" + strings.Repeat("}", levels-1))
}

func TestArgumentsThatNestTooDeepAreNotValidated(t *testing.T) {
	v := compile(t, recursive)
	for levels, want := range map[int][]string{
		toolschema.MaxDepth: nil,
		toolschema.MaxDepth + 1: {
			fmt.Sprintf("(root): the arguments are nested %d levels deep, at most %d are allowed", toolschema.MaxDepth+1,
				toolschema.MaxDepth),
		},
		9000: {
			fmt.Sprintf("(root): the arguments are nested 9000 levels deep, at most %d are allowed", toolschema.MaxDepth),
		},
	} {
		if _, errs := v.Validate(nested(levels)); !slices.Equal(errs, want) {
			t.Errorf("%d levels: got %q, want %q", levels, errs, want)
		}
	}
}

func TestASchemaThatNestsTooDeepIsRefused(t *testing.T) {
	const levels = 1000
	args := strings.Repeat(`{"properties":{"a":`, levels) + `{"type":"string"}` + strings.Repeat("}}", levels)
	_, err := toolschema.Compile(tool.Spec{Name: "t:x", Args: json.RawMessage(args)})
	if want := fmt.Sprintf("nested 2001 levels deep, at most %d are allowed",
		2*toolschema.MaxDepth); !errors.Is(err, toolschema.ErrSchema) || !strings.Contains(err.Error(), want) {
		t.Fatalf("got %v, want %q", err, want)
	}
}

// A path is written for values that do not fit, not for all of them.
func TestALongNameIsNotWrittenForEachValueBelowIt(t *testing.T) {
	v := compile(t, recursive)
	args := json.RawMessage(`{"` + strings.Repeat("k", 100<<10) + `":[` + strings.Repeat("1,", 50_000) + `1]}`)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	v.Validate(args)
	runtime.ReadMemStats(&after)
	if mb := (after.TotalAlloc - before.TotalAlloc) >> 20; mb > 100 {
		t.Errorf("%d KB of arguments allocated %d MB", len(args)>>10, mb)
	}
}
