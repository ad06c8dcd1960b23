package docker

import (
	"fmt"
	"io"
	"sync"
	"testing"

	"skandha.dev/services/sandbox/driver"
	"skandha.dev/services/test/enginetest"
)

// first is a first process that reports that it runs, and waits.
const first = "import sys; print('x', end='', flush=True); sys.stdin.read()"

func (r *rig) once(b *testing.B, name string) {
	sandbox, err := r.Start(b.Context(), driver.Spec{Name: name, Args: []string{"-c", first}})
	if err == nil {
		_, err = io.ReadFull(sandbox, make([]byte, 1))
	}
	if err != nil {
		b.Error(err)
		return
	}
	b.StopTimer()
	if err := sandbox.Destroy(b.Context()); err != nil {
		b.Error(err)
	}
	b.StartTimer()
}

// From a start to an interpreter that has answered, and for comparison the equivalent
// docker run.
func BenchmarkStart(b *testing.B) {
	r := newRig(b)
	if _, err := r.Report(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.Run("sandbox", func(b *testing.B) {
		for i := range b.N {
			r.once(b, fmt.Sprint("b", i))
		}
	})
	b.Run("docker-run", func(b *testing.B) {
		for range b.N {
			r.engine.Docker(b, "run", "--rm", "--network", "none", r.image, "python3", "-c", "print(1)")
		}
	})
}

func BenchmarkDestroy(b *testing.B) {
	r := newRig(b)
	for i := range b.N {
		b.StopTimer()
		sandbox, err := r.Start(b.Context(), driver.Spec{Name: fmt.Sprint("b", i), Args: []string{"-c", first}})
		if err == nil {
			_, err = io.ReadFull(sandbox, make([]byte, 1))
		}
		if err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		if err := sandbox.Destroy(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

// Sandboxes are started, called and destroyed, several at a time.
func BenchmarkRate(b *testing.B) {
	r := newRig(b)
	if _, err := r.Report(b.Context()); err != nil {
		b.Fatal(err)
	}
	for _, at := range []int{1, 2, 4, 8} {
		b.Run(fmt.Sprint(at, "-at-once"), func(b *testing.B) {
			todo := make(chan int)
			var all sync.WaitGroup
			for range at {
				all.Go(func() {
					for i := range todo {
						sandbox, err := r.Start(b.Context(), driver.Spec{Name: fmt.Sprint("b", i), Args: []string{"-c", first}})
						if err == nil {
							_, err = io.ReadFull(sandbox, make([]byte, 1))
						}
						if err == nil {
							err = sandbox.Destroy(b.Context())
						}
						if err != nil {
							b.Error(err)
						}
					}
				})
			}
			for i := range b.N {
				todo <- i
			}
			close(todo)
			all.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "sandboxes/s")
		})
	}
}

// The cost of an empty test engine, with the image in the cache.
func BenchmarkEngine(b *testing.B) {
	for range b.N {
		e := enginetest.Start(b)
		enginetest.SandboxImage(b, e)
	}
}
