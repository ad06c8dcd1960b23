package mcp

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"skandha.dev/services/internal/text"
)

// maxNamed is how many malformed entries of a list are named; the others are counted.
const maxNamed = 16

// sound returns the result of tools/list without the entries that are no tools, which would make the library
// refuse all of it. They are noted for the state.
func (s *session) sound(result json.RawMessage) json.RawMessage {
	var fields map[string]json.RawMessage
	var list []json.RawMessage
	if json.Unmarshal(result, &fields) != nil || json.Unmarshal(fields["tools"], &list) != nil {
		return result
	}
	kept := make([]json.RawMessage, 0, len(list))
	for i, entry := range list {
		if err := isTool(entry); err != nil {
			s.malformed(fmt.Sprintf("tool %d of the list, %.60q: %v", i+1, plain(string(entry[:min(len(entry), maxNameShown)])), err))
			continue
		}
		kept = append(kept, entry)
	}
	if len(kept) == len(list) {
		return result
	}
	tools, err := json.Marshal(kept)
	if err != nil {
		return result
	}
	fields["tools"] = tools
	b, err := json.Marshal(fields)
	if err != nil {
		return result
	}
	return b
}

func isTool(entry json.RawMessage) error {
	if entry[0] != '{' {
		return errors.New("it is no object")
	}
	if err := json.Unmarshal(entry, &sdk.Tool{}); err != nil {
		return errors.New(text.Cut(strings.TrimPrefix(err.Error(), "json: "), maxHint))
	}
	return nil
}

// malformed notes an entry that is left out of the list that is being read.
func (s *session) malformed(why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.bad) < maxNamed {
		s.bad = append(s.bad, why)
	}
	s.bads++
}

// takeMalformed returns what was noted since it was called last.
func (s *session) takeMalformed() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out, n := s.bad, s.bads
	s.bad, s.bads = nil, 0
	if n > len(out) {
		out = append(out, fmt.Sprintf("%d more entries of the list are no tools", n-len(out)))
	}
	return out
}

// skip notes a line of standard output that is no message.
func (s *session) skip(line []byte) {
	line = []byte(s.link.secrets().Hide(string(line)))
	words := text.Cut(strings.TrimSpace(plain(string(line[:min(len(line), maxLine)]))), maxHint)
	s.link.strays.Log(slog.LevelWarn, "stdout", "an MCP server writes what is no message to its standard output", "text", words)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.skipped++
	s.lastSkipped = words
}

// warnings says what was skipped of the connection.
func (s *session) warnings() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.skipped == 0 {
		return nil
	}
	lines := "1 line"
	if s.skipped > 1 {
		lines = fmt.Sprintf("%d lines", s.skipped)
	}
	return []string{fmt.Sprintf("%s of its standard output, which is for messages alone, were skipped; the last one: %s", lines, s.lastSkipped)}
}

// soundBody returns the body of an answer to tools/list without entries that are no tools.
func (s *session) soundBody(body io.ReadCloser, stream bool) io.ReadCloser {
	if stream {
		return &soundStream{ReadCloser: body, from: bufio.NewReader(body), session: s}
	}
	return &soundWhole{ReadCloser: body, session: s}
}

// message returns a message of the protocol with a sound list.
func (s *session) message(b []byte) []byte {
	var m map[string]json.RawMessage
	if json.Unmarshal(b, &m) != nil || m["result"] == nil {
		return b
	}
	m["result"] = s.sound(m["result"])
	if out, err := json.Marshal(m); err == nil {
		return out
	}
	return b
}

// soundWhole is a body that is one message.
type soundWhole struct {
	io.ReadCloser
	session *session
	rest    *bytes.Reader
}

func (w *soundWhole) Read(p []byte) (int, error) {
	if w.rest == nil {
		b, err := io.ReadAll(w.ReadCloser)
		if err != nil {
			return 0, err
		}
		w.rest = bytes.NewReader(w.session.message(b))
	}
	return w.rest.Read(p)
}

// soundStream is a body of events, each of which is a message.
type soundStream struct {
	io.ReadCloser
	from    *bufio.Reader
	session *session
	rest    []byte
	err     error
}

func (w *soundStream) Read(p []byte) (int, error) {
	for len(w.rest) == 0 {
		if w.err != nil {
			return 0, w.err
		}
		w.rest, w.err = w.event()
	}
	n := copy(p, w.rest)
	w.rest = w.rest[n:]
	return n, nil
}

// event reads the lines of an event, and returns it.
func (w *soundStream) event() (out []byte, err error) {
	var data [][]byte
	for size := 0; err == nil; {
		line, n, failed := readLine(w.from)
		if size += n; size > maxMessage {
			return nil, fmt.Errorf("an event has more than %d bytes", maxMessage)
		}
		err = failed
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			break
		}
		if value, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			data = append(data, bytes.TrimPrefix(value, []byte(" ")))
		} else {
			out = append(append(out, line...), '\n')
		}
	}
	if len(data) > 0 {
		message := w.session.message(bytes.Join(data, []byte("\n")))
		out = fmt.Appendf(out, "data: %s\n", bytes.ReplaceAll(message, []byte("\n"), []byte("\ndata: ")))
	}
	return append(out, '\n'), err
}
