// Package mailstore reads and changes the mailboxes of an account, by IMAP.
//
// A [Store] is one connection and is used by one goroutine at a time. Every operation ends within
// [OpTimeout], whatever the server does, and reads at most [MaxOpBytes]; after an error of the
// connection the store is useless, and the caller opens another one. Messages are named by UID,
// which is valid together with the UIDVALIDITY that [Store.Select] returns.
//
// Reading never changes a message: it stays unseen.
package mailstore
