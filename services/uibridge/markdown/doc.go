// Package markdown renders what models, tools and people write as HTML that a browser
// may be given: Markdown in, a small set of elements out.
//
// It reads CommonMark with GitHub's tables, strikethrough, task lists and bare links.
// Two things it does not read. Raw HTML is text like any other, and shown as it was
// written. Link reference definitions ("[name]: https://…" somewhere else) stay text,
// too: a text is rendered while it is being written, and a definition that comes last
// would change what stands above it; it would also let a short text become a huge page.
//
// Two layers keep it safe. The renderer writes only elements and
// addresses that it knows: links to http, https and mailto, which open in a window of
// their own without a way back; pictures that an agent made, below /v1/agents/, and no
// other, since whoever can have a picture fetched is told who reads what, and when; a
// picture from elsewhere becomes a link. After it, a policy (bluemonday) lets through
// exactly those elements and attributes. There is no style, no id and no name; class is
// only ever language-… on code.
//
// Cost: rendering is linear in the text. What would make it more than that is bounded:
// the size of a text, the depth of lists and quotes, the number of signs in a paragraph
// that Markdown may have to look at again, the cells of a table. What is beyond a bound
// is shown as plain text; nothing is lost.
//
// A [Renderer] may be used by many at once; a [Stream] belongs to one.
package markdown
