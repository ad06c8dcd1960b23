package outside_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/smtp"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	mqtt "github.com/eclipse/paho.mqtt.golang"

	. "skandha.dev/services/test/e2e/e2etest"
	"skandha.dev/services/test/irctest"
	"skandha.dev/services/test/mailtest"
	"skandha.dev/services/test/mosquittotest"
	"skandha.dev/services/test/natstest"
)

// writeMail sends a letter to the agent, again until a server has accepted it. A server that dies
// after it has accepted one leaves its sender in doubt, so a letter may arrive twice: that is two
// inputs.
func (w *world) writeMail(token string) bool {
	letter := strings.ReplaceAll(fmt.Sprintf("From: alice@example.org\nTo: agent@example.org\nMessage-ID: <%s@x>\n"+
		"Subject: question\n\nask %s\n", token, token), "\n", "\r\n")
	for deadline := time.Now().Add(Patience); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if smtp.SendMail(w.mail.SMTPAddress(), nil, mailtest.Alice, []string{mailtest.Agent}, []byte(letter)) == nil {
			return true
		}
	}
	return false
}

func (w *world) answersByMail() map[string]int { return w.taken(mailtest.Alice) }

func (w *world) sentByMail() map[string]int { return w.taken(mailtest.Bob) }

// taken counts, by token, the letters to a person that Postfix has taken. A Postfix that is killed after
// it has put a letter into the mailbox, and before it has noted that, puts the same one there again.
func (w *world) taken(person string) map[string]int {
	out, seen := map[string]int{}, map[string]string{}
	for _, letter := range w.mail.Letters(person, "") {
		tok, id := tokens.FindString(letter), queued.FindString(letter)
		if id == "" {
			w.t.Errorf("a letter that Postfix has not taken: %.500s", letter)
		}
		if seen[tok+id] != "" {
			w.t.Logf("Postfix has delivered the letter of %s twice, %s", tok, id)
			continue
		}
		seen[tok+id] = letter
		if out[tok]++; out[tok] > 1 {
			w.t.Logf("another letter of %s: %.1500s", tok, letter)
		}
	}
	return out
}

// queued is the id under which Postfix has queued a letter.
var queued = regexp.MustCompile(`with E?SMTPS?A? id [0-9A-Za-z]+`)

// crowd is a person in the channel that counts what it sees, over restarts of the server.
type crowd struct {
	t      *testing.T
	server *irctest.Server

	mu   sync.Mutex
	all  []*irctest.Client
	last *irctest.Client
}

func newCrowd(t *testing.T, server *irctest.Server) *crowd {
	c := &crowd{t: t, server: server}
	c.join()
	return c
}

// join connects anew, before the gateway does: it waits a moment after a connection was lost.
func (c *crowd) join() {
	client := c.server.Dial(c.t, "ann")
	client.Join("#ops", "")
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all, c.last = append(c.all, client), client
}

func (c *crowd) await(nick string) {
	c.last.Join("#ops", nick)
}

// speak says something in the channel. Whether the gateway heard it, only the log knows.
func (w *world) speak(token string) bool {
	w.crowd.mu.Lock()
	client := w.crowd.last
	w.crowd.mu.Unlock()
	client.Say("#ops", "ask "+token)
	w.s.Tail.Within(2*time.Second, func(l *Log) bool { return len(w.inputs(l, token)) > 0 })
	return false
}

func (w *world) answersByIRC() map[string]int {
	var texts []string
	for _, c := range w.crowd.all {
		for _, l := range c.Lines() {
			if strings.HasPrefix(l.From, "skandha") && l.Target == "#ops" {
				texts = append(texts, l.Text)
			}
		}
	}
	return count(texts)
}

// house is the devices: one publishes, one counts what the agent switches.
type house struct {
	devices mqtt.Client
	mu      sync.Mutex
	heard   []string
}

func newHouse(t *testing.T, broker *mosquittotest.Broker) *house {
	h := &house{}
	options := mqtt.NewClientOptions().AddBroker(strings.Replace(broker.Client().URL, "mqtt://", "tcp://", 1)).
		SetClientID("house").SetCleanSession(false).SetConnectRetry(true).SetConnectRetryInterval(100 * time.Millisecond).
		SetMaxReconnectInterval(500 * time.Millisecond).SetResumeSubs(true).SetOrderMatters(true)
	options.SetDefaultPublishHandler(func(_ mqtt.Client, m mqtt.Message) { h.hear(m) })
	h.devices = mqtt.NewClient(options)
	if tok := h.devices.Connect(); !tok.WaitTimeout(natstest.Patience) || tok.Error() != nil {
		t.Fatal(tok.Error())
	}
	if tok := h.devices.Subscribe("house/out", 2, nil); !tok.WaitTimeout(natstest.Patience) || tok.Error() != nil {
		t.Fatal(tok.Error())
	}
	t.Cleanup(func() { h.devices.Disconnect(100) })
	return h
}

func (h *house) hear(m mqtt.Message) {
	h.mu.Lock()
	defer h.mu.Unlock()
	// A broker that was killed sends again what it does not know to be acknowledged, and says so.
	if !m.Duplicate() || !slices.Contains(h.heard, string(m.Payload())) {
		h.heard = append(h.heard, string(m.Payload()))
	}
}

// publish is a device that publishes with QoS 1: the client repeats until the broker acknowledges.
func (w *world) publish(token string) bool {
	tok := w.house.devices.Publish("house/in/"+token, 1, false, "switch "+token)
	return tok.WaitTimeout(Patience) && tok.Error() == nil
}

func (w *world) publishedByMQTT() map[string]int {
	w.house.mu.Lock()
	defer w.house.mu.Unlock()
	return count(w.house.heard)
}

// keyed is a server that has an effect once for each Idempotency-Key. It loses one answer in five.
type keyed struct {
	t    *testing.T
	addr string

	mu      sync.Mutex
	server  *http.Server
	seen    map[string]bool
	effects []string
}

func newKeyed(t *testing.T) *keyed {
	k := &keyed{t: t, seen: map[string]bool{}, addr: fmt.Sprintf("127.0.0.1:%d", natstest.FreePort(t))}
	k.serve()
	t.Cleanup(func() { _ = k.server.Close() })
	return k
}

func (k *keyed) serve() {
	k.server = &http.Server{Handler: k, ReadHeaderTimeout: natstest.Patience}
	l, err := net.Listen("tcp", k.addr)
	if err != nil {
		k.t.Error(err)
		return
	}
	go func(s *http.Server) { _ = s.Serve(l) }(k.server)
}

// restart cuts every connection; the effects stay, as in a database.
func (k *keyed) restart() {
	_ = k.server.Close()
	k.serve()
}

func (k *keyed) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	key := r.Header.Get("Idempotency-Key")
	if err != nil || key == "" {
		http.Error(rw, "a body and an Idempotency-Key are required", http.StatusBadRequest)
		return
	}
	k.mu.Lock()
	if !k.seen[key] {
		k.seen[key] = true
		k.effects = append(k.effects, string(body))
	}
	k.mu.Unlock()
	if rand.IntN(5) == 0 {
		panic(http.ErrAbortHandler)
	}
}

func (w *world) postedByHTTP() map[string]int {
	w.web.mu.Lock()
	defer w.web.mu.Unlock()
	return count(w.web.effects)
}
