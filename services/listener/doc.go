// Package listener is the listener service: it hears the world and hands what it
// hears to agents. What a listener is says package contract; the kinds are stdio,
// webhook, websocket and cron, each with a package and a manual of its own.
//
// # Configuration
//
// The section listeners of the configuration file (YAML). A name is an id, unique
// among all kinds; it is the writer in the subjects of the listener's inputs. An
// unknown field is an error that names its line.
//
//	listeners:
//	  http:                        # where webhooks and WebSockets are served
//	    listen: 127.0.0.1:8090
//	    hosts: [agent.example.org] # names it is reached by, beside localhost
//	    tls_cert: cert.pem         # with tls_key: HTTPS
//	    tls_key: key.pem
//	  stdin:
//	    terminal:                  # each line is an input
//	      session: terminal        # agent: main; json: true, acks: true, mode: interrupt
//	  webhook:
//	    issues:                    # POST /hooks/issues
//	      secrets: [env:ISSUES_SECRET]       # whsec_…; Standard Webhooks
//	      session_field: /repository/name    # or session: ci
//	      text_template: "{{.action}}: {{.issue.title}}"  # or text_field: /issue/title
//	  websocket:
//	    chat:                      # GET /ws/chat
//	      tokens: [file:/run/secrets/chat]
//	      origins: [https://app.example.org]
//	      choose_session: true     # or session: chat
//	  cron:
//	    clock:
//	      session: daily
//	      zone: Europe/Berlin
//	      catch_up: last           # none, last or all of what was missed
//	      entries:
//	        morning: {schedule: "30 8 * * mon-fri", text: "What is on today?"}
//
// # Subjects
//
// Produced: agent.<agent>.<session>.sense.input.<listener>; the cron listener's are
// in its manual. Consumed: JetStream's acknowledgements.
//
// # Guarantee
//
// Whoever was told that his input was taken can rely on it: it is in the log. Whoever
// was not says it again with the same id, and it is the same input. At the end every
// listener stops taking, and waits for what it took until [Options].Drain is over;
// what is not acknowledged then is named in the error of [Run].
//
// # Failure
//
// Listeners start whether the bus is there or not. A port that is taken ends the
// service. A listener that ends by itself, as standard input does, leaves the others
// running; when it was the last, the service ends, with its error if it had one.
package listener
