// Package retry calls APIs that fail now and then, on behalf of adapters: a few tries
// with growing, jittered pauses that honour the API's Retry-After, and a circuit
// breaker per API, so that one that is down gets no requests for a while. The breaker
// counts requests, not the tries of each.
//
// The retries of vendors' SDKs are switched off; only this package retries. A try
// whose answer has begun to stream is never repeated here: its text was seen,
// and core decides about a new attempt, which starts the text again.
package retry
