package main

import (
	"runtime"
	"strings"
	"testing"
)

func TestDoctorNamesAnOldToolchain(t *testing.T) {
	for built, ok := range map[string]bool{
		"go1.26.4": false, "go1.26rc1": false, "go1.25.12": false,
		"go1.26.5": true, "go1.26.8": true, "go1.27": true, "go1.26.8 X:jsonv2": true, "devel go1.28-abcdef": true,
		runtime.Version(): true,
	} {
		f := goFinding(built)
		if f.ok != ok || !f.need || !ok && !strings.Contains(f.advice, "build with go1.26.5") {
			t.Errorf("%s: %+v", built, f)
		}
	}
}
