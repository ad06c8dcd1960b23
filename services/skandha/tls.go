package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"skandha.dev/services/internal/certificate"
)

// tlsCmd makes the certificates of the bus.
type tlsCmd struct {
	Init  tlsInitCmd  `cmd:"" help:"Make an authority, and a certificate of the bus that it signs."`
	Renew tlsRenewCmd `cmd:"" help:"Make a new certificate of the bus, by the same authority. Clients notice nothing; the bus must be restarted."`
	Show  tlsShowCmd  `cmd:"" help:"Say for which names the certificate is, and until when. Exit codes: 0 valid, 1 expired or about to expire."`
}

// soon is how long before the end a certificate should be renewed.
const soon = 30 * 24 * time.Hour

type tlsDir struct {
	Dir string `arg:"" help:"Directory of the certificates and keys."`
}

func (d tlsDir) print(now time.Time) (certificate.Info, error) {
	i, err := certificate.Read(d.Dir)
	if err != nil {
		return i, err
	}
	fmt.Printf("for        %s\nuntil      %s (%d days)\nauthority  until %s\n           SHA-256 %s\n", strings.Join(i.Hosts, ", "),
		i.Until.Local().Format(time.DateOnly), int(i.Until.Sub(now).Hours()/24), i.Root.Local().Format(time.DateOnly), i.Digest)
	return i, nil
}

type tlsInitCmd struct {
	tlsDir
	Host []string `default:"localhost,127.0.0.1,::1,nats" placeholder:"NAME" help:"Names and addresses by which clients reach the bus. Default: ${default}."`
	Days int      `default:"365" help:"For how many days the certificate of the bus is valid. The authority is for ten years."`
}

// Run implements the command.
func (c *tlsInitCmd) Run() error {
	if err := certificate.Init(c.Dir, certificate.Options{Hosts: c.Host, Days: c.Days}, time.Now()); err != nil {
		return err
	}
	if _, err := c.print(time.Now()); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "clients need %s; keep %s away from everybody\n", filepath.Join(c.Dir, certificate.CAFile),
		filepath.Join(c.Dir, certificate.CAKeyFile))
	return nil
}

type tlsRenewCmd struct {
	tlsDir
	Host []string `placeholder:"NAME" help:"Names and addresses by which clients reach the bus. Default: as before."`
	Days int      `default:"365" help:"For how many days it is valid."`
}

// Run implements the command.
func (c *tlsRenewCmd) Run() error {
	if err := certificate.Renew(c.Dir, certificate.Options{Hosts: c.Host, Days: c.Days}, time.Now()); err != nil {
		return err
	}
	if _, err := c.print(time.Now()); err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "restart the bus, which reads it at its start")
	return nil
}

type tlsShowCmd struct{ tlsDir }

// Run implements the command.
func (c *tlsShowCmd) Run() error {
	now := time.Now()
	i, err := c.print(now)
	switch {
	case err != nil:
		return err
	case now.After(i.Until):
		return fmt.Errorf("it has expired; renew it: skandha tls renew %s", shellQuote(c.Dir))
	case now.Add(soon).After(i.Until):
		return fmt.Errorf("it expires soon; renew it: skandha tls renew %s", shellQuote(c.Dir))
	}
	return nil
}
