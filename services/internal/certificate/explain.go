package certificate

import (
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

func digest(c *x509.Certificate) string {
	sum := sha256.Sum256(c.Raw)
	return strings.ReplaceAll(fmt.Sprintf("% X", sum[:]), " ", ":")
}

// Explain returns what to do about an error of a client's TLS connection to the bus, which verifies it against the
// file ca; empty if the error is about something else.
func Explain(err error, ca string) string {
	against := "the system's authorities; name the bus's own with --tls-ca or SKANDHA_TLS_CA"
	if ca != "" {
		against = ca + "; is it the " + CAFile + " that was made with the certificate of this bus?"
	}
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	var unknown x509.UnknownAuthorityError
	switch {
	case errors.As(err, &host):
		names := host.Certificate.DNSNames
		for _, ip := range host.Certificate.IPAddresses {
			names = append(names, ip.String())
		}
		return fmt.Sprintf("the certificate of the bus is for %s, not for %s; connect by one of these names, or renew it "+
			"with --host %s", strings.Join(names, ", "), host.Host, host.Host)
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		if time.Now().Before(invalid.Cert.NotBefore) {
			return fmt.Sprintf("the certificate of the bus is valid only from %s on; is this machine's clock right?",
				invalid.Cert.NotBefore.Format(time.DateTime))
		}
		return fmt.Sprintf("the certificate of the bus has expired on %s; renew it, and restart the bus",
			invalid.Cert.NotAfter.Format(time.DateOnly))
	case errors.As(err, &unknown), errors.As(err, &invalid):
		return "the certificate of the bus cannot be verified against " + against
	case errors.Is(err, nats.ErrSecureConnWanted):
		return "this bus does not speak TLS; leave --tls-ca and SKANDHA_TLS_CA away, and use nats:// in its URL"
	}
	return ""
}
