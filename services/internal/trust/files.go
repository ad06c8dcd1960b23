package trust

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/nats-io/nkeys"

	"skandha.dev/services/internal/rights"
)

// The files of [WriteFiles].
const (
	KeysFile   = "keys.json"      // of the authority; core alone needs it
	ServerFile = "server.conf"    // what a NATS server is configured with
	CredsFile  = "operator.creds" // with which the people who run the system connect
)

// keyFile is the file with the key of a service.
func keyFile(service string) string { return service + ".key" }

// Options of [WriteFiles].
type Options struct {
	Store  string // directory where the server keeps accounts; required unless Beside is set
	Beside string // directory of another system, whose server the system shares; empty: it has its own
	Disk   int64  // what the system may store on the server, in bytes; 0: as before, at first no limit
	// Rotate gives each service a new key. Its previous key stays valid until Retire ends it.
	Rotate, Retire bool
}

// WriteFiles writes what the processes of a system need into a directory that only the owner may enter: the
// keys of the authority, the key of each service, the credentials of its operators, and the configuration of
// a NATS server, unless it shares that of another system. Keys that are there stay, and so do files that need no
// change. Its files may be read by all, so that containers with other users can, to which single files are given.
func WriteFiles(dir string, o Options) (written []string, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if err := os.Chmod(dir, 0o700); err != nil { //nolint:gosec // a directory
		return nil, err
	}
	keys := filepath.Join(dir, KeysFile)
	before, _ := os.ReadFile(keys) // empty if there are none yet
	a, err := openFor(keys, o)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(keys, readable); err != nil {
		return nil, err
	}
	if after, err := os.ReadFile(keys); err != nil || !bytes.Equal(before, after) {
		written = append(written, keys)
	}
	put := func(name string, body []byte, same func(is []byte) bool) error {
		path := filepath.Join(dir, name)
		if is, err := os.ReadFile(path); err == nil && same(is) {
			return nil
		}
		written = append(written, path)
		return replace(path, body)
	}
	if !a.kept.Tenant {
		server, digest, err := a.serverConfig(o.Store)
		if err != nil {
			return nil, err
		}
		if err := put(ServerFile, server, func(is []byte) bool { return bytes.Contains(is, digest) }); err != nil {
			return nil, err
		}
	}
	for _, name := range rights.Declared().ServiceNames() {
		k, err := a.Key(name)
		if err != nil {
			return nil, err
		}
		if name == OperatorService {
			creds, err := k.creds()
			if err == nil {
				err = put(CredsFile, creds, k.issued)
			}
			if err != nil {
				return nil, err
			}
			continue
		}
		body, err := json.MarshalIndent(k, "", "  ")
		if err == nil {
			err = put(keyFile(name), body, func(is []byte) bool { return bytes.Equal(is, body) })
		}
		if err != nil {
			return nil, err
		}
	}
	return written, nil
}

// openFor opens the keys in a file, and changes them as the options say.
func openFor(file string, o Options) (*Authority, error) {
	k, err := read(file)
	if err != nil {
		return nil, fmt.Errorf("the keys of the bus: %w", err)
	}
	changed := o.Beside != "" || o.Disk != 0 || o.Retire || o.Rotate
	if o.Beside != "" {
		if err := k.join(file, filepath.Join(o.Beside, KeysFile)); err != nil {
			return nil, err
		}
	}
	k.Disk = cmp.Or(o.Disk, k.Disk)
	if o.Retire {
		if len(k.Retiring) == 0 {
			return nil, fmt.Errorf("%s: no key is retiring; --rotate makes new ones first", file)
		}
		k.Retiring = nil
	}
	if o.Rotate {
		if err := k.rotate(file); err != nil {
			return nil, err
		}
	}
	return open(file, k, changed)
}

// join makes the keys those of a system on the server of another one.
func (k *keys) join(file, other string) error {
	host, err := Read(other)
	if err != nil {
		return err
	}
	if k.Operator != "" && (k.Operator != host.kept.Operator || !k.Tenant) {
		return fmt.Errorf("%s: these are the keys of a system that has another bus; name an empty directory", file)
	}
	k.Operator, k.System, k.Tenant = host.kept.Operator, host.kept.System, true
	return nil
}

// rotate replaces the keys of all services.
func (k *keys) rotate(file string) error {
	if len(k.Retiring) > 0 {
		return fmt.Errorf("%s: the keys before the last rotation are still valid; end them with --retire "+
			"once every process has its new one", file)
	}
	k.Retiring = map[string]string{}
	for name, seed := range k.Services {
		pair, err := nkeys.FromSeed([]byte(seed))
		if err != nil {
			return fmt.Errorf("%s: the key of %s: %w", file, name, err)
		}
		k.Retiring[name] = publicOf(pair)
	}
	k.Services = map[string]string{}
	return nil
}

// readable is the mode of files in a directory that only the owner may enter.
const readable = 0o644

// replace writes a file. A key replaces another one in place, by one write of the same length: a container that
// mounts the single file would never see another file of this name.
func replace(path string, body []byte) error {
	if f, err := os.OpenFile(path, os.O_WRONLY, 0); err == nil {
		if info, err := f.Stat(); err == nil && info.Mode().IsRegular() && info.Size() == int64(len(body)) {
			_, err := f.WriteAt(body, 0)
			return errors.Join(err, f.Sync(), f.Close())
		}
		_ = f.Close()
	}
	tmp := path + ".new"
	err := os.WriteFile(tmp, body, readable) //nolint:gosec // see WriteFiles
	if err == nil {
		err = os.Chmod(tmp, readable) // whatever the umask is
	}
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	return nil
}

// serverConfig returns the part of a NATS server's configuration by which it trusts the authority, and the line
// in it that changes with what it says. The server keeps the accounts that it learns in the directory store.
func (a *Authority) serverConfig(store string) (text, digest []byte, err error) {
	s, err := a.Server()
	if err != nil {
		return nil, nil, err
	}
	h := sha256.New()
	preload := ""
	for _, token := range []string{s.JWT, s.Accounts[s.SystemAccount], s.Accounts[s.Account]} {
		what, err := undated(token)
		if err != nil {
			return nil, nil, err
		}
		_, _ = h.Write(what)
	}
	for _, id := range []string{s.SystemAccount, s.Account} {
		preload += fmt.Sprintf("  %s: %s\n", id, s.Accounts[id])
	}
	_, _ = h.Write([]byte(store))
	digest = fmt.Appendf(nil, "# digest %x\n", h.Sum(nil))
	return fmt.Appendf(nil, "# Whom the bus trusts. skandha secrets has written it.\n%soperator: %s\nsystem_account: %s\n"+
		"resolver {\n  type: full\n  dir: %q\n  allow_delete: true\n  interval: \"2m\"\n}\nresolver_preload {\n%s}\n",
		digest, s.JWT, s.SystemAccount, store, preload), digest, nil
}

// undated returns the claims of a JWT without those that differ each time it is signed.
func undated(token string) ([]byte, error) {
	_, rest, _ := strings.Cut(token, ".")
	body, _, _ := strings.Cut(rest, ".")
	raw, err := base64.RawURLEncoding.DecodeString(body)
	if err != nil {
		return nil, err
	}
	var claims map[string]any
	if err := json.Unmarshal(raw, &claims); err != nil {
		return nil, err
	}
	delete(claims, "iat")
	delete(claims, "jti")
	return json.Marshal(claims)
}
