// Package grant says what "always for this session" may cover: which grants a
// confirmation request offers, and which calls a grant covers later. It is pure,
// speaks no NATS, and keeps nothing: the grants of a session are in its folded
// state (services/core/decide), until /reset.
//
// A grant binds a tool and, for every argument that the tool's spec names in
// its scope, a pattern: the value itself, or everything below a directory
// ("drafts/*") or of an origin ("https://api.example.com/*"). What has no scope,
// or a scope that cannot be bound with certainty, can be granted as exactly that
// call alone, by its hash; so can tools that run whatever they are handed.
//
// Covering is strict, and errs on the side of asking again: a value is covered by
// a wide pattern only if every program would read it in the same way. So there is
// no "..", no empty segment, no escape, no case folding, no user name, no other
// port, nothing invisible. What is refused here is not denied: a person is asked.
//
// What a grant cannot see: a symbolic link below a granted directory, and where a
// granted host redirects to. Tools guard these themselves (os.Root, http_allow).
package grant
