// Package page provides the tool web:fetch, which reads a page for a model: HTML as Markdown,
// PDF as text, and other text as it is.
//
// # Guarantee
//
// It only reads: GET without cookies or credentials, from hosts that the configuration allows
// and from public addresses (package guard). A redirect is followed if it stays on the host
// (with or without "www.", and to https); any other one is answered with its target, because
// policy judges a call by the URL that it names. At most ten redirects are followed.
//
// A page is read in at most 30 seconds and converted in as many; text and HTML up to 8 MiB and
// 150,000 nodes, the rest of which is left out and said to be; PDF up to 32 MiB. Two pages are
// converted at a time. The content of a result has at most what a result holds uncut; its
// next_offset continues it.
//
// # Failure
//
// What cannot be read is an error that says why: a status, a media type that is no text, a
// connection that ended early, a limit. A page that breaks the converter is answered as plain text.
package page
