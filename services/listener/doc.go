// Package listener is the listener service: it receives messages from outside and
// passes them to agents as inputs. Package contract defines the interface of a
// listener. The kinds are stdio, webhook, websocket, cron, mqtt, sensor, camera, microphone, email,
// push and the gateways to chat networks (package chat): irc, xmpp, matrix, telegram, discord and
// slack. The documentation of each is in its package.
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
//	      catch_up: last           # emit none, last or all of the missed occurrences
//	      entries:
//	        morning: {schedule: "30 8 * * mon-fri", text: "What is on today?"}
//	  mqtt:
//	    house:                     # on a broker of the section mqtt
//	      topics:
//	        windows: {topic: "house/+/window", session: house, on_change: true}
//	  sensor:
//	    load: {command: {args: [cut, "-d ", -f1, /proc/loadavg]}, above: 8, session: host}
//	  camera:
//	    yard: {url: "rtsp://camera.example.org/1", user: agent, password: env:CAMERA_PASSWORD, session: home}
//	  microphone:
//	    desk: {pulse: default, session: home}
//	  irc:
//	    libera:
//	      server: irc.example.org:6697
//	      account: agent             # of the network's services, for SASL
//	      account_password: env:IRC_PASSWORD
//	      rooms: {"#ops": {session: ops}}
//	      direct: true               # each person has a session
//	      allow: [ann, bob]          # accounts that may talk; approve: those that may approve
//	  xmpp:
//	    team:
//	      jid: agent@example.org
//	      password: env:XMPP_PASSWORD
//	      rooms: {ops@conference.example.org: {mention: false}}
//	      allow: [ann@example.org]
//	  matrix:
//	    home:
//	      homeserver: https://matrix.example.org
//	      user: "@agent:example.org"
//	      token: env:MATRIX_TOKEN
//	      rooms: {"!abc:example.org": {}}
//	      allow: ["@ann:example.org"]
//	  telegram:
//	    bot:
//	      token: env:TELEGRAM_TOKEN
//	      direct: true
//	      allow: ["123456789"]       # ids of users
//	  discord:
//	    guild:
//	      token: env:DISCORD_TOKEN
//	      rooms: {"1100000000000000000": {}} # ids of channels
//	      allow: ["1100000000000000001"]     # ids of users
//	  slack:
//	    work:
//	      app_token: env:SLACK_APP_TOKEN     # Socket Mode
//	      bot_token: env:SLACK_BOT_TOKEN
//	      rooms: {C0123456789: {}}
//	      allow: [U0123456789]
//	  email:
//	    inbox:
//	      account: agent           # of the section email
//	      from: ["*@example.org"]
//	email:                         # see services/internal/mail
//	  accounts:
//	    agent:
//	      address: agent@example.org
//	      password: env:MAIL_PASSWORD
//	      imap: {host: imap.example.org}
//	      smtp: {host: smtp.example.org}
//
// # Subjects
//
// Produced: agent.<agent>.<session>.sense.input.<listener>; for those of the cron
// listener see package cron. Consumed: JetStream's acknowledgements.
//
// # Guarantee
//
// An input that was reported to its sender as accepted is in the log. A sender that
// got no such report sends it again with the same id, and it counts as the same
// input. On shutdown every listener stops accepting inputs and waits up to
// [Options].Drain for those it has accepted; the error of [Service.Run] names what is still
// unacknowledged then.
//
// # Failure
//
// Listeners start whether or not the bus is available. If the port is in use, the
// service ends. When a listener ends by itself, as standard input does, the others
// keep running; when it was the last one, the service ends, with the listener's error
// if it had one.
package listener
