// Package webhook is the listener that other systems call: each POST /hooks/<name>
// is one input.
//
// # Authentication
//
// Requests are signed by the Standard Webhooks scheme (www.standardwebhooks.com):
// the headers webhook-id, webhook-timestamp (Unix seconds) and webhook-signature, one
// or several of v1,<base64 of HMAC-SHA256 over "id.timestamp.body"> separated by
// spaces, with a secret whsec_<base64>. A match with any one of [Config].Secrets is
// enough, so that secrets can be rotated while senders continue; a timestamp may be
// at most five minutes off. Without secrets the listener does not start, unless
// insecure is set and the server is reachable only from this machine.
//
// # Guarantee
//
// 202 {"id", "sequence"} is returned once the log has acknowledged the input, never
// before. The webhook-id is the input's id, so a request that is sent again is the
// same input (see package contract). A request that was received whole is emitted
// even if the sender hangs up.
//
// # Failure
//
// 4xx are the sender's errors, and {"field", "error"} names the field and the fix: 400
// a header or the JSON, 401 signature or time, 405, 413, 415, 421 an unknown host
// name, 422 the text or the session. 429 with Retry-After means that too many inputs
// are waiting (limits.backlog of core). 503 with Retry-After means that the bus cannot
// store or did not acknowledge in time, that too many requests are open, or that the
// listener is stopping. The sender sends it again with the same webhook-id.
package webhook
