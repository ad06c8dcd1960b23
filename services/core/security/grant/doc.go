// Package grant defines what "always for this session" may cover: which grants a
// confirmation request offers, and which later calls a grant covers. It is pure, does
// not use NATS, and keeps no state: the grants of a session are in its folded state
// (services/core/decide), until /reset.
//
// A grant binds a tool and, for every argument that the tool's spec names in its scope,
// a pattern: the value itself, everything below a directory ("drafts/*"), or everything
// of an origin ("https://api.example.com/*"). A call of a tool without a scope, or with
// a scope that cannot be bound with certainty, can only be granted exactly, by its hash.
// So can calls of tools that run arbitrary code.
//
// Matching is strict and errs on the side of asking again: a wide pattern covers a value
// only if every program would read the value in the same way. So there is no "..", no
// empty segment, no escape, no case folding, no user name, no other port, and nothing
// invisible. A call that no grant covers is not denied: a person is asked.
//
// A grant keeps what its request named as read from outside, and covers no call that
// follows another text from outside.
//
// A grant cannot see a symbolic link below a granted directory, or where a granted host
// redirects to. Tools guard against these themselves (os.Root, http_allow, web_fetch).
package grant
