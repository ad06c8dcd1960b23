// Package passkey registers the passkeys of people, and verifies that a person has used one for exactly
// one approval. It uses no bus.
//
// # What an assertion is bound to
//
// The challenge of an assertion is the hash of the session, the confirmation id, the hash of the call,
// the person, the browser's login, a nonce and a time two minutes away. So it approves nothing else, and
// neither a stolen cookie nor an assertion that was seen elsewhere approves anything. The bridge keeps no
// challenges: what was hashed is signed, and the browser brings it back.
//
// # Registration
//
// The first passkey of a person is registered within ten minutes after they logged in; each further one
// needs an assertion of one that is registered.
//
// # Guarantee
//
// A passkey is in the file when its registration is answered. Replicas of the bridge share the file if
// they share the data directory; the file is read for each use.
//
// # Failure
//
// A file that cannot be read refuses all assertions. A lost passkey is removed from the file by hand.
package passkey
