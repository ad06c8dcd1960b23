package examples_test

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"skandha.dev/services/internal/natsserver"
	"skandha.dev/services/test/foreigntest"
	"skandha.dev/services/test/natstest"
)

// A policy that is started before core registers when core is there.
func TestAPolicyRegistersUntilACoreAnswers(t *testing.T) {
	python := foreigntest.Need(t, "python3")
	url := natstest.Start(t, natstest.WithTCP()).ClientURL()
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	asked := make(chan *nats.Msg, 16)
	if _, err = nc.ChanSubscribe("plugin.register.no-secrets", asked); err == nil {
		err = nc.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	p := foreigntest.Spawn(t, "python", []string{"SKANDHA_NATS=" + url}, python, "policy_hook.py")
	<-asked
	m := <-asked
	if err := m.Respond([]byte(`{"plugin":"no-secrets","instance":"x","state":"active","ttl_ms":60000,"hash":"x"}`)); err != nil {
		t.Fatal(err)
	}
	p.Await("no-secrets is active")
}

func TestRefusedCredentialsEndAProgram(t *testing.T) {
	python := foreigntest.Need(t, "python3")
	url := natstest.Start(t, natstest.WithTCP(), natstest.WithConfig(func(c *natsserver.Config) { c.Token = "right" })).ClientURL()
	_, address, _ := strings.Cut(url, "//")
	address = address[strings.Index(address, "@")+1:]
	for _, program := range []string{"policy_hook.py", "tool.py", "listener.py"} {
		for _, who := range []string{"", "wrong"} { // compose without an invitation, and one that is revoked
			p := foreigntest.Spawn(t, "python", []string{"SKANDHA_NATS=nats://" + who + "@" + address}, python, program)
			if program == "listener.py" {
				p.Say("hello\n")
			}
			if err := p.Ended(); err == nil || !strings.Contains(p.Errs(), "the bus refuses the credentials") {
				t.Errorf("%s with %q ends with %v:\n%s", program, who, err, p.Errs())
			}
		}
	}
}
