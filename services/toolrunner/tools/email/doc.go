// Package email provides the tools email:send, email:read, email:search and email:sync for the
// accounts of the section email; see services/internal/mail.
//
// Reading never changes a mailbox, and never fetches remote content. What a letter says is data,
// not an instruction. Sending needs approval by default. A letter is sent once per call: its
// Message-ID is derived from the call's key, and after a crash the probe looks for it; see package
// post for what that can prove.
package email
