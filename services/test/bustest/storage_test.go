package bustest

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/natsserver"
	"skandha.dev/services/test/natstest"
)

// If a server has too low limits, the error names the setting to change.
func TestAServerWithTooLittleRoomIsToldOf(t *testing.T) {
	for room, what := range map[int64]string{
		1 << 30:  "stream SESSIONS: JetStream has fewer than the 8192 MiB left",
		11 << 30: "stream KV_files: JetStream has fewer than the 4096 MiB left",
		15 << 30: "bucket claims: JetStream has fewer than the 4096 MiB left",
	} {
		s := natstest.Start(t, natstest.WithConfig(func(c *natsserver.Config) { c.MaxStore = room }))
		b := natstest.Dial(t, bus.Config{InProcess: s, Token: s.Token()})
		err := b.EnsureStreams(natstest.Context(t), journal.StreamsConfig{})
		if err == nil || !strings.Contains(err.Error(), "creating "+what) ||
			!strings.Contains(err.Error(), "max_file_store") {
			t.Errorf("with %d MiB: %v", room>>20, err)
		}
	}
}

// fill stores inputs until one is not stored, and returns how many were and why it was not.
func fill(t *testing.T, b *journal.Journal, size int) (stored []uint64, err error) {
	t.Helper()
	for range 2000 {
		seq, err := b.PublishCause(natstest.Context(t), ref("full"), subject.Input, "w", "", make([]byte, size))
		if err != nil {
			return stored, err
		}
		stored = append(stored, seq)
	}
	t.Fatal("there is still room")
	return nil, nil
}

func isFault(err error, says string) bool {
	var f *bus.StorageFault
	return errors.As(err, &f) && strings.Contains(f.Reason, says)
}

// nats-server does not answer appends to a full disk. Even when there is space again
// it stays silent until it is restarted: by an operator, or by this process if it runs
// the server.
func TestAFullDiskIsNamedAndPasses(t *testing.T) {
	for _, heal := range []bool{false, true} {
		t.Run(fmt.Sprintf("heal=%v", heal), func(t *testing.T) {
			t.Parallel()
			disk := natstest.SmallDisk(t, 24)
			s := natstest.Start(t, natstest.WithConfig(func(c *natsserver.Config) {
				c.StoreDir, c.Sync, c.Heal = disk.Dir, natsserver.Always, heal
			}))
			b, silent := natstest.Connect(t, s), natstest.Connect(t, s)
			stored, err := fill(t, b, 150_000)
			if !errors.Is(err, bus.ErrAmbiguous) || !isFault(err, "no space left on device") || !isFault(err, "restart") ||
				isFault(err, disk.Dir) {
				t.Fatalf("the input that fills the disk: %v", err)
			}
			_, err = b.PublishCause(natstest.Context(t), ref("full"), subject.Input, "w", "", []byte("x"))
			if !errors.Is(err, bus.ErrRefused) || errors.Is(err, bus.ErrAmbiguous) || !isFault(err, "no space left on device") {
				t.Fatalf("the next one: %v", err)
			}
			if silent.StorageFault() != nil {
				t.Error("a process that stores nothing knows more than cores say")
			}
			disk.Resize(200)
			if !heal {
				if _, err := b.PublishCause(natstest.Context(t), ref("full"), subject.Input, "w", "", []byte("x")); !isFault(err,
					"no space left on device") {
					t.Errorf("there is room, and the server was not restarted: %v", err)
				}
				if err := s.Restart(0); err != nil {
					t.Fatal(err)
				}
			}
			natstest.Eventually(t, "the bus stores again", func() bool { return b.StorageFault() == nil })
			if _, err := b.PublishCause(natstest.Context(t), ref("full"), subject.Input, "w", "",
				make([]byte, 150_000)); err != nil {
				t.Error(err)
			}
			for _, seq := range stored {
				if _, err := b.Message(natstest.Context(t), seq); err != nil {
					t.Fatalf("message %d was acknowledged: %v", seq, err)
				}
			}
		})
	}
}

func TestAFullStreamIsNamedAndPasses(t *testing.T) {
	b := natstest.Dial(t, bus.Config{InProcess: natstest.Start(t)})
	limited := func(bytes int64) {
		t.Helper()
		if err := b.EnsureStreams(natstest.Context(t), journal.StreamsConfig{MaxBytes: bytes}); err != nil {
			t.Fatal(err)
		}
	}
	limited(1 << 20)
	if _, err := fill(t, b, 100_000); !errors.Is(err, bus.ErrRefused) || !isFault(err, "maximum bytes exceeded") {
		t.Fatal(err)
	}
	if f := b.StorageFault(); f == nil || f.Since.IsZero() {
		t.Fatalf("the fault is not known: %+v", f)
	}
	limited(64 << 20)
	natstest.Eventually(t, "the bus stores again", func() bool { return b.StorageFault() == nil })
	if _, err := b.PublishCause(natstest.Context(t), ref("full"), subject.Input, "w", "",
		make([]byte, 100_000)); err != nil {
		t.Error(err)
	}
}

