//go:build linux

package bwrap

import (
	"os/exec"
	"testing"

	"skandha.dev/services/sandbox/driver"
)

// BenchmarkColdStart measures the time from Start to the first line of Python, for
// comparison with BenchmarkBarePython, the same on the host.
func BenchmarkColdStart(b *testing.B) {
	d, err := New(Config{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	if _, err := d.Report(b.Context()); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		x, err := d.Start(b.Context(),
			driver.Spec{Name: newName(), Args: []string{"-I", "-S", "-c", "print(1, flush=True)\ninput()"}})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := readLine(x); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := x.Destroy(b.Context()); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}

func BenchmarkBarePython(b *testing.B) {
	for b.Loop() {
		if err := exec.CommandContext(b.Context(), "/usr/bin/python3", "-c", "print(1)").Run(); err != nil {
			b.Fatal(err)
		}
	}
}
