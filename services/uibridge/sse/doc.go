// Package sse is the door for UIs that speak plain HTTP: server-sent events tell what
// happens, and everything that can be asked for is a POST of JSON.
//
// # What is told
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
// The event is the notification's method, the data its parameters in one line, the id
// its place in the log. What is lossy has no id, so that a reader's last event id stays
// what it was. Last-Event-ID, which browsers send by themselves when they connect
// again, goes before after; whoever sends it is told exactly what follows. Every
// [Config.KeepAlive] a comment is sent. The last event is onDropped {code, message,
// after}: the connection did not keep up, the token has expired, the log was replaced,
// or the bridge stops. It has an id only if the log no longer holds the one before it:
// "0", so that a browser that reconnects by itself gets all of the new log.
// A peer that takes nothing for [Config.WriteWait] is cut off without.
//
// # What can be asked for
//
//	POST /v1/agents/{agent}/sessions/{session}/inputs         {input, id?, mode?}
//	POST /v1/agents/{agent}/sessions/{session}/confirmations  {confirmationId, hash, approved, reason?, always?}
//	POST /v1/agents/{agent}/sessions/{session}/cancels        {sequence?, inputId?, reason?}
//	POST /v1/agents/{agent}/sessions/{session}/commands       {name, args?, id?}
//	POST /v1/rpc/{method}                                     the method's parameters
//
// The first four are answered with 202 and a [contract.Receipt] after the bus has
// acknowledged, never before. The last calls any method by its name, those four too
// ([request.Desk.Call], with agent and session among the parameters), and is answered
// with 200 and its result. An unknown method is answered with 404 and the names of all.
//
//	$ curl -N -H "Authorization: Bearer $TOKEN" localhost:8080/v1/agents/main/sessions/s/events?after=0
//	$ curl -H "Authorization: Bearer $TOKEN" --json '{"input":"hello"}' localhost:8080/v1/agents/main/sessions/s/inputs
//	{"agent":"main","session":"s","sequence":12,"turn":"…","id":"…"}
//
// A body is JSON with Content-Type application/json. What is unknown, missing, of a
// wrong type or too much is refused, with the field. Errors are a [contract.Error], with
// its status.
package sse
