// Package golden keeps logs that releases have written, and what was shown of them. Every later release must fold,
// show and continue them: see schemas/adr/0050.
package golden
