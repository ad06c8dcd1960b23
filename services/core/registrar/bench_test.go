package registrar_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/core/registrar"
)

// A registration while 200 other plugins are there: two fenced writes, one after
// the other over all cores.
func BenchmarkRegister(b *testing.B) {
	w := newWorld(b, 2, registrar.Config{})
	for i := range 200 {
		if _, err := w.register(m(fmt.Sprintf("p%d", i)), "i"); err != nil {
			b.Fatal(err)
		}
	}
	var n atomic.Int64
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := w.register(m("replica"), subject.Instance(fmt.Sprintf("i%d", n.Add(1)%50))); err != nil {
				b.Error(err)
			}
		}
	})
}

func BenchmarkHeartbeat(b *testing.B) {
	w := newWorld(b, 2, registrar.Config{})
	for i := range 50 {
		if _, err := w.register(m("a"), subject.Instance(fmt.Sprintf("i%d", i))); err != nil {
			b.Fatal(err)
		}
	}
	var n atomic.Int64
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := w.heartbeat(m("a"), subject.Instance(fmt.Sprintf("i%d", n.Add(1)%50))); err != nil {
				b.Error(err)
			}
		}
	})
}

// New manifests contend for the fence.
func BenchmarkRegisterNew(b *testing.B) {
	w := newWorld(b, 2, registrar.Config{})
	var n atomic.Int64
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			one := m(fmt.Sprintf("p%d", n.Add(1)))
			if _, err := w.register(one, "i"); err != nil {
				b.Error(err)
			}
			for range 2 {
				if _, err := w.unregister(one, "i", false); err != nil {
					b.Error(err)
				}
			}
		}
	})
}
