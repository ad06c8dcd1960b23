package rightstest

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"skandha.dev/services/internal/rights"
)

// values are what the tests put in place of the parameters of addresses: of the identity itself, and
// of others.
func values(name, process string) map[string][]string {
	return map[string][]string{
		"agent": {"main", "other"}, "session": {"s1", "s2"}, "plugin": {name, "victim"}, "writer": {name, "victim", "schedule"},
		"instance": {process, "victim-1"}, "caller": {name, "victim", "core"}, "responder": {name, process, "victim", "core"},
		"kind": {"runner", "provider"}, "point": {"before_act", "after_act"}, "person": {"ann"}, "phase": {"ui", "session"},
	}
}

// subjects are those of all channels, with the values, and what JetStream and the server have.
func subjects(name, process string) []string {
	all := map[string]bool{}
	for _, address := range rights.Declared().Channels {
		filled := []string{address}
		for param, list := range values(name, process) {
			var next []string
			for _, a := range filled {
				if !strings.Contains(a, "{"+param+"}") {
					next = append(next, a)
					continue
				}
				for _, v := range list {
					next = append(next, strings.ReplaceAll(a, "{"+param+"}", v))
				}
			}
			filled = next
		}
		for _, s := range filled {
			for strings.Contains(s, "{") {
				from, to := strings.Index(s, "{"), strings.Index(s, "}")
				s = s[:from] + "x" + s[to+1:]
			}
			all[s] = true
		}
	}
	for _, stream := range []string{"SESSIONS", "TIMERS", "DEAD", "AUDIT", "CRON", "KV_plugins", "KV_identities", "OBJ_claims"} {
		for _, verb := range []string{
			"STREAM.CREATE", "STREAM.UPDATE", "STREAM.DELETE", "STREAM.PURGE", "STREAM.INFO", "STREAM.MSG.GET",
			"STREAM.MSG.DELETE", "DIRECT.GET", "STREAM.SNAPSHOT", "STREAM.RESTORE",
		} {
			all["$JS.API."+verb+"."+stream] = true
		}
		for _, verb := range []string{"CONSUMER.CREATE", "CONSUMER.DELETE", "CONSUMER.INFO", "CONSUMER.MSG.NEXT"} {
			all["$JS.API."+verb+"."+stream+".core"] = true
			all["$JS.API."+verb+"."+stream+".other"] = true
		}
		all["$JS.ACK."+stream+".core.1.1.1.1.1"] = true
	}
	for _, s := range []string{
		"$KV.plugins.manifest.victim", "$KV.identities.victim", "$KV.budgets.x", "$O.claims.C.x", "$O.artifacts.M.x",
		"_INBOX.victim.1", "watch.plugins.manifest.victim", "watch.identities.victim", "watch.cron.clock.job", "made.up", "fired.main.s1.t",
	} {
		all[s] = true
	}
	return slices.Sorted(maps.Keys(all))
}

// Each identity publishes on every subject, and each subscribes to every subject. What the
// declaration grants arrives, and nothing else does.
func TestEveryIdentityOnEverySubject(t *testing.T) {
	w := start(t)
	witness := w.whole()
	checks := 0
	for _, name := range rights.Declared().ServiceNames() {
		granted, err := rights.Declared().Service(name)
		if err != nil {
			t.Fatal(err)
		}
		c := w.service(name)
		own := rights.Permissions{
			Publish: of(granted.Publish, string(c.process)), Subscribe: of(granted.Subscribe, string(c.process)),
		}
		checks += w.hold(witness, c, own, subjects(name, string(c.process)))
	}
	for part, charter := range charters() {
		granted, err := rights.Declared().Party(charter)
		if err != nil {
			t.Fatal(err)
		}
		c := w.party(charter)
		c.name = "a party with " + part
		checks += w.hold(witness, c, granted, subjects("own", "own-1"))
		c.Close()
	}
	t.Logf("%d checks of %d services and %d charters", checks, len(rights.Declared().Services), len(charters()))
}

// of puts the process in the place that the server fills in.
func of(patterns []string, process string) (out []string) {
	for _, p := range patterns {
		out = append(out, strings.ReplaceAll(p, rights.Process, process))
	}
	return out
}

func granted(patterns []string, s string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return matches(p, s) })
}

// mailbox collects messages. The connection puts them there in order, so that after a flush all are in it.
type mailbox chan *nats.Msg

func (b mailbox) subjects() map[string]bool {
	got := map[string]bool{}
	for {
		select {
		case m := <-b:
			got[m.Subject] = true
		default:
			return got
		}
	}
}

// hold compares what a client can do with what it is granted, and returns the number of checks.
func (w *world) hold(witness, c connection, granting rights.Permissions, all []string) int {
	w.Helper()
	seen, heard := make(mailbox, 8*len(all)), make(mailbox, 8*len(all))
	sub, err := witness.ChanSubscribe(">", seen)
	if err != nil {
		w.Fatal(err)
	}
	w.flush(witness)
	for _, s := range all {
		if err := c.Publish(s, []byte("from "+c.name)); err != nil {
			w.Fatalf("%s publishes on %s: %v", c.name, s, err)
		}
	}
	w.flush(c)
	w.flush(witness) // what the server has passed on has arrived
	arrived := seen.subjects()
	for _, s := range all {
		if got, want := arrived[s], granted(granting.Publish, s); got != want {
			w.Errorf("%s publishes on %s: it arrives: %t, granted: %t", c.name, s, got, want)
		}
	}
	if err := sub.Unsubscribe(); err != nil {
		w.Fatal(err)
	}
	for _, s := range all {
		if _, err := c.ChanSubscribe(s, heard); err != nil {
			w.Fatalf("%s subscribes to %s: %v", c.name, s, err)
		}
	}
	w.flush(c)
	for _, s := range all {
		if err := witness.Publish(s, []byte("from the witness")); err != nil {
			w.Fatal(err)
		}
	}
	w.flush(witness)
	w.flush(c)
	received := heard.subjects()
	for _, s := range all {
		if got, want := received[s], granted(granting.Subscribe, s); got != want {
			w.Errorf("%s subscribes to %s: it receives: %t, granted: %t", c.name, s, got, want)
		}
	}
	return 2 * len(all)
}
