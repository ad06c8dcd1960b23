// Package uibridge is the UI bridge: it shows what agents do to people, and brings
// what people say to agents. It serves the web page, and the same to every other UI:
//
//	/ and /assets/*                                      the page
//	/v1/auth/*                                           package access
//	/v1/ws                                               package rpc: WebSocket, JSON-RPC 2.0
//	/v1/agents/{agent}/sessions/{session}/events         package sse: what happens, as SSE
//	/v1/agents/{agent}/sessions/{session}/inputs, confirmations, cancels, commands
//	/v1/rpc/{method}                                     every method of the WebSocket, as POST
//	/v1/agents/{agent}/sessions/{session}/artifacts/*    package inspect: files that tools left
//	/v1/agui/{agent}                                     package agui: AG-UI
//	/v1/chat/completions, /v1/models                     package openai
//
// Package contract is what these doors have in common, package backend what they stand
// on, and package access who may pass them.
//
// # Configuration
//
// The section ui of the configuration file (YAML); everything may be left out. An
// unknown field is an error that names its line.
//
//	ui:
//	  listen: 127.0.0.1:7070
//	  tls_cert: cert.pem          # with tls_key: HTTPS
//	  tls_key: key.pem
//	  url: https://agent.example.org   # how browsers reach it, behind a proxy
//	  hosts: [agent.lan]          # names it is reached by, beside localhost and url's
//	  origins: [https://app.example.org]  # other pages that may talk to it, with a token
//	  proxies: [10.0.0.0/8]       # whose X-Forwarded-For and -Proto are believed
//	  cookie: 168h                # how long an unused browser stays logged in
//	  owner: file:/run/secrets/ui # the owner's token; default DATA/ui-token
//	  tokens:
//	    - name: dashboard         # writes as ui-dashboard
//	      token: env:DASHBOARD_TOKEN
//	      rights: [see]           # see, talk, approve, administer; default the first three
//	      agents: [main]          # default every one
//	      expires: 2030-01-01T00:00:00Z
//	  limits: {requests: 100, burst: 500, inputs: 240, decisions: 240, connections: 512, all_connections: 2048, anonymous: 4096, body: 8388608}
//
// # Subjects
//
// Consumed: what packages hub and backend name, and, answered by any replica,
// service.uibridge.link with a one-time link to its page, as [Link]: whoever may ask on
// the bus is trusted with it; service.uibridge.status with a [Status].
// Produced: agent.<agent>.<session>.sense.<cause>.ui-<token>.
//
// # Guarantee and failure
//
// The bridge keeps nothing but its owner's token and who has logged out. What it
// acknowledged is in the log; what it tells carries its place there, so that a UI whose
// bridge was killed goes on at another, or at the next, without a gap. At the end
// streams are ended with a reason at once, and requests are waited for. Without the
// bus it serves the page, and refuses the rest as unavailable.
package uibridge
