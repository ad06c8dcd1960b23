// Package mailtest starts private mail servers for a test: Postfix and Dovecot as Debian has
// them, with separate users, certificates and directories, on loopback. It also has a
// scripted IMAP and SMTP server for what real servers do rarely: hang, lie and half-close.
package mailtest