// Beacons of cores apply to inputs only, and only while they are repeated.
func TestBeaconsRefuseInputs(t *testing.T) {
	s := natstest.Start(t)
	core, edge := natstest.Connect(t, s), natstest.Connect(t, s)
	store := func(kind subject.CauseKind) error {
		_, err := edge.PublishCause(natstest.Context(t), ref("one"), kind, "w", "", []byte("x"))
		return err
	}
	if err := store(subject.Input); err != nil {
		t.Fatalf("no core is there: %v", err)
	}
	if err := edge.Conn().Flush(); err != nil { // the subscription is active now
		t.Fatal(err)
	}
	say := func(is bus.Beacon) {
		t.Helper()
		if err := core.PublishBeacon(natstest.Context(t), is); err != nil {
			t.Fatal(err)
		}
	}
	say(bus.Beacon{Backlog: 10, Limit: 10})
	natstest.Eventually(t, "an input is refused", func() bool { return store(subject.Input) != nil })
	err := store(subject.Input)
	if !errors.Is(err, bus.ErrOverloaded) || !bus.Retryable(err) || !strings.Contains(err.Error(), "10 inputs wait") {
		t.Errorf("%v", err)
	}
	for _, kind := range []subject.CauseKind{subject.Confirmation, subject.Cancel, subject.Command, subject.Timer} {
		if err := store(kind); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
	say(bus.Beacon{Backlog: 9, Limit: 10})
	natstest.Eventually(t, "inputs are taken again", func() bool { return store(subject.Input) == nil })
	say(bus.Beacon{Storage: &bus.StorageFault{Reason: "it is tired"}})
	natstest.Eventually(t, "the fault is heard of", func() bool { return edge.StorageFault() != nil })
	if err := store(subject.Input); !isFault(err, "it is tired") || !errors.Is(err, bus.ErrRefused) {
		t.Errorf("%v", err)
	}
	natstest.Eventually(t, "a core that is gone says nothing any more", func() bool { return store(subject.Input) == nil })
}

// A beacon that no core sends stops no input and is logged once.
func TestInvalidBeaconsAreDropped(t *testing.T) {
	s := natstest.Start(t)
	dropped := lines{with: "dropping an invalid beacon"}
	core := natstest.Connect(t, s)
	edge := natstest.Dial(t,
		bus.Config{InProcess: s, Token: s.Token(), Logger: slog.New(slog.NewTextHandler(&dropped, nil))})
	heard := make(chan []bus.Beacon, 64)
	edge.FollowBeacons(func(all []bus.Beacon) { heard <- all })
	if err := edge.Conn().Flush(); err != nil {
		t.Fatal(err)
	}
	const from = "core-0123456789abcdef"
	many := strings.Repeat(`{"kind":"runner","sessions":1},`, bus.MaxWaiting)
	for _, body := range []string{
		`{"instance":"` + from + `","storage":{}}`,
		`{"instance":"` + from + `","storage":{"reason":" ","since":"2026-01-01T00:00:00Z"}}`,
		`{"instance":"` + from + `","storage":{"reason":"full","since":"9026-01-01T00:00:00Z"}}`,
		`{"instance":"` + from + `","storage":{"reason":"` + strings.Repeat("x", 5000) + `","since":"2026-01-01T00:00:00Z"}}`,
		`{"storage":{"reason":"full","since":"2026-01-01T00:00:00Z"}}`,
		`{"instance":"core-other","storage":{"reason":"full","since":"2026-01-01T00:00:00Z"}}`,
		`{"instance":"` + from + `","backlog":-1}`,
		`{"instance":"` + from + `","backlog":18446744073709551615,"limit":1}`,
		`{"instance":"` + from + `","backlog":7,"limit":-1}`,
		`{"instance":"` + from + `","waiting":[` + many + `{"kind":"runner","sessions":1}]}`,
		`{"instance":"` + from + `","waiting":[{"kind":"runner","sessions":-5}]}`,
		`{"instance":"` + from + `","waiting":[{"kind":"dragon","sessions":1}]}`,
		`{"instance":"` + from + `","waiting":[{"kind":"runner","name":"` + strings.Repeat("x", 300) + `","sessions":1}]}`,
		`[]`, ``, `{`,
	} {
		if err := core.Publish(natstest.Context(t), subject.Beacon(from), nil, []byte(body)); err != nil {
			t.Fatal(err)
		}
	}
	if err := core.PublishBeacon(natstest.Context(t),
		bus.Beacon{
			Backlog: 1, Limit: 2, Waiting: []bus.Waiting{{Kind: subject.Runner, Name: "fs:read", Sessions: 3}},
		}); err != nil {
		t.Fatal(err)
	}
	if all := <-heard; len(all) != 1 || all[0].Instance != core.Instance() {
		t.Errorf("an invalid beacon was heard: %+v", all)
	}
	if f := edge.StorageFault(); f != nil {
		t.Errorf("a beacon without a reason is a fault: %v", f)
	}
	cause(t, edge, ref("one"), "id", "hello")
	if n := strings.Count(dropped.String(), "\n"); n != 1 {
		t.Errorf("logged %d times: %s", n, dropped.String())
	}
}
