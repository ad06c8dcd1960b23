package rightstest

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"skandha.dev/pkg/subject"
	"skandha.dev/services/internal/coreapi"
	"skandha.dev/services/internal/rights"
	"skandha.dev/services/test/natstest"
)

// The bus takes no more inputs from a listener that floods it, while others are answered. Once enough of them are done, it
// may send again, and every input that was acknowledged has ended.
func TestAListenerThatFloods(t *testing.T) {
	r := run(t)
	nc := r.plain(r.invite(rights.Charter{Name: "flood", Listeners: []subject.Writer{"flood"}}))
	acks := make(chan *nats.Msg, 1<<17)
	inbox := nc.NewRespInbox()
	if _, err := nc.ChanSubscribe(inbox, acks); err != nil {
		t.Fatal(err)
	}
	taken, refused := 0, 0
	const most = 60_000
	count := func(m *nats.Msg) {
		if m.Header.Get("Status") == "503" {
			refused++
		} else {
			taken++
		}
	}
	for n := 0; refused == 0 && n < most; n++ {
		m := &nats.Msg{Subject: fmt.Sprintf("agent.main.f%d.sense.input.flood", n%5000), Reply: inbox, Data: []byte(`{"text":"what is 2+2?"}`)}
		if err := nc.PublishMsg(m); err != nil {
			t.Fatal(err)
		}
		if n%100 == 99 { // as fast as a client that waits for acknowledgements now and then
			r.flush(nc)
			for len(acks) > 0 {
				count(<-acks)
			}
		}
	}
	if refused == 0 {
		t.Fatalf("all of %d inputs are taken", most)
	}
	t.Logf("%d inputs are taken, then they are refused", taken)
	if end := r.turn("calm", "what is 3+3?"); end.Answer == "" {
		t.Error("nobody else is answered")
	}
	identity := func() coreapi.Identity {
		page, err := r.sys.Core().Identities().Do(natstest.Context(t), coreapi.IdentitiesQuery{Name: "flood", Caller: "test"})
		if err != nil || len(page.Identities) != 1 {
			t.Fatalf("%+v %v", page, err)
		}
		return page.Identities[0]
	}
	natstest.Eventually(t, "the listener may send again", func() bool {
		_, err := nc.Request("agent.main.again.sense.input.flood", []byte(`{"text":"what is 4+4?"}`), time.Second)
		return err == nil
	})
	if id := identity(); !id.Muted.IsZero() || id.State != coreapi.IdentityActive {
		t.Errorf("afterwards it is %+v", id)
	}
}
