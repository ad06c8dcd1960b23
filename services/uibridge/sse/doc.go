// Package sse serves UIs over plain HTTP: notifications are server-sent events, and every
// request is a POST of JSON.
//
// # Notifications
//
//	GET /v1/agents/{agent}/sessions/{session}/events?after=&html=1&commits=1&ui=
//
//	retry: 1000
//
//	event: onAttached
//	data: {"agent":"main","session":"s","after":"0","until":"0","state":"waiting_for_input"}
//
//	id: 13.1
//	event: onAgentStateChange
//	data: {"agent":"main","session":"s","time":"…","state":"thinking"}
//
// The event is the notification's method, the data its parameters in one line, the id its
// place in the log. Lossy notifications have no id, so that they do not change the reader's
// last event id. Last-Event-ID, which browsers send by themselves when they reconnect,
// takes precedence over after; a client that sends it gets exactly what follows. A comment
// is sent every [Config.KeepAlive]. The last event is onDropped {code, message, after}: the
// connection did not keep up, the token has expired, the log was replaced, or the bridge is
// shutting down. It has an id only if the log no longer contains the previous one: "0", so
// that a browser that reconnects by itself gets all of the new log. A peer that reads
// nothing for [Config.WriteWait] is cut off without onDropped.
//
// # Requests
//
//	POST /v1/agents/{agent}/sessions/{session}/inputs         {input, id?, mode?}
//	POST /v1/agents/{agent}/sessions/{session}/confirmations  {confirmationId, hash, approved, reason?, always?}
//	POST /v1/agents/{agent}/sessions/{session}/cancels        {sequence?, inputId?, reason?}
//	POST /v1/agents/{agent}/sessions/{session}/commands       {name, args?, id?}
//	POST /v1/rpc/{method}                                     the method's parameters
//
// The first four are answered with 202 and a [contract.Receipt] after the bus has
// acknowledged, never before. The last one calls any method by its name, those four too
// ([request.Desk.Call], with agent and session among the parameters), and is answered with
// 200 and the result. An unknown method is answered with 404 and the names of all methods.
//
//	$ curl -N -H "Authorization: Bearer $TOKEN" localhost:8080/v1/agents/main/sessions/s/events?after=0
//	$ curl -H "Authorization: Bearer $TOKEN" --json '{"input":"hello"}' localhost:8080/v1/agents/main/sessions/s/inputs
//	{"agent":"main","session":"s","sequence":12,"turn":"…","id":"…"}
//
// A body is JSON with Content-Type application/json. A field that is unknown, missing, of a
// wrong type or too large is refused, with its name. Errors are a [contract.Error], with
// its status.
package sse
