package e2etest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"time"
)

// Effect is one line of the file of effects: a tool has done something that
// cannot be undone.
type Effect struct {
	Call    string    `json:"call"`
	Attempt string    `json:"attempt"`
	Runner  string    `json:"runner"` // "" in a plugin
	Tool    string    `json:"tool"`
	Session string    `json:"session"`
	At      time.Time `json:"at"` // when the work began
}

// append writes the line with one call of write: it is there whole or not at
// all, whichever process is killed.
func (e Effect) append(file string) error {
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	_, err = f.Write(append(line, '\n'))
	return err
}

// ReadEffects reads the file; none is no effect.
func ReadEffects(file string) ([]Effect, error) {
	b, err := os.ReadFile(file)
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []Effect
	lines := bufio.NewScanner(bytes.NewReader(b))
	for lines.Scan() {
		var e Effect
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("%s: line %d: %w", file, len(out)+1, err)
		}
		out = append(out, e)
	}
	return out, lines.Err()
}
