package mailtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// certificates makes a certificate authority and a certificate for 127.0.0.1.
func (s *Servers) certificates() {
	s.tb.Helper()
	ca, caKey := s.certificate("ca.pem", "", nil, nil)
	s.certificate("cert.pem", "key.pem", ca, caKey)
	s.write("password", Password+"\n")
}

func (s *Servers) certificate(file, keyFile string, ca *x509.Certificate, caKey *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
	s.tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		s.tb.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: file},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		BasicConstraintsValid: true, IsCA: ca == nil, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if ca == nil {
		ca, caKey = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, ca, &key.PublicKey, caKey)
	if err != nil {
		s.tb.Fatal(err)
	}
	s.write(file, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	if keyFile != "" {
		private, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			s.tb.Fatal(err)
		}
		s.write(keyFile, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})))
	}
	return c, key
}

// users lists those who can log in.
func users() []string {
	list := []string{Agent, Alice, Bob}
	for n := range others {
		list = append(list, User(n))
	}
	return list
}

// nobody owns the mail.
const nobody = 65534

func (s *Servers) configureDovecot() {
	s.tb.Helper()
	var logins strings.Builder
	for _, u := range users() {
		fmt.Fprintf(&logins, "%s:{PLAIN}%s\n", u, Password)
	}
	s.write("users", logins.String())
	if err := os.MkdirAll(filepath.Join(s.Dir, "mail"), 0o755); err != nil { //nolint:gosec // for the servers' users
		s.tb.Fatal(err)
	}
	if err := os.Chown(filepath.Join(s.Dir, "mail"), nobody, nobody); err != nil {
		s.tb.Fatal(err)
	}
	s.write("dovecot.conf", strings.NewReplacer(
		"DIR", s.Dir, "IMAPS", fmt.Sprint(s.imaps), "IMAP", fmt.Sprint(s.imap), "UID", fmt.Sprint(nobody),
	).Replace(dovecotConf))
}

const dovecotConf = `
base_dir = DIR/run
state_dir = DIR/state
protocols = imap
listen = 127.0.0.1
log_path = DIR/dovecot.maillog
ssl = yes
disable_plaintext_auth = no
ssl_cert = <DIR/cert.pem
ssl_key = <DIR/key.pem
auth_mechanisms = plain login
first_valid_uid = 1
first_valid_gid = 1
mail_location = maildir:~/Maildir
mail_max_userip_connections = 100
passdb {
  driver = passwd-file
  args = scheme=PLAIN username_format=%u DIR/users
}
userdb {
  driver = static
  args = uid=UID gid=UID home=DIR/mail/%u
}
namespace inbox {
  inbox = yes
  mailbox Sent {
    special_use = \Sent
    auto = subscribe
  }
}
service imap-login {
  chroot =
  inet_listener imap {
    port = IMAP
  }
  inet_listener imaps {
    port = IMAPS
    ssl = yes
  }
}
service auth {
  unix_listener auth-postfix {
    mode = 0666
  }
}
`

func (s *Servers) configurePostfix() {
	s.tb.Helper()
	var mailboxes strings.Builder
	for _, u := range append(users(), Grey) {
		fmt.Fprintf(&mailboxes, "%s %s/Maildir/\n", u, u)
	}
	s.write("postfix/mailboxes", mailboxes.String())
	s.write("postfix/access", Grey+" 450 4.7.1 come back later\n")
	for _, d := range []string{"queue", "data"} {
		if err := os.MkdirAll(filepath.Join(s.Dir, d), 0o755); err != nil { //nolint:gosec // for the servers' users
			s.tb.Fatal(err)
		}
	}
	uid, gid := userOf(s.tb, "postfix")
	if err := os.Chown(filepath.Join(s.Dir, "data"), uid, gid); err != nil {
		s.tb.Fatal(err)
	}
	for _, d := range []string{
		"active", "bounce", "corrupt", "defer", "deferred", "flush", "hold", "incoming", "private", "saved", "trace",
		"public", "maildrop", "pid",
	} {
		path := filepath.Join(s.Dir, "queue", d)
		if err := os.MkdirAll(path, 0o755); err != nil { //nolint:gosec // likewise
			s.tb.Fatal(err)
		}
		if d == "pid" {
			continue
		}
		if err := os.Chown(path, uid, gid); err != nil {
			s.tb.Fatal(err)
		}
	}
	r := strings.NewReplacer("DIR", s.Dir, "UID", fmt.Sprint(nobody), "DOMAIN", Domain,
		"SMTPS", fmt.Sprint(s.smtps), "SUBMISSION", fmt.Sprint(s.submission), "SMTP", fmt.Sprint(s.smtp))
	s.write("postfix/main.cf", r.Replace(mainCF))
	s.write("postfix/master.cf", r.Replace(masterCF))
}

const mainCF = `
compatibility_level = 3.6
queue_directory = DIR/queue
data_directory = DIR/data
command_directory = /usr/sbin
daemon_directory = /usr/lib/postfix/sbin
maillog_file = DIR/maillog
maillog_file_prefixes = DIR
myhostname = mx.DOMAIN
mydestination =
local_recipient_maps =
alias_maps =
alias_database =
inet_interfaces = 127.0.0.1
inet_protocols = ipv4
mynetworks = 127.0.0.0/8
biff = no
default_transport = error:no mail leaves a test
virtual_mailbox_domains = DOMAIN
virtual_mailbox_base = DIR/mail
virtual_mailbox_maps = texthash:DIR/postfix/mailboxes
virtual_uid_maps = static:UID
virtual_gid_maps = static:UID
message_size_limit = 80000000
virtual_mailbox_limit = 0
smtpd_tls_cert_file = DIR/cert.pem
smtpd_tls_key_file = DIR/key.pem
smtpd_tls_security_level = may
smtpd_sasl_type = dovecot
smtpd_sasl_path = DIR/run/auth-postfix
smtpd_sasl_security_options = noanonymous
smtpd_recipient_restrictions = check_recipient_access texthash:DIR/postfix/access, permit_sasl_authenticated, reject_unauth_destination
smtpd_client_connection_count_limit = 0
smtpd_client_connection_rate_limit = 0
`

const masterCF = `
127.0.0.1:SMTP inet n - n - - smtpd
  -o smtpd_tls_security_level=none
127.0.0.1:SMTPS inet n - n - - smtpd
  -o smtpd_tls_wrappermode=yes
  -o smtpd_sasl_auth_enable=yes
  -o mynetworks=
127.0.0.1:SUBMISSION inet n - n - - smtpd
  -o smtpd_sasl_auth_enable=yes
  -o mynetworks=
pickup unix n - n 60 1 pickup
cleanup unix n - n - 0 cleanup
qmgr unix n - n 300 1 qmgr
tlsmgr unix - - n 1000? 1 tlsmgr
rewrite unix - - n - - trivial-rewrite
bounce unix - - n - 0 bounce
defer unix - - n - 0 bounce
trace unix - - n - 0 bounce
verify unix - - n - 1 verify
flush unix n - n 1000? 0 flush
proxymap unix - - n - - proxymap
proxywrite unix - - n - 1 proxymap
smtp unix - - n - - smtp
relay unix - - n - - smtp
showq unix n - n - - showq
error unix - - n - - error
retry unix - - n - - error
discard unix - - n - - discard
local unix - n n - - local
virtual unix - n n - - virtual
lmtp unix - - n - - lmtp
anvil unix - - n - 1 anvil
scache unix - - n - 1 scache
postlog unix-dgram n - n - 1 postlogd
`
