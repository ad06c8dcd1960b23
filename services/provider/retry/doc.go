// Package retry calls APIs that fail now and then, on behalf of adapters: a few tries
// with growing, jittered pauses that honour the API's Retry-After, and a circuit
// breaker per API, so that one that is down gets no requests for a while. The breaker
// counts requests, not the tries of each.
//
// The retries of vendors' SDKs are switched off; only this package retries. A try
// whose answer has begun to stream is never repeated here: its text was seen,
// and core decides about a new attempt, which starts the text again. The same holds for an
// answer of which no text was seen: the API charges for it.
//
// A Retry-After that is longer than a pause ends the attempt, so that core can ask another
// provider. If it asks the same API the same question again, that attempt waits as long as the
// API asked for, or fails at once if that leaves too little time for the answer.
package retry
