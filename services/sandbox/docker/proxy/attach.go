package proxy

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"time"
)

const (
	attachTime = 30 * time.Second // for the engine to answer
	endTime    = 10 * time.Second // for a client to end after the engine
	hupEvery   = time.Second      // between looks whether a half-closed client has gone
)

// stream is a connection whose directions end separately.
type stream interface {
	net.Conn
	CloseWrite() error
}

// attach connects the client with a container's first process.
func (p *Proxy) attach(c *call) error {
	if err := p.ownContainer(c.r.Context(), c.name); err != nil {
		return err
	}
	engine, reader, res, err := p.upgrade(c)
	if err != nil {
		return err
	}
	defer func() {
		_ = res.Body.Close()
		_ = engine.Close()
	}()
	if res.StatusCode != http.StatusSwitchingProtocols {
		relay(c.w, res)
		return nil
	}
	conn, buffered, err := http.NewResponseController(c.w).Hijack()
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	client, ok := conn.(stream)
	if !ok {
		return errors.New("the client's connection has no half-close")
	}
	p.streams.Add(1)
	defer p.streams.Add(-1)
	stop := context.AfterFunc(p.ctx, func() {
		_ = client.Close()
		_ = engine.Close()
	})
	defer stop()
	text := "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n"
	if kind := res.Header.Get("Content-Type"); kind != "" {
		text += "Content-Type: " + kind + "\r\n"
	}
	_ = client.SetDeadline(time.Now().Add(writeTime))
	if _, err := io.WriteString(client, text+"\r\n"); err != nil {
		return nil // the client has gone
	}
	_ = client.SetDeadline(time.Time{})
	splice(client, buffered.Reader, engine, reader)
	return nil
}

// upgrade sends the request on a new connection to the engine.
func (p *Proxy) upgrade(c *call) (stream, *bufio.Reader, *http.Response, error) {
	conn, err := p.dial(c.r.Context())
	if err != nil {
		return nil, nil, nil, p.unavailable(err)
	}
	r, err := c.request(c.r.Context(), nil)
	if err == nil {
		r.Header.Set("Connection", "Upgrade")
		r.Header.Set("Upgrade", "tcp")
		_ = conn.SetDeadline(time.Now().Add(attachTime))
		err = r.Write(conn)
	}
	reader := bufio.NewReader(conn)
	var res *http.Response
	if err == nil {
		res, err = http.ReadResponse(reader, r)
	}
	if err != nil {
		_ = conn.Close()
		return nil, nil, nil, p.unavailable(err)
	}
	_ = conn.SetDeadline(time.Time{})
	return conn, reader, res, nil
}

// splice copies in both directions until the engine ends or the client has gone. When the client ends its
// direction, the engine's goes on.
func splice(client stream, fromClient io.Reader, engine stream, fromEngine io.Reader) {
	over := make(chan struct{})
	go func() {
		defer close(over)
		_, _ = io.Copy(client, fromEngine)
		// A client that has unread data on its way would get a reset instead of the rest of the output.
		_ = client.CloseWrite()
		_ = client.SetReadDeadline(time.Now().Add(endTime))
	}()
	_, _ = io.Copy(engine, fromClient)
	_ = engine.CloseWrite()
	_, _ = io.Copy(io.Discard, fromClient) // if it was the engine that has ended
	look := time.NewTicker(hupEvery)
	defer look.Stop()
	for {
		select {
		case <-over:
			return
		case <-look.C:
			if gone(client) {
				_ = engine.Close()
				<-over
				return
			}
		}
	}
}
