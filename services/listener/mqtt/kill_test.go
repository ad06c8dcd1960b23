package mqtt_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"skandha.dev/pkg/bus"
	"skandha.dev/services/internal/journal"
	"skandha.dev/services/internal/mqttclient"
	"skandha.dev/services/listener"
	"skandha.dev/services/test/listenertest"
	"skandha.dev/services/test/mosquittotest"
	"skandha.dev/services/test/natstest"
)

// The test's binary is also the listener that tests kill.
const asListener, busURL = "SKANDHA_TEST_AS_LISTENER", "SKANDHA_TEST_BUS"

func TestMain(m *testing.M) {
	if file := os.Getenv(asListener); file != "" {
		if err := serve(context.Background(), file, os.Getenv(busURL)); err != nil {
			slog.Error("the listener ended", "error", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func serve(ctx context.Context, file, url string) error {
	cfg, err := listener.ReadConfig(file)
	if err != nil {
		return err
	}
	b, err := journal.Connect(ctx, bus.Config{URL: url, Logger: slog.Default()})
	if err != nil {
		return err
	}
	l, err := listener.New(cfg, listener.Options{}, listener.Deps{Bus: b})
	if err != nil {
		return err
	}
	return l.Run(ctx)
}

// process is a listener in a separate process.
type process struct {
	t    *testing.T
	file string
	url  string
	cmd  *exec.Cmd
}

func (p *process) start() {
	p.t.Helper()
	exe, err := os.Executable()
	if err != nil {
		p.t.Fatal(err)
	}
	p.cmd = exec.CommandContext(p.t.Context(), exe)
	p.cmd.Env = append(os.Environ(), asListener+"="+p.file, busURL+"="+p.url)
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill() // fails only if it has ended by itself
	_ = p.cmd.Wait()
}

// What a broker has acknowledged to a device is one input, whatever is killed meanwhile.
func TestNothingAcknowledgedIsLostOrDoubled(t *testing.T) {
	broker := mosquittotest.Start(t)
	server := natstest.Start(t, natstest.WithTCP())
	b := natstest.Connect(t, server)
	natstest.EnsureStreams(t, b)
	file := filepath.Join(t.TempDir(), "skandha.yaml")
	config := fmt.Sprintf("mqtt: {real: {url: 'mqtt://127.0.0.1:%d'}}\n"+
		"listeners: {mqtt: {house: {topics: {all: {topic: 'house/#', session: %s, text_template: '{{.text}}'}},"+
		" home_assistant: {session: shown}}}}\n", broker.Port, listenertest.Ref.Session)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	l := &process{t: t, file: file, url: server.ClientURL()}
	l.start()
	defer func() { l.kill() }()

	ctx := natstest.Context(t)
	device := func() *mqttclient.Conn {
		c, err := broker.Client().Dial(ctx, mqttclient.Options{ClientID: "device", Clean: true})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	var acknowledged []string
	publish := func(c *mqttclient.Conn, n int) {
		for range n {
			text := fmt.Sprintf("message %04d", len(acknowledged))
			m := mqttclient.Message{Topic: fmt.Sprintf("house/%d", len(acknowledged)%7), Payload: []byte(text), QoS: 1}
			if err := c.Publish(ctx, m); err != nil {
				t.Fatal(err)
			}
			acknowledged = append(acknowledged, text)
		}
	}
	stored := func() int { return len(listenertest.Log(t, b, listenertest.Ref)) }
	// The broker holds messages only once the listener has subscribed.
	c := device()
	natstest.Eventually(t, "the listener receives", func() bool {
		err := c.Publish(ctx, mqttclient.Message{Topic: "house/first", Payload: []byte("first"), QoS: 1})
		return err == nil && stored() > 0
	})
	before := stored()
	for range 8 { // killed at any point of its work
		publish(c, 40)
		l.kill()
		publish(c, 5)
		l.start()
	}
	l.kill()
	publish(c, 30)
	natstest.Eventually(t, "the broker has stored", func() bool { return broker.Stores(acknowledged[len(acknowledged)-1]) })
	broker.Kill()
	broker.Run()
	l.start()
	c = device()
	publish(c, 30)
	natstest.Eventually(t, "all are stored", func() bool { return stored() >= before+len(acknowledged) })
	// An input that is emitted again has the same id, and is in the log once. What comes last
	// shows that nothing else is under way.
	publish(c, 1)
	last := acknowledged[len(acknowledged)-1]
	var got []string
	natstest.Eventually(t, "the last one is stored", func() bool {
		got = nil
		for _, in := range listenertest.Log(t, b, listenertest.Ref) {
			if in.Text != "first" {
				got = append(got, in.Text)
			}
		}
		return slices.Contains(got, last)
	})
	// The broker says that the device is away when its process is killed.
	status := make(chan mqttclient.Message, 16)
	watch, err := broker.Client().Dial(ctx, mqttclient.Options{
		ClientID: "watch", Clean: true, Receive: func(m mqttclient.Message) { status <- m },
	})
	if err == nil {
		err = watch.Subscribe(ctx, map[string]byte{"skandha/house/status": 1})
	}
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Close(0)
	l.kill()
	for m := (mqttclient.Message{}); string(m.Payload) != "offline"; {
		select {
		case m = <-status:
		case <-ctx.Done():
			t.Fatal("the device is not unavailable")
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, acknowledged) {
		t.Errorf("%d inputs for %d messages", len(got), len(acknowledged))
		for _, text := range acknowledged {
			if n := len(slices.Collect(func(yield func(string) bool) {
				for _, g := range got {
					if g == text && !yield(g) {
						return
					}
				}
			})); n != 1 {
				t.Errorf("%q is %d inputs", text, n)
			}
		}
	}
}
