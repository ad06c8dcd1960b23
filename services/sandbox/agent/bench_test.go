package agent_test

import (
	"os/exec"
	"testing"
	"time"
)

// BenchmarkWarm measures a call in a started sandbox and, in the same run, the interpreter
// on the host. The pause puts the agent into the state in which a call finds it that does
// not follow another immediately.
func BenchmarkWarm(b *testing.B) {
	x := start(b)
	x.works(b)
	<-time.After(200 * time.Millisecond)
	var ours, bare time.Duration
	for b.Loop() {
		<-time.After(5 * time.Millisecond)
		at := time.Now()
		x.python(b, "print(1)")
		ours += time.Since(at)
		at = time.Now()
		if err := exec.Command(interpreter(), "-c", "print(1)").Run(); err != nil {
			b.Fatal(err)
		}
		bare += time.Since(at)
	}
	report(b, ours, bare)
}

// BenchmarkBackToBack measures a call that follows another immediately.
func BenchmarkBackToBack(b *testing.B) {
	x := start(b)
	x.works(b)
	for b.Loop() {
		x.python(b, "print(1)")
	}
}

// BenchmarkFile measures reading a small file.
func BenchmarkFile(b *testing.B) {
	x := start(b)
	x.write(b, "f", "text")
	<-time.After(200 * time.Millisecond)
	for b.Loop() {
		x.read(b, "f")
	}
}

// BenchmarkCold measures the time from starting an interpreter to a result, once the agent
// has been compiled, and bare interpreters for comparison.
func BenchmarkCold(b *testing.B) {
	start(b)
	var ready, ours, bare, least time.Duration
	n := 0
	for b.Loop() {
		at := time.Now()
		x := start(b)
		ready += time.Since(at)
		x.python(b, "print(1)")
		ours += time.Since(at)
		x.end(b)
		at = time.Now()
		if err := exec.Command(interpreter(), "-c", "print(1)").Run(); err != nil {
			b.Fatal(err)
		}
		bare += time.Since(at)
		at = time.Now()
		if err := exec.Command(interpreter(), "-I", "-S", "-c", "pass").Run(); err != nil {
			b.Fatal(err)
		}
		least += time.Since(at)
		n++
	}
	b.ReportMetric(float64(ready-least)/float64(n)/1e6, "ms-ready-after-bare-IS")
	report(b, ours, bare)
}

func report(b *testing.B, ours, bare time.Duration) {
	b.Helper()
	n := float64(b.N) * 1e6
	b.ReportMetric(float64(ours)/n, "ms-ours")
	b.ReportMetric(float64(bare)/n, "ms-bare")
	b.ReportMetric(float64(ours)/float64(bare), "ratio")
}
