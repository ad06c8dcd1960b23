// Package proposal describes tool calls to the people who decide about them, and shows their
// results to them: which edit of a file a call makes, compared with what is known of the file,
// and what an approval for longer covers. All terminals and editors use it; the page has the
// same rules.
package proposal
