// Package mail has the e-mail accounts of a configuration file: their settings, connections and
// credentials. The tool runner (email:send and the others) and the listener email share it.
//
// # Configuration
//
// The section email. Secrets are named as env:NAME or file:PATH.
//
//	email:
//	  accounts:
//	    agent:
//	      address: agent@example.org
//	      name: Agent                     # beside the address, for people
//	      user: agent                     # default the address
//	      password: file:/run/secrets/agent
//	      imap: {host: imap.example.org}  # port: 993, security: tls
//	      smtp: {host: smtp.example.org}  # port: 465, security: tls
//	      sent: copy                      # or append, server
//
// # Packages
//
//   - letter reads e-mail.
//   - mailstore reads and changes the folders of an account, by IMAP.
//   - post composes and sends e-mail, by SMTP, once per key, and finds out what became of it.
//
// # Failure
//
// Connections use TLS unless the configuration says security: none. A server that hangs is
// given up when the context ends. Errors name the server and never a secret.
package mail
