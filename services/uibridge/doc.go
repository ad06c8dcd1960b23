// Package uibridge is the UI bridge: it shows people what agents do, and brings agents what
// people say. It serves the web page, and offers the same to every other UI:
//
//	/ and /assets/*                                      the page
//	/v1/auth/*                                           package access
//	/v1/ws                                               package rpc: WebSocket, JSON-RPC 2.0
//	/v1/agents/{agent}/sessions/{session}/events         package sse: notifications as SSE
//	/v1/agents/{agent}/sessions/{session}/inputs, confirmations, cancels, commands
//	/v1/rpc/{method}                                     every method of the WebSocket, as POST
//	/v1/agents/{agent}/sessions/{session}/artifacts/*    package inspect: files that tools handed over
//	/v1/agui/{agent}                                     package compat/agui: AG-UI
//	/v1/agents/{agent}/sessions/{session}/camera         package camera: pictures that a person shares
//	/v1/chat/completions, /v1/models, /v1/audio/*        package compat/openai
//	/mcp                                                 package compat/mcp: MCP
//
// Package contract defines what these transports share. Package backend implements it, and
// package access authenticates and limits every request.
//
// # Configuration
//
// The configuration is the section ui of the configuration file (YAML). Every field is
// optional. An unknown field is an error that names its line.
//
//	ui:
//	  listen: 127.0.0.1:7070
//	  tls_cert: cert.pem          # with tls_key: HTTPS
//	  tls_key: key.pem
//	  url: https://agent.example.org   # the URL that browsers use, behind a proxy
//	  hosts: [agent.lan]          # its host names, besides localhost and url's
//	  origins: [https://app.example.org]  # other pages that may use it, with a token
//	  proxies: [10.0.0.0/8]       # trusted for X-Forwarded-For and -Proto
//	  cookie: 168h                # how long an unused browser stays logged in
//	  owner: file:/run/secrets/ui # the owner's token; default DATA/ui-token
//	  tokens:
//	    - name: dashboard         # writes as ui-dashboard
//	      token: env:DASHBOARD_TOKEN
//	      rights: [see]           # see, talk, approve, administer; default the first three
//	      agents: [main]          # default: all
//	      expires: 2030-01-01T00:00:00Z
//	  limits: {requests: 100, burst: 500, inputs: 240, decisions: 240, connections: 512, all_connections: 2048, anonymous: 4096, body: 8388608}
//
// # Subjects
//
// Consumed: the subjects that packages hub and backend name. Any replica also answers
// service.uibridge.link with a one-time link to its page, as [Link] (every client that may
// send this request on the bus is trusted with the link), and service.uibridge.status with
// a [Status], and service.camera.look for the cameras that people share (package camera). Produced:
// media.frame.<agent>.<session>, and agent.<agent>.<session>.sense.<cause>.ui-<token>.
//
// # Guarantee and failure
//
// The bridge keeps only its owner's token and the logins that have been ended. Whatever it
// acknowledged is in the log. Its notifications carry their place in the log, so a UI whose
// bridge was killed continues without a gap at another bridge, or at the same one after a
// restart. On shutdown, streams end at once with a reason, and pending requests are waited
// for. Without the bus, the bridge serves the page and refuses everything else as
// unavailable.
package uibridge
