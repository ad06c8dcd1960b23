package trust

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"skandha.dev/services/internal/rights"
)

// The files of [WriteFiles].
const (
	KeysFile   = "keys.json"   // of the authority; core alone needs it
	ServerFile = "server.conf" // what a NATS server is configured with
)

// keyFile is the file with the key of a service.
func keyFile(service string) string { return service + ".key" }

// WriteFiles writes what the processes of a system need into a directory that only the owner may enter: the
// keys of the authority, the key of each service, and the configuration of a NATS server. Keys that are
// there stay. Its files may be read by all, so that containers with other users can, to which single files
// are given. store is the directory where the server keeps accounts.
func WriteFiles(dir, store string) (written []string, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if err := os.Chmod(dir, 0o700); err != nil { //nolint:gosec // a directory
		return nil, err
	}
	keys := filepath.Join(dir, KeysFile)
	a, err := Open(keys)
	if err != nil {
		return nil, err
	}
	server, err := a.ServerConfig(store)
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{ServerFile: server}
	for _, name := range rights.Declared().ServiceNames() {
		k, err := a.Key(name)
		if err != nil {
			return nil, err
		}
		if files[keyFile(name)], err = json.MarshalIndent(k, "", "  "); err != nil {
			return nil, err
		}
	}
	for name, body := range files {
		path := filepath.Join(dir, name)
		if err := replace(path, body); err != nil {
			return nil, err
		}
		written = append(written, path)
	}
	return append(written, keys), os.Chmod(keys, readable)
}

// readable is the mode of files in a directory that only the owner may enter.
const readable = 0o644

func replace(path string, body []byte) error {
	tmp := path + ".new"
	err := os.WriteFile(tmp, body, readable) //nolint:gosec // see WriteFiles
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	return nil
}

// ServerConfig returns the part of a NATS server's configuration by which it trusts the authority. The
// server keeps the accounts that it learns in the directory store.
func (a *Authority) ServerConfig(store string) ([]byte, error) {
	s, err := a.Server()
	if err != nil {
		return nil, err
	}
	preload := ""
	for _, id := range []string{s.SystemAccount, s.Account} {
		preload += fmt.Sprintf("  %s: %s\n", id, s.Accounts[id])
	}
	return fmt.Appendf(nil, "# Whom the bus trusts. skandha secrets has written it.\noperator: %s\nsystem_account: %s\n"+
		"resolver {\n  type: full\n  dir: %q\n  allow_delete: true\n  interval: \"2m\"\n}\nresolver_preload {\n%s}\n",
		s.JWT, s.SystemAccount, store, preload), nil
}
