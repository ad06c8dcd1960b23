// Package retry is how adapters call APIs that fail now and then: a few tries
// with growing, jittered pauses that honour the API's own wish, and a circuit
// breaker per API, so that one that is down is left alone for a while. The breaker
// counts questions, whatever the number of tries at each.
//
// The retries of vendors' SDKs are switched off; this is the one place. A try
// whose answer has begun to stream is never repeated here: its text was seen,
// and core decides about a new attempt, which starts the text again.
package retry
