package chat

import (
	"context"
	"errors"

	"skandha.dev/services/internal/submit"
	"skandha.dev/services/listener/contract"
)

// queued is a message that waits to be handled.
type queued struct {
	message Message
	reply   func(text string)
	leave   func()
}

// Take accepts a message of a network that does not repeat it, and returns at once. It is handled
// after those that were taken before. Reply is called with what the sender is to read, if
// anything; it must not block.
func (h *Hub) Take(m Message, reply func(text string)) {
	leave, ok := h.inFlight.Enter()
	if !ok {
		reply("This gateway is stopping; send your message again later.")
		return
	}
	if m.ID == "" {
		m.ID = submit.NewID() // repetitions towards the log are the same input
	}
	select {
	case h.queue <- queued{m, reply, leave}:
	default:
		leave()
		h.stats.Limited.Add(1)
		if text := h.once(m, "Too many messages are waiting; yours was dropped. Send it again later."); text != "" {
			reply(text)
		}
	}
}

// work handles the messages that were taken, in order.
func (h *Hub) work() {
	for {
		select {
		case q := <-h.queue:
			h.one(q)
		case <-h.life.Done():
			return
		}
	}
}

func (h *Hub) one(q queued) {
	defer q.leave()
	ctx, cancel := context.WithTimeout(h.life, emitWait)
	defer cancel()
	reply, err := h.handle(ctx, q.message)
	if err != nil {
		h.log.Warn("a message was not stored", "room", q.message.Room, "error", err)
		reply = "Your message may not have been stored: " + contract.Outage(err) + ". Send it again later."
		if errors.Is(err, contract.ErrOverloaded) || errors.Is(err, contract.ErrNoRoom) {
			reply = "Your message was not stored: " + contract.Outage(err) + ". Send it again later."
		}
	}
	if reply != "" {
		q.reply(reply)
	}
}
