// Package certificate makes the certificates with which the bus speaks TLS: an authority, and a server's
// certificate that it signs. Clients need the authority's certificate alone.
//
// The keys are ECDSA P-256, in files that only their owner can read. Nothing is overwritten, except the
// server's key and certificate by [Renew], each at once.
package certificate

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"time"
)

// The files of a directory.
const (
	CAFile        = "ca.pem"
	CAKeyFile     = "ca.key"
	ServerFile    = "server.pem"
	ServerKeyFile = "server.key"
)

const (
	day     = 24 * time.Hour
	caFor   = 10 * 365 * day
	caName  = "Skandha bus authority"
	maxDays = 3650
	// backdated allows for clocks that are behind.
	backdated = 5 * time.Minute
)

// Options are what a server's certificate says.
type Options struct {
	Hosts []string // names and addresses by which clients reach the server
	Days  int      // for which it is valid
}

// Info describes a certificate.
type Info struct {
	Hosts  []string
	Until  time.Time // of the server's certificate
	Root   time.Time // until when the authority is valid
	Digest string    // of the authority's certificate, as openssl prints it
}

var hostName = regexp.MustCompile(`^(\*\.)?[A-Za-z0-9_]([A-Za-z0-9_-]{0,62}\.?)*$`)

func (o Options) validate() error {
	if len(o.Hosts) == 0 {
		return errors.New("no host: name at least one by which clients reach the bus")
	}
	for _, h := range o.Hosts {
		if net.ParseIP(h) == nil && (!hostName.MatchString(h) || len(h) > 253) {
			return fmt.Errorf("host %q: want a name or an IP address, without a port", h)
		}
	}
	if o.Days < 1 || o.Days > maxDays {
		return fmt.Errorf("days is %d, want 1 to %d", o.Days, maxDays)
	}
	return nil
}

// Init makes an authority and a server's certificate in a directory, which it makes if it is missing. It refuses
// to touch a directory that has any of them.
func Init(dir string, o Options, now time.Time) error {
	if err := o.validate(); err != nil {
		return err
	}
	for _, name := range []string{CAFile, CAKeyFile, ServerFile, ServerKeyFile} {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			return fmt.Errorf("%s exists; nothing was written. To make a new certificate of the server, renew it; "+
				"to begin anew, name another directory", filepath.Join(dir, name))
		}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: caName},
		NotBefore: now.Add(-backdated), NotAfter: now.Add(caFor),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return err
	}
	if err := writeKey(filepath.Join(dir, CAKeyFile), key); err != nil {
		return err
	}
	if err := write(filepath.Join(dir, CAFile), "CERTIFICATE", der, 0o644); err != nil {
		return err
	}
	return issue(dir, o, now)
}

// Renew makes a new key and certificate of the server. Without hosts it is for those of the one before.
func Renew(dir string, o Options, now time.Time) error {
	if len(o.Hosts) == 0 {
		before, err := Read(dir)
		if err != nil {
			return err
		}
		o.Hosts = before.Hosts
	}
	if err := o.validate(); err != nil {
		return err
	}
	return issue(dir, o, now)
}

// issue signs a new certificate of the server.
func issue(dir string, o Options, now time.Time) error {
	ca, err := readCertificate(filepath.Join(dir, CAFile))
	if err != nil {
		return err
	}
	if now.After(ca.NotAfter) {
		return fmt.Errorf("the authority in %s has expired on %s; make a new one in another directory",
			dir, ca.NotAfter.Format(time.DateOnly))
	}
	signer, err := readKey(filepath.Join(dir, CAKeyFile))
	if err != nil {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	until := now.Add(time.Duration(o.Days) * day)
	if until.After(ca.NotAfter) {
		until = ca.NotAfter
	}
	template := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: "Skandha bus"},
		NotBefore: now.Add(-backdated), NotAfter: until,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	for _, h := range o.Hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca, key.Public(), signer)
	if err != nil {
		return fmt.Errorf("signing with %s: %w", CAKeyFile, err)
	}
	if err := writeKey(filepath.Join(dir, ServerKeyFile), key); err != nil {
		return err
	}
	return write(filepath.Join(dir, ServerFile), "CERTIFICATE", der, 0o644)
}

// Read describes the certificates of a directory.
func Read(dir string) (Info, error) {
	ca, err := readCertificate(filepath.Join(dir, CAFile))
	if err != nil {
		return Info{}, err
	}
	server, err := readCertificate(filepath.Join(dir, ServerFile))
	if err != nil {
		return Info{}, err
	}
	if err := server.CheckSignatureFrom(ca); err != nil {
		return Info{}, fmt.Errorf("%s is not signed by %s: %w", ServerFile, CAFile, err)
	}
	i := Info{Hosts: server.DNSNames, Until: server.NotAfter, Root: ca.NotAfter, Digest: digest(ca)}
	for _, ip := range server.IPAddresses {
		i.Hosts = append(i.Hosts, ip.String())
	}
	return i, nil
}

func serial() *big.Int {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails, see crypto/rand
	b[0] &= 0x7f           // a positive number
	return new(big.Int).SetBytes(b[:])
}

func writeKey(path string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return write(path, "PRIVATE KEY", der, 0o600)
}

// write replaces a file at once.
func write(path, kind string, der []byte, mode fs.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // gone if all went well
	err = pem.Encode(f, &pem.Block{Type: kind, Bytes: der})
	if err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

func readPEM(path, kind string) ([]byte, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s does not exist; make the certificates first", path)
	}
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil || block.Type != kind {
		return nil, fmt.Errorf("%s is not a %s in PEM", path, kind)
	}
	return block.Bytes, nil
}

func readCertificate(path string) (*x509.Certificate, error) {
	der, err := readPEM(path, "CERTIFICATE")
	if err != nil {
		return nil, err
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

func readKey(path string) (*ecdsa.PrivateKey, error) {
	der, err := readPEM(path, "PRIVATE KEY")
	if err != nil {
		return nil, err
	}
	key, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	private, ok := key.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("%s is not an ECDSA key", path)
	}
	return private, nil
}
