// Package audit defines the entries of the audit log: who did, approved, refused, registered and revoked what, and
// when. It is pure: no bus, no clock.
//
// An entry is a line of JSON. It has a number, the digest of the entry before it, and as its last field its own
// digest: the SHA-256, in hex, of the line without this field (that is, without `,"digest":"…"` before the closing
// brace). So anybody can verify a file of such lines with the tools of a shell, and no canonical form of JSON is
// needed: what counts is the line as it was written. A [Chain] reads lines in order and names the first entry that
// was changed, removed or put in.
//
// [Pick] says what of a commit is audited. It depends on nothing but the commit, so that entries can be compared with
// the commits that are still in the log.
package audit
