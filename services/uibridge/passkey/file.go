package passkey

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/go-webauthn/webauthn/webauthn"
)

// File is the file in the data directory that has the passkeys, by person.
const File = "ui-passkeys.json"

// maxKeys is how many passkeys a person may have.
const maxKeys = 10

// registered is one passkey, as the file has it.
type registered struct {
	Created    time.Time           `json:"created"`
	Host       string              `json:"host"` // a passkey is bound to a host name
	Credential webauthn.Credential `json:"credential"`
}

func (k *Keys) read() (map[string][]registered, error) {
	all := map[string][]registered{}
	b, err := os.ReadFile(k.path)
	if errors.Is(err, fs.ErrNotExist) {
		return all, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &all)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the passkeys: %w", err)
	}
	return all, nil
}

// change reads the file, lets f change it, and writes it as a whole.
func (k *Keys) change(f func(map[string][]registered) error) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	all, err := k.read()
	if err != nil {
		return err
	}
	if err := f(all); err != nil {
		return err
	}
	b, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the passkeys: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(k.path), 0o700); err != nil {
		return err
	}
	t, err := os.CreateTemp(filepath.Dir(k.path), File+".*") // 0600
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(t.Name()) }() // has no effect once it is renamed
	_, err = t.Write(append(b, '\n'))
	if err = errors.Join(err, t.Sync(), t.Close()); err != nil {
		return err
	}
	return os.Rename(t.Name(), k.path)
}
