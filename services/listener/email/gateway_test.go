package email_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/mail/letter"
	"skandha.dev/services/listener/contract"
	"skandha.dev/services/listener/email"
	"skandha.dev/services/test/mailtest"
	"skandha.dev/services/test/natstest"
)

func outgoing(key string, d tool.Delivery) contract.Outgoing {
	return contract.Outgoing{Delivery: d, Agent: "main", Session: "s", Key: key, Begin: func(context.Context) error { return nil }}
}

func TestAnAnswerGoesIntoTheThreadOnce(t *testing.T) {
	t.Parallel()
	servers, b := mailtest.Start(t), newBus(t)
	r := start(t, b, servers.Account(mailtest.Agent), email.Config{})
	r.await(t)
	servers.Deliver(mailtest.Alice, mailtest.Agent, write("From: alice@example.org", "Message-ID: <m2@x>", "References: <m1@x>",
		"Subject: plans", "", "well?"))
	asked := r.inputs(t, 1)[0]
	m := outgoing("answerkey", tool.Delivery{Kind: tool.KindAnswer, To: asked.ReplyTo, Text: "yes", InReplyTo: asked.ID})
	if res := r.Deliver(t.Context(), m); !res.Success {
		t.Fatal(res.Error)
	}
	if res := r.Probe(t.Context(), m, tool.Begun{}); !res.Success {
		t.Errorf("the probe: %+v", res.Error)
	}
	answer := letter.Parse([]byte(servers.Await(mailtest.Alice, "", 1)[0]), 0, letter.DefaultLimits())
	if answer.Subject != "Re: plans" || strings.Join(answer.InReplyTo, "") != "m2@x" || strings.Join(answer.References, " ") != "m1@x m2@x" ||
		answer.Text != "yes" || !strings.Contains(answer.Automatic, "auto-replied") {
		t.Errorf("the answer is %+v", answer)
	}
	// The copy of the answer wakes nobody, and what alice writes back is in the same session.
	servers.Await(mailtest.Agent, "Sent", 1)
	servers.Deliver(mailtest.Alice, mailtest.Agent, write("From: alice@example.org", "Message-ID: <m3@x>",
		"In-Reply-To: <"+answer.MessageID+">", "Subject: Re: plans", "", "thanks"))
	if again := r.inputs(t, 2)[1]; again.Session != asked.Session {
		t.Errorf("the next letter is in session %s, want %s", again.Session, asked.Session)
	}
	natstest.Eventually(t, "the copy was ignored or filed before it was seen", func() bool {
		return len(servers.Letters(mailtest.Agent, "Sent")) == 1 && len(servers.Letters(mailtest.Agent, "")) == 2
	})
}

// The process that sent a letter died before it moved the copy.
func TestACopyThatWasLeftInTheInboxIsFiled(t *testing.T) {
	t.Parallel()
	servers, b := mailtest.Start(t), newBus(t)
	own := letter.NewID(mailtest.Agent, "key", letter.NewThread(mailtest.Agent, "key"))
	servers.Change(mailtest.Agent, func(m *mailtest.Mailbox) {
		m.Append("From: agent@example.org\r\nMessage-ID: <"+own+">\r\n\r\nx\r\n", time.Now().Add(-time.Hour))
	})
	start(t, b, servers.Account(mailtest.Agent), email.Config{Start: email.StartAll})
	servers.Await(mailtest.Agent, "Sent", 1)
}

func TestWhatBecomesOfADelivery(t *testing.T) {
	t.Parallel()
	servers, b := mailtest.Start(t), newBus(t)
	r := start(t, b, servers.Account(mailtest.Agent), email.Config{})
	for to, want := range map[string]string{
		mailtest.Alice: "", "nobody@example.org": tool.MetadataPermanent, mailtest.Grey: tool.MetadataRetryAfter,
		"nonsense": tool.MetadataPermanent, `{"to":"a b"}`: tool.MetadataPermanent,
	} {
		res := r.Deliver(t.Context(), outgoing("key"+to, tool.Delivery{
			Kind: tool.KindApproval, To: to, Text: "may I?", Link: "https://page.example/s",
		}))
		if res.Success != (want == "") || want != "" && res.Metadata[want] == nil {
			t.Errorf("to %s: %+v, want %s", to, res, want)
		}
	}
	got := servers.Await(mailtest.Alice, "", 1)[0]
	if !strings.Contains(got, "may I?") || !strings.Contains(got, "cannot be approved by e-mail") || !strings.Contains(got, "https://page.example/s") {
		t.Errorf("the notice is %s", got)
	}
	m := outgoing("held", tool.Delivery{Kind: tool.KindAnswer, To: mailtest.Alice, Text: "x"})
	m.Begin = func(context.Context) error { return errors.New("the bus is away") }
	if res := r.Deliver(t.Context(), m); res.Success || res.Metadata[tool.MetadataPermanent] != nil {
		t.Errorf("without a record: %+v", res)
	}
}
