package conformance_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/plugin"
)

// The plugins that the suite is tested with are this test binary, selected by a variable
// which of them to be.
const roleVariable = "CONFORMANCE_TEST_PLUGIN"

func TestMain(m *testing.M) {
	role := os.Getenv(roleVariable)
	switch role {
	case "":
		os.Exit(m.Run())
	case "sdk":
		sdkPlugin()
	case "empty index":
		plugin.Main(plugin.Manifest{Name: "empty", Version: "1.0.0"},
			plugin.Handlers{plugin.StorageBackend{Index: emptyIndex{}}})
	default:
		plain(role)
	}
}

// base is a plugin written with the NATS client alone, as one would in a language
// without an SDK. It has one fault, or none ("good").
type base struct {
	fault    string
	nc       *nats.Conn
	instance string

	asked atomic.Int64  // questions so far
	back  chan struct{} // the connection was made anew

	mu      sync.Mutex
	kept    map[string][]byte // answers, by what they answer
	stored  map[string]json.RawMessage
	counter int
	gone    chan struct{} // closed when it is to end
	running sync.WaitGroup
}

func plain(fault string) {
	b := &base{
		fault: fault, instance: string(bus.NewInstance("plain")), kept: map[string][]byte{},
		stored: map[string]json.RawMessage{}, gone: make(chan struct{}), back: make(chan struct{}, 1),
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the next one kills
	if fault == "constant instance" {
		b.instance = "always-the-same"
	}
	if fault == "deaf to SIGTERM" {
		signal.Ignore(syscall.SIGTERM)
		ctx = context.Background()
	}
	if fault == "never connects" {
		<-ctx.Done()
		return
	}
	reconnects := -1
	if fault == "does not reconnect" || fault == "ends with the bus" {
		reconnects = 0
	}
	nc, err := nats.Connect(os.Getenv("SKANDHA_NATS"), nats.MaxReconnects(reconnects), nats.RetryOnFailedConnect(true),
		nats.ReconnectWait(100*time.Millisecond), nats.ReconnectHandler(func(*nats.Conn) {
			if fault == "forgets with the bus" {
				b.mu.Lock()
				clear(b.kept)
				b.mu.Unlock()
			}
			select {
			case b.back <- struct{}{}:
			default:
			}
		}), nats.ClosedHandler(func(*nats.Conn) {
			if fault == "ends with the bus" && ctx.Err() == nil {
				os.Exit(3)
			}
		}))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	b.nc = nc
	b.subscribe()
	b.live(ctx)
}

const manifest = `{
  "name": "plain", "version": "1.2.3", "instance": "%s",
  "hooks": [
    {"point": "before_act", "deadline_ms": 30000}, {"point": "before_sense", "deadline_ms": 30000},
    {"point": "after_sense", "deadline_ms": 30000}, {"point": "after_reflect", "deadline_ms": 30000}
  ],
  "tools": [{
    "name": "plain:add", "description": "Adds.", "timeout_ms": 60000,
    "args": {"type": "object", "required": ["a"], "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "additionalProperties": false}
  }],
  "providers": [{"name": "parrot", "model": "p1"}],
  "storage": {"verbs": ["put", "get", "delete", "search"]},
  "guides": ["teacher"],
  "listeners": [{"name": "plain-ear"}]
}`

func (b *base) manifest() string {
	m := fmt.Sprintf(manifest, b.instance)
	switch b.fault {
	case "bad manifest":
		m = strings.Replace(m, `"1.2.3"`, `"one"`, 1)
		m = strings.Replace(m, `"deadline_ms": 30000`, `"deadline_ms": 90000`, 1)
	case "bad schema":
		m = strings.Replace(m, `"type": "integer"`, `"type": "whole"`, 1)
	case "unknown field":
		m = strings.Replace(m, `"guides"`, `"colour": "red", "guides"`, 1)
	case "name of another":
		m = strings.Replace(m, `plain:add`, `math:evaluate`, 1)
	case "late":
		m = strings.Replace(m, `"deadline_ms": 30000`, `"deadline_ms": 3000`, 1)
	case "silent":
		m = strings.Replace(m, `"deadline_ms": 30000`, `"deadline_ms": 1000`, 1)
	case "garbage stuns hooks": // an answer will be waited for in vain
		m = strings.Replace(m, `"before_sense", "deadline_ms": 30000`, `"before_sense", "deadline_ms": 2000`, 1)
	case "slow tool", "tool not answered":
		m = strings.Replace(m, `"timeout_ms": 60000`, `"timeout_ms": 2000`, 1)
	}
	return m
}

// ask asks the registry, with an answer on the subject that core accepts.
func (b *base) ask(verb, body string) (*nats.Msg, error) {
	b.mu.Lock()
	b.counter++
	reply := fmt.Sprintf("reply.plain.core.%s.%d", b.instance, b.counter)
	b.mu.Unlock()
	if b.fault == "answers to an inbox" {
		reply = b.nc.NewRespInbox()
	}
	sub, err := b.nc.SubscribeSync(reply)
	if err != nil {
		return nil, err
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := b.nc.PublishRequest("plugin."+verb+".plain", reply, []byte(body)); err != nil {
		return nil, err
	}
	return sub.NextMsg(5 * time.Second)
}

type lease struct {
	TTLMS int64  `json:"ttl_ms"`
	Hash  string `json:"hash"`
	State string `json:"state"`
}

// live registers and keeps the lease.
func (b *base) live(ctx context.Context) {
	var l lease
	registered := false
	quiet, asked := 0, int64(0)
	for {
		next := 100 * time.Millisecond
		if !registered {
			m, err := b.ask("register", b.manifest())
			if err == nil && m.Header.Get("Skandha-Error") == "" && json.Unmarshal(m.Data, &l) == nil {
				registered, next = true, b.third(l)
			}
		} else if b.fault != "no heartbeats" {
			m, err := b.ask("heartbeat", b.heartbeat(l))
			switch {
			case err != nil:
			case m.Header.Get("Skandha-Error") == "not_found":
				registered = false
			default:
				next = b.third(l)
				if quiet++; b.asked.Load() != asked {
					quiet, asked = 0, b.asked.Load()
				}
				if b.fault == "ends by itself" && quiet == 2 {
					b.endOnce()
				}
			}
		}
		select {
		case <-b.back: // at once
		case <-ctx.Done():
			b.leave()
			return
		case <-time.After(next):
		}
	}
}

// endOnce ends the process, unless one has ended before.
func (b *base) endOnce() {
	once := os.Getenv("CONFORMANCE_TEST_ONCE")
	if _, err := os.Stat(once); err != nil {
		_ = os.WriteFile(once, nil, 0o600)
		fmt.Fprintln(os.Stderr, "I have had enough")
		os.Exit(7)
	}
}

func (b *base) third(l lease) time.Duration {
	if b.fault == "slow heartbeats" {
		return time.Duration(l.TTLMS) * time.Millisecond * 9 / 10
	}
	return time.Duration(l.TTLMS) * time.Millisecond / 3
}

func (b *base) heartbeat(l lease) string {
	if b.fault == "heartbeat of another" {
		return fmt.Sprintf(`{"instance": %q, "hash": %q}`, b.instance+"x", l.Hash)
	}
	return fmt.Sprintf(`{"instance": %q, "hash": %q}`, b.instance, l.Hash)
}

// leave drains and goes.
func (b *base) leave() {
	if b.fault == "leaves silently" {
		return
	}
	body := fmt.Sprintf(`{"instance": %q}`, b.instance)
	if b.fault == "unregisters another" {
		body = `{"instance": "somebody"}`
	}
	_, _ = b.ask("unregister", body)
	close(b.gone)
	b.running.Wait()
	_, _ = b.ask("unregister", body)
	_ = b.nc.Drain()
	if b.fault == "bad status" {
		os.Exit(4)
	}
}

func (b *base) subscribe() {
	subjects := []string{
		"hook.before_act.plain", "hook.before_sense.plain", "hook.after_sense.plain", "hook.after_reflect.plain",
		"tool.plain.plain--add",
		"llm.plain.generate", "storage.plain.put", "storage.plain.get", "storage.plain.delete", "storage.plain.search",
		"guide.plain",
	}
	switch b.fault {
	case "hook not answered":
		subjects = slices.Delete(subjects, 0, 1)
	case "tool not answered":
		subjects = slices.Delete(subjects, 4, 5)
	case "overhears":
		_, _ = b.nc.Subscribe("hook.before_plan.*", func(*nats.Msg) {})
	}
	queue := "plain"
	if b.fault == "no queue group" {
		queue = ""
	}
	for _, subj := range subjects {
		if _, err := b.nc.QueueSubscribe(subj, queue, func(m *nats.Msg) {
			b.asked.Add(1)
			if strings.HasPrefix(b.fault, "garbage ") { // is dealt with before what comes after it
				b.take(m)
				return
			}
			b.running.Go(func() { b.take(m) })
		}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	if b.fault == "" || b.fault == "good" || b.fault == "forgets with the bus" {
		if _, err := b.nc.Subscribe("tool.plain.plain--add."+b.instance,
			func(m *nats.Msg) { b.running.Go(func() { b.take(m) }) }); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	_ = b.nc.Flush()
}

func (b *base) take(m *nats.Msg) {
	select {
	case <-b.gone:
		return
	case <-time.After(b.delay(m.Subject)):
	}
	answer, bad := b.answer(m)
	reply := &nats.Msg{Subject: m.Reply, Data: answer}
	if bad != "" {
		reply.Header = nats.Header{"Skandha-Error": {bad}}
		reply.Data = []byte(fmt.Sprintf(`{"code": %q, "message": "no", "retryable": false}`, bad))
	}
	_ = b.nc.PublishMsg(reply)
	isHook := strings.HasPrefix(m.Subject, "hook.")
	switch {
	case b.fault == "answers twice" && isHook:
		_ = b.nc.PublishMsg(reply)
	case b.fault == "answers others" && isHook:
		_ = b.nc.Publish("reply.somebody.core.somebody-1.1", []byte("{}"))
	case b.fault == "speaks as core" && isHook:
		_ = b.nc.Publish("agent.main.x.ui.message", []byte("{}"))
	case b.fault == "speaks undeclared" && isHook:
		_ = b.nc.Publish("agent.main.x.sense.cancel.somebody", []byte(`{"sequence":1}`))
	case b.fault == "says nonsense" && strings.HasPrefix(m.Subject, "guide."):
		_ = b.nc.PublishRequest("agent.main.x.sense.input.plain-ear", b.nc.NewRespInbox(), []byte(`{"text": 7}`))
	}
}

// once gives the answer that it has given under a key.
func (b *base) once(key string, work func() []byte) []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	a, had := b.kept[key]
	if !had || b.fault == "forgets hooks" && strings.HasPrefix(key, "hook") ||
		b.fault == "runs twice" && strings.HasPrefix(key, "tool") {
		a = work()
		b.kept[key] = a
	}
	return a
}
